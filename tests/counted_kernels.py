"""Kernels whose launches the tests of work/ count."""

import triton
import triton.language as tl


@triton.jit
def multiply(a, b, c, m, n, k, stride, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        left = tl.load(
            a + row[:, None] * stride + inner[None, :],
            (row[:, None] < m) & (inner[None, :] < k),
            0.0,
        )
        right = tl.load(
            b + inner[:, None] * stride + (column % n)[None, :], inner[:, None] < k, 0.0
        )
        total = tl.dot(left, right, total)
    tl.store(
        c + row[:, None] * stride + column[None, :],
        total.to(tl.float16),
        (row[:, None] < m) & (column[None, :] < n),
    )


@triton.jit
def gather(x, index, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    rows = tl.load(index + at, at < n, 0)
    tl.store(out + at, tl.load(x + rows * 100, at < n), at < n)


@triton.jit
def bags(x, offsets, out, B: tl.constexpr):
    """Sum the blocks from one offset to the next."""
    bag, inner = tl.program_id(0), tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for row in range(tl.load(offsets + bag), tl.load(offsets + bag + 1)):
        total += tl.load(x + row * B + inner)
    tl.store(out + bag * B + inner, total)


@triton.jit
def copy_block(x, y, rows, columns, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N])
    target = tl.make_tensor_descriptor(y, [rows, columns], [columns, 1], [M, N])
    at = tl.program_id(0) * M
    for start in range(0, columns, N):
        target.store([at, start], source.load([at, start]))


@triton.jit
def helper(x, at):
    return tl.load(x + at) * 2


@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    for start in range(0, n, B):
        tl.store(y + start + at, helper(x, start + at))


@triton.jit
def copy(x, y, n, B: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, at < n), at < n)


@triton.jit
def running(x, n, B: tl.constexpr):
    at = tl.cumsum(tl.full((B,), n, tl.int32), 0)
    tl.store(x + at, 1.0)


@triton.jit
def two_passes(x, y, n, B: tl.constexpr):
    row = tl.program_id(0) * n
    total = tl.zeros((B,), tl.float32)
    for start in range(0, n, B):
        total += tl.load(x + row + start + tl.arange(0, B)).to(tl.float32)
    mean = tl.sum(total) / n
    for start in range(0, n, B):
        tile = tl.load(x + row + start + tl.arange(0, B))
        tl.store(y + row + start + tl.arange(0, B), tile - mean)


@triton.jit
def row_sums(x_ptr, y_ptr, n_cols, limit_ptr, BLOCK: tl.constexpr, BY_VALUE: tl.constexpr):
    """Sum a row block by block; the number of blocks may come from memory."""
    row = tl.program_id(0)
    total_ = tl.zeros((BLOCK,), tl.float32)
    end = n_cols
    if BY_VALUE:
        end = tl.load(limit_ptr)
    for start in range(0, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total_ += tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + row, tl.sum(total_))


