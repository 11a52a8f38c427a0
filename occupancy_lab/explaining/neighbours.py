"""The neighbours of a launch: other num_warps, num_stages, ... compiled, and what they change."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from occupancy_lab.compiling.compile import failure_of
from occupancy_lab.errors import CompileError, DoesNotFitError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.launch import Launch
    from occupancy_lab.record import Record


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A launch with one knob changed, as it compiled; without a record it has a status."""

    name: str
    value: int
    record: Record | None
    status: str = ""
    reason: str = ""
    """Why the change has no effect on the binary, as a sentence; "" where it has."""

    @property
    def words(self) -> str:
        """The change: "num_warps 4"."""
        return f"{self.name} {self.value}"


@dataclass(frozen=True, slots=True)
class Tried:
    """A launch's record and its neighbours'."""

    record: Record
    neighbours: tuple[Neighbour, ...] = ()

    @property
    def title(self) -> str:
        """What the GPU is called."""
        return self.record.title

    @property
    def timed(self) -> bool:
        """Whether a time is predicted of the launch and of every neighbour that has a record."""
        return have_times([self.record, *(one.record for one in self.neighbours if one.record)])

    @property
    def best(self) -> Neighbour | None:
        """The neighbour that is predicted to be the fastest, where it is noticeably faster.

        Where not all have a time it is the one that spills least and then has most warps, where
        that is better than the launch. None where none is.
        """
        ranked = [(one.record, one) for one in self.neighbours if one.record is not None]
        own = self.record.prediction
        if not ranked:
            return None
        if own is not None and self.timed:
            record, best = min(ranked, key=lambda pair: predicted_us(pair[0]))
            return best if predicted_us(record) / own.us - 1 <= -own.noticeable else None
        record, best = max(ranked, key=lambda pair: rank(pair[0]))
        return best if rank(record) > rank(self.record) else None


def predicted_us(record: Record) -> float:
    """Return the predicted time of a launch, us; infinity where there is none."""
    return math.inf if record.prediction is None else record.prediction.us


def have_times(records: Iterable[Record]) -> bool:
    """Tell whether a time is predicted of every one of *records*."""
    return all(record.prediction is not None for record in records)


def first_of(records: Sequence[Record]) -> Record:
    """Return the one of *records* that is predicted to be the fastest.

    Where not all have a time it is the one that spills least, and then keeps most warps resident.
    """
    if have_times(records):
        return min(records, key=predicted_us)
    return max(records, key=rank)


def rank(record: Record) -> tuple[int, float]:
    """Return what a launch is ranked by where no time is known: spills, then resident warps."""
    calculation = record.calculation
    return -(calculation.resources.local_bytes or 0), calculation.occupancy.occupancy


def changes(record: Record) -> Iterator[tuple[str, int]]:
    """Return what to change: half and twice the warps, a stage fewer and more.

    Where registers alone limit, a cap on them too (NVIDIA), or a wave more per SIMD (AMD).
    """
    architecture = record.calculation.architecture
    asked = {**record.usual_options, **record.options}
    warps, stages = int(asked.get("num_warps", 4)), int(asked.get("num_stages", 1))
    for value in (warps // 2, warps * 2):
        if 1 <= value <= architecture.max_warps_per_program:
            yield "num_warps", value
    for value in (stages - 1, stages + 1):
        if value >= 1:
            yield "num_stages", value
    if record.calculation.occupancy.limiters == ("registers",):
        for step in record.calculation.next_steps:
            if step.resource == "registers" and step.option is not None:
                name, _, most = step.option.partition("=")
                yield name, int(most)


class Maker(Protocol):
    """What compiles launches and works out how they sit on a GPU."""

    def prepare(self, wanted: Iterable[tuple[Any, Launch, Gpu]]) -> None:
        """Compile *wanted*, several at a time where that can be."""

    def make(self, function: Any, launch: Launch, gpu: Gpu) -> Record:
        """Return the record of *launch* on *gpu*; raises where it has none."""


def try_neighbours(records: Sequence[Record], function: Any, maker: Maker) -> tuple[Tried, ...]:
    """Return *records* of launches of *function*, each with its neighbours made by *maker*."""
    wanted = [
        (
            place,
            name,
            value,
            dataclasses.replace(record.launch, keywords={**record.launch.keywords, name: value}),
        )
        for place, record in enumerate(records)
        for name, value in changes(record)
        if name not in [*record.arguments][: len(record.launch.arguments)]
    ]
    maker.prepare((function, launch, records[place].gpu) for place, _, _, launch in wanted)
    found: list[list[Neighbour]] = [[] for _ in records]
    for place, name, value, launch in wanted:
        record = records[place]
        try:
            made = maker.make(function, launch, record.gpu)
        except (CompileError, DoesNotFitError) as error:
            found[place].append(Neighbour(name, value, None, failure_of(error).status))
            continue
        found[place].append(Neighbour(name, value, made, reason=_no_effect(record, made, name)))
    return tuple(map(Tried, records, map(tuple, found)))


def _no_effect(record: Record, other: Record, name: str) -> str:
    """Return as a sentence why another value of *name* gives the same binary; "" where not."""
    own, same = record.calculation.resources, other.calculation.resources
    if own.binary is None or (own.binary, own.num_warps) != (same.binary, same.num_warps):
        return ""
    return f"{name} has no effect on the binary: {_reason(record, name)}."


def _reason(record: Record, name: str) -> str:
    resources, target = record.calculation.resources, record.calculation.gpu.target
    if name != "num_stages":
        return "the compiler stays below that limit by itself"
    if resources.loop_instructions is None:
        return "the kernel has no loop to pipeline"
    if target.backend == "cuda" and not target.copies_ahead:
        return f"{target.name} cannot copy ahead into shared memory"
    return (
        "Triton pipelines only loads that feed `tl.dot`, unless the loop itself says num_stages, as"
        " `tl.range(..., num_stages=)` does"
    )
