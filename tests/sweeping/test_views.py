"""A sweep's table as it is chosen from and printed."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from occupancy_lab.errors import InputError
from occupancy_lab.sweeping import sweep
from occupancy_lab.sweeping.views import choose, export, to_csv, to_json, to_markdown, to_screen

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Return a small sweep with a failure in it."""
    return sweep(781, gpu="h100,mi300x", num_warps=(4, 8, 32), num_stages=(1, 2))


def test_where_sort_and_top(table: pd.DataFrame) -> None:
    """Rows are chosen by a condition, put in order and cut."""
    chosen = choose(table, where="num_warps == 4 and status == 'ok'", sort="-n_regs", top=3)
    assert len(chosen) == 3
    assert set(chosen["num_warps"]) == {4}
    assert chosen["n_regs"].is_monotonic_decreasing


@pytest.mark.parametrize(
    ("wrong", "word"),
    [({"where": "nonsense >"}, "--where"), ({"sort": "nonsense"}, "nonsense"), ({"top": 0}, "top")],
)
def test_wrong_choice_is_said(table: pd.DataFrame, wrong: dict[str, object], word: str) -> None:
    """A condition, column or count that makes no sense is an error that names it."""
    with pytest.raises(InputError, match=word):
        choose(table, **wrong)


def test_csv_and_json_hold_every_value(table: pd.DataFrame) -> None:
    """Read back, CSV and JSON give the table; what is not known is empty, or null."""
    back = pd.read_csv(io.StringIO(to_csv(table)))
    rows = json.loads(to_json(table))
    assert len(back) == len(rows) == len(table)
    skipped = next(row for row in rows if row["status"] == "skipped")
    assert skipped["n_regs"] is None
    for column in ("n_regs", "num_programs", "occupancy"):
        expected = [None if pd.isna(value) else value for value in table[column]]
        assert [row[column] for row in rows] == expected
        assert [None if pd.isna(value) else value for value in back[column]] == expected


def test_screen_says_once_what_all_rows_share(table: pd.DataFrame) -> None:
    """A column that is the same in every row is said once; failures stand below with reasons."""
    text = to_screen(table)
    assert text.splitlines()[0] == "rows 4096, cols 781, dtype float32, BLOCK_SIZE 1024"
    assert "at most 16 waves" in text
    assert "12 configurations: 10 ok, 2 skipped" in text
    assert "nan" not in text.lower()


@pytest.mark.parametrize(
    ("columns", "missing"),
    [(200, set()), (80, {"shared", "tutorial"}), (20, {"shared", "tutorial", "limiter", "n_regs"})],
)
def test_narrow_screens_go_without_columns(
    table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, columns: int, missing: set[str]
) -> None:
    """A narrow screen has fewer columns and says which; exports have them all."""
    monkeypatch.setenv("COLUMNS", str(columns))
    text = to_screen(table)
    header = next(line for line in text.splitlines() if "programs" in line)
    names = {name.strip() for name in header.split("|")}
    assert names.isdisjoint(missing)
    assert {"predicted us", "bound", "programs", "%"} <= names
    sentence = next((line for line in text.split(".") if "A wider terminal shows" in line), "")
    assert all(name in sentence for name in missing)
    assert bool(sentence) == bool(missing)


def test_empty_choice_is_shown(table: pd.DataFrame) -> None:
    """No row at all is still an answer."""
    assert "0 configurations: none" in to_screen(choose(table, where="cols == 0"))


def test_markdown_has_every_column(table: pd.DataFrame) -> None:
    """The markdown export has all columns and rows."""
    lines = to_markdown(table).splitlines()
    assert len(lines) == len(table) + 2
    assert all(name in lines[0] for name in table.columns)


def test_export_writes_or_says_why(tmp_path: Path) -> None:
    """An export is written, or one sentence says why it is not."""
    export(tmp_path / "table.csv", "text")
    assert (tmp_path / "table.csv").read_text() == "text"
    with pytest.raises(InputError, match="cannot be written"):
        export(tmp_path / "no" / "table.csv", "text")
