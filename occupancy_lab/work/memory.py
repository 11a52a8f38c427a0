"""The traffic of a launch to the L2 cache and to device memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from occupancy_lab.gpus import Gpu
from occupancy_lab.values import Resources, Work
from occupancy_lab.work import pieces
from occupancy_lab.work.counts import (
    NOTHING,
    SECTOR,
    Access,
    Amount,
    Counts,
    Footprint,
    Reuse,
    total,
)
from occupancy_lab.work.execution import Executed, LocalReuse

PARTITIONED = frozenset({"sm_80", "sm_90", "sm_100", "sm_103"})
"""Architectures whose L2 cache has two partitions. Each caches what the multiprocessors beside it
load, so that data which all of them load occupies twice its size (NVIDIA's A100 white paper)."""
COPIES, OWN_COPIES = 2.0, 1.5
"""The mean copies of a byte that such a cache holds: of bytes that several programs load or that
are written, and of bytes that only one program loads. Each byte belongs to one partition, and a
multiprocessor beside the other partition, which is so for half of the bytes, makes a second copy
there. With 2 for both, norms that read rows of 32 KB three times are predicted to read a third too
much."""
LOST, LOCAL_LOST = NormalDist(1.3, 0.25), NormalDist(1, 0.25)
"""The share of bytes that the last cache has evicted by the time that they are read again, as a
distribution over the reuse distance. For tensors the distance is in units of how much of the
launch's data the cache holds; for local memory, which belongs to one multiprocessor, in units of
the whole cache. From Nsight Compute's counts for 80 launches on an H100 and an H200 that exceed the
cache, mostly products of matrices."""
LOCAL_FARTHEST = 2.25
"""The distance, in units of the cache, from which on everything that is stored to local memory is
written back before it is overwritten; write-backs begin at distance 1. From Nsight Compute's counts
for 14 softmaxes on an H200: 13% of their stores are written back where the resident programs touch
36 MB between two stores to the same place, 46% at 47 MB, 71% at 69 MB and 98% at 1000 MB."""
RECENT, STAYS = 0.79, 0.42
"""Shares of the L2 cache: the most recent data, and the most dirty data that is still there when a
launch ends. From Nsight Compute's counts for launches on an H100 that write 20 MB or more."""
FORGOTTEN = 2.0
"""A launch that touches this many times what the cache keeps leaves nothing for the next launch; on
GPUs with two partitions this is the whole L2 cache. From the times of repeated launches on an
H100."""
OWN = 1.1
"""An access counts as loading bytes of each program's own if all programs together request at most
this many times its distinct bytes: sectors at the ends of rows are requested twice."""
EASILY = 1 / 16
"""The share of the L1 cache that a table takes at most for a program to find it there again."""
WIDEST = 16
"""The most bytes that a thread loads or stores at once."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes that a launch moves, by where they are served; None means not known."""

    l2_bytes: Amount | None = None
    """Bytes that its programs request from the L2 cache and write to it: whole sectors of 32 bytes,
    less those that hit in the L1 cache."""
    dram_read_bytes: Amount | None = None
    """Bytes that device memory delivers: each tensor once, plus what the L2 cache has evicted."""
    dram_written_bytes: Amount | None = None
    """Bytes that are finally written to device memory: each once, and at unknown addresses again
    where the L2 cache has evicted them in between."""
    written_within_bytes: Amount | None = None
    """The part of these that is written before the launch ends, as a profiler counts; the rest is
    still in the L2 cache."""
    once_read_bytes: Amount | None = None
    """Bytes that device memory delivers if the cache evicts nothing and no register is spilled:
    each byte once."""
    once_written_bytes: Amount | None = None
    """The same for bytes that are written."""
    read_cost: float = 1.0
    """The time that device memory takes for these reads, relative to as many bytes in long
    pieces."""
    written_cost: float = 1.0
    """The same for writes."""
    early: float = 0.0
    """The bytes in long pieces that device memory could read in the time in which it completes
    sectors that are written in part at known addresses, and writes them back."""
    returned: float = 0.0
    """The share of the stored sectors that were stored to before and have not left the cache since,
    of tensors with such sectors."""
    given: bool = False
    """Whether the user specified the bytes of device memory."""
    local_lost: float = 0.0
    """The share of loads from local memory that miss in all caches; 0 where it is not known."""
    local_read_bytes: int = 0
    """The least bytes of local memory that device memory delivers."""
    local_written_bytes: int = 0
    kept: float | None = None
    """The share of its bytes that the same launch right before it left in the last cache; None
    where no launch came before."""

    @property
    def dram_bytes(self) -> Amount | None:
        """Bytes that device memory delivers and takes."""
        read, written = self.dram_read_bytes, self.dram_written_bytes
        return None if read is None or written is None else read + written

    @property
    def once_bytes(self) -> Amount:
        """The bytes of device memory if each moves once, or the bytes that the user specified."""
        known = (self.once_read_bytes, self.once_written_bytes)
        return total(one for one in known if one is not None)


@dataclass(frozen=True, slots=True)
class LocalMemory:
    """The local memory of a launch's threads, for example for spilled registers."""

    loaded: Amount
    """Bytes that loads request."""
    stored: Amount
    threads: int
    """Resident threads; later threads reuse their places."""
    frame: int
    """Bytes per thread."""
    reuse: LocalReuse

    @property
    def bytes(self) -> int:
        """The local memory of all resident threads."""
        return self.threads * self.frame

    def lost(self, cache: int) -> float:
        """Return the share of the loads that miss in a last cache of *cache* bytes."""
        return self._mean(self.reuse.fetched, cache, LOCAL_LOST.cdf)

    def read(self, cache: int | None) -> Amount:
        """Return the bytes that device memory delivers behind a last cache of *cache* bytes.

        Where only a part of a word is stored, the rest of the word is read too.
        """
        if cache is None:
            return Amount(0, self.loaded.high)
        asked = self.loaded + self.stored.scaled(self.reuse.narrow)
        return asked.scaled(self.lost(cache))

    def written(self, room: int | None) -> Amount:
        """Return the bytes that are finally written to device memory, with *room* bytes of cache.

        These are the places' last contents and what the cache evicted before it was overwritten.
        """
        once = min(self.stored.low, self.bytes)
        if room is None:
            return Amount(once, self.stored.high)
        share = self._mean(self.reuse.stored, room, lambda one: beyond(one, LOCAL_FARTHEST))
        return self.stored.scaled(share).at_least(once)

    def _mean(
        self, distances: Sequence[float], room: int, share: Callable[[float], float]
    ) -> float:
        found = [share(self.threads * one / room) for one in distances]
        return sum(found) / max(len(found), 1)


def local_memory(
    executed: Executed | None,
    resources: Resources,
    programs: int,
    resident: int | None,
    *,
    lanes: int,
) -> LocalMemory | None:
    """Return the local memory of a launch of *programs* programs; None where it is not known.

    *resident* of the programs run at once, and a warp has *lanes* threads. Where the binary was not
    replayed, loads and stores are assumed to move equally many bytes each.
    """
    if executed is None or not resources.local_bytes:
        return None
    loads, stores = (executed.kinds.get(one, NOTHING) for one in ("local_loads", "local_stores"))
    program, reuse = executed.program, LocalReuse.uniform(resources.local_bytes)
    if program is None or not program.has_local:
        moved = total(one.local_bytes for one in executed.lines).most
        a_load = a_store = moved / max((loads + stores).most, 1)
    else:
        reuse = program.local_reuse
        # A range from 0 has no typical value, but the bytes of one warp's access are bounded.
        a_load, a_store = (
            min(moved * executed.programs / max(often.typical, 1), lanes * WIDEST)
            for moved, often in ((program.local_loaded, loads), (program.local_stored, stores))
        )
    return LocalMemory(
        loaded=loads.scaled(a_load),
        stored=stores.scaled(a_store),
        threads=resources.num_warps
        * lanes
        * (programs if resident is None else min(programs, resident)),
        frame=resources.local_bytes,
        reuse=reuse,
    )


def moved(
    counts: Counts | None,
    given: Work,
    gpu: Gpu,
    local: LocalMemory | None = None,
    hits: float = 0.0,
) -> Memory | None:
    """Return the bytes that a launch moves: those *given* by the user, else those of its *counts*.

    None where neither is known. *local* and *hits* are those of `memory`.
    """
    found = Memory() if counts is None else memory(counts, gpu, local, hits)
    said: dict[str, Amount | None] = {}
    if given.read_bytes is not None:
        said["dram_read_bytes"] = said["once_read_bytes"] = Amount.of(given.read_bytes)
    if given.written_bytes is not None:
        said["dram_written_bytes"] = said["once_written_bytes"] = Amount.of(given.written_bytes)
        said["written_within_bytes"] = None
    if counts is None and not said:
        return None
    return replace(found, **said, given=bool(said))  # type: ignore[arg-type] # amounts


def memory(counts: Counts, gpu: Gpu, local: LocalMemory | None = None, hits: float = 0.0) -> Memory:
    """Return the bytes that a launch moves, including its *local* memory.

    *hits* is the share of the sectors that its programs load which hit in the L1 cache. Device
    memory delivers each byte once, and again where the last cache has evicted it before the
    launch reads it again.
    """
    return _Traffic(counts, gpu, local).memory(hits)


def last_cache(gpu: Gpu) -> int | None:
    """Return the bytes of the last cache before device memory: the L2, or AMD's Infinity Cache.

    None where they are not known.
    """
    return gpu.l2_bytes if gpu.infinity_cache_bytes is None else gpu.infinity_cache_bytes


def capacity(gpu: Gpu) -> int | None:
    """Return how many bytes of data that all programs load fit in the last cache.

    On NVIDIA's GPUs with two partitions this is half of the cache. None where its size is not
    known.
    """
    cache = last_cache(gpu)
    if cache is None or gpu.target.name not in PARTITIONED:
        return cache
    return int(cache / COPIES)


def is_granular(gpu: Gpu) -> bool:
    """Tell whether device memory delivers whole granules; otherwise it delivers sectors."""
    return gpu.target.name in PARTITIONED


def repeated(moved: Memory, counts: Counts | None, gpu: Gpu, between: int = 0) -> Memory:
    """Return the bytes that a launch moves right after the same launch.

    *moved* are the bytes that it moves otherwise; launches in between touched *between* other
    bytes.

    Where a launch touches no more than the last cache keeps, the next launch finds all of it there.
    Larger launches leave less, and nothing from FORGOTTEN on. Bytes that are found are neither read
    again nor written to device memory. Where the size of the cache is not known, nothing is assumed
    to be found.
    """
    room, touched = capacity(gpu), moved.once_bytes.high
    if counts is not None and not moved.given:
        touched = total(map(_touched, counts.footprints)).high
    if room is None or touched is None:
        return replace(moved, kept=0.0)
    touched += between
    kept = min(max((FORGOTTEN - touched / room) / (FORGOTTEN - 1), 0.0), 1.0)

    def left(amount: Amount | None, once: Amount | None) -> Amount | None:
        if amount is None or once is None:
            return amount
        there = once.scaled(kept)
        high = None if amount.high is None or there.high is None else amount.high - there.high
        return Amount(amount.low - there.low, high)

    read, written = moved.once_read_bytes, moved.once_written_bytes
    taken = left(moved.dram_written_bytes, written)
    return replace(
        moved,
        dram_read_bytes=left(moved.dram_read_bytes, read),
        dram_written_bytes=taken,
        written_within_bytes=taken,
        once_read_bytes=left(read, read),
        once_written_bytes=left(written, written),
        kept=kept,
    )


def _touched(tensor: Footprint) -> Amount:
    """Return the bytes of a tensor that are read or written, assuming that these are the same."""
    read, written = tensor.read_whole, tensor.written_whole
    most = None if read.high is None or written.high is None else max(read.high, written.high)
    return Amount(max(read.low, written.low), most)


def _asked(accesses: Iterable[Access]) -> Amount:
    return total(one.sectors * SECTOR for one in accesses)


@dataclass(frozen=True, slots=True)
class _Flow:
    """The bytes of a tensor between the last cache and device memory."""

    given: Amount
    """Bytes that device memory delivers."""
    stored: Amount
    """Bytes that it takes."""
    twice: int
    """The bytes of these that are written again later."""


class _Traffic:
    """The traffic of a launch and of its *local* memory, beginning with what the caches hold."""

    def __init__(self, counts: Counts, gpu: Gpu, local: LocalMemory | None) -> None:
        self.counts, self.gpu, self.local = counts, gpu, local
        self.frames = 0 if local is None else local.bytes
        """The local memory of all resident threads, which is touched between any two accesses."""
        tensors = counts.footprints
        self.once = total(map(self.once_read, tensors))
        self.once_written = total(
            one.written_whole.at_most(_asked(self.stores(one)).high) for one in tensors
        )
        self.room = self.kept()
        whole = (self.once + self.once_written).high
        if whole is not None and self.room is not None and whole + self.frames <= self.room:
            self.room = math.inf
        self.flows = {one: self.flow(one) for one in tensors}

    def memory(self, hits: float) -> Memory:
        """Return the bytes that the launch moves, where the share *hits* of its loads hit in L1."""
        asked, local, cache = self.through(hits), self.local, last_cache(self.gpu)
        reads = total(one.given for one in self.flows.values())
        written = total(one.stored for one in self.flows.values())
        came = sum(self.filled(one, flow.given) for one, flow in self.flows.items())
        if local is not None:
            asked += local.loaded + local.stored
            read, taken = local.read(cache), local.written(capacity(self.gpu))
            reads += read
            written += taken
            came += read.low
        within = self.written_within(written, came)
        found = Memory(asked, reads, written, within, self.once, self.once_written)
        if is_granular(self.gpu):
            found = self.with_costs(found, reads, written, came)
        if local is None or cache is None:
            return found
        return replace(
            found,
            local_lost=local.lost(cache),
            local_read_bytes=read.low,
            local_written_bytes=taken.low,
        )

    def with_costs(self, moved: Memory, reads: Amount, taken: Amount, came: int) -> Memory:
        """Return what is *moved* with its costs, and with the rest of sectors written in part.

        *came* is as in `written_within`.
        """
        flows, cache = self.flows, last_cache(self.gpu)
        room = None if cache is None else pieces.ROOM * cache
        stores = {one: self.stores(one) for one in flows}
        in_part = {}
        for one, some in stores.items():
            unknown = not all(store.is_known for store in some)
            flow = pieces.Early(
                twice=flows[one].twice,
                resumed=self.lost(one.resumed, self.room),
                stays=self.stays(one, _asked(some)) or 0.0 if unknown else 0.0,
            )
            in_part[one] = pieces.early(some, one, flow, room, self.lost)
        filled = total(one.filled for one in in_part.values())
        read_time = sum(
            own.given.most * pieces.read_cost(self.loads(one)) for one, own in flows.items()
        )
        read_time += reads.most - total(flow.given for flow in flows.values()).most
        read_time += sum(one.slow for one in in_part.values())
        reads += filled
        costs = {one: pieces.written_cost(stores[one], one, own) for one, own in in_part.items()}
        known = {one: own for one, own in in_part.items() if own.filled.is_exact and own.filled.low}
        asked = {one: _asked(stores[one]).most for one in known}
        again = [size - one.written_whole.most - flows[one].twice for one, size in asked.items()]
        written = [(flows[one].stored.most, cost) for one, cost in costs.items()]
        return replace(
            moved,
            dram_read_bytes=reads,
            written_within_bytes=self.written_within(taken, came, filled),
            once_read_bytes=self.once + filled,
            read_cost=read_time / max(reads.most, 1.0),
            written_cost=pieces.mean(written),
            early=sum(own.slow + own.filled.low * costs[one] for one, own in known.items()),
            returned=max(sum(again), 0.0) / max(sum(asked.values()), 1.0),
        )

    def through(self, hits: float) -> Amount:
        """Return the bytes that programs request from the L2 cache and write to it.

        Of the sectors that they load, the share *hits* is in the L1 cache. Of a table that fits
        easily into it, a program loads each sector at most once, wherever in it the addresses are
        that are not known.
        """
        room = (self.gpu.architecture.l1_bytes or 0) * EASILY
        sizes = {
            one.tensor: -(-one.size // SECTOR) * SECTOR
            for one in self.counts.footprints
            if one.size is not None and one.size <= room and one.written.high == 0
        }
        looked_up = dict.fromkeys(sizes, NOTHING)
        found = NOTHING
        for one in self.counts.accesses:
            if one.tensor in sizes and not one.is_known:
                looked_up[one.tensor] += one.sectors * SECTOR
            else:
                found += (one.sectors * SECTOR).scaled(1.0 - hits if one.reads else 1.0)
        programs = self.counts.programs
        return found + total(one.at_most(programs * sizes[name]) for name, one in looked_up.items())

    def loads(self, tensor: Footprint) -> list[Access]:
        """Return the accesses that read a tensor."""
        return [one for one in self.counts.accesses if one.reads and one.tensor == tensor.tensor]

    def stores(self, tensor: Footprint) -> list[Access]:
        """Return the accesses that write a tensor."""
        return [one for one in self.counts.accesses if one.writes and one.tensor == tensor.tensor]

    def copies(self, tensor: Footprint) -> float:
        """Return the mean number of copies of each byte of a tensor in the last cache."""
        if self.gpu.target.name not in PARTITIONED:
            return 1.0
        loads = self.loads(tensor)
        is_own = bool(loads) and all(
            one.sectors.is_exact and one.sectors.low * SECTOR <= OWN * one.unique_bytes.low
            for one in loads
        )
        return OWN_COPIES if is_own and not tensor.written_whole.low else COPIES

    def kept(self) -> float | None:
        """Return how many distinct bytes fit in the last cache; None where not known."""
        cache = last_cache(self.gpu)
        sizes = [(one, _touched(one).low) for one in self.counts.footprints]
        whole = sum(size for _, size in sizes)
        if cache is None or not whole:
            return capacity(self.gpu)
        return round(cache * whole / sum(size * self.copies(one) for one, size in sizes))

    def filled(self, tensor: Footprint, given: Amount) -> int:
        """Return the bytes of a tensor that enter the L2 cache and are not overwritten there.

        They enter once for each copy that the cache holds. A tensor that is also written takes no
        extra room.
        """
        if tensor.written_whole.low >= tensor.read_whole.low:
            return 0
        asked = _asked(self.loads(tensor)).low
        return max(min(asked, round(self.copies(tensor) * given.low)), given.low)

    def written_within(self, written: Amount, came: int, early: Amount = NOTHING) -> Amount | None:
        """Return how many of the *written* bytes reach device memory before the launch ends.

        At its end the L2 cache holds the most recent data. The written share of that is the written
        share of all data that *came* into the cache, but at most STAYS. What is written *early* is
        not in it.
        """
        cache = self.gpu.l2_bytes
        if cache is None or self.gpu.infinity_cache_bytes is not None:
            return None

        def taken(number: int, first: int) -> int:
            later = max(number - first, 0)
            share = later / (came + later) if later else 0.0
            return number - min(later, round(cache * min(STAYS, RECENT * share)))

        high = None if written.high is None else taken(written.high, early.high or 0)
        return Amount(taken(written.low, early.low), high)

    def fetched(self, loads: Sequence[Access]) -> Amount:
        """Return the bytes that *loads* request, with no hits in any cache."""
        return pieces.fetched_bytes(loads) if is_granular(self.gpu) else _asked(loads)

    def once_read(self, tensor: Footprint) -> Amount:
        """Return the bytes of a tensor that device memory delivers if each is delivered once."""
        once = tensor.read_whole
        if is_granular(self.gpu):
            once += Amount.of(max((tensor.read_granules or 0) - once.low, 0))
        return once.at_most(self.fetched(self.loads(tensor)).high)

    def flow(self, tensor: Footprint) -> _Flow:
        """Return the bytes of a tensor between the last cache and device memory."""
        loads, stores = self.loads(tensor), self.stores(tensor)
        given, asked = self.once_read(tensor), self.fetched(loads)
        if tensor.again is None or not all(one.is_known for one in loads):
            given = self.missed(tensor, given, asked)
        elif self.room is None:
            high = None if asked.high is None else max(asked.high, given.high or 0)
            given = Amount(given.low, high)
        else:
            given += Amount.of(self.lost(tensor.again, self.room))
        asked, twice = _asked(stores), self.lost(tensor.rewritten, self.room)
        stored = tensor.written_whole.at_most(asked.high)
        if not all(one.is_known for one in stores):
            stored = self.missed(tensor, stored, asked)
        return _Flow(given, stored + Amount.of(twice), twice)

    def lost(self, again: Sequence[Reuse], room: float | None) -> int:
        """Return how many of the bytes touched *again* have left *room* bytes of cache by then."""
        if room is None or room == math.inf:
            return 0
        distances = ((one.bytes, (one.distance + self.frames) / room) for one in again)
        return round(sum(size * LOST.cdf(distance) for size, distance in distances))

    def missed(self, tensor: Footprint, once: Amount, asked: Amount) -> Amount:
        """Return the bytes of a tensor that move where it is not known what is touched again.

        They are at most those of random places. Each byte moves *once* at least, and the launch has
        *asked* for them.
        """
        if asked.high is None:
            return Amount(once.low, None)
        stays, most = self.stays(tensor, asked), asked.most
        if stays is not None:
            size = most if tensor.size is None else tensor.size
            most = max(most * math.exp(-stays), min(most, size))
        return Amount(once.low, max(round(most), once.low))

    def stays(self, tensor: Footprint, asked: Amount) -> float | None:
        """Return how long bytes of a tensor stay in the last cache, where addresses are not known.

        It is the number of bytes that the launch requests of the tensor in that time, relative to
        the size of the tensor. The cache has fewer copies of what is written. None where it is not
        known.
        """
        room = capacity(self.gpu)
        if room is None or not asked.most:
            return None
        if tensor.written_whole.most and self.gpu.target.name in PARTITIONED:
            room = round(room * COPIES / OWN_COPIES)
        size = tensor.size or asked.most
        whole = total(map(_touched, self.counts.footprints)).most
        others = max(whole - _touched(tensor).most, 0.0)
        return pieces.turnover(asked.most, size, others, room)


def beyond(size: float, farthest: float) -> float:
    """Return where *size* lies between 1, which gives 0, and *farthest*, from which on it is 1."""
    return min(max((size - 1) / (farthest - 1), 0.0), 1.0)
