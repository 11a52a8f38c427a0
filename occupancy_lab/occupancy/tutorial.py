"""The formula of Triton's fused softmax tutorial, as published, mistakes included.

Source: triton-lang/triton, python/tutorials/02-fused-softmax.py. It is here to be compared with
the exact formulas: it rounds nothing, knows no slots and divides by a shared memory that may be 0.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from occupancy_lab.gpus import CudaArchitecture
from occupancy_lab.occupancy.rule import UNLIMITED, Rule, Usage, Where

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.gpus import Architecture, HipArchitecture

CDNA = ("gfx908", "gfx90a", "gfx940", "gfx941", "gfx942")
"""The tutorial's own list; gfx950 is missing from it."""

CDNA_FACTOR = 2
"""The tutorial doubles the register file on CDNA (triton PR 4243, when ROCm reported half)."""


class Rocm(enum.Enum):
    """What ROCm reports as `max_num_regs`, the number the tutorial's formula starts from."""

    CURRENT = "current"
    """Since 2025 the multiprocessor's whole VGPR file: 131072 on MI300X."""
    OLD = "6.3"
    """Up to ROCm 6.3 65536 on every GPU (addressable VGPRs x SIMDs x 64)."""


OLD_REGISTERS = 65536
"""What ROCm up to 6.3 reported of every GPU."""
_UNKNOWN_TO_OLD = ("gfx95", "gfx12")
"""How the targets begin that no ROCm up to 6.3 knew.

Sources: the register files in rocdevice.cpp of ROCm/clr@f9f995c (2024), which have neither; the
release notes of ROCm 7.0's libraries, such as hipFFT 1.0.20, add gfx950.
"""


def known_to(mp: Architecture) -> tuple[Rocm, ...]:
    """Return the ROCms that tell the tutorial's formula of *mp*; none of NVIDIA's GPUs."""
    if isinstance(mp, CudaArchitecture):
        return ()
    old = not mp.target_name.startswith(_UNKNOWN_TO_OLD)
    return (Rocm.CURRENT, Rocm.OLD) if old else (Rocm.CURRENT,)


def used_registers(mp: HipArchitecture, rocm: Rocm = Rocm.CURRENT) -> int:
    """Return the tutorial's NUM_GPRS: `max_num_regs` as ROCm reports it, doubled on CDNA."""
    reported = OLD_REGISTERS if rocm is Rocm.OLD else mp.registers
    return reported * CDNA_FACTOR if mp.target_name in CDNA else reported


def reported_waves(mp: HipArchitecture) -> int:
    """Return `max_threads_per_sm // warpSize` as ROCm reports them.

    gfx908 reports 2560 threads a CU, 40 waves, though HIP's own occupancy call stops at 32.
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
            "{num_gprs} // {warp_size} // {n_regs} = {waves} waves",
            "{waves} waves // {num_warps} = {programs} programs",
        ),
    )


def _hip_warps(usage: Usage, mp: HipArchitecture, _where: Where) -> Mapping[str, Any]:
    waves = reported_waves(mp)
    return {"waves": waves, "programs": waves // usage.num_warps}


_SHARED = Rule("shared", _shared, ("{max_shared} // {shared} = {programs} programs",))

CUDA_RULES = (
    Rule(
        "registers",
        _cuda_registers,
        ("{registers} // ({n_regs} x {warp_size} x {num_warps}) = {programs} programs",),
    ),
    _SHARED,
)


def tutorial_rules(architecture: Architecture, rocm: Rocm = Rocm.CURRENT) -> tuple[Rule, ...]:
    """Return the tutorial's rules for *architecture*; *rocm* matters to AMD GPUs alone."""
    if isinstance(architecture, CudaArchitecture):
        return CUDA_RULES
    warps = Rule("warps", _hip_warps, ("{waves} waves // {num_warps} = {programs} programs",))
    return (_hip_registers(rocm), warps, _SHARED)
