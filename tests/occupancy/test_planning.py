"""How work is spread over programs and rounds, and the bytes that it moves."""

import dataclasses
from collections.abc import Sequence
from itertools import chain, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import plan_of

from occupancy_lab.kernel import Kernel, MemoryStep, load_kernel
from occupancy_lab.occupancy.calculator import plan_launch
from occupancy_lab.values import Config, LaunchPlan, Problem, Traffic, Work

PERSISTENT, ROWS = load_kernel("softmax"), load_kernel("softmax_row")
BLOCKS, NAIVE = load_kernel("vector_add"), load_kernel("softmax_naive")
CONFIG = Config(1024, 8, 4)
COUNTS = st.integers(1, 64)


def simulate(work: int, places: int) -> tuple[int, int]:
    """Return the rounds that *places* workers need for *work*, and the work in the last round."""
    rounds = done = 0
    while work > 0:
        rounds, done = rounds + 1, min(work, places)
        work -= done
    return rounds, done


@given(st.integers(1, 3000), COUNTS, st.integers(1, 300))
def test_persistent_programs_share_the_rows(rows: int, programs: int, multiprocessors: int) -> None:
    """Each row has exactly one program, and each program has a row."""
    plan = plan_of(PERSISTENT, Problem(rows, 781), CONFIG, programs, multiprocessors)
    assert plan.resident_programs == programs * multiprocessors
    assert 1 <= plan.num_programs <= min(rows, plan.resident_programs)
    shares = [range(program, rows, plan.num_programs) for program in range(plan.num_programs)]
    assert sorted(chain.from_iterable(shares)) == list(range(rows))
    assert all(shares)
    assert plan.rounds == max(map(len, shares))
    assert plan.last_round == sum(len(share) == plan.rounds for share in shares)
    assert plan.waves == plan.num_programs / plan.resident_programs


@pytest.mark.parametrize("kernel", [PERSISTENT, ROWS, NAIVE], ids=lambda kernel: kernel.name)
@given(rows=st.integers(1, 3000), programs=COUNTS, multiprocessors=st.integers(1, 300))
def test_rounds(kernel: object, rows: int, programs: int, multiprocessors: int) -> None:
    """Rounds and tail equal those of workers that each take one row at a time."""
    plan = plan_of(kernel, Problem(rows, 781), CONFIG, programs, multiprocessors)
    assert (plan.rounds, plan.last_round) == simulate(rows, programs * multiprocessors)
    assert plan.at_once == min(rows, programs * multiprocessors)


@given(st.integers(1, 200), st.integers(1, 3000), st.integers(0, 11), COUNTS)
def test_blocks_cover_the_elements(rows: int, cols: int, power: int, programs: int) -> None:
    """A launch over blocks has exactly the programs that cover all elements."""
    block_size = 2**power
    plan = plan_of(BLOCKS, Problem(rows, cols), Config(block_size, 4, 1), programs, 132)
    assert plan.num_programs == plan.work == len(range(0, rows * cols, block_size))
    assert (plan.rounds, plan.last_round) == simulate(plan.work, programs * 132)


@pytest.mark.parametrize(("programs", "multiprocessors"), [(8, None), (None, 132), (None, None)])
def test_the_unknown_is_none(programs: int | None, multiprocessors: int | None) -> None:
    """Numbers that need an unknown size or number of programs are None."""
    problem = Problem(4096, 781)
    persistent = plan_of(PERSISTENT, problem, CONFIG, programs, multiprocessors)
    assert persistent == LaunchPlan(work=4096, num_programs=None, resident_programs=None)
    rows = plan_of(ROWS, problem, CONFIG, programs, multiprocessors)
    assert rows == LaunchPlan(4096, num_programs=4096, resident_programs=None, grid=(4096,))
    for plan in (persistent, rows):
        assert (plan.waves, plan.at_once, plan.rounds, plan.last_round) == (None,) * 4


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@given(rows=st.integers(1, 10**6), cols=st.integers(1, 10**6))
def test_traffic(dtype: str, rows: int, cols: int) -> None:
    """The tutorial's counts: 5MN + 2M read and 3MN + 2M written naively, MN and MN fused."""
    problem = Problem(rows, cols, dtype)
    item, elements = problem.item_bytes, rows * cols
    naive = NAIVE.traffic(problem)
    assert naive.read_bytes == (5 * elements + 2 * rows) * item
    assert naive.written_bytes == (3 * elements + 2 * rows) * item
    assert naive.total_bytes == (8 * elements + 4 * rows) * item
    for kernel in (PERSISTENT, ROWS):
        fused = kernel.traffic(problem)
        assert fused == Traffic(problem.matrix_bytes, problem.matrix_bytes)
    added = BLOCKS.traffic(problem)
    assert added == Traffic(2 * problem.matrix_bytes, problem.matrix_bytes)


