"""Which line of a kernel's source each instruction of a cubin comes from.

A cubin has two line tables: `.debug_line` maps instructions to lines of the source, and
`.nv_debug_line_sass` to lines of the PTX text. A `.loc` in the PTX gives file, line and column, and
LLVM's comment behind it gives the calls through which the line is reached; `.debug_line` has
neither columns nor calls.

Format: DWARF Debugging Information Format, version 2, 6.2; PTX ISA, 11.5.3 (.loc).
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from occupancy_lab.compiling.cubin import Elf, kernel_text, string_at, unpack
from occupancy_lab.compiling.sass import BYTES
from occupancy_lab.errors import unreadable
from occupancy_lab.work.counts import Place

LONGEST = 64
"""The most bits of a variable-length number."""
TO_SOURCE, TO_PTX = ".debug_line", ".nv_debug_line_sass"
LAST_VERSION = 4
"""The last supported version of the format; version 5 encodes its file tables differently."""
MOST_ROWS = 1_000_000
"""The most rows of a table that are read."""
RELOCATION = "<QQq"
EXTENDED, COPY, ADVANCE_ADDRESS, ADVANCE_LINE, SET_FILE, SET_COLUMN = range(6)
CONSTANT_ADVANCE, FIXED_ADVANCE = 8, 9
END_SEQUENCE, SET_ADDRESS = 1, 2
"""The opcodes of a line program, and those that follow EXTENDED."""
FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"\n]*)"(?:\s+"([^"\n]*)")?', re.MULTILINE)
LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)(?:\s+(\d+))?[^/;]*(?:(?://|;)\s*(.*))?")
CALL = re.compile(r"@\[\s*([^:@\[\]]+):(\d+):(\d+)")


class Sources:
    """The lines of the source that directives in a text of LLVM name."""

    def __init__(self, text: str) -> None:
        """Take a PTX or AMD's assembly."""
        self._files = {number: "/".join(filter(None, path)) for number, *path in FILE.findall(text)}
        self._named = {one.rpartition("/")[2]: one for one in self._files.values()}

    def place(self, line: str) -> Place | None:
        """Return what a .loc and the comment behind it name; None for line 0 and other text."""
        match = LOC.match(line)
        if match is None or not int(match[2]):
            return None
        calls = tuple(
            Place(self._named.get(file, file), int(row), int(column))
            for file, row, column in CALL.findall(match[4] or "")
        )
        file = self._files.get(match[1], "")
        return Place(file, int(match[2]), int(match[3] or 0), calls)


@dataclass(slots=True)
class _Reader:
    content: memoryview
    offset: int = 0

    def number(self, layout: str) -> int:
        """Return the next number, in a *layout* of `struct`."""
        if layout == "B" and self.offset < len(self.content):
            self.offset += 1
            return self.content[self.offset - 1]
        (value,) = unpack(f"<{layout}", self.content, self.offset)
        self.offset += struct.calcsize(layout)
        return int(value)

    def leb(self, *, signed: bool = False) -> int:
        """Return the next variable-length number (LEB128)."""
        if self.offset < len(self.content) and not (byte := self.content[self.offset]) & 0x80:
            self.offset += 1
            return byte - 0x80 if signed and byte & 0x40 else byte
        value = shift = 0
        while True:
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value
            if shift > LONGEST:
                unreadable("A line table of the binary is damaged: it has a number without an end.")

    def text(self) -> str:
        found = string_at(self.content, self.offset)
        self.offset += len(found.encode()) + 1
        return found


Row: TypeAlias = "tuple[int, int, int, int]"
"""Address, file, line and column."""


def read_lines(elf: Elf, name: str, ptx: str | None) -> list[Place | None]:
    """Return the source line of each instruction of the kernel *name*; None where not known.

    Columns and the calls of helper functions are only known with the *ptx*.

    Raises:
        BinaryError: a line table is damaged.
    """
    length = len(kernel_text(elf, name).content) // BYTES
    files: dict[int, str] = {}
    rows = _rows(elf, name, TO_SOURCE, length, files)
    known = {row: Place(files.get(row[1], ""), row[2], row[3]) for row in {*rows} if row}
    found = [None if row is None else known[row] for row in rows]
    if ptx is None:
        return found
    places = ptx_places(ptx)
    of_ptx = _rows(elf, name, TO_PTX, length, {})
    return [
        (None if row is None else places.get(row[2])) or place
        for row, place in zip(of_ptx, found, strict=True)
    ]


