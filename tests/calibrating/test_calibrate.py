"""A calibration: a fit finds the constants, which are kept where predictions find them."""

from __future__ import annotations

import dataclasses
import json
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from guesses import CONSTANTS, H200, LAUNCH_US, PEAK_GBS, GuessedLaunch, scaled
from stand_ins import CALIBRATION, put_here, values_of

from occupancy_lab.calibrating import calibrate
from occupancy_lab.calibrating.calibrate import (
    BOUNDS,
    Calibrated,
    calibrate_here,
    fit_constants,
    fit_errors,
    tasks_of,
)
from occupancy_lab.calibrating.kernels import EMPTY
from occupancy_lab.calibrating.units import Units
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import Grid, Kernel
from occupancy_lab.throughput import calibrations
from occupancy_lab.throughput.calibrations import (
    Calibration,
    Constants,
    calibration_for,
    calibration_path,
)
from occupancy_lab.throughput.features import Features, stack
from occupancy_lab.throughput.model import launch_times
from occupancy_lab.values import Config, Problem, Resources

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def guessed(kernel: Kernel, problem: Problem, config: Config) -> GuessedLaunch:
    """Return a launch of a calibration with instructions that a compiler might have made."""
    loops = kernel.grid is Grid.PERSISTENT
    _, reductions, steps = kernel.name.split("-") if "-" in kernel.name else ("", 2, 1)
    elements = max(config.block_size // (32 * config.num_warps), 1)
    copies = max(elements // 4, 1) if loops and config.num_stages > 1 else 0
    spilled = max(elements - 120, 0)
    several = config.num_warps > 1
    a_pass = 40 + elements * (4 + 2 * int(reductions) + 2 * int(steps)) + 2 * spilled
    resources = Resources(
        n_regs=32,
        num_warps=config.num_warps,
        shared=(config.num_stages - 1) * config.block_size * problem.item_bytes + 128,
        local_bytes=4 * spilled,
        load_bytes=16 if problem.cols % 16 == 0 else problem.item_bytes,
        instructions=60 if loops else a_pass,
        loop_instructions=a_pass if loops else None,
        stall_cycles=3 * a_pass,
        local_traffic=8 * spilled,
        shuffles=(5 + 5 * several) * int(reductions),
        shared_accesses=2 * int(reductions) * several + copies,
        global_accesses=max(elements // 2, 1) + copies,
        async_copies=copies,
        special_functions=elements * int(steps),
        local_loads=spilled,
    )
    programs = max(min(64 // config.num_warps, 32, 228_000 // resources.shared), 1)
    return GuessedLaunch(kernel, problem, config, resources, programs)


@pytest.fixture(scope="module")
def grid() -> Features:
    """The features of a calibration's launches, every third of them."""
    matrices = [task.matrix for task in tasks_of(H200)]
    working = [one for one in matrices if one.kernel is not EMPTY]
    return stack([guessed(one.kernel, one.problem, one.config).features for one in working[::3]])


def somewhere(number: int) -> Constants:
    """Return constants somewhere inside their bounds, halfway at most from their first guess."""
    generator = np.random.default_rng(number)
    found = {}
    for name, (low, guess, high) in BOUNDS.items():
        edge = high if generator.random() < 0.5 else low
        found[name] = scaled(name, guess + 0.5 * generator.random() * (edge - guess))
    return Constants(launch_us=LAUNCH_US, **found)


def test_every_constant_is_fitted_but_the_launch() -> None:
    """The bounds name each constant but that, and each first guess lies within its bounds."""
    assert {"launch_us", *BOUNDS} == set(Constants.names())
    assert all(low <= guess <= high for low, guess, high in BOUNDS.values())


def test_times_that_the_model_made_are_found_again(grid: Features) -> None:
    """Fitted constants predict the times that others made, 99 of 100 within 2%."""
    made = launch_times(grid, somewhere(1)).total
    fitted = fit_constants(grid, made, launch_us=LAUNCH_US, peak_gbs=PEAK_GBS)
    error = np.abs(launch_times(grid, fitted).total / made - 1)
    assert np.quantile(error, 0.99) < 0.02
    assert fitted.launch_us == LAUNCH_US


def test_noise_is_not_fitted(grid: Features) -> None:
    """Times that are off by 5% here and there give constants that predict the true ones."""
    made = launch_times(grid, CONSTANTS).total
    noise = np.random.default_rng(3).normal(0, 0.05, made.shape)
    fitted = fit_constants(grid, made * np.exp(noise), launch_us=LAUNCH_US, peak_gbs=PEAK_GBS)
    error = np.abs(launch_times(grid, fitted).total / made - 1)
    assert np.median(error) < 0.02


def test_what_is_mostly_launch_does_not_pull(grid: Features) -> None:
    """Times of no more than an empty launch change no constant, however many they are."""
    made = launch_times(grid, CONSTANTS).total
    some = np.arange(made.size) % 2 == 0
    short = np.where(some, made, LAUNCH_US)
    half = stack([launch for launch, kept in zip(launches_of(grid), some, strict=True) if kept])
    fitted = fit_constants(grid, short, launch_us=LAUNCH_US, peak_gbs=PEAK_GBS)
    error = np.abs(launch_times(half, fitted).total / made[some] - 1)
    assert np.quantile(error, 0.99) < 0.02


def launches_of(columns: Features) -> list[Features]:
    """Return the launches that *columns* were stacked of."""
    values = dataclasses.asdict(columns)
    return [
        Features(**{name: column[place] for name, column in values.items()})
        for place in range(len(columns.work))
    ]


def test_fitted_constants_are_within_their_bounds(grid: Features) -> None:
    """Times that no such GPU could have still give constants within bounds."""
    absurd = np.full(np.shape(grid.work), 1e4)
    fitted = fit_constants(grid, absurd, launch_us=LAUNCH_US, peak_gbs=PEAK_GBS)
    for name, (low, _, high) in BOUNDS.items():
        assert scaled(name, low) <= getattr(fitted, name) <= scaled(name, high)


def test_recorded_constants_lie_inside_their_bounds() -> None:
    """No constant that was fitted on an H200 ends at a bound, where the bound would have set it."""
    text = (files("occupancy_lab.recorded") / "calibration-h200.json").read_bytes()
    constants = Calibration.read(text).constants
    for name, (low, _, high) in BOUNDS.items():
        margin = 0.001 * (scaled(name, high) - scaled(name, low))
        found = getattr(constants, name)
        assert scaled(name, low) + margin < found < scaled(name, high) - margin, name


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Return the launches of a calibration that was recorded on an H200."""
    with (files("occupancy_lab.recorded") / "calibration-h200.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


@pytest.fixture
def made(table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Calibrated:
    """Return what calibrating an H200 makes that is said to be here, without a fit."""
    put_here(monkeypatch, "h200")
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path))

    def timed(
        _gpu: object, *, progress: Callable[[int, int], None], journal: object
    ) -> pd.DataFrame:
        assert journal is None
        progress(1, 1)
        return table

    monkeypatch.setattr(calibrate, "time_calibration", timed)
    monkeypatch.setattr(calibrate, "calibration_of", lambda _table, _gpu: CALIBRATION)
    monkeypatch.setattr(calibrate, "measure_units", lambda: Units(l1_cycles=34.2))
    return calibrate_here()


def test_calibration_is_kept_for_predictions(made: Calibrated) -> None:
    """What was fitted is read back from where predictions look for it."""
    assert made.path == calibration_path("h200")
    assert Calibration.read(made.path.read_text()) == made.calibration
    assert made.seconds > 0


def test_calibration_is_used_at_once(request: pytest.FixtureRequest) -> None:
    """A process that predicted before it calibrated predicts with the calibration from then on."""
    request.addfinalizer(calibrations._calibrations.cache_clear)
    before = calibration_for(find_gpu("h200"))
    made = request.getfixturevalue("made")
    after = calibration_for(find_gpu("h200"))
    assert after is not None
    assert after.constants == made.calibration.constants != before.constants


def test_errors_are_of_the_launches_that_were_fitted(made: Calibrated, table: pd.DataFrame) -> None:
    """The errors are of every row with a time but the empty kernel's."""
    timed = table[(table["measured"] == "measured") & (table["kernel"] != "empty")]
    assert made.errors.launches == len(timed)
    assert 0 <= made.errors.median <= made.errors.p90
    worse = CALIBRATION.constants.replace(launch_us=1000.0)
    assert fit_errors(table, find_gpu("h200"), worse).median > made.errors.median


def test_every_constant_is_told_with_its_meaning(made: Calibrated) -> None:
    """Each constant has a line with its value, its unit and the sentence of its definition."""
    section, units = made.to_document().sections
    assert units == made.units.to_section()
    rows = {row[0]: row[1:] for row in section.tables[0].rows}
    assert set(rows) == set(Constants.names())
    assert all(meaning.endswith(".") for _, _, meaning in rows.values())
    value, unit, meaning = rows["launch_us"]
    assert float(value) == pytest.approx(CALIBRATION.constants.launch_us)
    assert (unit, "empty program" in meaning) == ("us", True)


def test_answer_tells_time_place_and_errors(made: Calibrated) -> None:
    """The answer says how long it took, where it is kept and how well it fits."""
    errors = dataclasses.replace(made.errors, launches=1464, median=0.034, p90=0.106)
    told = dataclasses.replace(made, seconds=184.4, errors=errors)
    kept, fits = told.to_document().answer
    assert f"It took 184 s and is kept in {made.path}" in kept
    assert "Half of the 1464 launches" in fits
    assert "within 3.4% of their measured times, nine in ten within 10.6%" in fits


def test_what_units_do_is_kept_for_predictions(made: Calibrated) -> None:
    """The calibration that is kept has what was measured of the units."""
    kept = Calibration.read(made.path.read_text(encoding="utf-8"))
    assert kept.units == made.calibration.units == {"l1_cycles": 34.2}


def test_values_are_json(made: Calibrated) -> None:
    """The answer as JSON has the constants, the place and the errors."""
    values = values_of(json.dumps(made.to_dict()))
    assert values["constants"] == dataclasses.asdict(CALIBRATION.constants)
    assert values["path"] == str(made.path)
    assert values["units"]["l1_cycles"] == 34.2
    assert values["errors"]["median"] == made.errors.median


def test_without_a_gpu_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrating needs a GPU, and says so before anything is compiled."""
    put_here(monkeypatch)
    monkeypatch.setattr(calibrate, "time_calibration", pytest.fail)
    with pytest.raises(InputError, match="calibrate needs a GPU of this machine; none was found"):
        calibrate_here()


def test_a_store_that_cannot_be_written_is_said(
    made: Calibrated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the calibration cannot be kept, the error names the place."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(made.path))
    with pytest.raises(InputError, match="cannot be written"):
        calibrate_here()
