"""Which instructions of a kernel decide where its warps go and which memory they access.

This is a backward slice (Weiser, "Program Slicing", 1984): from the conditions of jumps, and from
the addresses and conditions of accesses to global memory, back to what they are computed from. Only
the slice has to be computed for counting what a launch executes: a tenth of a matrix
multiplication.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from occupancy_lab.compiling.flow import natural_loops
from occupancy_lab.compiling.sass import BYTES, jump_offset
from occupancy_lab.errors import unreadable
from occupancy_lab.work import operations
from occupancy_lab.work.operations import ALWAYS, NEVER_WRITTEN, SHARED, Decoder

BRA, CALL, RET, BRX, EXIT = 0x147, 0x144, 0x150, 0x149, 0x14D
BSYNC, TRAP, BRX_UNIFORM = 0x141, 0x15C, 0x158
ENDS = frozenset({BRA, CALL, RET, BRX, BRX_UNIFORM, EXIT, TRAP})
"""Instructions that end a basic block."""
UNKNOWN_JUMPS = frozenset({0x14A, 0x14B, 0x14C, 0x159})
"""JMP, JMX and JMXU: jumps that Triton's kernels do not have. A CALL.ABS, to the function that ends
a launch with a message, returns at once here."""
BRA_ONWARD, DIVERGENT_BIT = 0x947, 91
"""BRA.DIV, a BRA with a uniform register, jumps where the threads of a warp have diverged."""
ALL_BIT = 32
"""The bit of BRA.U: a warp jumps if the condition holds for all of its active threads, and
otherwise none of them does. With it a launch of fla's that skips work in this way executes the
4,449,280 instructions that Nsight Compute counts on an H200; without it, twice as many."""
UNIFORM_CONDITION = 2
"""The form of a BRA whose condition is a uniform predicate."""
STORES = frozenset({operations.STG, operations.ST})
ACCESSES = operations.LOADS | STORES | operations.ATOMICS | {operations.LDGSTS}
"""Instructions whose threads access global memory by address."""
PREDICATE_BITS = (1 << SHARED) - (1 << operations.PREDICATES)
"""The predicates, as a bit set of registers."""
MOST_INSTRUCTIONS = 200_000
"""The most instructions of a kernel that is analysed; the longest known has 30,000."""
MOST_VISITS = 20
"""The mean visits per block after which a kernel is given up; 3 mostly suffice."""


@dataclass(frozen=True, slots=True)
class Jump:
    """The jump at the end of a block."""

    opcode: int
    target: int | None = None
    """The number of the target instruction; None where there is none or where it is in a
    register."""
    conditions: tuple[tuple[int, bool], ...] = ()
    """Predicates, possibly negated, that must all hold; empty where the jump is always taken."""
    register: int | None = None
    """The register with the target, in bytes, to which `offset` is added."""
    offset: int = 0
    of_all: bool = False
    """Whether a warp's threads only jump if the condition holds for all of them."""

    @property
    def reads(self) -> int:
        """The registers that it depends on, as a bit set."""
        address = () if self.register is None else (self.register,)
        conditions = (predicate for predicate, _ in self.conditions)
        return operations.bits((*conditions, *address)) & ~NEVER_WRITTEN


