"""How many sectors and cache lines warps request from global memory, by their addresses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from occupancy_lab.work import operations
from occupancy_lab.work.banks import (
    NOWHERE,
    firsts,
    in_order,
    of_threads,
    passes_of_warps,
    served_together,
)
from occupancy_lab.work.counts import LINE, SECTOR
from occupancy_lab.work.operations import WARP, WORD
from occupancy_lab.work.passed import first_active
from occupancy_lab.work.threads import Step
from occupancy_lab.work.warps import by_warp

COUNTED = ("sectors", "lines", "lookups", "passes")
QUARTERS = LINE // SECTOR
LOOKUPS_AT_RANDOM, PASSES_AT_RANDOM = 11 / 32, 3.5 / 32
"""Lookups and passes of the L1 cache per word in a random line: of 32 such lines, 11 fall into the
fullest tag bank, and of 32 such words 3.5 into the fullest data bank."""
TAG_BANKS = (0x6B7AB5, 0xBED5DA)
"""Bit masks over a line's number; their parities give the tag bank of the L1 cache that holds it.
Found on an H100 from the time that two lines of a warp take together, for distances that differ in
one bit; 23 other patterns take the passes that these masks predict."""
KEPT_LINES = 224
"""Cache lines that a program loads before the L1 cache is assumed to have evicted a sector, where
its share of the cache is not known: the 28 KiB that remain beside the largest shared memory."""

TABLE_BYTES = 1 << 17
"""The bytes up to which data that different programs load in part may stay in the L1 cache."""
MOST_WARPS = 64
"""More warps than a program has."""
MOST_WAITING = 1 << 16
"""The most addresses that wait to be counted together; a count alone takes some 100 us."""

OPEN_LINES, NEAR_LINES, MERGED_STORES, MERGED_PARTS = 12, 8, 0.75, 0.2
"""The most lines per warp of the last stores that the next store can merge with, the most lines of
a warp whose stores merge with those of the next warp, and the share of the sectors stored to such
lines again that the L2 cache does not see, of whole words and of parts of words. In eight softmaxes
with unaligned rows the L2 cache gets 3.7 requests for a row of 67 floats whose stores touch 10.8
lines, and 37.6 for a row of 1000 whose stores touch 56. Where four successive instructions store
floats 16 bytes apart, it sees 40 to 55% of the sectors; where eight store float16 so, 75 to 88%;
and all where eight others come in between, or where warps store to the same 28 lines (Nsight
Compute, H200)."""


@dataclass(slots=True)
class Asked:
    """What warps request by one instruction: the amounts of GlobalAccess, and its shares as sums.

    Where addresses are not known, the amounts with most_ assume that each thread requests other
    sectors.
    """

    tensor: str | None = None
    is_known: bool = True
    threads: float = 0.0
    sectors: float = 0.0
    most_sectors: float = 0.0
    lines: float = 0.0
    most_lines: float = 0.0
    lookups: float = 0.0
    most_lookups: float = 0.0
    passes: float = 0.0
    most_passes: float = 0.0
    cached: float = 0.0
    """Sectors that hit in the L1 cache because the same program loaded them before; 0 for copies.
    """
    common: float = 0.0
    turns: float = 0.0
    distinct: float = 0.0
    shared: float = 0.0
    """Requests of loads by several warps of the program beyond the first one for each sector,
    whether or not they hit in the L1 cache."""
    merged: float = 0.0
    """For a load, those of `shared` that miss in the L1 cache; for a copy, these and all that hit;
    for a store, those in lines that were just stored to."""
    partial: float = 0.0
    """Sectors stored by requests, of a warp and a line, that do not fill all of their sectors."""
    places: float = 0.0
    programs: float = 0.0
    """How often a program executes the instruction with a thread whose condition is true."""

    def add(self, least: Sequence[float], most: Sequence[float]) -> None:
        """Add to the amounts of COUNTED, which lie between *least* and *most*."""
        for name, low, high in zip(COUNTED, least, most, strict=True):
            setattr(self, name, getattr(self, name) + low)
            setattr(self, f"most_{name}", getattr(self, f"most_{name}") + high)


@dataclass(slots=True)
class L1Cache:
    """What a program has loaded and stored so far, as far as the L1 cache holds it."""

    lanes: int
    loaded: dict[int, int] = field(default_factory=dict)
    """For each sector, the number of lines the program had loaded when it last requested it."""
    present: dict[int, int] = field(default_factory=dict)
    """The same for each line."""
    in_step: bool = True
    """Whether the program's warps meet at barriers, so that they store at the same time."""
    stored: tuple[int, ...] = ()
    """The lines of the last stores, where they are few: with their warps, unless these are in step.
    """
    in_turn: bool = False
    """Whether the program has loaded nothing since its last store."""
    lines: int = 0
    in_pass: set[int] = field(default_factory=set)
    """The loads in the current pass of a loop, where it stands for several passes."""
    repeat: int = 1
    left_out: int = 0
    """The lines that the passes which are left out load."""
    kept_lines: int = KEPT_LINES
    """The lines that the program loads before the cache has evicted a sector."""

    def begin(self, number: int, repeat: int) -> None:
        """Begin load *number*, which stands for *repeat* loads.

        After a pass of a loop that stands for several, the lines of the passes left out are added.
        Between two loads of such a pass, only the lines of that pass are.
        """
        if repeat != self.repeat or number in self.in_pass:
            self.lines += self.left_out
            self.repeat, self.left_out = repeat, 0
            self.in_pass.clear()
        self.in_pass.add(number)

    def load(
        self, address: Any, threads: Any, part: float | None = None
    ) -> tuple[float, float, float]:
        """Return the share of a load's sectors that the program loaded recently.

        The second result is the share of sectors that it never loaded before, and the third that of
        requests beyond the first for each sector. A load that stands for several loads, each *part*
        of a sector further on, misses each sector once.
        """
        self.in_turn = False
        of_warps = in_order(by_warp(np.where(threads, address // SECTOR, NOWHERE), self.lanes))
        requests = of_warps[firsts(of_warps)]
        wanted = np.unique(requests).tolist()
        oldest = self.lines - self.kept_lines
        missed = [one for one in wanted if self.loaded.get(one, oldest) <= oldest]
        asked_lines = {one // QUARTERS for one in wanted}
        lines = sum(self.present.get(one, oldest) <= oldest for one in asked_lines)
        self.lines += lines
        self.left_out += (self.repeat - 1) * lines
        first = sum(one not in self.loaded for one in wanted)
        self.loaded |= dict.fromkeys(wanted, self.lines)
        self.present |= dict.fromkeys(asked_lines, self.lines)
        shared = 1 - len(wanted) / len(requests)
        if part is not None:
            return 1 - part, part * (1 - shared), shared
        return 1 - len(missed) / len(wanted), first / len(requests), shared

    def store(self, address: Any, threads: Any, size: int) -> float:
        """Return the share of a store's lines that are merged with the stores before.

        Stores of *size* bytes per thread by several warps that are in step to the same line, one
        after the other, go to the L2 cache together, and so do those of a warp's successive
        instructions; fewer if they store parts of words. Stores that fill less than half of their
        sectors have to follow each other without a load in between.
        """
        if len(address) == 1:
            return 0.0
        of_warps = in_order(by_warp(np.where(threads, address // LINE, NOWHERE), self.lanes))
        chosen = firsts(of_warps)
        warps = 0 if self.in_step else chosen.nonzero()[0]
        wanted = of_warps[chosen] * MOST_WARPS + warps
        lines = np.unique(wanted).tolist()
        sectors = len(np.unique(address[threads] // SECTOR))
        is_dense = 2 * size * int(threads.sum()) >= SECTOR * sectors
        if not is_dense and not self.in_turn:
            self.stored = ()
        again = len(set(self.stored).intersection(lines))
        is_near = len(wanted) <= NEAR_LINES * len(of_warps)
        if self.in_step and is_near and is_dense and size >= WORD:
            again += len(wanted) - len(lines)
        room = OPEN_LINES * len(of_warps)
        self.stored = () if len(lines) > room else (*lines, *self.stored)[:room]
        self.in_turn = True
        return (MERGED_STORES if size >= WORD else MERGED_PARTS) * again / len(wanted)


def stored_in_part(address: Any, threads: Any, size: int, lanes: int) -> float:
    """Return the share of a program's sectors whose requests do not fill all of their sectors.

    A request is what a warp of *lanes* stores to a line, *size* bytes for each of *threads*.
    """
    if len(address) == 1:
        return float(size < SECTOR)
    places = in_order(by_warp(np.where(threads, address, NOWHERE), lanes))
    chosen = firsts(places)
    warp, _ = chosen.nonzero()
    sector = places[chosen] // SECTOR
    is_new = np.append(True, (warp[1:] != warp[:-1]) | (sector[1:] != sector[:-1]))
    line = sector // QUARTERS
    begins = np.append(True, (warp[1:] != warp[:-1]) | (line[1:] != line[:-1]))
    request = np.cumsum(begins) - 1
    sectors = np.bincount(request, is_new)
    in_part = np.bincount(request) * size < sectors * SECTOR
    return float(sectors[in_part].sum() / sectors.sum())


@dataclass(frozen=True, slots=True)
class Noted:
    """An access whose amounts will be counted together with those of similar accesses."""

    asked: Asked
    address: Any
    mask: Any
    times: int
    """How many warps do the same."""
    more: int
    """How much more of each amount it may request."""
    shares: Mapping[str, float]
    """The share of its sectors that counts in each amount of `asked`."""


@dataclass(slots=True)
class Asking:
    """Records what the accesses of followed programs request."""

    programs: int
    threads: int
    """Threads of each program."""
    tensor_at: Callable[[int], str | None]
    """Returns the tensor of an address."""
    thread_bytes: Mapping[int, int]
    """The bytes that a thread moves by each instruction."""
    lanes: int = WARP
    in_step: bool = True
    """As in L1Cache."""
    kept_lines: int = KEPT_LINES
    """The cache lines that a program loads before the L1 cache has evicted a sector."""
    _asked: dict[int, Asked] = field(default_factory=lambda: defaultdict(Asked))
    _caches: dict[int, L1Cache] = field(default_factory=dict)
    """The caches of representative programs, by the programs' indices."""
    _noted: dict[tuple[Any, ...], list[Noted]] = field(default_factory=lambda: defaultdict(list))
    """Waiting accesses by the bytes of a thread and the shapes of addresses and masks."""

    @property
    def by_instruction(self) -> Mapping[int, Asked]:
        """What each instruction has requested so far."""
        for key in self._noted:
            self._count(key)
        return self._asked

    def visit(  # noqa: PLR0913 - the properties of an access
        self,
        step: Step,
        address: Any,
        mask: Any,
        repeat: int,
        *,
        is_known: bool = True,
        part: float | None = None,
    ) -> None:
        """Record *repeat* accesses to *address* by the threads of *mask*.

        *address* is None where nothing is known of it. *part* is the part of a sector by which each
        access moves on to the next; None where it does not move, or moves by more.

        A thread requests one sector, since its bytes are aligned to their size of at most 32. Where
        *is_known* is false, *address* is right up to an offset that is common to all threads of a
        warp. It may begin anywhere in a sector, which can take one more sector.
        """
        asked = self._asked[step.number]
        mask = of_threads(mask, self.threads)
        same = repeat * self.programs // len(mask)
        threads = int(mask.sum()) * same
        asked.threads += threads
        if not threads:
            return
        asking = by_warp(mask, self.lanes).any(axis=2)
        warps = int(asking.sum()) * same
        asked.programs += int(asking.any(axis=1).sum()) * same
        asked.is_known &= is_known and address is not None
        opcode, size = step.word & 0x1FF, self.thread_bytes[step.number]
        if address is None:
            at_random = (threads * one for one in (LOOKUPS_AT_RANDOM, PASSES_AT_RANDOM))
            most = [threads, threads, *(max(one, warps) for one in at_random)]
            asked.add([warps] * len(COUNTED), most)
            asked.places += threads if opcode in operations.ATOMICS else 0
            return
        if asked.tensor is None and is_known:
            asked.tensor = self.tensor_at(first_active(address, mask))
        same = repeat * self.programs // max(address.shape[0], mask.shape[0])
        if opcode in operations.ATOMICS:
            places = by_warp(np.where(mask, address, NOWHERE), self.lanes)
            asked.places += same * int(firsts(in_order(places)).sum())
        more = 0 if is_known or address.shape[1] == 1 else warps
        shares = self._shares(step, address, mask, repeat, part) if is_known else {}
        key = size, address.shape, mask.shape
        self._noted[key].append(Noted(asked, address, mask, same, more, shares))
        if len(self._noted[key]) * address.size >= MOST_WAITING:
            self._count(key)

    def _count(self, key: tuple[Any, ...]) -> None:
        """Count the waiting accesses with the same size and shapes together."""
        noted = self._noted[key]
        if not noted:
            return
        addresses = np.stack([one.address for one in noted])
        masks = np.stack([one.mask for one in noted])
        found = distinct(addresses, masks, key[0], self.lanes)
        for one, *amounts in zip(noted, *(each.tolist() for each in found), strict=True):
            counted = [amount * one.times for amount in amounts]
            one.asked.add(counted, [amount + one.more for amount in counted])
            for name, share in one.shares.items():
                setattr(one.asked, name, getattr(one.asked, name) + counted[0] * share)
        noted.clear()

    def _shares(
        self, step: Step, address: Any, mask: Any, repeat: int, part: float | None
    ) -> Mapping[str, float]:
        """Return the shares of an access's sectors by the names of the amounts of Asked.

        They are those of one program, which stands for all.
        """
        opcode = step.word & 0x1FF
        is_copy = opcode == operations.LDGSTS  # only narrow copies go through the cache
        is_copy &= self.thread_bytes[step.number] < operations.BYPASSING_BYTES
        place = self.programs // 2
        if len(mask) > 1:
            asking = np.flatnonzero(mask.any(axis=1))
            place = int(asking[len(asking) // 2])
        own = address[place if len(address) > 1 else 0]
        threads = mask[place if len(mask) > 1 else 0]
        cache = self._caches.setdefault(
            place, L1Cache(self.lanes, in_step=self.in_step, kept_lines=self.kept_lines)
        )
        if opcode in operations.LOADS or is_copy:
            cache.begin(step.number, repeat)
            cached, first, shared = cache.load(own, threads, part)
            merged = (1.0 - cached) * shared
            turns = None
            if is_copy:  # its wait is that of all other copies
                cached, merged = 0.0, cached + merged
            elif self.programs > 1 and cached + merged < 1.0:
                turns = programs_around(address, mask, np.where(threads, own, NOWHERE))
            common = 0.0 if turns is None else 1.0 - cached - merged
            found = {"cached": cached, "merged": merged, "distinct": first, "shared": shared}
            return {**found, "common": common, "turns": common * (turns or 0.0)}
        if opcode in {operations.STG, operations.ST}:
            size = self.thread_bytes[step.number]
            partial = stored_in_part(own, threads, size, self.lanes)
            return {"merged": cache.store(own, threads, size), "partial": partial}
        return {}


def programs_around(address: Any, mask: Any, own: Any) -> float | None:
    """Return in how many programs all sectors of a load's table are loaded once.

    *address* and *mask* are those of all programs, and *own* are the addresses of one of them, or
    NOWHERE. The result is 1 if all programs load the same, and None if they load from more than
    TABLE_BYTES.
    """
    if (address == address[:1]).all():
        return 1.0
    if abs(int(address[-1, 0]) - int(address[0, 0])) >= TABLE_BYTES:
        return None
    asked = address[np.broadcast_to(mask, address.shape)] if address.shape[1] > 1 else address
    extent = int(asked.max()) - int(asked.min())
    if extent >= TABLE_BYTES:
        return None
    return max((extent // SECTOR + 1) / len(np.unique(own[own != NOWHERE] // SECTOR)), 1.0)


def distinct(address: Any, mask: Any, size: int = WORD, lanes: int = WARP) -> tuple[Any, ...]:
    """Return the sectors, lines, lookups and passes of warps, each as a sum.

    *address* and *mask* are arrays over programs and threads, each of which requests *size* bytes.
    With a leading axis for several accesses there is a result for each. Sectors and lines are the
    distinct ones of a warp. In a lookup the L1 cache finds a line in each of its four tag banks,
    and in a pass it moves a word in each of its 32 data banks, which are those of shared memory
    (measured on an H100). One stage looks up while the other moves what was found before: in an
    image filter with 2.2 lookups and 1.4 passes per load, both numbers are those of Nsight Compute
    (t_output_wavefronts and data_pipe_lsu_wavefronts) within 1 and 3%.
    """
    if address.shape[-1] == 1:
        asks = _asking(address, mask, lanes)
        warps = asks.any(axis=-1).sum(axis=(-2, -1))
        return warps, warps, warps, _served(asks, size).sum(axis=(-2, -1))
    first = address[..., :1, :]
    away = address[..., 0] // LINE - first[..., 0] // LINE
    # Programs that are whole lines apart differ in tag banks only: the first stands for all.
    if mask.shape[-2] > 1 or (address - away[..., None] * LINE != first).any():
        first, away = address, away[..., :1]
    alike = away.shape[-1]
    sectors = in_order(by_warp(np.where(mask, first // SECTOR, NOWHERE), lanes))
    is_first = firsts(sectors)
    lines = sectors // QUARTERS
    begins = is_first.copy()
    begins[..., 1:] &= lines[..., 1:] != lines[..., :-1]
    counted = begins.sum(axis=-1)
    asks = _asking(first, mask, lanes)
    passes = _served(asks, size) * alike
    lookups, several = counted * alike, counted > 1
    if several.any():
        some = np.broadcast_to(by_warp(first, lanes), asks.shape)[several]
        moved = np.broadcast_to(away[..., None, None, :], (*several.shape, alike))[several]
        of_all = (lines[several][:, None] + moved[..., None]).reshape(-1, lanes)
        tags = _lookups(of_all, begins[several].repeat(alike, axis=0))
        lookups[several] = tags.reshape(-1, alike).sum(axis=1)
        passes[several] = passes_of_warps(some, asks[several], size) * alike
    asked, counted, lookups, passes = (
        one.sum(axis=(-2, -1)) for one in (is_first.sum(axis=-1), counted, lookups, passes)
    )
    return asked * alike, counted * alike, lookups, passes


def _asking(address: Any, mask: Any, lanes: int) -> Any:
    """Return which lanes of each warp request something at *address*."""
    return by_warp(np.broadcast_to(mask, np.broadcast_shapes(address.shape, mask.shape)), lanes)


def _served(asks: Any, size: int) -> Any:
    """Return the parts of each warp that ask for *size* bytes per thread, and are served apart."""
    return by_warp(asks, served_together(size)).any(axis=-1).sum(axis=-1)


def _lookups(lines: Any, counts: Any) -> Any:
    """Return how many of each warp's distinct *lines*, marked in *counts*, share a tag bank."""
    of_warp, _ = counts.nonzero()
    some = lines[counts]
    bank = of_warp << len(TAG_BANKS)
    for place, bits in enumerate(TAG_BANKS):
        parity = some & bits
        for shift in (16, 8, 4, 2, 1):
            parity = parity ^ parity >> shift
        bank = bank | (parity & 1) << place
    banks = 1 << len(TAG_BANKS)
    of_bank = np.bincount(bank, minlength=len(lines) * banks)
    return of_bank.reshape(-1, banks).max(axis=1)
