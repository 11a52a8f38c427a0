"""What a launch does, by line of its source: bytes, FLOPs, their least time, and instructions.

What a helper does counts at the line of the kernel that calls it, or calls what calls it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.work.counts import NOTHING, Amount, total
from occupancy_lab.work.memory import dot_tflops, other_tflops

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.work.counts import Access, Arithmetic, Counts, Executed, Place
    from occupancy_lab.work.memory import Memory


@dataclass(frozen=True, slots=True)
class Line:
    """What a launch does at a line of its kernel."""

    file: str
    number: int
    read: Amount
    """Bytes that loads and atomic operations of the line ask for."""
    written: Amount
    flops: Amount
    trips: Amount | None
    """Iterations of the loop that the line begins; None where it begins none."""
    least_us: float
    """The least time of its part of the bytes of device memory, or of its FLOPs: the longer."""
    instructions: Amount | None = None
    """Instructions that warps execute of it; None where that is not known."""
    stall_share: float | None = None
    """Its share of `ExecutedLine.cycles`."""
    thread_bytes: tuple[int, ...] = ()
    """The bytes a thread of its loads and stores in global memory, narrow ones first."""
    local_bytes: Amount | None = None
    """Bytes of local memory that it moves, as by spills; None where that is not known."""
    live_registers: int | None = None
    """Registers of a thread that hold a value still needed there, at most; None for not known."""
    helpers: tuple[str, ...] = ()
    """The lines of helpers that it calls and that do something, as "file.py:12"."""

    @property
    def bytes(self) -> Amount:
        """Bytes that the line asks for and writes."""
        return self.read + self.written

    @property
    def cost(self) -> float:
        """What lines of a launch are ordered by: `stall_share`, or `least_us` without one."""
        return self.least_us if self.stall_share is None else self.stall_share

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "file": self.file,
            "line": self.number,
            "read_bytes": self.read.exact,
            "written_bytes": self.written.exact,
            "flops": self.flops.exact,
            "trips": None if self.trips is None else self.trips.exact,
            "least_us": self.least_us,
            "executed_instructions": None if self.instructions is None else self.instructions.exact,
            "stall_share": self.stall_share,
            "thread_bytes": list(self.thread_bytes),
            "local_bytes": None if self.local_bytes is None else self.local_bytes.exact,
            "live_registers": self.live_registers,
            "helpers": list(self.helpers),
        }


def by_line(
    counts: Counts, memory: Memory, gpu: Gpu, executed: Executed | None = None
) -> tuple[Line, ...]:
    """Return the lines that do something, those that cost most first.

    The bytes of device memory are shared out to the accesses by the distinct bytes of each.
    """
    run = () if executed is None else executed.lines
    asked = () if executed is None else executed.accesses
    cycles = sum(one.cycles for one in run)
    places: dict[tuple[str, int], list[Place]] = {}
    for place in (
        *(one.place for one in counts.accesses),
        *(one.place for one in counts.arithmetic),
        *(one.place for one in counts.loops),
        *(one.place for one in run if one.place.file),
    ):
        outermost = place.outermost
        places.setdefault((outermost.file, outermost.line), []).append(place)
    reads = _a_byte_us(memory.once_read_bytes, counts.accesses, gpu, reads=True)
    writes = _a_byte_us(memory.once_written_bytes, counts.accesses, gpu, reads=False)
    found = []
    for (file, number), here in places.items():
        accesses = [one for one in counts.accesses if _is_at(one.place, file, number)]
        arithmetic = [one for one in counts.arithmetic if _is_at(one.place, file, number)]
        loops = [one.trips for one in counts.loops if _is_at(one.place, file, number)]
        moving = sum(_distinct(one) * (reads * one.reads + writes * one.writes) for one in accesses)
        computing = sum(_flop_us(one, gpu) for one in arithmetic)
        ran = [one for one in run if _is_at(one.place, file, number)]
        stalled = sum(one.cycles for one in ran)
        widths = {one.thread_bytes for one in asked if _is_at(one.place, file, number)}
        inside = dict.fromkeys(one for one in here if one.called_from)
        found.append(
            Line(
                file,
                number,
                total(one.bytes for one in accesses if one.reads),
                total(one.bytes for one in accesses if one.writes),
                total(one.flops for one in arithmetic),
                sum(loops[1:], loops[0]) if loops else None,
                max(moving, computing),
                None if executed is None else total(one.instructions for one in ran),
                stalled / cycles if cycles else None,
                tuple(sorted(widths)),
                None if executed is None else total(one.local_bytes for one in ran),
                max((one.live for one in ran), default=None),
                tuple({f"{one.file.rpartition('/')[2]}:{one.line}": None for one in inside}),
            )
        )
    return tuple(
        sorted(
            found,
            key=lambda one: (-one.cost, -one.least_us, -one.bytes.low, -one.flops.low),
        )
    )


def _is_at(place: Place, file: str, number: int) -> bool:
    outermost = place.outermost
    return (outermost.file, outermost.line) == (file, number)


def _distinct(access: Access) -> int:
    return access.unique_bytes.low if access.unique_bytes.high is None else access.unique_bytes.high


def _a_byte_us(moved: Amount | None, accesses: Sequence[Access], gpu: Gpu, *, reads: bool) -> float:
    """Return the time of device memory that a distinct byte of an access stands for."""
    chosen: Iterable[Access] = (one for one in accesses if (one.reads if reads else one.writes))
    distinct = sum(map(_distinct, chosen))
    if moved is None or gpu.bandwidth_gbs is None or not distinct:
        return 0.0
    return (moved or NOTHING).low / gpu.bandwidth_gbs / 1e3 / distinct


def _flop_us(one: Arithmetic, gpu: Gpu) -> float:
    rate = (dot_tflops if one.operation == "dot" else other_tflops)(gpu, one.dtype)
    return one.flops.low / rate / 1e6 if rate else 0.0
