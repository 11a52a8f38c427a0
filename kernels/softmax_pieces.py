"""Fused softmax, one program a row, the row in pieces: powers of two that add up to BLOCK_SIZE.

What it does that `softmax_row` does not, and what that brings on an H200 (Triton 3.6, 2026-11-22;
shares are of a copy of the same matrix; what is not in reports/data was tried on the way):

- Rows of 781 or 50257 columns do not pay for 1024 or 65536. 8192 x 5003 float16 had 0.83 in
  4096 + 1024, and 0.69 in 8192 with all else alike.
- It loads and stores aligned chunks of 16 bytes, wherever a row begins, and the few elements before
  the first and after the last one by one. 12000 x 3000 float16: 1.06, where `softmax_row` has 0.79.
  With a mask on every element instead of on chunks, 65536 x 781 bfloat16 had 0.92, and 0.99 so.
- Two 16-bit elements stay in one register, as loaded, until they are written, and their
  exponentials are computed twice. Their maximum is taken by two, and what is written is computed of
  a sum with a 0 that the compilers do not know: ptxas keeps what it knows to be equal in float32,
  128 elements a thread in 167 registers in the place of 96. 2413 x 8768 bfloat16 1.10, and 0.93
  before that; 4379 x 16656 float16 0.99 and 0.90.
- No piece is larger than what the threads load at once, and maxima and sums are those of pieces
  before they are those of threads: 28672 float16 elements spilled as 16384 + 8192 + 4096.
- A multiply-add and a power of 2 in the place of `tl.exp`, whose handling of tiny numbers takes
  three instructions more of each element: 30000 x 4288 bfloat16 had 0.92 with `tl.exp`, 1.02 so.
- float32 is as exact as torch.softmax (7.0e-8 and 7.1e-8 of 4096 x 781): the exponential is CUDA's
  expf, and a result is multiplied by a quotient in two floats, two instructions instead of four. A
  power of 2 that is put right after it was taken had 7.9e-8, and 13e-8 without that.

What did not help: loads that L2 evicts first (0 to 15 % slower), and a second load of the row in
the place of registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq, is_hip

from occupancy_lab.errors import refuse
from occupancy_lab.kernel import Grid, Kernel
from occupancy_lab.kernels.softmax import ALIKE, launch, memory_steps, reference
from occupancy_lab.kernels.softmax_row import passed
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    import torch


@triton.jit
def exponential(x, top, dtype: tl.constexpr):
    """The exponential of `x - top`, at most 0: as exact as CUDA's expf, or enough for 16 bits."""
    # A constant of the function's own: Triton's key of a kernel depends on the order in which
    # kernels are compiled where functions that they share use one of the module's.
    log2e: tl.constexpr = 1.4426950408889634
    if dtype == tl.float32:
        # 2 to a whole power, whose exponent is the low bits of a large number, times 2 to the rest.
        # Below -88 the whole power is 0.
        x = tl.maximum(x - top, -88.0, propagate_nan=tl.PropagateNan.ALL)
        shifted = tl.fma(x, log2e, 12583039.0)
        rest = tl.fma(x, 1.4426950216293335, 12583039.0 - shifted)
        power = tl.exp2(tl.fma(x, 1.925963033500501e-08, rest))
        power *= (shifted.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True)
    else:
        # Beyond 1e38 the product with log2(e) would be infinite, and what differs does by 1e35.
        scale = tl.where(tl.abs(top) > 1e38, log2e / 256, log2e)
        power = tl.exp2(tl.fma(x, scale, -(top * scale)))
    return power


@triton.jit
def quotient(scale, total, rest):
    """`scale / (total + rest)` as a float32 and what rounding takes from it."""
    reciprocal = 1.0 / total
    high = scale * reciprocal
    return high, (tl.fma(-high, total, scale) - high * rest) * reciprocal


@triton.jit
def exact_sum(a, b):
    """The sum of two float32 numbers and what rounding takes from it."""
    total = a + b
    shown = total - a
    return total, (a - (total - shown)) + (b - shown)


@triton.jit
def share(x, high, low, dtype: tl.constexpr):
    """`x` times a quotient, in float32 rounded once."""
    return tl.fma(x, high, x * low) if dtype == tl.float32 else x * high


