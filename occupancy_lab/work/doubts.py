"""Where a kernel's first text and its machine code do not agree on what a launch does.

Both are counted by themselves, so that bytes and FLOPs of the one must be those of the other. What
a block has too few elements for is done by several threads or warps alike: bytes of loads may be
more in the machine code, and FLOPs of dots a power of two times as many.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.work.counts import total

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from occupancy_lab.work.counts import Counts, Executed

ROUNDING = 0.01
"""By which share amounts may differ: of many programs some stand for all."""
OUTSIDE = frozenset({"fp32", "fp64"})
"""The dtypes of dots that are not of the tensor cores, or of which no shape is decoded."""
DECOMPOSED = 3
"""Products that Triton makes of one of tf32x3 or bf16x3."""
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
            "the compiler leaves out what a thread loads twice or nothing needs",
        ),
        (
            "bytes that stores write",
            STORED,
            {"store"},
            "the compiler leaves out what is written again",
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
            yield Doubt(number, asked, found, "several threads write the same")


def _products(counts: Counts, executed: Executed) -> Iterator[Doubt]:
    """Tell where tensor instructions do other FLOPs than the dots have."""
    asked: dict[int, int] = defaultdict(int)
    found: dict[int, int] = defaultdict(int)
    for one in counts.arithmetic:
        if one.operation == "dot" and one.dtype not in OUTSIDE:
            asked[one.place.outermost.line] += one.flops.low
    for line in executed.lines:
        if line.tensor_flops is None:
            return
        if line.tensor_flops.low:
            found[line.place.outermost.line] += line.tensor_flops.low
    counted, done = sum(asked.values()), sum(found.values())
    if done < counted * (1 - ROUNDING):
        why = "the compiler leaves out products that no result needs"
        yield Doubt("FLOPs of dots", counted, done, why)
    elif not (_is_repeated(counted, done) or _are_repeated(asked, found)):
        why = "warps multiply the same again"
        yield Doubt("FLOPs of dots", counted, done, why)


def _are_repeated(asked: Mapping[int, int], found: Mapping[int, int]) -> bool:
    return asked.keys() == found.keys() and all(
        _is_repeated(flops, found[line]) for line, flops in asked.items()
    )


def _is_repeated(counted: int, done: int) -> bool:
    """Tell whether *done* is a power of two times *counted*, of which each may be three."""
    if not counted:
        return not done
    exponents = (math.log2(done / counted / one) if done else -1.0 for one in (1, DECOMPOSED))
    return any(round(one) >= 0 and abs(one - round(one)) < ROUNDING for one in exponents)
