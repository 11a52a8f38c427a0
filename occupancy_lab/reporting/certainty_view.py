"""How sure the numbers of a page of predictions are, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.evaluating.score import METRICS
from occupancy_lab.reporting.accuracy import USES
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.reporting.spread_view import spread_sentences
from occupancy_lab.reporting.times import PREDICTED
from occupancy_lab.text.words import basis_sentence, count, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.evaluating.evaluation import Result
    from occupancy_lab.reporting.accuracy import Accuracy
    from occupancy_lab.reporting.compiled import Compiled
    from occupancy_lab.reporting.spread import Spread

TITLE = "How sure the numbers are"


def the_certainty(
    compiled: Compiled, own: Accuracy | None, origin: Accuracy | None, spread: Spread | None
) -> Chapter:
    """Say what is exact, how far the times may be off, and what the recorded ones are.

    *own* holds the predictions against what was recorded on the GPU, *origin* against what was
    measured on the one for which the kernels were compiled.
    """
    sentences = (
        *_exact(compiled),
        *_times(compiled, own, origin),
        *_recorded(compiled, spread),
    )
    return Chapter(TITLE, ("\n".join(f"- {words}" for words in sentences),))


def _exact(compiled: Compiled) -> Iterator[str]:
    gpu = compiled.gpu
    mp = gpu.architecture.multiprocessor_word
    yield (
        "Registers, shared memory and instructions are read from the binaries. What fits follows"
        f" from them and the limits of {gpu.target.name}, and num_programs from the"
        f" {gpu.multiprocessors} {mp}s: nothing of that is an estimate."
    )


def _times(compiled: Compiled, own: Accuracy | None, origin: Accuracy | None) -> Iterator[str]:
    gpu, basis = compiled.gpu, compiled.basis
    yield f"Times are estimates. {basis_sentence(gpu, basis.words, calibrated=basis.calibrated)}"
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


def _recorded(compiled: Compiled, spread: Spread | None) -> Iterator[str]:
    if compiled.recorded is None or spread is None:
        return
    how = " ".join(spread_sentences(compiled.recorded, spread))
    yield f"Of the recorded times: {how[0].lower()}{how[1:]}"
    if spread.within is None:
        yield "How far they spread was not recorded, nor on which day they were taken."
