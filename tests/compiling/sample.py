"""Small kernels and oracles for the tests of the binary readers.

The oracles are what the vendors' own tools print: cuobjdump, nvdisasm and ptxas of Triton's wheel,
and llvm-objdump.
"""

# ruff: noqa: ANN001, ANN201, ARG001, PLR0913, PLR0917

import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction

FIRST_BLACKWELL = 100


@triton.jit
def row_softmax(
    output, source, stride, n_rows, n_cols, block_size: tl.constexpr, num_stages: tl.constexpr
):
    """A softmax of each row, one row at a time."""
    columns = tl.arange(0, block_size)
    mask = columns < n_cols
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=num_stages):
        start = row.to(tl.int64) * stride
        values = tl.load(source + start + columns, mask=mask, other=-float("inf")).to(tl.float32)
        numerator = tl.exp(values - tl.max(values, axis=0))
        tl.store(output + start + columns, numerator / tl.sum(numerator, axis=0), mask=mask)


@triton.jit(noinline=True)
def sine(number):
    """A function of its own in the binary, with its own stack (the sine's slow path)."""
    return tl.sin(number)


@triton.jit
def calling(
    output, source, stride, n_rows, n_cols, block_size: tl.constexpr, num_stages: tl.constexpr
):
    """A kernel that calls a function which is not inlined."""
    row = tl.program_id(0)
    tl.store(output + row, sine(tl.load(source + row * stride)) + sine(n_rows.to(tl.float32)))


@triton.jit
def dividing(
    output, source, stride, n_rows, n_cols, block_size: tl.constexpr, num_stages: tl.constexpr
):
    """Two nested loops, with the sine's loop in local memory and a division's subroutine."""
    columns = tl.arange(0, block_size)
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        total = tl.zeros((block_size,), tl.float32)
        for start in range(0, n_cols, block_size):
            mask = start + columns < n_cols
            total += tl.load(source + row * stride + start + columns, mask=mask, other=0.0)
        quotient = tl.div_rn(total, tl.sum(total, axis=0))
        tl.store(output + row * stride + columns, tl.sin(quotient))


@triton.jit
def multiplying(
    output, source, stride, n_rows, n_cols, block_size: tl.constexpr, num_stages: tl.constexpr
):
    """A matrix product whose operands go through shared memory."""
    rows, columns = tl.arange(0, 64), tl.arange(0, 32)
    total = tl.zeros((64, 64), tl.float32)
    for start in tl.range(0, n_cols, 32, num_stages=num_stages):
        left = tl.load(source + rows[:, None] * stride + columns[None, :] + start)
        right = tl.load(source + (columns[:, None] + start) * stride + rows[None, :])
        total = tl.dot(left, right, total)
    tl.store(output + rows[:, None] * stride + rows[None, :], total.to(tl.float16))


@triton.jit
def specializing(
    output, source, stride, n_rows, n_cols, block_size: tl.constexpr, num_stages: tl.constexpr
):
    """A matrix product in which some warps load and others multiply."""
    rows = tl.make_tensor_descriptor(source, [n_rows, n_cols], [stride, 1], [128, 64])
    total = tl.zeros((128, 128), tl.float32)
    for start in tl.range(0, n_cols, 64, num_stages=num_stages, warp_specialize=True):
        total = tl.dot(rows.load([0, start]), rows.load([128, start]).T, total)
    products = tl.make_tensor_descriptor(output, [n_rows, n_rows], [stride, 1], [128, 128])
    products.store([0, 0], total.to(tl.float16))


def nvidia_tool(name: str) -> str:
    """Return the path of one of the tools in Triton's wheel: ptxas, cuobjdump."""
    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)


def gpu_target(arch: str) -> GPUTarget:
    """Return Triton's target for a compute capability ("90") or a gfx name ("gfx942")."""
    if not arch.startswith("gfx"):
        return GPUTarget("cuda", int(arch), 32)
    return GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32)


def compile_sample(
    arch: str,
    block_size: int,
    num_warps: int,
    num_stages: int = 1,
    *,
    kernel: JITFunction[Any] = row_softmax,
    dtype: str = "fp32",
    **options: int,
) -> Any:
    """Return the CompiledKernel of *kernel* for *arch*, without a GPU."""
    pointer, aligned = f"*{dtype}", [["tt.divisibility", 16]]
    types = (pointer, pointer, "i32", "i32", "i32", "constexpr", "constexpr")
    source = ASTSource(
        fn=kernel,
        signature=dict(zip(kernel.arg_names, types, strict=True)),
        constexprs={(5,): block_size, (6,): num_stages},
        attrs={(index,): aligned for index in (0, 1, 2, 4)},
    )
    return triton.compile(
        source,
        target=gpu_target(arch),
        options={"num_warps": num_warps, "enable_fp_fusion": True, **options},
    )


