"""Reads from the ELF file of a cubin, an NVIDIA binary, which resources a kernel takes.

NVIDIA does not document the attributes; their numbers are the EIATTR names that `cuobjdump -elf`
prints, and the tests compare the result with `cuobjdump --dump-resource-usage`.

This file also reads the part of the ELF format that it needs. Layout: System V Application Binary
Interface, "Object Files"; 64-bit little-endian only, as both vendors write it. Every offset is
checked against the length of the file, and reading takes time proportional to that length: only a
few sections may share bytes, and names have a maximum length. pyelftools checks neither: it accepts
files that lack their last bytes, and takes hours for a file with thousands of names of 16 MiB. For
an ordinary cubin it takes 2 to 4 ms, and this file 0.3 ms.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from occupancy_lab.compiling.sass import read_sass
from occupancy_lab.errors import few_of, unreadable

ZERO_FILLED_SECTION = 8
"""SHT_NOBITS: a section with a size but no bytes in the file."""
SYMBOL_TABLE = 2
"""SHT_SYMTAB."""

IDENTIFICATION = b"\x7fELF\x02\x01\x01"
HEADER = "<16sHHIQQQIHHHHHH"
SECTION_HEADER = "<IIQQQQIIQQ"
PROGRAM_HEADER_BYTES = 56
SYMBOL = "<IBBHQQ"

MOST_SHARED = 2
"""Sections that may share a byte on average: from sm_100 on ptxas puts the PTX in two."""
LONGEST_NAME = 1024
"""The most bytes of a name that are read: a kernel's is its function's after a short prefix."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section: its header's fields, and its bytes (none if it is zero-filled)."""

    name: str
    type: int
    flags: int
    size: int
    link: int
    content: memoryview


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol; `section` and `value` are as stored: a section's index and an address."""

    name: str
    section: int
    value: int