@dataclass(slots=True)
class Block:
    """A basic block."""

    start: int
    stop: int
    jump: Jump | None
    successors: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Code:
    """A kernel's instructions."""

    words: Sequence[int]
    decoder: Decoder
    blocks: Mapping[int, Block]
    """The blocks, by their first instruction."""
    loops: Mapping[int, set[int]]
    """The blocks of each loop by its first block, outer loops first."""
    lanes: int = operations.WARP
    subroutines: int | None = None
    """The first instruction of the compiler's subroutines, which come last; None if there are
    none."""

    @functools.cached_property
    def opcodes(self) -> Sequence[int]:
        """The lowest 9 bits of each instruction's opcode."""
        return [one & 0x1FF for one in self.words]

    @functools.cached_property
    def written(self) -> Sequence[int]:
        """The registers that each instruction writes, as bit sets."""
        return [self.decoder.writes(one) for one in self.words]

    @functools.cached_property
    def syncs(self) -> frozenset[int]:
        """The blocks at which the threads of a warp wait for each other."""
        return frozenset(one for one in self.blocks if self.words[one] & 0x1FF == BSYNC)

    @functools.cached_property
    def usual(self) -> Mapping[int, bool]:
        """The usual outcome of jumps of which only one side leads to an array in local memory.

        Such an array is read at computed addresses, whereas Triton keeps spilled registers at fixed
        ones. Arrays belong to the slow paths of CUDA's library functions for large numbers, such as
        sin and cos beyond 105615 (Payne and Hanek's reduction).
        """
        arrays = {
            start
            for start, block in self.blocks.items()
            for word in self.words[start : block.stop]
            if word & 0x1FF == operations.LDL and word >> 24 & 255 != operations.STACK
        }
        found = {}
        for block in self.blocks.values() if arrays else ():
            if block.jump is None or not block.jump.conditions or block.jump.target is None:
                continue
            stays, goes = (_onward(self.blocks, one) for one in (block.stop, block.jump.target))
            ways = [bool(arrays & one) for one in (stays - goes, goes - stays)]
            if ways[0] != ways[1]:
                found[block.stop - 1] = ways[0]
        return found

    @functools.cached_property
    def avoided(self) -> Mapping[int, bool]:
        """The usual outcome of jumps of which only one side calls a subroutine of the compiler.

        These are the slow paths of divisions and square roots, for infinite and denormal numbers
        and the like.
        """
        first = len(self.words) if self.subroutines is None else self.subroutines
        jumps = {one.stop: one.jump for one in self.blocks.values() if one.jump is not None}
        calls = {
            stop
            for stop, jump in jumps.items()
            if jump.opcode == CALL and (jump.target or 0) >= first
        }
        callers = {
            start
            for start, block in self.blocks.items()
            if block.stop in calls and not jumps[block.stop].conditions
        }
        return {
            stop - 1: stop in callers and stop not in calls
            for stop, jump in jumps.items()
            if jump.conditions
            if stop in calls or (stop in callers) != (jump.target in callers)
        }

    @functools.cached_property
    def working_loops(self) -> Mapping[int, set[int]]:
        """All loops except single blocks in which a warp retries waiting for a copy."""
        waiting = {
            start
            for start, block in self.blocks.items()
            if any(one & 0x1FF == operations.SYNCS_WAIT for one in self.words[start : block.stop])
        }
        return {
            header: inside
            for header, inside in self.loops.items()
            if len(inside) > 1 or header not in waiting
        }

    @property
    def slots(self) -> int:
        """The number of places of local memory, which follow the registers of `operations`."""
        return len(self.decoder.slots)


def _onward(blocks: Mapping[int, Block], start: int) -> set[int]:
    """Return the blocks that are reachable from one of them without going backwards."""
    found, todo = set[int](), [start]
    while todo:
        one = todo.pop()
        if one in blocks and one not in found:
            found.add(one)
            todo += [other for other in blocks[one].successors if other > one]
    return found


