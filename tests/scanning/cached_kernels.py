"""Kernels that tests compile into a cache of Triton's, for GPUs that are not here."""

# ruff: noqa: ANN001, ANN201, N803

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def scale(X, Y, N, BLOCK_SIZE: tl.constexpr, FACTOR: tl.constexpr):
    """Multiply a vector by a number."""
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < N
    tl.store(Y + offsets, tl.load(X + offsets, mask=mask) * FACTOR, mask=mask)


@triton.jit
def row_softmax(X, Y, N, BLOCK_SIZE: tl.constexpr, FACTOR: tl.constexpr):
    """Calculate a softmax of each row, with the whole row in registers."""
    offsets = tl.arange(0, BLOCK_SIZE)
    row = tl.program_id(0) * N
    values = tl.load(X + row + offsets, mask=offsets < N, other=-float("inf"))
    powers = tl.exp((values - tl.max(values, axis=0)) * FACTOR)
    tl.store(Y + row + offsets, powers / tl.sum(powers, axis=0), mask=offsets < N)


@triton.jit
def product(X, Y, N, BLOCK_SIZE: tl.constexpr, FACTOR: tl.constexpr):
    """Multiply two matrices, with asynchronous copies and tensor cores."""
    rows = tl.arange(0, BLOCK_SIZE)
    places = rows[:, None] * N + rows[None, :]
    total = tl.zeros((BLOCK_SIZE, BLOCK_SIZE), dtype=tl.float32)
    for start in range(0, N, BLOCK_SIZE):
        total += tl.dot(tl.load(X + start + places), tl.load(Y + start * N + places))
    tl.store(X + places, (total * FACTOR).to(tl.float16))


@triton.jit
def specialized(X, Y, N, BLOCK_SIZE: tl.constexpr, FACTOR: tl.constexpr):
    """Multiply two matrices with warp specialization."""
    rows = tl.make_tensor_descriptor(X, [N, N], [N, 1], [BLOCK_SIZE, BLOCK_SIZE])
    total = tl.zeros((BLOCK_SIZE, BLOCK_SIZE), tl.float32)
    for start in tl.range(0, N, BLOCK_SIZE, warp_specialize=True):
        total = tl.dot(rows.load([0, start]), rows.load([BLOCK_SIZE, start]).T, total)
    products = tl.make_tensor_descriptor(Y, [N, N], [N, 1], [BLOCK_SIZE, BLOCK_SIZE])
    products.store([0, 0], (total * FACTOR).to(tl.float16))


def compiled(kernel: Any, arch: str, block_size: int, dtype: str = "fp32", **options: int) -> Any:
    """Compile *kernel* for *arch* into the cache that the environment names."""
    target = (
        GPUTarget("hip", arch, 64) if arch.startswith("gfx") else GPUTarget("cuda", int(arch), 32)
    )
    types = (f"*{dtype}", f"*{dtype}", "i32", "constexpr", "constexpr")
    source = ASTSource(
        fn=kernel,
        signature=dict(zip(kernel.arg_names, types, strict=True)),
        constexprs={(3,): block_size, (4,): 2},
        attrs={(place,): [["tt.divisibility", 16]] for place in (0, 1, 2)},
    )
    return triton.compile(source, target=target, options=options)
