"""Where the tutorial's num_programs is wrong, in words, where nothing was launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.reporting.excess import predicted_lost
from occupancy_lab.reporting.excess_view import (
    TITLE,
    TOP,
    WAITING,
    count_sentence,
    lost_cell,
    predicted_words,
    reasons,
)
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.reporting.words import config_words, problem_words, share
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import change, count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.reporting.excess import Miscount, Miscounts


def the_miscounts(counts: Miscounts[Miscount] | None, origin: Gpu | None) -> Chapter:
    """Say how often the tutorial's num_programs is wrong, and why.

    What it costs was measured on *origin*; None for nowhere.
    """
    if counts is None:
        words = "Left out: the tutorial's num_programs is right, or fails, for each configuration."
        return Chapter(TITLE, (words,))
    words = " ".join((count_sentence(counts), *_own_sentences(counts), *_cost(counts, origin)))
    return Chapter(TITLE, (words, _terms(counts), _worst(counts), reasons(counts)))


def _cost(counts: Miscounts[Miscount], origin: Gpu | None) -> Iterator[str]:
    lost = counts.predicted_lost
    if lost is not None:
        yield f"{predicted_words(lost)}."
    yield WAITING
    if origin is not None:
        yield (
            f"What that costs was measured on {origin.title}: `occupancy-lab report --gpu"
            f" {origin.key}` says how much."
        )


def _own_sentences(counts: Miscounts[Miscount]) -> Iterator[str]:
    """Say for which shapes it is wrong of the configuration that the tutorial itself takes."""
    own = {one.problem: one for one in counts.launches if one.is_tutorials_own}
    if own:
        problem, worst = next(iter(own.items()))
        lost = worst.predicted_lost
        longer = f", and {share(lost)} more time is predicted" if lost and lost > 0 else ""
        yield (
            f"With the tutorial's own num_warps and num_stages it is wrong on"
            f" {count(len(own), 'shape')}, such as {problem_words(problem)}:"
            f" {worst.tutorial_programs} programs where {worst.programs} fit{longer}."
        )


def _terms(counts: Miscounts[Miscount]) -> Table:
    def row(term: str, launches: tuple[Miscount, ...]) -> tuple[str, ...]:
        surplus, lost = max(launch.surplus for launch in launches), predicted_lost(launches)
        shares = ("-", "-") if lost is None else (share(lost.median), share(lost.most))
        return term, str(len(launches)), change(surplus), *shares

    rows = tuple(row(term, launches) for term, launches in counts.by_term().items())
    lost = ("lost, median", "lost, worst")
    return Table(
        ("the formula misses", "configurations", "more by at most", *lost),
        rows,
        "Why, how many programs more than fit it launches, and the time predicted to be lost:",
    )


def _worst(counts: Miscounts[Miscount]) -> Table:
    rows = tuple(
        (
            problem_words(launch.problem),
            config_words(launch.kernel, launch.config),
            str(launch.tutorial_programs),
            str(launch.programs),
            change(launch.surplus),
            lost_cell(launch.predicted_lost),
            launch.missing,
        )
        for launch in counts.launches[:TOP]
    )
    headers = ("", "configuration", "programs", "fit", "more by", "lost, predicted", "misses")
    return Table(headers, rows, f"The {len(rows)} that are predicted to lose the most:")