def ptx_places(ptx: str) -> dict[int, Place | None]:
    """Return the source line of each line of *ptx*, by its number."""
    sources = Sources(ptx)
    found: dict[int, Place | None] = {}
    place = None
    for number, line in enumerate(ptx.split("\n"), 1):
        if line.lstrip().startswith(".loc"):
            place = sources.place(line)
        found[number] = place
    return found


def _rows(
    elf: Elf, name: str, section: str, length: int, files: dict[int, str]
) -> list[Row | None]:
    """Return the row of a line table for each of *length* instructions, and fill in *files*."""
    found = elf.section(section)
    table = elf.section(".symtab")
    if found is None or table is None:
        return [None] * length
    kernels = [one for one in elf.sections if one.name.startswith(".text.")]
    symbols = elf.symbols(table)
    relocations = elf.section(f".rela{section}")
    content = memoryview(b"") if relocations is None else relocations.content
    whole = len(content) // struct.calcsize(RELOCATION) * struct.calcsize(RELOCATION)
    kernel_at = {}
    for offset, information, _ in struct.iter_unpack(RELOCATION, content[:whole]):
        index = information >> 32
        number = symbols[index].section if index < len(symbols) else 0
        kernel_at[offset] = elf.sections[number].name if number < len(elf.sections) else ""
    rows: list[Row] = []
    for offset, one in _all_rows(found.content, files):
        alone = len(kernels) == 1 and offset not in kernel_at
        if alone or kernel_at.get(offset) == f".text.{name}":
            rows.append(one)
    rows.sort(key=lambda one: one[0])
    addresses = [one[0] for one in rows]
    places = (bisect_right(addresses, BYTES * number) - 1 for number in range(length))
    return [None if place < 0 else rows[place] for place in places]


def _all_rows(content: memoryview, files: dict[int, str]) -> Iterator[tuple[int, Row]]:
    """Yield the rows of all tables of a section, with the offset at which each address was set."""
    reader = _Reader(content)
    count = 0
    while reader.offset < len(content):
        length = reader.number("I")
        end = reader.offset + length
        version = reader.number("H")
        if version > LAST_VERSION:
            return
        program = reader.number("I")
        program += reader.offset
        reader.offset += 2 if version == LAST_VERSION else 1
        reader.number("B")
        base, span, first_special = reader.number("b"), reader.number("B"), reader.number("B")
        operands = [reader.number("B") for _ in range(first_special - 1)]
        _read_files(reader, files)
        reader.offset = program
        for one in _program(reader, min(end, len(content)), base, span, operands):
            count += 1
            if count > MOST_ROWS:
                unreadable(f"A line table of the binary has more than {MOST_ROWS} rows.")
            yield one
        reader.offset = end


def _read_files(reader: _Reader, files: dict[int, str]) -> None:
    folders = [""]
    while folder := reader.text():
        folders.append(folder)
    files.clear()
    while file := reader.text():
        number, _, _ = reader.leb(), reader.leb(), reader.leb()
        place = folders[number] if number < len(folders) else ""
        files[len(files) + 1] = f"{place}/{file}" if place else file


def _program(  # noqa: C901, PLR0912 - a case for each opcode
    reader: _Reader, end: int, base: int, span: int, operands: Sequence[int]
) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a line program, with the offset at which each address was set."""
    content, special = reader.content, len(operands) + 1
    start, address, file, line, column = beginning = 0, 0, 1, 1, 0
    while reader.offset < end:
        opcode = content[reader.offset]
        reader.offset += 1
        if opcode >= special:
            advance, more = divmod(opcode - special, span or 1)
            address += advance
            line += base + more
            yield start, (address, file, line, column)
        elif opcode == COPY:
            yield start, (address, file, line, column)
        elif opcode == ADVANCE_LINE:
            line += reader.leb(signed=True)
        elif opcode == ADVANCE_ADDRESS:
            address += reader.leb()
        elif opcode == SET_FILE:
            file = reader.leb()
        elif opcode == SET_COLUMN:
            column = reader.leb()
        elif opcode == CONSTANT_ADVANCE:
            address += (255 - special) // (span or 1)
        elif opcode == FIXED_ADVANCE:
            address += reader.number("H")
        elif opcode == EXTENDED:
            length = reader.leb()
            following = reader.offset + length
            kind = reader.number("B")
            if kind == SET_ADDRESS:
                start, address = reader.offset, reader.number("Q")
            elif kind == END_SEQUENCE:
                start, address, file, line, column = beginning
            reader.offset = following
        else:  # one that is not needed
            for _ in range(operands[opcode - 1]):
                reader.leb()
