"""The three occupancy curves of a kernel: over registers, shared memory and warps."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from occupancy_lab.occupancy.calculator import Calculation, limiter_words
from occupancy_lab.occupancy.exact import exact_rules, stepped_amounts
from occupancy_lab.occupancy.rule import programs
from occupancy_lab.occupancy.tutorial import divides_by_zero, tutorial_rules
from occupancy_lab.plotting.style import (
    EXACT,
    INK,
    MUTED,
    TUTORIAL,
    Placer,
    are_alike,
    describe,
    even_ticks,
    head,
    lined,
    outline,
    styled,
)
from occupancy_lab.text.words import count, percent, resource_word

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray[Any, np.dtype[Any]]

FIELDS = ("n_regs", "shared", "num_warps")
"""The fields of Resources that can be varied."""


@dataclass(frozen=True, slots=True)
class Series:
    """Programs per multiprocessor over one field of Resources, with the kernel's other amounts.

    The arrays have one element for each amount.
    """

    field: str
    """One of FIELDS."""
    amounts: Array
    here: int
    """The amount that this kernel takes."""
    exact: Array
    tutorial: Array
    """NaN where the tutorial's formula divides by zero."""
    limiting: Mapping[str, Array]
    """Whether each resource is a limiter, in the order of the rules."""

    @property
    def at_kernel(self) -> tuple[int, int | None]:
        """The programs by the exact and the tutorial's formula for this kernel's amount."""
        (at,) = np.flatnonzero(self.amounts == self.here)
        tutorial = self.tutorial[at]
        return int(self.exact[at]), None if np.isnan(tutorial) else int(tutorial)

    @property
    def edges(self) -> Array:
        """The edges between which the amounts are drawn, one more than there are amounts."""
        if self.field != "num_warps":
            return np.append(self.amounts, self.amounts[-1] + 1)
        between = (self.amounts[1:] + self.amounts[:-1]) / 2
        return np.concatenate(([0.75], between, [self.amounts[-1] * 1.5]))


def _amounts(calculation: Calculation, field: str) -> tuple[range | list[int], int]:
    """Return the possible amounts of *field*, and the amount that this kernel takes."""
    architecture, resources = calculation.architecture, calculation.resources
    if field == "num_warps":
        powers = range(architecture.max_warps_per_program.bit_length())
        return [1 << power for power in powers], resources.num_warps
    if field == "shared":
        return range(max(architecture.max_shared, resources.shared) + 1), resources.shared
    here, most = stepped_amounts(resources, architecture)["registers"]
    return range(max(most, here) + 1), here


def make_series(calculation: Calculation, field: str) -> Series:
    """Return the programs by both formulas for all amounts of *field*.

    VGPRs include the padding in the kernel's descriptor, as in the exact formula.
    """
    amounts, here = _amounts(calculation, field)
    usage = calculation.resources.replace(**{field: np.asarray(amounts, dtype="int64")})
    if field == "n_regs":
        usage = usage.replace(allocated_vgprs=None)
    architecture, shape = calculation.architecture, len(amounts)

    def limits(rules: Any) -> dict[str, Array]:
        found = programs(rules, usage, architecture, np.where)
        return {name: np.broadcast_to(limit, shape) for name, limit in found.items()}

    exact = limits(exact_rules(architecture))
    least = np.minimum.reduce(list(exact.values()))
    tutorial = np.minimum.reduce(list(limits(tutorial_rules(architecture)).values()))
    fails = np.broadcast_to(divides_by_zero(usage), shape)
    return Series(
        field=field,
        amounts=np.asarray(amounts),
        here=here,
        exact=least,
        tutorial=np.where(fails, np.nan, tutorial),
        limiting={name: limit == least for name, limit in exact.items()},
    )


WIDTH, HEIGHT, ROW = 11.5, 3.9, 0.22
"""Inches: the figure, and the additional height for each limiter."""
KIB = 1024
HEADROOM = 1.4
"""The factor of room for labels above the curves."""
CAPTION_WIDTH = 175
"""Characters per line."""


def _draw_line(axes: Axes, series: Series, values: Array, **style: Any) -> None:
    """Draw *values* as steps, with only the points at which they change."""
    known = ~np.isnan(values)
    amounts, values = series.amounts[known], values[known]
    if not len(values):
        return
    if series.field == "num_warps":
        style |= {"drawstyle": "steps-mid", "marker": "o", "markersize": 4}
    else:
        changed = np.flatnonzero(np.diff(values)) + 1
        kept = np.unique(np.concatenate(([0], changed, [len(values) - 1])))
        amounts, values = amounts[kept], values[kept]
        style |= {"drawstyle": "steps-post"}
    axes.plot(amounts, values, **style)


def _scale(axes: Axes, series: Series) -> None:
    """Set the panel's limits and ticks; a tutorial's number far above the exact one is cut off."""
    highest = max(1, int(series.exact.max()))
    tutorial = np.nanmax(series.tutorial, initial=0.0)
    highest = max(highest, series.at_kernel[1] or 0, min(tutorial, 2 * highest))
    axes.set_ylim(0, HEADROOM * highest)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    lined(axes)
    if series.field == "num_warps":
        axes.set_xscale("log", base=2)
        axes.set_xticks(series.amounts, [str(amount) for amount in series.amounts])
        axes.set_xlim(series.edges[0], series.edges[-1])
        return
    most = int(series.amounts[-1])
    axes.set_xlim(0, most)
    even_ticks(axes, most)
    if series.field == "shared":
        axes.xaxis.set_major_formatter(lambda size, _: f"{size / KIB:g}")


