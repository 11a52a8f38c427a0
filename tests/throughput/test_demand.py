"""What a program waits for, by what the others of a launch ask for at the same time."""

from dataclasses import replace

import pytest
from hand_made import executed, matmul, rows

from occupancy_lab.gpus import find_gpu
from occupancy_lab.throughput.demand import Demand, Doing, cycles_at, demand_of
from occupancy_lab.values import Resources
from occupancy_lab.work.counts import LATENCIES, Counts, Executed, Place, Program
from occupancy_lab.work.memory import memory
from occupancy_lab.work.pipes import TENSOR, XU

AHEAD, WAITING = (0.0, 0.0), (0.5, 0.9)
PRODUCTS, TURNS = {TENSOR: 100.0}, {TENSOR: 100.0, XU: 50.0}


@pytest.mark.parametrize(
    ("transferred", "pipes", "programs", "again", "share"),
    [
        (AHEAD, PRODUCTS, 200, False, 1.0),
        (AHEAD, PRODUCTS, 800, False, 1.0),
        (WAITING, PRODUCTS, 200, False, 1.0),
        (WAITING, PRODUCTS, 400, False, 0.1 + 0.9 / 4),
        (AHEAD, TURNS, 100, False, 1.0),
        (AHEAD, TURNS, 101, False, 0.1),
        (AHEAD, PRODUCTS, 200, True, 0.1),
    ],
)
def test_what_several_ask_for_at_once_all_wait_for(
    transferred: tuple[float, float],
    pipes: dict[str, float],
    programs: int,
    share: float,
    *,
    again: bool,
) -> None:
    """Of 100 multiprocessors with two programs each those of the first round wait for memory.

    So do all whose copies run ahead. Programs that take turns, and those of a launch right after
    the same, wait by what each of them gets from there.
    """
    demand = Demand(
        programs=programs,
        fit=2,
        program=Program(pipes, (1.0, 2.0, 3.0), None, 0.0, transferred=transferred),
        resources=Resources(n_regs=32, num_warps=4, shared=0),
        read_bytes=1e6,
        written_bytes=0.0,
        l2_bytes=1e7,
        missed=0.1,
        first=1.0,
        again=again,
    )
    assert demand.awaited(100) == pytest.approx(share)
    assert replace(demand, is_followed=False).awaited(100) == 0.1


def test_what_a_program_takes_grows_evenly_between_the_latencies() -> None:
    """Waits that begin at a latency count from there on, those beyond the last one as well."""
    waits = [max(one - LATENCIES[2], 0.0) for one in LATENCIES]
    found = [cycles_at(one, waits) for one in (0.0, *LATENCIES, 1250.0, 3000.0)]
    assert found == pytest.approx([0.0, *waits, 250.0, 2000.0])


def demanded(counts: Counts, ran: Executed | None = None) -> Demand:
    """Return what a launch on an H100 asks for, of a small program."""
    gpu, resources = find_gpu("h100"), Resources(n_regs=32, num_warps=4, shared=0)
    found = demand_of(Doing(counts, ran, memory(counts, gpu), resources, 2, gpu))
    assert found is not None
    return found


def test_the_first_to_ask_gets_it_from_memory() -> None:
    """Blocks that all programs of a product share are a small part of what they load, and new.

    Rows that are read again later are not.
    """
    shared, later = demanded(matmul(1024, 128, 264)), demanded(rows(64, 8192, 64, passes=3))
    assert shared.missed < 0.2
    assert shared.first == pytest.approx(1.0)
    assert later.first == pytest.approx(later.missed, rel=0.01)


def test_what_a_program_loads_again_itself_is_not_waited_for_as_new() -> None:
    """However near: of three loads of a row that the L1 cache does not keep two come later."""
    counts = rows(8, 8192, 8, passes=3)
    near = replace(counts, footprints=tuple(replace(one, again=()) for one in counts.footprints))
    ran = executed([Place("k.py", 1)], 8 * 4)
    third = replace(ran, accesses=tuple(replace(one, distinct=1 / 3) for one in ran.accesses))
    all_later, one_new = (demanded(near, one) for one in (ran, third))
    assert one_new.first == pytest.approx(1 / 3, rel=0.01)
    assert all_later.first == pytest.approx(1 / 3, rel=0.01)  # the share of each by itself
