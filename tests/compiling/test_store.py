"""What is kept between runs, and how much of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from occupancy_lab.compiling.store import MOST_TEXT_BYTES, Store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("x" * 2**21, True),
        ('"' * (MOST_TEXT_BYTES // 3), True),
        ('"' * (MOST_TEXT_BYTES // 2), False),
    ],
)
def test_counts_are_kept_as_far_as_they_can_be_read(
    line: str, *, kept: bool, tmp_path: Path
) -> None:
    """A long line is not counted anew, and one that nobody could read takes no space."""
    store = Store(tmp_path)
    store.put_counted({"kernel": "one"}, line)
    assert store.get_counted({"kernel": "one"}) == (line if kept else None)
    assert any(tmp_path.rglob("*.json")) is kept