@triton.jit
def halve(x, y, B: tl.constexpr):
    """Halve numbers until none exceeds 1."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    numbers = tl.load(x + at)
    while tl.max(numbers, axis=0) > 1:
        numbers = numbers // 2
    tl.store(y + at, numbers)


@triton.jit
def first_rows(x, length, y, B: tl.constexpr):
    """Copy a number of rows that comes from memory."""
    row = tl.program_id(0)
    if row >= tl.load(length):
        return
    tl.store(y + row * B + tl.arange(0, B), tl.load(x + row * B + tl.arange(0, B)))


@triton.jit
def one_of_two(x, y, z, first, B: tl.constexpr):
    """Copy a row of x in the first programs, and of y in the others."""
    row = tl.program_id(0)
    source = x if row < first else y
    at = row * B + tl.arange(0, B)
    tl.store(z + at, tl.load(source + at))


@triton.jit
def one_by_a_flag(x, y, z, flags, B: tl.constexpr):
    """Copy a row of x or y, depending on a number in memory."""
    row = tl.program_id(0)
    source = x if tl.load(flags + row) > 0 else y
    at = row * B + tl.arange(0, B)
    tl.store(z + at, tl.load(source + at))


@triton.jit
def one_and_either(x, y, z, first, B: tl.constexpr):
    """Add a row of x to one of x in the first programs, and to one of y in the others."""
    row = tl.program_id(0)
    source = x if row < first else y
    at = row * B + tl.arange(0, B)
    tl.store(z + at, tl.load(source + at) + tl.load(x + at))


@triton.jit
def take_pieces(x, y, counter, pieces, B: tl.constexpr):
    """Copy pieces of x, where each program takes the next free piece."""
    piece = tl.program_id(0)
    while piece < pieces:
        at = piece * B + tl.arange(0, B)
        tl.store(y + at, tl.load(x + at))
        piece = tl.num_programs(0) + tl.atomic_add(counter, 1, sem="relaxed")


@triton.jit
def last_sums(x, sums, y, counter, P: tl.constexpr, B: tl.constexpr):
    """Sum a row of x in each program, and all these sums in the last program."""
    row = tl.program_id(0)
    tl.store(sums + row, tl.sum(tl.load(x + row * B + tl.arange(0, B)), 0))
    if tl.atomic_add(counter, 1) == tl.num_programs(0) - 1:
        tl.store(y, tl.sum(tl.load(sums + tl.arange(0, P)), 0))


@triton.jit
def add_alone(x, y, lock, B: tl.constexpr):
    """Add a row of x to y, one program after another."""
    at = tl.arange(0, B)
    found = tl.load(x + tl.program_id(0) * B + at)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(y + at, tl.load(y + at) + found)
    tl.atomic_xchg(lock, 0)


@triton.jit
def add_to_next(x, y, flags, B: tl.constexpr):
    """Add a row of x to the sum that the program before has stored in a row of y."""
    row, at = tl.program_id(0), tl.arange(0, B)
    found = tl.load(x + row * B + at)
    while tl.load(flags + row, volatile=True) != 1:
        pass
    tl.store(y + (row + 1) * B + at, tl.load(y + row * B + at) + found)
    tl.store(flags + row + 1, 1)


@triton.jit
def first_zero(x, y, B: tl.constexpr):
    """Find the first zero of a row of x."""
    row = tl.program_id(0)
    at = row * B
    while tl.load(x + at) != 0:
        at += 1
    tl.store(y + row, at)


@triton.jit
def renamed(x, q, y, n, pair, B: tl.constexpr):
    """Let q be x where n is above 5."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    if n > 5:
        q = x
    total = tl.load(q + at) + tl.load(x + 2 * B + at) + tl.load(pair[0] + at, at < pair[1])
    tl.store(y + at, total + tl.load(pair[2] + at))


@triton.jit
def waiting(x, flags, y, B: tl.constexpr):
    """Load flags by inline assembly."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    flag = tl.inline_asm_elementwise(
        "ld.global.acquire.gpu.b32 $0, [$1];", "=r,l", [flags + at], tl.int32, is_pure=False, pack=1
    )
    tl.store(y + at, tl.load(x + at) + flag)


@triton.jit
def columns(x, y, n, stride, B: tl.constexpr):
    """Put two columns of x side by side."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at * 2, tl.load(x + at * stride, at < n), at < n)
    tl.store(y + at * 2 + 1, tl.load(x + at * stride + 1, at < n), at < n)


@triton.jit
def sum_while(x, lengths, y, B: tl.constexpr):
    """Sum blocks while there are fewer than a number in memory says."""
    inner, total, block = tl.arange(0, B), tl.zeros((B,), tl.float32), 0
    while block < tl.load(lengths + tl.program_id(0)):
        total += tl.load(x + block * B + inner)
        block += 1
    tl.store(y + tl.program_id(0) * B + inner, total)


@triton.jit
def sum_to_longest(x, lengths, y, B: tl.constexpr, N: tl.constexpr):
    """Sum as many running sums as the greatest of a program's N lengths says."""
    program = tl.program_id(0)
    length = tl.max(tl.load(lengths + program * N + tl.arange(0, N)), 0)
    total = tl.zeros([B], tl.float32)
    for block in range(length):
        total += tl.cumsum(tl.load(x + block * B + tl.arange(0, B)), 0)
    tl.store(y + program * B + tl.arange(0, B), total)


