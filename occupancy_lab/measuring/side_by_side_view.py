"""What was timed side by side, as tables and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.text.document import Document, Section, Table, literal
from occupancy_lab.text.notes import (
    basis_sentence,
    cell,
    conditions_sentence,
    difference_cell,
)
from occupancy_lab.text.words import listed
from occupancy_lab.throughput.calibrations import calibration_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.measuring.side_by_side import SideBySide, Timed

MEASURED = ("", "us", "10-90 %", "GB/s", "of the copy", "relative error")
PREDICTED = ("", "warps", "stages", "programs", "predicted us", "bound", "measured us", "off")


def side_by_side_document(found: SideBySide) -> Document:
    """Return what was measured, and what was predicted of it, in words."""
    problem = found.problem
    title = f"{found.kernel}, {problem.rows} x {problem.cols} {problem.dtype}, on {found.gpu.title}"
    measured = Table(MEASURED, tuple(_measured(found, row) for row in found.rows))
    sections = [Section("Measured", (measured,), tuple(_measured_sentences(found)))]
    planned = tuple(row for row in found.rows if row.config is not None)
    if planned:
        table = Table(PREDICTED, tuple(map(_predicted, planned)))
        sections.append(Section("Predicted", (table,), tuple(_predicted_sentences(found))))
    return Document(title, (_answer(found),), tuple(sections))


def _answer(found: SideBySide) -> str:
    timed = [row for row in found.rows if row.measurement.us is not None and row.provider != "copy"]
    if not timed:
        return "Nothing was measured."
    fastest = min(timed, key=lambda row: row.measurement.us or 0.0)
    share = found.share_of_copy(fastest)
    copy = "" if share is None else f", {share:.0%} of the copy's bandwidth"
    return f"The fastest is {fastest.provider}: {cell(fastest.measurement.us)} us measured{copy}."


def _measured(found: SideBySide, row: Timed) -> tuple[str, ...]:
    taken, share = row.measurement, found.share_of_copy(row)
    return (
        row.provider,
        cell(taken.us),
        "-" if taken.us is None else f"{cell(taken.us_low)} - {cell(taken.us_high)}",
        "-" if row.gbs is None else f"{row.gbs:.0f}",
        "-" if share is None else f"{share:.0%}",
        "-" if taken.relative_error is None else f"{taken.relative_error:.1e}",
    )


def _predicted(row: Timed) -> tuple[str, ...]:
    config, prediction = row.config, row.prediction
    predicted = None if prediction is None else prediction.us
    return (
        row.provider,
        "-" if config is None else str(config.num_warps),
        "-" if config is None else str(config.num_stages),
        "-" if row.num_programs is None else str(row.num_programs),
        cell(predicted),
        "-" if prediction is None else prediction.bound,
        cell(row.measurement.us),
        difference_cell(predicted, row.measurement.us),
    )


def _measured_sentences(found: SideBySide) -> Iterator[str]:
    for row in found.rows:
        if row.measurement.us is None:
            reason = literal(str(row.measurement.reason))
            yield f"{row.provider} has no time, {row.measurement.status}: {reason}."
    timed = [row.measurement for row in found.rows if row.measurement.us is not None]
    if timed and timed[0].conditions is not None:
        yield conditions_sentence(timed[0].conditions, timed[0].runs)
    short = [row.provider for row in found.rows if row.measurement.mostly_launch]
    if short:
        yield (
            f"Less than twice the time of an empty kernel, so mostly the launch: {listed(short)}."
        )
    yield (
        "GB/s are of the bytes that have to move, however often a provider moves them; the relative"
        " error is against torch in float64."
    )


def _predicted_sentences(found: SideBySide) -> Iterator[str]:
    basis = calibration_for(found.gpu)
    if basis is not None:
        yield basis_sentence(found.gpu, basis.words, calibrated=basis.calibrated)
        yield "off is how far the predicted time is off the measured one."