TWO_KERNELS_PTX = """
.version 8.0
.target sm_75
.address_size 64
.visible .entry sharing(.param .u64 output) .reqntid 64
{
    .shared .align 4 .b8 buffer[112];
    .reg .u32 %number<3>;
    .reg .u64 %address<3>;
    mov.u32 %number0, %tid.x;
    mov.u64 %address0, buffer;
    ld.param.u64 %address1, [output];
    st.volatile.shared.u32 [buffer + 4], %number0;
    bar.sync 0;
    bar.sync 2;
    ld.volatile.shared.u32 %number1, [buffer + 8];
    st.global.u32 [%address1], %number1;
    ret;
}
.visible .entry stacking(.param .u64 output)
{
    .local .align 4 .b8 stack[256];
    .reg .u32 %number<3>;
    .reg .u64 %address<5>;
    mov.u32 %number0, %tid.x;
    mov.u32 %number1, %ntid.x;
    mov.u64 %address0, stack;
    mul.wide.u32 %address2, %number0, 4;
    add.u64 %address0, %address0, %address2;
    ld.param.u64 %address1, [output];
    st.local.u32 [%address0], %number0;
    mul.wide.u32 %address3, %number1, 4;
    mov.u64 %address4, stack;
    add.u64 %address3, %address3, %address4;
    ld.local.u32 %number1, [%address3];
    st.global.u32 [%address1], %number1;
    ret;
}
"""
"""One kernel with 112 bytes of static shared memory and three barriers, one with a stack."""

TWO_KERNELS_LLVM = """
@buffer = internal addrspace(3) global [28 x i32] poison
define amdgpu_kernel void @sharing(ptr addrspace(1) %output, i32 %index) #0 {
  %slot = getelementptr i32, ptr addrspace(3) @buffer, i32 %index
  store volatile i32 %index, ptr addrspace(3) %slot
  %word = load volatile i32, ptr addrspace(3) @buffer
  store i32 %word, ptr addrspace(1) %output
  ret void
}
define dso_local amdgpu_kernel void @stacking(ptr addrspace(1) %output, i32 %index) #0 {
  br label %body
body:
  %stack = alloca i32, i32 %index, addrspace(5)
  store volatile i32 %index, ptr addrspace(5) %stack
  %word = load volatile i32, ptr addrspace(5) %stack
  store i32 %word, ptr addrspace(1) %output
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="1,256" }
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
"""
"""One kernel with 112 bytes of static LDS, one whose stack grows at run time.

Triton takes LLVM IR of one kernel; what is spelled `dso_local` it does not count.
"""


COPYING_LLVM = """
declare void @llvm.amdgcn.raw.ptr.buffer.load.lds(
  ptr addrspace(8), ptr addrspace(3), i32, i32, i32, i32, i32)
declare void @llvm.amdgcn.global.load.lds(ptr addrspace(1), ptr addrspace(3), i32, i32, i32)
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @copying(
  ptr addrspace(8) %buffer, ptr addrspace(1) %source, ptr addrspace(3) %to) {
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  %offset = shl i32 %lane, 2
  call void @llvm.amdgcn.raw.ptr.buffer.load.lds(
    ptr addrspace(8) %buffer, ptr addrspace(3) %to, i32 4, i32 %offset, i32 0, i32 0, i32 0)
  call void @llvm.amdgcn.raw.ptr.buffer.load.lds(
    ptr addrspace(8) %buffer, ptr addrspace(3) %to, i32 4, i32 0, i32 0, i32 0, i32 0)
  call void @llvm.amdgcn.global.load.lds(
    ptr addrspace(1) %source, ptr addrspace(3) %to, i32 4, i32 0, i32 0)
  ret void
}
"""
"""A kernel with three loads from global memory to LDS, one of them without per-lane offsets."""


def assemble_ptx(ptx: str, arch: str, folder: Path) -> tuple[bytes, int]:
    """Return the cubin that ptxas makes of *ptx*, and the barriers that ptxas reports."""
    source, cubin = folder / "kernels.ptx", folder / "kernels.cubin"
    source.write_text(ptx, encoding="utf-8")
    ptxas = nvidia_tool(
        "ptxas" if int(arch[:3].rstrip("a")) < FIRST_BLACKWELL else "ptxas-blackwell"
    )
    command = [ptxas, "-v", f"-arch=sm_{arch}", "-o", cubin, source]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    barriers = max((int(count) for count in re.findall(r"used (\d+) barriers", said)), default=0)
    return cubin.read_bytes(), barriers


def cuobjdump_resources(cubin: bytes, folder: Path) -> dict[str, dict[str, int]]:
    """Return cuobjdump's REG, STACK and SHARED of each kernel."""
    file = folder / "dumped.cubin"
    file.write_bytes(cubin)
    command = [nvidia_tool("cuobjdump"), "--dump-resource-usage", file]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {
        name: {key: int(number) for key, number in re.findall(r"(REG|STACK|SHARED):(\d+)", line)}
        for name, line in re.findall(r"Function (\w+):\s+(.*)", said)
    }


