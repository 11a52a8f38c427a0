"""A whole run of the sweep command: exports and pictures beside the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stand_ins import UNLISTED, put_here

from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.record import Store, make_record
from occupancy_lab.sweeping import sweep
from occupancy_lab.sweeping.run import calculate_row, run
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from pathlib import Path

NOTHING = {
    **dict.fromkeys(("where", "sort", "top", "form", "plot")),
    **dict.fromkeys(("export_csv", "export_json", "export_markdown")),
    "dtype": "float32",
    "quiet": True,
}
GRID = {"cols": 781, "gpu": "h100,mi300x", "num_warps": (8, 32), "num_stages": (1, 2)}


def test_files_are_written_beside_the_table(tmp_path: Path) -> None:
    """Each export and, for each GPU, a heat map and curves as SVG and PNG are written."""
    exports = {f"export_{form}": str(tmp_path / form) for form in ("csv", "json", "markdown")}
    text, status = run(**NOTHING | exports | {"plot": str(tmp_path / "plots")}, **GRID)
    assert status == 0
    assert "8 configurations" in text
    assert all((tmp_path / form).stat().st_size for form in ("csv", "json", "markdown"))
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {
        f"{picture}-{gpu}.{suffix}"
        for picture in ("heatmap", "curves")
        for gpu in ("h100", "mi300x")
        for suffix in ("svg", "png")
    }


def test_export_without_a_directory_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export that has no directory to be in is an error before anything is compiled."""
    monkeypatch.setattr("occupancy_lab.sweeping.run.sweep", pytest.fail)
    with pytest.raises(InputError, match="no directory"):
        run(**NOTHING | {"export_csv": str(tmp_path / "none" / "rows.csv")}, **GRID)


def test_pictures_that_cannot_be_written_are_said(tmp_path: Path) -> None:
    """A place where no picture can be written is one clear error."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        run(**NOTHING | {"plot": str(tmp_path / "file" / "plots")}, **GRID)


def test_a_gpu_that_no_table_has_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What predictions of the GPU at hand rest on names it, and its curves are drawn."""
    put_here(monkeypatch, UNLISTED)
    asked = {"cols": 781, "gpu": None, "num_warps": (8,), "num_stages": (2,)}
    text, status = run(**NOTHING | {"plot": str(tmp_path)}, **asked)
    assert status == 0
    assert f"Predictions for {UNLISTED.title} rest on" in text
    assert (tmp_path / "curves-sm_90.svg").stat().st_size


def test_row_is_calculated_as_its_record() -> None:
    """The calculation made of a row is the one of its record."""
    for _, row in sweep(781, gpu="h100,mi300x", num_warps=(8,), num_stages=(2,)).iterrows():
        record = make_record(
            load_kernel("softmax"),
            Problem(4096, 781),
            Config(1024, 8, 2),
            find_gpu(row["gpu"]),
            Store(None),
        )
        held = calculate_row(row, find_gpu(row["gpu"])).occupancy
        assert held.limiters == record.occupancy.limiters
        assert held.programs_per_multiprocessor == record.occupancy.programs_per_multiprocessor
