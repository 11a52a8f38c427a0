"""Where the tutorial's num_programs is wrong, and what that costs, in words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from occupancy_lab.explaining.document import Table
from occupancy_lab.explaining.formula import tutorial_sentences
from occupancy_lab.explaining.notes import cell
from occupancy_lab.explaining.words import change
from occupancy_lab.reporting.excess_picture import draw_excesses
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.summary import summary_of
from occupancy_lab.reporting.words import config_words, problem_words, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.reporting.excess import Excess, Excesses, Miscount, Miscounts

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
        f"Time lost over the rows a program, {lost.count} launches: {share(lost.median)} at the"
        f" median, {share(lost.most)} at most",
        partial(draw_excesses, excesses),
    )
    return Chapter(
        TITLE, (" ".join(_sentences(excesses)), picture, _terms(excesses), *_worst(excesses))
    )


def count_sentence(counts: Miscounts[Any]) -> str:
    """Say how often the tutorial's formula is right, and how often it is wrong."""
    wrong = len(counts.launches)
    return (
        f"The tutorial's formula gives the num_programs that fit for {counts.right}"
        f" configurations, divides by zero for {counts.failing}, and is wrong for {wrong}:"
        f" {counts.too_many} times it launches more than fit, {wrong - counts.too_many} times"
        " fewer."
    )


def _sentences(excesses: Excesses) -> Iterator[str]:
    lost = excesses.lost
    slower = sum(launch.lost > 0 for launch in excesses.launches)
    yield count_sentence(excesses)
    yield (
        f"Each of those was launched both ways. The formula's number takes {share(lost.median)}"
        f" longer at the median and {share(lost.most)} at worst; it is slower for {slower} of them."
    )
    if excesses.too_many:
        yield WAITING


def _terms(excesses: Excesses) -> Table:
    def row(term: str, launches: tuple[Excess, ...]) -> tuple[str, ...]:
        lost = summary_of(launch.lost for launch in launches)
        return term, str(lost.count), share(lost.median), share(lost.most)

    rows = tuple(row(term, launches) for term, launches in excesses.by_term().items())
    return Table(("the formula misses", "launches", "median", "worst"), rows, "The time lost:")


def _worst(excesses: Excesses) -> Iterator[Table | str]:
    headers = ("", "configuration", "programs", "fit", "us", "us, as fit", "lost", "misses")
    rows = tuple(
        (
            problem_words(launch.problem),
            config_words(launch.kernel, launch.config),
            str(launch.tutorial_programs),
            str(launch.programs),
            cell(launch.tutorial_us),
            cell(launch.us),
            change(launch.lost),
            launch.missing,
        )
        for launch in excesses.launches[:TOP]
    )
    yield Table(headers, rows, f"The {len(rows)} that lose the most:")
    yield reasons(excesses)


def reasons(counts: Miscounts[Any]) -> str:
    """Give a list: for each term, what the formula says of the worst launch that misses it."""
    return "\n".join(
        f"- *{term}*: {_reason(worst)}" for term, (worst, *_) in counts.by_term().items()
    )


def _reason(worst: Miscount) -> str:
    said = " ".join(tutorial_sentences(worst.calculation))
    return f"for {problem_words(worst.problem)}, {said[0].lower()}{said[1:]}"
