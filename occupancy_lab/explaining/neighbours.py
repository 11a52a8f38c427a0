"""The neighbours of a launch: other num_warps, num_stages, ... compiled, and what they change."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.asked import Asked, ask
from occupancy_lab.errors import InputError
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.record import Failed


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A launch with one setting changed, as it compiled; without a record it has a status."""

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

    @classmethod
    def of(cls, record: Record, name: str, value: int, run: Record | Failed) -> Neighbour:
        """Return what became of *record* with another *value* of *name*."""
        if not isinstance(run, Record):
            return cls(name, value, None, run.failure.status)
        return cls(name, value, run, reason=_no_effect(record, run, name))


def predicted_us(record: Record) -> float:
    """Return the predicted time of a launch, us; infinity where there is none."""
    return math.inf if record.prediction is None else record.prediction.us


def have_times(records: Sequence[Record]) -> bool:
    """Tell whether predicted times set all of *records*, launches of one kernel, apart."""
    return all(
        record.prediction is not None and comparable(records[0], record) for record in records
    )


def sees_stages(record: Record) -> bool:
    """Tell whether the prediction of a launch sees all that its stages load ahead."""
    flat = record.num_stages == 1 or record.resources.loop_instructions is None
    return flat or bool(record.resources.async_copies)


def comparable(one: Record, other: Record) -> bool:
    """Tell whether predictions see all that differs between two launches of one kernel."""
    predictions = (one.prediction, other.prediction)
    if all(found is not None and found.low_us is not None for found in predictions):
        return True  # made of the binaries
    loops = None not in {one.resources.loop_instructions, other.resources.loop_instructions}
    if loops and one.num_stages == other.num_stages:
        return True
    return sees_stages(one) and sees_stages(other)


def first_of(records: Sequence[Record]) -> Record:
    """Return the one of *records* that is predicted to be the fastest.

    Where not all have a time it is the one that spills least, and then keeps most warps resident.
    """
    if have_times(records):
        return min(records, key=predicted_us)
    return max(records, key=rank)


def best_of(record: Record, neighbours: Sequence[Neighbour]) -> Neighbour | None:
    """Return the one of *neighbours* that is predicted to be fastest, where noticeably faster.

    It adds no local memory: times of launches that spill are predicted worst. Where not all have a
    time it is the one that spills least and then has most warps, where that is
    better than the launch. None where none is.
    """
    ranked = [(one.record, one) for one in neighbours if one.record is not None]
    own = record.prediction
    if not ranked:
        return None
    if own is not None and have_times([record, *(other for other, _ in ranked)]):
        spills = record.resources.local_bytes or 0
        ranked = [pair for pair in ranked if (pair[0].resources.local_bytes or 0) <= spills]
        if not ranked:
            return None
        fastest, best = min(ranked, key=lambda pair: predicted_us(pair[0]))
        return best if predicted_us(fastest) / own.us - 1 <= -own.noticeable else None
    most, best = max(ranked, key=lambda pair: rank(pair[0]))
    return best if rank(most) > rank(record) else None


def rank(record: Record) -> tuple[int, float]:
    """Return what a launch is ranked by where no time is known: spills, then resident warps."""
    return -(record.resources.local_bytes or 0), record.occupancy.occupancy


def changes(record: Record) -> Iterator[tuple[str, int]]:
    """Return what to change: half and twice the warps, no stage ahead, a stage fewer and more.

    Where registers alone limit, a cap on them too (NVIDIA), or a wave more per SIMD (AMD). What
    the launch passes by position is left as it is.
    """
    fixed = [*record.arguments][: len(record.launch.arguments)]
    for name, value in _changes(record):
        if name not in fixed:
            yield name, value


def _changes(record: Record) -> Iterator[tuple[str, int]]:
    warps, stages = record.num_warps, record.num_stages
    for value in (warps // 2, warps * 2):
        if 1 <= value <= record.gpu.architecture.max_warps_per_program:
            yield "num_warps", value
    for value in dict.fromkeys((1, stages - 1, stages + 1)):
        if value >= 1 and value != stages:
            yield "num_stages", value
    if record.occupancy.limiters == ("registers",):
        for step in record.calculation.next_steps:
            if step.resource == "registers" and step.option is not None:
                name, _, most = step.option.partition("=")
                yield name, int(most)


def changed(asked: Asked, name: str, value: int) -> Asked | None:
    """Return *asked* with another *value* of a setting; None where it cannot be launched so."""
    matrix = asked.matrix
    if matrix is None:
        keywords = {**asked.launch.keywords, name: value}
        launch = dataclasses.replace(asked.launch, keywords=keywords)
        return dataclasses.replace(asked, launch=launch)
    knobs: dict[str, Any] = {name: value} if name in {"num_warps", "num_stages"} else {}
    options = matrix.options if knobs else {**matrix.options, name: value}
    config = dataclasses.replace(matrix.config, **knobs)
    try:
        named = NamedKernel(asked.name, matrix.kernel)
        other = ask(named, matrix.problem, config, asked.gpu, options)
    except InputError:
        return None
    return None if other.why_not() is not None else other


def _no_effect(record: Record, other: Record, name: str) -> str:
    """Return as a sentence why another value of *name* gives the same binary; "" where not."""
    own, same = record.resources, other.resources
    if own.binary is None or (own.binary, own.num_warps) != (same.binary, same.num_warps):
        return ""
    return f"{name} has no effect on the binary: {_reason(record, name)}."


def _reason(record: Record, name: str) -> str:
    target = record.gpu.target
    if name != "num_stages":
        return "the compiler stays below that limit by itself"
    if record.resources.loop_instructions is None:
        return "the kernel has no loop to pipeline"
    if target.backend == "cuda" and not target.copies_ahead:
        return f"{target.name} cannot copy ahead into shared memory"
    return (
        "Triton pipelines only loads that feed `tl.dot`, unless the loop itself says num_stages, as"
        " `tl.range(..., num_stages=)` does"
    )
