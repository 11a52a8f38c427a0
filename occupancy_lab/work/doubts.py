"""Where a kernel's first text and its machine code do not agree on what a launch does.

Both are counted by themselves, so that bytes and FLOPs of the one must be those of the other. What
a block has too few elements for is done by several threads or warps alike: bytes of loads may be
more in the machine code, and FLOPs of dots a power of two times as many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.work.counts import total

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.work.counts import Counts, Executed

ROUNDING = 0.01
"""By which share amounts may differ: of many programs some stand for all."""
OUTSIDE = frozenset({"fp32", "fp64"})
"""The dtypes of dots that the tensor cores do in part or not at all."""
DECOMPOSED = 3
"""Products that Triton makes of one of tf32x3 or bf16x3."""
MOST_POWER, MOST_SUMS = 7, 10_000
"""How often several warps do the same at most, as a power of two; and sums that are tried."""
EDGES = "or the programs that stand for all are at the edge of a tensor more often than others"
LOADED = {"load", "descriptor load", "descriptor gather"}
STORED = {"store", "descriptor store", "descriptor scatter"}


@dataclass(frozen=True, slots=True)
class Doubt:
    """A number of a launch that is not certain."""

    number: str
    """What it counts: "FLOPs of dots", "bytes that loads ask for", ..."""
    counted: int
    """As the kernel's first text has it."""
    executed: int
    """As its machine code does it."""
    why: str
    """What can be the reason."""


def doubts(counts: Counts | None, executed: Executed | None) -> tuple[Doubt, ...]:
    """Return where the two do not agree; nothing where one is missing, or a value is not known."""
    if counts is None or executed is None or counts.unknowns or counts.not_counted:
        return ()
    return () if executed.unknowns else tuple(_doubts(counts, executed))


def _doubts(counts: Counts, executed: Executed) -> Iterator[Doubt]:
    yield from _products(counts, executed)
    if executed.kinds.get("bulk_copies"):
        return  # their bytes are in no instruction
    for number, operations, instructions, less in (
        (
            "bytes that loads ask for",
            LOADED,
            {"load", "copy"},
            f"the compiler leaves out what a thread loads twice or nothing needs, {EDGES}",
        ),
        (
            "bytes that stores write",
            STORED,
            {"store"},
            f"the compiler leaves out what is written again, {EDGES}",
        ),
    ):
        asked = total(one.bytes for one in counts.accesses if one.operation in operations).exact
        found = total(
            one.threads * one.thread_bytes
            for one in executed.accesses
            if one.operation in instructions
        ).exact
        if asked is None or found is None:
            continue
        if found < asked * (1 - ROUNDING):
            yield Doubt(number, asked, found, less)
        elif found > asked * (1 + ROUNDING) and instructions.isdisjoint({"load"}):
            yield Doubt(number, asked, found, f"several threads write the same, {EDGES}")


def _products(counts: Counts, executed: Executed) -> Iterator[Doubt]:
    """Tell where tensor instructions do other FLOPs than the dots have."""
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
    """Tell whether *done* is the sum of *dots*, each a power of two times, or so of three of it."""
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
