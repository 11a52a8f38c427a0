"""What tuning gives: the choice, what it is compared with, and what finding it costs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from occupancy_lab.files import plain_rows
from occupancy_lab.measuring.timer import BURST, WARMUP_MS
from occupancy_lab.text.notebook import ShownAsTables

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.throughput.calibrations import Basis
    from occupancy_lab.values import Config, Problem

FLUSH_US = 100.0
"""Flushing the L2 cache before a launch: 56 us for 256 MiB at an H200's 4.8 TB/s, and a launch."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to launch a kernel, and its times."""

    kernel: str
    config: Config
    num_programs: int
    predicted_us: float
    bound: str
    """The part of the predicted time that would take longest alone."""
    us: float | None = None
    """Median measured time, us; None where it was not measured."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What measuring some configurations takes."""

    configurations: int
    launches: int
    """About as many: how many fit the time to warm up is worked out from the predicted times."""
    seconds: float
    """On the GPU, by the predicted times; compiling is not in it."""


def cost_of(predicted_us: Sequence[float], runs: int) -> Cost:
    """Return what measuring launches that take *predicted_us* costs, *runs* times each.

    Each is launched once to be checked, in every round of the warm-up, and in bursts with a flush
    before each of their launches.
    """
    if not predicted_us:
        return Cost(0, 0, 0.0)
    together = sum(predicted_us)
    rounds = int(WARMUP_MS * 1e3 // together) + 1
    timed = -(-runs // BURST) * (BURST + 1)
    each = 1 + rounds + timed
    us = each * together + timed * FLUSH_US * len(predicted_us)
    return Cost(len(predicted_us), each * len(predicted_us), us / 1e6)


@dataclass(frozen=True, slots=True)
class Tuning(ShownAsTables):
    """The configurations of a problem on a GPU, the one to launch first."""

    gpu: Gpu
    problem: Problem
    best: Choice
    """The fastest of those that were measured, or else the best predicted."""
    best_predicted: Choice
    compared: dict[str, Choice]
    """The tutorial's launch of `softmax`, and each kernel's own default."""
    exhaustive: Cost
    """Measuring every configuration, as an autotuner does."""
    spent: Cost
    """Measuring what was measured."""
    basis: Basis
    """What the predictions rest on."""
    table: pd.DataFrame = field(compare=False, repr=False)
    """Every configuration, the best predicted first, with the columns of a sweep."""

    def to_markdown(self, top: int = 5) -> str:
        """Return the choice and its *top* best predicted configurations in GitHub's markdown."""
        from occupancy_lab.tuning.view import tuning_document

        return tuning_document(self, top).to_markdown()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "gpu": self.gpu.key,
            **dataclasses.asdict(self.problem),
            "best": dataclasses.asdict(self.best),
            "best_predicted": dataclasses.asdict(self.best_predicted),
            "compared": {name: dataclasses.asdict(one) for name, one in self.compared.items()},
            "exhaustive": dataclasses.asdict(self.exhaustive),
            "spent": dataclasses.asdict(self.spent),
            "basis": self.basis.words,
            "calibrated": self.basis.calibrated,
            "table": plain_rows(self.table),
        }
