"""Where the tutorial's num_programs is wrong, and what that costs, in words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from occupancy_lab.explaining.formula import tutorial_sentences
from occupancy_lab.reporting.excess import predicted_lost
from occupancy_lab.reporting.excess_picture import draw_excesses
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.summary import summary_of
from occupancy_lab.reporting.words import config_words, problem_words, share
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import cell, change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.reporting.excess import Excess, Excesses, Miscount, Miscounts
    from occupancy_lab.reporting.summary import Summary

TITLE = "Where the tutorial's num_programs is wrong"
TOP = 8
"""Launches in the table of the worst."""
WAITING = (
    "Programs that do not fit wait until others have done all their rows, so the more rows a"
    " program does, the more they cost."
)


def the_excesses(excesses: Excesses | None) -> Chapter:
    """Say how often the tutorial's num_programs is wrong, why, and what that costs."""
    if excesses is None:
        words = "Left out: nothing was launched with the tutorial's num_programs where it is wrong."
        return Chapter(TITLE, (words,))
    lost = excesses.lost
    picture = Picture(
        "excesses",
        f"Time lost over the rows a program, {lost.count} launches: {_median_and_most(lost)}"
        + _beside(excesses.predicted_lost),
        partial(draw_excesses, excesses),
    )
    return Chapter(
        TITLE, (" ".join(_sentences(excesses)), picture, _terms(excesses), *_worst(excesses))
    )


def count_sentence(counts: Miscounts[Any]) -> str:
    """Say how often the tutorial's formula is right, and how often it is wrong."""
    wrong = len(counts.launches)
    return (
        f"Of {counts.right + counts.failing + wrong} configurations of the persistent kernel, the"
        f" tutorial's formula gives the num_programs that fit for {counts.right}, divides by zero"
        f" for {counts.failing}, where `metadata.shared` is 0, and is wrong for {wrong}:"
        f" {counts.too_many} times it launches more than fit, {wrong - counts.too_many} times"
        " fewer."
    )


def longer_words(take: str, lost: Summary) -> str:
    """Say how much longer launches with the formula's number *take*, "takes" or the like."""
    return (
        f"The formula's number {take} {share(lost.median)} longer at the median and"
        f" {share(lost.most)} at worst"
    )


def predicted_words(lost: Summary) -> str:
    """Say how much longer they are predicted to take."""
    return longer_words("is predicted to take", lost)


def lost_cell(lost: float | None) -> str:
    """Return what is predicted to be lost, "-" for None."""
    return "-" if lost is None else change(lost)


def _median_and_most(lost: Summary) -> str:
    return f"{share(lost.median)} at the median, {share(lost.most)} at most"


def _beside(lost: Summary | None) -> str:
    return "" if lost is None else f"; as predicted, {_median_and_most(lost)}"


def _sentences(excesses: Excesses) -> Iterator[str]:
    lost = excesses.lost
    slower = sum(launch.lost > 0 for launch in excesses.launches)
    yield count_sentence(excesses)
    yield (
        f"Each of those was launched both ways. {longer_words('takes', lost)}; it is slower for"
        f" {slower} of them."
    )
    predicted, off = excesses.predicted_lost, excesses.off
    if predicted is not None and off is not None:
        yield (
            f"{predicted_words(predicted)}, and its predicted time is off by {share(off.median)} at"
            f" the median and by less than {share(off.p90)} for nine launches in ten."
        )
    if excesses.too_many:
        yield WAITING


def _terms(excesses: Excesses) -> Table:
    def row(term: str, launches: tuple[Excess, ...]) -> tuple[str, ...]:
        lost = summary_of(launch.lost for launch in launches)
        said = predicted_lost(launches)
        predicted = "-" if said is None else share(said.median)
        return term, str(lost.count), share(lost.median), predicted, share(lost.most)

    rows = tuple(row(term, launches) for term, launches in excesses.by_term().items())
    headers = ("the formula misses", "launches", "median", "median, predicted", "worst")
    return Table(headers, rows, "The time lost:")


def _worst(excesses: Excesses) -> Iterator[Table | str]:
    times = ("us", "us, as fit", "lost", "lost, predicted")
    headers = ("", "configuration", "programs", "fit", *times, "misses")
    rows = tuple(
        (
            problem_words(launch.problem),
            config_words(launch.kernel, launch.config),
            str(launch.tutorial_programs),
            str(launch.programs),
            cell(launch.tutorial_us),
            cell(launch.us),
            change(launch.lost),
            lost_cell(launch.predicted_lost),
            launch.missing,
        )
        for launch in excesses.launches[:TOP]
    )
    yield Table(headers, rows, f"The {len(rows)} that lose the most:")
    yield reasons(excesses)


def reasons(counts: Miscounts[Any]) -> str:
    """Return a list: for each term, what the formula says of the worst launch that misses it."""
    return "\n".join(
        f"- *{term}*: {_reason(worst)}" for term, (worst, *_) in counts.by_term().items()
    )


def _reason(worst: Miscount) -> str:
    said = " ".join(tutorial_sentences(worst.calculation))
    return f"for {problem_words(worst.problem)}, {said[0].lower()}{said[1:]}"
