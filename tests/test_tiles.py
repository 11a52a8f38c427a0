"""The constexprs of a kernel that are sizes of tiles."""

from __future__ import annotations

import launched_kernels
import triton
import triton.language as tl

from occupancy_lab.tiles import tile_names


@triton.jit
def helper(x, SIZE: tl.constexpr, TIMES: tl.constexpr):  # noqa: ANN001, ANN201, N803 - a kernel
    """Return x and a tile, several times."""
    return x + tl.arange(0, SIZE) * TIMES


@triton.jit
def handing(x_ptr, n, FLAG: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr, OTHER: tl.constexpr):  # noqa: ANN001, ANN201, N803 - a kernel
    """Have a tile made elsewhere."""
    at = helper(x_ptr, TILE, TIMES=FLAG)
    total = tl.zeros([OTHER], dtype=tl.float32)
    tl.store(at, min(n, GROUP) + tl.sum(total))


def test_tiles_are_what_shapes_are_made_of() -> None:
    """Sizes of tl.arange and tl.zeros and what is handed on as one are; a number of a group is none."""
    assert tile_names(handing) == {"TILE", "OTHER"}
    assert tile_names(launched_kernels.matmul) == {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"}
    assert tile_names(launched_kernels.layer_norm) == {"BLOCK_SIZE"}
