"""The benchmark in words where nothing was launched: what is chosen where, and what that brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.reporting import benchmark as data
from occupancy_lab.reporting.benchmark_view import (
    MEANINGS,
    TITLE,
    meanings,
    setting,
    span_words,
    tutorial_words,
)
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.reporting.words import config_words, share
from occupancy_lab.text.document import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.reporting.forecast import Forecast, Recorded

PREDICTED_NAMES = (data.CHOSEN, data.TUTORIAL)


def the_forecast(forecast: Forecast | None) -> Chapter:
    """Say what is predicted to be the best at every width, beside what was measured."""
    if forecast is None:
        words = (
            "Left out: no launches of one problem with several numbers of columns are predicted."
        )
        return Chapter(TITLE, (words,))
    names = dict.fromkeys((*PREDICTED_NAMES, *forecast.names))
    texts = {**MEANINGS, data.FASTEST: "the fastest of the launches that were recorded"}
    return Chapter(
        TITLE,
        (
            setting(forecast.benchmark),
            meanings(tuple(names), texts),
            *_tables(forecast),
            *_against_tutorial(forecast),
            _spans(forecast),
        ),
    )


def _tables(forecast: Forecast) -> Iterator[Table]:
    if not forecast.recorded:
        return
    names = [name for name in MEANINGS if name in forecast.names]

    def row(one: Recorded) -> tuple[str, ...]:
        width = one.width
        return (
            str(width.cols),
            config_words(width.chosen.kernel, width.chosen.config),
            *(f"{width.gbs(name):.0f}" if name in width.us else "-" for name in PREDICTED_NAMES),
            *(f"{one.gbs(name):.0f}" if name in one.us else "-" for name in names),
        )

    headers = ("columns", "what is chosen", *(f"{name}, predicted" for name in PREDICTED_NAMES))
    yield Table(
        (*headers, *(f"{name}, recorded" if name in PREDICTED_NAMES else name for name in names)),
        tuple(map(row, forecast.recorded)),
        "GB/s at the widths of which something was recorded; what is not called predicted is"
        " recorded:",
    )


def _against_tutorial(forecast: Forecast) -> Iterator[str]:
    benchmark = forecast.benchmark
    if data.TUTORIAL not in benchmark.names:
        return
    longer = benchmark.against_chosen(data.TUTORIAL)
    worst = max(
        benchmark.with_name(data.TUTORIAL),
        key=lambda width: width.us[data.TUTORIAL] / width.us[data.CHOSEN],
    )
    yield (
        f"The tutorial's launch is predicted to take {share(longer.median - 1.0)} longer than the"
        f" chosen at the median width, {share(longer.p90 - 1.0)} or more at one width in ten, and"
        f" {share(longer.most - 1.0)} at worst, at {worst.cols} columns."
    )


def _spans(forecast: Forecast) -> Table:
    headers = ("columns", "chosen", "the tutorial's is predicted to take longer by")
    rows = tuple((*span_words(span), tutorial_words(span)) for span in forecast.benchmark.spans)
    return Table(headers, rows, "What is chosen where:")