@triton.constexpr_function
def pieces_of(block_size, piece_size):
    """Powers of two that add up to *block_size*, the largest first, and none above *piece_size*.

    That is what 32 threads of each warp load at once, and AMD's largest GPUs have 64.
    """
    most = 2 * piece_size if is_hip() else piece_size
    powers = [1 << bit for bit in reversed(range(block_size.bit_length())) if block_size >> bit & 1]
    return [min(power, most) for power in powers for _ in range(max(power // most, 1))]


@triton.jit
def chunks_of(row, row_stride, n_cols, CHUNK: tl.constexpr, WHOLE_CHUNKS: tl.constexpr):
    """Where a row starts, and, counted from the chunk that this is in, where chunks of its own do.

    The row starts at `start + shift`, and the chunks from `low` to `high` have no other elements.
    """
    offset = row.to(tl.int64) * row_stride
    start = offset // CHUNK * CHUNK
    shift = tl.zeros_like(row) if WHOLE_CHUNKS else (offset - start).to(tl.int32)
    low = (shift + CHUNK - 1) // CHUNK * CHUNK
    high = (shift + n_cols) // CHUNK * CHUNK
    return start, shift, low, high


@triton.jit
def edges_of(cols, shift, low, high, n_cols):
    """Whether `cols` lie before a row's whole chunks, columns after these, and whether they exist.

    Columns are counted from where the row starts, so that Triton sees no chunk in them, of which
    every thread would load the whole.
    """
    tail_cols = tl.maximum(high, low) - shift + cols
    return cols < tl.minimum(low - shift, n_cols), tail_cols, tail_cols < n_cols


@triton.jit
def load_edges(row_ptr, shift, low, high, n_cols, CHUNK: tl.constexpr):
    """The row's elements before its first whole chunk and after its last, -inf beside them."""
    cols = tl.arange(0, CHUNK)
    head_mask, tail_cols, tail_mask = edges_of(cols, shift, low, high, n_cols)
    head = tl.load(row_ptr + shift + cols, mask=head_mask, other=-float("inf"))
    tail = tl.load(row_ptr + shift + tail_cols, mask=tail_mask, other=-float("inf"))
    return head.to(tl.float32), tail.to(tl.float32)


@triton.jit
def store_edges(row_ptr, head, tail, shift, low, high, n_cols, CHUNK: tl.constexpr):
    """Write what `load_edges` read."""
    cols = tl.arange(0, CHUNK)
    head_mask, tail_cols, tail_mask = edges_of(cols, shift, low, high, n_cols)
    dtype: tl.constexpr = row_ptr.dtype.element_ty
    tl.store(row_ptr + shift + cols, head.to(dtype), mask=head_mask)
    tl.store(row_ptr + shift + tail_cols, tail.to(dtype), mask=tail_mask)


@triton.jit
def load_pieces(row_ptr, first, low, high, BLOCK_SIZE: tl.constexpr, PIECE_SIZE: tl.constexpr):
    """Elements `first` to `first + BLOCK_SIZE`, as stored: 16-bit ones by two in an int32."""
    sizes: tl.constexpr = pieces_of(BLOCK_SIZE, PIECE_SIZE)
    dtype: tl.constexpr = row_ptr.dtype.element_ty
    loaded = ()
    if dtype == tl.float32:
        for i in tl.static_range(len(sizes)):
            cols = first + tl.arange(0, sizes[i])
            mask = (cols >= low) & (cols < high)
            loaded += (tl.load(row_ptr + cols, mask=mask, other=-float("inf")),)
            first += sizes[i]
    else:
        pairs_ptr = row_ptr.to(tl.pointer_type(tl.int32))
        # Two times -inf: 0xFF80 in bfloat16, 0xFC00 in float16.
        nothing: tl.constexpr = -8323200 if dtype == tl.bfloat16 else -67044352
        for i in tl.static_range(len(sizes)):
            pairs = first // 2 + tl.arange(0, sizes[i] // 2)
            mask = (pairs >= low // 2) & (pairs < high // 2)
            loaded += (tl.load(pairs_ptr + pairs, mask=mask, other=nothing),)
            first += sizes[i]
    return loaded


@triton.jit
def floats(piece, dtype: tl.constexpr):
    """The float32 values of a loaded piece: one tensor, or the even and the odd elements."""
    if dtype == tl.float32:
        found = (piece,)
    elif dtype == tl.bfloat16:
        even = (piece << 16).to(tl.float32, bitcast=True)
        found = (even, (piece & -65536).to(tl.float32, bitcast=True))
    else:
        even = piece.to(tl.int16).to(tl.float16, bitcast=True)
        odd = (piece >> 16).to(tl.int16).to(tl.float16, bitcast=True)
        found = (even.to(tl.float32), odd.to(tl.float32))
    return found


@triton.jit
def larger(a, b, dtype: tl.constexpr):
    """The larger of the elements of two loaded pieces, which are as large as each other."""
    if dtype == tl.float32:
        found = tl.maximum(a, b)
    elif cuda_capability_geq(8, 0):
        found = tl.inline_asm_elementwise(
            "max.bf16x2 $0, $1, $2;" if dtype == tl.bfloat16 else "max.f16x2 $0, $1, $2;",
            "=r,r,r",
            [a, b],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    else:
        found = tl.zeros_like(a)
        for odd in tl.static_range(2):
            x = tl.maximum(floats(a, dtype)[odd], floats(b, dtype)[odd]).to(dtype)
            bits = x.to(tl.int16, bitcast=True).to(tl.int32)
            found |= bits << 16 if odd else bits & 0xFFFF
    return found


@triton.jit
def largest_of(piece, dtype: tl.constexpr):
    """The largest element of a loaded piece."""
    values = floats(piece, dtype)
    return tl.max(values[0] if len(values) == 1 else tl.maximum(values[0], values[1]), axis=0)


@triton.jit
def summarize(
    loaded, head, tail, n_cols,
    dtype: tl.constexpr, WHOLE_CHUNKS: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """The maximum, the sum of exponentials below it in two floats, and what makes the results.

    That is the exponentials or, PACKED, the pieces as they were loaded.
    """
    largest = loaded[0]
    # The lowest float32: an infinity, subtracted from another, would be NaN.
    top = -3.4028234663852886e38
    if not WHOLE_CHUNKS:
        top = tl.maximum(top, tl.max(tl.maximum(head, tail), axis=0))
    for i in tl.static_range(1, len(loaded)):
        if loaded[i].shape[0] == loaded[0].shape[0]:
            largest = larger(largest, loaded[i], dtype)
        else:
            top = tl.maximum(top, largest_of(loaded[i], dtype))
    top = tl.maximum(top, largest_of(largest, dtype))
    # Added to a piece, it makes one that the compiler does not know to be the same: what it knows,
    # it keeps as float32.
    zero = n_cols >> 30
    kept = ()
    total = 0.0
    if not WHOLE_CHUNKS:
        total = tl.sum(exponential(head, top, dtype) + exponential(tail, top, dtype), axis=0)
    for i in tl.static_range(len(loaded)):
        values = floats(loaded[i], dtype)
        numerators = (exponential(values[0], top, dtype),)
        both = numerators[0]
        if len(values) == 2:
            numerators += (exponential(values[1], top, dtype),)
            both += numerators[1]
        kept += (loaded[i] + zero,) if PACKED else (numerators,)
        if i == 0:
            totals = both
        elif loaded[i].shape[0] == loaded[0].shape[0]:
            totals += both
        else:
            total += tl.sum(both, axis=0)
    total, rest = exact_sum(tl.sum(totals, axis=0), total)
    return top, total, rest, kept


@triton.jit
def store_pieces(
    row_ptr, kept, top, scale, rest, first, low, high,
    BLOCK_SIZE: tl.constexpr, PIECE_SIZE: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Write what `summarize` kept, exponentials below `top`, times the quotient `scale, rest`."""
    sizes: tl.constexpr = pieces_of(BLOCK_SIZE, PIECE_SIZE)
    dtype: tl.constexpr = row_ptr.dtype.element_ty
    for i in tl.static_range(len(sizes)):
        numerators = kept[i]
        if PACKED:
            values = floats(kept[i], dtype)
            numerators = (exponential(values[0], top, dtype), exponential(values[1], top, dtype))
        y = share(numerators[0], scale, rest, dtype).to(dtype)
        if dtype != tl.float32:
            y = tl.interleave(y, share(numerators[1], scale, rest, dtype).to(dtype))
        cols = first + tl.arange(0, sizes[i])
        tl.store(row_ptr + cols, y, mask=(cols >= low) & (cols < high))
        first += sizes[i]


@triton.jit
def softmax_pieces_kernel(
    output_ptr,
    input_ptr,
    input_row_stride,
    output_row_stride,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    PIECE_SIZE: tl.constexpr,
    CHUNK: tl.constexpr,
    WHOLE_CHUNKS: tl.constexpr,
    PACKED: tl.constexpr,
):
    """Softmax of row `program_id`."""
    row = tl.program_id(0)
    dtype: tl.constexpr = input_ptr.dtype.element_ty
    start, shift, low, high = chunks_of(row, input_row_stride, n_cols, CHUNK, WHOLE_CHUNKS)
    row_ptr = input_ptr + start
    loaded = load_pieces(row_ptr, 0, low, high, BLOCK_SIZE, PIECE_SIZE)
    head = 0.0
    tail = 0.0
    if not WHOLE_CHUNKS:
        head, tail = load_edges(row_ptr, shift, low, high, n_cols, CHUNK)
    top, total, rest, kept = summarize(loaded, head, tail, n_cols, dtype, WHOLE_CHUNKS, PACKED)
    scale, rest = quotient(1.0, total, rest)
    output_row_ptr = output_ptr + row.to(tl.int64) * output_row_stride // CHUNK * CHUNK
    store_pieces(
        output_row_ptr, kept, top, scale, rest, 0, low, high, BLOCK_SIZE, PIECE_SIZE, PACKED
    )
    if not WHOLE_CHUNKS:
        head = share(exponential(head, top, dtype), scale, rest, dtype)
        tail = share(exponential(tail, top, dtype), scale, rest, dtype)
        store_edges(output_row_ptr, head, tail, shift, low, high, n_cols, CHUNK)


LEAST_PIECE_BYTES = 512
"""The bytes that a warp loads at once: a smaller piece would leave lanes without work."""
MOST_COLS = 32768
"""The longest row that is tried: an SM holds a single program of a longer one, which loads,
computes and stores in turn. 4096 x 50257 float32 takes 510 us so, and 429 us in
`softmax_cooperative`."""


def softmax_pieces(x: torch.Tensor, config: Config, num_programs: int) -> torch.Tensor:
    """Return a new matrix with the softmax of each row of *x*, a matrix on the current GPU.

    *x* is copied first if its rows are not aligned to 16 bytes as those of the new matrix are. As
    many programs as rows are launched, whatever *num_programs* says. Raises InputError if
    BLOCK_SIZE cannot hold a row.
    """
    return launch(KERNEL, config, x)


def chunk_of(problem: Problem) -> int:
    """Return the elements of 16 bytes."""
    return 16 // problem.item_bytes


def padded_cols(problem: Problem) -> int:
    """Return the columns of a row, rounded up to whole chunks."""
    chunk = chunk_of(problem)
    return triton.cdiv(problem.cols, chunk) * chunk


def elements_per_thread(config: Config) -> int:
    """Return the elements that each of a program's threads holds, with 32 threads per warp."""
    return config.block_size // (32 * config.num_warps)


def registers_of(problem: Problem, config: Config) -> int:
    """Return the registers that a thread's elements take in the form in which they are stored."""
    return elements_per_thread(config) * problem.item_bytes // 4


def constexprs(problem: Problem, config: Config) -> dict[str, int]:
    """Return what `softmax_pieces` passes by name; raise InputError if BLOCK_SIZE holds no row.

    16-bit elements stay packed from 32 per thread on.
    """
    chunk = chunk_of(problem)
    needed = padded_cols(problem)
    if config.block_size < needed or config.block_size % chunk:
        refuse(
            f"BLOCK_SIZE is {config.block_size}; softmax_pieces takes a multiple of {chunk} that"
            f" holds a row, such as {block_sizes(needed, problem)[0]}"
        )
    return {
        "BLOCK_SIZE": config.block_size,
        "PIECE_SIZE": 32 * config.num_warps * chunk,
        "CHUNK": chunk,
        "WHOLE_CHUNKS": problem.cols % chunk == 0,
        "PACKED": problem.item_bytes < 4 and elements_per_thread(config) >= 32,
    }


def block_sizes(needed: int, problem: Problem) -> tuple[int, ...]:
    """Return the least sums of three, two and one powers of two that hold *needed* elements."""
    least = LEAST_PIECE_BYTES // problem.item_bytes
    if needed <= least:
        return (triton.next_power_of_2(needed),)
    found = []
    for most in (3, 2, 1):
        block_size = -(-needed // least) * least
        while block_size.bit_count() > most:
            block_size += block_size & -block_size
        found.append(block_size)
    return tuple(dict.fromkeys(found))


def configs(problem: Problem) -> tuple[Config, ...]:
    """Return the two least sums of powers of two, from 16 elements to 64 registers per thread.

    The configurations that are left out won by 1.4 % at most on 97 matrices recorded on an H200.
    """
    if problem.cols > MOST_COLS:
        return ()
    return tuple(
        one
        for block_size in block_sizes(padded_cols(problem), problem)[:2]
        for num_warps in (1, 2, 4, 8, 16, 32)
        if num_warps == 1 or elements_per_thread(Config(block_size, num_warps, 1)) >= 16
        if registers_of(problem, one := Config(block_size, num_warps, 1)) <= 64
    )


def default_config(problem: Problem, max_shared: int) -> Config:
    """Return a sum of at most two powers of two, and 32 elements per thread or the next fewer."""
    sizes = block_sizes(padded_cols(problem), problem)
    block_size = sizes[min(1, len(sizes) - 1)]
    num_warps = min(triton.next_power_of_2(-(-block_size // 1024)), 32)
    return Config(block_size, num_warps, num_stages=1)


KERNEL = Kernel(
    name="softmax_pieces",
    title="Fused softmax, one program a row in several pieces",
    grid=Grid.ROWS,
    function=softmax_pieces_kernel,
    constexprs=constexprs,
    default_config=default_config,
    memory_steps=memory_steps,
    run=softmax_pieces,
    passed=passed,
    reference=reference,
    compared_with="softmax_naive",
    alike=ALIKE,
    configs=configs,
    rows_alike=True,
)
