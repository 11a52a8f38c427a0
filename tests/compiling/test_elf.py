"""The ELF reader, against pyelftools and against damage."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.compiling.cubin import (
    HEADER,
    IDENTIFICATION,
    SECTION_HEADER,
    SYMBOL,
    SYMBOL_TABLE,
    ZERO_FILLED_SECTION,
    Elf,
    Symbol,
    read_cubin,
    read_elf,
)
from occupancy_lab.errors import BinaryError

MACHINES = {".cubin": 190, ".hsaco": 224}
RECORDED = {
    file.stem: gzip.decompress(file.read_bytes())
    for file in sorted(Path(__file__).with_name("recorded").glob("*.gz"))
    if Path(file.stem).suffix in MACHINES
}
names = pytest.mark.parametrize("name", RECORDED)


def read(name: str) -> Elf:
    """Read the recording *name*."""
    return read_elf(RECORDED[name], MACHINES[Path(name).suffix], "a kernel")


def symbols(elf: Elf) -> list[Symbol]:
    """Return the symbols of every symbol table of *elf*."""
    tables = (section for section in elf.sections if section.type == SYMBOL_TABLE)
    return [symbol for table in tables for symbol in elf.symbols(table)]


@names
def test_header_and_sections_equal_pyelftools(name: str) -> None:
    """Header fields, section headers and section contents are those that pyelftools reads."""
    ours, theirs = read(name), ELFFile(io.BytesIO(RECORDED[name]))
    assert ours.flags == theirs.header.e_flags
    assert ours.abi_version == theirs.header.e_ident.EI_ABIVERSION
    sections = list(theirs.iter_sections())
    assert len(ours.sections) == len(sections) > 5
    for one, other in zip(ours.sections, sections, strict=True):
        header = other.header
        assert one.name == other.name
        assert one.flags == header.sh_flags
        assert one.size == header.sh_size
        assert one.link == header.sh_link
        if one.type != ZERO_FILLED_SECTION:
            assert bytes(one.content) == other.data()
        else:
            assert header.sh_type == "SHT_NOBITS"
            assert not one.content


@names
def test_symbols_equal_pyelftools(name: str) -> None:
    """Names and values of the symbol table are those that pyelftools reads, in their order."""
    table = ELFFile(io.BytesIO(RECORDED[name])).get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    expected = [(symbol.name, symbol.entry.st_value) for symbol in table.iter_symbols()]
    assert [(symbol.name, symbol.value) for symbol in symbols(read(name))] == expected
    assert len(expected) > 5


def test_what_is_no_elf_file_is_refused_by_name() -> None:
    """Text, nothing, and a 32-bit file are refused with a sentence that says what was expected."""
    other_class = bytearray(RECORDED["sm_90.cubin"])
    other_class[4] = 1
    for binary in (b"", b"\x7fELF", b".version 8.0\n.target sm_90", bytes(other_class)):
        with pytest.raises(BinaryError, match=r"^This is not a cubin: .*ELF file\.$"):
            read_elf(binary, 190, "a cubin")


def test_another_machine_is_refused() -> None:
    """A file for another machine than asked for is refused, with both numbers."""
    with pytest.raises(BinaryError, match="224, where 190 was expected"):
        read_elf(RECORDED["gfx942.hsaco"], 190, "a cubin")


def test_indices_beyond_the_sections_are_refused() -> None:
    """A file whose names, or whose symbols' names, are in no section is refused."""
    nameless = bytearray(RECORDED["sm_90.cubin"])
    struct.pack_into("<H", nameless, 62, 999)
    with pytest.raises(BinaryError, match="no names for its sections"):
        read_elf(bytes(nameless), 190, "a cubin")
    unlinked = bytearray(RECORDED["sm_90.cubin"])
    (headers,) = struct.unpack_from("<Q", unlinked, 40)
    table = [section.name for section in read("sm_90.cubin").sections].index(".symtab")
    struct.pack_into("<I", unlinked, headers + 64 * table + 40, 999)
    with pytest.raises(BinaryError, match="not a symbol table with a string table"):
        symbols(read_elf(bytes(unlinked), 190, "a cubin"))


def test_symbols_need_a_symbol_table() -> None:
    """Asking for the symbols of another section is refused."""
    elf = read("sm_90.cubin")
    text = elf.section(".text.row_softmax")
    assert text is not None
    with pytest.raises(BinaryError, match="not a symbol table"):
        elf.symbols(text)