@triton.jit
def sum_blocks(x, lengths, y, B: tl.constexpr):
    """Sum as many blocks as a number in memory says."""
    inner, total = tl.arange(0, B), tl.zeros((B,), tl.float32)
    for block in range(tl.load(lengths + tl.program_id(0))):
        total += tl.load(x + block * B + inner)
    tl.store(y + tl.program_id(0) * B + inner, total)


@triton.jit
def sum_most(x, lengths, y, B: tl.constexpr):
    """Sum as many blocks as the largest of some numbers in memory says."""
    inner, total = tl.arange(0, B), tl.zeros((B,), tl.float32)
    for block in range(tl.max(tl.load(lengths + inner))):
        total += tl.load(x + block * B + inner)
    tl.store(y + tl.program_id(0) * B + inner, total)


@triton.jit
def escape(x, y, B: tl.constexpr):
    """Square numbers 50 times, or until one is large."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    start = tl.load(x + at)
    numbers, step = start, 0
    while (step < 50) & (tl.max(numbers, axis=0) < 4.0):
        numbers = numbers * numbers + start
        step += 1
    tl.store(y + at, numbers)


@triton.jit
def offsets(out, ends, order, B: tl.constexpr):
    """Write the length of each row, in the given order if there is any."""
    row = tl.program_id(0) if order is None else tl.load(order + tl.program_id(0))
    start = tl.zeros([], dtype=ends.dtype.element_ty) if row == 0 else tl.load(ends + row - 1)
    tl.store(out + row + tl.arange(0, B), tl.load(ends + row) - start)


@triton.jit
def by_the_largest(x, table, y, B: tl.constexpr):
    """Look up a number at the place of the largest one of a row."""
    row = tl.program_id(0)
    place = tl.argmax(tl.load(x + row * B + tl.arange(0, B)), 0)
    tl.store(y + row, tl.load(table + place))


@triton.jit
def paged(x, pages, lengths, y, most, D: tl.constexpr, B: tl.constexpr, wrap: tl.constexpr = 0):
    """Multiply the rows of a sequence, whose places a table gives, with each other.

    With *wrap*, elements of x are numbered modulo that.
    """
    row, part = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + row)
    inside = tl.arange(0, D)
    total = tl.zeros((B, B), tl.float32)
    for start in range(part * B, length, B * tl.num_programs(1)):
        at = start + tl.arange(0, B)
        page = tl.load(pages + row * most + at, at < length, 0)
        place = page[:, None] * D + inside[None, :]
        if wrap:
            place %= wrap
        keys = tl.load(x + place, at[:, None] < length, 0.0)
        total = tl.dot(keys, tl.trans(keys), total)
    to = (row * tl.num_programs(1) + part) * B * B
    tl.store(y + to + tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :], total)


@triton.jit
def windows(x, y, size, B: tl.constexpr):
    """Add each block of x, which has *size* elements and begins again at its end, to the next."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at % size) + tl.load(x + (at + B) % size))


@triton.jit
def in_step(x, y, B: tl.constexpr):
    """Copy a block, with a barrier between the load and the store."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    values = tl.load(x + at)
    tl.debug_barrier()
    tl.store(y + at, values)


@triton.jit
def copied_column(x, y, stride, B: tl.constexpr):
    """Copy a part of a column of a matrix."""
    row = tl.program_id(0) * B + tl.arange(0, B)
    at = row * stride + tl.program_id(1)
    tl.store(y + at, tl.load(x + at))


@triton.jit
def scatter(x, index, y, B: tl.constexpr):
    """Store each element of x where its index says."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + tl.load(index + at), tl.load(x + at))


@triton.jit
def decode(codes, levels, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(levels + tl.load(codes + at)))


@triton.jit
def chase(steps, x, out, n):
    place = tl.program_id(0)
    for _ in range(n):
        place = tl.load(steps + place)
    tl.store(out + tl.program_id(0), tl.load(x + place))
