"""Files are the same everywhere, have a description, and leave nothing behind."""

import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.plotting import draw_curves, save
from occupancy_lab.values import Resources


@pytest.fixture(scope="module")
def figure() -> Figure:
    """Return a picture."""
    return draw_curves(calculate(Resources(32, 8, 12320), find_gpu("h100")))


def test_svg_carries_its_words_and_no_date(figure: Figure, tmp_path: Path) -> None:
    """An SVG has a title, a description, glyphs as paths, and no date."""
    save(figure, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert f"<title>{figure.get_suptitle()}</title>" in text
    assert "<dc:description>H100 SXM: 8 programs per SM" in text
    assert "dc:date" not in text
    assert "<text" not in text


def test_pictures_have_a_white_ground(figure: Figure, tmp_path: Path) -> None:
    """The background is opaque white, so that pictures are readable on a dark page."""
    save(figure, tmp_path / "a.png")
    pixels = imread(tmp_path / "a.png")
    assert [float(part) for part in pixels[0, 0]] == [1.0, 1.0, 1.0, 1.0]


def test_suffix_names_the_format(figure: Figure, tmp_path: Path) -> None:
    """.PNG and .svg select the format; other suffixes are refused, naming these two."""
    save(figure, tmp_path / "a.PNG")
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")
    for name in ("a.jpeg", "a"):
        with pytest.raises(InputError, match=r"\.svg or \.png"):
            save(figure, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_unwritable_path_is_an_input_error(figure: Figure, tmp_path: Path) -> None:
    """A missing folder is refused in one sentence."""
    with pytest.raises(InputError, match="cannot be written: No such file"):
        save(figure, tmp_path / "nowhere" / "a.svg")


def test_own_settings_neither_show_nor_change(tmp_path: Path) -> None:
    """A user's matplotlib settings do not change a picture, and are not changed."""
    calculation = calculate(Resources(32, 8, 12320), find_gpu("h100"))
    save(draw_curves(calculation), tmp_path / "a.svg")
    with mpl.rc_context({"font.size": 20, "axes.facecolor": "black", "svg.fonttype": "none"}):
        before = dict(mpl.rcParams)
        save(draw_curves(calculation), tmp_path / "b.svg")
        assert dict(mpl.rcParams) == before
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_no_window_is_thought_of(tmp_path: Path) -> None:
    """Drawing needs neither pyplot nor a display."""
    script = """
import sys
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.gpus import find_gpu
from occupancy_lab.plotting import draw_curves, save
from occupancy_lab.values import Resources
save(draw_curves(calculate(Resources(32, 8, 0), find_gpu("h100"))), sys.argv[1])
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script, tmp_path / "a.png"], check=True)
    assert (tmp_path / "a.png").exists()
