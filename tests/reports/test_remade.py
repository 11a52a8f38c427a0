"""Committed pages and pictures are remade byte for byte."""

import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import amd_nvidia
import cliffs
import pytest

from occupancy_lab.exploring.page import make_page
from occupancy_lab.reporting.contents import run

REPORTS = Path(__file__).parents[2] / "reports"
MADE: dict[str, Callable[[Path], object]] = {
    "amd-nvidia.md": amd_nvidia.make,
    "cliffs.svg": cliffs.draw,
    "explore.html": lambda path: path.write_text(make_page(), encoding="utf-8"),
    **{f"{gpu}.md": lambda path: run(path.stem, output=str(path)) for gpu in ("h100", "h200")},
}


@pytest.mark.parametrize("name", MADE)
def test_pages_are_what_their_scripts_make(name: str, tmp_path: Path) -> None:
    """The committed page is remade, and so are its pictures with the same matplotlib."""
    pictures = (REPORTS / name).with_suffix("").glob("*")
    committed = [name, *(str(path.relative_to(REPORTS)) for path in pictures)]
    MADE[name](tmp_path / name)
    made = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*.*")}
    assert sorted(made) == sorted(committed)
    for one, path in made.items():
        text = (REPORTS / one).read_bytes()
        drawn_with = re.findall(rb"Matplotlib v([0-9.]+)", text)
        if drawn_with in ([], [version("matplotlib").encode()]):
            assert path.read_bytes() == text
