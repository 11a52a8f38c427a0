"""What it costs to fetch code again that the instruction caches have evicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from occupancy_lab.work.memory import beyond
from occupancy_lab.work.pipes import SCHEDULERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

CODE_BYTES = 128
"""A line of code."""
NEAR_CODE_BYTES, CODE_LOST = 32 * 1024, 1.2
"""The size of the schedulers' own instruction caches, and the multiple of a cache's size at which
code that is executed repeatedly no longer hits in it."""
FETCH_CYCLES, FAR_FETCH_CYCLES, MEMORY_FETCH_CYCLES = 22.5, 48.3, 102.0
"""Cycles from one line of code to the next on a miss in these caches, on one in the
multiprocessor's instruction cache, and on one in the L2 cache as well. Measured with straight code
of 2 to 320 KiB, executed once per launch and in a loop, by 1 to 8 warps, on an H200."""
CODE_STAYS = 0.5
"""The share of the instruction cache that still holds the code of the launch before, where that
code is larger than the cache. From the same measurements."""
PORT_CYCLES = 5.0
"""Cycles for which a scheduler's line of code keeps the multiprocessor's instruction cache busy:
programs that are at different places fetch their lines one after the other. Measured with straight
code of 64 and 85 KiB, executed in a loop by 2 to 4 programs of 4 or 8 warps, on an H200. Larger
code than this cache holds takes as long as that of a single program, and so do programs that are at
the same place."""
CODE_APART = 2.25
"""The size of code, in units of the schedulers' caches, from which on programs find no lines there
that another one has fetched. Without it, a convolution with 56 KB of code was predicted 15% too
long; with no port at all, a filter with 84 KB took 1.7 times as long as predicted."""


class Fetches(NamedTuple):
    """What a program's fetches of evicted code cost."""

    cycles: Mapping[int, float]
    """Cycles from one line of code to the next, by block."""
    memory_cycles: float
    """Additional cycles of waiting where the L2 cache misses lines as well."""
    port_cycles: float
    """Cycles for which they keep the multiprocessor's instruction cache busy."""


class _Code(NamedTuple):
    """Code that is executed again, and the shares of its lines that miss."""

    lines: int
    near: float
    """In the schedulers' caches."""
    apart: float
    """In these, and in what other programs have fetched."""
    far: float
    """In the multiprocessor's cache."""

    @property
    def cycles(self) -> float:
        return self.near * FETCH_CYCLES + self.far * (FAR_FETCH_CYCLES - FETCH_CYCLES)


def fetches(  # noqa: PLR0913 - the code, and how often it is executed
    lines: Mapping[int, Collection[int]],
    loops: Mapping[int, Collection[int]],
    executions: Mapping[int, float],
    entered: Mapping[int, float],
    *,
    num_warps: int,
    cache: float,
) -> Fetches:
    """Return what fetching evicted code costs a program of *num_warps* warps.

    *lines* has the lines of code of each block, *executions* how often a warp executes the block,
    *loops* the blocks of each loop, and *entered* how often a warp enters it. *cache* is the size
    of the multiprocessor's instruction cache in bytes.

    The costs depend on the code that is executed before a line is executed again: a loop's or the
    whole program's.
    """

    def code(blocks: Iterable[int], stays: float) -> _Code:
        number = len(set[int]().union(*(lines.get(one, ()) for one in blocks)))
        size = max(number * CODE_BYTES, 1)
        near = size / NEAR_CODE_BYTES
        far = beyond(size / cache, CODE_LOST) * (1.0 - stays * cache / size)
        return _Code(number, beyond(near, CODE_LOST), beyond(near, CODE_APART), far)

    whole = code(lines, CODE_STAYS)
    inner_first = sorted(loops.items(), key=lambda one: len(one[1]))
    found = [(header, inside, code(inside, 0.0)) for header, inside in inner_first]
    cycles, port = dict.fromkeys(lines, whole.cycles), 0.0
    for start, own in lines.items():
        times, again = executions[start], whole
        for header, inside, loop in found:
            if start not in inside:
                continue
            cycles[start] = loop.cycles
            if again is whole and loop.near:
                again = loop
            elif again is whole:  # the loop's code stays: a line is fetched once per entry
                times = entered.get(header, 1.0)
        times = min(times, 1.0) if again is whole else times
        port += times * len(own) * again.apart * (1.0 - again.far)
    schedulers = min(num_warps, SCHEDULERS)
    memory = whole.far * whole.lines * (MEMORY_FETCH_CYCLES - FAR_FETCH_CYCLES)
    return Fetches(cycles, memory, port * PORT_CYCLES * schedulers)
