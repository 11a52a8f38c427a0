"""Fused softmax of long rows: several resident programs share a row and read and write it once.

Each program keeps its part in registers, tells the others its maximum and its sum of exponentials
in one 64-bit word, and waits for theirs. They wait for each other inside one launch, so all that
are launched must be resident: the launch is cooperative, which the driver refuses where they are
not, and num_programs is exactly what fits. A program takes the parts of rows in their order, the
next one when it is done with its own, and so never waits for a part that nobody has taken.

What that brings on an H200 (Triton 3.6, 2026-11-22; shares of a copy of the same matrix, and
torch.softmax's): 8192 x 32768 float32 0.98 (0.63), 6000 x 20000 float32 0.97 (0.67), 4096 x 50257
float32 0.95 (0.51), 512 x 65536 float32 0.94 (0.48), 2048 x 65536 bfloat16 0.94 (0.50), 4096 x
50264 bfloat16 0.94 (0.54), 1202 x 42819 bfloat16 0.93 (0.52), 85 x 175824 float16 0.89 (0.37), 168
x 93861 float16 0.85 (0.41), 256 x 65536 bfloat16 0.84 (0.50).

What was tried on the way, in shares or us of the kernel as it was then:

- Parts that a program takes in turns fixed before the launch: 4096 x 131072 float32 0.92 in the
  place of 0.98, as the multiprocessors are not equally near to the memory. Triton then copies the
  next part ahead, which 16-bit rows gained by (2048 x 65536 0.92 for 0.89) until they were packed.
- 16-bit elements that stay packed while a program waits, 128 a thread: 4096 x 50264 bfloat16 took
  235 us with float32 kept and 64 a thread, 214 us so.
- A limit on registers (maxnreg), 32 beside those of the elements: 679 x 39431 float32 59.3 us, and
  60.8 us with the 121 to 127 that ptxas takes unasked. For 16-bit elements in whole chunks 24 are
  enough: 4096 x 50264 bfloat16 0.94 in the place of 0.93. With 16 all spill and take 3 % longer. In
  rows of other lengths 24 gain 1 %, but some spill, on compute capability 10.0 in every pass.
- 64 elements a thread: 4096 x 50257 float32 0.95, and 0.89 with 32. A thread's other registers are
  the same, so that more of an SM's registers hold elements.
- What the words cost: without waiting for them bfloat16 would reach 0.95. Stores in the place of
  atomics took longer to be seen (1202 x 42819 bfloat16 186 us for 129), as did taking the next part
  before its turn (2048 x 65536 bfloat16 152 us for 147), or reading a part a second time instead of
  keeping it (151 us). Clearing the words in the last program cost 0.7 us for every 1024.
- num_ctas: Triton 3.6 and 3.7 refuse a row that is spread over the CTAs of a cluster
  (TritonGPUPlanCTAPass fails), in one dimension and in two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl
from triton.language.target_info import is_cuda

from occupancy_lab.errors import refuse
from occupancy_lab.kernel import OPTIONS, Grid, Kernel, workspace_of
from occupancy_lab.kernels.softmax import ALIKE, memory_steps, reference, rows_alike
from occupancy_lab.kernels.softmax_pieces import (
    block_sizes,
    chunk_of,
    chunks_of,
    elements_per_thread,
    exponential,
    load_edges,
    load_pieces,
    padded_cols,
    quotient,
    registers_of,
    share,
    store_edges,
    store_pieces,
    summarize,
)
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    import torch


@triton.jit
def exchange(words_ptr, part, top, total, PARTS: tl.constexpr, PARTS_POWER: tl.constexpr):
    """Tell the row's other programs the maximum and the sum of a part; return those of the row."""
    high = top.to(tl.int32, bitcast=True).to(tl.int64) << 32
    word = high | (total.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)
    tl.atomic_xchg(words_ptr + part, word, sem="relaxed")
    # The word is the whole message, so that no other write has to be seen with it.
    parts = tl.arange(0, PARTS_POWER)
    word_ptr = words_ptr + tl.minimum(parts, PARTS - 1)
    if is_cuda():
        # Reads a word until it is not 0; after 100 million times, a minute, it fails the launch.
        words = tl.inline_asm_elementwise(
            """{
                .reg .pred %again, %late;
                .reg .u32 %polls;
                mov.u32 %polls, 0;
                wait_${:uid}:
                ld.relaxed.gpu.global.b64 $0, [$1];
                setp.eq.b64 %again, $0, 0;
                add.u32 %polls, %polls, 1;
                setp.gt.u32 %late, %polls, 100000000;
                @%late trap;
                @%again bra wait_${:uid};
            }""",
            "=l,l",
            [word_ptr],
            dtype=tl.int64,
            is_pure=False,
            pack=1,
        )
    else:
        words = tl.load(word_ptr, volatile=True)
        while tl.min((words != 0).to(tl.int32), axis=0) == 0:
            words = tl.load(word_ptr, volatile=True)
    tops = (words >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    totals = tl.where(parts < PARTS, words.to(tl.int32).to(tl.float32, bitcast=True), 0.0)
    row_top = tl.max(tops, axis=0)
    return row_top, tl.sum(totals * exponential(tops, row_top, tl.float32), axis=0)


@triton.jit
def softmax_part(
    output_ptr, input_ptr, words_ptr, unused_ptr, input_row_stride, output_row_stride, n_cols,
    row, part, PARTS: tl.constexpr, PARTS_POWER: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    PIECE_SIZE: tl.constexpr, CHUNK: tl.constexpr, WHOLE_CHUNKS: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Softmax of one part of a row; the row's edges are with its first part.

    The word that the part had in the launch before is cleared for the next one.
    """
    dtype: tl.constexpr = input_ptr.dtype.element_ty
    start, shift, low, high = chunks_of(row, input_row_stride, n_cols, CHUNK, WHOLE_CHUNKS)
    row_ptr = input_ptr + start
    first = part * BLOCK_SIZE
    loaded = load_pieces(row_ptr, first, low, high, BLOCK_SIZE, PIECE_SIZE)
    head = 0.0
    tail = 0.0
    if not WHOLE_CHUNKS:
        edge_cols = tl.where(part == 0, n_cols, 0)
        head, tail = load_edges(row_ptr, shift, low, high, edge_cols, CHUNK)
    top, total, _, kept = summarize(loaded, head, tail, n_cols, dtype, WHOLE_CHUNKS, PACKED)
    row_words = row.to(tl.int64) * PARTS
    tl.store(unused_ptr + row_words + part, tl.zeros((), tl.int64))
    row_top, row_total = exchange(words_ptr + row_words, part, top, total, PARTS, PARTS_POWER)
    scale, rest = quotient(exponential(top, row_top, tl.float32), row_total, 0.0)
    output_row_ptr = output_ptr + row.to(tl.int64) * output_row_stride // CHUNK * CHUNK
    store_pieces(
        output_row_ptr, kept, top, scale, rest, first, low, high, BLOCK_SIZE, PIECE_SIZE, PACKED
    )
    if not WHOLE_CHUNKS:
        head = share(exponential(head, top, dtype), scale, rest, dtype)
        tail = share(exponential(tail, top, dtype), scale, rest, dtype)
        store_edges(output_row_ptr, head, tail, shift, low, high, edge_cols, CHUNK)


@triton.jit
def softmax_cooperative_kernel(
    output_ptr,
    input_ptr,
    workspace_ptr,
    input_row_stride,
    output_row_stride,
    n_cols,
    n_rows,
    PARTS: tl.constexpr,
    PARTS_POWER: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PIECE_SIZE: tl.constexpr,
    CHUNK: tl.constexpr,
    WHOLE_CHUNKS: tl.constexpr,
    PACKED: tl.constexpr,
):
    """Softmax of parts `program_id` and on, all parts of a row before those of the next.

    The workspace is 0 at first. It begins with the parts that were taken beyond each program's
    first, the programs that are done, and the launches before; then it has a word for each part,
    twice: a launch uses the one set and clears the other, which the launch before used.
    """
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    n_parts = n_rows * PARTS
    launches = tl.load(workspace_ptr + 2)
    all_words_ptr = workspace_ptr.to(tl.pointer_type(tl.int64)) + 16
    words_ptr = all_words_ptr + launches % 2 * n_parts
    unused_ptr = all_words_ptr + (1 - launches % 2) * n_parts
    index = program
    while index < n_parts:
        softmax_part(
            output_ptr, input_ptr, words_ptr, unused_ptr, input_row_stride, output_row_stride,
            n_cols, index // PARTS, index % PARTS,
            PARTS, PARTS_POWER, BLOCK_SIZE, PIECE_SIZE, CHUNK, WHOLE_CHUNKS, PACKED,
        )  # fmt: skip
        index = programs + tl.atomic_add(workspace_ptr, 1, sem="relaxed")
    if tl.atomic_add(workspace_ptr + 1, 1) == programs - 1:
        tl.store(workspace_ptr, 0)
        tl.store(workspace_ptr + 1, 0)
        tl.store(workspace_ptr + 2, launches + 1)


MOST_PARTS = 512
"""The most parts of a row: a program loads all their words at once."""


def softmax_cooperative(x: torch.Tensor, config: Config, num_programs: int) -> torch.Tensor:
    """Return a new matrix with the softmax of each row of *x*, a matrix on the current GPU.

    *x* is copied first if its rows are not aligned to 16 bytes as those of the new matrix are.
    Raises InputError if *num_programs* is less than the programs that share a row, or if BLOCK_SIZE
    makes too many parts; Triton raises if the GPU cannot hold *num_programs* programs at once.
    """
    import torch

    x = rows_alike(x)
    problem = Problem(*x.shape, str(x.dtype).removeprefix("torch."))
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if num_programs < together(problem, config):
        refuse(
            f"num_programs is {num_programs}, and {together(problem, config)} programs of"
            f" {config.block_size} elements share a row and wait for each other"
        )
    if y.numel() > 0:
        stream = torch.cuda.current_stream(x.device).cuda_stream
        words = workspace_of(x.device, stream, workspace(problem, config))
        named = constexprs(problem, config)
        if torch.version.hip:
            del named["maxnreg"]  # an option of NVIDIA's compiler alone
        softmax_cooperative_kernel[(min(num_programs, work(problem, config)),)](
            *passed(y, x, words),
            num_warps=config.num_warps,
            **named,
            **KERNEL.options,
            **OPTIONS,
        )
    return y


def passed(
    y: torch.Tensor, x: torch.Tensor, workspace: torch.Tensor
) -> tuple[torch.Tensor | int, ...]:
    """Return what is passed by position: output, input, workspace, row strides and the shape."""
    return (y, x, workspace, x.stride(0), y.stride(0), x.shape[1], x.shape[0])


def together(problem: Problem, config: Config) -> int:
    """Return how many programs share a row."""
    return triton.cdiv(padded_cols(problem), max(config.block_size, 1))


def work(problem: Problem, config: Config) -> int:
    """Return how many parts all rows have."""
    return problem.rows * together(problem, config)


def workspace(problem: Problem, config: Config) -> int:
    """Return the int32 elements of 128 bytes of counters and of two words per part."""
    return 32 + 4 * work(problem, config)


def constexprs(problem: Problem, config: Config) -> dict[str, int]:
    """Return what is passed by name; raise InputError if BLOCK_SIZE makes no parts or too many."""
    chunk, parts = chunk_of(problem), together(problem, config)
    least = LEAST_BYTES // problem.item_bytes
    if config.block_size % least or config.block_size < least or parts > MOST_PARTS:
        needed = -(-problem.cols // (MOST_PARTS * least)) * least
        refuse(
            f"BLOCK_SIZE is {config.block_size}; softmax_cooperative takes a multiple of {least}"
            f" that a row of {problem.cols} has at most {MOST_PARTS} of, such as"
            f" {max(default_config(problem, 0).block_size, needed)}"
        )
    packed, whole = problem.item_bytes < 4, problem.cols % chunk == 0
    beside = 24 if packed and whole else 32
    return {
        "PARTS": parts,
        "PARTS_POWER": 1 << (parts - 1).bit_length(),
        "BLOCK_SIZE": config.block_size,
        "PIECE_SIZE": 32 * config.num_warps * chunk,
        "CHUNK": chunk,
        "WHOLE_CHUNKS": whole,
        "PACKED": packed,
        # ptxas would take up to 60 registers beside those of the elements, and an SM would hold a
        # third fewer programs.
        "maxnreg": min(-(-(registers_of(problem, config) + beside) // 8) * 8, 255),
    }


LEAST_BYTES = 512
"""Parts are multiples of this: what a warp loads at once."""
LEAST_COLS = 8192
"""The shortest row that is worth sharing."""


def configs(problem: Problem) -> tuple[Config, ...]:
    """Return parts of 2048 to 16384 elements, from 48 elements to 64 registers per thread."""
    if problem.cols < LEAST_COLS:
        return ()
    sizes = {
        size
        for most in (2048, 4096, 8192, 16384)
        for size in block_sizes(-(-problem.cols // -(-problem.cols // most)), problem)[-2:]
    }
    return tuple(
        one
        for size in sorted(sizes)
        for num_warps in (2, 4)
        if elements_per_thread(one := Config(size, num_warps, 1)) >= 48
        and registers_of(problem, one) <= 64
        and together(problem, one) in range(2, MOST_PARTS + 1)
    ) or (default_config(problem, 0),)


def default_config(problem: Problem, max_shared: int) -> Config:
    """Return 64 elements per thread, and parts so large that at most 128 programs share a row."""
    block_size = 4096
    while block_size * 128 < problem.cols and block_size < 16384:
        block_size *= 2
    return Config(block_size, num_warps=block_size // 2048, num_stages=1)


KERNEL = Kernel(
    name="softmax_cooperative",
    title="Fused softmax, several resident programs a row",
    grid=Grid.PERSISTENT,
    function=softmax_cooperative_kernel,
    constexprs=constexprs,
    default_config=default_config,
    memory_steps=memory_steps,
    run=softmax_cooperative,
    passed=passed,
    reference=reference,
    compared_with="softmax_naive",
    alike=ALIKE,
    options={"launch_cooperative_grid": True},
    configs=configs,
    work=work,
    together=together,
    workspace=workspace,
    rows_alike=True,
)
