"""The formula of Triton's fused softmax tutorial, as published, including its mistakes.

Source: triton-lang/triton, python/tutorials/02-fused-softmax.py. It is here for comparison with the
exact formulas: it rounds nothing, ignores slots, and divides by a shared memory that may be 0.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from occupancy_lab.gpus import Architecture, CudaArchitecture, HipArchitecture
from occupancy_lab.occupancy.exact import exact_rules
from occupancy_lab.occupancy.rule import UNLIMITED, Rule, Usage, Where, limits, programs
from occupancy_lab.values import Resources, TutorialOccupancy

Case = tuple[Any, Resources]

CDNA = ("gfx908", "gfx90a", "gfx940", "gfx941", "gfx942")
"""The tutorial's own list, in which gfx950 is missing."""

CDNA_FACTOR = 2
"""The tutorial doubles the register file on CDNA (triton PR 4243, when ROCm reported half)."""


class Rocm(enum.Enum):
    """The version of ROCm, by what it reports as `max_num_regs`, with which the formula begins."""

    CURRENT = "current"
    """Since 2025 the multiprocessor's whole VGPR file: 131072 on MI300X."""
    OLD = "6.3"
    """Up to ROCm 6.3 `HipArchitecture.old_registers`, the same on every GPU."""


def known_to(mp: Architecture) -> tuple[Rocm, ...]:
    """Return the ROCms that support *mp*; none for NVIDIA's GPUs."""
    if isinstance(mp, CudaArchitecture):
        return ()
    return (Rocm.CURRENT,) if mp.old_registers is None else (Rocm.CURRENT, Rocm.OLD)


def used_registers(mp: HipArchitecture, rocm: Rocm = Rocm.CURRENT) -> int:
    """Return the tutorial's NUM_GPRS: ROCm's `max_num_regs`, doubled on CDNA."""
    reported = mp.registers if rocm is Rocm.CURRENT else mp.old_registers
    if reported is None:
        msg = f"ROCm {rocm.value} does not know {mp.target_name}"
        raise ValueError(msg)
    return reported * CDNA_FACTOR if mp.target_name in CDNA else reported


def reported_waves(mp: HipArchitecture) -> int:
    """Return `max_threads_per_sm // warpSize` as ROCm reports them.

    gfx908 reports 2560 threads per CU, 40 waves, although HIP's own occupancy call stops at 32.
    """
    return 40 if mp.target_name == "gfx908" else mp.max_warps


def _cuda_registers(usage: Usage, sm: CudaArchitecture, where: Where) -> Mapping[str, Any]:
    per_program = usage.n_regs * sm.warp_size * usage.num_warps
    programs = sm.registers // where(per_program == 0, 1, per_program)
    return {"per_program": per_program, "programs": where(per_program == 0, 0, programs)}


def _shared(
    usage: Usage, mp: CudaArchitecture | HipArchitecture, where: Where
) -> Mapping[str, Any]:
    programs = mp.max_shared // where(usage.shared == 0, 1, usage.shared)
    return {"programs": where(usage.shared == 0, UNLIMITED, programs)}