def _draw_curves(axes: Axes, calculation: Calculation, series: Series) -> None:
    _draw_line(axes, series, series.exact, color=EXACT, linewidth=2.6)
    dashed = {"color": TUTORIAL, "linewidth": 1.6, "linestyle": (0, (4, 2))}
    _draw_line(axes, series, series.tutorial, **dashed)
    style: dict[str, Any] = {"markersize": 8, "markeredgecolor": "white", "color": INK, "zorder": 4}
    axes.plot([series.here], [series.at_kernel[0]], "o", clip_on=False, **style)
    _scale(axes, series)
    word = calculation.architecture.multiprocessor_word
    axes.set_ylabel(f"programs per {word}")


def _label(axes: Axes, calculation: Calculation, series: Series) -> None:
    curves = [outline(axes, line) for line in axes.lines[:-1]]
    exact, *others = curves
    alike = bool(others) and are_alike(exact, others[0])
    placer = Placer(axes, curves[:1] if alike else curves)
    programs = series.at_kernel[0]
    architecture = calculation.architecture
    amount = {
        "n_regs": count(series.here, architecture.register_word),
        "shared": f"{series.here} B",
        "num_warps": count(series.here, architecture.warp_word),
    }[series.field]
    words = f"this kernel\n{amount}: {count(programs, 'program')}"
    placer.at_point(words, (series.here, programs), color=INK)
    if alike:
        placer.at_curve("both formulas", exact, color=INK)
        return
    placer.at_curve("what fits", exact, color=EXACT, weight="bold")
    words = "the tutorial's formula" if others else "the tutorial's formula\ndivides by zero"
    placer.at_curve(words, others[0] if others else exact, color=TUTORIAL)


def _draw_limiters(axes: Axes, series: Series, words: Mapping[str, str]) -> None:
    """Draw a bar for each resource of *words* over the amounts at which it is a limiter."""
    for row, resource in enumerate(words):
        turns = np.flatnonzero(np.diff(series.limiting[resource], prepend=False, append=False))
        bounds = series.edges[turns].reshape(-1, 2)
        spans = [(first, last - first) for first, last in bounds.tolist()]
        axes.broken_barh(spans, (row - 0.3, 0.6), color=MUTED, linewidth=0)
    axes.set_ylim(len(words) - 0.5, -0.5)
    axes.set_yticks(range(len(words)), list(words.values()))
    lined(axes)
    axes.spines[["left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _caption(calculation: Calculation, n_regs: int) -> str:
    architecture, resources = calculation.architecture, calculation.resources
    padded = "" if n_regs == resources.n_regs else f" ({resources.n_regs} before padding)"
    return (
        "Each panel varies one amount and keeps this kernel's other amounts:"
        f" {count(n_regs, architecture.register_word)} per thread{padded},"
        f" {resources.shared} B of {architecture.shared_word} and"
        f" {count(resources.num_warps, architecture.warp_word)} per program."
        f" Compiled with other num_warps, a kernel takes other {architecture.register_word}s too."
    )


def draw_curves(calculation: Calculation) -> Figure:
    """Return a figure of the programs per multiprocessor over each amount that a kernel can change.

    Three panels vary the registers per thread, the shared memory and the warps per program, each
    with the kernel's other two amounts, by the exact and by the tutorial's formula. A strip below
    each panel shows the limiters.
    """
    every = [make_series(calculation, field) for field in FIELDS]
    words = {
        name: resource_word(calculation.gpu.vendor, name)
        for name in every[0].limiting
        if any(series.limiting[name].any() for series in every)
    }
    occupancy, architecture = calculation.occupancy, calculation.architecture
    headline = (
        f"{calculation.title}: {count(occupancy.programs_per_multiprocessor, 'program')}"
        f" per {architecture.multiprocessor_word}, {percent(occupancy.occupancy)} occupancy,"
        f" limited by {limiter_words(calculation)}"
    )
    axis_words = {
        "n_regs": f"{architecture.register_word}s per thread",
        "shared": f"{architecture.shared_word} per program (KiB)",
        "num_warps": f"{architecture.warp_word}s per program",
    }
    strip = ROW * len(words)
    with styled():
        figure = Figure(figsize=(WIDTH, HEIGHT + strip), layout="constrained")
        axes = figure.subplots(
            2, 3, sharex="col", sharey="none", height_ratios=[HEIGHT - 1.2, strip]
        )
        for column, series in enumerate(every):
            upper, lower = axes[:, column]
            _draw_curves(upper, calculation, series)
            _draw_limiters(lower, series, words)
            lower.set_xlabel(axis_words[series.field])
            lower.tick_params(labelleft=column == 0)
            lower.set_ylabel("limiter" if column == 0 else "", fontsize=8)
        caption = _caption(calculation, every[0].here)
        head(figure, headline, textwrap.fill(caption, CAPTION_WIDTH), 8)
        figure.draw_without_rendering()
        for column, series in enumerate(every):
            _label(axes[0, column], calculation, series)
    describe(figure, f"{headline}. {caption}")
    return figure
