"""The reader of AMD assembly, against the code object, llvm-objdump and short kernels."""

import io
import re
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from compiling import sample
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st
from recorded_binaries import of_kind, recorded

from occupancy_lab.compiling import amdgcn
from occupancy_lab.compiling.amdgcn import read_issued
from occupancy_lab.compiling.flow import Issued
from occupancy_lab.errors import BinaryError

RECORDED = {name.removesuffix(".hsaco"): binary for name, binary in of_kind("hsaco").items()}
METADATA = {
    "n_regs": ".vgpr_count",
    "static_shared": ".group_segment_fixed_size",
    "local_bytes": ".private_segment_fixed_size",
    "sgprs": ".sgpr_count",
    "agprs": ".agpr_count",
    "vgpr_spills": ".vgpr_spill_count",
    "sgpr_spills": ".sgpr_spill_count",
}
GRANULES = {"gfx908": 4, "gfx1250": 16}
"""VGPRs per step of the descriptor's count; 8 for other architectures."""
GRID = [
    (256, 1, 1, {}),
    (1024, 8, 2, {"waves_per_eu": 2}),
    (16384, 4, 2, {}),
]
"""block_size, num_warps, num_stages and options; the last one spills on RDNA."""
ARCHS = ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201", "gfx1250"]
NAMES = (
    (r"ds_(bpermute|permute|swizzle)|v_permlane|v_readlane", "shuffles"),
    (r"s_barrier$", "barrier_waits"),
    (r"ds_(read|write)", "shared_accesses"),
    (r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_", "special_functions"),
    (r"buffer_load.* lds$", "async_copies"),
    (r"scratch_load|buffer_load\w* \w+(\[[\d:]+\])?, off,", "local_loads"),
    (r"scratch_store|buffer_store\w* \w+(\[[\d:]+\])?, off,", "local_stores"),
    (r"(global|buffer|flat)_(load|store)", "global_accesses"),
)
"""The field that counts an instruction of llvm-objdump, by the first matching form."""

KERNEL = """
other:
	v_mov_b32_e32 v0, 1
	s_endpgm
.Lfunc_end0:
	.p2align	8
kernel:                                 ; @kernel
.Lfunc_begin1:
	.cfi_startproc
; %bb.0:
	s_load_dwordx2 s[0:1], s[4:5], 0x0      ; a comment
	s_branch .LBB1_2
	.p2align	6
.LBB1_1:                                ;   in Loop: Header=BB1_2 Depth=1
	s_add_i32 s2, s2, 1
	s_cbranch_scc0 .LBB1_4
.LBB1_2:                                ; =>This Inner Loop Header: Depth=1
	.loc	1 25 0
	scratch_store_b64 off, v[0:1], off offset:8
	ds_bpermute_b32 v2, v0, v1
	v_exp_f32_e32 v3, v2
	v_dual_mul_f32 v3, v1, v2 :: v_dual_add_f32 v4, v1, v2
	s_cbranch_execz .LBB1_1
; %bb.3:
	s_barrier
	s_branch .LBB1_1
.LBB1_4:
	scratch_load_b32 v0, off, off offset:8
	s_endpgm
.LBB1_5:
	s_code_end
.Lfunc_end1:
	.size	kernel, .Lfunc_end1-kernel
	v_mov_b32_e32 v0, 1
"""


def kernels_of(name: str) -> tuple[str, ...]:
    """Return the kernels of a recording."""
    return ("sharing", "stacking") if name == "two_kernels" else ("row_softmax",)


def said_by_binary(hsaco: bytes, kernel: str, granule: int) -> dict[str, Any]:
    """Return the numbers of the code object's note and descriptor, read by other libraries."""
    elf = ELFFile(io.BytesIO(hsaco))
    (note,) = elf.get_section_by_name(".note").iter_notes()
    entries = msgpack.unpackb(note["n_descdata"])["amdhsa.kernels"]
    (said,) = (entry for entry in entries if entry[".name"] == kernel)
    (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name(f"{kernel}.kd")
    section = elf.get_section(symbol.entry.st_shndx)
    compute_pgm_rsrc1 = symbol.entry.st_value - section.header.sh_addr + 48
    (registers,) = struct.unpack_from("<I", section.data(), compute_pgm_rsrc1)
    fields = {field: said.get(key) for field, key in METADATA.items()}
    return fields | {"allocated_vgprs": ((registers & 63) + 1) * granule}


def read_amdgcn(assembly: str, kernel: str) -> SimpleNamespace:
    """Return the numbers read of a kernel, as attributes."""
    return SimpleNamespace(**amdgcn.read_amdgcn(assembly, kernel))


def assert_agrees(assembly: str, hsaco: bytes, kernel: str, arch: str) -> SimpleNamespace:
    """Compare all numbers read from the assembly with those of the binary."""
    found = read_amdgcn(assembly, kernel)
    assert vars(found) == said_by_binary(hsaco, kernel, GRANULES.get(arch, 8))
    return found


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_kernels_agree_with_their_binaries(name: str) -> None:
    """Every number equals the one in the code object."""
    text, arch = recorded(f"{name}.amdgcn"), name.partition("_")[0]
    for kernel in kernels_of(name):
        assert_agrees(text, RECORDED[name], kernel, arch)


@pytest.mark.parametrize("arch", ARCHS)
def test_compiled_kernels_agree_with_their_binaries(arch: str) -> None:
    """Numbers agree on a grid of configurations, with padded VGPRs."""
    if arch == "gfx1030" and sample.triton.__version__.startswith("3.9."):
        pytest.skip("Triton 3.9 does not compile for gfx10.3")
    padded = 0
    for block_size, num_warps, num_stages, options in GRID:
        asm = sample.compile_sample(arch, block_size, num_warps, num_stages, **options).asm
        found = assert_agrees(asm["amdgcn"], asm["hsaco"], "row_softmax", arch)
        padded += found.allocated_vgprs - found.n_regs >= 16
    assert padded >= 1


@pytest.mark.parametrize("arch", ["gfx908", "gfx942", "gfx1100", "gfx1250"])
def test_stacks_that_grow_agree_with_their_binaries(arch: str) -> None:
    """Static LDS and a dynamic stack's fixed scratch equal the binary's."""
    hsaco, assembly = sample.assemble_llvm(sample.TWO_KERNELS_LLVM, arch)
    for kernel in kernels_of("two_kernels"):
        assert_agrees(assembly, hsaco, kernel, arch)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (("kernel:", "kernel:"), "no kernel 'softmax', only row_softmax"),
        ((".vgpr_count:     20", ".vgpr_count:     -1"), r"'\.vgpr_count' is '-1'"),
        ((".vgpr_count:     20", ".vgpr_count:     " + 5000 * "9"), r"'\.vgpr_count' is '999"),
        ((".sgpr_count:", ".other_count:"), r"has no '\.sgpr_count'"),
        ((".amdhsa_kernel row_softmax", ".amdhsa_kernel other"), "no kernel descriptor of 'row_"),
        ((".amdhsa_next_free_vgpr", ".amdhsa_next"), "no kernel descriptor of 'row_softmax'"),
        ((".amdgcn_target", ".target"), "or no target"),
        (("amdhsa.kernels:", "amdhsa.others:"), "no metadata of kernels"),
        ((".end_amdgpu_metadata", ""), "is cut off"),
    ],
)
def test_damaged_assembly_is_refused(change: tuple[str, str], refusal: str) -> None:
    """Assembly that lacks a needed part is refused, and the message names the part."""
    text = recorded("gfx942.amdgcn").replace(*change)
    kernel = "softmax" if "'softmax'" in refusal else "row_softmax"
    with pytest.raises(BinaryError, match=refusal) as refused:
        read_amdgcn(text, kernel)
    assert len(str(refused.value)) < 200


