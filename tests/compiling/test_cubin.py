"""The cubin reader, against cuobjdump, ptxas and pyelftools, and on damaged files."""

import io
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest
from compiling import sample
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st
from recorded_binaries import ORACLES, of_kind

from occupancy_lab.compiling import cubin as reader
from occupancy_lab.compiling.cubin import (
    EM_CUDA,
    HEADER,
    IDENTIFICATION,
    SECTION_HEADER,
    SYMBOL,
    SYMBOL_TABLE,
    ZERO_FILLED_SECTION,
    Elf,
    Symbol,
    compute_capability,
    read_elf,
)
from occupancy_lab.errors import BinaryError

RECORDED = of_kind("cubin")
KERNELS = RECORDED | of_kind("hsaco")
MACHINES = {".cubin": 190, ".hsaco": 224}

GRID = [
    (256, 1, 1, {}),
    (1024, 8, 4, {}),
    (4096, 4, 1, {"maxnreg": 32}),
    (16384, 4, 2, {}),
]
"""block_size, num_warps, num_stages and options; with few registers every GPU spills."""


def arch_of(binary: bytes) -> int:
    """Return the compute capability of a cubin."""
    return compute_capability(read_elf(binary, EM_CUDA, "a cubin"))


def read_cubin(binary: bytes, kernel: str) -> SimpleNamespace:
    """Return the numbers read of a kernel, as attributes."""
    return SimpleNamespace(**reader.read_cubin(binary, kernel))


def assert_agrees(found: SimpleNamespace, said: dict[str, int], binary: bytes) -> None:
    """Compare with cuobjdump, which counts the driver's reserve if the binary has it."""
    reserve = 1024 if arch_of(binary) >= 90 else 0
    assert found.n_regs == said["REG"]
    assert found.local_bytes == said["STACK"]
    assert found.static_shared == max(said["SHARED"] - reserve, 0)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_kernels_agree_with_cuobjdump_and_ptxas(name: str) -> None:
    """Registers, stack and shared memory are cuobjdump's, barriers ptxas's."""
    for kernel, said in ORACLES[name].items():
        found = read_cubin(RECORDED[name], kernel)
        assert_agrees(found, said, RECORDED[name])
        assert found.barriers == said.get("barriers", found.barriers)


def test_another_kernel_is_refused_with_the_names_that_are_there() -> None:
    """The refusal of an unknown kernel lists the cubin's kernels."""
    with pytest.raises(BinaryError, match="no kernel 'softmax', only stacking, sharing"):
        read_cubin(RECORDED["two_kernels.cubin"], "softmax")


@given(
    name=st.sampled_from(sorted(RECORDED)),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=9),
)
def test_flipped_bytes_give_numbers_or_the_one_error(
    name: str, changes: list[tuple[float, int]]
) -> None:
    """A damaged cubin gives resources or raises BinaryError."""
    binary = bytearray(RECORDED[name])
    for place, byte in changes:
        binary[int(place * len(binary))] = byte
    try:
        assert read_cubin(bytes(binary), next(iter(ORACLES[name]))).n_regs >= 0
    except BinaryError as error:
        assert str(error).endswith(".")  # noqa: PT017


@pytest.mark.parametrize("arch", ["75", "80", "90", "100", "120"])
def test_compiled_kernels_agree_with_cuobjdump(arch: str, tmp_path: Path) -> None:
    """Numbers equal cuobjdump's on a grid of configurations, with spills."""
    spilling = 0
    for block_size, num_warps, num_stages, options in GRID:
        compiled = sample.compile_sample(arch, block_size, num_warps, num_stages, **options)
        cubin = compiled.asm["cubin"]
        found = read_cubin(cubin, "row_softmax")
        assert_agrees(found, sample.cuobjdump_resources(cubin, tmp_path)["row_softmax"], cubin)
        assert arch_of(cubin) == int(arch)
        spilling += bool(found.local_bytes)
    assert spilling >= 1


@pytest.mark.parametrize("arch", ["75", "80", "86", "90", "100", "120"])
def test_barriers_and_static_shared_agree_with_ptxas(arch: str, tmp_path: Path) -> None:
    """Barriers equal ptxas's, and each of two kernels has cuobjdump's numbers."""
    cubin, barriers = sample.assemble_ptx(sample.TWO_KERNELS_PTX, arch, tmp_path)
    said = sample.cuobjdump_resources(cubin, tmp_path)
    found = {kernel: read_cubin(cubin, kernel) for kernel in said}
    for kernel, resources in found.items():
        assert_agrees(resources, said[kernel], cubin)
    assert found["sharing"].barriers == barriers == 3


def test_a_function_that_is_not_inlined_belongs_to_its_kernel(tmp_path: Path) -> None:
    """A called function's stack counts as the kernel's local memory."""
    compiled = sample.compile_sample("90", 1024, 4, kernel=sample.calling)
    cubin = compiled.asm["cubin"]
    found = read_cubin(cubin, "calling")
    assert_agrees(found, sample.cuobjdump_resources(cubin, tmp_path)["calling"], cubin)
    assert found.local_bytes > 0


def read(name: str) -> Elf:
    """Return the bytes of the recording *name*."""
    return read_elf(KERNELS[name], MACHINES[Path(name).suffix], "a kernel")


