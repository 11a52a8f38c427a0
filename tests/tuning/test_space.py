"""The configurations that a search tries: free tiles, and steps between configurations."""

import launched_kernels
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.tiles import tile_names
from occupancy_lab.tuning.space import free_tiles, larger, neighbours

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


@pytest.mark.parametrize(
    ("sizes", "free"),
    [((64, 128), True), ((64, 64), False), ((64, 96), False), ((64, None), False)],
)
def test_a_tile_is_free_where_its_author_varies_it(sizes: tuple[int, ...], *, free: bool) -> None:
    """A tile is free if its sizes are several powers of two."""
    configs = [{"TILE": size, "OTHER": 32, "GROUP": size} for size in sizes]
    assert free_tiles(tile_names(launched_kernels.handing), configs) == (["TILE"] if free else [])


@given(CONFIGS)
def test_neighbours_are_a_step_or_two_away(config: dict[str, int]) -> None:
    """Neighbours stay within limits and differ in two settings at most."""
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
    """No tile has half of it, and Triton compiles the same binary."""
    found = larger({"N": n, "NAME": "x", "FLAG": True}, [{"A": tile}], ["A"])
    if found is None:
        assert n >= 2 * tile
        return
    assert found["N"] >= 2 * tile
    assert (found["N"] % 16 == 0) is (n % 16 == 0)
    assert (found["NAME"], found["FLAG"]) == ("x", True)
