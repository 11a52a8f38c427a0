"""How many instructions one warp issues, from where a kernel's jumps lead.

Source of the terms: Aho, Lam, Sethi and Ullman, "Compilers", 8.4 (flow graphs of basic blocks) and
9.6.6 (natural loops).
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Jump:
    """Where an instruction leads besides to the next one."""

    target: int | None
    """The number of the instruction that it leads to; None where the program ends."""
    always: bool
    """Whether the next instruction never follows it."""


@dataclass(frozen=True, slots=True)
class Issued:
    """What one warp issues, as Resources has it; each None where that is not known."""

    instructions: int | None = None
    loop_instructions: int | None = None
    local_traffic: int | None = None
    shuffles: int | None = None
    barrier_waits: int | None = None
    shared_accesses: int | None = None
    global_accesses: int | None = None
    async_copies: int | None = None
    half_rate: int | None = None
    special_functions: int | None = None
    local_loads: int | None = None
    local_stores: int | None = None


KINDS = tuple(field.name for field in dataclasses.fields(Issued))[3:]
"""The kinds of instructions that are counted by themselves, in one pass of the loop."""


NO_KINDS: Mapping[int, str] = MappingProxyType({})


def count_issued(
    length: int,
    jumps: Mapping[int, Jump],
    local: Mapping[int, int],
    kinds: Mapping[int, str] = NO_KINDS,
) -> Issued:
    """Return what a warp issues of *length* instructions, numbered from 0 where a program starts.

    *jumps* has the instructions that lead elsewhere, *local* the bytes that an instruction moves
    to or from local memory, *kinds* which of KINDS one is. Every instruction that can be reached
    counts once: both sides of a branch do, and one whose predicate is off does, for it is issued
    too. The loop is the natural loop with the most instructions, so the outer one of two nested
    ones; any other loop counts as one pass. Nothing is known where a program can leave the
    instructions otherwise than by ending.
    """
    blocks = _blocks(length, jumps)
    successors = {start: _successors(block, jumps) for start, block in blocks.items()}
    if 0 not in successors:
        return Issued()
    reached, back_edges = _walk(successors)
    if not reached <= successors.keys():
        return Issued()
    loops = _natural_loops(reached, successors, back_edges)

    def size(starts: Iterable[int]) -> int:
        return sum(len(blocks[start]) for start in starts)

    loop = max(loops, key=size, default=None)
    once = reached - (loop or set())
    passed = {number for start in (loop or reached) for number in blocks[start]}
    counted = Counter(kind for number, kind in kinds.items() if number in passed)
    return Issued(
        instructions=size(once),
        loop_instructions=None if loop is None else size(loop),
        local_traffic=sum(moved for number, moved in local.items() if number in passed),
        **{kind: counted[kind] for kind in KINDS},
    )


def _blocks(length: int, jumps: Mapping[int, Jump]) -> dict[int, range]:
    """Return the basic blocks, by their first instruction."""
    targets = (jump.target for jump in jumps.values() if jump.target is not None)
    starts = {0, *targets, *(number + 1 for number in jumps)}
    borders = [*sorted(start for start in starts if 0 <= start < length), length]
    return {start: range(start, end) for start, end in pairwise(borders)}


def _successors(block: range, jumps: Mapping[int, Jump]) -> list[int]:
    """Return the blocks that can follow *block*, whether there are such blocks or not."""
    jump = jumps.get(block[-1])
    following = [] if jump and jump.always else [block.stop]
    return following if jump is None or jump.target is None else [*following, jump.target]


def _walk(successors: Mapping[int, list[int]]) -> tuple[set[int], list[tuple[int, int]]]:
    """Return the blocks that can be reached, and the edges that lead back to one on the way."""
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
    return reached, back_edges


def _natural_loops(
    reached: Iterable[int],
    successors: Mapping[int, list[int]],
    back_edges: Iterable[tuple[int, int]],
) -> list[set[int]]:
    """Return the blocks of each loop; those of loops with the same first block are one loop."""
    predecessors = defaultdict(list)
    for block in reached:
        for other in successors[block]:
            predecessors[other].append(block)
    loops: dict[int, set[int]] = {}
    for last, header in back_edges:
        body, left = {header}, [last]
        while left:
            block = left.pop()
            if block not in body:
                body.add(block)
                left.extend(predecessors[block])
        # A way in that does not pass the header would lead back to the start.
        if header == 0 or 0 not in body:
            loops[header] = loops.get(header, set()) | body
    return [loops[header] for header in sorted(loops)]
