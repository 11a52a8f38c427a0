"""A sweep as heat maps: the occupancy for each num_warps and num_stages."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from occupancy_lab.errors import refuse
from occupancy_lab.plotting.style import COLOUR_MAP, FAINT, MUTED, PALE, describe, head, styled
from occupancy_lab.text.words import LIMITS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    Panel = tuple[str, pd.DataFrame]

MAX_PANELS = 12
ALWAYS = ("gpu", "BLOCK_SIZE")
SOMETIMES = ("kernel", "rows", "cols", "dtype", "triton_version")
"""The columns that distinguish panels: those of ALWAYS, and those of SOMETIMES if they vary."""
CELL_WIDTH, CELL_HEIGHT = 0.54, 0.42
"""Inches."""
BAR_HEIGHT, BAR_DISTANCE, LEAST_BAR = 0.15, 0.1, 1.0
"""Inches: the height of the colour bar, its distance from the panels, and its least length."""
LEAST_CELLS = 4
"""The least width of a panel in cells, for its title."""
LEAST_WIDTH = 6.0
"""The least width of the figure in inches, for its headline."""
DARK = 0.179
"""The relative luminance below which white text has more contrast than black (WCAG 2)."""
OCCUPANCY_WORDS = "occupancy: resident warps over the most there can be"


def _panels(table: pd.DataFrame) -> list[Panel]:
    varying = [name for name in SOMETIMES if name in table and len(table[name].unique()) > 1]
    names = [*ALWAYS, *varying]
    panels = []
    for (gpu, *values), rows in table.groupby(names, sort=False, dropna=False):
        words = (f"{name} {value}" for name, value in zip(names[1:], values, strict=True))
        panels.append((", ".join((str(gpu), *words)), rows))
    if len(panels) > MAX_PANELS:
        refuse(
            f"the table makes {len(panels)} heat maps, one for each {', '.join(names)}, and a"
            f" picture holds {MAX_PANELS}; choose fewer rows"
        )
    return panels


def _is_dark(colour: Sequence[float]) -> bool:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4  # noqa: PLR2004
        for part in colour[:3]
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue < DARK


class _Map:
    """Draws the panels of one table with shared axes and colours."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.num_warps = sorted({int(number) for number in table["num_warps"]})
        self.num_stages = sorted({int(number) for number in table["num_stages"]})
        self.colours = ScalarMappable(Normalize(0.0, 1.0), COLOUR_MAP)
        self.panel_width = max(LEAST_CELLS, len(self.num_warps)) * CELL_WIDTH
        self.panel_height = len(self.num_stages) * CELL_HEIGHT

    def draw(self, axes: Axes, panel: Panel) -> None:
        """Draw the heat map of one panel; raise InputError for two rows of one cell."""
        title, rows = panel
        axes.set_title(textwrap.fill(title, int(self.panel_width * 13)), fontsize=9)
        axes.set_xlabel("num_warps", fontsize=9)
        axes.set_ylabel("num_stages", fontsize=9)
        axes.set_xticks(range(len(self.num_warps)), [str(number) for number in self.num_warps])
        axes.set_yticks(range(len(self.num_stages)), [str(number) for number in self.num_stages])
        axes.set_xlim(-0.5, len(self.num_warps) - 0.5)
        axes.set_ylim(-0.5, len(self.num_stages) - 0.5)
        axes.set_aspect(CELL_HEIGHT / CELL_WIDTH, anchor="NW")
        axes.tick_params(length=0, labelsize=9)
        axes.spines[:].set_visible(False)
        repeated = rows.duplicated(["num_warps", "num_stages"])
        if repeated.any():
            first = rows[repeated].iloc[0]
            refuse(
                f"several rows are {title}, num_warps {first['num_warps']}, num_stages"
                f" {first['num_stages']}, and a heat map shows one; choose fewer rows"
            )
        for row in rows.to_dict("records"):
            self._draw_cell(axes, row)

    def _draw_cell(self, axes: Axes, row: Mapping[Hashable, Any]) -> None:
        import pandas as pd

        x = self.num_warps.index(int(row["num_warps"]))
        y = self.num_stages.index(int(row["num_stages"]))
        colour: Any = PALE
        ink, hatch = MUTED, None
        if row["status"] != "ok":
            words, hatch = row["status"].replace(" ", "\n", 1), "////"
        elif pd.isna(row["occupancy"]):
            words = "not\nknown"
        else:
            occupancy = float(row["occupancy"])
            (colour,) = self.colours.to_rgba(np.array([occupancy]))
            ink = "white" if _is_dark(colour) else "black"
            limiters = row["limiter"].split("+") if isinstance(row["limiter"], str) else []
            initials = " ".join(LIMITS[name].initial for name in limiters)
            words = f"{occupancy:.0%}\n{initials}".rstrip()
        corner = (x - 0.5, y - 0.5)
        cell = Rectangle(corner, 1, 1, facecolor=colour, edgecolor=FAINT, hatch=hatch, linewidth=0)
        axes.add_patch(cell)
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="white", linewidth=1.5))
        size = 7.5 if ink != MUTED else 6.5
        axes.text(x, y, words, ha="center", va="center", fontsize=size, color=ink)


