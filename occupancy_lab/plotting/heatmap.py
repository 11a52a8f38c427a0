"""A sweep as heat maps: a number for each num_warps and num_stages."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from occupancy_lab.errors import InputError
from occupancy_lab.plotting.style import (
    COLOUR_MAP,
    FAINT,
    INK,
    MUTED,
    PALE,
    describe,
    styled,
)
from occupancy_lab.sweeping.rows import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes

    Panel = tuple[str, pd.DataFrame]

MAX_PANELS = 12
MAX_COLUMNS = 3
ALWAYS = ("gpu", "BLOCK_SIZE")
SOMETIMES = ("kernel", "dtype", "rows", "cols", "triton_version")
"""Columns that tell panels apart where they hold several values, besides those of ALWAYS."""
INITIALS: Mapping[str, str] = {
    "warps": "W",
    "registers": "R",
    "sgprs": "G",
    "shared": "S",
    "programs": "P",
    "barriers": "B",
}
"""What a limiter is called within a cell."""
INITIAL_WORDS: Mapping[str, str] = {
    "warps": "warps",
    "registers": "registers",
    "sgprs": "SGPRs",
    "shared": "shared memory",
    "programs": "program slots",
    "barriers": "barriers",
}
CELL = (0.62, 0.48)
"""Inches."""
DARK = 0.45
"""The luminance below which a cell's text is white."""


def _check(table: pd.DataFrame, value: str) -> None:
    """Raise InputError unless *table* can be drawn as heat maps of *value*."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if table.empty:
        msg = "there is no row to draw"
        raise InputError(msg)
    if value not in table:
        msg = f"there is no column {value!r} to draw; there are {', '.join(map(str, table))}"
        raise InputError(msg)
    column = table[value].infer_objects() if table[value].notna().any() else None
    if column is not None and (is_bool_dtype(column) or not is_numeric_dtype(column)):
        msg = f"the column {value} holds no numbers; a heat map shows one that does: occupancy"
        raise InputError(msg)


def _panels(table: pd.DataFrame) -> list[Panel]:
    """Give the rows of each panel with its title, in the table's order."""
    varying = [name for name in SOMETIMES if name in table and table[name].nunique() > 1]
    names = [*ALWAYS, *varying]
    panels = []
    for values, rows in table.groupby(names, sort=False, dropna=False):
        panels.append((_title(names, values), rows))
    if len(panels) > MAX_PANELS:
        msg = (
            f"{len(panels)} heat maps, one for each {', '.join(names)}, do not fit into a picture"
            f" that holds {MAX_PANELS}; choose fewer rows"
        )
        raise InputError(msg)
    return panels


def _title(names: Sequence[str], values: Sequence[Hashable]) -> str:
    gpu, *others = values
    return ", ".join((str(gpu), *(f"{n} {v}" for n, v in zip(names[1:], others, strict=True))))


def _number(number: float, value: str) -> str:
    """Give *number* as a cell shows it."""
    if value == "occupancy":
        return f"{number:.0%}"
    return str(int(number)) if number == int(number) else f"{number:.3g}"


def _initials(limiter: object) -> str:
    """Give "W R" for "warps+registers"; nothing for no limiter."""
    names = limiter.split("+") if isinstance(limiter, str) else []
    return " ".join(INITIALS.get(name, name) for name in names)


