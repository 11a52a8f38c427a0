"""Constexprs of a kernel that are sizes of tiles."""

import launched_kernels

from occupancy_lab.tiles import tile_names


def test_tiles_are_what_shapes_are_made_of() -> None:
    """A tile size makes a tile, or is passed to a function that does; a group's size does not."""
    assert tile_names(launched_kernels.handing) == {"TILE", "OTHER"}
    assert tile_names(launched_kernels.matmul) == {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"}
    assert tile_names(launched_kernels.layer_norm) == {"BLOCK_SIZE"}
