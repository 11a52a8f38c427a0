"""The occupancy of given resources on a GPU by every formula, without a kernel or a compile.

Programs with num_ctas above 1 are clusters. The CTAs of a cluster run at the same time in the same
group of SMs (a GPC, or a part of it), and as Triton launches them (spread), each on its own SM.
Groups have different sizes, so some places for CTAs stay empty. Source: the answers of
`cuOccupancyMaxActiveClusters` and what was resident at once on four H200s, for clusters of 1 to 16
CTAs and 1 to 32 CTAs per SM; NVIDIA documents no formula.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from occupancy_lab.errors import DoesNotFitError, refuse
from occupancy_lab.gpus import Architecture, CudaArchitecture, Gpu
from occupancy_lab.inputs import check_num_warps
from occupancy_lab.occupancy import next_steps, occupancy, programs_after, tutorial_occupancy
from occupancy_lab.occupancy.hip import needed_vgprs
from occupancy_lab.occupancy.rule import UNLIMITED, Where, scalar_where
from occupancy_lab.text.words import LIMITS, count, listed, per_cta, resource_word
from occupancy_lab.values import (
    Clusters,
    LaunchPlan,
    NextStep,
    Occupancy,
    Resources,
    TutorialOccupancy,
    Work,
)


def ctas_per_sm(programs: Any, gpu: Gpu, where: Where = scalar_where) -> Any:
    """Return the CTAs per SM of a launch with clusters, if *programs* would fit otherwise."""
    most = gpu.architecture.max_cluster_programs or UNLIMITED
    return where(programs > most, most, programs)


def whole_clusters(
    num_ctas: Any, programs_per_multiprocessor: Any, gpu: Gpu, where: Where = scalar_where
) -> Any:
    """Return the clusters of *num_ctas* CTAs that *gpu* holds, as ints or arrays.

    Return None if it is not known which SMs form a group.
    """
    if gpu.gpcs is None:
        return None
    ctas = ctas_per_sm(programs_per_multiprocessor, gpu, where)
    return sum(where(num_ctas > sms, 0, sms * ctas // num_ctas) for sms in gpu.gpcs)


def _cluster_sizes(gpu: Gpu) -> list[int]:
    """Return each num_ctas that *gpu* accepts, including 1 for a program without a cluster."""
    return [2**power for power in range((gpu.architecture.max_cluster_size or 1).bit_length())]


def clusters(num_ctas: int, programs_per_multiprocessor: int, gpu: Gpu) -> Clusters | None:
    """Return the clusters that *gpu* holds with the steps to them; None if num_ctas is 1."""
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
    ctas = ctas_per_sm(programs, gpu)
    steps = []
    if ctas < programs:
        steps.append(
            f"{count(programs, 'CTA')} fit an SM, which takes {ctas} of a launch with clusters"
        )
    for sms, groups in Counter(gpu.gpcs).items():
        clusters = count(sms * ctas // num_ctas, "cluster")
        each = f"{sms} x {count(ctas, 'CTA')} / {num_ctas} = {clusters}"
        each = f"fewer than {num_ctas} SMs, no cluster" if sms < num_ctas else each
        steps.append(f"{count(groups, 'group')} of {count(sms, 'SM')}: {each}")
    ctas_resident, places = resident * num_ctas, sum(gpu.gpcs or ()) * ctas
    steps.append(
        f"{count(resident, 'cluster')} in all, {count(ctas_resident, 'CTA')} in {places} places"
    )
    return steps


def _next_step(num_ctas: int, programs: int, gpu: Gpu) -> NextStep:
    """Return the nearest powers of two for num_ctas at which the number of CTAs at once changes."""
    sizes = _cluster_sizes(gpu)
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


@dataclass(frozen=True)
class Calculation:
    """The results of the exact and the tutorial's formula for resources on a GPU.

    It has no slots, so that values which few readers need are computed when they are read, and
    kept.
    """

    gpu: Gpu
    resources: Resources
    occupancy: Occupancy
    clusters: Clusters | None = None
    """The whole clusters that the GPU holds; None if a program is a single CTA."""

    @functools.cached_property
    def next_steps(self) -> tuple[NextStep, ...]:
        """The distance of each resource from the next cliff."""
        return next_steps(self.resources, self.architecture)

    @functools.cached_property
    def tutorial(self) -> TutorialOccupancy:
        """The result of the tutorial's formula for the same resources."""
        return tutorial_occupancy(self.resources, self.architecture)

    @property
    def padded_vgprs(self) -> int | None:
        """VGPRs that waves_per_eu makes a kernel take; None if it takes what it uses (HIP)."""
        if isinstance(self.architecture, CudaArchitecture):
            return None
        taken: int = needed_vgprs(self.resources, self.architecture, scalar_where)
        return taken if taken > self.resources.n_regs else None

    @property
    def title(self) -> str:
        """The GPU's name."""
        return self.gpu.title

    @property
    def architecture(self) -> Architecture:
        """The limits of the GPU."""
        return self.gpu.architecture

    @property
    def resident_programs(self) -> int | None:
        """Programs that the whole GPU holds, or whole clusters if a program has several CTAs.

        None if its multiprocessors, or the groups of SMs for clusters, are not known.
        """
        return self.resident_with(self.occupancy.programs_per_multiprocessor)

    def resident_with(self, programs_per_multiprocessor: int) -> int | None:
        """Return what `resident_programs` would be for another number per multiprocessor."""
        if self.clusters is not None:
            each, gpu = self.clusters.num_ctas, self.gpu
            resident: int | None = whole_clusters(each, programs_per_multiprocessor, gpu)
            return resident
        if self.gpu.multiprocessors is None:
            return None
        return programs_per_multiprocessor * self.gpu.multiprocessors

    @property
    def next_programs(self) -> int | None:
        """Programs that fit with every limiter at its next step; None if one has no step."""
        return programs_after(self.next_steps, self.resources, self.architecture)

    def to_dict(self) -> dict[str, Any]:
        """Return the calculation as nested plain values, for JSON."""
        return {
            "gpu": self.gpu.key,
            "gpu_title": self.gpu.title,
            "target": self.gpu.target.name,
            "multiprocessors": self.gpu.multiprocessors,
            "resources": {
                **dataclasses.asdict(self.resources),
                "n_spills": self.resources.n_spills,
            },
            "programs_per_multiprocessor": self.occupancy.programs_per_multiprocessor,
            "warps_per_multiprocessor": self.occupancy.warps_per_multiprocessor,
            "max_warps": self.occupancy.max_warps,
            "occupancy": self.occupancy.occupancy,
            "limiters": list(self.occupancy.limiters),
            "limits": [dataclasses.asdict(limit) for limit in self.occupancy.limits],
            "next_steps": [dataclasses.asdict(step) for step in self.next_steps],
            "tutorial": dataclasses.asdict(self.tutorial),
            "clusters": None if self.clusters is None else dataclasses.asdict(self.clusters),
            "resident_programs": self.resident_programs,
        }