def _headline(table: pd.DataFrame) -> str:
    same = {
        name: table[name].iloc[0]
        for name in SOMETIMES
        if name in table and len(table[name].unique()) == 1
    }
    parts = [str(same["kernel"])] if "kernel" in same else []
    parts += [f"{same[name]} {name}" for name in ("rows", "cols") if name in same]
    parts += [str(same["dtype"])] if "dtype" in same else []
    return f"occupancy of {', '.join(parts)}" if parts else "occupancy"


def _draw_colour_bar(figure: Figure, panels: list[Axes], across: int, drawn: _Map) -> None:
    width, height = figure.get_size_inches()
    length = across * len(drawn.num_warps) * CELL_WIDTH
    shape: dict[str, Any] = {
        "aspect": max(length, LEAST_BAR) / BAR_HEIGHT,
        "fraction": 2 * BAR_HEIGHT / height,
        "pad": BAR_DISTANCE / height,
    }
    bar = figure.colorbar(drawn.colours, ax=panels, location="bottom", **shape)
    bar.set_label(textwrap.fill(OCCUPANCY_WORDS, int(width * 12)), fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    bar.ax.xaxis.set_major_formatter(PercentFormatter(1))


def draw_heatmap(table: pd.DataFrame) -> Figure:
    """Return a figure of heat maps of the occupancy in a sweep's *table*, with the limiters.

    There is a map for each GPU and BLOCK_SIZE, and for each kernel and problem if there are
    several, with num_warps across and num_stages up. A failed configuration is hatched with its
    status; one that is not in the table is blank; an unknown occupancy is marked.

    Raises InputError for no rows, for several rows of one configuration, and for more than 12 maps.
    """
    if table.empty:
        refuse("there is no row to draw")
    panels = _panels(table)
    drawn = _Map(table)
    even = (number for number in (3, 2) if len(panels) % number == 0)
    across = next(even, min(len(panels), 3))
    down = -(-len(panels) // across)
    width = max(LEAST_WIDTH, across * (drawn.panel_width + 0.6))
    height = down * (drawn.panel_height + 0.7) + 1.6
    met = {name for limiter in table["limiter"].dropna() for name in str(limiter).split("+")}
    words = ", ".join(
        f"{limit.initial} {limit.nvidia}" for name, limit in LIMITS.items() if name in met
    )
    limiters = f"Limiters: {words}. " if met else ""
    key = f"{limiters}Hatched: failed, with its status. Blank: not in the table."
    headline = _headline(table)
    with styled():
        figure = Figure(figsize=(width, height), layout="constrained")
        grid = list(figure.subplots(down, across, squeeze=False).flat)
        for axes in grid[len(panels) :]:
            axes.remove()
        shown = grid[: len(panels)]
        for axes, panel in zip(shown, panels, strict=True):
            drawn.draw(axes, panel)
        _draw_colour_bar(figure, shown, across, drawn)
        lines = textwrap.fill(headline, int(width * 10), break_on_hyphens=False)
        head(figure, lines, textwrap.fill(key, int(width * 14)), 8)
    counts = ", ".join(f"{n} {status}" for status, n in table["status"].value_counts().items())
    describe(figure, f"{headline}: {counts}. Heat maps: {'; '.join(t for t, _ in panels)}. {key}")
    return figure
