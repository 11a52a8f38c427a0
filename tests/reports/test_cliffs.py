"""The README's picture is remade byte for byte."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

REPORTS = Path(__file__).parent.parent.parent / "reports"
DRAWN = (REPORTS / "cliffs.svg").read_text(encoding="utf-8")


def test_picture_is_what_its_script_draws(tmp_path: Path) -> None:
    """The committed picture is what its script draws with the same matplotlib."""
    (drawn_with,) = re.findall(r"Matplotlib v([0-9.]+)", DRAWN)
    if version("matplotlib") != drawn_with:
        pytest.skip(f"drawn with matplotlib {drawn_with}")
    script = "import sys; sys.path.insert(0, sys.argv[1]); import cliffs, pathlib; "
    subprocess.run(
        [
            sys.executable,
            "-c",
            script + "cliffs.draw(pathlib.Path(sys.argv[2]))",
            REPORTS,
            tmp_path / "c.svg",
        ],
        check=True,
    )
    assert (tmp_path / "c.svg").read_text(encoding="utf-8") == DRAWN
