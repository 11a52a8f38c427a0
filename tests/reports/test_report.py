"""The H200's report remakes itself, byte for byte."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

REPORTS = Path(__file__).parent.parent.parent / "reports"
PAGE = REPORTS / "h200.md"
PICTURES = REPORTS / "h200"
SCRIPT = (
    "import sys; from occupancy_lab.reporting.output import run; run('h200', output=sys.argv[1])"
)


@pytest.fixture(scope="module")
def remade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the report remade where nobody has calibrated a GPU."""
    directory = tmp_path_factory.mktemp("reports")
    store = {"OCCUPANCY_LAB_CACHE_DIR": str(tmp_path_factory.mktemp("store"))}
    subprocess.run(
        [sys.executable, "-c", SCRIPT, directory / PAGE.name], env=os.environ | store, check=True
    )
    return directory


def test_page_is_what_the_command_writes(remade: Path) -> None:
    """The committed page is the one that the recorded rows make."""
    assert (remade / PAGE.name).read_bytes() == PAGE.read_bytes()


def test_pictures_are_what_the_command_draws(remade: Path) -> None:
    """The committed pictures are those of the page, with the matplotlib that drew them."""
    committed = {path.name: path.read_bytes() for path in PICTURES.iterdir()}
    drawn = {path.name: path.read_bytes() for path in (remade / PICTURES.name).iterdir()}
    assert sorted(drawn) == sorted(committed)
    (drawn_with,) = {
        found.decode()
        for text in committed.values()
        for found in re.findall(rb"Matplotlib v([0-9.]+)", text)
    }
    if version("matplotlib") != drawn_with:
        pytest.skip(f"drawn with matplotlib {drawn_with}")
    assert drawn == committed


def test_page_links_its_pictures() -> None:
    """Every picture that the page shows is there, and every one that is there is shown."""
    links = re.findall(r"!\[[^\]]+\]\(h200/([^)]+)\)", PAGE.read_text(encoding="utf-8"))
    assert sorted(links) == sorted(path.name for path in PICTURES.iterdir())