def test_no_steps_move_nothing() -> None:
    """No steps move nothing, several their sum; without named steps it is not known."""
    problem = Problem(2, 3, "float16")
    steps = (MemoryStep("one", reads=6, writes=1), MemoryStep("two", reads=1, writes=6))
    counted = ((lambda _: (), Traffic(0, 0)), (lambda _: steps, Traffic(14, 14)), (None, None))
    for found, moved in counted:
        assert dataclasses.replace(ROWS, memory_steps=found).traffic(problem) == moved


def test_the_floor_is_bytes_over_bandwidth() -> None:
    """1 GB at 2 GB/s takes 0.5 s; without a bandwidth the time is unknown."""
    moved = Traffic(600_000_000, 400_000_000)
    assert moved.floor_us(2.0) == 500_000.0
    assert moved.floor_us(3350.0) == pytest.approx(298.507, abs=1e-3)
    assert moved.floor_us(None) is None


def plan_grid(grid: Sequence[int], resident: int | None) -> LaunchPlan:
    """Return the plan of a launch over *grid* without further knowledge."""
    plan = plan_launch(tuple(grid), Work(), resident)
    assert plan is not None
    return plan


GRIDS = st.lists(st.integers(0, 40), min_size=1, max_size=3)


@given(GRIDS, st.integers(1, 2000))
def test_a_grid_is_launched_in_waves(grid: list[int], resident: int) -> None:
    """Programs of a grid take as many waves as workers need for its points."""
    plan = plan_grid(grid, resident)
    points = len(list(product(*map(range, grid))))
    assert (plan.grid, plan.num_programs, plan.work) == (tuple(grid), points, points)
    assert plan.waves == points / resident
    assert (plan.rounds, plan.last_round) == simulate(points, resident)


def test_a_gpu_that_holds_no_program_has_no_waves() -> None:
    """A program that does not fit has no number of waves, and no error."""
    assert plan_grid((7,), 0).waves is None


def test_without_a_grid_and_pieces_there_is_no_plan() -> None:
    """Without a grid and an amount of work there is no plan."""
    assert plan_launch(None, Work(read_bytes=1, written_bytes=1), 1056) is None


@given(st.integers(1, 3000), st.integers(1, 64), COUNTS)
def test_work_comes_in_a_kernels_own_pieces(rows: int, each: int, programs: int) -> None:
    """With `work` a grid has one program per piece; persistent programs share."""

    def tiles(problem: Problem, config: Config) -> int:
        return -(-problem.rows // config.block_size)

    problem, config = Problem(rows, 781), Config(each, 4, 1)
    pieces = len(range(0, rows, each))
    grid = plan_of(dataclasses.replace(ROWS, work=tiles), problem, config, programs, 132)
    assert (grid.work, grid.num_programs) == (pieces, pieces)
    shared = plan_of(dataclasses.replace(PERSISTENT, work=tiles), problem, config, programs, 2)
    assert (shared.work, shared.num_programs) == (pieces, min(pieces, 2 * programs))


@pytest.mark.parametrize("kernel", [PERSISTENT, ROWS], ids=lambda kernel: kernel.name)
def test_programs_that_wait_for_each_other_are_all_resident(kernel: Kernel) -> None:
    """If too few fit, nothing is launched."""
    waiting = dataclasses.replace(kernel, together=lambda _problem, config: config.block_size)
    problem, config = Problem(4096, 781), Config(264, 4, 1)
    assert plan_of(waiting, problem, config, 1, 132).num_programs == 0
    usual = plan_of(kernel, problem, config, 2, 132)
    assert plan_of(waiting, problem, config, 2, 132) == usual
    assert usual.num_programs
    unknown = plan_of(kernel, problem, config, 1, None)
    assert plan_of(waiting, problem, config, 1, None) == unknown