@given(place=st.floats(0, 1, exclude_max=True))
def test_every_cut_is_noticed(place: float) -> None:
    """Assembly that ends before the end of its metadata is refused."""
    text = recorded("gfx942.amdgcn").partition(".end_amdgpu_metadata")[0]
    with pytest.raises(BinaryError):
        read_amdgcn(text[: int(place * len(text))], "row_softmax")


@given(
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.characters(codec="utf-8")), max_size=9)
)
def test_changed_characters_give_numbers_or_the_one_error(changes: list[tuple[int, str]]) -> None:
    """Damaged assembly, mostly in its metadata, gives resources or BinaryError."""
    text = list(recorded("gfx942.amdgcn"))
    for place, character in changes:
        text[-1 - place % len(text)] = character
    try:
        assert read_amdgcn("".join(text), "row_softmax").n_regs >= 0
    except BinaryError as error:
        assert str(error).endswith(".")  # noqa: PT017


@pytest.mark.parametrize(
    ("target", "allocated"),
    [
        ("amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", 24),
        ("amdgcn-amd-amdhsa-unknown-gfx942", 24),
        ("amdgpu9.42-amd-amdhsa-unknown-gfx942", 24),
        ("amdgcn-amd-amdhsa--gfx908", 20),
        ("amdgcn-amd-amdhsa--gfx1310", None),
    ],
)
def test_the_architecture_is_found_in_every_form_of_target(
    target: str, allocated: int | None
) -> None:
    """Features and triples around the architecture do not hide it."""
    text = recorded("gfx942.amdgcn").replace("amdgcn-amd-amdhsa--gfx942", target)
    assert read_amdgcn(text, "row_softmax").allocated_vgprs == allocated


