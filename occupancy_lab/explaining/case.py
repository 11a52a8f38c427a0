"""One column of an explanation: a GPU's record, and what else the sentences compare it with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from occupancy_lab.gpus import Architecture
    from occupancy_lab.occupancy.calculator import Calculation
    from occupancy_lab.record import Record
    from occupancy_lab.values import Measurement, Resources


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was recorded on a GPU of the same kind elsewhere; None where nothing was."""

    launch: Measurement | None = None
    """Of the launch that is explained."""
    single_stage: Measurement | None = None
    """Of the same with num_stages 1."""
    row_programs: Measurement | None = None
    """Of the same with one program a row."""
    tutorial: Measurement | None = None
    """Of the same with the tutorial's num_programs, where that is another."""
    as_compiled: tuple[int, Measurement] | None = None
    """Where nothing is of the launch itself: its number of programs and time as it was compiled
    then, by a Triton for whose kernel another number of programs fits."""


@dataclass(frozen=True, slots=True)
class Case:
    """A record, and the resources of the same kernel compiled with num_stages 1."""

    record: Record
    single_stage: Resources
    recorded: Recorded = field(default=Recorded(), kw_only=True)

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
