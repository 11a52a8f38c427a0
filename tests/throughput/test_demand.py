"""How long a program waits where others request the same data at the same time."""

from dataclasses import replace

import launched_kernels
import pytest
from hand_made import executed, matmul, rows

from occupancy_lab import dry_run, tensor
from occupancy_lab.gpus import find_gpu
from occupancy_lab.throughput.demand import Demand, Doing, cycles_at, demand_of
from occupancy_lab.values import Resources
from occupancy_lab.work.counts import Counts, Place, Unknown, total
from occupancy_lab.work.execution import LATENCIES, Executed, Program
from occupancy_lab.work.memory import Memory, memory
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
def test_programs_wait_for_common_misses(
    transferred: tuple[float, float],
    pipes: dict[str, float],
    programs: int,
    share: float,
    *,
    again: bool,
) -> None:
    """Programs of the first round, and programs that prefetch, wait for memory.

    Programs that take turns, and those right after the same launch, wait by their own miss rate.
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
        memory=Memory(kept=0.0 if again else None),
    )
    assert demand.awaited(100) == pytest.approx(share)
    assert replace(demand, is_followed=False).awaited(100) == 0.1


def test_times_are_interpolated_between_latencies() -> None:
    """Times are interpolated between the latencies, and extrapolated beyond the last one."""
    waits = [max(one - LATENCIES[2], 0.0) for one in LATENCIES]
    found = [cycles_at(one, waits) for one in (0.0, *LATENCIES, 1250.0, 3000.0)]
    assert found == pytest.approx([0.0, *waits, 250.0, 2000.0])


def demanded(counts: Counts, ran: Executed | None = None) -> Demand:
    """Return what a launch of small programs needs on an H100."""
    gpu, resources = find_gpu("h100"), Resources(n_regs=32, num_warps=4, shared=0)
    found = demand_of(Doing(counts, ran, memory(counts, gpu), resources, 2, gpu))
    assert found is not None
    return found


def test_first_misses_of_common_data() -> None:
    """Data that all programs of a product load is a small part of loads, but first misses.

    Rows that their own program reads again do not.
    """
    shared, later = demanded(matmul(1024, 128, 264)), demanded(rows(64, 8192, 64, passes=3))
    assert shared.missed < 0.2
    assert shared.first == pytest.approx(1.0)
    assert later.first == pytest.approx(later.missed, rel=0.01)


def test_own_reloads_are_not_new() -> None:
    """Of three loads of the same row by a program, two are not new, however near they are."""
    counts = rows(8, 8192, 8, passes=3)
    near = replace(counts, footprints=tuple(replace(one, again=()) for one in counts.footprints))
    ran = executed([Place("k.py", 1)], 8 * 4)
    loaded = total(one.sectors for one in counts.accesses if one.reads)
    ran = replace(ran, accesses=tuple(replace(one, sectors=loaded) for one in ran.accesses))
    third = replace(ran, accesses=tuple(replace(one, distinct=1 / 3) for one in ran.accesses))
    all_later, one_new = (demanded(near, one) for one in (ran, third))
    assert one_new.first == pytest.approx(1 / 3, rel=0.01)
    assert all_later.first == pytest.approx(1 / 3, rel=0.01)  # each one's own miss rate


@pytest.mark.parametrize(("sectors", "granules", "share"), [(1, 1, 0.5), (2, 1, 1.0), (1, 2, 1.0)])
def test_every_other_sector_of_whole_granules_is_there(
    sectors: int, granules: int, share: float
) -> None:
    """A program that loads a sector at a time waits for device memory every other time.

    It waits each time if it loads two at a time, or if the launch reads half of each granule.
    """
    counts, ran = rows(8, 8192, 8), executed([Place("k.py", 1)], 8 * 4)
    size = counts.footprints[0].read_whole.low
    a_tensor = replace(counts.footprints[0], tensor="x", read_granules=size * granules)
    loads = [replace(one, sectors=one.executions * sectors, shared=0.75) for one in ran.accesses]
    ran = replace(ran, accesses=tuple(loads))
    found = demanded(replace(counts, footprints=(a_tensor, *counts.footprints[1:])), ran)
    assert found.fetching == share
    assert replace(found, is_followed=True).awaited(132) == pytest.approx(share)


def test_the_mean_of_all_and_nothing_is_moved_behind_unknown_masks() -> None:
    """Stores with unknown masks count half, and those at unknown places as `Amount.typical`."""
    counts = rows(8, 8192, 8)
    masked = [
        replace(one, written_whole=replace(one.written_whole, low=0)) for one in counts.footprints
    ]
    counts = replace(counts, footprints=tuple(masked))
    whole = counts.footprints[-1].written_whole.most
    for steers, share in (("mask", 0.5), ("branch", 0.5), ("loop", 0.0)):
        unknown = Unknown(Place("k.py", 1), "values of x", steers)
        found = demanded(replace(counts, unknowns=(unknown,)))
        assert found.written_bytes == pytest.approx(share * whole)


@pytest.mark.slow
def test_no_product_is_faster_than_the_data_sheet() -> None:
    """A GeForce has half the rate of its architecture where products are added up in FP32."""
    a, b, c = (tensor((4096, 4096), "float16") for _ in range(3))
    kernel = dry_run(launched_kernels.matmul, "rtx3090,rtx4090,a10,l40s")
    run = kernel[(32 * 32,)](
        *(a, b, c, *(4096,) * 3, *(4096, 1) * 3),
        **dict.fromkeys(("BLOCK_SIZE_M", "BLOCK_SIZE_N"), 128),
        BLOCK_SIZE_K=64,
        GROUP_SIZE_M=8,
        ACTIVATION="",
        num_warps=8,
    )
    for record in run.records:
        assert record.prediction is not None
        assert record.prediction.us >= (record.speed_of_light.us or 0)
