"""Counts what a launch does from the texts of its kernel, or says why it cannot be counted."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from occupancy_lab.arguments import Pointer
from occupancy_lab.assumed import Assumption, assumption_words
from occupancy_lab.errors import BinaryError, TtirError
from occupancy_lab.work.counts import Counts, total
from occupancy_lab.work.execution import TOO_LONG, Executed
from occupancy_lab.workers.forked import in_forks
from occupancy_lab.workers.messages import from_line, to_line

if TYPE_CHECKING:
    from occupancy_lab.compiling.store import Store
    from occupancy_lab.compiling.texts import Texts
    from occupancy_lab.launch import BoundLaunch

COUNTERS = 82
"""Is raised whenever the counts of a launch change, so that older ones in a store are not used."""
FEW = 4
"""The fewest launches that are counted in forks: a fork takes as long as a count."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What a launch does, or why it is not known."""

    counts: Counts | None = None
    why_not: str | None = None
    """None where there are counts."""
    executed: Executed | None = None
    """What its machine code executes; None where it is not known."""
    why_not_executed: str | None = None
    is_failure: bool = False
    """Whether an error of the lab is the reason, so that another attempt may succeed."""
    at_limits: tuple[Counted, ...] = ()
    """The same with the fewest and with the most trips of loops that the source allows, where these
    depend on data; empty where none do, or where the source allows any number for one of them."""


@dataclass(frozen=True, slots=True)
class Counting:
    """A launch that is to be counted."""

    texts: Texts | None
    run: BoundLaunch
    grid: tuple[int, ...] | None
    assume: Mapping[str, Assumption]
    """The assumptions about tensors and arguments, by the names of parameters."""
    resident: int | None
    """Programs that run at once; None where it is not known."""
    l1_bytes: int | None = None
    """The bytes of the L1 cache that a program has; None where it is not known."""

    @property
    def why_not(self) -> str | None:
        """Why it cannot be counted; None where it can be attempted."""
        if self.texts is None:
            return "its kernel's TTIR is not at hand"
        return "no grid is given" if self.grid is None else None

    @property
    def _unknown(self) -> frozenset[str]:
        return frozenset(self.run.launch.typical.keys() - self.run.constexprs)

    @property
    def _known(self) -> dict[str, Any]:
        arguments = self.run.arguments.items()
        return {name: value for name, value in arguments if name not in self._unknown}

    @property
    def _values(self) -> dict[str, Sequence[int]]:
        values = self.run.launch.values.items()
        return {name: held for name, held in values if name not in self.assume}

    def key(self) -> dict[str, Any]:
        """Return the key of its counts in a store."""
        texts, grid = self.texts, self.grid
        assert texts is not None  # noqa: S101 - `why_not` says so
        assert grid is not None  # noqa: S101
        return {
            "counters": COUNTERS,
            "ttir": _digest(texts.ttir),
            "cubin": None if texts.cubin is None else hashlib.sha256(texts.cubin).hexdigest(),
            "amdgcn": None if texts.amdgcn is None else _digest(texts.amdgcn),
            "arguments": repr(self._known),
            "values": _digest(repr(sorted(self._values.items()))),
            "grid": list(grid),
            "assume": {name: assumption_words(one) for name, one in self.assume.items()},
            "resident": self.resident,
            "l1_bytes": self.l1_bytes,
        }

    def kept(self, store: Store) -> Counted | None:
        """Return what *store* has of it; None where it has nothing."""
        if self.why_not is not None:
            return Counted(why_not=self.why_not)
        kept = store.get_line("counted", self.key())
        with contextlib.suppress(ValueError):  # the entry was changed by something else
            return None if kept is None else from_line(Counted, kept)
        return None

    def count(self) -> Counted:
        """Return what the launch does, without a store."""
        found = self._count()
        limits = [] if found.counts is None else found.counts.limits
        at_limits = tuple(
            replace(self, assume={**self.assume, **trips})._count(  # noqa: SLF001 - its own
                follow=found.why_not_executed != TOO_LONG
            )
            for trips in limits
        )
        return replace(found, at_limits=at_limits)

    def _count(self, *, follow: bool = True) -> Counted:
        texts, grid = self.texts, self.grid
        if texts is None or grid is None:
            return Counted(why_not=self.why_not)
        # These import numpy, which takes a fifth of the time of a page whose counts are stored.
        from occupancy_lab.work.ttir import read_ttir
        from occupancy_lab.work.walk import WorkError, count

        given: dict[str, Any] = {"values": self._values, "assume": self.assume}
        try:
            module = read_ttir(texts.ttir)
            counts = count(module, self._known, grid, resident=self.resident, **given)
        except (TtirError, WorkError) as error:
            return Counted(why_not=str(error))
        except Exception as error:  # noqa: BLE001 - what is known without it is shown all the same
            return Counted(why_not=f"{type(error).__name__} in counting: {error}", is_failure=True)
        return self._followed(texts, counts, grid) if follow else Counted(counts)

    def _followed(self, texts: Texts, counts: Counts, grid: Sequence[int]) -> Counted:
        from occupancy_lab.work.executed import execute
        from occupancy_lab.work.gathers import gathers_of

        known = self._known
        values: dict[str, Any] = self._values
        assumed = {
            name: (one,) if isinstance(one, int) else one  # one number stands for every element
            for name, one in self.assume.items()
            if isinstance(tensor := known.get(name), Pointer)
            and tensor.dtype.startswith(("int", "uint"))
        }
        values |= assumed | counts.held
        known |= {name: one for name, one in self.assume.items() if name in self._unknown}
        try:
            found = execute(
                *(texts, known, grid),
                values=values,
                resident=self.resident,
                loops=counts.loops,
                gathers=gathers_of(counts),
                l1_bytes=self.l1_bytes,
            )
            return Counted(counts, executed=found)
        except BinaryError as error:
            return Counted(counts, why_not_executed=str(error))
        except Exception as error:  # noqa: BLE001 - the same
            why = f"{type(error).__name__} in following its instructions: {error}"
            return Counted(counts, why_not_executed=why, is_failure=True)


