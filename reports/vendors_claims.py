"""What ROCm's runtime and LLVM report for an AMD kernel: the exact formula less some terms.

Sources: `ihipOccupancyMaxActiveBlocksPerMultiprocessor` in ROCm/clr@f9f995c (2024), with the table
of register files in its rocdevice.cpp, and in ROCm/rocm-systems@0136004 (2026), whose pull requests
10618 (SGPRs) and 9571 (LDS of a WGP) changed it; comgr's table in ROCm/llvm-project@72c8464 (2025);
AMDGPUBaseInfo.cpp and AMDGPUAsmPrinter.cpp (`; Occupancy:`) of LLVM as Triton 3.6 to 3.8 have it.
None of it could be run: no AMD GPU was at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vendors_formula import HEADERS, Counts, Verdict

from occupancy_lab.explaining.limits import TERM_WORDS, term_reasons
from occupancy_lab.gpus import HipArchitecture
from occupancy_lab.occupancy.tutorial import HIP_TERMS, Term, missing_terms, programs_without
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.text.document import Section, Table
from occupancy_lab.text.words import count
from occupancy_lab.values import TutorialOccupancy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vendors import Vendors

    from occupancy_lab.occupancy.tutorial import Rocm
    from occupancy_lab.values import Resources

    Usage = tuple[HipArchitecture, Resources]
    Hide = Callable[[Any, Resources, Rocm], Usage]


CU_LDS = 65536
"""LDS of one CU of RDNA, bytes; a WGP has two CUs."""
FALLBACK_FILE = {"vgprs_per_simd": 256, "vgpr_granule": 4}
"""The register file that the runtime of 2024 assumes for a target that is not in its table."""
LLVMS_WAVES = {"gfx908": 10}
"""Waves per SIMD by LLVM where the runtime stops at fewer."""
LLVMS_LAST_STEP = range(97, 101)
"""SGPR counts that LLVM's table treats as 96."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """Software that reports how many programs fit."""

    name: str
    terms: tuple[Term, ...]
    """The terms of the exact formula that it leaves out or mistakes."""


def claim(
    claimant: Claimant, resources: Resources, architecture: HipArchitecture
) -> TutorialOccupancy:
    """Return what *claimant* reports for a kernel that takes *resources* of an AMD GPU."""
    programs = programs_without(claimant.terms, resources, architecture)
    missing = missing_terms(claimant.terms, resources, architecture)
    return TutorialOccupancy(programs, (), missing)


def _files(found: Mapping[str, Mapping[str, Any]]) -> Hide:
    """Use the register files in *found*, by the beginning of the target's name."""

    def hide(mp: HipArchitecture, usage: Resources, _rocm: Rocm) -> Usage:
        for name, changes in found.items():
            if mp.target_name.startswith(name):
                return replace(mp, **changes), usage
        return mp, usage

    return hide


def _one_cu(*but: str) -> Hide:
    """Use the LDS of one CU as that of a WGP, except on targets whose names begin with *but*."""

    def hide(mp: HipArchitecture, usage: Resources, _rocm: Rocm) -> Usage:
        if mp.multiprocessor == "WGP" and not mp.target_name.startswith(but):
            return replace(mp, shared_per_multiprocessor=CU_LDS), usage
        return mp, usage

    return hide


def _hide_trap_handler(mp: HipArchitecture, usage: Resources, _rocm: Rocm) -> Usage:
    return replace(mp, sgpr_reserve=None if mp.sgpr_reserve is None else 0), usage


def _hide_steps(mp: HipArchitecture, usage: Resources, _rocm: Rocm) -> Usage:
    """Use LLVM's table (80, 88 and 100 SGPRs for 10, 9 and 8 waves) as the hardware's steps."""
    if mp.sgprs_per_simd is None or usage.sgprs is None:
        return mp, usage
    sgprs = LLVMS_LAST_STEP.start - 1 if usage.sgprs in LLVMS_LAST_STEP else usage.sgprs
    return replace(mp, sgpr_granule=8, sgpr_reserve=0), usage.replace(sgprs=sgprs)


def _hide_lds(mp: HipArchitecture, usage: Resources, _rocm: Rocm) -> Usage:
    return mp, usage.replace(shared=0, static_shared=0)


def _take_llvms_waves(mp: HipArchitecture, usage: Resources, _rocm: Rocm) -> Usage:
    waves = LLVMS_WAVES.get(mp.target_name, mp.max_waves_per_simd)
    return replace(mp, max_waves_per_simd=waves), usage