def calculate(resources: Resources, gpu: Gpu) -> Calculation:
    """Return the results of every formula for *resources* on *gpu*."""
    found = occupancy(resources, gpu.architecture)
    held = clusters(resources.num_ctas, found.programs_per_multiprocessor, gpu)
    return Calculation(gpu, resources, found, held)


def unit_words(case: Calculation, resource: str) -> str:
    """Return the unit of a limit's resource: "registers per thread"."""
    return per_cta(LIMITS[resource].unit.format(case.architecture), case.resources.num_ctas)


def limiter_words(case: Calculation) -> str:
    """Return the limiters as a phrase: "warps and registers"."""
    return listed(
        [resource_word(case.gpu.vendor, resource) for resource in case.occupancy.limiters]
    )


def check_fits(calculation: Calculation, num_stages: int = 1) -> None:
    """Raise DoesNotFitError, saying what would fit, if a GPU cannot hold a single program."""
    resources, occupancy = calculation.resources, calculation.occupancy
    if occupancy.programs_per_multiprocessor > 0:
        return
    title, architecture = calculation.title, calculation.architecture
    if "shared" in occupancy.limiters:
        needed = resources.shared + resources.static_shared
        msg = (
            f"{title} gives a program at most {architecture.max_shared} B of shared memory, and"
            f" this one needs {needed} B{_what_would_fit(resources, architecture, num_stages)}"
        )
        raise DoesNotFitError(msg, needed=needed, available=architecture.max_shared)
    if "registers" in occupancy.limiters:
        steps = {step.resource: step.most_for_one_more for step in calculation.next_steps}
        available = steps["registers"] or 0
        warps = count(resources.num_warps, architecture.warp_word)
        msg = (
            f"{title} cannot hold one program of {warps} with {resources.n_regs} registers a"
            f" thread; with {warps} a thread may have {available}"
        )
        raise DoesNotFitError(msg, needed=resources.n_regs, available=available)
    msg = f"{title} cannot hold one program of this kernel, for want of {occupancy.limiters[0]}"
    raise DoesNotFitError(msg, needed=1, available=0)


