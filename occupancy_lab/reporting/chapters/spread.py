"""How far the numbers of a page can be trusted: the spread of times, the errors of predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.evaluating.score import METRICS
from occupancy_lab.reporting.chapters.accuracy import USES
from occupancy_lab.reporting.launches import known_summary, share
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.reporting.source import NAME, PREDICTED
from occupancy_lab.text.words import basis_sentence, count, listed, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from occupancy_lab.evaluating.evaluation import Result
    from occupancy_lab.reporting.chapters.accuracy import Accuracy
    from occupancy_lab.reporting.chapters.taken import Compiled, Taken
    from occupancy_lab.reporting.launches import Summary
    from occupancy_lab.reporting.source import Source


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of the measured times, as shares of their medians."""

    launches: int
    """Medians that there are."""
    runs: Summary | None
    """Launches behind each median; None where nobody knows, as for what follows."""
    within: Summary | None
    """The range that eight in ten launches of one kind keep to."""
    between: Summary | None
    """The longest over the shortest median, minus 1, of what was measured several times."""
    mostly_launch: int | None
    """Launches that take less than twice an empty kernel."""
    clocks: Summary | None
    """The multiprocessors' clock, MHz."""
    throttled: tuple[str, ...]
    """Why the clock was held down, where it was."""
    relative_errors: Mapping[str, float]
    """By dtype, the greatest difference of a result from torch's in float64."""


def make_spread(source: Source) -> Spread | None:
    """Return the spread of the times of *source*; None where nothing was measured."""
    measured = source.measured
    if measured.empty:
        return None
    within = (measured["us_high"] - measured["us_low"]) / measured["us"]
    times = measured.groupby([name for name in (*NAME, "launched") if name != "use"])["us"]
    several = times.agg(["min", "max", "count"]).query("count > 1")
    flags = measured["mostly_launch"]
    return Spread(
        launches=len(measured),
        runs=known_summary(measured["runs"].dropna()),
        within=known_summary(within.dropna()),
        between=known_summary(several["max"] / several["min"] - 1.0),
        mostly_launch=int(flags.eq(other=True).sum()) if flags.notna().any() else None,
        clocks=known_summary(measured["sm_mhz"].dropna()),
        throttled=tuple(sorted(measured["throttled"].dropna().astype(str).unique())),
        relative_errors={
            str(dtype): float(errors.max())
            for dtype, errors in measured.groupby("dtype", sort=False)["relative_error"]
            if errors.notna().any()
        },
    )


TITLE = "How the numbers were taken"


def the_spread(taken: Taken, spread: Spread | None) -> Chapter:
    """Say what one number is, how far it spreads, and what could have moved it."""
    if spread is None:
        return Chapter(TITLE, ("Left out: nothing was measured.",))
    return Chapter(TITLE, ("\n".join(f"- {words}" for words in spread_sentences(taken, spread)),))


def spread_sentences(taken: Taken, spread: Spread) -> Iterator[str]:
    """Say one by one what is known of the measured times."""
    timers, states = (listed(taken.conditions[name]) for name in ("timer", "l2"))
    median = "a median" if spread.runs is None else f"the median of {_range(spread.runs)} launches"
    yield f"Each time is {median}, timed with {timers}, the L2 cache {states} before each."
    if spread.within is not None:
        yield (
            "The range that eight in ten launches of one kind keep to is"
            f" {share(spread.within.median)} of their median wide, {share(spread.within.p90)} or"
            f" more for one kind in ten, and {share(spread.within.most)} at worst."
        )
    if spread.between is not None:
        yield (
            f"{spread.between.count} launches were measured several times, in different parts of"
            f" the run: the longest median is {share(spread.between.median)} above the shortest"
            f" (the median of them; {share(spread.between.most)} at worst). Smaller differences"
            " than these mean nothing."
        )
    if spread.mostly_launch is not None:
        yield (
            f"{spread.mostly_launch} of {spread.launches} take less than twice an empty kernel;"
            " such a time is mostly the launch, and tells little of the kernel."
        )
    if spread.clocks is not None:
        throttled = (
            f"held down by {listed(spread.throttled)}" if spread.throttled else "not held down"
        )
        yield f"The clock was {_range(spread.clocks)} MHz after the launches, {throttled}."
    if spread.relative_errors:
        greatest = [f"{error:.1e} ({dtype})" for dtype, error in spread.relative_errors.items()]
        yield (
            "Every result was compared with torch's in float64 before it was timed; the greatest"
            f" relative differences are {listed(greatest)}."
        )


def _range(summary: Summary) -> str:
    least, most = f"{summary.least:.0f}", f"{summary.most:.0f}"
    return least if least == most else f"{least} to {most}"


CERTAINTY_TITLE = "How sure the numbers are"


def the_certainty(
    compiled: Compiled, own: Accuracy | None, origin: Accuracy | None, spread: Spread | None
) -> Chapter:
    """Say what is exact, how far the times may be off, and what the recorded ones are.

    *own* holds the predictions against what was recorded on the GPU, *origin* against what was
    measured on the one for which the kernels were compiled.
    """
    sentences = (
        *_exact_numbers(compiled),
        *_predicted_times(compiled, own, origin),
        *_recorded_times(compiled, spread),
    )
    return Chapter(CERTAINTY_TITLE, ("\n".join(f"- {words}" for words in sentences),))


def _exact_numbers(compiled: Compiled) -> Iterator[str]:
    gpu = compiled.gpu
    mp = gpu.architecture.multiprocessor_word
    yield (
        "Registers, shared memory and instructions are read from the binaries. What fits follows"
        f" from them and the limits of {gpu.target.name}, and num_programs from the"
        f" {gpu.multiprocessors} {mp}s: nothing of that is an estimate."
    )


def _predicted_times(
    compiled: Compiled, own: Accuracy | None, origin: Accuracy | None
) -> Iterator[str]:
    gpu, basis = compiled.gpu, compiled.basis
    rest = basis_sentence(gpu, basis.words, calibrated=basis.calibrated, error=basis.error)
    yield f"Times are estimates. {rest}"
    if own is None:
        yield f"How far they are off on {gpu.title} nobody has measured."
    else:
        result = own.results[0]
        yield f"{_off(result)} of {gpu.title}."
    if origin is not None:
        result = origin.results[0]
        yield (
            f"{_off(result)} of {result.title}, good and bad ones, on"
            f" {count(result.shapes, 'shape')} {USES[result.use]}."
        )
    yield (
        f"Two configurations whose predicted times differ by less than {percent(PREDICTED.alike)}"
        " may well change places."
    )


def _off(result: Result) -> str:
    median, p90 = (METRICS[name].write(result.score) for name in ("median", "p90"))
    return (
        f"A predicted time is off by {median} at the median, and by less than {p90} for nine in"
        f" ten, of {result.launches} launches"
    )


def _recorded_times(compiled: Compiled, spread: Spread | None) -> Iterator[str]:
    if compiled.recorded is None or spread is None:
        return
    how = " ".join(spread_sentences(compiled.recorded, spread))
    yield f"Of the recorded times: {how[0].lower()}{how[1:]}"
    if spread.within is None:
        yield "How far they spread was not recorded, nor on which day they were taken."