def symbols(elf: Elf) -> list[Symbol]:
    """Return the symbols of every symbol table of *elf*."""
    tables = (section for section in elf.sections if section.type == SYMBOL_TABLE)
    return [symbol for table in tables for symbol in elf.symbols(table)]


@pytest.mark.parametrize("name", KERNELS)
def test_header_and_sections_equal_pyelftools(name: str) -> None:
    """Header fields, section headers and contents equal pyelftools's."""
    ours, theirs = read(name), ELFFile(io.BytesIO(KERNELS[name]))
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


@pytest.mark.parametrize("name", KERNELS)
def test_symbols_equal_pyelftools(name: str) -> None:
    """Names and values of symbols equal pyelftools's, in order."""
    table = ELFFile(io.BytesIO(KERNELS[name])).get_section_by_name(".symtab")
    expected = [(symbol.name, symbol.entry.st_value) for symbol in table.iter_symbols()]
    assert [(symbol.name, symbol.value) for symbol in symbols(read(name))] == expected
    assert len(expected) > 5


def test_what_is_no_elf_file_is_refused_by_name() -> None:
    """The refusal of text, no bytes or a 32-bit file names the expected format."""
    other_class = bytearray(KERNELS["sm_90.cubin"])
    other_class[4] = 1
    for binary in (b"", b"\x7fELF", b".version 8.0\n.target sm_90", bytes(other_class)):
        with pytest.raises(BinaryError, match=r"^This is not a cubin: .*ELF file\.$"):
            read_elf(binary, 190, "a cubin")


def test_another_machine_is_refused() -> None:
    """The refusal of a file for another machine names both machines."""
    with pytest.raises(BinaryError, match="224, where 190 was expected"):
        read_elf(KERNELS["gfx942.hsaco"], 190, "a cubin")


def test_indices_beyond_the_sections_are_refused() -> None:
    """A file whose name tables are in no section is refused."""
    nameless = bytearray(KERNELS["sm_90.cubin"])
    struct.pack_into("<H", nameless, 62, 999)
    with pytest.raises(BinaryError, match="no names for its sections"):
        read_elf(bytes(nameless), 190, "a cubin")
    unlinked = bytearray(KERNELS["sm_90.cubin"])
    (headers,) = struct.unpack_from("<Q", unlinked, 40)
    table = [section.name for section in read("sm_90.cubin").sections].index(".symtab")
    struct.pack_into("<I", unlinked, headers + 64 * table + 40, 999)
    with pytest.raises(BinaryError, match="not a symbol table with a string table"):
        symbols(read_elf(bytes(unlinked), 190, "a cubin"))


@given(name=st.sampled_from(sorted(KERNELS)), place=st.floats(0, 1, exclude_max=True))
def test_every_cut_is_noticed(name: str, place: float) -> None:
    """A file that ends early is refused, wherever it ends."""
    binary = KERNELS[name]
    with pytest.raises(BinaryError):
        read_elf(binary[: int(place * len(binary))], MACHINES[Path(name).suffix], "a kernel")


@given(data=st.binary(max_size=400))
def test_any_tail_gives_a_file_or_the_one_error(data: bytes) -> None:
    """Any bytes after an ELF file's first are read or raise BinaryError."""
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
    """65,000 sections with one long name are read, and the refusal is short."""
    binary = elf_of([(0, 3, 0, len(NAME), 0), *[(0, 1, 0, 0, 0)] * MANY], NAME)
    assert len(read_elf(binary, 190, "a cubin").sections) == MANY + 1
    with pytest.raises(BinaryError, match="holds no kernel 'this', only kkk") as refused:
        reader.read_cubin(binary, "this")
    assert str(refused.value).endswith(f"…, {MANY - 4} more.")
    assert len(str(refused.value)) < 300


@pytest.mark.usefixtures("bounded")
def test_names_without_an_end_in_sight_are_refused() -> None:
    """65,000 sections that share a 16 MiB name are refused quickly."""
    sections = [(0, 3, 0, len(HUGE_NAME), 0), *((name, 1, 0, 0, 0) for name in range(MANY))]
    with pytest.raises(BinaryError, match="no string of at most 1024 bytes"):
        read_elf(elf_of(sections, HUGE_NAME), 190, "a cubin")


@pytest.mark.usefixtures("bounded")
def test_symbol_tables_that_overlap_are_refused() -> None:
    """65,000 symbol tables over the same bytes are refused at once."""
    tables = [(0, 2, 0, 24 * 10_000, 0)] * MANY
    binary = elf_of([(0, 3, 0, 1, 0), *tables], bytes(24 * 10_000), 224)
    with pytest.raises(BinaryError, match=r"sections hold \d+ bytes together"):
        symbols(read_elf(binary, 224, "an hsaco"))


@pytest.mark.usefixtures("bounded")
def test_symbol_tables_with_one_table_of_strings_are_read() -> None:
    """65,000 symbol tables share 16 MiB of names without copies."""
    end = len(HUGE_NAME)
    symbol = struct.pack(SYMBOL, end - 3, 0, 0, 0, 0, 0)
    tables = [(end - 1, 2, end + 24 * n, 24, 0) for n in range(MANY)]
    binary = elf_of([(end - 1, 3, 0, end, 0), *tables], HUGE_NAME + MANY * symbol)
    assert {symbol.name for symbol in symbols(read_elf(binary, 190, "it"))} == {"kk"}
