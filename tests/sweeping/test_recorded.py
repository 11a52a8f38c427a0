"""Tables of measured launches, read from files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from occupancy_lab.errors import InputError
from occupancy_lab.measuring import recorded
from occupancy_lab.sweeping.recorded import NEEDED, read_table, recorded_table

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, **columns: object) -> None:
    """Write a table of one launch, with *columns* besides."""
    pd.DataFrame([dict.fromkeys(NEEDED, 1) | columns]).to_csv(path, index=False)


def test_file_is_read(tmp_path: Path) -> None:
    """A file has its columns, and one that is not there is not made up."""
    write(tmp_path / "own.csv", gpu="h200", why_not=None)
    table = read_table(tmp_path / "own.csv")
    assert list(table.columns) == [*NEEDED, "why_not"]
    assert table["gpu"].tolist() == ["h200"]


@pytest.mark.parametrize("text", ["", "gpu,kernel\nh200,softmax\n", "\x00", "a\n1,2\n3,4,5\n"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    """A file that is no table, or lacks a column, is an error that names it."""
    (tmp_path / "other.csv").write_text(text)
    with pytest.raises(InputError, match=r"other\.csv"):
        read_table(tmp_path / "other.csv")


def test_absent_and_binary_files_are_refused(tmp_path: Path) -> None:
    """A file that is not there, and one that is no text, are errors that name them."""
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    for name in ("binary.csv", "absent.csv"):
        with pytest.raises(InputError, match=f"{name} cannot be read"):
            read_table(tmp_path / name)


def test_recorded_files_are_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured on several GPUs is one table, by the names of its files."""
    monkeypatch.setattr(recorded, "files", lambda _package: tmp_path)
    with pytest.raises(InputError, match="no measured launches"):
        recorded_table()
    write(tmp_path / "measured-h200.csv", gpu="h200", sgprs=None, throttled="power", rows=7)
    write(tmp_path / "measured-b200.csv", gpu="b200", sgprs=20, throttled=None)
    write(tmp_path / "driver-h200.csv", gpu="h200")
    table = recorded_table()
    assert table["gpu"].tolist() == ["b200", "h200"]
    assert table["rows"].tolist() == [1, 7]
    assert table["sgprs"].isna().tolist() == [False, True]
    assert table.index.tolist() == [0, 1]
