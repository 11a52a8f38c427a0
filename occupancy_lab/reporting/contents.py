"""The contents of a report: the rows of one GPU, worked out chapter by chapter, and said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.reporting.chapters.accuracy import make_accuracy, the_accuracy
from occupancy_lab.reporting.chapters.benchmark import make_benchmark, the_benchmark
from occupancy_lab.reporting.chapters.compiled import make_compiled, what_was_compiled
from occupancy_lab.reporting.chapters.example import the_example
from occupancy_lab.reporting.chapters.excess import make_excesses, the_excesses
from occupancy_lab.reporting.chapters.forecast import make_forecast, the_forecast
from occupancy_lab.reporting.chapters.miscount import make_miscounts, the_miscounts
from occupancy_lab.reporting.chapters.occupancies import make_occupancies, the_occupancies
from occupancy_lab.reporting.chapters.short import forecast_in_short, in_short
from occupancy_lab.reporting.chapters.spread import make_spread, the_certainty, the_spread
from occupancy_lab.reporting.chapters.taken import make_taken, what_was_run
from occupancy_lab.reporting.example import make_example
from occupancy_lab.reporting.page import Page
from occupancy_lab.reporting.source import file_source, recorded_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from occupancy_lab.reporting.source import Source


def make_report(
    gpu: str | None = None,
    *,
    file: str | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Page:
    """Return the report of what was measured on one GPU, or of what is predicted for it.

    Args:
        gpu: Name of the GPU; None takes an H200, or the only one of *file*.
        file: A CSV file that `sweep --measure --export-csv` wrote; None takes what was recorded
            and comes with the lab.
        progress: Called with the compiles that are done and those to do, where a page needs any.

    Raises:
        InputError: no launches were measured on that GPU or predicted for it, or *file* cannot be
            read.
    """
    source = recorded_source(gpu, progress) if file is None else file_source(file, gpu)
    return write_page(source)


def write_page(source: Source) -> Page:
    """Return the report of *source*; a chapter that has no rows says so in a sentence."""
    if source.is_predicted:
        return _predicted_page(source)
    taken = make_taken(source)
    benchmark, accuracy = make_benchmark(source), make_accuracy(source)
    example = make_example(source)
    problem = None if example is None else example.case.record.problem
    return Page(
        f"Fused softmax on {source.gpu.title}",
        (
            what_was_run(taken),
            in_short(benchmark, accuracy),
            the_benchmark(benchmark),
            the_accuracy(accuracy),
            the_occupancies(None if problem is None else make_occupancies(source, problem)),
            the_excesses(make_excesses(source)),
            the_example(example),
            the_spread(taken, make_spread(source)),
        ),
    )


def _predicted_page(source: Source) -> Page:
    """Return the report of predictions, with what others measured beside them."""
    origin = source.origin
    compiled, forecast = make_compiled(source), make_forecast(source)
    own = None if source.recorded is None else make_accuracy(source.recorded)
    spread = None if source.recorded is None else make_spread(source.recorded)
    example = make_example(source)
    problem = None if example is None else example.case.record.problem
    return Page(
        f"Fused softmax on {source.gpu.title}, predicted",
        (
            what_was_compiled(compiled),
            forecast_in_short(forecast, own),
            the_forecast(forecast),
            the_accuracy(own, f"no time that was measured on {source.gpu.title} is known"),
            the_occupancies(None if problem is None else make_occupancies(source, problem)),
            the_miscounts(make_miscounts(source), compiled.origin),
            the_example(example),
            the_certainty(compiled, own, None if origin is None else make_accuracy(origin), spread),
        ),
    )
