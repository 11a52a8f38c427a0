"""The configurations that a search tries: free tiles, and steps between configurations."""

import importlib.util
import sys
import textwrap
from pathlib import Path
from typing import Any

import launched_kernels
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.tuning.space import free_tiles, larger, neighbours, source_digest

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
    assert free_tiles(launched_kernels.handing, configs) == (["TILE"] if free else [])


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


SOURCE = """
import triton
import triton.language as tl

FACTOR = tl.constexpr(2)
UNUSED = 3


@triton.jit
def inner(x):
    return x * x


@triton.jit
def helper(x):
    return inner(x) + 1


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, helper(x) * FACTOR + tl.cdiv(n, 2), mask=at < n)
"""


def load(folder: Path, source: str) -> Any:
    """Return the kernel in a file with *source*."""
    path = folder / f"file_{len([*folder.iterdir()])}.py"
    path.write_text(textwrap.dedent(source), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module.kernel


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.constexpr(2)", "tl.constexpr(3)"),
        ("tl.constexpr(2)", "tl.constexpr((2, tl.float16))"),
        ("return x * x", "return x + x"),
        ("inner(x) + 1", "inner(x) + 2"),
        ("helper(x) * FACTOR", "helper(x) + FACTOR"),
        ("mask=at < n)\n    tl.store", "mask=at < n)  # said\n    tl.store"),
        ("@triton.jit\ndef helper", "@triton.jit(noinline=True)\ndef helper"),
    ],
)
def test_what_triton_compiles_anew_is_another_kernel(tmp_path: Path, old: str, new: str) -> None:
    """A change that Triton's key notices changes the digest."""
    assert old in SOURCE
    one, other = load(tmp_path, SOURCE), load(tmp_path, SOURCE.replace(old, new))
    assert one.cache_key != other.cache_key
    assert source_digest(one) != source_digest(other)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("UNUSED = 3", "UNUSED = 4"),
        ("UNUSED = 3", "UNUSED = 3\n\n\ndef unused(): return 1"),
        ("@triton.jit\ndef kernel", "@triton.autotune([], key=[])\n@triton.jit\ndef kernel"),
    ],
)
def test_what_is_compiled_alike_is_the_same_kernel(tmp_path: Path, old: str, new: str) -> None:
    """Unused code, lines above and wrappers do not change the digest."""
    assert source_digest(load(tmp_path, SOURCE)) == source_digest(
        load(tmp_path, SOURCE.replace(old, new))
    )


def test_a_kernel_that_calls_itself_has_a_digest(tmp_path: Path) -> None:
    """Recursive functions are followed once."""
    around = SOURCE.replace("return x * x", "return helper(x)")
    assert source_digest(load(tmp_path, around)) != source_digest(load(tmp_path, SOURCE))
