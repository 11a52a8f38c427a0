"""Measured rows of a sweep: which are launched, on which GPU, and what Ctrl-C keeps."""

import io
import itertools
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from stand_ins import Launches, put_here
from swept import on_screen, run_sweep

from occupancy_lab.errors import InputError
from occupancy_lab.gpus import present_gpus
from occupancy_lab.measuring.process import TimedLaunch
from occupancy_lab.sweeping.run import sweep
from occupancy_lab.table.columns import MEASURED_COLUMNS, SWEEP_COLUMNS
from occupancy_lab.text.document import to_markdown
from occupancy_lab.values import Measurement, Problem
from occupancy_lab.workers.signals import Interrupted, UnfinishedError

GRID: dict[str, Any] = {"num_warps": (4, 8), "num_stages": (1, 2)}


def test_rows_of_the_gpu_here_are_measured(launches: Launches) -> None:
    """Exactly the ok rows for the GPU at hand are launched, as planned."""
    table = sweep(781, gpu="h200,a100", **GRID | {"num_warps": (3, 4)}, measure=True)
    assert list(table.columns) == [*SWEEP_COLUMNS, *MEASURED_COLUMNS]
    mine = (table["gpu"] == "h200") & (table["status"] == "ok")
    assert mine.sum() == len(launches.asked) == 2
    assert table.loc[mine, "us"].tolist() == [10.0, 10.0]
    assert table.loc[mine, "launched"].tolist() == table.loc[mine, "num_programs"].tolist()
    assert table.loc[~mine, list(MEASURED_COLUMNS)].isna().all(axis=None)
    assert [launch.num_programs for _, launch in launches.asked] == list(table["launched"].dropna())


def test_a_measured_time_is_what_lost_time_is_of(launches: Launches) -> None:
    """The lost time is the measured time above the least, or else the predicted time above it."""
    table = sweep(781, gpu="h200,a100", **GRID, measure=True)
    mine, other = (table[table["gpu"] == gpu].iloc[0] for gpu in ("h200", "a100"))
    assert (mine["lost_of"], other["lost_of"]) == ("measured", "predicted")
    assert mine["lost_us"] == pytest.approx(10.0 - mine["speed_of_light_us"])
    assert other["lost_us"] == pytest.approx(other["predicted_us"] - other["speed_of_light_us"])
    assert launches.asked


def test_screen_has_predicted_and_measured_times(launches: Launches) -> None:
    """The screen shows measured beside predicted times, and the error."""
    launches.times = lambda launch: 20.0 if launch.num_programs > 1000 else None
    table = sweep([781], **GRID, measure=True)
    lines = on_screen(table).splitlines()
    header = next(line for line in lines if "| predicted us" in line)
    assert [word.strip() for word in header.split("|")[-5:-1]] == [
        "predicted us",
        "bound",
        "measured us",
        "off",
    ]
    shown = on_screen(table)
    assert "Measured on NVIDIA H200, 2026-11-21" in shown
    basis = table["basis"].iloc[0]
    said = (
        f"Times for H200 SXM rest on {basis}; of kernels that the model was not fitted to, 80%"
        " of the launches took a time between predicted_low_us and predicted_high_us, which exports"
        " have."
    )
    assert said in shown
    off = table["predicted_us"].iloc[0] / 20.0 - 1
    assert f"{off:+.1%}" in shown


def test_launches_that_fail_are_said(launches: Launches) -> None:
    """A row whose launch failed is listed below the table with its reason."""
    launches.times = lambda _launch: None
    shown = on_screen(sweep(781, **GRID, measure=True))
    assert shown.count("launch failed") == 4
    assert "RuntimeError: no luck" in shown
    assert "Measured on" not in shown


def test_interrupt_keeps_what_is_finished(
    launches: Launches, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C while measuring prints and exports the finished rows, and exits with 130."""

    def interrupted(
        asked: Sequence[tuple[Problem, TimedLaunch]], **options: object
    ) -> list[Measurement]:
        raise UnfinishedError(dict(enumerate(launches(asked[:3], **options))))  # type: ignore[arg-type] # passed on

    monkeypatch.setattr("occupancy_lab.sweeping.grid.measure_launches", interrupted)
    exported = tmp_path / "rows.csv"
    swept = run_sweep(export_csv=str(exported), cols=781, measure=True, **GRID)
    assert (swept.status, swept.complaints) == (130, ("interrupted; what was finished is above",))
    assert "Measured on NVIDIA H200" in to_markdown(swept.shown)
    assert pd.read_csv(exported)["us"].notna().tolist() == [True, True, True, False]


def test_interrupt_while_compiling_gives_all_columns(
    launches: Launches, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C before any measurement gives the compiled rows, and marks the others interrupted."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "empty"))
    module = sys.modules["occupancy_lab.compiling.compiler"]
    real = module.compile_here

    def interrupted(*asked: Any, **how: Any) -> Iterator[Any]:
        yield from itertools.islice(real(*asked, **how), 2)
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(module, "compile_here", interrupted)
    swept = run_sweep(form="csv", cols=781, measure=True, **GRID)
    assert swept.status == 143
    table = pd.read_csv(io.StringIO(swept.shown))
    assert list(table.columns) == [*SWEEP_COLUMNS, *MEASURED_COLUMNS]
    assert sorted(table["status"]) == ["interrupted", "interrupted", "ok", "ok"]
    assert set(table["reason"].dropna()) == {"interrupted before it was compiled"}
    assert table["us"].isna().all()
    assert launches.asked == []


def test_without_a_gpu_measuring_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a GPU, or without one of the sweep's, measuring is refused before any compile."""
    monkeypatch.setattr("occupancy_lab.compiling.compiler.compile_here", pytest.fail)
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path))
    put_here(monkeypatch)
    with pytest.raises(InputError, match="needs a GPU of this machine; none was found"):
        sweep(781, gpu="h200", measure=True)
    put_here(monkeypatch, "h200")
    with pytest.raises(InputError, match="the GPU here, which is H200 SXM; asked for is A100"):
        sweep(781, gpu="a100,mi300x", measure=True)


@pytest.mark.gpu
def test_a_measured_sweep_of_the_gpu_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real GPU every compiled configuration's time is between its 10th and 90th percentile."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path))
    table = sweep([781, 1024], **GRID, measure=True, devices="all")
    assert (table["gpu"] == present_gpus()[0].gpu.key).all()
    assert (table["measured"] == "measured").all()
    assert ((table["us_low"] <= table["us"]) & (table["us"] <= table["us_high"])).all()
    assert (table["relative_error"] < 1e-5).all()
