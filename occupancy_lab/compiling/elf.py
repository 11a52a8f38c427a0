"""The little of the ELF format that a cubin is read with.

Layout: System V Application Binary Interface, "Object Files"; 64-bit little-endian only, as both
vendors write it. Everything is checked against the length of the file on the way in, and takes
time in proportion to it: few sections may share bytes, and a name has a longest length. pyelftools
checks neither: it misses files that lack their last bytes, and takes hours for one with thousands
of names of 16 MiB, besides 2 to 4 ms for a cubin, where this takes 0.3 ms.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from occupancy_lab.errors import BinaryError

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
"""Sections that a byte may be in on average: from sm_100 on ptxas has the PTX in two."""
LONGEST_NAME = 1024
"""Bytes of a name that are read: a kernel's is its Python function's, behind a short prefix."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section: its header's fields, and its bytes (none where it is zero-filled)."""

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
        """Return the first section called *name*, None when there is none."""
        return next((section for section in self.sections if section.name == name), None)

    def symbols(self, section: Section) -> tuple[Symbol, ...]:
        """Return the symbols of the symbol table *section*, in the order of their indices."""
        if section.type != SYMBOL_TABLE or section.link >= len(self.sections):
            message = f"The ELF section {section.name!r} is not a symbol table with a string table."
            raise BinaryError(message)
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
        BinaryError: it is not a 64-bit little-endian ELF file, is for another machine (the message
            calls the expected one *machine_name*), ends before something that it declares, or
            its sections share too many bytes.
    """
    if not binary.startswith(IDENTIFICATION):
        message = f"This is not {machine_name}: it is no 64-bit little-endian ELF file."
        raise BinaryError(message)
    data = memoryview(binary)
    header = unpack(HEADER, data, 0)
    _, _, found, _, _, segments, headers, flags, _, _, segment_count, _, count, names = header
    if found != machine:
        message = (
            f"This is not {machine_name}: its ELF machine is {found}, where {machine} was expected."
        )
        raise BinaryError(message)
    cut(data, segments, segment_count * PROGRAM_HEADER_BYTES)
    if names >= count:
        message = "This ELF file has no names for its sections."
        raise BinaryError(message)
    entry = struct.calcsize(SECTION_HEADER)
    rows = [unpack(SECTION_HEADER, data, headers + entry * index) for index in range(count)]
    contents = [
        data[:0] if kind == ZERO_FILLED_SECTION else cut(data, offset, size)
        for _, kind, _, _, offset, size, *_ in rows
    ]
    declared = sum(map(len, contents))
    if declared > MOST_SHARED * len(data):
        message = (
            f"The binary is damaged: its sections hold {declared} bytes together, more than "
            f"{MOST_SHARED} times the {len(data)} bytes that are there in all."
        )
        raise BinaryError(message)
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
        message = (
            f"The binary is cut off or damaged: {size} bytes are declared at {offset}, "
            f"where {len(data)} bytes are there in all."
        )
        raise BinaryError(message)
    return data[offset : offset + size]


def string_at(strings: memoryview, offset: int) -> str:
    """Return the zero-terminated string at *offset* of a string table, or raise BinaryError."""
    name, end, _ = bytes(strings[offset : offset + LONGEST_NAME + 1]).partition(b"\0")
    if not end:
        message = (
            f"The binary is damaged: no string of at most {LONGEST_NAME} bytes is at {offset} of a "
            "string table."
        )
        raise BinaryError(message)
    return name.decode(errors="backslashreplace")
