"""The interpreter that counts are compared with notes what kernels do which a reader can check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from interpreted import Done, Interpreter, Moved, Ran, Taken, Tensor, Touched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEADER = """import triton
import triton.language as tl
@triton.jit
"""


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    """Return Triton's interpreter, which starts once."""
    with Interpreter() as running:
        yield running


def ran(
    interpreter: Interpreter, folder: Path, source: str, grid: tuple[int, ...], **arguments: Any
) -> Ran:
    """Return what a launch of `kernel` did, whose `def` is in line 4."""
    path = folder / "kernel.py"
    path.write_text(HEADER + source, "utf-8")
    found = interpreter.run(path, arguments, grid)
    assert isinstance(found, Ran), found
    return found


def test_a_masked_copy(interpreter: Interpreter, tmp_path: Path) -> None:
    """Four programs of 32 copy 100 elements: the last has 4 of them, which are in one sector."""
    source = """def kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(y + at, v.to(tl.float16), mask=at < n)
"""
    x, y = Tensor("float32"), Tensor("float16")
    found = ran(interpreter, tmp_path, source, (4,), x=x, y=y, n=100, BLOCK=32)
    assert found.moved == {
        ((6,), "load", ()): Moved(4, 4, 128, 100, 13, 4, 400, {"x"}),
        ((7,), "store", ()): Moved(2, 4, 128, 100, 7, 4, 200, {"y"}),
    }
    assert found.touched == {"x": Touched(400, 0, 416, 0), "y": Touched(0, 200, 0, 224)}
    assert not found.alike


def test_loops_and_branches(interpreter: Interpreter, tmp_path: Path) -> None:
    """Program p adds p rows of 16 floats, and stores in its last line where p is odd."""
    source = """def kernel(x, y):
    p = tl.program_id(0)
    total = tl.zeros((16,), tl.float32)
    for row in range(p):
        total += tl.load(x + row * 16 + tl.arange(0, 16))
    while p > 0:
        if p % 2 == 1:
            tl.store(y + tl.arange(0, 16), total)
        p -= 2
"""
    found = ran(interpreter, tmp_path, source, (4,), x=Tensor("float32"), y=Tensor("float32"))
    assert found.loops == {((7,), "loop", ()): [0, 1, 2, 3], ((9,), "loop", ()): [0, 1, 1, 2]}
    assert found.branches == {((10,), "branch", ()): Taken(4, 3)}
    assert found.moved == {
        ((8,), "load", ()): Moved(4, 6, 96, 96, 12, 6, 192, {"x"}),
        ((11,), "store", ()): Moved(4, 3, 48, 48, 6, 3, 64, {"y"}),
    }
    assert found.touched["x"] == Touched(192, 0, 192, 0)


def test_helpers_and_unrolled_loops(interpreter: Interpreter, tmp_path: Path) -> None:
    """Each copy of an unrolled body, and each call of a helper, is a place of its own."""
    source = """def get(x, at):
    return tl.load(x + at)
@triton.jit
def kernel(x, y):
    for copy in tl.static_range(2):
        v = get(x, copy * 8)
        tl.atomic_add(y, v)
    tl.store(y + 1, get(x, 8))
"""
    found = ran(interpreter, tmp_path, source, (2,), x=Tensor("float32"), y=Tensor("float32"))
    assert {site: moved.unique_bytes for site, moved in found.moved.items()} == {
        ((5, 9), "load", ((8, 0),)): 4,
        ((5, 9), "load", ((8, 1),)): 4,
        ((5, 11), "load", ()): 4,
        ((10,), "atomic", ((8, 0),)): 4,
        ((10,), "atomic", ((8, 1),)): 4,
        ((11,), "store", ()): 4,
    }
    assert found.alike
    assert found.touched == {"x": Touched(8, 0, 64, 0), "y": Touched(4, 8, 32, 32)}


def test_dots_and_blocks(interpreter: Interpreter, tmp_path: Path) -> None:
    """Blocks of 16 by 16 halves at the edge of a 20 by 20 matrix are multiplied."""
    source = """def kernel(x, y):
    block = tl.make_block_ptr(x, (20, 20), (32, 1), (16, 0), (16, 16), (1, 0))
    a = tl.load(block, boundary_check=(0, 1))
    described = tl.make_tensor_descriptor(y, [20, 20], [32, 1], [16, 16])
    described.store([0, 16], tl.dot(a, a).to(tl.float16))
"""
    found = ran(interpreter, tmp_path, source, (1,), x=Tensor("float16"), y=Tensor("float16"))
    assert found.arithmetic == {((8,), "dot", ()): Done(1, 2 * 16**3)}
    assert found.moved == {
        ((6,), "load", ()): Moved(2, 1, 256, 64, 4, 2, 128, {"x"}),
        ((8,), "store", ()): Moved(2, 1, 256, 64, 16, 8, 128, {"y"}),
    }


def test_floating_point_operations(interpreter: Interpreter, tmp_path: Path) -> None:
    """Each element is an operation; a sum of 4 takes 3, a running sum of 8 takes 7."""
    source = """def kernel(x, y):
    a = tl.load(x + tl.arange(0, 32).reshape(8, 4))
    b = tl.exp(a) * 2.0
    c = tl.sum(b + b, axis=1)
    tl.store(y + tl.arange(0, 8), tl.cumsum(c, 0) + tl.sum(tl.arange(0, 8)))
"""
    found = ran(interpreter, tmp_path, source, (3,), x=Tensor("float32"), y=Tensor("float32"))
    assert {site[:2]: done for site, done in found.arithmetic.items()} == {
        ((6,), "exp"): Done(3, 96),
        ((6,), "mulf"): Done(3, 96),
        ((7,), "addf"): Done(3, 96),
        ((7,), "reduce"): Done(3, 72),
        ((8,), "scan"): Done(3, 21),
        ((8,), "addf"): Done(3, 24),
    }


def test_values_steer_what_is_loaded(interpreter: Interpreter, tmp_path: Path) -> None:
    """The values of a tensor are addresses; a load beyond its elements is refused."""
    source = """def kernel(i, x, y, n):
    at = tl.load(i + tl.arange(0, 4), mask=tl.arange(0, 4) < n, other=0)
    tl.store(y + tl.arange(0, 4), tl.load(x + at))
"""
    given = {"i": Tensor("int64", (3, 3, 900)), "x": Tensor("int8"), "y": Tensor("int8")}
    found = ran(interpreter, tmp_path, source, (1,), **given, n=3)
    assert found.moved[(6,), "load", ()].unique_bytes == 3
    assert found.touched["x"] == Touched(3, 0, 64, 0)
    said = interpreter.run(tmp_path / "kernel.py", {**given, "n": 4}, (1,))
    assert "i has no element there" in str(said)
