"""Rows of compiled kernels are read from all formats that the tool writes."""

import json
from pathlib import Path
from typing import Any

import pytest
from compiled_rows import compiled
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.checking.rows import RESULTS, Table, load, make_rows
from occupancy_lab.errors import InputError
from occupancy_lab.expressions import Kind
from occupancy_lab.scanning import page as scanning
from occupancy_lab.table.columns import MEASURED_COLUMNS, SWEEP_COLUMNS

NAMES = {"gpu", "target", "kernel", "rows", "cols", "dtype", "constexprs", "arguments"}
NAMES |= {"BLOCK_SIZE", "num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu"}


def test_every_column_identifies_rows_or_is_a_result() -> None:
    """Each column of a sweep, a measurement or a scan identifies its row or is a result."""
    columns = {*SWEEP_COLUMNS, *MEASURED_COLUMNS, *scanning.COLUMNS}
    assert columns - NAMES <= RESULTS
    assert not RESULTS & NAMES


LONG = "*fp16:16, *fp16:16, *fp16:16, *fp16:16, i32"


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ({"num_warps": 4}, {"num_warps": 8}, ["num_warps 4", "num_warps 8"]),
        ({"n_regs": 40}, {"n_regs": 48}, ["n_regs 40", "n_regs 48"]),
        ({"arguments": LONG}, {"arguments": f"{LONG}:16"}, ["entry AAAAAAAA", "entry BBBBBBBB"]),
        ({"source": "a.py:3"}, {"source": "b.py:3"}, ["source a.py:3", "source b.py:3"]),
        ({}, {}, ["entry AAAAAAAA", "entry BBBBBBBB"]),
    ],
)
def test_rows_are_told_apart(
    first: dict[str, Any], second: dict[str, Any], told: list[str]
) -> None:
    """Labels of rows have what differs, and finally the place of the row."""
    pair = [
        compiled(entry=f"/cache/{letter * 52}", source="k.py:3") | row
        for letter, row in (("A", first), ("B", second))
    ]
    rows = make_rows(pair, "cache")
    labels = Table.of(rows).labels(rows)
    assert [label.rpartition(", ")[2] for label in labels] == told


@given(rows=st.lists(st.builds(compiled, n_regs=st.integers(30, 32)), max_size=5))
def test_labels_are_unique(rows: list[dict[str, Any]]) -> None:
    """Each row has a label of its own, even if rows are equal."""
    found = make_rows(rows, "rows.json")
    labels = Table.of(found).labels(found)
    assert len(set(labels)) == len(rows)


def write(path: Path, text: str) -> Path:
    """Return the file at *path* with *text* in it."""
    path.write_text(text, encoding="utf-8")
    return path


def test_an_explanation_is_read(tmp_path: Path) -> None:
    """Records of an explanation, rows of a dry run and lines of a script are read as rows."""
    nested = compiled() | {"resources": {"num_warps": 12, "local_bytes": 8, "sgprs": None}}
    nested.pop("local_bytes")
    script = {"lines": [{"place": "train.py:7", "rows": [nested]}, {"reason": "stopped"}]}
    for document in ({"records": [nested]}, {"rows": [nested]}, script):
        (row,) = load(write(tmp_path / "rows.json", json.dumps(document)))
        assert row.values["local_bytes"] == 8
        assert row.values["launched_warps"] == 12
    assert row.place == ("train.py", 7)


def test_constexprs_of_a_scan_are_columns(tmp_path: Path) -> None:
    """The constexprs of a scan become columns, from JSON and from CSV."""
    (row,) = make_rows([{"kernel": "k", "constexprs": {"BLOCK": 64, "EVEN": True}}], "rows")
    text = 'kernel,constexprs\nk,"BLOCK=64, EVEN=True"\n'
    (cells,) = load(write(tmp_path / "rows.csv", text))
    assert row.values == cells.values == {"kernel": "k", "BLOCK": 64, "EVEN": True}


STRANGE = ["-" * 5000 + "1", "(" * 5000, "9" * 5000, "[{" * 2500, "{[]}", "x" * 100_000]


@pytest.mark.parametrize("text", STRANGE, ids=lambda text: text[:2])
def test_a_constexpr_that_is_no_literal_is_a_text(tmp_path: Path, text: str) -> None:
    """A constexpr that Python's parser refuses is read as text, quickly."""
    (row,) = load(write(tmp_path / "rows.csv", f"kernel,constexprs\nk,A={text}\n"))
    assert row.values == {"kernel": "k", "A": text}
    (row,) = make_rows([{"kernel": "k", "constexprs": text * 10}], "rows")
    assert row.values == {"kernel": "k"}


def test_an_empty_text_of_a_scan_is_none() -> None:
    """Empty texts and NaN are read as not known."""
    (row,) = make_rows([{"kernel": "k", "limiter": "", "gain": float("nan")}], "rows")
    assert row.values == {"kernel": "k", "limiter": None, "gain": None}


def test_kinds_are_those_of_the_values() -> None:
    """A column has numbers, conditions or texts; with both numbers and texts it has texts."""
    first = {"kernel": "k", "n_regs": None, "EVEN": True, "BLOCK": 64, "triton_version": None}
    table = Table.of(make_rows([first, {"kernel": "k", "BLOCK": "auto"}], "rows"))
    assert table.kinds["n_regs"] is Kind.NUMBER
    assert table.kinds["EVEN"] is Kind.CONDITION
    assert table.kinds["BLOCK"] is table.kinds["triton_version"] is Kind.TEXT


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"gpu": "h100"}, "rows, row 1 names no kernel; a row is what scan"),
        ({"kernel": "k", "BLOCK": 10**400}, "rows, row 1: BLOCK is '1000.*; a number of at most"),
    ],
)
def test_invalid_rows_are_refused(row: dict[str, Any], words: str) -> None:
    """A row without a kernel, or with a number over 64 bits, is refused with its place."""
    with pytest.raises(InputError, match=words):
        make_rows([row], "rows")


def test_reasons_do_not_identify_rows() -> None:
    """The reasons why a launch is not counted or followed are results."""
    rows = make_rows([compiled(why_not_executed="it is not known", why_not_counted="no")], "rows")
    assert not {"why_not_executed", "why_not_counted"} & rows[0].names.keys()
