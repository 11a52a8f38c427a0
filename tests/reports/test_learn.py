"""The notebook for newcomers runs without a GPU, and what it says is what it shows."""

from __future__ import annotations

import ast
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

REPORTS = Path(__file__).parent.parent.parent / "reports"
NOTEBOOK = (REPORTS / "learn.ipynb").read_text(encoding="utf-8")


def sources(kind: str) -> list[str]:
    """Return the cells of one kind, in their order."""
    cells = json.loads(NOTEBOOK)["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does, and give what it shows: the value of its last line."""
    *statements, last = ast.parse(source).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(statements, []), "cell", "exec"), names)  # noqa: S102 - a cell is code
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307 - as above


@pytest.fixture(scope="module")
def executed() -> tuple[list[Any], dict[str, Any]]:
    """Return what the cells show, and the names that they leave."""
    names: dict[str, Any] = {}
    return [run(source, names) for source in sources("code")], names


def test_notebook_is_what_its_script_writes() -> None:
    """The committed notebook is what `python reports/learn.py` writes, and was never run."""
    assert runpy.run_path(str(REPORTS / "learn.py"))["notebook"]() == NOTEBOOK
    assert not any(cell.get("outputs") for cell in json.loads(NOTEBOOK)["cells"])


def test_text_has_no_numbers_of_its_own() -> None:
    """Numbers are what cells show; the text has none that could differ from them."""
    for text in sources("markdown"):
        assert not re.findall(r"\b\d", text)


def test_every_cell_shows_a_result(executed: tuple[list[Any], dict[str, Any]]) -> None:
    """Run in order and without a GPU, each cell ends in a table with rows, or in a sentence."""
    shown, _ = executed
    for result in shown:
        assert "<td" in result._repr_html_() if not isinstance(result, str) else " " in result


def test_recorded_times_are_as_the_text_says(executed: tuple[list[Any], dict[str, Any]]) -> None:
    """What the text says of recorded launches is true of those that are shown."""
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
    """What the text says of what is compiled is true of what this Triton makes."""
    _, names = executed
    widths, aligned = names["widths"], names["aligned"]
    assert widths["n_regs"].is_monotonic_increasing
    assert widths["occupancy"].iloc[-1] < widths["occupancy"].iloc[0]
    assert "power of two" in names["refusal"]
    assert list(aligned["load_bytes"]) == [4, 16]
