"""How many passes shared memory takes for what warps ask of it.

Shared memory has 32 banks. In one pass (a *wavefront*) each gives or takes one word of 4 bytes, for
as many threads as want that word; threads that want others of the same bank wait for further passes
(CUDA C++ Programming Guide, Shared Memory). Of accesses of 8 bytes half a warp is served at a time,
of 16 bytes a quarter, and of matrices one of 8 rows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work import operations
from occupancy_lab.work.counts import LINE
from occupancy_lab.work.threads import WARP

if TYPE_CHECKING:
    from collections.abc import Callable

    from occupancy_lab.work.operations import Decoder
    from occupancy_lab.work.threads import Step

BANKS, WORD = 32, 4
PASS = BANKS * WORD
"""Bytes of a pass."""
ROWS, ROW = 8, 16
"""Rows of a matrix that LDSM and STSM move, and the bytes of each."""
SETTLED = 16
"""Equal executions of an instruction after which it is taken for granted that others are so."""
MOST_COPYING = 1024
"""Threads whose copies are looked at."""
NOWHERE = np.int64(1) << 62
"""An address of no thread, greater than any."""
NEIGHBOURS = (1, 2)
WARP_GROUP = 4
"""Warps that execute one HGMMA together (PTX ISA, wgmma)."""
PRODUCT_ROWS, PRODUCT_ROW = 64, 32
"""Rows of the first matrix that an HGMMA multiplies, and the bytes of each, and of each column of
the second (PTX ISA, wgmma.mma_async)."""
BOTH_SHARED = 4
"""The form of an HGMMA of which both matrices are in shared memory; of 6 the second alone is."""


def wavefronts(address: Any, mask: Any, size: int, *, is_load: bool = False) -> int:
    """Return the passes that warps take for *size* bytes a thread at *address*.

    *address* and *mask*, the threads that ask, are arrays over programs and threads. Two halves or
    quarters of a load are served together where each thread of the warp wants the same as its
    neighbour, or as the next but one (an engineer of NVIDIA's at
    https://forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228/2).
    """
    wide = max(size, WORD)
    banks = PASS // wide
    shape = np.broadcast_shapes(address.shape, mask.shape)
    places, asks = (
        np.broadcast_to(one, shape).reshape(-1, banks) for one in (address // wide, mask)
    )
    if not is_load or banks >= WARP:
        return int(_passes(places, asks, banks).sum())
    places, asks = places.reshape(-1, WARP), asks.reshape(-1, WARP)
    are_same = np.zeros(len(places), bool)
    for distance in NEIGHBOURS:
        other = np.arange(WARP) ^ distance
        differ = (places != places[:, other]) & asks & asks[:, other]
        are_same |= ~differ.any(axis=1)
    found = 0
    for chosen, lanes in ((are_same, 2 * banks), (~are_same, banks)):
        some, asking = (one[chosen].reshape(-1, lanes) for one in (places, asks))
        found += int(_passes(some, asking, banks).sum())
    return found


def lines_of_copies(source: Any, mask: Any, size: int) -> int:
    """Return the cache lines from which warps copy *size* bytes a thread, each group's by itself.

    What comes from one line is written in one pass at the least: Nsight Compute counts so on an
    H100.
    """
    shape = np.broadcast_shapes(source.shape, mask.shape)
    lines = np.broadcast_to(np.where(mask, source // LINE, NOWHERE), shape)
    return int(firsts(in_order(lines.reshape(-1, PASS // size))).sum())


def of_threads(mask: Any, threads: int) -> Any:
    """Return a mask with a column for each of so many threads, and one row where all of them ask.

    That row stands for all programs.
    """
    if mask.all():
        return np.ones((1, threads), bool)
    return np.broadcast_to(mask, (len(mask), threads))


def in_order(numbers: Any) -> Any:
    """Return the numbers of each group, along the last axis, sorted."""
    is_sorted = (numbers[..., 1:] >= numbers[..., :-1]).all()
    return numbers if is_sorted else np.sort(numbers, axis=-1)


def firsts(numbers: Any) -> Any:
    """Return which of the sorted numbers of each group, along the last axis, are new to it.

    Those that are NOWHERE do not count.
    """
    found = numbers != NOWHERE
    found[..., 1:] &= numbers[..., 1:] != numbers[..., :-1]
    return found


def passes_of_copies(source: Any, address: Any, mask: Any, size: int) -> int:
    """Return the cycles that warps take to copy *size* bytes a thread from the L1 cache.

    In each cycle a bank of the cache gives a word and a bank of shared memory takes one, and each
    bank serves the threads in their order: those of a warp, or of half a warp where they copy 8
    bytes (58 patterns that were chosen on an H100, and 80 that were drawn on an H200).
    """
    banks = PASS // size
    shape = np.broadcast_shapes(source.shape, address.shape, mask.shape)
    given, taken, asks = (
        np.broadcast_to(one, shape).reshape(-1, banks)
        for one in (source // size % banks, address // size % banks, mask)
    )
    groups = np.arange(len(asks))
    ends = np.zeros((2, len(asks), banks), np.int64)
    for lane in range(banks):
        places = (0, groups, given[:, lane]), (1, groups, taken[:, lane])
        end = np.maximum(*(ends[place] for place in places)) + asks[:, lane]
        for place in places:
            ends[place] = np.where(asks[:, lane], end, ends[place])
    return int(ends.max(axis=(0, 2)).sum())


def passes_of_warps(address: Any, mask: Any, size: int) -> Any:
    """Return the passes in which the L1 cache gives each warp *size* bytes a thread, or takes them.

    *address* and *mask* are arrays over warps and lanes. The banks are those of shared memory, but
    a warp is served as a whole.
    """
    wide = max(size, WORD)
    return _passes(address // wide, mask, PASS // wide)


def _passes(places: Any, asks: Any, banks: int) -> Any:
    """Return the passes that each group of threads takes: the words of its fullest bank."""
    if asks.all() and (places[:, 1:] - places[:, :-1] == 1).all():
        return np.full(len(places), places.shape[1] // banks)
    wanted = in_order(np.where(asks, places, NOWHERE))
    bank = np.arange(len(wanted))[:, None] * banks + wanted % banks
    words = np.bincount(bank[firsts(wanted)], minlength=len(wanted) * banks)
    return words.reshape(-1, banks).max(axis=1)


def product_wavefronts(word: int) -> int:
    """Return the passes in which an HGMMA reads its matrices, of the four warps together.

    The first may be in registers.
    """
    rows = 2 * operations.warpgroup_registers(word)
    if word >> 9 & 7 == BOTH_SHARED:
        rows += PRODUCT_ROWS
    return rows * PRODUCT_ROW // (BANKS * WORD)


@dataclass(slots=True)
class Served:
    """What warps ask shared memory for by one instruction."""

    times: float = 0.0
    """Executions by warps of what is noted here."""
    threads: float = 0.0
    """Threads whose condition is true."""
    wavefronts: float = 0.0
    most_wavefronts: float = 0.0
    """Where the addresses are not known, each thread may want another word of the same bank."""
    is_known: bool = True
    """Whether its addresses are."""
    written: float = 0.0
    """Cycles in which a copy is written to shared memory; of one through the L1 cache those of
    `passes_of_copies`."""

    def a_time(self) -> Served:
        """Return the same of one execution."""
        names = ("times", "threads", "wavefronts", "most_wavefronts", "written")
        return replace(self, **{name: getattr(self, name) / self.times for name in names})


class Serving:
    """Notes what the accesses of followed programs to shared memory ask for."""

    def __init__(self, programs: int, threads: int, decoder: Decoder) -> None:
        """Take the programs, and the threads of each."""
        self.by_instruction: dict[int, Served] = defaultdict(Served)
        self._programs = programs
        self._threads = threads
        self._decoder = decoder
        self._known: dict[tuple[Any, ...], int] = {}
        self._last: dict[int, tuple[tuple[float, ...], int]] = {}

    def means(self) -> dict[int, Served]:
        """Return what was noted for each time that a warp executed an instruction."""
        return {number: one.a_time() for number, one in self.by_instruction.items() if one.times}

    def visit(  # noqa: PLR0913, PLR0917 - what an access depends on
        self,
        step: Step,
        address: Any,
        mask: Any,
        repeat: int,
        executing: Any,
        copied: tuple[Any, Any] | None = None,
    ) -> bool:
        """Note *repeat* accesses to *address*, None where it is not known, by threads of *mask*.

        They are of the threads *executing* those whose guard holds. *copied* has from where a copy
        comes, None where it is not known, and for which threads. Return whether the instruction
        has done the same so often that it need not be visited again.
        """
        served = self.by_instruction[step.number]
        opcode = step.word & 0x1FF
        size = self._decoder.shared_bytes(step.word)
        mask = of_threads(mask, self._threads)
        threads = asking = int(mask.sum()) * self._programs // len(mask)
        if opcode in operations.MATRICES:
            rows = ROWS * size // WORD
            asking = asking * rows // WARP
            mask, size = mask & (np.arange(self._threads) % WARP < rows), ROW
        is_known = address is not None and (copied is None or copied[0] is not None)
        known = np.zeros((1, 1), np.int64) if address is None else address
        passes = float(self._passes(known, mask, size, is_load=opcode == operations.LDS))
        taken = passes
        if is_known and copied is not None:
            source, copying = (one[: -(-MOST_COPYING // self._threads)] for one in copied)
            copying = np.broadcast_to(copying, (len(copying), self._threads))
            share = self._programs / max(len(source), len(copying))
            moved, place = _moved(source, LINE), _moved(address[: len(source)], PASS)
            if size < operations.BYPASSING_BYTES:
                taken = share * self._once(passes_of_copies, moved, place, copying, size)
            passes = max(passes, share * self._once(lines_of_copies, moved, copying, size))
        served.written += 0.0 if copied is None else repeat * taken
        times = self._warps(executing)
        served.times += repeat * times
        served.threads += repeat * threads
        served.wavefronts += repeat * passes
        served.most_wavefronts += repeat * (passes if is_known else asking)
        served.is_known &= is_known
        now = (times, threads, passes)
        last, alike = self._last.get(step.number, (now, 0))
        self._last[step.number] = now, alike + 1 if last == now and is_known else 1
        return alike >= SETTLED and copied is None

    def _warps(self, mask: Any) -> int:
        """Return the warps of all programs of which a thread is in *mask*."""
        if mask.shape[1] == 1:
            found = int(mask.sum()) * (self._threads // WARP)
        else:
            found = int(mask.reshape(len(mask), -1, WARP).any(axis=2).sum())
        return found * self._programs // len(mask)

    def _passes(self, address: Any, mask: Any, size: int, *, is_load: bool) -> int:
        """Return `wavefronts` of all programs."""
        found = self._once(wavefronts, _moved(address, PASS), mask, size, is_load=is_load)
        return found * self._programs // max(len(address), len(mask))

    def _once(self, count: Callable[..., int], *asked: Any, **how: bool) -> int:
        """Return what *count* makes of arrays and numbers, looked up where it did so before."""
        known = ((one.shape, one.tobytes()) if np.ndim(one) else one for one in asked)
        key = (count, *known, *how.items())
        if key not in self._known:
            self._known[key] = count(*asked, **how)
        return self._known[key]


def _moved(address: Any, unit: int) -> Any:
    """Return addresses moved by whole units, to where those of a program's first thread are 0."""
    return address - address[:, :1] // unit * unit
