"""How the numbers were taken and how far they can be trusted, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.reporting.page import Chapter
from occupancy_lab.reporting.words import share
from occupancy_lab.text.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.reporting.spread import Spread
    from occupancy_lab.reporting.summary import Summary
    from occupancy_lab.reporting.taken import Taken

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
        held = f"held down by {listed(spread.throttled)}" if spread.throttled else "not held down"
        yield f"The clock was {_range(spread.clocks)} MHz after the launches, {held}."
    if spread.relative_errors:
        greatest = [f"{error:.1e} ({dtype})" for dtype, error in spread.relative_errors.items()]
        yield (
            "Every result was compared with torch's in float64 before it was timed; the greatest"
            f" relative differences are {listed(greatest)}."
        )


def _range(summary: Summary) -> str:
    least, most = f"{summary.least:.0f}", f"{summary.most:.0f}"
    return least if least == most else f"{least} to {most}"
