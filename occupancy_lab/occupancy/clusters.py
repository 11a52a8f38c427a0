"""Whole clusters that a GPU holds: the programs of a launch with num_ctas above 1.

The CTAs of a cluster run at the same time in the same group of SMs (a GPC, or a part of it), and as
Triton launches them (spread) each on an SM of its own. Groups are of unequal size, so that some
places for a CTA stay empty. Source: what `cuOccupancyMaxActiveClusters` answered and what was
resident at once on four H200s, for clusters of 1 to 16 CTAs and 1 to 32 CTAs per SM; NVIDIA
documents no formula.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from occupancy_lab.gpus import CudaArchitecture
from occupancy_lab.occupancy.rule import UNLIMITED, Where, scalar_where
from occupancy_lab.values import Clusters, NextStep

if TYPE_CHECKING:
    from occupancy_lab.gpus import Gpu

MAX_NUM_CTAS = 16
"""The most CTAs of a cluster, which Triton launches with the driver's leave (its driver.c); up to 8
every GPU with clusters takes (CUDA C++ Programming Guide, Thread Block Clusters)."""


def _ctas_per_sm(programs: Any, gpu: Gpu, where: Where) -> Any:
    """Return how many CTAs per SM run of a launch with clusters, where *programs* would fit."""
    most = getattr(gpu.architecture, "max_cluster_programs", None) or UNLIMITED
    return where(programs > most, most, programs)


def whole_clusters(
    num_ctas: Any, programs_per_multiprocessor: Any, gpu: Gpu, where: Where = scalar_where
) -> Any:
    """Return the clusters of *num_ctas* CTAs that *gpu* holds, as ints or arrays.

    None where it is not known which SMs are together.
    """
    if gpu.gpcs is None:
        return None
    ctas = _ctas_per_sm(programs_per_multiprocessor, gpu, where)
    return sum(where(num_ctas > sms, 0, sms * ctas // num_ctas) for sms in gpu.gpcs)


def clusters(num_ctas: int, programs_per_multiprocessor: int, gpu: Gpu) -> Clusters | None:
    """Return the clusters that *gpu* holds with the steps to them; None where num_ctas is 1."""
    if num_ctas == 1:
        return None
    resident = whole_clusters(num_ctas, programs_per_multiprocessor, gpu)
    if resident is None:
        cuda = isinstance(gpu.architecture, CudaArchitecture)
        who = "the driver's cuOccupancyMaxActiveClusters" if cuda else "the GPU's driver"
        source = f"which SMs of {gpu.title} are together is not known; {who} knows it on the GPU"
        return Clusters(num_ctas, None, (), None, source)
    return Clusters(
        num_ctas=num_ctas,
        resident=resident,
        steps=tuple(_steps(num_ctas, programs_per_multiprocessor, resident, gpu)),
        next_step=_next_step(num_ctas, programs_per_multiprocessor, gpu),
        source=gpu.sources["gpcs"].text if "gpcs" in gpu.sources else "given",
    )


def _steps(num_ctas: int, programs: int, resident: int, gpu: Gpu) -> list[str]:
    ctas = _ctas_per_sm(programs, gpu, scalar_where)
    steps = []
    if ctas < programs:
        steps.append(f"{programs} CTAs fit an SM, which takes {ctas} of a launch with clusters")
    for sms, groups in Counter(gpu.gpcs).items():
        each = f"{sms} x {ctas} CTAs / {num_ctas} = {sms * ctas // num_ctas} clusters"
        each = f"fewer than {num_ctas} SMs, no cluster" if sms < num_ctas else each
        steps.append(f"{groups} group{'s' * (groups > 1)} of {sms} SMs: {each}")
    ctas_resident, places = resident * num_ctas, sum(gpu.gpcs or ()) * ctas
    steps.append(f"{resident} clusters in all, {ctas_resident} CTAs in {places} places")
    return steps


def _next_step(num_ctas: int, programs: int, gpu: Gpu) -> NextStep:
    """Return the num_ctas, a power of two, around this one at which the CTAs at once change."""
    sizes = [2**power for power in range(MAX_NUM_CTAS.bit_length())]
    ctas_by_size = {size: size * whole_clusters(size, programs, gpu) for size in {*sizes, num_ctas}}
    now = ctas_by_size[num_ctas]
    return NextStep(
        resource="clusters",
        now=num_ctas,
        most_for_one_more=max(
            (s for s in sizes if s < num_ctas and ctas_by_size[s] > now), default=None
        ),
        least_for_one_fewer=min(
            (s for s in sizes if s > num_ctas and ctas_by_size[s] < now), default=None
        ),
    )
