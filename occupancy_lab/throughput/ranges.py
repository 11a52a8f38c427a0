"""Between which times a launch most likely takes: by the class of what it does.

The ranges are those of the errors on kernels that were held out when the first constants of the
model were fitted; later ones were chosen with all in view (docs/times.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from occupancy_lab.work.counts import Amount, Counts, Executed
    from occupancy_lab.work.memory import Memory


@dataclass(frozen=True, slots=True)
class Range:
    """Between which shares of its predicted time eight in ten launches of a class take."""

    low: float
    high: float

    def around(self, us: float, *, is_alike: bool) -> tuple[float, float]:
        """Return the least and the most of a time of *us*.

        *is_alike* is whether it is of a GPU of the architecture that was measured.
        """
        wider = 1.0 if is_alike else STRANGER
        return us * self.low / wider, us * self.high * wider


RANGES = {
    "bandwidth": Range(0.925, 1.14),
    "tensor": Range(0.89, 1.15),
    "other": Range(0.92, 1.20),
    "spills": Range(0.88, 1.15),
    "unknown": Range(0.75, 1.45),
    "counted": Range(0.86, 1.36),
    "counted products": Range(0.83, 1.87),
}
"""Of launches whose kernels the constants were not fitted to (H100); counted are those whose binary
was not replayed, which was tried on the same launches."""
STRANGER = 1.3
"""How many times farther it is for a GPU of another architecture, of which nobody measured any. Of
the same one it is no farther: 88% of the launches that were held out on an H200 lie inside."""
MOST_OPEN = 5.0
"""How many times as much as at the least a launch with a predicted time may do, by values that are
not known. Measured launches with such values may do 4.1 times as much at the most."""
LEAST_OPEN = 1.02
"""The same where its range is that of launches of which everything is known."""
LEAST_LOCAL_BYTES = 64
"""Of a thread, below which a launch does not count as one that spills."""


def range_of(
    *, varies: bool, is_followed: bool, spills: bool, multiplies: bool, moves: bool
) -> Range:
    """Return the range of a launch, by the errors of its class.

    *varies* is whether values that nobody knows make it do more or less, *is_followed* whether its
    binary was replayed, *spills* whether its threads keep more than LEAST_LOCAL_BYTES in local
    memory, *multiplies* whether it uses tensor cores, *moves* whether device memory needs most of
    its time. With such values the range is no narrower than without, on either side.
    """
    if not is_followed:
        found = RANGES["counted products" if multiplies else "counted"]
    elif spills:
        found = RANGES["spills"]
    elif multiplies:
        found = RANGES["tensor"]
    else:
        found = RANGES["bandwidth" if moves else "other"]
    if not varies:
        return found
    unknown = RANGES["unknown"]
    return Range(min(found.low, unknown.low), max(found.high, unknown.high))


def is_open(counts: Counts, executed: Executed | None, memory: Memory | None) -> bool:
    """Tell whether values that nobody knows leave it open how much a launch does.

    It then may do MOST_OPEN times as much as at the least.
    """
    through = None if memory is None else memory.l2_bytes
    instructions = None if executed is None else executed.instructions
    return bool(counts.unknowns) and varies((through, instructions), MOST_OPEN)


def varies(amounts: Iterable[Amount | None], times: float) -> bool:
    """Tell whether one of *amounts* may be more than *times* what it is at the least."""
    known = (one for one in amounts if one is not None)
    return any(one.high is None or one.high > times * one.low for one in known)