LATE = Counted(why_not="counting what nearby launches do took too long", is_failure=True)
"""Stands for a launch that was not counted in time."""


def count_launches(
    wanted: Sequence[Counting], store: Store, jobs: int = 1, until: float = math.inf
) -> list[Counted]:
    """Return what each launch does, from *store* or counted in *jobs* forks.

    Each result is stored as soon as it is counted, unless an error of the lab prevented it. A count
    that has not begun when `time.monotonic` reaches *until* is LATE.
    """
    found = {place: kept for place, one in enumerate(wanted) if (kept := one.kept(store))}
    missing = [place for place in range(len(wanted)) if place not in found]

    def keep(place: int, counted: Counted) -> None:
        found[place] = counted
        if not counted.is_failure:
            store.put_line("counted", wanted[place].key(), to_line(counted))

    if jobs == 1 or len(missing) < FEW:
        for place in missing:
            keep(place, _counted(wanted[place], until))
    else:
        from occupancy_lab.work import executed, walk  # noqa: F401 - for all forks at once

        def line(place: int) -> str:
            return to_line(_counted(wanted[place], until))

        calls = {place: partial(line, place) for place in missing}
        for place, (answer, words) in in_forks(calls, jobs, None):
            why = f"the process that counted it died: {words}"
            died = Counted(why_not=why, is_failure=True)
            keep(place, from_line(Counted, answer) if answer else died)
    return [found[place] for place in range(len(wanted))]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _counted(one: Counting, until: float) -> Counted:
    return one.count() if time.monotonic() < until else LATE


def count_launch(one: Counting, store: Store) -> Counted:
    """Return what a launch does, as `count_launches` does."""
    return count_launches([one], store)[0]


