"""Rounds of programs with a barrier between their loads and stores, which stay in step."""

import itertools

import pytest

from occupancy_lab.gpus import find_gpu
from occupancy_lab.throughput.demand import Demand
from occupancy_lab.throughput.rounds import STEPS, Rounds
from occupancy_lab.values import Resources
from occupancy_lab.work.execution import LATENCIES, Program
from occupancy_lab.work.memory import Memory

GPU = find_gpu("h200")
SIZE = GPU.multiprocessors or 0
ROW = 1 << 17
"""Bytes of a row, which a program loads and stores."""


def us_of(
    rounds: float,
    phases: float = 1.0,
    fit: int = 1,
    pipes: dict[str, float] | None = None,
    busiest: float | None = None,
    **others: float,
) -> float:
    """Return how long a launch of so many rounds takes; *others* are fields of Memory."""
    programs = round(rounds * fit * SIZE)
    program = Program(
        pipes={"issue": 2000.0, **(pipes or {})},
        alone=tuple(4000.0 + latency for latency in LATENCIES),
        rounds=busiest,
        code_cycles=0.0,
        transferred=(0.5, 0.9),
        phases=phases,
    )
    moved = float(programs * ROW // fit)
    demand = Demand(
        programs=programs,
        fit=fit,
        program=program,
        resources=Resources(n_regs=32, num_warps=16, shared=0),
        read_bytes=moved,
        written_bytes=moved,
        l2_bytes=2 * moved,
        stored_bytes=moved,
        missed=1.0,
        first=1.0,
        memory=Memory(**others),
    )
    return Rounds(demand, GPU).us()


def test_programs_in_step_wait_longest_in_the_first_rounds() -> None:
    """Each of the first rounds adds a wait, and each later one adds less."""
    lost = [us_of(rounds) - us_of(rounds, phases=0.0) for rounds in range(2, 2 * STEPS)]
    added = [after - before for before, after in itertools.pairwise(lost)]
    assert lost[0] > 0
    assert added[0] > 0
    assert all(0 <= one < added[0] / 2 for one in added[STEPS - 1 :])


def test_one_round_does_not_depend_on_barriers() -> None:
    """In a single round all programs begin together, whatever they do."""
    assert us_of(1) == us_of(1, phases=0.0)


def test_passes_of_a_program_are_in_step_like_rounds() -> None:
    """Two passes of a program in one round wait for each other's stores; of many, the first do."""
    few, many = (us_of(1, phases=passes) for passes in (2.0, 50.0))
    assert us_of(1) <= many < few


def test_several_programs_wait_less() -> None:
    """The more programs share a multiprocessor, the less of the wait is left."""
    lost = [us_of(3, fit=fit) / us_of(3, phases=0.0, fit=fit) - 1 for fit in (1, 2)]
    assert lost[0] > 0
    assert lost[1] == pytest.approx(0.0, abs=0.01)


def test_stores_to_completed_sectors_come_after_device_memory() -> None:
    """What is stored to sectors once they are complete adds its time to that of completing them."""
    moved = 40.0 * SIZE * ROW
    times = [us_of(10, early=moved, returned=share) for share in (0.0, 0.5, 1.0)]
    assert times[0] > us_of(10)
    assert times[1] - times[0] == pytest.approx(times[2] - times[1], rel=0.1)
    assert times[1] > times[0]
    assert us_of(10, returned=0.1) == us_of(10)


def test_products_are_not_in_step() -> None:
    """Products load ahead: the barrier before they store does not keep them in step."""
    pipes = {"tensor": 100.0}
    assert us_of(3, pipes=pipes) == us_of(3, phases=0.0, pipes=pipes)


def test_unequal_programs_are_in_step_in_the_first_rounds_alone() -> None:
    """Programs of which some do more are as long in step as equal ones."""
    assert us_of(40, busiest=40.0) == pytest.approx(us_of(40), rel=0.001)
    assert us_of(40, busiest=44.0) > us_of(40)
