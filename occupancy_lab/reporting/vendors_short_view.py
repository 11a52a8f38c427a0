"""AMD against NVIDIA in a few sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.occupancy import Rocm
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.reporting.vendors_times_view import unconfirmed_words
from occupancy_lab.reporting.words import problem_words
from occupancy_lab.text.words import article

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.reporting.vendors_formula import Formula
    from occupancy_lab.reporting.vendors_stages import Stages, Steps
    from occupancy_lab.reporting.vendors_times import Times


def vendors_in_short(
    stages: Stages, formulas: Sequence[Formula], times: Sequence[Times]
) -> Chapter:
    """Say what num_stages takes, how often the formula is right, and what was confirmed."""
    said = [_stages_sentence(stages), _formula_sentence(formulas), unconfirmed_words(times)]
    return Chapter("In short", ("\n".join(f"- {sentence}" for sentence in said if sentence),))


def _stages_sentence(stages: Stages) -> str:
    firsts = {steps.gpu.vendor: steps for steps in reversed(stages.shown)}
    fewest, *_, most = next(iter(firsts.values())).records
    said = [f"on {steps.gpu.title} {_taken(steps)}" for steps in reversed(firsts.values())]
    return (
        f"From num_stages {fewest.config.num_stages} to {most.config.num_stages} the tutorial's"
        f" kernel, {problem_words(most.problem)} and num_warps {most.config.num_warps}, takes"
        f" {'; '.join(said)}."
    )


def _taken(steps: Steps) -> str:
    mp = steps.gpu.architecture
    word = mp.multiprocessor_word
    return (
        f"{_from_to(steps.n_regs)} {mp.register_word}s a thread and {_from_to(steps.shared)} B of"
        f" {mp.shared_word}, with {_from_to(steps.programs)} programs {article(word)} {word}"
    )


def _from_to(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    return str(first) if first == last else f"{first} to {last}"


def _formula_sentence(formulas: Sequence[Formula]) -> str:
    groups = {
        "for NVIDIA's GPUs": [one for one in formulas if one.gpu.vendor != "AMD"],
        "for AMD's with current ROCm": _with(formulas, Rocm.CURRENT),
        "for AMD's with ROCm up to 6.3": _with(formulas, Rocm.OLD),
    }
    said = [
        f"{sum(one.right for one in group)} of {sum(len(one.cases) for one in group)} {words}"
        for words, group in groups.items()
        if group
    ]
    return f"Of these kernels the tutorial's formula is right on {', '.join(said)}."


def _with(formulas: Sequence[Formula], rocm: Rocm) -> list[Formula]:
    return [one for one in formulas if one.gpu.vendor == "AMD" and one.rocm is rocm]
