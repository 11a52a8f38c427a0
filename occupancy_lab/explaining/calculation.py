"""The calculator's answer in words: limits, next step, and the tutorial's formula beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.explaining.formula import the_tutorial
from occupancy_lab.explaining.limits import held_in_short, the_limits, the_next_step
from occupancy_lab.text.document import Document

if TYPE_CHECKING:
    from occupancy_lab.occupancy.calculator import Calculation


def write_calculation(calculations: tuple[Calculation, ...]) -> Document:
    """Return what is said of *calculations*, which are one kernel's resources on several GPUs."""
    resources = calculations[0].resources
    return Document(
        f"n_regs {resources.n_regs}, shared {resources.shared}, num_warps {resources.num_warps}",
        tuple(_answer(calculation) for calculation in calculations),
        (the_limits(calculations), the_next_step(calculations), the_tutorial(calculations)),
    )


def _answer(calculation: Calculation) -> str:
    answer = held_in_short(calculation)
    held, multiprocessors = calculation.resident_programs, calculation.gpu.multiprocessors
    if held is None:
        return f"{answer}."
    word = calculation.architecture.multiprocessor_word
    return f"{answer}; the {multiprocessors} {word}s hold {held} programs at once."
