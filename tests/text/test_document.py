"""One document, three views."""

from __future__ import annotations

import json

from occupancy_lab.explaining import Document, Section, Table

DOCUMENT = Document(
    "title",
    ("the answer",),
    (Section("first", (Table(("", "a|b"), (("row", "1 | 2"),), "caption"),), ("a sentence",)),),
)


def test_markdown_has_every_part_in_order() -> None:
    """Title, answer, section, caption, table and sentences follow one another."""
    lines = DOCUMENT.to_markdown().splitlines()
    positions = [
        next(number for number, line in enumerate(lines) if text in line)
        for text in ("# title", "- the answer", "## first", "caption", "| row", "- a sentence")
    ]
    assert positions == sorted(positions)


def test_markdown_escapes_what_would_end_a_cell() -> None:
    """A bar inside a cell, of a header too, stays inside it."""
    rows = [line for line in DOCUMENT.to_markdown().splitlines() if line.startswith("|")]
    assert all(row.replace(r"\|", "").count("|") == 3 for row in rows)


def test_dict_is_json() -> None:
    """The plain values survive JSON, with every part."""
    values = json.loads(json.dumps(DOCUMENT.to_dict()))
    assert values["sections"][0]["tables"][0]["rows"] == [["row", "1 | 2"]]
    assert values["sections"][0]["sentences"] == ["a sentence"]
