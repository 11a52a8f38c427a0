"""What the L1 cache has of local memory, by Nsight Compute and by the driver's rule."""

from __future__ import annotations

import statistics

import pytest
from compare_work import executed_of, resources_of
from recorded_work import recorded_launches

from occupancy_lab.gpus import architectures, find_gpu
from occupancy_lab.occupancy import occupancy
from occupancy_lab.throughput.l1_cache import missing, room
from occupancy_lab.work.counts import SECTOR


def test_what_is_left_beside_shared_memory() -> None:
    """Shared memory takes the smallest step that the programs need, or all that there can be.

    The steps are CUDA's for each architecture; AMD's LDS is no part of the cache.
    """
    hopper, ada, cdna = (architectures()[one] for one in ("sm_90", "sm_89", "gfx942"))
    assert room(hopper, 0, 16) == (256 - 16) * 1024
    assert room(hopper, 40 * 1024, 4) == (256 - 164) * 1024
    assert room(hopper, 40 * 1024 + 128, 4) == (256 - 196) * 1024
    assert room(hopper, 48 * 1024 + 16, 1) == (256 - 228) * 1024
    assert room(ada, 40 * 1024, 2) == (128 - 100) * 1024
    assert room(cdna, 65536, 1) == 32 * 1024


def test_what_lies_farther_apart_is_lost() -> None:
    """Of what threads touch again a cache has what lies no farther apart than there is room for."""
    assert missing((10.0, 20.0), 100, 8000) == 0.0
    assert missing((10.0, 200.0), 100, 8000) == 0.5
    assert 0.0 < missing((80.0,), 100, 8000) < 1.0
    assert missing((), 100, 8000) == 0.0


@pytest.mark.slow
def test_the_l1_cache_lacks_what_nsight_compute_counts() -> None:
    """Of what launches on an H200 load from local memory the share is right that comes from the L2.

    Those that load more from global memory than from local are left out: what they miss of that
    is not known apart.
    """
    gpu, errors = find_gpu("h200"), []
    for launch in recorded_launches("h200"):
        executed = executed_of(launch) if int(launch.row["n_spills"]) > 50 else None
        came = launch.number("l1tex__m_xbar2l1tex_read_sectors.sum")
        loaded = launch.number("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
        if executed is None or executed.program is None or not came or not loaded:
            continue
        local = executed.program.local_loaded * executed.programs / SECTOR
        if loaded > local:
            continue
        resources = resources_of(launch)
        fit = occupancy(resources, gpu.architecture).programs_per_multiprocessor
        left = room(gpu.architecture, resources.shared or 0, fit)
        threads = 32 * resources.num_warps * fit
        ours = missing(executed.program.local_reuse.loads, threads, left)
        errors.append(abs(ours - min((came - loaded) / local, 1.0)))
    assert len(errors) >= 10
    assert statistics.median(errors) < 0.05
    assert max(errors) < 0.35
