"""A fit to times that the model itself made finds constants that make them again."""

from __future__ import annotations

import numpy as np
import pytest
from guesses import CONSTANTS, H200, LAUNCH_US, PEAK_GBS, GuessedLaunch, scaled

from occupancy_lab.calibrating.calibrate import tasks_of
from occupancy_lab.calibrating.fit import BOUNDS, fit_constants
from occupancy_lab.calibrating.kernels import EMPTY
from occupancy_lab.kernel import Grid, Kernel
from occupancy_lab.throughput.constants import Constants
from occupancy_lab.throughput.features import Features, stack
from occupancy_lab.throughput.model import times
from occupancy_lab.values import Config, Problem, Resources


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
        local_traffic=8 * spilled,
        shuffles=(5 + 5 * several) * int(reductions),
        shared_accesses=2 * int(reductions) * several + copies,
        global_accesses=max(elements // 2, 1) + copies,
        async_copies=copies,
        half_rate=elements,
        special_functions=elements * int(steps),
        local_loads=spilled,
    )
    programs = max(min(64 // config.num_warps, 32, 228_000 // resources.shared), 1)
    return GuessedLaunch(kernel, problem, config, resources, programs)


@pytest.fixture(scope="module")
def grid() -> Features:
    """The features of a calibration's launches, every third of them."""
    working = [task for task in tasks_of(H200) if task.kernel is not EMPTY]
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
    """The bounds name each constant, and each first guess lies within its bounds."""
    assert {"launch_us", *BOUNDS} == set(Constants.names())
    assert all(low <= guess <= high for low, guess, high in BOUNDS.values())


@pytest.mark.parametrize("number", [1, 2])
def test_times_that_the_model_made_are_found_again(grid: Features, number: int) -> None:
    """Fitted constants predict the times that others made, 99 of 100 within 2%."""
    made = times(grid, somewhere(number)).total
    fitted = fit_constants(grid, made, launch_us=LAUNCH_US, peak_gbs=PEAK_GBS)
    error = np.abs(times(grid, fitted).total / made - 1)
    assert np.quantile(error, 0.99) < 0.02
    assert fitted.launch_us == LAUNCH_US


def test_noise_is_not_fitted(grid: Features) -> None:
    """Times that are off by 5% here and there give constants that predict the true ones."""
    made = times(grid, CONSTANTS).total
    noise = np.random.default_rng(3).normal(0, 0.05, made.shape)
    fitted = fit_constants(grid, made * np.exp(noise), launch_us=LAUNCH_US, peak_gbs=PEAK_GBS)
    error = np.abs(times(grid, fitted).total / made - 1)
    assert np.median(error) < 0.02


def test_fitted_constants_are_within_their_bounds(grid: Features) -> None:
    """Times that no such GPU could have still give constants within bounds."""
    absurd = np.full(np.shape(grid.work), 1e4)
    fitted = fit_constants(grid, absurd, launch_us=LAUNCH_US, peak_gbs=PEAK_GBS)
    for name, (low, _, high) in BOUNDS.items():
        assert scaled(name, low) <= getattr(fitted, name) <= scaled(name, high)