class _Cells:
    """Draws rows as cells: where they go, and in which colour."""

    def __init__(self, table: pd.DataFrame, value: str) -> None:
        self.num_warps = sorted({int(number) for number in table["num_warps"]})
        self.num_stages = sorted({int(number) for number in table["num_stages"]})
        self.value = value
        known = [float(number) for number in table[value].dropna()]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        if value == "occupancy":
            low, high = 0.0, max(1.0, high)
        if low == high:
            low, high = low - 0.5, high + 0.5
        self.colours = ScalarMappable(Normalize(low, high), COLOUR_MAP)

    def draw_panel(self, axes: Axes, panel: Panel) -> None:
        """Draw the heat map of one panel."""
        title, rows = panel
        taken = set()
        for row in rows.to_dict("records"):
            place = (int(row["num_warps"]), int(row["num_stages"]))
            if place in taken:
                msg = (
                    f"two rows are {title}, num_warps {place[0]}, num_stages {place[1]}; a heat map"
                    " shows one: choose fewer rows"
                )
                raise InputError(msg)
            taken.add(place)
            at = (self.num_warps.index(place[0]), self.num_stages.index(place[1]))
            self._draw_cell(axes, at, row)
        axes.set_title(textwrap.fill(title, self._characters(len(self.num_warps))), fontsize=9)
        axes.set_xticks(range(len(self.num_warps)), [str(number) for number in self.num_warps])
        axes.set_yticks(range(len(self.num_stages)), [str(number) for number in self.num_stages])
        axes.set_xlim(-0.5, len(self.num_warps) - 0.5)
        axes.set_ylim(-0.5, len(self.num_stages) - 0.5)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)

    @staticmethod
    def _characters(cells: int) -> int:
        return max(24, int(cells * CELL[0] * 14))

    def _draw_cell(self, axes: Axes, at: tuple[int, int], row: Mapping[Any, Any]) -> None:
        import pandas as pd

        corner = (at[0] - 0.5, at[1] - 0.5)
        style: dict[str, Any] = {"edgecolor": "white", "linewidth": 1.5}
        if row["status"] != "ok":
            hatched = {"facecolor": PALE, "edgecolor": FAINT, "hatch": "////", "linewidth": 0}
            axes.add_patch(Rectangle(corner, 1, 1, **hatched))
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, **style))
            words = str(row["status"]).replace(" ", "\n", 1)
            axes.text(*at, words, ha="center", va="center", fontsize=6.5, color=MUTED)
            return
        number = row[self.value]
        colour: Any = PALE if pd.isna(number) else self.colours.to_rgba(float(number))
        axes.add_patch(Rectangle(corner, 1, 1, facecolor=colour, **style))
        text = "not known" if pd.isna(number) else _number(number, self.value)
        ink = INK if pd.isna(number) or _luminance(colour) > DARK else "white"
        both = "\n".join(part for part in (text, _initials(row["limiter"])) if part)
        axes.text(*at, both, ha="center", va="center", fontsize=7.5, color=ink)


def _luminance(colour: Sequence[float]) -> float:
    """Give how bright *colour* seems, 0 to 1 (the weights are those of Rec. 709)."""
    red, green, blue = colour[:3]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _headline(table: pd.DataFrame, value: str) -> str:
    """Give what the picture shows, with whatever is the same for all of it."""
    parts = [f"{value} by num_warps and num_stages"]
    same = {name: str(table[name].iloc[0]) for name in SOMETIMES if _is_same(table, name)}
    if "kernel" in same:
        parts.insert(0, same["kernel"])
    if "rows" in same and "cols" in same:
        parts.append(f"{same['rows']} rows x {same['cols']} cols")
    if "dtype" in same:
        parts.append(same["dtype"])
    return ", ".join(parts)


def _is_same(table: pd.DataFrame, name: str) -> bool:
    return name in table and table[name].nunique(dropna=False) == 1


def _key(table: pd.DataFrame) -> str:
    """Give what the initials mean, those that occur."""
    met = {name for limiter in table["limiter"].dropna() for name in str(limiter).split("+")}
    words = (f"{INITIALS[name]} {INITIAL_WORDS[name]}" for name in INITIALS if name in met)
    return f"limited by: {', '.join(words)}" if met else ""


def draw_heatmap(table: pd.DataFrame, value: str = "occupancy") -> Figure:
    """Give a figure of heat maps of the column *value* of a sweep's *table*, and the limiters.

    There is a map for each GPU and BLOCK_SIZE, and for each problem and kernel where there are
    several, with num_warps across and num_stages up. A configuration that failed is hatched and
    says how; one that is not in the table is blank; a number that is not known says so.

    Raises InputError for no rows, for a *value* that is no column of numbers, for two rows of one
    configuration, and for more than 12 maps.
    """
    _check(table, value)
    panels = _panels(table)
    cells = _Cells(table, value)
    across = min(len(panels), MAX_COLUMNS if len(panels) != 4 else 2)  # noqa: PLR2004
    down = -(-len(panels) // across)
    width = max(5.5, across * (CELL[0] * len(cells.num_warps) + 0.5))
    height = down * (CELL[1] * len(cells.num_stages) + 0.5) + 2.0
    with styled():
        figure = Figure(figsize=(width, height), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            cells.draw_panel(axes, panel)
            axes.set_xlabel("num_warps", fontsize=9)
            axes.set_ylabel("num_stages", fontsize=9)
        for axes in list(grid.flat)[len(panels) :]:
            axes.remove()
        meaning = COLUMNS.get(value)
        label = f"{value}: {meaning}" if meaning else value
        figure.colorbar(cells.colours, ax=grid, location="bottom", label=label)
        characters = int(width * 11)
        headline = _headline(table, value)
        figure.suptitle(textwrap.fill(headline, characters), x=0.01, ha="left", weight="bold")
    counts = table["status"].value_counts().items()
    describe(figure, f"{headline}. {_key(table)}. {counts}")
    return figure
