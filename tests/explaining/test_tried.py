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
