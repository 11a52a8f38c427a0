"""Makes amd-nvidia.md and its picture: `python reports/amd_nvidia.py`, without a GPU.

The page is made of data/vendors.csv, which `python reports/amd_nvidia.py --compile` writes; do that
again when the model of time changes. The modules vendors*.py beside this one have the chapters.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vendors import compile_rows, recorded_vendors
from vendors_claims import make_claims, the_claims
from vendors_formula import make_formulas, the_formulas
from vendors_stages import make_stages, stages_sentences, the_stages

from occupancy_lab.explaining.catalogue import DOUBTFUL
from occupancy_lab.occupancy import Rocm
from occupancy_lab.occupancy.calculator import limiter_words
from occupancy_lab.prediction import NOT_FOLLOWED
from occupancy_lab.reporting.contents import write_markdown
from occupancy_lab.reporting.page import Chapter, Page
from occupancy_lab.text.document import Bullets, Commands, Table
from occupancy_lab.text.words import count, listed, microseconds, percent
from occupancy_lab.throughput.launch_time import MEASURED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vendors import Time, Vendors
    from vendors_formula import Formula
    from vendors_stages import Stages

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.values import Problem


@dataclass(frozen=True, slots=True)
class ProblemTimes:
    """The predicted times of one problem on one GPU."""

    gpu: Gpu
    problem: Problem
    tutorial: Time | None
    """The time with the num_warps and num_stages that the tutorial takes on that GPU, or None."""
    num_warps: int
    """The number of warps that is predicted to be the fastest with the fewest stages."""
    best: Time
    """The time with these."""


def make_times(vendors: Vendors) -> tuple[ProblemTimes, ...]:
    """Return the predicted times of each problem on each GPU that has a prediction."""
    found = (_times(vendors, gpu, problem) for problem in vendors.problems for gpu in vendors.gpus)
    return tuple(times for times in found if times is not None)


def _times(vendors: Vendors, gpu: Gpu, problem: Problem) -> ProblemTimes | None:
    known = {
        num_warps: time
        for num_warps in vendors.num_warps
        if (time := vendors.time(gpu, problem, num_warps, vendors.num_stages[0])) is not None
    }
    if not known:
        return None
    best = min(known, key=lambda one: known[one].us)
    return ProblemTimes(gpu, problem, vendors.tutorials_time(gpu, problem), best, known[best])


def vendors_in_short(
    vendors: Vendors, stages: Stages, formulas: Sequence[Formula], times: Sequence[ProblemTimes]
) -> Chapter:
    """State what num_stages takes, how often the formula is right, and what was confirmed."""
    statuses = [f"{number} {status}" for status, number in vendors.statuses.items()]
    problems = listed([problem.words for problem in vendors.problems])
    warps, stage = (listed(list(map(str, n))) for n in (vendors.num_warps, vendors.num_stages))
    words = (
        f"Triton {vendors.triton} compiled the tutorial's kernel, without a GPU: {problems},"
        f" num_warps {warps}, num_stages {stage} for each GPU, {count(len(vendors.names), 'row')}:"
        f" {listed(statuses)}. What was read of the binaries is recorded, with the predicted times;"
        " all else is worked out from it. The first command compiles them again, and predicts; the"
        " second makes this page of the rows:"
    )
    commands = Commands(("python reports/amd_nvidia.py --compile", "python reports/amd_nvidia.py"))
    said = [
        *stages_sentences(stages),
        _formula_sentence(formulas),
        *_rocm_sentence(formulas),
        *_unconfirmed(times),
    ]
    return Chapter("In short", (Bullets(tuple(said)), words, commands))


def _formula_sentence(formulas: Sequence[Formula]) -> str:
    groups = {
        "for NVIDIA's GPUs": [one for one in formulas if one.gpu.vendor != "AMD"],
        "for AMD's with current ROCm": list(_with(formulas, Rocm.CURRENT).values()),
    }
    said = [
        f"{sum(one.right for one in group)} of {sum(len(one.cases) for one in group)} {words}"
        for words, group in groups.items()
        if group
    ]
    return f"Of these kernels the tutorial's formula is right on {listed(said)}."


def _rocm_sentence(formulas: Sequence[Formula]) -> Iterator[str]:
    """State the GPUs on which it matters what ROCm reports."""
    old = _with(formulas, Rocm.OLD)
    said = [
        f"{one.gpu.title} ({old[key].right} of {len(one.cases)} right with ROCm up to 6.3,"
        f" {one.right} with current ROCm)"
        for key, one in _with(formulas, Rocm.CURRENT).items()
        if key in old and old[key].right != one.right
    ]
    if said:
        yield f"Which ROCm is installed matters on {listed(said)}."


def _with(formulas: Sequence[Formula], rocm: Rocm) -> dict[str, Formula]:
    return {one.gpu.key: one for one in formulas if one.gpu.vendor == "AMD" and one.rocm is rocm}


def _unconfirmed(times: Sequence[ProblemTimes]) -> Iterator[str]:
    """State that no AMD GPU has confirmed a time, unless one has."""
    if not any(one.gpu.key in MEASURED for one in times if one.gpu.vendor == "AMD"):
        yield "**No AMD GPU has confirmed a number of this page.**"


def side_by_side(vendors: Vendors) -> Chapter:
    """Compare the GPUs, and the same kernel on each of them."""
    launched = [
        (gpu.title, str(problem.cols), *_launched_cells(record))
        for problem in vendors.problems
        for gpu in vendors.gpus
        if (record := vendors.tutorials(gpu, problem)) is not None
    ]
    headers = ("GPU", "cols", "warps", "stages", "registers", "shared B")
    return Chapter(
        "Side by side",
        (
            Table(
                ("GPU", "multiprocessor", "warps", "registers", "shared B", "B per program"),
                tuple(map(_limits_row, vendors.gpus)),
                "What one multiprocessor has (a warp is a wave on AMD):",
            ),
            Table(
                (*headers, "programs", "limited by", "num_programs"),
                tuple(launched),
                "The kernel as the tutorial would launch it there: what a program takes, the"
                " programs that one multiprocessor holds, what allows no more, and num_programs of"
                " the launch:",
            ),
        ),
    )


def _limits_row(gpu: Gpu) -> tuple[str, ...]:
    mp = gpu.architecture
    return (
        f"{gpu.title} ({gpu.target.name})",
        f"{gpu.multiprocessors} {mp.multiprocessor_word}",
        f"{mp.max_warps} x {mp.warp_size}",
        str(mp.registers),
        str(mp.shared_per_multiprocessor),
        str(mp.max_shared),
    )


def _launched_cells(record: Record) -> tuple[str, ...]:
    return (
        str(record.config.num_warps),
        str(record.config.num_stages),
        str(record.resources.n_regs),
        str(record.resources.shared),
        str(record.occupancy.programs_per_multiprocessor),
        limiter_words(record.calculation),
        str(record.plan.num_programs),
    )


def the_times(times: Sequence[ProblemTimes]) -> Chapter:
    """Return the predicted times and state how little is known about them."""
    if not times:
        return Chapter("Predicted times", ("Left out: nothing can be predicted for these GPUs.",))
    headers = ("GPU", "cols", "tutorial's", "fastest", "num_warps", "GB/s", "of the peak", "bound")
    caption = (
        "*tutorial's*: with the tutorial's num_warps and num_stages; *fastest*: with the fewest"
        " stages and the num_warps that is predicted to be the fastest then, of which the rest is"
        f" said. {DOUBTFUL} marks a share of a peak that is in doubt."
    )
    bases: dict[str, list[str]] = {}
    for one in times:
        titles = bases.setdefault(one.best.basis, [])
        titles += [one.gpu.title] * (one.gpu.title not in titles)
    rests = [
        f"What the times of {listed(titles)} rest on: {basis}." for basis, titles in bases.items()
    ]
    words = " ".join((*rests, *_blind_sentence(times)))
    return Chapter("Predicted times", (words, Table(headers, tuple(map(_row, times)), caption)))


def _blind_sentence(times: Sequence[ProblemTimes]) -> Iterator[str]:
    """State where the model cannot predict the gain of num_stages."""
    blind = [one.gpu.title for one in times if NOT_FOLLOWED in one.best.basis]
    if blind:
        yield (
            f"The binaries of {listed([*dict.fromkeys(blind)])} are not followed: the model sees"
            " there what more stages cost, not what they gain. It does not tell which num_stages is"
            " the fastest there, and the tutorial's times are too long if stages gain anything."
        )


def _row(times: ProblemTimes) -> tuple[str, ...]:
    peak, best = times.gpu.bandwidth_gbs, times.best
    doubt = DOUBTFUL if "bandwidth_gbs" in times.gpu.doubtful else ""
    return (
        times.gpu.title,
        str(times.problem.cols),
        "-" if times.tutorial is None else microseconds(times.tutorial.us),
        microseconds(best.us),
        str(times.num_warps),
        f"{best.gbs:.0f}",
        "-" if peak is None else f"{percent(best.gbs / peak)}{doubt}",
        best.bound,
    )


SHOWN_WARPS = 4
"""With 4 warps per program num_stages limits the number of programs on the GPUs of both vendors."""


def vendors_page(vendors: Vendors | None = None) -> Page:
    """Return the page of *vendors*, or of the recorded ones if None."""
    vendors = recorded_vendors() if vendors is None else vendors
    stages, formulas = make_stages(vendors, SHOWN_WARPS), make_formulas(vendors)
    times = make_times(vendors)
    return Page(
        "AMD against NVIDIA: fused softmax",
        (
            vendors_in_short(vendors, stages, formulas, times),
            side_by_side(vendors),
            the_stages(stages),
            the_formulas(formulas),
            the_claims(make_claims(vendors)),
            the_times(times),
        ),
    )


PAGE = Path(__file__).with_name("amd-nvidia.md")


def make(path: Path) -> None:
    """Write the page to *path* and its picture beside it, byte for byte the same every time."""
    write_markdown(vendors_page(), path)


if __name__ == "__main__":
    if sys.argv[1:] == ["--compile"]:
        compile_rows()
    else:
        make(PAGE)