def _what_would_fit(resources: Resources, architecture: Architecture, num_stages: int) -> str:
    pipeline = resources.pipeline_shared or 0
    if num_stages > 1 and pipeline:
        buffer = pipeline // (num_stages - 1)
        spare = architecture.max_shared - (resources.shared + resources.static_shared - pipeline)
        if spare >= 0:
            fits = 1 + spare // buffer
            return f"; num_stages {fits} would fit, at {buffer} B a stage after the first"
    return ""


def check_together(needed: int | None, gpu: Gpu, resident: int | None) -> None:
    """Raise DoesNotFitError if *gpu* holds fewer than the *needed*, which wait for each other."""
    if needed is not None and resident is not None and resident < needed:
        msg = (
            f"{gpu.title} holds {count(resident, 'program')} of this kernel at once, and {needed}"
            " wait for each other: all of them must be resident"
        )
        raise DoesNotFitError(msg, needed=needed, available=resident)


WARP_GROUP = 4
"""With warp specialization Triton launches multiples of this many warps (its
AllocateWarpGroups)."""


def check_launched_warps(num_warps: int, architecture: Architecture) -> None:
    """Raise InputError unless Triton may launch a program of *num_warps* warps."""
    if num_warps % WARP_GROUP or not 0 < num_warps <= architecture.max_warps_per_program:
        check_num_warps(num_warps, architecture)


def check_num_ctas(num_ctas: int, gpu: Gpu) -> None:
    """Raise InputError unless a program may have *num_ctas* CTAs on *gpu*."""
    *smaller, largest = _cluster_sizes(gpu)
    if num_ctas != 1 and not smaller:
        refuse(f"num_ctas is {num_ctas}, and {gpu.title} has no clusters; use 1")
    if num_ctas not in {*smaller, largest}:
        sizes = ", ".join(map(str, smaller))
        refuse(f"num_ctas is {num_ctas}; a program has {sizes} or {largest} CTAs")


def plan_launch(
    grid: tuple[int, ...] | None, work: Work, resident_programs: int | None
) -> LaunchPlan | None:
    """Return how a launch over *grid* is spread, or None if its amount of work is not known.

    Without a grid the launch is persistent: it fills the GPU once, with at most one program for
    each piece of its work. *resident_programs* is what the whole GPU holds at once, as in a
    Calculation: whole clusters if a program has several CTAs, None if it is not known. A grid that
    contains a 0 launches nothing. num_programs is also 0 if fewer programs are resident than wait
    for each other.
    """
    num_programs = None if grid is None else math.prod(grid)
    pieces = num_programs if work.pieces is None else work.pieces
    if pieces is None:
        return None
    if grid is None and resident_programs is not None:
        num_programs = min(pieces, resident_programs)
    if resident_programs is not None and (work.together or 0) > resident_programs:
        num_programs = 0
    return LaunchPlan(pieces, num_programs, resident_programs, grid)
