"""What SASS instructions compute of a thread's position, of constants and of other threads.

Values are as in `arithmetic`. Each instruction is described by what it reads, and a function from
the known values of these sources to the values of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from occupancy_lab.work import operations
from occupancy_lab.work.operations import PREDICATES, WARP, ZERO

if TYPE_CHECKING:
    from occupancy_lab.work.tickets import Tickets

Special: TypeAlias = tuple[tuple[int, ...], Callable[[Sequence[Any]], Sequence[Any]]]

LANE, LANE_MASK = np.uint32(31), np.uint32(0xFFFFFFE0)
MOST_INDICES = 64
"""The most entries of a table of constants that one instruction reads."""
SECOND_IS_REGISTER = frozenset({1, 2})
"""The forms of a SHFL whose second operand is in a register."""
SPECIAL_LANE, SPECIAL_THREAD, SPECIAL_PROGRAM, SPECIAL_ZERO = 0x00, 0x21, (0x25, 0x26, 0x27), 0xFF
SPECIAL_RANK = 0x88
"""SR_CgaCtaId: a thread's CTA in its cluster."""
SPECIAL_NAUGHT = frozenset({0x22, 0x23, 0x8A, SPECIAL_ZERO})
"""SR_TID.Y, SR_TID.Z, SR_CgaSize (where it is 0, Blackwell reads the constants that `passed` has)
and SRZ."""
SPECIAL_EQUAL, SPECIAL_LESS = 0x38, 0x39
"""SR_EQMASK and SR_LTMASK."""


@dataclass(frozen=True, slots=True)
class Launched:
    """The programs that are followed, or the CTAs of clusters."""

    places: Sequence[Any]
    """The programs' indices in each of three dimensions, arrays of shape (programs, 1)."""
    threads: int
    """Threads of a program, a multiple of 32."""
    shared: int
    """Bytes of shared memory that a program can reach."""
    constant: Callable[[int, int], Any]
    """Returns the constant in a bank at an offset; None where it is not known."""
    loaded: Callable[..., Sequence[Any]]
    """`Passed.loaded`: returns what a load finds, for its addresses, bytes and registers."""
    ctas: int = 1
    """CTAs per program: more than one are a cluster, adjacent in the first dimension."""
    tickets: Tickets | None = None
    """The results of counters that all programs of the launch share; None where not known."""


class Step(NamedTuple):
    """An instruction that is computed."""

    number: int
    word: int
    compute: Callable[[Sequence[Any]], Sequence[Any]] | None
    """Returns the results for known sources; None for an access to memory."""
    sources: tuple[int, ...]
    results: tuple[int, ...]
    guard: int | None
    negated: bool
    name: str = ""
    """The name of a function of `arithmetic`; empty for other instructions."""
    shared: bool = False
    only_for_shared: bool = False
    """Whether it is only needed for addresses in shared memory."""


class Followers(Protocol):
    """The threads that are being followed."""

    launched: Launched
    mask: Any


def special(word: int, results: Sequence[int], warps: Followers) -> Special:
    """Return the sources of an instruction that is no arithmetic, and its function."""
    opcode = word & 0x1FF
    made = SPECIAL.get(opcode)
    if made is None:
        return (), lambda _: [None] * len(results)
    return made(word, results, warps)


def special_register(word: int, _results: Sequence[int], warps: Followers) -> Special:
    """S2R, S2UR and CS2R."""
    number = word >> 72 & 255
    lanes = np.arange(warps.launched.threads, dtype=np.uint32)[None, :]
    value: Any = None
    if number in SPECIAL_PROGRAM:
        value = warps.launched.places[number - SPECIAL_PROGRAM[0]]
    elif number == SPECIAL_RANK:
        value = warps.launched.places[0] % np.uint32(warps.launched.ctas)
    elif number in SPECIAL_NAUGHT:
        value = np.zeros((1, 1), np.uint32)
    elif number == SPECIAL_THREAD:
        value = lanes
    elif number == SPECIAL_LANE:
        value = lanes & LANE
    elif number == SPECIAL_EQUAL:
        value = np.uint32(1) << (lanes & LANE)
    elif number == SPECIAL_LESS:
        value = (np.uint32(1) << (lanes & LANE)) - np.uint32(1)
    return (), lambda _: [value, value if number == SPECIAL_ZERO else None]


def constant_load(word: int, _results: Sequence[int], warps: Followers) -> Special:
    """LDC, ULDC and LDCU."""
    opcode = word & 0x1FF
    bank, offset = word >> 54 & 31, word >> (37 if opcode == operations.LDCU else 38) & 0xFFFF
    count = operations.loaded_registers(word)
    register = word >> 24 & 255
    constant = warps.launched.constant
    if opcode != operations.LDC or register == ZERO:
        values = [constant(bank, offset + 4 * one) for one in range(count)]
        return (), lambda _: values

    def indexed(sources: Sequence[Any]) -> Sequence[Any]:
        places = np.unique(sources[0])
        if len(places) > MOST_INDICES:
            return [None] * count
        results = []
        for one in range(count):
            value: Any = np.zeros((1, 1), np.uint32)
            for place in places:
                found = constant(bank, offset + 4 * one + int(place))
                unknown = found is None or value is None
                value = None if unknown else np.where(sources[0] == place, found, value)
            results.append(value)
        return results

    return (register,), indexed


