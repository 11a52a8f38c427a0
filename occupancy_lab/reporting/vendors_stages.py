"""What num_stages costs on each GPU: registers, or shared memory."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.reporting.vendors import Vendors


@dataclass(frozen=True, slots=True)
class Steps:
    """One kernel on one GPU with each num_stages, the fewest first."""

    gpu: Gpu
    num_warps: int
    records: tuple[Record, ...]

    @property
    def n_regs(self) -> tuple[int, ...]:
        """Registers a thread."""
        return tuple(record.resources.n_regs for record in self.records)

    @property
    def shared(self) -> tuple[int, ...]:
        """Shared memory a program, bytes."""
        return tuple(record.resources.shared for record in self.records)

    @property
    def programs(self) -> tuple[int, ...]:
        """Programs that a multiprocessor holds."""
        return tuple(record.occupancy.programs_per_multiprocessor for record in self.records)

    @property
    def elements(self) -> int:
        """Elements of a row that one thread (lane) holds at once."""
        threads = self.num_warps * self.gpu.architecture.warp_size
        return max(self.records[0].config.block_size // threads, 1)

    @property
    def shared_is_the_same(self) -> bool:
        """Whether num_stages does not touch shared memory."""
        return len(set(self.shared)) == 1

    @property
    def shared_holds_rows(self) -> bool:
        """Whether each stage after the first takes a row of BLOCK_SIZE more in shared memory."""
        return all(
            after.resources.shared - before.resources.shared
            == (after.config.num_stages - before.config.num_stages) * _row_bytes(after)
            for before, after in itertools.pairwise(self.records)
        )

    @property
    def more_regs(self) -> float:
        """Registers a thread with the most stages over those with the fewest."""
        return self.n_regs[-1] / self.n_regs[0]


@dataclass(frozen=True, slots=True)
class Stages:
    """Every kernel with every num_stages, and those of one problem and num_warps to be shown."""

    every: tuple[Steps, ...]
    shown: tuple[Steps, ...]

    def of(self, vendor: str) -> tuple[Steps, ...]:
        """Return the kernels on one vendor's GPUs."""
        return tuple(steps for steps in self.every if steps.gpu.vendor == vendor)


def make_stages(vendors: Vendors, num_warps: int) -> Stages:
    """Return what num_stages does; shown is the widest problem with *num_warps*, a kernel a GPU.

    A kernel that a GPU does not hold with every num_stages is left out.
    """
    widest = max(vendors.problems, key=lambda problem: problem.cols)
    every: list[Steps] = []
    shown: list[Steps] = []
    for problem, warps, gpu in itertools.product(vendors.problems, vendors.num_warps, vendors.gpus):
        found = [vendors.at(gpu, problem, warps, stages) for stages in vendors.num_stages]
        held = tuple(record for record in found if record is not None)
        if len(held) < len(found):
            continue
        every.append(Steps(gpu, warps, held))
        if (problem, warps) == (widest, num_warps):
            shown.append(every[-1])
    return Stages(tuple(every), tuple(shown))


def _row_bytes(record: Record) -> int:
    return record.config.block_size * record.problem.item_bytes