ROUNDING = 0.01
"""The share by which amounts may differ, because of many programs only a sample is counted."""
OUTSIDE = frozenset({"fp32", "fp64"})
"""The dtypes of dots that tensor cores only compute in part or not at all."""
DECOMPOSED = 3
"""The products that Triton makes of one in tf32x3 or bf16x3."""
MOST_POWER, MOST_SUMS = 7, 10_000
"""The binary logarithm of the most warps that repeat a product, and the most sums to try."""
EDGES = "or that the programs counted for all are at the edge of a tensor more often than others"
LOADED = {"load", "descriptor load", "descriptor gather"}
STORED = {"store", "descriptor store", "descriptor scatter"}


@dataclass(frozen=True, slots=True)
class Doubt:
    """A number of a launch that is not certain."""

    number: str
    """What is counted: "FLOPs of dots", "bytes that loads ask for", ..."""
    counted: int
    """The number according to the kernel's TTIR."""
    executed: int
    """The number according to its machine code."""
    why: str
    """The possible reason."""


def doubts(counts: Counts | None, executed: Executed | None) -> tuple[Doubt, ...]:
    """Return the numbers in which the two differ; none where either is missing or not exact."""
    if counts is None or executed is None or counts.unknowns or counts.not_counted:
        return ()
    return () if executed.unknowns else tuple(_doubts(counts, executed))


def _doubts(counts: Counts, executed: Executed) -> Iterator[Doubt]:
    yield from _products(counts, executed)
    if executed.kinds.get("bulk_copies"):
        return  # no instruction says how many bytes these copy
    asked, found = _moved(counts, executed, LOADED, {"load", "copy"})
    if found < asked * (1 - ROUNDING):
        why = f"the compiler leaves out what a thread loads twice or nothing needs, {EDGES}"
        yield Doubt("bytes that loads ask for", asked, found, why)
    asked, found = _moved(counts, executed, STORED, {"store"})
    if found < asked * (1 - ROUNDING):
        why = f"the compiler leaves out what is written again, {EDGES}"
        yield Doubt("bytes that stores write", asked, found, why)
    elif found > asked * (1 + ROUNDING):
        why = f"several threads write the same, {EDGES}"
        yield Doubt("bytes that stores write", asked, found, why)


def _moved(
    counts: Counts, executed: Executed, operations: set[str], instructions: set[str]
) -> tuple[int, int]:
    """Return the bytes that *operations* and *instructions* move; 0 where either is not exact."""
    asked = total(one.bytes for one in counts.accesses if one.operation in operations).exact
    moving = (one for one in executed.accesses if one.operation in instructions)
    found = total(one.threads * one.thread_bytes for one in moving).exact
    return (0, 0) if asked is None or found is None else (asked, found)


def _products(counts: Counts, executed: Executed) -> Iterator[Doubt]:
    """Yield a doubt where tensor instructions do other FLOPs than the dots."""
    found = [line.tensor_flops for line in executed.lines]
    products = [one for one in counts.arithmetic if one.operation == "dot"]
    if None in found or any(one.dtype in OUTSIDE for one in products):
        return
    dots = [one.flops.low for one in products]
    counted, done = sum(dots), total(one for one in found if one is not None).low
    if done < counted * (1 - ROUNDING):
        why = "the compiler leaves out products that no result needs"
        yield Doubt("FLOPs of dots", counted, done, why)
    elif done > counted * (1 + ROUNDING) and not _is_repeated(dots, done):
        yield Doubt("FLOPs of dots", counted, done, "warps multiply the same again")


def _is_repeated(dots: Sequence[int], done: int) -> bool:
    """Tell whether *done* is a sum of *dots* that each occur 2**n or 3 * 2**n times."""
    sums = {0}
    for flops in dots:
        times = (of * 2**power for of in (1, DECOMPOSED) for power in range(MOST_POWER + 1))
        sums = {
            more
            for one in times
            for begun in sums
            if (more := begun + one * flops) <= done * (1 + ROUNDING)
        }
        if len(sums) > MOST_SUMS:
            return True
    return any(abs(one - done) <= ROUNDING * done for one in sums)
