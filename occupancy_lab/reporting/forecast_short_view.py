"""The answer in three sentences and one picture, where nothing was launched."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from occupancy_lab.reporting import benchmark as data
from occupancy_lab.reporting.forecast_picture import draw_forecast
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.short_view import RIVALS, accuracy_sentence
from occupancy_lab.reporting.words import share
from occupancy_lab.text.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.reporting.accuracy import Accuracy
    from occupancy_lab.reporting.forecast import Forecast


def forecast_in_short(forecast: Forecast | None, accuracy: Accuracy | None) -> Chapter:
    """Return what is predicted, what was measured, and how far the one is off the other."""
    blocks: list[str | Picture] = []
    if forecast is not None:
        blocks.append(" ".join(_sentences(forecast)))
    if accuracy is not None:
        blocks.append(accuracy_sentence(accuracy))
    if forecast is not None:
        blocks.append(_picture(forecast))
    if not blocks:
        blocks.append("Left out: no benchmark is predicted, and nothing was recorded.")
    return Chapter("In short", tuple(blocks))


def _sentences(forecast: Forecast) -> Iterator[str]:
    benchmark = forecast.benchmark
    first, last = benchmark.widths[0].cols, benchmark.widths[-1].cols
    about = f"For a softmax of {benchmark.rows} rows of {first} to {last} columns"
    if data.TUTORIAL in benchmark.names:
        longer = benchmark.against_chosen(data.TUTORIAL)
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


def _picture(forecast: Forecast) -> Picture:
    benchmark = forecast.benchmark
    last = benchmark.widths[-1]
    words = [f"{name} {last.gbs(name):.0f}" for name in last.us if name != data.FASTEST]
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
