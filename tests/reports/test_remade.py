"""Committed pages, pictures and tables are remade byte for byte."""

import re
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import amd_nvidia
import cliffs
import mi300x_launches
import other_models
import pytest
import record_actions
import record_steps
import record_tunes

from occupancy_lab.exploring.page import make_page
from occupancy_lab.reporting.contents import run

ROOT = Path(__file__).parents[2]
REPORTS, DATA = ROOT / "reports", ROOT / "reports" / "data"
GPUS = ("h100", "h200")
MADE: dict[str, Callable[[Path], object]] = {
    "amd-nvidia.md": amd_nvidia.make,
    "cliffs.svg": cliffs.draw,
    "explore.html": lambda path: path.write_text(make_page(), encoding="utf-8"),
    **{f"{gpu}.md": lambda path: run(path.stem, output=str(path)) for gpu in GPUS},
}
TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "steps": ("trace.md", partial(record_steps.table, DATA, GPUS)),
    "actions": ("trace.md", partial(record_actions.table, DATA, GPUS)),
    "tunes": ("tuning.md", partial(record_tunes.table, DATA, GPUS)),
    "MI300X": ("times.md", lambda: "\n".join(mi300x_launches.table())),
    "models": ("times.md", lambda: "\n".join(other_models.table())),
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


@pytest.mark.parametrize("name", TABLES)
def test_documents_have_the_tables_that_scripts_write(name: str) -> None:
    """A table of docs/ is that of the recorded rows."""
    document, table = TABLES[name]
    assert table() in (ROOT / "docs" / document).read_text(encoding="utf-8")