def test_another_size_of_waves_than_tritons_is_not_known() -> None:
    """VGPRs are not known for a wave size that the table lacks."""
    text = recorded("gfx942.amdgcn").replace(".wavefront_size: 64", ".wavefront_size: 32")
    assert read_amdgcn(text, "row_softmax").allocated_vgprs is None


def test_a_short_kernel() -> None:
    """Labels, directives and comments are no instructions; the loop begins at BB1_2."""
    found = read_issued(KERNEL, "kernel")
    assert (found["instructions"], found["loop_instructions"], found["local_traffic"]) == (4, 9, 8)
    assert (found["shuffles"], found["barrier_waits"], found["special_functions"]) == (1, 1, 1)
    assert (found["shared_accesses"], found["global_accesses"], found["async_copies"]) == (0, 0, 0)
    assert (found["local_loads"], found["local_stores"]) == (0, 1)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("kernel:", "softmax:"), id="another name"),
        pytest.param(("s_barrier", "s_setpc_b64 s[0:1]"), id="a jump to a register"),
        pytest.param(("s_barrier", "s_swappc_b64 s[0:1], s[2:3]"), id="a call"),
        pytest.param(("s_branch .LBB1_2", "s_branch .LBB9_2"), id="an unknown label"),
        pytest.param(("s_endpgm\n.LBB1_5", "s_nop 0\n.LBB1_5"), id="no end"),
    ],
)
def test_what_is_not_known(change: tuple[str, str]) -> None:
    """An unusual or missing kernel has no counts and raises no error."""
    assert change[0] in KERNEL
    assert read_issued(KERNEL.replace(*change), "kernel") == Issued()


def test_recorded_loops() -> None:
    """The loop has as many instructions as LLVM's comments put into it."""
    for name in ("gfx942", "gfx1030_spilling"):
        text = recorded(f"{name}.amdgcn")
        body = text.partition("\nrow_softmax:")[2].partition("\n.Lfunc_end0")[0]
        blocks = re.split(r"^(?=\.LBB|; %bb)", body, flags=re.MULTILINE)
        inside = [block for block in blocks if "Loop" in block.partition("\n")[0]]
        lines = "".join(inside)
        found = read_issued(text, "row_softmax")
        assert found["loop_instructions"] == len(re.findall(r"^\t[a-z]", lines, re.MULTILINE)) > 0
        spilled = re.findall(r"^\tbuffer_\w+ v\d+, off,.*", lines, re.MULTILINE)
        assert found["local_traffic"] == 4 * len(spilled)
        assert (found["local_traffic"] > 0) == (name == "gfx1030_spilling")


@pytest.mark.skipif(shutil.which("llvm-objdump") is None, reason="llvm-objdump is not installed")
@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx1030"])
@pytest.mark.parametrize(
    ("block_size", "num_warps", "num_stages", "dtype"),
    [(1024, 4, 1, "fp32"), (1024, 8, 4, "fp16"), (256, 1, 2, "fp32"), (16384, 4, 2, "fp32")],
)
def test_instructions_agree_with_llvm_objdump(  # noqa: PLR0913, PLR0917 - a grid and its fixtures
    tmp_path: Path,
    arch: str,
    block_size: int,
    num_warps: int,
    num_stages: int,
    dtype: str,
) -> None:
    """Counts from the assembly equal those from llvm-objdump."""
    asm = sample.compile_sample(arch, block_size, num_warps, num_stages, dtype=dtype).asm
    said = sample.objdump_instructions(asm["hsaco"], arch, tmp_path)
    lines = [f"{one.operation} {one.operands}".rstrip() for one in said]
    kinds = {
        number: kind
        for number, line in enumerate(lines)
        if (kind := next((kind for form, kind in NAMES if re.match(form, line)), None))
    }
    local = {
        number: 4 * int((re.search(r"dwordx(\d)", lines[number]) or "11")[1])
        for number, kind in kinds.items()
        if kind.startswith("local")
    }
    counts = sample.issued_by_definition(sample.successors(said), local, kinds, None)
    found = read_issued(asm["amdgcn"], "row_softmax")
    assert found == found | dict.fromkeys(dict(NAMES).values(), 0) | counts


@pytest.mark.parametrize("arch", ["gfx908", "gfx942"])
def test_loads_to_lds_are_copies(arch: str) -> None:
    """A load to LDS is an asynchronous copy, not a global access and not a spill."""
    _, assembly = sample.assemble_llvm(sample.COPYING_LLVM, arch)
    found = read_issued(assembly, "copying")
    assert "buffer_load_dword off, s" in assembly
    assert (found["async_copies"], found["global_accesses"], found["local_loads"]) == (3, 0, 0)
    assert found["local_traffic"] == 0
    assert max(amdgcn.amdgcn_widths(assembly, store=False)) == 4
