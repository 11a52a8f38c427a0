"""What a predicted time sees of a launch."""

from __future__ import annotations

import pytest

from occupancy_lab.prediction import sees_stages


@pytest.mark.parametrize(
    ("stages", "loop", "copies", "ranged", "seen"),
    [
        (1, 300, 0, False, True),
        (3, None, 0, False, True),
        (3, 300, 2, False, True),
        (3, 300, 0, True, True),
        (3, 300, 0, False, False),
        (3, 300, None, False, False),
    ],
)
def test_stages_are_seen_where_copies_run_by_themselves(
    stages: int, loop: int | None, copies: int | None, *, ranged: bool, seen: bool
) -> None:
    """One stage and no loop leave nothing to see, and a time with a range is made of the binary."""
    assert sees_stages(stages, loop, copies, ranged=ranged) == seen
