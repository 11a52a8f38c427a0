"""The reports of single GPUs are remade byte for byte."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

REPORTS = Path(__file__).parent.parent.parent / "reports"
GPUS = ("h200", "h100")
"""The GPUs that have a report."""
SCRIPT = (
    "import sys; from occupancy_lab.reporting.contents import run; run(sys.argv[1],"
    " output=sys.argv[2])"
)


@pytest.fixture(scope="module", params=GPUS)
def remade(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page that is remade without a calibration."""
    page = tmp_path_factory.mktemp("reports") / f"{request.param}.md"
    subprocess.run([sys.executable, "-c", SCRIPT, request.param, page], check=True)
    return page


def test_page_is_what_the_command_writes(remade: Path) -> None:
    """The committed page is what the recorded rows make."""
    assert remade.read_bytes() == (REPORTS / remade.name).read_bytes()


def test_pictures_are_what_the_command_draws(remade: Path) -> None:
    """The committed pictures are those of the page, if drawn with the same matplotlib."""
    folder = REPORTS / remade.stem
    committed = {path.name: path.read_bytes() for path in folder.iterdir()}
    drawn = {path.name: path.read_bytes() for path in remade.with_suffix("").iterdir()}
    assert sorted(drawn) == sorted(committed)
    (drawn_with,) = {
        found.decode()
        for text in committed.values()
        for found in re.findall(rb"Matplotlib v([0-9.]+)", text)
    }
    if version("matplotlib") != drawn_with:
        pytest.skip(f"drawn with matplotlib {drawn_with}")
    assert drawn == committed
