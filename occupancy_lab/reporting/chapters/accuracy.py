"""Predicted times beside measured ones, of shapes the model was made with and of others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from occupancy_lab.evaluating.evaluation import Evaluation, make_result
from occupancy_lab.evaluating.score import METRICS
from occupancy_lab.plotting.style import EXACT, FAINT, INK, MUTED, TUTORIAL, describe, head, styled
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.source import ALL
from occupancy_lab.text.words import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes

    from occupancy_lab.evaluating.evaluation import Result
    from occupancy_lab.reporting.source import Source


USES: Mapping[str, str] = {
    "fresh": "that a rule drew before they were measured, and that no constant was chosen by",
    "held out": "that no constant of the model was chosen by",
    "tuning": "that constants of the model were chosen by",
    ALL: "of these rows",
}
"""What the shapes of a use are, those first that say the most of predictions."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How good predictions are, by use: shapes that the model was not made with first."""

    results: tuple[Result, ...]
    launches: tuple[pd.DataFrame, ...] = field(compare=False, repr=False)
    """The rows behind each result, with what is predicted of them."""


def make_accuracy(source: Source) -> Accuracy | None:
    """Return the evaluation of the shapes that were recorded for it; None where there are none.

    Where uses are not told apart, every launch counts.
    """
    if source.predictions_for(*USES).empty:
        return None
    found = []
    for use in USES:
        rows = source.predictions[source.predictions["use"] == use]
        if not rows.empty:
            without = int((source.planned["use"] == use).sum()) - len(rows)
            result = make_result(rows, use, without, source.gpu, top=0)
            found.append((result, rows))
    results, launches = zip(*found, strict=True)
    return Accuracy(results, launches)


def accuracy_sentence(accuracy: Accuracy) -> str:
    """Say how far predictions are off, by the shapes that say the most of them."""
    result = accuracy.results[0]
    scores = {name: metric.write(result.score) for name, metric in METRICS.items()}
    return (
        f"On {count(result.shapes, 'shape')} {USES[result.use]}, a predicted time is off by"
        f" **{scores['median']}** at the median and by less than {scores['p90']} for nine launches"
        f" in ten. The configuration predicted best loses {scores['mean_loss']} there on average,"
        f" and {scores['worst_loss']} at worst."
    )


TITLE = "Predicted against measured"


def the_accuracy(accuracy: Accuracy | None, why_not: str) -> Chapter:
    """Say how good the predictions are, for each use apart, or else *why_not*."""
    if accuracy is None:
        return Chapter(TITLE, (f"Left out: {why_not}.",))
    kinds = [
        f"*{one.use.capitalize()}*: {one.launches} launches of {count(one.shapes, 'shape')}"
        f" {USES[one.use]}."
        for one in accuracy.results
    ]
    first = accuracy.results[0]
    by_occupancy = METRICS["mean_loss"].write(first.scores[-1])
    kinds.append(
        "Only launches with as many programs as fit count. Taking the highest occupancy instead of"
        f" the least predicted time would lose {by_occupancy} on average on the first of these."
        " `occupancy-lab evaluate --full` says what the numbers are, and which launches are"
        " predicted worst."
    )
    (overview,) = Evaluation(accuracy.results).to_document(full=False).sections[0].tables
    return Chapter(TITLE, (" ".join(kinds), overview, _picture(accuracy)))


def _picture(accuracy: Accuracy) -> Picture:
    parts = [
        f"{result.use}, median error {METRICS['median'].write(result.score)}"
        for result in accuracy.results
    ]
    return Picture(
        "accuracy",
        f"Predicted over measured time of every launch, by what bounds it: {'; '.join(parts)}",
        partial(draw_accuracy, accuracy),
    )


PANEL, HEIGHT = 4.8, 5.0
"""Inches."""
BAND = 0.1
"""The share by which a prediction may be off and still be called good."""
COLOURS: Mapping[str, str] = {
    "bandwidth": EXACT,
    "latency": TUTORIAL,
    "issue": "#117733",
    "launch": "#aa4499",
    "tail": INK,
}
"""By what bounds a launch."""
WIDE = 300
"""The longest over the shortest time from which on powers of ten are ticks enough."""
LINE = 0.055
"""The height of a line of the key, as a share of a panel's."""
MARGIN = 1.3
"""How far the axes reach beyond the times, as a factor."""


def draw_accuracy(accuracy: Accuracy) -> Figure:
    """Return a figure of every launch, predicted over measured time, a panel a use."""
    import pandas as pd

    uses = [result.use for result in accuracy.results]
    every = pd.concat(accuracy.launches)
    times = every[["predicted_us", "us"]].to_numpy()
    limits = float(times.min()) / MARGIN, float(times.max()) * MARGIN
    with styled():
        figure = Figure(figsize=(PANEL * max(len(uses), 1.4), HEIGHT), layout="constrained")
        panels = figure.subplots(1, len(uses), sharex=True, sharey=True, squeeze=False)[0]
        for axes, use, rows in zip(panels, uses, accuracy.launches, strict=True):
            _draw(axes, rows, limits)
            axes.set_title(f"{use}: {len(rows)} launches")
        panels[0].set_ylabel("predicted us")
        _key(panels[0], [bound for bound in COLOURS if (every["bound"] == bound).any()])
        caption = f"In the grey band a prediction is off by less than {BAND:.0%}."
        title = "Predicted over measured time of a launch"
        head(figure, title, caption)
    describe(figure, f"{title}: {', '.join(uses)}")
    return figure


def _draw(axes: Axes, rows: pd.DataFrame, limits: tuple[float, float]) -> None:
    low, high = limits
    ends = [low, high]
    lower, upper = ([end * factor for end in ends] for factor in (1 - BAND, 1 + BAND))
    axes.fill_between(ends, lower, upper, color=FAINT, linewidth=0)
    axes.plot(ends, ends, color=MUTED, linewidth=0.8)
    style: Mapping[str, Any] = {"markersize": 3, "markeredgewidth": 0, "alpha": 0.6}
    for bound, colour in COLOURS.items():
        of_bound = rows[rows["bound"] == bound]
        axes.plot(of_bound["us"], of_bound["predicted_us"], "o", color=colour, **style)
    axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits, xlabel="measured us")
    axes.set_aspect("equal")
    steps = (1,) if high / low > WIDE else (1, 2, 5)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())


def _key(axes: Axes, bounds: Sequence[str]) -> None:
    """Name the colours in the corner that no launch comes near."""
    axes.text(0.03, 0.97, "bound by", va="top", color=INK, transform=axes.transAxes)
    for place, bound in enumerate(bounds, start=1):
        style: Mapping[str, Any] = {"va": "top", "color": COLOURS[bound]}
        axes.text(0.03, 0.97 - LINE * place, f"● {bound}", transform=axes.transAxes, **style)
