"""How long the kernel should take on each GPU, and what that rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.explaining.catalogue import DOUBTFUL
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import count, listed, microseconds, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vendors import Vendors
    from vendors_stages import Stages

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.values import Prediction, Problem


@dataclass(frozen=True, slots=True)
class PredictedLaunch:
    """One launch whose time can be predicted."""

    record: Record
    prediction: Prediction


@dataclass(frozen=True, slots=True)
class ProblemTimes:
    """One problem on one GPU."""

    gpu: Gpu
    problem: Problem
    tutorial: PredictedLaunch | None
    """With the num_warps and num_stages that the tutorial takes on that GPU; None: not known."""
    best: PredictedLaunch
    """With the fewest stages and the num_warps that are predicted to be the fastest with them."""


def make_times(vendors: Vendors) -> tuple[ProblemTimes, ...]:
    """Return the predicted times of each problem on each GPU that has a prediction."""
    found = (_times(vendors, gpu, problem) for problem in vendors.problems for gpu in vendors.gpus)
    return tuple(times for times in found if times is not None)


def tutorial_record(vendors: Vendors, gpu: Gpu, problem: Problem) -> Record | None:
    """Return the kernel as the tutorial would compile it for *gpu*; None where that is no row."""
    kernel = vendors.records[0].kernel
    config = kernel.default_config(problem, gpu.architecture.max_shared)
    return vendors.at(gpu, problem, config.num_warps, config.num_stages)


def _times(vendors: Vendors, gpu: Gpu, problem: Problem) -> ProblemTimes | None:
    launches = [
        launch
        for num_warps in vendors.num_warps
        if (record := vendors.at(gpu, problem, num_warps, vendors.num_stages[0])) is not None
        and (launch := _launch(record)) is not None
    ]
    if not launches:
        return None
    tutorial = tutorial_record(vendors, gpu, problem)
    return ProblemTimes(
        gpu=gpu,
        problem=problem,
        tutorial=None if tutorial is None else _launch(tutorial),
        best=min(launches, key=lambda launch: launch.prediction.us),
    )


def _launch(record: Record) -> PredictedLaunch | None:
    return None if record.prediction is None else PredictedLaunch(record, record.prediction)


TITLE = "Predicted times"


def the_times(times: Sequence[ProblemTimes], stages: Stages) -> Chapter:
    """Return the predicted times, and say how little is known of them."""
    if not times:
        return Chapter(TITLE, ("Left out: nothing can be predicted for these GPUs.",))
    headers = ("GPU", "cols", "tutorial's", "fastest", "num_warps", "GB/s", "of the peak", "bound")
    fewest = times[0].best.record.config.num_stages
    caption = (
        "*tutorial's*: with the tutorial's num_warps and num_stages; *fastest*: with"
        f" {count(fewest, 'stage')} and the num_warps that is predicted to be the fastest then,"
        f" of which the rest is said. {DOUBTFUL} marks a share of a peak that is in doubt."
    )
    table = Table(headers, tuple(map(_row, times)), caption)
    return Chapter(TITLE, (" ".join(_sentences(times, stages)), table))


def _sentences(times: Sequence[ProblemTimes], stages: Stages) -> Iterator[str]:
    if unconfirmed := unconfirmed_words(times):
        yield unconfirmed
    bases: dict[str, list[str]] = {}
    for one in times:
        titles = bases.setdefault(one.best.prediction.basis, [])
        titles += [one.gpu.title] * (one.gpu.title not in titles)
    for basis, titles in bases.items():
        yield f"What the times of {listed(titles)} rest on: {basis}."
    yield from _stages_sentences(stages)


def unconfirmed_words(times: Sequence[ProblemTimes]) -> str | None:
    """Say that no AMD GPU has confirmed a time; None where one has."""
    on_amd = [one for one in times if one.gpu.vendor == "AMD"]
    if any(one.best.prediction.calibrated for one in on_amd):
        return None
    return "**No AMD GPU has confirmed a number of this page.**"


def _stages_sentences(stages: Stages) -> Iterator[str]:
    """Say where the model cannot see what num_stages is good for."""
    kernels = stages.of("AMD")
    blind = sum(
        not any(record.resources.async_copies for record in steps.records) for steps in kernels
    )
    if not blind:
        return
    yield (
        f"Of {len(kernels)} kernels for AMD {blind} have none of the copies into shared memory by"
        " which the model knows loads ahead: it sees there what more stages cost, not what they"
        " gain. It does not tell which num_stages is the fastest on an AMD GPU, and the tutorial's"
        " times there are too long if stages gain anything."
    )


def _row(times: ProblemTimes) -> tuple[str, ...]:
    best = times.best
    return (
        times.gpu.title,
        str(times.problem.cols),
        _us(times.tutorial),
        _us(best),
        str(best.record.config.num_warps),
        f"{best.prediction.gbs:.0f}",
        _share(times),
        best.prediction.bound,
    )


def _us(launch: PredictedLaunch | None) -> str:
    return "-" if launch is None else microseconds(launch.prediction.us)


def _share(times: ProblemTimes) -> str:
    peak = times.gpu.bandwidth_gbs
    if peak is None:
        return "-"
    doubt = DOUBTFUL if "bandwidth_gbs" in times.gpu.doubtful else ""
    return f"{percent(times.best.prediction.gbs / peak)}{doubt}"
