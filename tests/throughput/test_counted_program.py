"""A program without a replay of its binary: what it needs, and its accuracy."""

import dataclasses

import pytest
from compare_time import errors, read
from compare_work import counts_of, resources_of
from recorded_work import RecordedLaunch, recorded_launches

from occupancy_lab.gpus import find_gpu
from occupancy_lab.throughput.counted_program import counted_program, working_programs
from occupancy_lab.throughput.launch_time import MEASURED
from occupancy_lab.work.counts import Amount
from occupancy_lab.work.execution import Program

GPUS = ("h100", "a100", "b200", "mi300x", "rx7900xtx")


def matmul() -> RecordedLaunch:
    """Return a recorded product of matrices with one loop."""
    return next(one for one in recorded_launches() if one.kernel == "matmul_kernel")


def program(gpu: str, num_stages: int = 3) -> Program:
    """Return the product's program on a GPU."""
    launch = matmul()
    found = counted_program(counts_of(launch), resources_of(launch), num_stages, find_gpu(gpu))
    assert found is not None
    return found


@pytest.mark.parametrize("gpu", GPUS)
def test_every_gpu_with_tensor_rates_has_a_program(gpu: str) -> None:
    """Each unit takes some cycles, and slower memory makes the program longer."""
    found = program(gpu)
    assert {"issue", "lsu", "tensor"} <= found.pipes.keys()
    assert min(found.pipes.values()) > 0
    assert list(found.alone) == sorted(found.alone)


def test_programs_without_work_do_not_count() -> None:
    """Programs that neither enter a loop nor store do not count, unless no program does."""
    counts = counts_of(matmul())
    half = counts.programs // 2
    loops = tuple(dataclasses.replace(one, entered=Amount.of(half)) for one in counts.loops)
    reads = tuple(one for one in counts.accesses if not one.writes)
    assert working_programs(counts) == counts.programs
    assert working_programs(dataclasses.replace(counts, loops=loops)) == counts.programs
    assert working_programs(dataclasses.replace(counts, loops=loops, accesses=reads)) == half
    assert (
        working_programs(dataclasses.replace(counts, loops=(), accesses=reads)) == counts.programs
    )


def test_endless_loops_and_clusters() -> None:
    """A loop without a limit has no program, and the CTAs of a cluster share one."""
    launch, gpu = matmul(), find_gpu("mi300x")
    counts, resources = counts_of(launch), resources_of(launch)
    endless = [dataclasses.replace(one, trips=Amount(1, None)) for one in counts.loops]
    open_ended = dataclasses.replace(counts, loops=tuple(endless))
    assert counted_program(open_ended, resources, 3, gpu) is None
    whole, part = (
        counted_program(counts, resources.replace(num_ctas=ctas), 3, gpu) for ctas in (1, 2)
    )
    assert whole is not None
    assert part is not None
    assert part.pipes["tensor"] == whole.pipes["tensor"] / 2


@pytest.mark.parametrize("gpu", MEASURED)
@pytest.mark.parametrize(("dots", "median", "ninth"), [(False, 0.10, 0.42), (True, 0.22, 0.50)])
def test_errors_without_a_replay(gpu: str, *, dots: bool, median: float, ninth: float) -> None:
    """Errors for kernels that were not fitted to are limited, and 70% of launches are in range."""
    counted = [one.counted for one in read(gpu)]
    found = errors(counted, lambda one: one.use != "tuning" and (one.kind != "memory") == dots)
    assert found.median <= median
    assert found.p90 <= ninth
    assert found.covered >= 0.94
    assert 0.7 <= found.inside <= 0.9
