"""A test run leaves the user's folders alone, and its list of slow tests is correct."""

import os
import pwd
from pathlib import Path

import pytest
from triton import knobs

from occupancy_lab.compiling.store import store_directory


def test_the_users_folders_are_out_of_reach() -> None:
    """Home, the store and Triton's cache are folders of this run, the same in every worker."""
    home = Path.home()
    assert home != Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert Path(knobs.cache.dir).is_relative_to(home)
    assert store_directory().is_relative_to(home)
    assert not [name for name in os.environ if name.startswith("XDG_")]


def test_every_slow_test_exists(request: pytest.FixtureRequest) -> None:
    """Every name on the list of slow tests is a test."""
    (shared,) = (
        plugin
        for plugin in request.config.pluginmanager.get_plugins()
        if getattr(plugin, "__file__", None) == str(Path(__file__).with_name("conftest.py"))
    )
    for name in shared.SLOW:
        path, _, test = name.partition("::")
        place = request.config.rootpath / path
        assert place.exists(), name
        assert not test or f"def {test}(" in place.read_text(encoding="utf-8"), name
