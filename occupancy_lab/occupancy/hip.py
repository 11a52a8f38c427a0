"""Programs per multiprocessor on AMD GPUs: per CU on CDNA and gfx1250, per WGP (two CUs) on RDNA.

Sources: `ihipOccupancyMaxActiveBlocksPerMultiprocessor` in ROCm's clr (hip_platform.cpp) for the
order of roundings, LLVM's AMDGPUBaseInfo.cpp for register files, granules and workgroup slots,
Mesa's ac_gpu_info.c for RDNA's LDS granule, ROCm/rocm-systems#10618 for the 16 SGPRs that the trap
handler takes from each wave. If these disagree, the one that hardware reports support is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from occupancy_lab.gpus import HipArchitecture
from occupancy_lab.occupancy.rule import UNLIMITED, Rule, Usage, Where, round_up, warp_slots


def needed_vgprs(usage: Usage, mp: HipArchitecture, where: Where) -> Any:
    """Return the VGPRs per lane that count: n_regs, or those of a padded kernel descriptor."""
    if usage.allocated_vgprs is None:
        return usage.n_regs
    padded = usage.allocated_vgprs > round_up(usage.n_regs, mp.vgpr_granule)
    return where(padded, usage.allocated_vgprs, usage.n_regs)


def _sum_of_files(usage: Usage, mp: HipArchitecture) -> str:
    """Return in words the ArchVGPRs and AGPRs whose sum is n_regs; "" without AGPRs.

    In a unified file n_regs counts the ArchVGPRs rounded up to 4 (LLVM's AMDGPUUsage,
    ACCUM_OFFSET). In separate files (gfx908) it is the larger of both.
    """
    if not isinstance(usage.agprs, int) or not usage.agprs or mp.agpr_file != "unified":
        return ""
    return f"{usage.n_regs - usage.agprs} ArchVGPRs + {usage.agprs} AGPRs = "


def _registers(usage: Usage, mp: HipArchitecture, where: Where) -> Mapping[str, Any]:
    vgprs = needed_vgprs(usage, mp, where)
    vgprs_per_wave = round_up(vgprs, mp.vgpr_granule)
    waves_per_simd = mp.vgprs_per_simd // where(vgprs_per_wave == 0, 1, vgprs_per_wave)
    waves = mp.simds * waves_per_simd
    programs = where(vgprs > mp.max_vgprs, 0, waves // usage.num_warps)
    return {
        "sum_of_files": _sum_of_files(usage, mp),
        "vgprs": vgprs,
        "vgprs_per_wave": vgprs_per_wave,
        "waves_per_simd": waves_per_simd,
        "waves": waves,
        "programs": where(vgprs == 0, UNLIMITED, programs),
    }


def _sgprs(usage: Usage, mp: HipArchitecture, where: Where) -> Mapping[str, Any] | None:
    if usage.sgprs is None or mp.sgprs_per_simd is None:
        return None
    sgprs_per_wave = round_up(usage.sgprs, mp.sgpr_granule or 1) + (mp.sgpr_reserve or 0)
    waves_per_simd = mp.sgprs_per_simd // sgprs_per_wave
    waves = mp.simds * waves_per_simd
    return {
        "sgprs_per_wave": sgprs_per_wave,
        "waves_per_simd": waves_per_simd,
        "waves": waves,
        "programs": where(usage.sgprs == 0, UNLIMITED, waves // usage.num_warps),
    }


def _shared(usage: Usage, mp: HipArchitecture, where: Where) -> Mapping[str, Any]:
    used = usage.shared + usage.static_shared
    allocated = round_up(used, mp.shared_unit)
    programs = mp.shared_per_multiprocessor // where(allocated == 0, 1, allocated)
    programs = where(used > mp.max_shared, 0, programs)
    return {
        "user_shared": used,
        "allocated": allocated,
        "programs": where(used == 0, UNLIMITED, programs),
    }


def _programs(usage: Usage, mp: HipArchitecture, where: Where) -> Mapping[str, Any]:
    return {"programs": where(usage.num_warps > 1, mp.max_multiwave_programs, UNLIMITED)}


RULES = (
    Rule(
        "warps",
        warp_slots,
        (
            "{simds:SIMD} x {max_waves_per_simd:wave} = {max_warps:wave} per {multiprocessor}",
            "{max_warps:wave} / {num_warps:wave} per program = {programs:program}",
        ),
    ),
    Rule(
        "registers",
        _registers,
        (
            "{sum_of_files}{vgprs:VGPR} a lane, rounded up to {vgpr_granule} = {vgprs_per_wave}",
            (
                "{vgprs_per_simd} VGPRs per SIMD / {vgprs_per_wave} = {waves_per_simd:wave};"
                " x {simds:SIMD} = {waves} per {multiprocessor}"
            ),
            "{waves:wave} / {num_warps:wave} per program = {programs:program}",
        ),
    ),
    Rule(
        "sgprs",
        _sgprs,
        (
            (
                "{sgprs:SGPR} per wave, rounded up to {sgpr_granule}, + {sgpr_reserve} for the"
                " trap handler = {sgprs_per_wave}"
            ),
            (
                "{sgprs_per_simd} SGPRs per SIMD / {sgprs_per_wave} = {waves_per_simd:wave};"
                " x {simds:SIMD} = {waves} per {multiprocessor}"
            ),
            "{waves:wave} / {num_warps:wave} per program = {programs:program}",
        ),
    ),
    Rule(
        "shared",
        _shared,
        (
            "{user_shared} B of LDS, rounded up to {shared_unit} = {allocated} B per program",
            (
                "{shared_per_multiprocessor} B per {multiprocessor} / {allocated} B"
                " = {programs:program}"
            ),
        ),
    ),
    Rule(
        "programs",
        _programs,
        ("a {multiprocessor} has {max_multiwave_programs:slot} for programs of several waves",),
    ),
)