@given(name=st.sampled_from(sorted(RECORDED)), place=st.floats(0, 1, exclude_max=True))
def test_every_cut_is_noticed(name: str, place: float) -> None:
    """A file that ends early is refused, wherever it ends."""
    binary = RECORDED[name]
    with pytest.raises(BinaryError):
        read_elf(binary[: int(place * len(binary))], MACHINES[Path(name).suffix], "a kernel")


@given(data=st.binary(max_size=400))
def test_any_tail_gives_a_file_or_the_one_error(data: bytes) -> None:
    """Anything behind the first bytes of an ELF file is read or refused with BinaryError."""
    try:
        elf = read_elf(b"\x7fELF\x02\x01\x01" + data, int.from_bytes(data[11:13], "little"), "it")
        symbols(elf)
    except BinaryError as error:
        assert str(error).endswith(".")  # noqa: PT017


def elf_of(
    sections: list[tuple[int, int, int, int, int]], content: bytes, machine: int = 190
) -> bytes:
    """Return an ELF file of *content* and *sections*: name, type, offset, size and link of each.

    The offsets are in *content*, and the first section is that of the names.
    """
    start = struct.calcsize(HEADER)
    identification = IDENTIFICATION + bytes(16 - len(IDENTIFICATION))
    headers = start + len(content)
    fields = (2, machine, 1, 0, 0, headers, 90, start, 0, 0, 64, len(sections), 0)
    return (
        struct.pack(HEADER, identification, *fields)
        + content
        + b"".join(
            struct.pack(SECTION_HEADER, name, kind, 0, 0, start + offset, size, link, 0, 0, 0)
            for name, kind, offset, size, link in sections
        )
    )


MANY = 65_000
NAME = b".text." + b"k" * 900 + b"\0"
HUGE_NAME = b"k" * 2**24 + b"\0"


@pytest.mark.usefixtures("bounded")
def test_thousands_of_sections_of_one_name_are_read() -> None:
    """A file with 65,000 sections of one long name is read, and its refusal is a short sentence."""
    binary = elf_of([(0, 3, 0, len(NAME), 0), *[(0, 1, 0, 0, 0)] * MANY], NAME)
    assert len(read_elf(binary, 190, "a cubin").sections) == MANY + 1
    with pytest.raises(BinaryError, match="holds no kernel 'this', only kkk") as refused:
        read_cubin(binary, "this")
    assert str(refused.value).endswith(f"…, {MANY - 4} more.")
    assert len(str(refused.value)) < 300


@pytest.mark.usefixtures("bounded")
def test_names_without_an_end_in_sight_are_refused() -> None:
    """65,000 sections that share a name of 16 MiB are refused before it is read as often."""
    sections = [(0, 3, 0, len(HUGE_NAME), 0), *((name, 1, 0, 0, 0) for name in range(MANY))]
    with pytest.raises(BinaryError, match="no string of at most 1024 bytes"):
        read_elf(elf_of(sections, HUGE_NAME), 190, "a cubin")


@pytest.mark.usefixtures("bounded")
def test_symbol_tables_that_overlap_are_refused() -> None:
    """65,000 symbol tables over the same bytes, each of many symbols, are refused at once."""
    tables = [(0, 2, 0, 24 * 10_000, 0)] * MANY
    binary = elf_of([(0, 3, 0, 1, 0), *tables], bytes(24 * 10_000), 224)
    with pytest.raises(BinaryError, match=r"sections hold \d+ bytes together"):
        symbols(read_elf(binary, 224, "an hsaco"))


@pytest.mark.usefixtures("bounded")
def test_symbol_tables_with_one_table_of_strings_are_read() -> None:
    """65,000 symbol tables of one symbol each share 16 MiB of names without a copy each."""
    end = len(HUGE_NAME)
    symbol = struct.pack(SYMBOL, end - 3, 0, 0, 0, 0, 0)
    tables = [(end - 1, 2, end + 24 * n, 24, 0) for n in range(MANY)]
    binary = elf_of([(end - 1, 3, 0, end, 0), *tables], HUGE_NAME + MANY * symbol)
    assert {symbol.name for symbol in symbols(read_elf(binary, 190, "it"))} == {"kk"}
