"""How many passes shared memory takes for the accesses of warps.

Shared memory has 32 banks. In one pass (a *wavefront*) each bank serves one word of 4 bytes, to all
threads that access this word. Threads that access other words of the same bank (a bank conflict)
take further passes (CUDA C++ Programming Guide, Shared Memory). Accesses of 8 bytes are served half
a warp at a time, those of 16 bytes a quarter, and matrices 8 rows at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from occupancy_lab.work import operations
from occupancy_lab.work.counts import LINE
from occupancy_lab.work.operations import WARP, WORD, Decoder
from occupancy_lab.work.threads import Step

PASS = 32 * WORD
"""Bytes of a pass of the 32 banks."""
ROWS, ROW = 8, 16
"""Rows of a matrix that LDSM and STSM move, and the bytes of each."""
SETTLED = 16
"""After this many equal executions of an instruction, further ones are assumed to be equal."""
MOST_COPYING = 1024
"""Threads whose copies are evaluated."""
NOWHERE = np.int64(1) << 62
"""A placeholder for masked addresses, greater than any address."""
NEIGHBOURS = (1, 2)
WARP_GROUP = 4
"""Warps that execute one HGMMA together (PTX ISA, wgmma)."""
PRODUCT_ROWS, PRODUCT_ROW = 64, 32
"""Rows of the first matrix of an HGMMA, and the bytes of each row and of each column of the second
matrix (PTX ISA, wgmma.mma_async)."""
BOTH_SHARED = 4
"""The form of an HGMMA with both matrices in shared memory; with form 6 only the second is."""


def wavefronts(address: Any, mask: Any, size: int, *, is_load: bool = False) -> int:
    """Return the passes that warps take for *size* bytes per thread at *address*.

    *address* and *mask*, the accessing threads, are arrays over programs and threads. Two halves or
    quarters of a load are served together where each thread of the warp accesses the same word as
    its neighbour, or as the thread after that (an NVIDIA engineer at
    https://forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228/2).
    """
    places, asks, banks = _together(address, mask, size)
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
    """Return the cache lines that groups of threads copy *size* bytes per thread from.

    A line takes at least one pass to write, according to Nsight Compute on an H100.
    """
    shape = np.broadcast_shapes(source.shape, mask.shape)
    lines = np.broadcast_to(np.where(mask, source // LINE, NOWHERE), shape)
    return int(firsts(in_order(lines.reshape(-1, served_together(size)))).sum())


def of_threads(mask: Any, threads: int) -> Any:
    """Return *mask* with a column for each thread, and with a single row where it is all true.

    A single row stands for all programs.
    """
    if mask.all():
        return np.ones((1, threads), bool)
    return np.broadcast_to(mask, (len(mask), threads))


def one_row(values: Any) -> Any:
    """Return an array over programs and threads, with a single row where all rows are equal."""
    if len(values) == 1 or (values[0] != values[-1]).any():
        return values
    return values[:1] if (values == values[:1]).all() else values


def in_order(numbers: Any) -> Any:
    """Return the numbers sorted along the last axis."""
    is_sorted = (numbers[..., 1:] >= numbers[..., :-1]).all()
    return numbers if is_sorted else np.sort(numbers, axis=-1)


def firsts(numbers: Any) -> Any:
    """Return which of the numbers, sorted along the last axis, differ from the one before.

    Numbers equal to NOWHERE do not count.
    """
    found = numbers != NOWHERE
    found[..., 1:] &= numbers[..., 1:] != numbers[..., :-1]
    return found


def passes_of_copies(source: Any, address: Any, mask: Any, size: int) -> int:
    """Return the cycles that warps take to copy *size* bytes per thread from the L1 cache.

    In each cycle a bank of the cache delivers a word and a bank of shared memory takes one, and
    each bank serves the threads in order: those of a warp, or of half a warp that copies 8 bytes
    per thread (58 patterns that were chosen on an H100, and 80 that were drawn on an H200).
    """
    banks = served_together(size)
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
    """Return the passes that the L1 cache takes to move *size* bytes per thread of each warp.

    *address* and *mask* are arrays over warps and lanes. As in shared memory, more than 4 bytes per
    thread are moved half a warp or a quarter at a time, but those that all threads share as well
    (24 patterns each of 8 and 16 bytes on an H200, by Nsight Compute).
    """
    return _passes(*_together(address, mask, size)).reshape(len(address), -1).sum(axis=1)


def _together(address: Any, mask: Any, size: int) -> tuple[Any, Any, int]:
    """Return the words and the threads of *mask*, in groups served together, and their number."""
    shape = np.broadcast_shapes(address.shape, mask.shape)
    words, banks = address // max(size, WORD), served_together(size)
    places, asks = (np.broadcast_to(one, shape).reshape(-1, banks) for one in (words, mask))
    return places, asks, banks


def served_together(size: int) -> int:
    """Return how many threads with *size* bytes each are served in the same pass.

    AMD's 12 bytes are taken to be served as 16 are.
    """
    return PASS // max(1 << (size - 1).bit_length(), WORD)


def _passes(places: Any, asks: Any, banks: int) -> Any:
    """Return the passes of each group of threads: the distinct words in its fullest bank."""
    if asks.all() and (places[:, 1:] - places[:, :-1] == 1).all():
        return np.full(len(places), places.shape[1] // banks)
    wanted = in_order(np.where(asks, places, NOWHERE))
    bank = np.arange(len(wanted))[:, None] * banks + wanted % banks
    words = np.bincount(bank[firsts(wanted)], minlength=len(wanted) * banks)
    return words.reshape(-1, banks).max(axis=1)


def product_wavefronts(word: int) -> int:
    """Return the passes in which an HGMMA reads its matrices, for its four warps together.

    Its first matrix may be in registers.
    """
    rows = 2 * operations.warpgroup_registers(word)
    if word >> 9 & 7 == BOTH_SHARED:
        rows += PRODUCT_ROWS
    return rows * PRODUCT_ROW // PASS


@dataclass(slots=True)
class Served:
    """What warps request from shared memory by one instruction."""

    times: float = 0.0
    """Executions by warps that are recorded here."""
    threads: float = 0.0
    wavefronts: float = 0.0
    most_wavefronts: float = 0.0
    """Where the addresses are not known, each thread may access another word of the same bank."""
    is_known: bool = True
    written: float = 0.0
    """Cycles in which a copy is written to shared memory; for a copy through the L1 cache, the
    cycles of `passes_of_copies`."""


def a_time(recorded: Any, times: float) -> Any:
    """Return the means over *times* executions of what was recorded of an instruction."""
    amounts = (one.name for one in fields(recorded) if one.type == "float")
    return replace(recorded, **{name: getattr(recorded, name) / times for name in amounts})


class Serving:
    """Records what the accesses of followed programs to shared memory request."""

    def __init__(self, programs: int, threads: int, decoder: Decoder) -> None:
        """Take the number of programs, and of threads in each."""
        self.by_instruction: dict[int, Served] = defaultdict(Served)
        self._programs = programs
        self._threads = threads
        self._decoder = decoder
        self._known: dict[tuple[Any, ...], int] = {}
        self._last: dict[int, tuple[tuple[float, ...], int]] = {}

    def means(self) -> dict[int, Served]:
        """Return the means per execution of each instruction by a warp."""
        some = self.by_instruction.items()
        return {number: a_time(one, one.times) for number, one in some if one.times}

    def visit(  # noqa: PLR0913, PLR0917 - the properties of an access
        self,
        step: Step,
        address: Any,
        mask: Any,
        repeat: int,
        executing: Any,
        copied: tuple[Any, Any] | None = None,
    ) -> bool:
        """Record *repeat* accesses to *address*, None where not known, by the threads of *mask*.

        These are the threads among *executing* whose guard holds. *copied* has the source addresses
        of a copy, None where they are not known, and the threads that copy. Return whether the
        instruction has done the same so often that it need not be visited again.
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
        """Return the warps of all programs with a thread in *mask*."""
        if mask.shape[1] == 1:
            found = int(mask.sum()) * (self._threads // WARP)
        else:
            found = int(mask.reshape(len(mask), -1, WARP).any(axis=2).sum())
        return found * self._programs // len(mask)

    def _passes(self, address: Any, mask: Any, size: int, *, is_load: bool) -> int:
        moved = one_row(_moved(address, PASS))
        found = self._once(wavefronts, moved, mask, size, is_load=is_load)
        return found * self._programs // max(len(moved), len(mask))

    def _once(self, count: Callable[..., int], *asked: Any, **how: bool) -> int:
        """Return the memoized result of *count* for arrays and numbers."""
        known = ((one.shape, one.tobytes()) if np.ndim(one) else one for one in asked)
        key = (count, *known, *how.items())
        if key not in self._known:
            self._known[key] = count(*asked, **how)
        return self._known[key]


def _moved(address: Any, unit: int) -> Any:
    """Return addresses shifted by whole units so that those of the first thread start in unit 0."""
    return address - address[:, :1] // unit * unit
