"""How many sectors and cache lines warps ask global memory for, by their threads' addresses."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work import operations
from occupancy_lab.work.banks import NOWHERE, WORD, firsts, in_order, of_threads, passes_of_warps
from occupancy_lab.work.counts import LINE, SECTOR
from occupancy_lab.work.warps import WARP, by_warp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from occupancy_lab.work.threads import Step

COUNTED = ("sectors", "lines", "passes")
QUARTERS = LINE // SECTOR
AT_RANDOM = 11 / 32
"""Passes of the L1 cache for each of 32 lines at random, of which 11 are in the fullest bank."""
TAG_BANKS = (0x6B7AB5, 0xBED5DA)
"""The bits of a line's number whose parities are the bank of the L1 cache's tags in which it is
looked up. Found on an H100 by the time that two lines of a warp take together, a bit of their
distance after the other; with it 23 other patterns take the passes that were measured."""
KEPT_LINES = 224
"""Cache lines that a program loads before the L1 cache is taken to have lost a sector: the 28 KiB
that are left beside the most shared memory. With half as many, or more, the errors of the recorded
launches' times are the same."""

MOST_WAITING = 1 << 16
"""Addresses that are noted before they are counted; each count alone takes some 100 us."""

OPEN_LINES, MERGED_STORES = 64, 0.75
"""Lines of a program's last store, of several warps, that the next one may go on with, and which
part of what is stored to them once more the L2 cache does not see: of eight softmaxes whose rows
are not aligned it gets 3.7 requests of a row of 67 floats where stores ask for 10.8 lines, and 37.6
of one of 1000 where they ask for 56 (Nsight Compute, H200)."""


@dataclass(slots=True)
class Asked:
    """What warps ask for by one instruction."""

    tensor: str | None = None
    is_known: bool = True
    """Whether its addresses are."""
    threads: float = 0.0
    """Threads whose condition is true."""
    sectors: float = 0.0
    most_sectors: float = 0.0
    """Where the addresses are not known, each thread may ask for another; else as many."""
    lines: float = 0.0
    most_lines: float = 0.0
    passes: float = 0.0
    most_passes: float = 0.0
    """Of the L1 cache, as `distinct` has them."""
    cached: float = 0.0
    """Sectors that the L1 cache has from what the same program loaded before; 0 of copies."""
    common: float = 0.0
    """Sectors of the others that all programs ask for."""
    distinct: float = 0.0
    """Sectors that a program asks for the first time."""
    shared: float = 0.0
    """Of loads, what several warps of the program ask for, beyond the first request for each
    sector, whether the L1 cache has it or not."""
    merged: float = 0.0
    """Of a load those of `shared` that the L1 cache lacks; of a copy these and all that it has; of
    a store those in lines that were just stored to."""
    places: float = 0.0
    """Of atomic operations the addresses, each counted once a warp; as many as threads where they
    are not known."""
    programs: float = 0.0
    """How often a program executes it with a thread whose condition is true."""

    def a_time(self, times: float) -> Asked:
        """Return the same of one of so many executions."""
        amounts = (one.name for one in fields(self) if one.type == "float")
        return replace(self, **{name: getattr(self, name) / times for name in amounts})

    def add(self, least: Sequence[float], most: Sequence[float]) -> None:
        """Add what is COUNTED, which is between the *least* and the *most*."""
        for name, low, high in zip(COUNTED, least, most, strict=True):
            setattr(self, name, getattr(self, name) + low)
            setattr(self, f"most_{name}", getattr(self, f"most_{name}") + high)


