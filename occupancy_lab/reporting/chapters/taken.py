"""How the numbers of a page were taken, how far they can be trusted, and how to make them again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from occupancy_lab.evaluating.score import METRICS
from occupancy_lab.kernel import load_kernel
from occupancy_lab.reporting.chapters.accuracy import USES
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.reporting.source import NAME, PREDICTED, known_summary, span_words
from occupancy_lab.text.document import Bullets, Commands, Table, literal
from occupancy_lab.text.words import count, listed, percent
from occupancy_lab.throughput.launch_time import basis_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from occupancy_lab.reporting.chapters.accuracy import Accuracy
    from occupancy_lab.reporting.source import Source

TITLE = "How the numbers were taken"
LATE = "compile timed out"
"""What a compile that timed out is called, beside launches that did."""
CONDITIONS: Mapping[str, str] = {
    "device": "GPU",
    "driver": "driver",
    "torch": "torch",
    "triton": "Triton",
    "date": "date",
    "timer": "timed with",
    "l2": "L2 cache before each launch",
    "sm_mhz": "clock after the launches, MHz",
    "throttled": "clock held down by",
}
"""What the fields of Conditions are called."""


def how_taken(source: Source, origin: Accuracy | None) -> Chapter:
    """Say where, when and how the launches were made, how far they spread, and how to repeat it.

    Of predictions it says what they rest on and how far off they may be: by *origin* on the GPU for
    which the kernels were compiled.
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
        rows.append(("timed beside them", _counts(source.providers["provider"])))
    return Table(("", source.gpu.title), tuple(rows), prose=True)


def values_of(column: pd.Series[str]) -> list[str]:
    """Return the values that occur, in order, as markdown; numbers without a fraction."""
    values = sorted(column.dropna().unique())
    return [f"{one:.0f}" if isinstance(one, float) else literal(str(one)) for one in values]


def _counts(column: pd.Series[str]) -> str:
    """Return how often each value occurs, the commonest first: "3 torch and 1 copy"."""
    return listed(
        [f"{number} {literal(str(value))}" for value, number in column.value_counts().items()]
    )


def _untimed(source: Source) -> Iterator[str]:
    table = source.table.drop_duplicates([name for name in NAME if name != "use"])
    came_of = table["status"].where(table["status"] != "timed out", LATE)
    if not source.is_predicted:
        table = source.table[source.table["measured"] != "measured"]
        late = table["measured"].isna() & (table["status"] == "timed out")
        came_of = table["measured"].where(table["measured"].notna(), table["status"])
        # A row that is ok and was not launched is one for another GPU, or was interrupted.
        came_of = came_of.replace("ok", "not launched").mask(late, LATE)
    came_of = came_of[came_of != "ok"]
    if len(came_of):
        yield f"Configurations without a time: {_counts(came_of)}."


def _spread(source: Source) -> Iterator[str]:
    """Say of how many launches each time is, and how far they spread."""
    measured = source.measured
    if measured.empty:
        return
    timers, states = (listed(values_of(measured[name])) for name in ("timer", "l2"))
    runs = known_summary(measured["runs"].dropna())
    median = "a median"
    if runs is not None:
        median = f"the median of {span_words(f'{runs.least:.0f}', f'{runs.most:.0f}')} launches"
    yield f"Each measured time is {median}, timed with {timers}, the L2 cache {states} before each."
    within = known_summary(((measured["us_high"] - measured["us_low"]) / measured["us"]).dropna())
    if within is not None:
        yield (
            "The range that eight in ten launches of one kind keep to is"
            f" {within.median:.1%} of their median wide, {within.p90:.1%} or more for one kind in"
            f" ten, and {within.most:.1%} at worst."
        )
    named = [name for name in (*NAME, "launched") if name != "use"]
    several = measured.groupby(named)["us"].agg(["min", "max", "count"]).query("count > 1")
    between = known_summary(several["max"] / several["min"] - 1.0)
    if between is not None:
        yield (
            f"{between.count} kinds of launch were measured several times, in different parts of"
            f" the run: the longest median is {between.median:.1%} above the shortest (the median"
            f" of them; {between.most:.1%} at worst). Smaller differences than these mean nothing."
        )
    yield from _checks(measured)


def _checks(measured: pd.DataFrame) -> Iterator[str]:
    """Say which times tell little of the kernel, and how far results are off."""
    if measured["mostly_launch"].notna().any():
        yield (
            f"{measured['mostly_launch'].eq(other=True).sum()} of {len(measured)} take less than"
            " twice an empty kernel; such a time is mostly the launch, and tells little of the"
            " kernel."
        )
    errors = measured.groupby("dtype", sort=False)["relative_error"].max().dropna()
    if len(errors):
        greatest = listed([f"{error:.1e} ({dtype})" for dtype, error in errors.items()])
        yield (
            "Every result was compared with torch's in float64 before it was timed; the greatest"
            f" relative differences are {greatest}."
        )


def _predicted_sentences(source: Source, origin: Accuracy | None) -> Iterator[str]:
    gpu = source.gpu
    yield "The kernels were compiled for this page."
    yield (
        "Registers, shared memory and instructions are read from the binaries; what fits follows"
        f" from them, the limits of {gpu.target.name} and the {gpu.multiprocessors}"
        f" {gpu.architecture.multiprocessor_word}s. Nothing of that is an estimate."
    )
    words = basis_words(gpu, is_followed=gpu.vendor == "NVIDIA")
    yield f"Times are estimates, which rest on {words}; no {gpu.title} was measured."
    if origin is not None:
        result = origin.results[0]
        median, p90 = (METRICS[name].write(result.score) for name in ("median", "p90"))
        yield (
            f"On {result.title} a predicted time is off by {median} at the median and by less than"
            f" {p90} for nine in ten, of {result.launches} launches on"
            f" {count(result.shapes, 'shape')} {USES[result.use]}."
        )
    yield (
        f"Two configurations whose predicted times differ by less than {percent(PREDICTED.alike)}"
        " may well change places."
    )


def _again(source: Source) -> Iterator[str | Commands]:
    key = source.gpu.key
    if source.file is not None:
        yield f"The rows are those of {literal(source.file)}; this page is made of them by:"
        file = shlex.quote(source.file)
        yield Commands((f"occupancy-lab report --gpu {key} --file {file} --output {key}.md",))
        return
    command = f"occupancy-lab report --gpu {key} --output {key}.md"
    if source.is_predicted:
        yield "This page is made again, anywhere, by:"
        yield Commands((command,))
        return
    yield (
        f"The rows are in `reports/data/measured-{key}.csv` and `providers-{key}.csv`. The first"
        " command, on such a GPU, records them again; the second makes this page of them, anywhere:"
    )
    yield Commands(("python reports/record_measurements.py", command))
