"""Makes amd-nvidia.md and its picture: `python reports/amd_nvidia.py`, without a GPU.

They are made of data/vendors.csv, which record_vendors.py writes, and of the calibrations in
data/, on which the predictions rest: make them again when either changes. The chapters are in the
modules beside this one whose names begin with vendors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vendors import recorded_vendors, side_by_side, what_was_compiled
from vendors_claims import make_claims, the_claims
from vendors_formula import make_formulas, the_formulas
from vendors_stages import make_stages, the_stages
from vendors_times import make_times, the_times, unconfirmed_words

from occupancy_lab.occupancy import Rocm
from occupancy_lab.reporting.contents import write_markdown
from occupancy_lab.reporting.launches import problem_words
from occupancy_lab.reporting.page import Chapter, Page
from occupancy_lab.text.words import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vendors import Vendors
    from vendors_formula import Formula
    from vendors_stages import Stages, Steps
    from vendors_times import ProblemTimes


def vendors_in_short(
    stages: Stages, formulas: Sequence[Formula], times: Sequence[ProblemTimes]
) -> Chapter:
    """Say what num_stages takes, how often the formula is right, and what was confirmed."""
    said = [
        _stages_sentence(stages),
        _formula_sentence(formulas),
        _rocm_sentence(formulas),
        unconfirmed_words(times),
    ]
    return Chapter("In short", ("\n".join(f"- {sentence}" for sentence in said if sentence),))


def _stages_sentence(stages: Stages) -> str:
    firsts = {steps.gpu.vendor: steps for steps in reversed(stages.shown)}
    fewest, *_, most = next(iter(firsts.values())).records
    said = [f"on {steps.gpu.title} {_taken(steps)}" for steps in reversed(firsts.values())]
    return (
        f"From num_stages {fewest.config.num_stages} to {most.config.num_stages} the tutorial's"
        f" kernel, {problem_words(most.problem)} and num_warps {most.config.num_warps}, as Triton"
        f" {most.triton_version} compiles it, takes"
        f" {'; '.join(said)}."
    )


def _taken(steps: Steps) -> str:
    mp = steps.gpu.architecture
    word = mp.multiprocessor_word
    return (
        f"{_from_to(steps.n_regs)} {mp.register_word}s per thread and {_from_to(steps.shared)} B of"
        f" {mp.shared_word}, with {_from_to(steps.programs)} programs per {word}"
    )


def _from_to(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    return str(first) if first == last else f"{first} to {last}"


def _formula_sentence(formulas: Sequence[Formula]) -> str:
    groups = {
        "for NVIDIA's GPUs": [one for one in formulas if one.gpu.vendor != "AMD"],
        "for AMD's with current ROCm": _with(formulas, Rocm.CURRENT),
    }
    said = [
        f"{sum(one.right for one in group)} of {sum(len(one.cases) for one in group)} {words}"
        for words, group in groups.items()
        if group
    ]
    return f"Of these kernels the tutorial's formula is right on {listed(said)}."


def _rocm_sentence(formulas: Sequence[Formula]) -> str | None:
    """Say on which GPUs it matters what ROCm reports; None where only one ROCm knows each."""
    old = {one.gpu.key: one for one in _with(formulas, Rocm.OLD)}
    pairs = [(one, old.get(one.gpu.key)) for one in _with(formulas, Rocm.CURRENT)]
    said = [
        f"{one.gpu.title} ({before.right} of {len(before.cases)} right with ROCm up to 6.3,"
        f" {one.right} with current ROCm)"
        for one, before in pairs
        if before is not None and before.right != one.right
    ]
    unknown = [one.gpu.title for one, before in pairs if before is None]
    if not said:
        return None
    new = f"; ROCm up to 6.3 did not know {listed(unknown)}" if unknown else ""
    return f"Which ROCm is installed matters on {listed(said)}{new}."


def _with(formulas: Sequence[Formula], rocm: Rocm) -> list[Formula]:
    return [one for one in formulas if one.gpu.vendor == "AMD" and one.rocm is rocm]


SHOWN_WARPS = 4
"""With 4 warps per program what num_stages takes limits the programs on either vendor's GPUs."""


def vendors_page(vendors: Vendors | None = None) -> Page:
    """Return the page of *vendors*, None for what was recorded and comes with the lab.

    Its predictions rest on the calibrations that are known where it is made.
    """
    vendors = recorded_vendors() if vendors is None else vendors
    stages, formulas = make_stages(vendors, SHOWN_WARPS), make_formulas(vendors)
    times = make_times(vendors)
    return Page(
        "AMD against NVIDIA: fused softmax",
        (
            vendors_in_short(stages, formulas, times),
            what_was_compiled(vendors),
            side_by_side(vendors),
            the_stages(stages),
            the_formulas(formulas),
            the_claims(make_claims(vendors)),
            the_times(times, stages),
        ),
    )


PAGE = Path(__file__).with_name("amd-nvidia.md")


def make(path: Path) -> None:
    """Write the page to *path* and its picture beside it, the same bytes every time."""
    write_markdown(vendors_page(), path)


if __name__ == "__main__":
    make(PAGE)