@dataclass(slots=True)
class L1Cache:
    """What a program loaded and stored until now, as far as the L1 cache has it."""

    lanes: int
    """Of a warp."""
    loaded: dict[int, int] = field(default_factory=dict)
    """The lines that the program had loaded when it last asked for a sector."""
    present: dict[int, int] = field(default_factory=dict)
    """The same of a line."""
    stored: Any = ()
    """The lines of the last store, where it is of few."""
    lines: int = 0
    in_pass: set[int] = field(default_factory=set)
    """The loads of the pass of a loop that is followed, if it stands for others."""
    repeat: int = 1
    left_out: int = 0
    """The lines that the passes load for which it stands."""

    def begin(self, number: int, repeat: int) -> None:
        """Note that load *number* begins, which stands for *repeat* of them.

        Behind a pass of a loop that stood for many comes what its other passes load. Between two
        loads of such a pass lies what one pass loads.
        """
        if repeat != self.repeat or number in self.in_pass:
            self.lines += self.left_out
            self.repeat, self.left_out = repeat, 0
            self.in_pass.clear()
        self.in_pass.add(number)

    def load(
        self, address: Any, threads: Any, part: float | None = None
    ) -> tuple[float, float, float]:
        """Return the share of the sectors of a load that the program loaded shortly before.

        The second is of those that it never loaded, and the third of requests beyond the first for
        a sector. A load that stands for those of places a *part* of a sector apart lacks each
        sector once.
        """
        of_warps = in_order(by_warp(np.where(threads, address // SECTOR, NOWHERE), self.lanes))
        requests = of_warps[firsts(of_warps)]
        wanted = np.unique(requests).tolist()
        oldest = self.lines - KEPT_LINES
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

    def store(self, address: Any, threads: Any) -> float:
        """Return the share of its lines that a store asks for with those before it.

        What warps store to a line one after the other goes on to the L2 cache together.
        """
        if len(address) == 1:
            return 0.0
        of_warps = in_order(by_warp(np.where(threads, address // LINE, NOWHERE), self.lanes))
        wanted = of_warps[firsts(of_warps)]
        lines = np.unique(wanted)
        again = len(wanted) - len(lines) + int(np.isin(lines, self.stored).sum())
        self.stored = lines[:0] if len(lines) > OPEN_LINES else lines
        return MERGED_STORES * again / len(wanted)


@dataclass(frozen=True, slots=True)
class Noted:
    """An access whose sectors, lines and passes are counted later, with others like it."""

    asked: Asked
    address: Any
    mask: Any
    times: int
    """How often warps do the same."""
    more: int
    """How many more of each it may ask for."""
    shares: Mapping[str, float]
    """Which share of its sectors counts in which amount of `asked`."""


class Asking:
    """Notes what the accesses of followed programs ask for."""

    def __init__(
        self,
        programs: int,
        threads: int,
        tensor_at: Callable[[int], str | None],
        bytes_of: Callable[[int], int],
        lanes: int = WARP,
    ) -> None:
        """Take the programs, the threads of each, and what says in which tensor an address is.

        *bytes_of* says how many bytes a thread moves by an instruction of a number. A warp has so
        many *lanes*.
        """
        self._asked: dict[int, Asked] = defaultdict(Asked)
        self._programs = programs
        self._threads = threads
        self._tensor_at = tensor_at
        self._bytes_of = bytes_of
        self._lanes = lanes
        self._caches: dict[int, L1Cache] = defaultdict(lambda: L1Cache(lanes))
        """Of the programs that stand for others, by their places."""
        self._noted: dict[tuple[Any, ...], list[Noted]] = defaultdict(list)
        """By the bytes of a thread and the shapes of addresses and masks."""

    @property
    def by_instruction(self) -> Mapping[int, Asked]:
        """What was asked for by each instruction until now."""
        for alike in self._noted:
            self._count(alike)
        return self._asked

    def visit(  # noqa: PLR0913 - what an access depends on
        self,
        step: Step,
        address: Any,
        mask: Any,
        repeat: int,
        *,
        is_known: bool = True,
        part: float | None = None,
    ) -> None:
        """Note *repeat* accesses to *address*, None where it is not known, by threads of *mask*.

        Each moves on by a *part* of a sector to the next; None is that they do not, or by more.

        A thread asks for one sector: its bytes are aligned to their number, which is 32 at most.
        An address that is there and not known is that of all threads of a warp moved elsewhere: to
        where their bytes may begin within a sector, which takes another one.
        """
        asked = self._asked[step.number]
        mask = of_threads(mask, self._threads)
        same = repeat * self._programs // len(mask)
        threads = int(mask.sum()) * same
        asked.threads += threads
        if not threads:
            return
        asking = by_warp(mask, self._lanes).any(axis=2)
        warps = int(asking.sum()) * same
        asked.programs += int(asking.any(axis=1).sum()) * same
        asked.is_known &= is_known and address is not None
        opcode, size = step.word & 0x1FF, self._bytes_of(step.number)
        if address is None:
            asked.add([warps] * 3, [threads, threads, max(threads * AT_RANDOM, warps)])
            asked.places += threads if opcode in operations.ATOMICS else 0
            return
        if asked.tensor is None and is_known:
            shape = np.broadcast_shapes(address.shape, mask.shape)
            at = np.broadcast_to(address, shape)[np.broadcast_to(mask, shape)]
            asked.tensor = self._tensor_at(int(at[0]))
        same = repeat * self._programs // max(address.shape[0], mask.shape[0])
        if opcode in operations.ATOMICS:
            places = by_warp(np.where(mask, address, NOWHERE), self._lanes)
            asked.places += same * int(firsts(in_order(places)).sum())
        more = 0 if is_known or address.shape[1] == 1 else warps
        shares = self._shares(step, address, mask, repeat, part) if is_known else {}
        alike = size, address.shape, mask.shape
        self._noted[alike].append(Noted(asked, address, mask, same, more, shares))
        if len(self._noted[alike]) * address.size >= MOST_WAITING:
            self._count(alike)

    def _count(self, alike: tuple[Any, ...]) -> None:
        """Count the accesses of which size and shapes are *alike*, all at once."""
        noted = self._noted[alike]
        if not noted:
            return
        addresses = np.stack([one.address for one in noted])
        masks = np.stack([one.mask for one in noted])
        found = distinct(addresses, masks, alike[0], self._lanes)
        for one, *amounts in zip(noted, *(each.tolist() for each in found), strict=True):
            counted = [amount * one.times for amount in amounts]
            one.asked.add(counted, [amount + one.more for amount in counted])
            for name, share in one.shares.items():
                setattr(one.asked, name, getattr(one.asked, name) + counted[0] * share)
        noted.clear()

    def _shares(
        self, step: Step, address: Any, mask: Any, repeat: int, part: float | None
    ) -> Mapping[str, float]:
        """Return which share of its sectors the L1 cache serves, and the like, by their names.

        It is that of a program that stands for all.
        """
        opcode = step.word & 0x1FF
        is_copy = opcode == operations.LDGSTS  # through the cache, if it is narrow
        is_copy &= self._bytes_of(step.number) < operations.BYPASSING_BYTES
        place = self._programs // 2
        if len(mask) > 1:
            asking = np.flatnonzero(mask.any(axis=1))
            place = int(asking[len(asking) // 2])
        own = address[place if len(address) > 1 else 0]
        threads = mask[place if len(mask) > 1 else 0]
        cache = self._caches[place]
        if opcode in operations.LOADS or is_copy:
            cache.begin(step.number, repeat)
            cached, first, shared = cache.load(own, threads, part)
            merged = (1.0 - cached) * shared
            common = 0.0
            if is_copy:  # it is waited for with all others
                cached, merged = 0.0, cached + merged
            elif self._programs > 1 and (address == address[:1]).all():
                common = 1.0 - cached - merged
            found = {"cached": cached, "merged": merged, "common": common}
            return {**found, "distinct": first, "shared": shared}
        if opcode in {operations.STG, operations.ST}:
            return {"merged": cache.store(own, threads)}
        return {}


def distinct(address: Any, mask: Any, size: int = WORD, lanes: int = WARP) -> tuple[Any, Any, Any]:
    """Return the sectors and the lines that warps ask for, each counted once a warp, and passes.

    *address* and *mask* are arrays over programs and threads, each of which asks for *size* bytes,
    or over several accesses and these: then there is a number of each. In a pass the L1 cache looks
    up a line in each of its four banks of tags, and gives or takes a word of each of its 32 banks
    of data, which are those of shared memory (H100, measured). A warp takes as many as it needs of
    the scarcer.
    """
    if address.shape[-1] == 1:
        shape = np.broadcast_shapes(address.shape, mask.shape)
        asking = by_warp(np.broadcast_to(mask, shape), lanes).any(axis=-1)
        warps = asking.sum(axis=(-2, -1))
        return warps, warps, warps
    sectors = in_order(by_warp(np.where(mask, address // SECTOR, NOWHERE), lanes))
    is_first = firsts(sectors)
    lines = sectors // QUARTERS
    begins = is_first.copy()
    begins[..., 1:] &= lines[..., 1:] != lines[..., :-1]
    counted = passes = begins.sum(axis=-1)
    several = passes > 1
    if several.any():
        shape = (*several.shape, lanes)
        some, asks = (
            np.broadcast_to(by_warp(one, lanes), shape)[several] for one in (address, mask)
        )
        passes = passes.copy()
        passes[several] = np.maximum(
            _passes_of_tags(lines[several], begins[several]), passes_of_warps(some, asks, size)
        )
    over_all = (-2, -1)
    return is_first.sum(axis=(-3, *over_all)), counted.sum(axis=over_all), passes.sum(axis=over_all)


def _passes_of_tags(lines: Any, counts: Any) -> Any:
    """Return how many of the *lines* of each warp that count are in the fullest bank of tags."""
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
