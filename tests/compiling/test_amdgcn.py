"""The reader of AMD's instructions, against llvm-objdump and against short kernels."""

from __future__ import annotations

import dataclasses
import gzip
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from occupancy_lab.compiling.amdgcn import read_amdgcn
from occupancy_lab.compiling.assembly import widest_load_bytes
from occupancy_lab.compiling.flow import Issued

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = Path(__file__).with_name("recorded")
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
"""The fields in which llvm-objdump's instructions count, by the first form that fits."""

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


def recorded(name: str) -> str:
    """Return a recorded text."""
    return gzip.decompress((FOLDER / f"{name}.gz").read_bytes()).decode()


def test_a_short_kernel() -> None:
    """Instructions are told from labels, directives and comments; the loop is entered at BB1_2."""
    found = read_amdgcn(KERNEL, "kernel")
    assert (found.instructions, found.loop_instructions, found.local_traffic) == (4, 9, 8)
    assert (found.shuffles, found.barrier_waits, found.special_functions) == (1, 1, 1)
    assert (found.shared_accesses, found.global_accesses, found.async_copies) == (0, 0, 0)
    assert (found.local_loads, found.local_stores) == (0, 1)


def test_each_kernel_has_its_own_instructions() -> None:
    """The kernel at the start of the text is told from the next one, and one without a loop."""
    found = read_amdgcn(KERNEL.lstrip(), "other")
    assert (found.instructions, found.loop_instructions, found.local_traffic) == (2, None, 0)


@pytest.mark.usefixtures("bounded")
def test_loops_of_any_depth_are_read() -> None:
    """Of 20,000 nested loops the outermost is found at once."""
    deep = 20_000
    heads = "".join(f".L{level}:\n\ts_nop 0\n" for level in range(deep))
    ends = "".join(f"\ts_cbranch_scc0 .L{level}\n" for level in reversed(range(deep)))
    found = read_amdgcn(f"kernel:\n{heads}{ends}\ts_endpgm\n", "kernel")
    assert (found.instructions, found.loop_instructions) == (1, 2 * deep)


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
    """An odd kernel or none is not known, and no error."""
    assert change[0] in KERNEL
    assert read_amdgcn(KERNEL.replace(*change), "kernel") == Issued()


def test_recorded_loops() -> None:
    """LLVM's comments say which blocks are in the loop: as many instructions are counted there."""
    for name in ("gfx942", "gfx1030_spilling"):
        text = recorded(f"{name}.amdgcn")
        body = text.partition("\nrow_softmax:")[2].partition("\n.Lfunc_end0")[0]
        blocks = re.split(r"^(?=\.LBB|; %bb)", body, flags=re.MULTILINE)
        inside = [block for block in blocks if "Loop" in block.partition("\n")[0]]
        lines = "".join(inside)
        found = read_amdgcn(text, "row_softmax")
        assert found.loop_instructions == len(re.findall(r"^\t[a-z]", lines, re.MULTILINE)) > 0
        spilled = re.findall(r"^\tbuffer_\w+ v\d+, off,.*", lines, re.MULTILINE)
        assert found.local_traffic == 4 * len(spilled)
        assert (found.local_traffic > 0) == (name == "gfx1030_spilling")


@pytest.mark.skipif(shutil.which("llvm-objdump") is None, reason="llvm-objdump is not installed")
@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx1030"])
@pytest.mark.parametrize(
    ("block_size", "num_warps", "num_stages", "dtype"),
    [(1024, 4, 1, "fp32"), (1024, 8, 4, "fp16"), (256, 1, 2, "fp32"), (16384, 4, 2, "fp32")],
)
def test_instructions_agree_with_llvm_objdump(  # noqa: PLR0913, PLR0917 - a grid and its fixtures
    sample: ModuleType,
    tmp_path: Path,
    arch: str,
    block_size: int,
    num_warps: int,
    num_stages: int,
    dtype: str,
) -> None:
    """What is read from the assembly is what LLVM finds in the binary and its branch targets."""
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
    counts = sample.issued_by_definition(sample.successors(said), local, kinds)
    fields = dataclasses.asdict(read_amdgcn(asm["amdgcn"], "row_softmax"))
    assert fields == fields | dict.fromkeys(dict(NAMES).values(), 0) | counts


@pytest.mark.parametrize("arch", ["gfx908", "gfx942"])
def test_loads_to_lds_are_copies(sample: ModuleType, arch: str) -> None:
    """A load whose data goes to LDS is an asynchronous copy, no global access and no spill."""
    _, assembly = sample.assemble_llvm(sample.COPYING_LLVM, arch)
    found = read_amdgcn(assembly, "copying")
    assert "buffer_load_dword off, s" in assembly
    assert (found.async_copies, found.global_accesses, found.local_loads) == (3, 0, 0)
    assert found.local_traffic == 0
    assert widest_load_bytes(assembly, "amdgcn") == 4
