"""Which configurations a search tries: the tiles that are free, and the steps between them."""

from __future__ import annotations

import launched_kernels
import pytest
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.tuning.space import free_tiles, larger, neighbours, tile_names

POWERS = st.integers(4, 10).map(lambda power: 2**power)
CONFIGS = st.fixed_dictionaries(
    {
        "A": POWERS,
        "B": POWERS,
        "num_warps": st.integers(0, 4).map(lambda power: 2**power),
        "num_stages": st.integers(1, 7),
        "FLAG": st.booleans(),
    }
)


@triton.jit
def helper(x, SIZE: tl.constexpr):  # noqa: ANN001, ANN201, N803 - a kernel
    """Return x and a tile."""
    return x + tl.arange(0, SIZE)


@triton.jit
def handing(x_ptr, n, GROUP: tl.constexpr, TILE: tl.constexpr, OTHER: tl.constexpr):  # noqa: ANN001, ANN201, N803 - a kernel
    """Have a tile made elsewhere."""
    at = helper(x_ptr, TILE)
    total = tl.zeros([OTHER], dtype=tl.float32)
    tl.store(at, min(n, GROUP) + tl.sum(total))


def test_tiles_are_what_shapes_are_made_of() -> None:
    """Sizes of tl.arange and tl.zeros and what is handed on are; a number of a group is none."""
    assert tile_names(handing) == {"TILE", "OTHER"}
    assert tile_names(launched_kernels.matmul) == {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"}
    assert tile_names(triton.autotune([], key=[])(launched_kernels.layer_norm)) == {"BLOCK_SIZE"}


@pytest.mark.parametrize(
    ("sizes", "free"),
    [((64, 128), True), ((64, 64), False), ((64, 96), False), ((64, None), False)],
)
def test_a_tile_is_free_where_its_author_varies_it(sizes: tuple[int, ...], *, free: bool) -> None:
    """Several sizes are the author's word that any is right, and each is a power of two."""
    configs = [{"TILE": size, "OTHER": 32, "GROUP": size} for size in sizes]
    assert free_tiles(handing, configs) == (["TILE"] if free else [])


@given(CONFIGS)
def test_neighbours_are_a_step_or_two_away(config: dict[str, int]) -> None:
    """Each keeps what is not searched, stays within what is tried, and differs in two at most."""
    found = list(neighbours(config, ["A", "B"]))
    assert len({repr(sorted(one.items())) for one in found}) == len(found)
    for one in found:
        changed = {name for name in config if one[name] != config[name]}
        assert 1 <= len(changed) <= 2
        assert "FLAG" not in changed
        assert all(
            one[name] in {config[name] * 2, config[name] // 2} for name in changed - {"num_stages"}
        )
        assert abs(one["num_stages"] - config["num_stages"]) <= 1
        assert 16 <= one["A"] <= 2**16
        assert 1 <= one["num_warps"] <= 16


@given(st.integers(1, 10**6), POWERS)
def test_a_larger_size_is_more_than_any_tile(n: int, tile: int) -> None:
    """No tile holds half of it, and Triton compiles the same for it."""
    found = larger({"N": n, "NAME": "x", "FLAG": True}, [{"A": tile}], ["A"])
    if found is None:
        assert n >= 2 * tile
        return
    assert found["N"] >= 2 * tile
    assert (found["N"] % 16 == 0) is (n % 16 == 0)
    assert (found["NAME"], found["FLAG"]) == ("x", True)