@dataclass(frozen=True, slots=True)
class Elf:
    """An ELF file's header fields and its sections in their order."""

    abi_version: int
    flags: int
    sections: tuple[Section, ...]

    def section(self, name: str) -> Section | None:
        """Return the first section called *name*, or None."""
        return next((section for section in self.sections if section.name == name), None)

    def symbols(self, section: Section) -> tuple[Symbol, ...]:
        """Return the symbols of the symbol table *section*, in the order of their indices."""
        if section.type != SYMBOL_TABLE or section.link >= len(self.sections):
            unreadable(
                f"The ELF section {section.name!r} is not a symbol table with a string table."
            )
        strings = self.sections[section.link].content
        entry = struct.calcsize(SYMBOL)
        fields = (
            unpack(SYMBOL, section.content, entry * index)
            for index in range(len(section.content) // entry)
        )
        return tuple(
            Symbol(string_at(strings, name), index, value) for name, _, _, index, value, _ in fields
        )


def read_elf(binary: bytes, machine: int, machine_name: str) -> Elf:
    """Read the headers and sections of *binary*, which must be for *machine* (e_machine).

    Raises:
        BinaryError: *binary* is not a 64-bit little-endian ELF file, is for another machine (the
            message calls the expected one *machine_name*), ends before something that it
            declares, or its sections share too many bytes.
    """
    if not binary.startswith(IDENTIFICATION):
        unreadable(f"This is not {machine_name}: it is no 64-bit little-endian ELF file.")
    data = memoryview(binary)
    header = unpack(HEADER, data, 0)
    _, _, found, _, _, segments, headers, flags, _, _, segment_count, _, count, names = header
    if found != machine:
        unreadable(
            f"This is not {machine_name}: its ELF machine is {found}, where {machine} was expected."
        )
    cut(data, segments, segment_count * PROGRAM_HEADER_BYTES)
    if names >= count:
        unreadable("This ELF file has no names for its sections.")
    entry = struct.calcsize(SECTION_HEADER)
    rows = [unpack(SECTION_HEADER, data, headers + entry * index) for index in range(count)]
    contents = [
        data[:0] if kind == ZERO_FILLED_SECTION else cut(data, offset, size)
        for _, kind, _, _, offset, size, *_ in rows
    ]
    declared = sum(map(len, contents))
    if declared > MOST_SHARED * len(data):
        unreadable(
            f"The binary is damaged: its sections hold {declared} bytes together, more than "
            f"{MOST_SHARED} times the {len(data)} bytes that are there in all."
        )
    sections = tuple(
        Section(string_at(contents[names], name), kind, bits, size, link, content)
        for (name, kind, bits, _, _, size, link, *_), content in zip(rows, contents, strict=True)
    )
    return Elf(abi_version=binary[8], flags=flags, sections=sections)


def unpack(layout: str, data: memoryview, offset: int) -> tuple[Any, ...]:
    """Read the fields of *layout* (of module struct) at *offset*, or raise BinaryError."""
    return struct.unpack(layout, cut(data, offset, struct.calcsize(layout)))


def cut(data: memoryview, offset: int, size: int) -> memoryview:
    """Return *size* bytes of *data* from *offset* on, or raise BinaryError."""
    if not 0 <= offset <= len(data) - size:
        unreadable(
            f"The binary is cut off or damaged: {size} bytes are declared at {offset}, "
            f"where {len(data)} bytes are there in all."
        )
    return data[offset : offset + size]


def string_at(strings: memoryview, offset: int) -> str:
    """Return the zero-terminated string at *offset* of a string table, or raise BinaryError."""
    name, end, _ = bytes(strings[offset : offset + LONGEST_NAME + 1]).partition(b"\0")
    if not end:
        unreadable(
            f"The binary is damaged: no string of at most {LONGEST_NAME} bytes is at {offset} of a "
            "string table."
        )
    return name.decode(errors="backslashreplace")


EM_CUDA = 190
SIZED = 4
"""The form of an attribute whose content follows the record; in other forms it is in the record."""
MIN_STACK_SIZE = 0x12
REGCOUNT = 0x2F
NUM_BARRIERS = 0x4C

RESERVED_SHARED = 1024
"""Bytes at the front of shared memory that the driver keeps for itself from sm_80 on; ptxas lays
them out in the binary from sm_90 on (the symbol .nv.reservedSmem)."""
RESERVE_IN_BINARY_FROM = 90

SUBROUTINE = "$__internal_"
"""The prefix of ptxas's own subroutines, such as the slow path of a division."""


@dataclass(frozen=True, slots=True)
class CubinCode:
    """The instructions of one kernel."""

    whole: memoryview
    own: memoryview
    """The instructions without the compiler's subroutines, which come last."""
    arch: int
    """The compute capability without its dot: 90."""


def read_cubin(binary: bytes, kernel_name: str) -> dict[str, Any]:
    """Return what *kernel_name* of the cubin *binary* takes and issues, as fields of Resources.

    Raises:
        BinaryError: *binary* is no cubin, is damaged, or has no such kernel.
    """
    sizes, code = read_sizes(binary, kernel_name)
    return {**sizes, "binary": digest(code.whole), **read_sass(code.own, code.arch)}


def read_sizes(binary: bytes, kernel_name: str) -> tuple[dict[str, Any], CubinCode]:
    """Return the resources that *kernel_name* of the cubin *binary* takes, and its instructions.

    This is the quick part of `read_cubin`. Raises BinaryError as `read_cubin` does.
    """
    elf = read_elf(binary, EM_CUDA, "a cubin")
    arch = compute_capability(elf)
    text = kernel_text(elf, kernel_name)
    symbols = symbols_of(elf)
    sizes = {}
    for attribute, content in attributes(elf.section(".nv.info")):
        if attribute in (REGCOUNT, MIN_STACK_SIZE):
            index, size = unpack("<II", content, 0)
            if index < len(symbols) and symbols[index].name == kernel_name:
                sizes[attribute] = size
    if REGCOUNT not in sizes:
        unreadable(f"The cubin does not say how many registers {kernel_name!r} takes.")
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
    """Return a 48-bit hash of *code*, which identifies the instructions."""
    return int.from_bytes(hashlib.sha256(code).digest()[:6])


def compute_capability(elf: Elf) -> int:
    """Return the architecture of a cubin; its place in the header moved with ELF ABI version 8."""
    last_with_low_byte = 7
    return elf.flags & 0xFF if elf.abi_version <= last_with_low_byte else elf.flags >> 8 & 0xFF


def kernel_text(elf: Elf, kernel_name: str) -> Section:
    """Return the section with the instructions of *kernel_name*."""
    text = elf.section(f".text.{kernel_name}")
    if text is None:
        prefix = ".text."
        found = [s.name.removeprefix(prefix) for s in elf.sections if s.name.startswith(prefix)]
        unreadable(f"The cubin holds no kernel {kernel_name!r}, only {few_of(found)}.")
    return text


def symbols_of(elf: Elf) -> tuple[Symbol, ...]:
    """Return the symbols of a cubin; none where it has no table of them."""
    table = elf.section(".symtab")
    return elf.symbols(table) if table else ()


def own_code(elf: Elf, symbols: Sequence[Symbol], text: Section) -> memoryview:
    """Return the instructions in *text* without the compiler's subroutines, which come last."""
    starts = (
        symbol.value
        for symbol in symbols
        if symbol.name.startswith(SUBROUTINE)
        and symbol.section < len(elf.sections)
        and elf.sections[symbol.section] is text
    )
    return text.content[: min(starts, default=len(text.content))]


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
