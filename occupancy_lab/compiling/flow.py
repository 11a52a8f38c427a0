"""Counts the instructions that one warp issues, from a kernel's jumps.

Source of the terms: Aho, Lam, Sethi and Ullman, "Compilers", 8.4 (flow graphs of basic blocks) and
9.6.6 (natural loops).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from occupancy_lab.values import COUNTERS


@dataclass(frozen=True, slots=True)
class Jump:
    """A jump of an instruction to another one."""

    target: int | None
    """The number of the target instruction; None where the program ends."""
    always: bool
    """Whether it always jumps, so that the next instruction never follows."""


Issued: TypeAlias = dict[str, int | None]
"""The instructions that one warp issues, by the names of COUNTERS; empty if nothing is known."""

WHOLE = ("instructions", "loop_instructions", "stall_cycles", "local_traffic")
KINDS = tuple(name for name in COUNTERS if name not in WHOLE)
"""The kinds of instructions with a counter of their own, for one pass of the loop."""

MOST_LOOPS, MOST_SIDE_ENTRIES = 1000, 32
"""Back edges of a kernel, and those into loops with a second entry. Each may walk through the whole
kernel: with more, nothing is known of it. Compilers write loops with one entry."""


def count_issued(
    length: int,
    jumps: Mapping[int, Jump],
    local: Mapping[int, int],
    kinds: Mapping[int, str],
    stalls: Sequence[int] | None = None,
) -> Issued:
    """Return what a warp issues of *length* instructions, numbered from 0 where a program starts.

    *jumps* has the instructions that jump, *local* the bytes that an instruction moves to or from
    local memory, *kinds* the kind (of KINDS) of an instruction, and *stalls* the cycles from each
    instruction to its next, if they are known. Every reachable instruction counts once: both sides
    of a branch count, and an instruction whose predicate is off counts, because it is issued too.
    The loop is the natural loop with the most instructions, so the outer one of two nested loops;
    any other loop counts as one pass. Nothing is known if a program can leave the instructions
    other than by ending.
    """
    targets = (jump.target for jump in jumps.values() if jump.target is not None)
    starts = {0, *targets, *(number + 1 for number in jumps)}
    borders = [*sorted(start for start in starts if 0 <= start < length), length]
    blocks = {start: range(start, end) for start, end in pairwise(borders)}
    successors = {start: _successors(block, jumps) for start, block in blocks.items()}
    if 0 not in successors:
        return Issued()
    reached, predecessors, back_edges = _walk(successors)
    if not reached <= successors.keys():
        return Issued()
    loops = _loops(predecessors, back_edges)
    if loops is None:
        return Issued()

    def size(starts: Iterable[int]) -> int:
        return sum(len(blocks[start]) for start in starts)

    loop = max((loops[header] for header in sorted(loops)), key=size, default=None)
    once = reached - (loop or set())
    passed = {number for start in (loop or reached) for number in blocks[start]}
    counted = Counter(kind for number, kind in kinds.items() if number in passed)
    return Issued(
        instructions=size(once),
        loop_instructions=None if loop is None else size(loop),
        stall_cycles=None if stalls is None else sum(stalls[number] for number in passed),
        local_traffic=sum(moved for number, moved in local.items() if number in passed),
        **{kind: counted[kind] for kind in KINDS},
    )


def _successors(block: range, jumps: Mapping[int, Jump]) -> list[int]:
    """Return the starts of the blocks that can follow *block*, whether such blocks exist or not."""
    jump = jumps.get(block[-1])
    following = [] if jump and jump.always else [block.stop]
    return following if jump is None or jump.target is None else [*following, jump.target]


def _walk(
    successors: Mapping[int, Sequence[int]],
) -> tuple[set[int], Mapping[int, list[int]], list[tuple[int, int]]]:
    """Return the reachable blocks, their predecessors, and the back edges."""
    reached, way, back_edges = {0}, {0}, []
    left = [(0, iter(successors[0]))]
    while left:
        block, others = left[-1]
        for other in others:
            if other in way:
                back_edges.append((block, other))
            elif other not in reached:
                reached.add(other)
                way.add(other)
                left.append((other, iter(successors.get(other, ()))))
                break
        else:
            way.discard(block)
            left.pop()
    predecessors = defaultdict(list)
    for block in reached:
        for other in successors.get(block, ()):
            predecessors[other].append(block)
    return reached, predecessors, back_edges


def natural_loops(successors: Mapping[int, Sequence[int]]) -> dict[int, set[int]]:
    """Return the blocks of each natural loop by its header, outer loops first.

    *successors* has the blocks that can follow each block; block 0 is the first. Loops with the
    same header are one loop. A cycle with several entries is no loop.
    """
    if 0 not in successors:
        return {}
    _, predecessors, back_edges = _walk(successors)
    loops = _loops(predecessors, back_edges) or {}
    return dict(sorted(loops.items(), key=lambda one: -len(one[1])))


def _loops(
    predecessors: Mapping[int, Sequence[int]], back_edges: Sequence[tuple[int, int]]
) -> dict[int, set[int]] | None:
    """Return the blocks of each natural loop by its header; None if there are too many."""
    loops: dict[int, set[int]] = {}
    side_entries = 0
    for latch, header in back_edges:
        loop = loops.get(header, {header})
        body = _body(latch, loop, predecessors)
        side_entries += body is None
        if len(back_edges) > MOST_LOOPS or side_entries > MOST_SIDE_ENTRIES:
            return None
        if body is not None:
            loops[header] = loop | body
    return loops


def _body(
    latch: int, loop: Container[int], predecessors: Mapping[int, Sequence[int]]
) -> set[int] | None:
    """Return the blocks that lead to *latch* and are not yet in *loop*, which has its header.

    Return None if the start leads to *latch* without passing the header.
    """
    body: set[int] = set()
    left = [latch]
    while left:
        block = left.pop()
        if block in loop or block in body:
            continue
        if block == 0:
            return None
        body.add(block)
        left.extend(predecessors[block])
    return body
