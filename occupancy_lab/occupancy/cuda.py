"""Programs per SM on NVIDIA GPUs, exactly as NVIDIA's driver counts them.

Sources: `cuda_occupancy.h` of the CUDA toolkit (13.0), with the SM's whole shared memory as
carve-out, which is the driver's default and which Triton does not change. The header does not cover
tensor memory: NVIDIA's PTX ISA, tcgen05.alloc, waits while no columns are free. A program that
waits there is resident but does nothing, so this limit counts running programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from occupancy_lab.gpus import CudaArchitecture
from occupancy_lab.occupancy.rule import UNLIMITED, Rule, Usage, Where, round_up, warp_slots


def _registers(usage: Usage, sm: CudaArchitecture, where: Where) -> Mapping[str, Any]:
    registers_per_warp = round_up(usage.n_regs * sm.warp_size, sm.register_unit)
    partition = sm.registers // sm.register_partitions
    warps_per_partition = partition // where(registers_per_warp == 0, 1, registers_per_warp)
    warps = sm.register_partitions * warps_per_partition
    programs = where(usage.n_regs > sm.max_registers_per_thread, 0, warps // usage.num_warps)
    return {
        "registers_per_warp": registers_per_warp,
        "partition": partition,
        "warps_per_partition": warps_per_partition,
        "warps": warps,
        "programs": where(usage.n_regs == 0, UNLIMITED, programs),
    }


def _shared(usage: Usage, sm: CudaArchitecture, where: Where) -> Mapping[str, Any]:
    used = usage.shared + usage.static_shared + sm.reserved_shared
    allocated = round_up(used, sm.shared_unit)
    fits = allocated <= sm.max_shared + sm.reserved_shared
    programs = sm.shared_per_multiprocessor // where(allocated == 0, 1, allocated)
    return {
        "user_shared": usage.shared + usage.static_shared,
        "allocated": allocated,
        "programs": where(allocated == 0, UNLIMITED, where(fits, programs, 0)),
    }


def _programs(_usage: Usage, sm: CudaArchitecture, _where: Where) -> Mapping[str, Any]:
    return {"programs": sm.max_programs}


def _barriers(usage: Usage, sm: CudaArchitecture, where: Where) -> Mapping[str, Any] | None:
    if usage.barriers is None or sm.max_barriers is None:
        return None
    programs = sm.max_barriers // where(usage.barriers == 0, 1, usage.barriers)
    return {"programs": where(usage.barriers == 0, UNLIMITED, programs)}


def _tensor_memory(usage: Usage, sm: CudaArchitecture, where: Where) -> Mapping[str, Any] | None:
    columns, size, unit = usage.tensor_memory, sm.tensor_memory, sm.tensor_memory_unit
    if columns is None or size is None or unit is None:
        return None
    allocated: Any = size
    while (size := size // 2) >= unit:
        allocated = where(columns <= size, size, allocated)
    programs = where(columns > sm.tensor_memory, 0, sm.tensor_memory // allocated)
    return {
        "columns_per_sm": sm.tensor_memory,
        "allocated": allocated,
        "programs": where(columns == 0, UNLIMITED, programs),
    }


RULES = (
    Rule(
        "warps",
        warp_slots,
        ("{max_warps:warp} per SM / {num_warps:warp} per program = {programs:program}",),
    ),
    Rule(
        "registers",
        _registers,
        (
            (
                "{n_regs:register} x {warp_size} threads, rounded up to {register_unit}"
                " = {registers_per_warp} per warp"
            ),
            (
                "{registers:register} in {register_partitions} quarters: {partition} / "
                "{registers_per_warp} = {warps_per_partition:warp} per quarter, {warps} per SM"
            ),
            "{warps:warp} / {num_warps:warp} per program = {programs:program}",
        ),
    ),
    Rule(
        "shared",
        _shared,
        (
            (
                "{user_shared} B + {reserved_shared} B for the driver, rounded up to {shared_unit}"
                " = {allocated} B per program"
            ),
            "{shared_per_multiprocessor} B per SM / {allocated} B = {programs:program}",
        ),
    ),
    Rule("programs", _programs, ("an SM has {max_programs:slot} for programs",)),
    Rule(
        "barriers",
        _barriers,
        ("{max_barriers} named barriers per SM / {barriers} per program = {programs:program}",),
    ),
    Rule(
        "tensor_memory",
        _tensor_memory,
        (
            (
                "{tensor_memory:column}, rounded up to a power of two from {tensor_memory_unit}"
                " = {allocated} per program"
            ),
            "{columns_per_sm:column} per SM / {allocated} = {programs:running program}",
        ),
    ),
)
