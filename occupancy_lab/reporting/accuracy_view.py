"""Predicted beside measured times, in the words of an evaluation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from occupancy_lab.evaluating.evaluation import write_report
from occupancy_lab.evaluating.score import METRICS
from occupancy_lab.reporting.accuracy import USES
from occupancy_lab.reporting.accuracy_picture import draw_accuracy
from occupancy_lab.reporting.page import Chapter, Picture

if TYPE_CHECKING:
    from occupancy_lab.reporting.accuracy import Accuracy

TITLE = "Predicted against measured"


NOTHING = "nothing can be predicted of these launches"


def the_accuracy(accuracy: Accuracy | None, why_not: str = NOTHING) -> Chapter:
    """Say how good the predictions are, for each use apart, or else *why_not*."""
    if accuracy is None:
        return Chapter(TITLE, (f"Left out: {why_not}.",))
    kinds = [f"*{one.use.capitalize()}*: shapes {USES[one.use]}." for one in accuracy.results]
    kinds.append("Launches of another number of programs than fits are left out here.")
    return Chapter(
        TITLE,
        (" ".join(kinds), _picture(accuracy), *write_report(accuracy.evaluation).sections),
    )


def _picture(accuracy: Accuracy) -> Picture:
    said = [
        f"{result.use}, median error {METRICS['median'].write(result.score)}"
        for result in accuracy.results
    ]
    return Picture(
        "accuracy",
        f"Predicted over measured time of every launch, by what bounds it: {'; '.join(said)}",
        partial(draw_accuracy, accuracy),
    )
