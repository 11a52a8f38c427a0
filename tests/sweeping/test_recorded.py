"""Tables of measured launches, read from files."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, TypeAlias

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.errors import InputError
from occupancy_lab.expressions import Kind
from occupancy_lab.files import export
from occupancy_lab.measuring import recorded
from occupancy_lab.sweeping.measured import MEASURED_COLUMNS
from occupancy_lab.sweeping.recorded import NEEDED, read_table, recorded_table
from occupancy_lab.sweeping.rows import COLUMNS, SCHEMA
from occupancy_lab.sweeping.views import to_csv

if TYPE_CHECKING:
    from pathlib import Path

Factory: TypeAlias = pytest.TempPathFactory


LAUNCH = {
    **dict.fromkeys(NEEDED, "1"),
    "gpu": "h200",
    "kernel": "softmax",
    "dtype": "float32",
    "measured": "measured",
}


def write(path: Path, **columns: object) -> None:
    """Write a table of two launches, the second with *columns* besides."""
    pd.DataFrame([LAUNCH, LAUNCH | columns]).to_csv(path, index=False)


def test_file_is_read(tmp_path: Path) -> None:
    """A file has its columns with numbers and texts, and one that is not there is not made up."""
    write(tmp_path / "own.csv", why_not=None, runs="30.0", mostly_launch=True, my_own="0x1")
    table = read_table(tmp_path / "own.csv")
    assert list(table.columns) == [*NEEDED, "why_not", "runs", "mostly_launch", "my_own"]
    first, last = table.to_dict("records")
    assert [first[name] for name in NEEDED[:4]] == ["h200", "softmax", 1, 1]
    assert (last["runs"], last["mostly_launch"], last["my_own"]) == (30, True, "0x1")
    assert all(pd.isna(first[name]) for name in ("why_not", "runs", "mostly_launch", "my_own"))


def test_an_export_is_read_back(tmp_path: Path) -> None:
    """Texts quoted for a spreadsheet are read as they were; a mark of the encoding is not text."""
    table = read_rows_of(tmp_path, [LAUNCH | {"why_not": "=1+1\r\n'|"}, LAUNCH])
    assert table["why_not"].tolist()[0] == "=1+1\r\n'|"
    marked = "\ufeff".encode() + (tmp_path / "rows.csv").read_bytes()
    (tmp_path / "marked.csv").write_bytes(marked)
    assert read_table(tmp_path / "marked.csv").equals(table)


def read_rows_of(folder: Path, rows: list[dict[str, str]]) -> pd.DataFrame:
    """Return *rows* as they are read from the file that an export makes of them."""
    export(folder / "rows.csv", to_csv(pd.DataFrame(rows)))
    return read_table(folder / "rows.csv")


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("num_warps", "x", "'x'; a whole number, 1 or more"),
        ("num_warps", "", "blank; a whole number, 1 or more"),
        ("num_warps", "0", "'0'; a whole number, 1 or more"),
        ("num_warps", "1.5", "'1.5'; a whole number, 1 or more"),
        ("rows", "1e999", "'1e999'; a whole number, 1 or more"),
        ("cols", "9" * 30, f"'{'9' * 30}'; a whole number, 1 or more"),
        ("n_spills", "-1", "'-1'; a whole number, 0 or more"),
        ("n_spills", "nan", "'nan'; a whole number, 0 or more"),
        ("us", "nan", "'nan'; a number above 0"),
        ("us", "inf", "'inf'; a number above 0"),
        ("us", "0", "'0'; a number above 0"),
        ("us", "", "blank; a number above 0"),
        ("shared", "", "blank; a whole number, 0 or more"),
        ("launched", "", "blank; a whole number, 1 or more"),
        ("occupancy", "1.01", "'1.01'; a number from 0 to 1"),
        ("mostly_launch", "yes", "'yes'; True or False"),
        ("dtype", "int8", "'int8'; one of float32, float16, bfloat16"),
        ("gpu", "h2oo", "'h2oo'; "),
        ("kernel", "", "blank; text"),
        ("kernel", "nothing", "'nothing'; one of softmax, "),
        ("kernel", "evil.py", "'evil.py'; one of softmax, "),
    ],
)
def test_strange_cells_are_named(tmp_path: Path, column: str, cell: str, expected: str) -> None:
    """A cell that its column cannot hold is an error with the file, the line and the column."""
    write(tmp_path / "rows.csv", **{column: cell})
    words = re.escape(f"rows.csv, line 3: {column} is {expected}")
    with pytest.raises(InputError, match=words):
        read_table(tmp_path / "rows.csv")


def test_rows_without_a_time_may_lack_it(tmp_path: Path) -> None:
    """Only a launch that was measured has a time."""
    write(tmp_path / "rows.csv", measured="launch failed", us=None, launched=None)
    assert read_table(tmp_path / "rows.csv")["us"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "has no column gpu, kernel"),
        (b"gpu,kernel\nh200,softmax\n", "has no column rows, cols"),
        (b"\0", "has no column gpu"),
        (b"a\n1,2\n3,4,5\n", "line 2: found 2 fields, expected 1"),
        (b"a,b\n\n1,2\n3\n", "line 4: found 1 fields, expected 2"),
        (b"gpu,us,gpu\n", "has the column 'gpu' 2 times"),
        (b'a\n"1\n', "cannot be read as a table: unexpected end of data"),
        (bytes(range(256)), "cannot be read as a table"),
        (b"a" * 200_000, "cannot be read as a table"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    """A file that is no table, or lacks a column, is an error that names it."""
    (tmp_path / "other.csv").write_bytes(content)
    with pytest.raises(InputError, match=rf"other\.csv,? {words}"):
        read_table(tmp_path / "other.csv")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A file that is not there is an error, and a pipe or a device is not waited for."""
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "absent.csv", tmp_path / "pipe.csv", tmp_path, "/dev/zero"):
        with pytest.raises(InputError, match=f"{path} cannot be read"):
            read_table(path)


@given(st.binary(max_size=200) | st.text(st.sampled_from('gpu,us\n\r"\0'), max_size=60))
def test_any_file_is_a_table_or_an_error(tmp_path_factory: Factory, content: bytes | str) -> None:
    """Whatever a file holds, it is read or refused as input."""
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with contextlib.suppress(InputError):
        read_table(path)


def test_columns_have_their_types_in_the_schema() -> None:
    """Every column of a sweep, and every number that was recorded, is what the schema says."""
    for name, values in recorded_table().items():
        kind = SCHEMA[name].kind
        assert pd.api.types.is_numeric_dtype(values.dtype) == (kind is Kind.NUMBER), name
    assert {*COLUMNS, *MEASURED_COLUMNS} <= set(SCHEMA)


def test_recorded_files_are_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured on several GPUs is one table, by the names of its files."""
    monkeypatch.setattr(recorded, "files", lambda _package: tmp_path)
    with pytest.raises(InputError, match="no measured launches"):
        recorded_table()
    write(tmp_path / "measured-h200.csv", sgprs=None, throttled="power", rows=7)
    write(tmp_path / "measured-b200.csv", gpu="b200", sgprs=20, throttled=None)
    write(tmp_path / "driver-h200.csv")
    table = recorded_table()
    assert table["gpu"].tolist() == ["h200", "b200", "h200", "h200"]
    assert table["rows"].tolist() == [1, 1, 1, 7]
    assert table["sgprs"].isna().tolist() == [True, False, True, True]
    assert table.index.tolist() == [0, 1, 2, 3]