class Instruction(NamedTuple):
    """A disassembled instruction; its target is the number of another instruction."""

    operation: str
    operands: str
    target: int | None
    conditional: bool


def nvdisasm_instructions(cubin: bytes, kernel: str, folder: Path) -> list[Instruction]:
    """Return nvdisasm's instructions of *kernel* without the compiler's subroutines."""
    file = folder / "dumped.cubin"
    file.write_bytes(cubin)
    command = [nvidia_tool("nvdisasm"), "--print-code", "--no-dataflow", file]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    section = said.partition(f"\n.text.{kernel}:\n")[2].partition("\n//-")[0]
    text = section.partition("\n$__internal_")[0]
    labels: dict[str, int] = {}
    rows: list[tuple[str, str, str]] = []
    for label, *row in re.findall(
        r"^(?:(\S+):|\s+/\*[0-9a-f]+\*/\s+(?:@(\S+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;.*)$",
        text,
        re.MULTILINE,
    ):
        if label:
            labels[label] = len(rows)
        else:
            rows.append(tuple(row))
    return [
        Instruction(
            operation,
            operands,
            labels.get(to[1]) if (to := re.search(r"`\((\S+)\)", operands)) else None,
            bool(guard) or re.match(r"!?U?P\d,", operands) is not None,
        )
        for guard, operation, operands in rows
    ]


def objdump_instructions(hsaco: bytes, arch: str, folder: Path) -> list[Instruction]:
    """Return llvm-objdump's instructions of the only kernel of *hsaco*."""
    file = folder / "dumped.hsaco"
    file.write_bytes(hsaco)
    command = ["llvm-objdump", "--disassemble", f"--mcpu={arch}", file]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = re.findall(
        r"^\t(\w+) *(.*?) *// ([0-9A-F]+): [^<\n]*(?:<\w+\+(\w+)>)?", said, re.MULTILINE
    )
    numbers = {int(address, 16) - int(rows[0][2], 16): n for n, (*_, address, _) in enumerate(rows)}
    return [
        Instruction(
            operation,
            operands,
            numbers[int(to, 16)] if to else None,
            operation.startswith("s_cbranch"),
        )
        for operation, operands, _, to in rows
    ]


def successors(instructions: Sequence[Instruction]) -> list[list[int]]:
    """Return the numbers of the instructions that can follow each instruction."""
    branches = ("BRA", "CALL", "s_branch", "s_cbranch")
    following = []
    for number, instruction in enumerate(instructions):
        target = instruction.target if instruction.operation.startswith(branches) else None
        ends = instruction.operation in ("EXIT", "s_endpgm")
        goes_on = instruction.conditional or (target is None and not ends)
        following.append([number + 1] * goes_on + [target] * (target is not None))
    return following


def issued_by_definition(
    following: Sequence[Sequence[int]],
    local: Mapping[int, int],
    kinds: Mapping[int, str],
    stalls: Sequence[int] | None,
) -> dict[str, int | None]:
    """Count by the definitions of dominance and natural loops, slowly.

    *following* has the instructions that can follow each one, *local* bytes of local memory,
    *kinds* the field that an instruction counts in as well, *stalls* the cycles from each to its
    next. Nothing is given where something can follow that is no instruction.
    """
    numbers = range(len(following))

    def found(start: int, edges: Sequence[Sequence[int]], without: int | None) -> set[int]:
        seen, left = set(), [start]
        while left:
            number = left.pop()
            if number not in seen and number != without:
                seen.add(number)
                left += edges[number] if number in numbers else []
        return seen

    reached = found(0, following, None)
    if not all(number in numbers for number in reached):
        return {}
    before: list[list[int]] = [[] for _ in numbers]
    for number in reached:
        for other in following[number]:
            before[other].append(number)
    loop: set[int] = set()
    for header in sorted({0, *(number for number in reached if len(before[number]) > 1)}):
        others = found(0, following, header)
        latches = [number for number in before[header] if number not in others]
        body = {header}.union(*(found(latch, before, header) for latch in latches))
        loop = max(loop, body if latches else set(), key=len)
    counted = loop or reached
    return {
        "instructions": len(reached - loop),
        "loop_instructions": len(loop) or None,
        "stall_cycles": None if stalls is None else sum(stalls[number] for number in counted),
        "local_traffic": sum(local.get(number, 0) for number in counted),
        **Counter(kind for number, kind in kinds.items() if number in counted),
    }


def assemble_llvm(text: str, arch: str) -> tuple[bytes, str]:
    """Return the hsaco and the assembly that Triton's LLVM makes of LLVM IR *text*."""
    from triton._C.libtriton import llvm

    llvm.init_targets()
    backend = make_backend(gpu_target(arch))
    options = backend.parse_options({"enable_fp_fusion": True})
    assembly = backend.make_amdgcn(text, {}, options)
    return backend.make_hsaco(assembly, {}, options), assembly
