"""Every cell has its row's numbers, and missing or failed rows are visible."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from occupancy_lab.errors import InputError
from occupancy_lab.plotting import draw_heatmap, save
from occupancy_lab.table.columns import SWEEP_COLUMNS

LIMITERS = (
    *("warps", "registers", "shared", "programs", "warps+registers", "sgprs+shared"),
    "warps+tensor_memory",
)
INITIALS = {
    "warps": "W",
    "registers": "R",
    "shared": "S",
    "programs": "P",
    "sgprs": "G",
    "barriers": "B",
    "tensor_memory": "T",
}
FAILURES = ("does not fit", "compile failed", "timed out", "skipped")


def row(
    gpu: str, block_size: int, num_warps: int, num_stages: int, **others: Any
) -> dict[str, Any]:
    """Return one invented row of a sweep."""
    programs = num_warps + 2 * num_stages
    return {
        "gpu": gpu,
        "target": "sm_90",
        "kernel": "softmax",
        "rows": 4096,
        "cols": 781,
        "dtype": "float32",
        "BLOCK_SIZE": block_size,
        "num_warps": num_warps,
        "num_stages": num_stages,
        "status": "ok",
        "n_regs": 30 + num_warps,
        "shared": 4096 * num_stages,
        "programs_per_multiprocessor": programs,
        "limiter": LIMITERS[programs % len(LIMITERS)],
        "occupancy": programs / 64,
        "waves": programs / 7,
        "triton_version": "3.7.1",
        **others,
    }


def failed(status: str, *where: Any) -> dict[str, Any]:
    """Return a failed row."""
    numbers = ("n_regs", "shared", "programs_per_multiprocessor", "limiter", "occupancy", "waves")
    return row(*where, status=status, reason="it is so", **dict.fromkeys(numbers))


def table_of(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Return *rows* as a sweep's table."""
    integers = ("n_regs", "shared", "programs_per_multiprocessor", "num_programs")
    types = dict.fromkeys(integers, "Int64") | dict.fromkeys(("occupancy", "waves"), "Float64")
    return pd.DataFrame(list(rows), columns=list(SWEEP_COLUMNS)).astype(types)


def grid(gpus: Iterable[str], block_sizes: Iterable[int]) -> list[dict[str, Any]]:
    """Return rows of 1 to 8 warps and 1 to 3 stages for each GPU and BLOCK_SIZE."""
    return [
        row(gpu, block_size, num_warps, num_stages)
        for gpu in gpus
        for block_size in block_sizes
        for num_warps in (1, 2, 4, 8)
        for num_stages in (1, 2, 3)
    ]


def panels(figure: Figure) -> list[Axes]:
    """Return the heat maps of *figure*, without the colour bar."""
    return [axes for axes in figure.axes if axes.get_xlabel() == "num_warps"]


def cells(axes: Axes) -> dict[tuple[int, int], str]:
    """Return the text of each cell by num_warps and num_stages."""
    across = [int(label.get_text()) for label in axes.get_xticklabels()]
    up = [int(label.get_text()) for label in axes.get_yticklabels()]
    places = ((text, *text.get_position()) for text in axes.texts)
    return {(across[round(x)], up[round(y)]): text.get_text() for text, x, y in places}


def short(limiter: str) -> str:
    """Return a limiter's initials."""
    return " ".join(INITIALS[name] for name in limiter.split("+"))


def test_cells_say_the_table() -> None:
    """Each row is one cell with its occupancy and its limiter's initials."""
    table = table_of(grid(["h100", "mi300x"], [1024, 2048]))
    drawn = panels(draw_heatmap(table))
    for axes, (_, rows) in zip(drawn, table.groupby(["gpu", "BLOCK_SIZE"]), strict=True):
        expected = {
            (one["num_warps"], one["num_stages"]): (
                f"{one['occupancy']:.0%}\n{short(one['limiter'])}"
            )
            for one in rows.to_dict("records")
        }
        assert cells(axes) == expected


def test_colours_rise_with_the_number() -> None:
    """Larger numbers are brighter, and equal numbers have the same colour in every panel."""
    table = table_of(grid(["h100", "mi300x"], [1024]))
    first, second = (
        [sum(patch.get_facecolor()[:3]) for patch in axes.patches if patch.get_fill()]
        for axes in panels(draw_heatmap(table))
    )
    assert first == second
    numbers = table["occupancy"][: len(first)]
    pairs = sorted(zip(numbers, first, strict=True))
    assert [colour for _, colour in pairs] == sorted(first)
    assert len({round(colour, 6) for colour in first}) == numbers.nunique()


