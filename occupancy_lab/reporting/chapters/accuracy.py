"""Predicted against measured times, for shapes that the model was and was not fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from occupancy_lab.evaluating.evaluation import Evaluation, Result, make_result
from occupancy_lab.evaluating.score import METRICS
from occupancy_lab.plotting.style import EXACT, FAINT, INK, MUTED, TUTORIAL, describe, head, styled
from occupancy_lab.prediction import part_cell
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.source import ALL, Source
from occupancy_lab.text.words import count

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


USES: Mapping[str, str] = {
    "fresh": "that a rule drew before they were measured, and that no constant was fitted to",
    "held out": "that no constant of the model was fitted to",
    "tuning": "that constants of the model were fitted to",
    ALL: "of these rows",
}
"""The words for the shapes of a use, the best tests of predictions first."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of predictions by use, in the order of USES."""

    results: tuple[Result, ...]
    launches: tuple[pd.DataFrame, ...] = field(compare=False, repr=False)
    """The rows behind each result, with their predictions."""


def make_accuracy(source: Source) -> Accuracy | None:
    """Return the evaluation of the rows with the uses of USES; None if there are none."""
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
    """Say how accurate predictions are, by the first result."""
    result = accuracy.results[0]
    scores = {name: metric.write(result.score) for name, metric in METRICS.items()}
    return (
        f"On {count(result.shapes, 'shape')} {USES[result.use]}, the error of a predicted time has"
        f" a median of **{scores['median']}** and a 90th percentile of {scores['p90']}. The"
        f" configuration that is predicted to be the best loses {scores['mean_loss']} there on"
        f" average, and {scores['worst_loss']} at worst."
    )


TITLE = "Predicted against measured"


def the_accuracy(accuracy: Accuracy | None, why_not: str) -> Chapter:
    """Return the chapter on the accuracy for each use, or the reason *why_not*."""
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
        "Only launches with as many programs as fit count. Choosing by the highest occupancy"
        f" instead of the shortest predicted time would lose {by_occupancy} on average on the first"
        " of these. `occupancy-lab evaluate --full` explains the numbers, and shows which launches"
        " are predicted worst."
    )
    (overview,) = Evaluation(accuracy.results).to_document(full=False).sections[0].tables
    parts = [
        f"{result.use}, median error {METRICS['median'].write(result.score)}"
        for result in accuracy.results
    ]
    picture = Picture(
        "accuracy",
        f"Predicted against measured time of every launch, by what bounds it: {'; '.join(parts)}",
        partial(draw_accuracy, accuracy),
    )
    return Chapter(TITLE, (" ".join(kinds), overview, picture))


PANEL, HEIGHT = 4.8, 5.0
"""Inches."""
BAND = 0.1
"""The relative error of the grey band."""
COLOURS: Mapping[str, str] = {
    "bandwidth": EXACT,
    "latency": TUTORIAL,
    "issue": "#117733",
    "launch": "#aa4499",
    "tail": INK,
}
"""The colour for each bound."""
WIDE = 300
"""The ratio of the longest to the shortest time above which only powers of ten are ticks."""
LINE = 0.055
"""The height of a line of the key as a share of the panel's."""
MARGIN = 1.3
"""The factor by which the axes extend beyond the times."""


def draw_accuracy(accuracy: Accuracy) -> Figure:
    """Return a figure of predicted against measured times, with a panel for each use."""
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
        # The key is in the empty corner.
        text = partial(panels[0].text, va="top", transform=panels[0].transAxes)
        text(0.03, 0.97, "bound by", color=INK)
        bounds = [bound for bound in COLOURS if (every["bound"] == bound).any()]
        for place, bound in enumerate(bounds, start=1):
            text(0.03, 0.97 - LINE * place, f"● {part_cell(bound)}", color=COLOURS[bound])
        caption = f"In the grey band a prediction is off by less than {BAND:.0%}."
        title = "Predicted against measured time of a launch"
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
