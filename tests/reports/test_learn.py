"""The notebook for newcomers runs without a GPU, and its text agrees with its output."""

import json
import re
from pathlib import Path
from typing import Any

import learn
import pytest

REPORTS = Path(__file__).parent.parent.parent / "reports"
NOTEBOOK = (REPORTS / "learn.ipynb").read_text(encoding="utf-8")


def sources(kind: str) -> list[str]:
    """Return the cells of one kind in order."""
    cells = json.loads(NOTEBOOK)["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


@pytest.fixture(scope="module")
def executed() -> tuple[list[Any], dict[str, Any]]:
    """Return the outputs of the cells and the remaining names."""
    return learn.results()


def test_notebook_is_what_its_script_writes(executed: tuple[list[Any], dict[str, Any]]) -> None:
    """The committed notebook, including its outputs, is what `python reports/learn.py` writes."""
    made_with = json.loads(NOTEBOOK)["metadata"]["made_with"]
    if learn.made_with() != made_with:
        pytest.skip(f"made with {made_with}")
    shown, _ = executed
    assert learn.notebook(shown) == NOTEBOOK


def test_cells_are_those_of_the_script() -> None:
    """Text and code are the script's with any installed versions."""
    texts, codes = zip(*learn.STEPS, strict=True)
    assert (sources("markdown"), sources("code")) == ([*texts], [*codes])


def test_text_has_no_numbers_of_its_own() -> None:
    """The text has no numbers, so that none can differ from the cells'."""
    for text in sources("markdown"):
        assert not re.findall(r"\b\d", text)


def test_every_cell_shows_a_result(executed: tuple[list[Any], dict[str, Any]]) -> None:
    """Run in order without a GPU, each cell ends with a table that has rows, or a sentence."""
    shown, _ = executed
    for result in shown:
        assert "<td" in result._repr_html_() if not isinstance(result, str) else " " in result


def test_recorded_times_are_as_the_text_says(executed: tuple[list[Any], dict[str, Any]]) -> None:
    """The text's statements about recorded launches hold for the shown ones."""
    _, names = executed
    times = names["times"].loc[names["WIDTHS"]]
    assert (times["naive"] > 3 * times["fused"]).all()
    assert (times["fused"] < 1.2 * times["copy"]).all()
    masked = names["masked"].set_index("cols")
    assert masked.loc[8320, "occupancy"] < masked.loc[8192, "occupancy"]
    assert masked.loc[8320, "gbs"] < masked.loc[8192, "gbs"] < masked.loc[12288, "gbs"]
    by_warps = names["by_warps"]
    assert by_warps["us"].idxmin() not in {by_warps.index.min(), by_warps.index.max()}
    assert by_warps["us"][by_warps["occupancy"] == 1.0].nunique() > 1
    by_stages = names["by_stages"]
    assert by_stages[4].idxmin() == 1
    assert by_stages[32].idxmin() > 2
    assert (names["cost"].median() > 0).all()


def test_compiled_kernels_are_as_the_text_says(executed: tuple[list[Any], dict[str, Any]]) -> None:
    """The text's statements about compiled kernels hold with this Triton."""
    _, names = executed
    widths, aligned = names["widths"], names["aligned"]
    assert widths["n_regs"].is_monotonic_increasing
    assert widths["occupancy"].iloc[-1] < widths["occupancy"].iloc[0]
    assert "power of two" in names["refusal"]
    assert list(aligned["load_bytes"]) == [4, 16]
