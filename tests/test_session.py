"""What a test run leaves alone: the folders of the user who started it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from triton import knobs

from occupancy_lab.compiling.store import store_directory


def test_the_users_folders_are_out_of_reach() -> None:
    """Home, the store and Triton's cache are folders of this run, in every worker the same."""
    home = Path.home()
    assert home != Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert Path(knobs.cache.dir).is_relative_to(home)
    assert store_directory().is_relative_to(home)
    assert not [name for name in os.environ if name.startswith("XDG_")]