@pytest.mark.parametrize("status", FAILURES)
def test_failures_are_shown(status: str) -> None:
    """A failed configuration is hatched, and the key names its status."""
    table = table_of([*grid(["h100"], [1024]), failed(status, "h100", 1024, 16, 1)])
    (axes,) = panels(draw_heatmap(table))
    assert cells(axes)[16, 1].replace("\n", " ") == status
    hatched = [patch for patch in axes.patches if patch.get_hatch()]
    assert [patch.get_xy() for patch in hatched if isinstance(patch, Rectangle)] == [(3.5, -0.5)]


def test_missing_combinations_stay_blank() -> None:
    """A configuration that is not in the table has no cell."""
    rows = [row("h100", 1024, 1, 1), row("h100", 1024, 2, 2)]
    (axes,) = panels(draw_heatmap(table_of(rows)))
    assert set(cells(axes)) == {(1, 1), (2, 2)}
    assert sum(patch.get_fill() for patch in axes.patches) == 2


def test_unknown_number_says_so() -> None:
    """An ok row without an occupancy is marked as unknown."""
    (axes,) = panels(draw_heatmap(table_of([row("sm_90", 1024, 4, 2, occupancy=None)])))
    assert cells(axes) == {(4, 2): "not\nknown"}
    assert not any(patch.get_hatch() for patch in axes.patches)


def test_a_panel_for_each_gpu_and_block_size() -> None:
    """Panels are titled by GPU and BLOCK_SIZE and share their axes; the colour bar has a label."""
    figure = draw_heatmap(table_of(grid(["h100", "mi300x"], [1024, 2048])))
    drawn = panels(figure)
    assert [axes.get_title("left").replace("\n", " ") for axes in drawn] == [
        "h100, BLOCK_SIZE 1024",
        "h100, BLOCK_SIZE 2048",
        "mi300x, BLOCK_SIZE 1024",
        "mi300x, BLOCK_SIZE 2048",
    ]
    assert {axes.get_ylabel() for axes in drawn} == {"num_stages"}
    (bar,) = (axes for axes in figure.axes if axes not in drawn)
    assert bar.get_xlabel().startswith("occupancy: ")


def test_initials_are_explained() -> None:
    """The key names exactly the limiters that occur."""
    figure = draw_heatmap(table_of([row("h100", 1024, 4, 2, limiter="registers+sgprs")]))
    key = " ".join(figure.get_supxlabel().split())
    assert "R registers, G SGPRs." in key
    assert "warps" not in key


def test_twelve_panels_are_drawn_and_thirteen_refused() -> None:
    """Up to 12 heat maps are drawn; more are an InputError with their number."""
    gpus = [f"gpu{number}" for number in range(13)]
    assert len(panels(draw_heatmap(table_of(grid(gpus[:12], [1024]))))) == 12
    with pytest.raises(InputError, match="13 heat maps"):
        draw_heatmap(table_of(grid(gpus, [1024])))


@pytest.mark.parametrize(
    ("rows", "part"),
    [([], "no row"), ([row("h100", 1024, 4, 2), row("h100", 1024, 4, 2)], "num_warps 4")],
)
def test_what_cannot_be_drawn(rows: list[dict[str, Any]], part: str) -> None:
    """An empty table and several rows for one cell are refused."""
    with pytest.raises(InputError, match=part):
        draw_heatmap(table_of(rows))


def test_plain_objects_will_do() -> None:
    """A table with plain objects and None, as read from JSON, is drawn too."""
    rows = [row("h100", 1024, 4, 2), failed("skipped", "h100", 1024, 8, 2)]
    (axes,) = panels(draw_heatmap(pd.DataFrame(rows, dtype=object)))
    assert cells(axes)[8, 2] == "skipped"


def test_long_names_stay_inside(tmp_path: Path) -> None:
    """A long kernel's name is broken over lines, not cut off."""
    name = "a_kernel_of_the_users_own_" * 5
    figure = draw_heatmap(table_of([row("rtx-pro-6000-server", 1024, 4, 2, kernel=name)]))
    save(figure, tmp_path / "long.svg")
    assert name in "".join(figure.get_suptitle().split())
    texts = [*figure.texts, *(axes.title for axes in figure.axes)]
    for box in (text.get_window_extent() for text in texts if text.get_text()):
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
