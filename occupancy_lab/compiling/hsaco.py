"""What one kernel of an hsaco, an AMD code object, takes: read from the ELF file itself.

Source: LLVM's "User Guide for AMDGPU Backend" (AMDGPUUsage): Code Object V3 to V6 Metadata, Kernel
Descriptor, and compute_pgm_rsrc1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.compiling import messagepack
from occupancy_lab.compiling.elf import NOTE_SECTION, listed, read_elf, read_notes, unpack
from occupancy_lab.errors import BinaryError

if TYPE_CHECKING:
    from occupancy_lab.compiling.elf import Elf

EM_AMDGPU = 224
NT_AMDGPU_METADATA = 32
COMPUTE_PGM_RSRC1 = 48
"""Where the kernel descriptor holds that register's value."""

GRANULE_8_GFX9 = ("gfx90a", "gfx940", "gfx941", "gfx942", "gfx950", "gfx9-4-generic")
CU_GENERATIONS = range(6, 10)
WGP_GENERATIONS = range(10, 13)


@dataclass(frozen=True, slots=True)
class HsacoResources:
    """What one kernel of an hsaco takes."""

    vgprs: int
    """VGPRs a lane, AGPRs included where the register file is unified."""
    agprs: int | None
    """Accumulation VGPRs a lane; None on an architecture without them."""
    sgprs: int
    """Scalar registers a wave."""
    vgpr_spills: int | None
    sgpr_spills: int | None
    scratch_bytes: int
    """Scratch a lane, bytes; the fixed part of it where `dynamic_stack` holds."""
    dynamic_stack: bool
    """Whether the kernel's stack also grows at run time, by an amount that no binary tells."""
    static_lds: int
    """LDS in the binary, bytes a program."""
    wavefront_size: int
    max_threads: int
    """The most threads of a program that it was compiled for."""
    allocated_vgprs: int | None
    """VGPRs a lane that the kernel descriptor asks for: `vgprs` rounded up, or padded to more.
    None on an architecture newer than the rule for it."""
    arch: str
    """The gfx name: gfx942."""
    wgp_mode: bool | None
    """Whether a program may use a whole WGP; None on an architecture without WGPs."""


def read_hsaco(binary: bytes, kernel_name: str) -> HsacoResources:
    """Read what *kernel_name* of the code object *binary* takes.

    Raises:
        BinaryError: it is no hsaco, is damaged, or holds no such kernel.
    """
    elf = read_elf(binary, EM_AMDGPU, "an hsaco")
    metadata = read_metadata(elf)
    kernel = kernel_metadata(metadata, kernel_name)
    arch = gfx_name(metadata)
    wavefront_size = count(kernel, ".wavefront_size")
    registers = program_registers(elf, kernel_name)
    granule = encoding_granule(arch, wavefront_size)
    return HsacoResources(
        vgprs=count(kernel, ".vgpr_count"),
        agprs=count_or_none(kernel, ".agpr_count"),
        sgprs=count(kernel, ".sgpr_count"),
        vgpr_spills=count_or_none(kernel, ".vgpr_spill_count"),
        sgpr_spills=count_or_none(kernel, ".sgpr_spill_count"),
        scratch_bytes=count(kernel, ".private_segment_fixed_size"),
        dynamic_stack=bool(kernel.get(".uses_dynamic_stack", False)),
        static_lds=count(kernel, ".group_segment_fixed_size"),
        wavefront_size=wavefront_size,
        max_threads=count(kernel, ".max_flat_workgroup_size"),
        allocated_vgprs=None if granule is None else ((registers & 0x3F) + 1) * granule,
        arch=arch,
        wgp_mode=bool(registers >> 29 & 1) if generation(arch) in WGP_GENERATIONS else None,
    )


def read_metadata(elf: Elf) -> dict[object, object]:
    """Return the code object's metadata map."""
    notes = (
        note
        for section in elf.sections
        if section.type == NOTE_SECTION
        for note in read_notes(section.content)
    )
    for note in notes:
        if (note.name, note.type) == (b"AMDGPU", NT_AMDGPU_METADATA):
            metadata = messagepack.decode(note.content)
            if isinstance(metadata, dict):
                return metadata
    message = "The hsaco holds no AMDGPU metadata note."
    raise BinaryError(message)


def kernel_metadata(metadata: dict[object, object], kernel_name: str) -> dict[object, object]:
    """Return the part of *metadata* that is about *kernel_name*."""
    kernels = metadata.get("amdhsa.kernels")
    entries = kernels if isinstance(kernels, list) else []
    maps = [kernel for kernel in entries if isinstance(kernel, dict)]
    for kernel in maps:
        if kernel.get(".name") == kernel_name:
            return kernel
    found = listed([str(kernel.get(".name")) for kernel in maps])
    message = f"The hsaco holds no kernel {kernel_name!r}, only {found}."
    raise BinaryError(message)


def gfx_name(metadata: dict[object, object]) -> str:
    """Return the architecture out of a target such as amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-."""
    found = re.match(r".*?-(gfx[0-9][\w-]*)(:|$)", str(metadata.get("amdhsa.target")))
    if found is None:
        message = "The hsaco's metadata does not say which gfx architecture it is for."
        raise BinaryError(message)
    return found[1]


def generation(arch: str) -> int:
    """Return the major version of a gfx name: 9 of gfx90a, 10 of gfx1030, 9 of gfx9-4-generic."""
    version, _, generic = arch.removeprefix("gfx").partition("-")
    digits = version if generic else version[:-2]
    return int(digits) if digits.isdecimal() else 0


def encoding_granule(arch: str, wavefront_size: int) -> int | None:
    """Return the VGPRs that one step of GRANULATED_WORKITEM_VGPR_COUNT stands for.

    None for an architecture or a wave size that the rule does not name.
    """
    if arch in GRANULE_8_GFX9:
        return 8
    if arch.startswith("gfx125"):
        return 16
    if generation(arch) in WGP_GENERATIONS:
        return {32: 8, 64: 4}.get(wavefront_size)
    return 4 if generation(arch) in CU_GENERATIONS else None


def program_registers(elf: Elf, kernel_name: str) -> int:
    """Return compute_pgm_rsrc1 of the kernel descriptor, the object <kernel>.kd."""
    name = f"{kernel_name}.kd"
    symbol = next((symbol for symbol in elf.all_symbols() if symbol.name == name), None)
    if symbol is None or symbol.section >= len(elf.sections):
        message = f"The hsaco holds no kernel descriptor {name!r}."
        raise BinaryError(message)
    section = elf.sections[symbol.section]
    offset = symbol.value - section.address + COMPUTE_PGM_RSRC1
    registers: int = unpack("<I", section.content, offset)[0]
    return registers


def count(kernel: dict[object, object], key: str) -> int:
    """Return the number that the metadata holds under *key*."""
    number = count_or_none(kernel, key)
    if number is None:
        message = f"The hsaco's metadata has no {key!r}."
        raise BinaryError(message)
    return number


def count_or_none(kernel: dict[object, object], key: str) -> int | None:
    """Return the number under *key*, None when it is not there."""
    number = kernel.get(key)
    if number is None:
        return None
    if type(number) is not int or number < 0:
        message = f"The hsaco's metadata is damaged: {key!r} is {number!r}."
        raise BinaryError(message)
    return number
