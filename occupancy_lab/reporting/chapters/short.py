"""The answer in three sentences and one picture, of measured times or of predicted ones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from occupancy_lab.evaluating.score import METRICS
from occupancy_lab.reporting.chapters.accuracy import USES
from occupancy_lab.reporting.chapters.benchmark import (
    FASTEST,
    TUTORIAL,
    draw_bandwidths,
)
from occupancy_lab.reporting.chapters.forecast import draw_forecast
from occupancy_lab.reporting.launches import share
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.source import COPY, NAIVE
from occupancy_lab.sweeping.recorded import OTHER_SOFTMAXES
from occupancy_lab.text.words import count, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from occupancy_lab.reporting.chapters.accuracy import Accuracy
    from occupancy_lab.reporting.chapters.benchmark import Benchmark
    from occupancy_lab.reporting.chapters.forecast import Forecast


RIVALS: Mapping[str, str] = {
    TUTORIAL: "the tutorial's launch",
    **OTHER_SOFTMAXES,
    NAIVE: "five operations of torch",
    COPY: "a plain copy of the matrix",
}
"""What the chosen is compared with, and how each is called."""


def in_short(benchmark: Benchmark | None, accuracy: Accuracy | None) -> Chapter:
    """Return the answer of those chapters that there is something to say in."""
    if benchmark is None:
        return _chapter((), accuracy, "Left out: nothing can be predicted of these launches.")
    return _chapter(_measured_sentences(benchmark), accuracy, _measured_picture(benchmark))


def _chapter(sentences: Iterable[str], accuracy: Accuracy | None, last: Picture | str) -> Chapter:
    """Return the chapter of *sentences* with its picture, or else a *last* sentence of why not."""
    words = [" ".join(sentences), "" if accuracy is None else accuracy_sentence(accuracy)]
    blocks: list[str | Picture] = [one for one in words if one]
    if isinstance(last, Picture) or not blocks:
        blocks.append(last)
    return Chapter("In short", tuple(blocks))


def _measured_sentences(benchmark: Benchmark) -> Iterator[str]:
    lost = benchmark.lost()
    first, last = benchmark.widths[0].cols, benchmark.widths[-1].cols
    yield (
        f"For a softmax of {benchmark.rows} rows of {first} to {last} columns, the configuration"
        f" that is predicted to be the best, without one launch, takes **{share(lost.mean)} longer"
        f" on average than the fastest** of up to {benchmark.most_configurations} that were"
        f" measured, and {share(lost.most)} at worst."
    )
    rivals = [
        f"{words} {found.median:.2f} ({found.most:.2f})"
        for name, words in RIVALS.items()
        if name in benchmark.names and (found := benchmark.against_chosen(name))
    ]
    if rivals:
        yield (
            "Others take so many times as long as the chosen, at the median width (and at most):"
            f" {listed(rivals)}."
        )


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


def _measured_picture(benchmark: Benchmark) -> Picture:
    last = benchmark.widths[-1]
    words = [f"{name} {last.gbs(name):.0f}" for name in last.us]
    return Picture(
        "bandwidths",
        f"GB/s over the columns of {benchmark.rows} rows; at {last.cols} columns {listed(words)}",
        partial(draw_bandwidths, benchmark),
    )


def forecast_in_short(forecast: Forecast | None, accuracy: Accuracy | None) -> Chapter:
    """Return what is predicted, what was measured, and how far the one is off the other."""
    if forecast is None:
        nothing = "Left out: no benchmark is predicted, and nothing was recorded."
        return _chapter((), accuracy, nothing)
    return _chapter(_predicted_sentences(forecast), accuracy, _predicted_picture(forecast))


def _predicted_sentences(forecast: Forecast) -> Iterator[str]:
    benchmark = forecast.benchmark
    first, last = benchmark.widths[0].cols, benchmark.widths[-1].cols
    about = f"For a softmax of {benchmark.rows} rows of {first} to {last} columns"
    if TUTORIAL in benchmark.names:
        longer = benchmark.against_chosen(TUTORIAL)
        yield (
            f"{about}, the tutorial's launch is predicted to take **{share(longer.median - 1.0)}"
            f" longer** than the best of up to {benchmark.most_configurations} configurations at"
            f" the median width, and {share(longer.most - 1.0)} at worst."
        )
    rivals = [
        f"{words} {found.median:.2f} ({found.most:.2f})"
        for name, words in RIVALS.items()
        if (found := forecast.against_fastest(name)) is not None
    ]
    if rivals:
        yield (
            f"At the {len(forecast.recorded)} widths of which something was recorded, others took"
            " so many times as long as the fastest recorded launch, at the median (and at most):"
            f" {listed(rivals)}."
        )


def _predicted_picture(forecast: Forecast) -> Picture:
    benchmark = forecast.benchmark
    last = benchmark.widths[-1]
    words = [f"{name} {last.gbs(name):.0f}" for name in last.us if name != FASTEST]
    recorded = [f"{name} {one.gbs(name):.0f}" for one in forecast.recorded[-1:] for name in one.us]
    beside = (
        f"; recorded at {forecast.recorded[-1].width.cols} {listed(recorded)}" if recorded else ""
    )
    return Picture(
        "bandwidths",
        f"Predicted GB/s over the columns of {benchmark.rows} rows; at {last.cols} columns"
        f" {listed(words)}{beside}",
        partial(draw_forecast, forecast),
    )
