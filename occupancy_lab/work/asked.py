"""How many sectors and cache lines warps ask global memory for, by their threads' addresses."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work.counts import LINE, SECTOR
from occupancy_lab.work.warps import by_warp

if TYPE_CHECKING:
    from collections.abc import Callable

    from occupancy_lab.work.threads import Step

NOWHERE = np.int64(1) << 62
"""An address of no thread, greater than any."""


@dataclass(slots=True)
class Asked:
    """What warps ask for by one instruction."""

    threads: float = 0.0
    """Threads whose condition is true."""
    sectors: float = 0.0
    most_sectors: float = 0.0
    """Where the addresses are not known, each thread may ask for another; else as many."""
    lines: float = 0.0
    most_lines: float = 0.0
    tensor: str | None = None
    is_known: bool = True
    """Whether its addresses are."""

    def a_time(self, times: float) -> Asked:
        """Return the same of one of so many executions."""
        names = ("threads", "sectors", "most_sectors", "lines", "most_lines")
        return replace(self, **{name: getattr(self, name) / times for name in names})


class Asking:
    """Notes what the accesses of followed programs ask for."""

    def __init__(self, programs: int, threads: int, tensor_at: Callable[[int], str | None]) -> None:
        """Take the programs, the threads of each, and what says in which tensor an address is."""
        self.by_instruction: dict[int, Asked] = defaultdict(Asked)
        self._programs = programs
        self._threads = threads
        self._tensor_at = tensor_at

    def visit(self, step: Step, address: Any, mask: Any, repeat: int) -> None:
        """Note *repeat* accesses to *address*, None where it is not known, by threads of *mask*.

        A thread asks for one sector: its bytes are aligned to their number, which is 32 at most.
        """
        asked = self.by_instruction[step.number]
        mask = np.broadcast_to(mask, (mask.shape[0], self._threads))
        same = repeat * self._programs // mask.shape[0]
        threads = int(mask.sum()) * same
        asked.threads += threads
        if not threads:
            return
        if address is None:
            warps = int(by_warp(mask).any(axis=2).sum()) * same
            asked.is_known = False
            asked.sectors += warps
            asked.lines += warps
            asked.most_sectors += threads
            asked.most_lines += threads
            return
        if asked.tensor is None:
            shape = np.broadcast_shapes(address.shape, mask.shape)
            at = np.broadcast_to(address, shape)[np.broadcast_to(mask, shape)]
            asked.tensor = self._tensor_at(int(at[0]))
        same = repeat * self._programs // max(address.shape[0], mask.shape[0])
        sectors, lines = (one * same for one in distinct(address, mask))
        asked.sectors += sectors
        asked.most_sectors += sectors
        asked.lines += lines
        asked.most_lines += lines


def distinct(address: Any, mask: Any) -> tuple[int, int]:
    """Return the sectors and the lines that warps ask for, each counted once a warp.

    *address* and *mask* are arrays over programs and threads.
    """
    if address.shape[1] == 1:
        shape = (max(address.shape[0], mask.shape[0]), mask.shape[1])
        warps = int(by_warp(np.broadcast_to(mask, shape)).any(axis=2).sum())
        return warps, warps
    are_all = bool(mask.all())
    sectors = by_warp(address // SECTOR if are_all else np.where(mask, address // SECTOR, NOWHERE))
    if (sectors[..., 1:] < sectors[..., :-1]).any():
        sectors = np.sort(sectors, axis=2)
    lines = sectors // (LINE // SECTOR)
    found = [
        sectors.shape[0] * sectors.shape[1] + int((one[..., 1:] != one[..., :-1]).sum())
        for one in (sectors, lines)
    ]
    nobody = 0 if are_all else int((sectors[..., -1] == NOWHERE).sum())
    return found[0] - nobody, found[1] - nobody
