"""One column of an explanation: a GPU's record, and what else the sentences compare it with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from occupancy_lab.calculator import Calculation
    from occupancy_lab.gpus import Architecture
    from occupancy_lab.record import Record
    from occupancy_lab.values import Resources


@dataclass(frozen=True, slots=True)
class Case:
    """A record, and the resources of the same kernel compiled with num_stages 1."""

    record: Record
    single_stage: Resources

    @property
    def calculation(self) -> Calculation:
        """What the formulas say of it."""
        return self.record.calculation

    @property
    def architecture(self) -> Architecture:
        """The limits of the GPU."""
        return self.record.gpu.architecture

    @property
    def title(self) -> str:
        """What the GPU is called."""
        return self.record.gpu.title

    @property
    def threads(self) -> int:
        """Threads a program."""
        return self.record.config.num_warps * self.architecture.warp_size
