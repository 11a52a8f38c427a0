"""A sweep that is killed again and again, here and on a GPU: nothing that was finished is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kill_sweep import FAKED, MEASURED, SMALL, TOOL, kill_again_and_again

if TYPE_CHECKING:
    from pathlib import Path


def test_killed_sweeps_have_an_undisturbed_sweeps_rows(tmp_path: Path) -> None:
    """After 20 kills -9 at random moments, runs come to the rows of one that nobody disturbed."""
    tally = kill_again_and_again([(*TOOL, "sweep", *SMALL)], tmp_path / "runs", 20, seed=1)
    assert tally.kills == 20
    assert tally.ends > 0


def test_killed_measured_sweeps_keep_their_times(tmp_path: Path) -> None:
    """A time that was measured before a kill -9 is the same in the end, and no row lacks one."""
    grid = ("--measure", "--cols", "100,200,300,400", "--num-warps", "4", "--num-stages", "1")
    tally = kill_again_and_again([(*FAKED, "sweep", *grid)], tmp_path / "runs", 4, seed=1)
    assert tally.kills == 4


@pytest.mark.gpu
def test_killed_sweeps_on_the_gpu_here(tmp_path: Path) -> None:
    """On a real GPU, kills -9 lose no time that was measured, and change nothing compiled.

    A run takes many seconds to start there, so these kills are few: tests/kill_sweep.py does more.
    """
    tally = kill_again_and_again([(*TOOL, "sweep", *MEASURED)], tmp_path / "runs", 5, seed=1)
    assert tally.kills == 5
    assert tally.kept > 0, "every kill came before anything was measured"