_KNOWN = {term.name: term for term in HIP_TERMS}
_RUNTIMES = tuple(_KNOWN[name] for name in ("LDS granule", "program slots", "padded registers"))
"""What no runtime has seen yet."""

HIP_2024 = Claimant(
    "HIP's runtime of 2024",
    (
        Term("register table", _files({"gfx95": FALLBACK_FILE, "gfx12": FALLBACK_FILE})),
        Term("trap handler", _hide_trap_handler),
        Term("CUs of a WGP", _one_cu()),
        *_RUNTIMES,
    ),
)
HIP_2025 = Claimant(
    "HIP's runtime of 2025",
    (
        Term("register table", _files({"gfx1030": {"vgpr_granule": 8}})),
        Term("trap handler", _hide_trap_handler),
        Term("CUs of a WGP", _one_cu()),
        *_RUNTIMES,
    ),
)
HIP_2026 = Claimant(
    "HIP's runtime since August 2026",
    (Term("CUs of a WGP", _one_cu("gfx11")), *_RUNTIMES),
)
LLVM = Claimant(
    "LLVM",
    (
        Term("wave slots of LLVM", _take_llvms_waves),
        Term("SGPR steps", _hide_steps),
        Term("LDS", _hide_lds),
        _KNOWN["program slots"],
    ),
)
CLAIMANTS = (HIP_2024, HIP_2025, HIP_2026, LLVM)
"""The claimants for AMD GPUs; LLVM's waves per SIMD are converted to whole programs."""
CLAIM_WORDS: Mapping[str, str] = {
    **TERM_WORDS,
    "register table": "its table has not the register file of {target_name}",
    "trap handler": "the trap handler takes {sgpr_reserve} SGPRs of each wave",
    "SGPR steps": (
        "SGPRs come in steps of {sgpr_granule}, and the trap handler takes {sgpr_reserve} of each"
        " wave"
    ),
    "CUs of a WGP": "a WGP has the LDS of two CUs",
    "LDS": "it does not see the LDS, which Triton asks for at the launch",
    "wave slots of LLVM": "HIP keeps {max_waves_per_simd} waves a SIMD",
}
"""Why each term that a claimant leaves out matters, with the architecture's own numbers."""


@dataclass(frozen=True, slots=True)
class Claims(Counts):
    """What one claimant reports for the kernels of one GPU."""

    claimant: Claimant


def make_claims(vendors: Vendors) -> tuple[Claims, ...]:
    """Return what each claimant reports for the kernels of each AMD GPU."""
    return tuple(
        Claims(
            gpu,
            tuple(
                Verdict(record, claim(claimant, record.resources, gpu.architecture))
                for record in vendors.of(gpu)
            ),
            claimant,
        )
        for gpu in vendors.gpus
        if isinstance(gpu.architecture, HipArchitecture)
        for claimant in CLAIMANTS
    )


INTRODUCTION = (
    "The same kernels by what else speaks of occupancy on AMD GPUs:"
    " `hipOccupancyMaxActiveBlocksPerMultiprocessor`, which ROCm's runtime works out from tables of"
    " its own that changed with the years, and the `; Occupancy:` that LLVM writes into the"
    " assembly, its waves a SIMD turned into whole programs. Both were worked out from their"
    " sources; no AMD GPU was asked."
)


def the_claims(claims: Sequence[Claims]) -> Chapter:
    """Count the kernels that runtime and compiler get wrong, and describe one of each kind."""
    table = Table(
        ("", "GPU", *HEADERS),
        tuple(one.row(one.claimant.name, one.gpu.title) for one in claims),
        prose=True,
    )
    cases = tuple(_case(one, one.worst) for one in claims if one.worst is not None)
    return Chapter(
        "ROCm's runtime and LLVM", (INTRODUCTION, table, Section("Worst of these", (), cases))
    )


def _case(claims: Claims, case: Verdict) -> str:
    mp = claims.gpu.architecture
    reasons = term_reasons(case.said.missing_terms, mp, words=CLAIM_WORDS)
    return (
        f"**{claims.claimant.name}, {claims.gpu.title}**: {case.kernel}. It says"
        f" {count(case.said.programs_per_multiprocessor, 'program')} per {mp.multiprocessor_word}"
        f" where {case.truth} fit: {reasons}."
    )
