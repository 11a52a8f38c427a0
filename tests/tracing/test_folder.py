"""What a trace that was killed has left is removed by the next, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from occupancy_lab.tracing.folder import LOCK, PREFIX, folder_of_records

if TYPE_CHECKING:
    from pathlib import Path

HOLD = """
import os
from occupancy_lab.tracing.folder import folder_of_records

with folder_of_records() as folder:
    (folder / "record").touch()
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for folders where no other test has any."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_a_folder_is_removed_at_its_end(tmp_path: Path) -> None:
    """It is there for a trace, while others begin and end, and not after it."""
    with folder_of_records() as outer:
        with folder_of_records() as inner:
            assert {outer, inner} == set(tmp_path.iterdir())
        assert [outer] == list(tmp_path.iterdir())
        (outer / "record").touch()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_trace_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """Its folder stays while it lives, and is gone with the next trace after it was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        left = tmp_path / process.stdout.readline().strip()
        with folder_of_records():
            assert (left / "record").exists()
        process.kill()
    assert left.exists()
    with folder_of_records():
        assert not left.exists()


def test_what_is_not_known_to_be_left_stays(tmp_path: Path) -> None:
    """A folder without a lock, links, and what only has such a name are not touched."""
    bare, other = (tmp_path / f"{PREFIX}{name}" for name in ("bare", "other"))
    for folder in (bare, other):
        folder.mkdir()
    (other / LOCK).symlink_to(tmp_path)
    linked = tmp_path / "mine"
    linked.mkdir()
    (linked / LOCK).touch()
    (tmp_path / f"{PREFIX}link").symlink_to(linked)
    (tmp_path / f"{PREFIX}file").touch()
    before = set(tmp_path.iterdir())
    with folder_of_records():
        pass
    assert set(tmp_path.iterdir()) == before
    assert (linked / LOCK).exists()
