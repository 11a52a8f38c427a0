"""How the numbers of a page were measured, how reliable they are, and how to reproduce them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from occupancy_lab.evaluating.score import METRICS
from occupancy_lab.kernel import load_kernel
from occupancy_lab.reporting.chapters.accuracy import USES, Accuracy
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.reporting.source import NAME, PREDICTED, Source, known_summary, span_words
from occupancy_lab.text.document import Bullets, Commands, Table, literal
from occupancy_lab.text.words import count, listed, percent
from occupancy_lab.throughput.launch_time import basis_words

if TYPE_CHECKING:
    import pandas as pd

TITLE = "How the numbers were obtained"
LATE = "compile timed out"
"""The status of a compile that timed out, as opposed to a launch."""
CONDITIONS: Mapping[str, str] = {
    "device": "GPU",
    "driver": "driver",
    "torch": "torch",
    "triton": "Triton",
    "date": "date",
    "timer": "timed with",
    "l2": "L2 cache before each launch",
    "sm_mhz": "clock after the launches, MHz",
    "throttled": "clock throttled by",
}
"""The words for the fields of Conditions."""


def how_taken(source: Source, origin: Accuracy | None) -> Chapter:
    """Return the chapter on where, when and how launches were measured, and how to repeat that.

    For predictions it says what they rest on and how accurate they are, by *origin* on another GPU
    of the same target.
    """
    if source.is_predicted:
        tables: tuple[Table, ...] = ()
        sentences = [*_predicted_sentences(source, origin), *_untimed(source)]
    else:
        tables, sentences = (_table(source),), [*_untimed(source), *_spread(source)]
    return Chapter(TITLE, (*tables, Bullets(tuple(sentences)), *_again(source)))


def _table(source: Source) -> Table:
    measured = source.measured
    rows = [
        (words, listed(values))
        for name, words in CONDITIONS.items()
        if (values := values_of(measured[name]))
    ]
    kernels = [load_kernel(name) for name in measured["kernel"].unique()]
    rows += [(kernel.name, kernel.title) for kernel in kernels]
    rows.append(("launches measured", f"{len(measured)}: {_counts(measured['use'])}"))
    if not source.providers.empty:
        rows.append(("other implementations timed", _counts(source.providers["provider"])))
    return Table(("", source.gpu.title), tuple(rows), prose=True)


def values_of(column: pd.Series[str]) -> list[str]:
    """Return the sorted distinct values as markdown; numbers without a fraction."""
    values = sorted(column.dropna().unique())
    return [f"{one:.0f}" if isinstance(one, float) else literal(str(one)) for one in values]


def _counts(column: pd.Series[str]) -> str:
    """Return how often each value occurs, the most common first: "3 torch and 1 copy"."""
    return listed(
        [f"{number} {literal(str(value))}" for value, number in column.value_counts().items()]
    )


def _untimed(source: Source) -> Iterator[str]:
    table = source.table.drop_duplicates([name for name in NAME if name != "use"])
    outcome = table["status"].where(table["status"] != "timed out", LATE)
    if not source.is_predicted:
        table = source.table[source.table["measured"] != "measured"]
        late = table["measured"].isna() & (table["status"] == "timed out")
        outcome = table["measured"].where(table["measured"].notna(), table["status"])
        # A row that compiled but was not launched is for another GPU, or was interrupted.
        outcome = outcome.replace("ok", "not launched").mask(late, LATE)
    outcome = outcome[outcome != "ok"]
    if len(outcome):
        yield f"Configurations without a time: {_counts(outcome)}."


def _spread(source: Source) -> Iterator[str]:
    """Say of how many launches each time is the median, and how far they spread."""
    measured = source.measured
    if measured.empty:
        return
    timers, states = (listed(values_of(measured[name])) for name in ("timer", "l2"))
    runs = known_summary(measured["runs"].dropna())
    median = "a median"
    if runs is not None:
        median = f"the median of {span_words(f'{runs.least:.0f}', f'{runs.most:.0f}')} launches"
    yield (
        f"Each measured time is {median}, timed with {timers}, with the L2 cache {states} before"
        " each launch."
    )
    within = known_summary(((measured["us_high"] - measured["us_low"]) / measured["us"]).dropna())
    if within is not None:
        yield (
            "The range from the 10th to the 90th percentile of one configuration's launches,"
            f" relative to their median, has a median of {within.median:.1%}, a 90th percentile of"
            f" {within.p90:.1%} and a maximum of {within.most:.1%}."
        )
    named = [name for name in (*NAME, "launched") if name != "use"]
    several = measured.groupby(named)["us"].agg(["min", "max", "count"]).query("count > 1")
    between = known_summary(several["max"] / several["min"] - 1.0)
    if between is not None:
        yield (
            f"{between.count} configurations were measured several times, in different parts of"
            f" the run: the longest time is {between.median:.1%} above the shortest at the median,"
            f" and {between.most:.1%} at worst. Smaller differences than these mean nothing."
        )
    yield from _checks(measured)


def _checks(measured: pd.DataFrame) -> Iterator[str]:
    """Say how many times tell little about the kernel, and how large errors of results are."""
    if measured["mostly_launch"].notna().any():
        yield (
            f"{measured['mostly_launch'].eq(other=True).sum()} of {len(measured)} take less than"
            " twice the time of an empty kernel; such a time is mostly launch overhead and tells"
            " little about the kernel."
        )
    errors = measured.groupby("dtype", sort=False)["relative_error"].max().dropna()
    if len(errors):
        greatest = listed([f"{error:.1e} ({dtype})" for dtype, error in errors.items()])
        yield (
            "Every result was compared with torch's in float64 before it was timed; the largest"
            f" relative differences are {greatest}."
        )


def _predicted_sentences(source: Source, origin: Accuracy | None) -> Iterator[str]:
    gpu = source.gpu
    yield "The kernels were compiled for this page."
    yield (
        "Registers, shared memory and instructions are read from the binaries; occupancy follows"
        f" from them, the limits of {gpu.target.name} and the {gpu.multiprocessors}"
        f" {gpu.architecture.multiprocessor_word}s. None of that is an estimate."
    )
    words = basis_words(gpu, is_followed=gpu.vendor == "NVIDIA")
    yield f"Times are estimates that rest on {words}; no {gpu.title} was measured."
    if origin is not None:
        result = origin.results[0]
        median, p90 = (METRICS[name].write(result.score) for name in ("median", "p90"))
        yield (
            f"On {result.title}, the error of predicted times has a median of {median} and a 90th"
            f" percentile of {p90}, for {result.launches} launches on"
            f" {count(result.shapes, 'shape')} {USES[result.use]}."
        )
    yield (
        f"If predicted times of two configurations differ by less than {percent(PREDICTED.alike)},"
        " either may be the faster one."
    )


def _again(source: Source) -> Iterator[str | Commands]:
    key = source.gpu.key
    if source.file is not None:
        yield f"The rows are those of {literal(source.file)}; this command makes the page:"
        file = shlex.quote(source.file)
        yield Commands((f"occupancy-lab report --gpu {key} --file {file} --output {key}.md",))
        return
    command = f"occupancy-lab report --gpu {key} --output {key}.md"
    if source.is_predicted:
        yield "This command makes the page again, on any machine:"
        yield Commands((command,))
        return
    yield (
        f"The rows are in `reports/data/measured-{key}.csv` and `providers-{key}.csv`. On such a"
        " GPU, the first command records them again; the second makes this page on any machine:"
    )
    yield Commands(("python reports/record_measurements.py", command))