def read_code(
    code: bytes | memoryview,
    arch: int,
    tables: bytes | memoryview = b"",
    own: int | None = None,
) -> Code:
    """Return the instructions in *code*, for sm_*arch*, as basic blocks.

    *tables* has the code offsets that jumps by register may lead to. After *own* bytes the
    compiler's subroutines follow.

    Raises:
        BinaryError: the code is too long or has an unknown kind of jump.
    """
    if len(code) % BYTES or len(code) // BYTES > MOST_INSTRUCTIONS:
        unreadable(f"The kernel's code of {len(code)} bytes is cut off, or too long to follow.")
    numbers = struct.unpack(f"<{len(code) // 8}Q", code)
    words = [high << 64 | low for low, high in zip(numbers[::2], numbers[1::2], strict=True)]
    decoder = Decoder(arch)
    jumps: dict[int, Jump] = {}
    for number, word in enumerate(words):
        if word & 0x1FF in ENDS:
            jumps[number] = _jump(number, word, decoder, arch)
        elif word & 0x1FF in UNKNOWN_JUMPS and word >> 9 & 7:
            unreadable("The kernel has a kind of jump that is not followed.")
    offsets = struct.unpack(f"<{len(tables) // 4}I", tables[: len(tables) // 4 * 4])
    by_register = any(jump.opcode in {BRX, BRX_UNIFORM} for jump in jumps.values())
    named = [one // BYTES for one in offsets if one % BYTES == 0 and by_register]
    syncs = [number for number, word in enumerate(words) if word & 0x1FF == BSYNC]
    starts = {*named, *syncs, *(number + 1 for number in syncs)}
    subroutines = None if own is None else own // BYTES
    blocks, loops = blocks_of(len(words), starts, jumps, named)
    return Code(words, decoder, blocks, loops, subroutines=subroutines)


def _jump(number: int, word: int, decoder: Decoder, arch: int) -> Jump:
    opcode = word & 0x1FF
    if opcode == BRA and word & 0xFFF == BRA_ONWARD and word >> DIVERGENT_BIT & 1:
        return Jump(opcode, number + 1)
    guard = word >> 12 & 7
    conditions = [] if guard == ALWAYS else [(operations.PREDICATES + guard, bool(word >> 15 & 1))]
    if opcode in {EXIT, BRA, CALL} and word >> 87 & 15 != ALWAYS:
        conditions.append((operations.PREDICATES + (word >> 87 & 7), bool(word >> 90 & 1)))
    if opcode in {EXIT, TRAP}:
        return Jump(opcode, None, tuple(conditions))
    offset = jump_offset(number, word & 0xFFFFFFFFFFFFFFFF, arch)
    if opcode in {RET, BRX, BRX_UNIFORM}:
        register = word >> 24 & 255
        register = decoder.uniform(register) if opcode == BRX_UNIFORM else register
        return Jump(opcode, None, tuple(conditions), register, offset)
    if opcode == BRA and word >> 9 & 7 == UNIFORM_CONDITION:
        conditions.append((operations.UNIFORM_PREDICATES + (word >> 24 & 7), bool(word >> 27 & 1)))
    of_all = opcode == BRA and bool(word >> ALL_BIT & 1)
    return Jump(opcode, offset // BYTES, tuple(conditions), of_all=of_all)


def blocks_of(
    length: int, starts: Iterable[int], jumps: Mapping[int, Jump], named: Sequence[int] = ()
) -> tuple[Mapping[int, Block], Mapping[int, set[int]]]:
    """Return the basic blocks by their first instruction, and the loops by their first block.

    Blocks also begin at *starts*. A jump by register may lead to the instructions *named*.
    """
    returns = [number + 1 for number, jump in jumps.items() if jump.opcode == CALL]
    targets = [jump.target for jump in jumps.values() if jump.target is not None]
    starts = {0, *(number + 1 for number in jumps), *targets, *starts}
    borders = [*sorted(start for start in starts if 0 <= start < length), length]
    blocks = {}
    for start, stop in pairwise(borders):
        jump = jumps.get(stop - 1)
        block = blocks[start] = Block(start, stop, jump)
        if jump is None or jump.conditions:
            block.successors.append(stop)
        if jump and jump.target is not None:
            block.successors.append(jump.target)
        if jump and jump.register is not None:
            block.successors += returns if jump.opcode == RET else named
    for block in blocks.values():
        block.successors = [one for one in block.successors if one in blocks]
    return blocks, natural_loops({start: one.successors for start, one in blocks.items()})


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of a kernel that must be computed."""

    needed: Mapping[int, Sequence[int]]
    """The instructions by block."""
    live: Mapping[int, int]
    """The registers that are live at the beginning of each block, as bit sets."""
    only_for_shared: frozenset[int] = frozenset()
    """The instructions that are only needed for addresses in shared memory."""


def accesses_of(code: Code) -> Slice:
    """Return the slice for the conditions of jumps and the addresses of all accesses.

    Instructions that only shared-memory addresses need are in `only_for_shared`; values that other
    threads stored in shared memory are not looked up for them.
    """
    needed = slice_of(code, ACCESSES)
    shared = slice_of(code, operations.SHARED_ACCESSES, shared=True)
    by_block = {
        start: sorted({*numbers, *shared.needed[start]}) for start, numbers in needed.needed.items()
    }
    only_for_shared = {
        number
        for start, numbers in by_block.items()
        for number in {*numbers}.difference(needed.needed[start])
    }
    return Slice(by_block, needed.live, frozenset(only_for_shared))


def slice_of(code: Code, roots: frozenset[int], *, shared: bool = False) -> Slice:
    """Return the slice for the conditions of jumps and the instructions with opcodes in *roots*.

    For the latter, it has the instructions themselves and what their conditions and addresses
    depend on: addresses in global memory, or with *shared* in shared memory.
    """
    needed: set[int] = set()

    def before(block: Block, found: int) -> int:
        return _live_before(code, block, roots, found, needed, shared=shared)

    return sliced(code.blocks, before, needed)


def sliced(
    blocks: Mapping[int, Block], before: Callable[[Block, int], int], needed: Collection[int]
) -> Slice:
    """Return the *needed* instructions by block, and what is live before each block.

    *before* takes a block and what is live after it, adds to *needed*, and returns what is live
    before it. The conditions of jumps are live at them.
    """

    def before_jump(block: Block, found: int) -> int:
        return before(block, found | (0 if block.jump is None else block.jump.reads))

    live = live_before(blocks, before_jump)
    by_block = {
        start: [number for number in range(start, block.stop) if number in needed]
        for start, block in blocks.items()
    }
    return Slice(by_block, live)


def live_before(blocks: Mapping[int, Block], before: Callable[[Block, int], int]) -> dict[int, int]:
    """Return what is live at the beginning of each block, as bit sets.

    *before* takes a block and what is live after it, and returns what is live before it. It is
    called until nothing changes.

    Raises:
        BinaryError: this takes too long.
    """
    live = dict.fromkeys(blocks, 0)
    predecessors: dict[int, list[int]] = {start: [] for start in blocks}
    for block in blocks.values():
        for other in block.successors:
            predecessors[other].append(block.start)
    left = dict.fromkeys(sorted(blocks, reverse=True))
    visits = 0
    while left:
        start = next(iter(left))
        del left[start]
        visits += 1
        if visits > MOST_VISITS * (len(blocks) + MOST_VISITS):
            unreadable("The kernel's jumps are too entangled to be followed.")
        found = before(blocks[start], live_after(blocks[start], live))
        if found != live[start]:
            live[start] = found
            left.update(dict.fromkeys(predecessors[start]))
    return live


def live_after(block: Block, live: Mapping[int, int]) -> int:
    """Return what is *live* at the beginning of any block behind *block*."""
    found = 0
    for other in block.successors:
        found |= live[other]
    return found


def _live_before(  # noqa: PLR0913
    code: Code, block: Block, roots: frozenset[int], found: int, needed: set[int], *, shared: bool
) -> int:
    """Return what is live before *block*, where *found* is live after it; add to *needed*."""
    decoder, all_written, opcodes = code.decoder, code.written, code.opcodes
    live = _Live(found)
    for number in range(block.stop - 1, block.start - 1, -1):
        written, opcode = all_written[number], opcodes[number]
        matters = written & (live.registers | PREDICATE_BITS)
        if not matters and opcode not in roots and number not in needed:
            continue
        word = code.words[number]
        guard = None if word >> 12 & 15 == ALWAYS else decoder.guard(word) << 1 | word >> 15 & 1
        if written & PREDICATE_BITS:
            live.forget(written)
        if live.wants(written, guard):
            needed.add(number)
            under = live.made(written, guard)
            under = None if opcode in operations.OF_OTHERS else under
            if not shared or opcode != operations.LDS:
                live.read(decoder.reads(word), under)
        if opcode in roots:
            needed.add(number)
            live.read(decoder.access_reads(word, shared=shared), guard)
        if guard is not None and number in needed:
            live.read(1 << (guard >> 1) & ~NEVER_WRITTEN, None)
    return live.registers


@dataclass(slots=True)
class _Live:
    """The registers that are live at a place in a block, as a bit set.

    A register that is written and read under the same guard is not live before. After `@P0 MOV R1,
    R2`, a `@P0 STG [R1], R3` needs nothing of R1's previous value, and other readers only need it
    where P0 is false.
    """

    registers: int
    under: dict[int, int] = field(default_factory=dict)
    """The registers that are only live where a guard holds, by twice the predicate's number, plus 1
    where it is negated."""

    def forget(self, written: int) -> None:
        """Go back past a write to predicates, before which they may differ."""
        for guard in [one for one in self.under if written >> (one >> 1) & 1]:
            del self.under[guard]

    def wants(self, written: int, guard: int | None) -> bool:
        """Tell whether any of the registers *written* is live where the guard holds."""
        wanted = written & self.registers
        if wanted and guard is not None:
            wanted &= ~self.under.get(guard ^ 1, 0)
        return wanted != 0

    def made(self, written: int, guard: int | None) -> int | None:
        """Go back past a write to registers, and return the guard under which it is needed."""
        wanted = written & self.registers
        if guard is None:
            made = written & ~(1 << SHARED)
            guard = next((one for one, some in self.under.items() if not wanted & ~some), None)
        else:
            made = written & self.under.get(guard, 0)
            for some in self.under.values():
                wanted &= ~some
            self.under[guard ^ 1] = self.under.get(guard ^ 1, 0) | wanted & ~(1 << SHARED)
        self.registers &= ~made
        for one in self.under:
            self.under[one] &= ~made
        return guard

    def read(self, registers: int, guard: int | None) -> None:
        """Go back past a read of registers, under a guard or unconditionally (None)."""
        for one in self.under:
            if one != guard:
                self.under[one] &= ~registers
        if guard is not None:
            new = registers & ~self.registers & ~(1 << SHARED)
            self.under[guard] = self.under.get(guard, 0) | new
        self.registers |= registers
