"""What the model is told of a launch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from guesses import H200, GuessedLaunch, guessed_launches
from hypothesis import given
from hypothesis import strategies as st
from records import plan_of

from occupancy_lab.gpus import devices, find_gpu
from occupancy_lab.kernels import softmax, softmax_row, vector_add
from occupancy_lab.throughput.features import Features, features, stack
from occupancy_lab.values import Config, Problem, Resources

PROBLEM = Problem(4096, 781)
CONFIG = Config(1024, 8, 4)
COMPILED = Resources(
    n_regs=32, num_warps=8, shared=12320, instructions=60, loop_instructions=90, async_copies=4
)


def launched(  # noqa: PLR0913, PLR0917 - what a launch is made of, any of which a test changes
    kernel: object = softmax.KERNEL,
    problem: Problem = PROBLEM,
    config: Config = CONFIG,
    resources: Resources = COMPILED,
    programs: int = 8,
    gpu: object = H200,
) -> Features | None:
    """Return the features of the tutorial's example, but for what is given."""
    plan = plan_of(kernel, problem, config, programs, gpu.multiprocessors)  # type: ignore[arg-type, attr-defined]
    work = kernel.launched_work(problem, config)  # type: ignore[attr-defined]
    return features(work, config.num_stages, resources, programs, plan, gpu)  # type: ignore[arg-type]


@given(guessed_launches())
def test_rows_move_the_traffic(launch: GuessedLaunch) -> None:
    """The bytes of a row, times the rows, are the launch's traffic."""
    found, moved = launch.features, launch.kernel.traffic(launch.problem)
    assert moved is not None
    assert found.work == launch.problem.rows
    assert found.read_bytes * found.work == pytest.approx(moved.read_bytes)
    assert found.written_bytes * found.work == pytest.approx(moved.written_bytes)


@given(guessed_launches())
def test_no_more_programs_than_there_is_work(launch: GuessedLaunch) -> None:
    """Resident programs are those that fit, or what there is work for where that is fewer."""
    found = launch.features
    a_multiprocessor = -(-launch.problem.rows // found.multiprocessors)
    assert found.programs == min(launch.programs, a_multiprocessor)


def test_work_may_be_blocks() -> None:
    """A kernel of one program a block has as many pieces of work as blocks."""
    found = launched(vector_add.KERNEL, Problem(1, 10_000), Config(1024, 4, 1), programs=16)
    assert found is not None
    assert found.work == 10
    assert found.read_bytes == 2 * found.written_bytes == pytest.approx(8000)


def test_only_a_persistent_kernel_loops() -> None:
    """A loop's instructions are a row's, and those outside its prologue; without one all are."""
    loop, single = launched(), launched(softmax_row.KERNEL)
    assert loop is not None
    assert single is not None
    assert (loop.loops, loop.instructions, loop.prologue) == (True, 90, 60)
    assert (single.loops, single.instructions, single.prologue) == (False, 60, 0)


def test_stages_count_where_rows_are_copied_ahead() -> None:
    """Without asynchronous copies no row is in flight, whatever num_stages was asked for."""
    copying, waiting = launched(), launched(resources=COMPILED.replace(async_copies=0))
    assert copying is not None
    assert waiting is not None
    assert (copying.num_stages, waiting.num_stages) == (4, 1)


def test_kernel_says_how_often_a_program_waits_for_others() -> None:
    """Without exchanges, or with a program alone, there is no wait; of more it is longer."""
    sharing = dataclasses.replace(softmax.KERNEL, exchanges=2)
    eight = dataclasses.replace(sharing, together=lambda _problem, _config: 8)
    alone = dataclasses.replace(sharing, together=lambda _problem, _config: 1)
    found = [launched(kernel) for kernel in (softmax.KERNEL, sharing, eight, alone)]
    expected = [0, 2 * 1.1774, 2 * 2.0393, 0]
    assert [one and one.exchanges for one in found] == pytest.approx(expected, rel=1e-4)


def test_code_is_what_a_row_goes_through() -> None:
    """A loop's code is that of one pass, and an NVIDIA instruction has 16 bytes."""
    loop, single = launched(), launched(softmax_row.KERNEL)
    assert loop is not None
    assert single is not None
    assert (loop.code_bytes, single.code_bytes) == (90 * 16, 60 * 16)


@pytest.mark.parametrize("key", sorted(devices()))
def test_every_gpu_has_features(key: str) -> None:
    """Each GPU of the table with a clock has features, and none of them is below 0."""
    gpu = find_gpu(key)
    found = launched(gpu=gpu)
    assert (found is None) == (None in {gpu.multiprocessors, gpu.boost_mhz})
    if found is not None:
        assert all(value >= 0 for value in dataclasses.asdict(found).values())


def test_wide_waves_issue_a_quarter() -> None:
    """A CU issues an instruction a cycle for its waves of 64, an SM and a WGP four."""
    rates = {key: launched(gpu=find_gpu(key)) for key in ("h200", "mi300x", "rx7900xtx")}
    assert {key: one and one.issue_rate for key, one in rates.items()} == {
        "h200": 4.0,
        "mi300x": 1.0,
        "rx7900xtx": 4.0,
    }


@given(st.lists(guessed_launches(), max_size=5))
def test_stacked_features_are_columns(launches: list[GuessedLaunch]) -> None:
    """Stacked, each feature is a column with an element a launch, in their order."""
    alone = [launch.features for launch in launches]
    together = stack(alone)
    for field in dataclasses.fields(Features):
        column = getattr(together, field.name)
        assert isinstance(column, np.ndarray)
        assert column.tolist() == [float(getattr(one, field.name)) for one in alone]
