"""What one kernel of a cubin, an NVIDIA binary, takes: read from the ELF file itself.

NVIDIA does not document the attributes; their numbers are the EIATTR names that `cuobjdump -elf`
prints, and what is read here agrees with `cuobjdump --dump-resource-usage` in the tests.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.elf import cut, read_elf, unpack
from occupancy_lab.compiling.sass import read_sass
from occupancy_lab.errors import BinaryError, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.compiling.elf import Elf, Section, Symbol

EM_CUDA = 190
SIZED = 4
"""The form of an attribute whose content follows it; other forms hold it in the record."""
MIN_STACK_SIZE = 0x12
REGCOUNT = 0x2F
NUM_BARRIERS = 0x4C

RESERVED_SHARED = 1024
"""Bytes at the front of shared memory that the driver keeps for itself from sm_80 on; ptxas lays
them out in the binary from sm_90 on (the symbol .nv.reservedSmem)."""
RESERVE_IN_BINARY_FROM = 90

SUBROUTINE = "$__internal_"
"""How ptxas begins the names of its own subroutines, such as the slow path of a division."""


@dataclass(frozen=True, slots=True)
class CubinCode:
    """The instructions of one kernel."""

    whole: memoryview
    own: memoryview
    """Without the compiler's subroutines, which follow them."""
    arch: int
    """The compute capability without its dot: 90."""


def read_cubin(binary: bytes, kernel_name: str) -> dict[str, Any]:
    """Return what *kernel_name* of the cubin *binary* takes and issues, as fields of Resources.

    Raises:
        BinaryError: it is no cubin, is damaged, or holds no such kernel.
    """
    sizes, code = read_sizes(binary, kernel_name)
    return {**sizes, "binary": digest(code.whole), **read_sass(code.own, code.arch)}


def read_sizes(binary: bytes, kernel_name: str) -> tuple[dict[str, Any], CubinCode]:
    """Return how much *kernel_name* of the cubin *binary* takes, and its instructions.

    Raises BinaryError as `read_cubin` does, of which this is the quick part.
    """
    elf = read_elf(binary, EM_CUDA, "a cubin")
    arch = compute_capability(elf)
    text = kernel_text(elf, kernel_name)
    table = elf.section(".symtab")
    symbols = elf.symbols(table) if table else ()
    sizes = sizes_of_functions(elf, symbols, kernel_name)
    if REGCOUNT not in sizes:
        message = f"The cubin does not say how many registers {kernel_name!r} takes."
        raise BinaryError(message)
    own = dict(attributes(elf.section(f".nv.info.{kernel_name}")))
    barriers = text.flags >> 20 & 0x7F
    if NUM_BARRIERS in own:
        (barriers,) = unpack("<B", own[NUM_BARRIERS], 0)
    found = {
        "n_regs": sizes[REGCOUNT],
        "local_bytes": sizes.get(MIN_STACK_SIZE),
        "static_shared": static_shared(elf, kernel_name, arch),
        "barriers": barriers,
    }
    return found, CubinCode(text.content, own_code(elf, symbols, text), arch)


def digest(code: bytes | memoryview) -> int:
    """Return a number of 48 bits for *code*: two that are equal are the same instructions."""
    return int.from_bytes(hashlib.sha256(code).digest()[:6])


def compute_capability(elf: Elf) -> int:
    """Return the architecture that a cubin is for; its place moved with ELF ABI version 8."""
    last_with_low_byte = 7
    return elf.flags & 0xFF if elf.abi_version <= last_with_low_byte else elf.flags >> 8 & 0xFF


def kernel_text(elf: Elf, kernel_name: str) -> Section:
    """Return the section with the instructions of *kernel_name*."""
    text = elf.section(f".text.{kernel_name}")
    if text is None:
        prefix = ".text."
        found = [s.name.removeprefix(prefix) for s in elf.sections if s.name.startswith(prefix)]
        message = f"The cubin holds no kernel {kernel_name!r}, only {listed(found)}."
        raise BinaryError(message)
    return text


def own_code(elf: Elf, symbols: Sequence[Symbol], text: Section) -> memoryview:
    """Return the instructions in *text* without the compiler's subroutines, which follow them."""
    starts = (
        symbol.value
        for symbol in symbols
        if symbol.name.startswith(SUBROUTINE)
        and symbol.section < len(elf.sections)
        and elf.sections[symbol.section] is text
    )
    return text.content[: min(starts, default=len(text.content))]


def sizes_of_functions(elf: Elf, symbols: Sequence[Symbol], kernel_name: str) -> dict[int, int]:
    """Return the attributes of the whole cubin that are a number for one function, this one's."""
    sizes = {}
    for attribute, content in attributes(elf.section(".nv.info")):
        if attribute in (REGCOUNT, MIN_STACK_SIZE):
            index, size = unpack("<II", content, 0)
            if index < len(symbols) and symbols[index].name == kernel_name:
                sizes[attribute] = size
    return sizes


def attributes(section: Section | None) -> Iterator[tuple[int, memoryview]]:
    """Return the number and content of each record of an .nv.info *section*."""
    content = section.content if section else memoryview(b"")
    offset = 0
    while offset < len(content):
        form, attribute, size = unpack("<BBH", content, offset)
        start, length = (offset + 4, size) if form == SIZED else (offset + 2, 2)
        yield attribute, cut(content, start, length)
        offset = start + length


def static_shared(elf: Elf, kernel_name: str, arch: int) -> int:
    """Return the bytes of shared memory that the kernel itself declares."""
    section = elf.section(f".nv.shared.{kernel_name}")
    size = section.size if section else 0
    return max(size - RESERVED_SHARED, 0) if arch >= RESERVE_IN_BINARY_FROM else size
