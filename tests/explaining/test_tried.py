"""What a page says of the neighbours of a launch that was compiled and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import launched_kernels
import pytest

from occupancy_lab import dry_run, tensor
from occupancy_lab.explaining.neighbours import best_of, predicted_us
from occupancy_lab.text.words import microseconds

if TYPE_CHECKING:
    from occupancy_lab.explaining.case import Case
    from occupancy_lab.explaining.explanation import Explanation

N = 1 << 22
ROW = tensor((N,), "float32")


def blocks(named: dict[str, Any]) -> tuple[int]:
    """Return the grid of a launch with a program for each block."""
    return (-(-named["n"] // named["BLOCK"]),)


def add(*, cache: bool = True, grid: Any = blocks, **asked: Any) -> Explanation:
    """Return the dry run of an addition whose blocks are as *asked*."""
    function = launched_kernels.tuned_add.fn.fn
    lab = dry_run(function, "h100", cache=cache)
    return lab[grid](ROW, ROW, N, EVEN=True, **asked)


def only(run: Explanation) -> Case:
    """Return the case of a dry run of one launch."""
    (found,) = run.cases
    return found


def norm(cols: int, block: int) -> Explanation:
    """Return the dry run of a layer norm of rows of so many columns."""
    x, w, mean = (tensor(shape, "float16") for shape in ((4096, cols), (cols,), (4096,)))
    lab = dry_run(launched_kernels.layer_norm, "h100")
    return lab[(4096,)](x, x, w, w, mean, mean, cols, cols, 1e-5, BLOCK_SIZE=block)


@pytest.mark.slow
def test_the_first_sentence_is_the_fastest_neighbour() -> None:
    """Small blocks are told to be larger, with both times, the range and what gets shorter.

    Another block has another grid, which the launch line works out.
    """
    run = add(BLOCK=64)
    found = only(run)
    best = best_of(found.record, found.neighbours)
    assert best is not None
    assert best.record is not None
    assert best.changes["BLOCK"] > 64
    assert best.record.launch.grid == (N // best.changes["BLOCK"],)
    times = {one.words: predicted_us(one.record) for one in found.neighbours if one.record}
    assert times[best.words] == min(times.values())
    first = run.to_markdown().splitlines()[2]
    words = f"- **H100 SXM**: BLOCK {best.changes['BLOCK']}"
    assert first.startswith(words)
    assert f"instead of {microseconds(predicted_us(found.record))}, with " in first
    assert "for starting its programs" in first


@pytest.mark.slow
def test_a_launch_that_is_as_fast_as_its_neighbours_is_left_alone() -> None:
    """Where none is faster by what predictions tell apart, the page says how many were tried."""
    page = add(BLOCK=1024).to_markdown()
    assert "changes that were tried is predicted to be faster than" in page.splitlines()[2]


@pytest.mark.slow
def test_a_block_that_does_other_work_is_not_proposed() -> None:
    """With a fixed grid half a block would leave half of the row: it has twice the programs."""
    for one in only(add(BLOCK=256, grid=(N // 256,))).neighbours:
        assert one.changes.get("BLOCK", 256) >= 256 or one.changes["grid"] == (N // 128,)


@pytest.mark.slow
@pytest.mark.parametrize(("cols", "wider"), [(2048, False), (2050, True)])
def test_narrow_loads_are_told_what_would_widen_them(cols: int, wider: bool) -> None:  # noqa: FBT001
    """Where 16 divides no argument, the page says which would do, with the time."""
    page = norm(cols, 4096).to_markdown()
    assert ("stride 2064 instead of 2050 and N 2064 instead of 2050, a load" in page) is wider


@pytest.mark.slow
def test_what_is_said_depends_on_no_store() -> None:
    """The page is the same whether anything of it was compiled before."""
    assert add(BLOCK=128, cache=False).to_markdown() == add(BLOCK=128).to_markdown()
