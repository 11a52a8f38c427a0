"""Hits in the L1 cache, against Nsight Compute and the driver's rule for its size."""

import statistics

import pytest
from compare_work import executed_of, resources_of
from hypothesis import given
from hypothesis import strategies as st
from recorded_work import recorded_launches

from occupancy_lab.gpus import architectures, find_gpu
from occupancy_lab.occupancy import occupancy
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.throughput.l1_cache import behind_others, l1_missing, l1_room, l1_share
from occupancy_lab.values import Resources
from occupancy_lab.work.counts import SECTOR, total
from occupancy_lab.work.execution import LATENCIES, LOADS, Common, Program

MANY = 1e5
"""Sectors of a launch that loads most of them after its first programs."""


def test_room_beside_shared_memory() -> None:
    """Shared memory takes the smallest step that the programs need, up to the maximum.

    The steps are CUDA's for each architecture; AMD's LDS is not part of the cache.
    """
    hopper, ada, cdna = (architectures()[one] for one in ("sm_90", "sm_89", "gfx942"))
    assert l1_room(hopper, 0, 16) == (256 - 16) * 1024
    assert l1_room(hopper, 40 * 1024, 4) == (256 - 164) * 1024
    assert l1_room(hopper, 40 * 1024 + 128, 4) == (256 - 196) * 1024
    assert l1_room(hopper, 48 * 1024 + 16, 1) == (256 - 228) * 1024
    assert l1_room(ada, 40 * 1024, 2) == (128 - 100) * 1024
    assert l1_room(cdna, 65536, 1) == 32 * 1024


def test_programs_share_the_cache_with_those_that_run_beside_them() -> None:
    """A program has all that shared memory leaves if it is alone, otherwise an equal part."""
    gpu = find_gpu("h200")
    small = calculate(Resources(n_regs=32, num_warps=4, shared=0), gpu)
    assert l1_share(small, (132,)) == (256 - 8) * 1024
    assert l1_share(small, (4, 132)) == (256 - 8) * 1024 // 4
    assert l1_share(small, (100_000,)) == (256 - 16) * 1024 // 16
    large = calculate(Resources(n_regs=32, num_warps=4, shared=100 * 1024), gpu)
    assert l1_share(large, (100_000,)) == (256 - 228) * 1024 // 2
    assert l1_share(large, (100_000,), fit=1) == (256 - 228) * 1024


@pytest.mark.slow
def test_misses_of_local_memory_match_nsight_compute() -> None:
    """The L1 miss rate of local memory matches Nsight Compute for every second launch on an H200.

    Launches that load more from global than from local memory are excluded, because their counters
    do not separate the two.
    """
    gpu, errors = find_gpu("h200"), []
    for launch in recorded_launches("h200")[::2]:
        came = launch.number("l1tex__m_xbar2l1tex_read_sectors.sum")
        loaded = launch.number("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
        if int(launch.row["n_spills"]) <= 50 or not came or not loaded:
            continue
        executed = executed_of(launch)
        if executed is None or executed.program is None:
            continue
        local = executed.program.local_loaded * executed.programs / SECTOR
        if loaded > local:
            continue
        resources = resources_of(launch)
        fit = occupancy(resources, gpu.architecture).programs_per_multiprocessor
        left = l1_room(gpu.architecture, resources.shared or 0, fit)
        threads = 32 * resources.num_warps * fit
        ours = l1_missing(executed.program.local_reuse.loads, threads, left)
        errors.append(abs(ours - min((came - loaded) / local, 1.0)))
    assert len(errors) >= 10
    assert statistics.median(errors) < 0.05
    assert max(errors) < 0.35


@given(
    programs=st.integers(1, 10_000),
    fit=st.integers(1, 32),
    size=st.sampled_from((1024, 100_000, 1 << 20)),
)
def test_programs_behind_others_take_no_longer(programs: int, fit: int, size: int) -> None:
    """Common data left by earlier programs saves sectors and waits, unless it was evicted.

    The last of very many programs find all of it if it fits.
    """
    gpu, resources = find_gpu("h200"), Resources(n_regs=32, shared=0, num_warps=4)
    faster, slower = (tuple(times * (8.0 + one) for one in LATENCIES) for times in (0.6, 1.0))
    common = Common(alone=faster, cached=0.5, loaded_lines=4.0, distinct_bytes=size)
    program = Program({}, slower, None, 0.0, loaded_lines=8.0, common=common)
    found = behind_others(program, resources, programs, fit, gpu)
    assert gpu.multiprocessors is not None
    if size == 1 << 20 or programs <= gpu.multiprocessors:
        assert found == program
    pairs = zip(common.alone, found.alone, program.alone, strict=True)
    assert all(least <= one <= most for least, one, most in pairs)
    assert 4.0 <= found.loaded_lines <= 8.0
    assert found.cached == pytest.approx((8.0 - found.loaded_lines) / 8.0)
    waits = (program.alone[0] - found.alone[0]) / (slower[0] - faster[0])
    assert waits <= found.cached / 0.5 + 1e-9
    if size == 1024:
        assert found.cached == pytest.approx(0.5 * max(1 - gpu.multiprocessors / programs, 0.0))


@pytest.mark.slow
def test_hits_of_loads_match_nsight_compute() -> None:
    """The L1 hit rate of launches without spills matches Nsight Compute.

    The launches are every fourth one on an H100, and on an H200 every second of the norms, whose
    weights all programs load, and every sixteenth of the others.
    """
    errors = {}
    norms = [one for one in recorded_launches("h200") if "norm" in one.kernel]
    for launch in {*recorded_launches("h100")[::4], *norms[::2], *recorded_launches("h200")[::16]}:
        came = launch.number("l1tex__m_xbar2l1tex_read_sectors.sum")
        loaded = launch.number("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
        resources = resources_of(launch)
        if not came or not loaded or loaded < MANY or resources.local_bytes:
            continue
        executed = executed_of(launch)
        if executed is None or executed.program is None:
            continue
        loads = [one for one in executed.accesses if one.operation in LOADS]
        if any(one.operation == "copy" for one in loads):
            continue
        gpu = find_gpu(launch.gpu)
        fit = occupancy(resources, gpu.architecture).programs_per_multiprocessor
        found = behind_others(executed.program, resources, executed.programs, fit, gpu)
        shared = total(one.sectors.scaled(one.shared) for one in loads).typical
        share = shared / total(one.sectors for one in loads).typical
        ours = share + (1.0 - share) * found.cached
        errors[launch.gpu, launch.id] = abs(ours - (1.0 - came / loaded))
    assert len(errors) >= 50
    assert statistics.mean(errors.values()) < 0.025
    assert sorted(errors.values())[round(0.93 * len(errors))] < 0.05