def to_uniform(word: int, results: Sequence[int], _warps: Followers) -> Special:
    """R2UR: the value of a register that all threads of a warp share."""
    unknown = [None] * (len(results) - 1)
    return (word >> 24 & 255,), lambda sources: [sources[0], *unknown]


def half_constant(word: int, results: Sequence[int], _warps: Followers) -> Special:
    """HFMA2 of zeros and a number, which moves the number."""
    value = None
    if word >> 9 & 7 == 2 and word >> 24 & 255 == word >> 64 & 255 == ZERO:  # noqa: PLR2004 - a number
        value = np.full((1, 1), word >> 32 & 0xFFFFFFFF, np.uint32)
    return (), lambda _: [value] * len(results)


def waited(_word: int, results: Sequence[int], _warps: Followers) -> Special:
    """SYNCS.TRYWAIT: the wait succeeds."""
    return (), lambda _: [np.ones((1, 1), bool)] * len(results)


def elected(_word: int, results: Sequence[int], warps: Followers) -> Special:
    """ELECT: a warp's first thread."""
    first = np.arange(warps.launched.threads)[None, :] % WARP == 0
    return (), lambda _: [first if one >= PREDICATES else None for one in results]


def voted(word: int, results: Sequence[int], warps: Followers) -> Special:
    """VOTE and VOTEU: whether a predicate holds in any or all threads of a warp, and the ballot."""
    lanes = np.arange(WARP, dtype=np.uint32)

    def vote(sources: Sequence[Any]) -> Sequence[Any]:
        value = ~sources[0] if word >> 90 & 1 else sources[0]
        programs = max(value.shape[0], warps.mask.shape[0])
        shape = (programs, warps.launched.threads)
        asked, holds = (
            np.broadcast_to(one, shape).reshape(programs, -1, WARP) for one in (warps.mask, value)
        )
        ballot = ((holds & asked) << lanes).sum(axis=2, dtype=np.uint32)
        is_any = word >> 72 & 1
        chosen = (holds & asked).any(axis=2) if is_any else (holds | ~asked).all(axis=2)
        spread = [np.repeat(one, WARP, axis=1) for one in (ballot, chosen)]
        return [spread[one >= PREDICATES] for one in results]

    return (PREDICATES + (word >> 87 & 7),), vote


def shuffled(word: int, results: Sequence[int], warps: Followers) -> Special:
    """SHFL: another thread's value."""
    in_register = word >> 9 & 7 in SECOND_IS_REGISTER
    sources = (word >> 24 & 255, word >> 32 & 255) if in_register else (word >> 24 & 255,)
    lanes = np.arange(warps.launched.threads, dtype=np.uint32)[None, :]
    lane = lanes & LANE

    def shuffle(values: Sequence[Any]) -> Sequence[Any]:
        given = values[1] if in_register else np.full((1, 1), word >> 53 & 31, np.uint32)
        amount = given & LANE
        moved = (amount | lane ^ lane, lane - amount, lane + amount, lane ^ amount)[word >> 58 & 3]
        inside = moved < WARP
        index = (lanes & LANE_MASK) + np.where(inside, moved, lane)
        value, index = np.broadcast_arrays(values[0], index)
        found = np.take_along_axis(value, index.astype(np.intp), axis=1)
        return [inside if one >= PREDICATES else found for one in results]

    return sources, shuffle


def packed(word: int, _results: Sequence[int], _warps: Followers) -> Special:
    """P2R: predicates as bits of a number."""
    mask, shift = word >> 32 & 0x7F, 8 * (word >> 76 & 3)
    places = [one for one in range(7) if mask >> one & 1]

    def pack(values: Sequence[Any]) -> Sequence[Any]:
        result = values[0] & np.uint32(0xFFFFFFFF & ~(mask << shift))
        for place, value in zip(places, values[1:], strict=True):
            result = result | value.astype(np.uint32) << np.uint32(place + shift)
        return [result]

    return (word >> 24 & 255, *(PREDICATES + one for one in places)), pack


def unpacked(word: int, results: Sequence[int], _warps: Followers) -> Special:
    """R2P: predicates from the bits of a number."""
    shift = 8 * (word >> 76 & 3)

    def unpack(values: Sequence[Any]) -> Sequence[Any]:
        return [
            (values[0] >> np.uint32(one - PREDICATES + shift) & np.uint32(1)).astype(bool)
            for one in results
        ]

    return (word >> 24 & 255,), unpack


SPECIAL: dict[int, Callable[[int, Sequence[int], Followers], Special]] = {
    **dict.fromkeys(operations.READS_SPECIAL, special_register),
    **dict.fromkeys((operations.LDC, operations.ULDC, operations.LDCU), constant_load),
    **dict.fromkeys((operations.R2UR, operations.R2UR_BEFORE), to_uniform),
    **dict.fromkeys((operations.HFMA2_MMA, 0x031), half_constant),
    operations.SYNCS_WAIT: waited,
    operations.ELECT: elected,
    **dict.fromkeys((operations.VOTE, operations.VOTEU), voted),
    operations.SHFL: shuffled,
    operations.P2R: packed,
    operations.R2P: unpacked,
}