def _hip_registers(rocm: Rocm) -> Rule:
    def work(usage: Usage, mp: HipArchitecture, where: Where) -> Mapping[str, Any]:
        num_gprs = used_registers(mp, rocm)
        waves = num_gprs // mp.warp_size // where(usage.n_regs == 0, 1, usage.n_regs)
        programs = where(usage.n_regs == 0, 0, waves // usage.num_warps)
        return {"num_gprs": num_gprs, "waves": waves, "programs": programs}

    return Rule(
        "registers",
        work,
        (
            "{num_gprs} // {warp_size} // {n_regs} = {waves:wave}",
            "{waves:wave} // {num_warps} = {programs:program}",
        ),
    )


def _hip_warps(usage: Usage, mp: HipArchitecture, _where: Where) -> Mapping[str, Any]:
    waves = reported_waves(mp)
    return {"waves": waves, "programs": waves // usage.num_warps}


_SHARED = Rule("shared", _shared, ("{max_shared} // {shared} = {programs:program}",))

CUDA_RULES = (
    Rule(
        "registers",
        _cuda_registers,
        ("{registers} // ({n_regs} x {warp_size} x {num_warps}) = {programs:program}",),
    ),
    _SHARED,
)


def tutorial_rules(architecture: Architecture, rocm: Rocm = Rocm.CURRENT) -> tuple[Rule, ...]:
    """Return the tutorial's rules for *architecture*; *rocm* matters only for AMD GPUs."""
    if isinstance(architecture, CudaArchitecture):
        return CUDA_RULES
    warps = Rule("warps", _hip_warps, ("{waves:wave} // {num_warps} = {programs:program}",))
    return (_hip_registers(rocm), warps, _SHARED)


@dataclass(frozen=True, slots=True)
class Term:
    """A term that the exact formula has and the tutorial's lacks."""

    name: str
    hide: Callable[[Any, Resources, Rocm], Case]
    """Returns the architecture and the resources changed so that the exact rules ignore the
    term."""


def _hide_in_architecture(**changes: int) -> Callable[[Any, Resources, Rocm], Case]:
    return lambda architecture, usage, _rocm: (replace(architecture, **changes), usage)


def _hide_in_usage(**changes: int | None) -> Callable[[Any, Resources, Rocm], Case]:
    return lambda architecture, usage, _rocm: (architecture, usage.replace(**changes))


def _hide_reserve(sm: Any, usage: Resources, _rocm: Rocm) -> Case:
    return replace(sm, reserved_shared=0, shared_per_multiprocessor=sm.max_shared), usage


def _hide_lds_pool(mp: HipArchitecture, usage: Resources, _rocm: Rocm) -> Case:
    return replace(mp, shared_per_multiprocessor=mp.max_shared), usage


def _hide_simds(mp: HipArchitecture, usage: Resources, _rocm: Rocm) -> Case:
    pooled = replace(
        mp,
        simds=1,
        vgprs_per_simd=mp.vgprs_per_simd * mp.simds,
        max_waves_per_simd=mp.max_waves_per_simd * mp.simds,
        sgprs_per_simd=None if mp.sgprs_per_simd is None else mp.sgprs_per_simd * mp.simds,
    )
    return pooled, usage


def _hide_file_size(mp: HipArchitecture, usage: Resources, rocm: Rocm) -> Case:
    vgprs = used_registers(mp, rocm) // mp.warp_size // mp.simds
    return replace(mp, vgprs_per_simd=vgprs), usage


def _hide_wave_slots(mp: HipArchitecture, usage: Resources, _rocm: Rocm) -> Case:
    return replace(mp, max_waves_per_simd=reported_waves(mp) // mp.simds), usage


CUDA_TERMS = (
    Term("warp slots", _hide_in_architecture(max_warps=UNLIMITED)),
    Term("program slots", _hide_in_architecture(max_programs=UNLIMITED)),
    Term("driver reserve", _hide_reserve),
    Term("register granule", _hide_in_architecture(register_unit=1)),
    Term("register quarters", _hide_in_architecture(register_partitions=1)),
    Term("shared granule", _hide_in_architecture(shared_unit=1)),
    Term("static shared", _hide_in_usage(static_shared=0)),
    Term("named barriers", _hide_in_usage(barriers=None)),
    Term("tensor memory", _hide_in_usage(tensor_memory=None)),
    Term(
        "launch limits",
        _hide_in_architecture(
            max_threads_per_program=UNLIMITED, max_registers_per_thread=UNLIMITED
        ),
    ),
)
"""The most common cause on real kernels comes first: if several explain a case, the first is
shown."""

HIP_TERMS = (
    Term("register file", _hide_file_size),
    Term("wave slots", _hide_wave_slots),
    Term("register granule", _hide_in_architecture(vgpr_granule=1)),
    Term("registers per SIMD", _hide_simds),
    Term("padded registers", _hide_in_usage(allocated_vgprs=None)),
    Term("SGPRs", _hide_in_usage(sgprs=None)),
    Term("LDS pool", _hide_lds_pool),
    Term("LDS granule", _hide_in_architecture(shared_unit=1)),
    Term("program slots", _hide_in_architecture(max_multiwave_programs=UNLIMITED)),
    Term("static shared", _hide_in_usage(static_shared=0)),
    Term(
        "launch limits",
        _hide_in_architecture(max_threads_per_program=UNLIMITED, max_vgprs=UNLIMITED),
    ),
)


def terms_of(architecture: Architecture) -> tuple[Term, ...]:
    """Return the terms that the tutorial's formula lacks on this vendor's GPUs."""
    return CUDA_TERMS if isinstance(architecture, CudaArchitecture) else HIP_TERMS


def programs_without(
    terms: tuple[Term, ...],
    resources: Resources,
    architecture: Architecture,
    rocm: Rocm = Rocm.CURRENT,
) -> int:
    """Return the exact formula's programs per multiprocessor without *terms*."""
    case: Case = (architecture, resources)
    for term in terms:
        case = term.hide(*case, rocm)
    blind_architecture, usage = case
    return int(min(programs(exact_rules(blind_architecture), usage, blind_architecture).values()))


def missing_terms(
    terms: tuple[Term, ...],
    resources: Resources,
    architecture: Architecture,
    rocm: Rocm = Rocm.CURRENT,
) -> tuple[str, ...]:
    """Return the fewest of *terms* that must be added for the exact number of programs."""
    truth = programs_without((), resources, architecture)
    for count in range(len(terms)):
        for restored in itertools.combinations(terms, count):
            hidden = tuple(term for term in terms if term not in restored)
            if programs_without(hidden, resources, architecture, rocm) == truth:
                return tuple(term.name for term in restored)
    return tuple(term.name for term in terms)


def divides_by_zero(usage: Usage) -> Any:
    """Return whether the tutorial's formula raises ZeroDivisionError, as a bool or an array."""
    return (usage.shared == 0) | (usage.n_regs == 0)


def tutorial_occupancy(
    resources: Resources, architecture: Architecture, rocm: Rocm = Rocm.CURRENT
) -> TutorialOccupancy:
    """Return the result of the tutorial's formula, and the missing terms if it is wrong.

    *rocm* chooses what an AMD GPU's runtime reports; NVIDIA GPUs ignore it.
    """
    found = limits(tutorial_rules(architecture, rocm), resources, architecture)
    if divides_by_zero(resources):
        return TutorialOccupancy(None, found, ())
    least = min(limit.programs for limit in found if limit.programs is not None)
    missing = missing_terms(terms_of(architecture), resources, architecture, rocm)
    return TutorialOccupancy(least, found, missing)
