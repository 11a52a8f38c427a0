"""The neighbours of a launch: other num_warps, num_stages, blocks, ...; and which is the best."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from occupancy_lab.arguments import ALIGNMENT, Descriptor, Pointer
from occupancy_lab.asked import Asked, ask
from occupancy_lab.errors import InputError
from occupancy_lab.explaining.grids import (
    GRID,
    grids_of_blocks,
    has_idle_programs,
    split_changes,
    splits_of,
    whole_work,
)
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.occupancy.exact import next_steps, stepped_amounts
from occupancy_lab.options import CAPS, KNOBS, NAMES
from occupancy_lab.prediction import Prediction, time_columns
from occupancy_lab.record import Failed, Record, by_gpu
from occupancy_lab.text.words import listed

WIDEST_ACCESS = 16
"""Bytes of the widest global load or store of one thread, on both vendors' GPUs here."""
CROWDED = 0.75
"""The share of the registers that a thread may have from which on twice the work would spill."""
MOST_ELEMENTS = 1 << 15
"""The largest product of the two largest blocks that is tried: larger ones compile slowly and do
not fit the registers of a program's threads."""
ALIKE = 1.02
"""The ratio of predicted times up to which two launches count as equally fast."""
MOST_ROUNDED = 1.1
"""The largest ratio by which an integer is rounded up to a multiple of 16: beyond that it would be
another problem."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A launch with some settings changed: its record, or the status of its failure."""

    changes: Mapping[str, Any]
    """The new values of the changed settings; None stands for an option that is left out."""
    record: Record | None
    status: str = ""
    reason: str = ""
    """A sentence on why the change has no effect on the binary; "" if it has an effect."""
    why_failed: str = ""

    @property
    def prediction(self) -> Prediction | None:
        """The predicted time; None if there is none."""
        return None if self.record is None else self.record.prediction

    @property
    def us(self) -> float:
        """The predicted time, us; infinity if there is none."""
        return math.inf if self.record is None else predicted_us(self.record)

    @property
    def local_bytes(self) -> int:
        """The local memory of a thread; 0 if it is not known."""
        return 0 if self.record is None else self.record.resources.local_bytes or 0

    @property
    def words(self) -> str:
        """The changes in words: "num_warps 4"."""
        return listed([_setting_words(name, value) for name, value in self.changes.items()])

    def instead_of(self, record: Record) -> str:
        """Return each change beside the value in *record*: "num_warps 4 instead of 8"."""
        return listed(
            [
                f"{_setting_words(name, value)} instead of {_shown(setting_of(record, name))}"
                for name, value in self.changes.items()
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the changes, the predicted time and the registers as plain values."""
        record = self.record
        return {
            "changes": dict(self.changes),
            **time_columns(self.prediction),
            "n_regs": None if record is None else record.resources.n_regs,
            "local_bytes": None if record is None else record.resources.local_bytes,
            "reason": self.reason or self.why_failed or None,
        }

    @classmethod
    def of(cls, record: Record, changes: Mapping[str, Any], run: Record | Failed) -> Neighbour:
        """Return the neighbour of *record* that compiled to *run* with *changes*."""
        if not isinstance(run, Record):
            return cls(changes, None, run.failure.status, why_failed=run.failure.reason)
        alone = len(changes) == 1 and GRID not in changes
        return cls(changes, run, reason=no_effect(record, run, *changes) if alone else "")


def _setting_words(name: str, value: Any) -> str:
    return f"no {name}" if value is None else f"{name} {_shown(value)}"


def _shown(value: Any) -> str:
    """Return a setting as text; a grid as "264 x 8", and an option that is not set as "none"."""
    if value is None:
        return "none"
    return " x ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def setting_of(record: Record, name: str) -> Any:
    """Return the value of an option or argument of a launch, or its grid; None if not set."""
    if name == GRID:
        return record.launch.grid
    if name in KNOBS:
        return getattr(record, name)
    return record.options.get(name, record.arguments.get(name))


def predicted_us(record: Record) -> float:
    """Return the predicted time of a launch, us; infinity if there is none."""
    return math.inf if record.prediction is None else record.prediction.us


def have_times(records: Sequence[Record]) -> bool:
    """Tell whether any of *records* has a predicted time."""
    return any(record.prediction is not None for record in records)


def first_of(records: Sequence[Record]) -> Record:
    """Return the best of the *records* that do the whole work, by predicted time or by `rank`."""
    records = whole_work(records)
    if have_times(records):
        return min(records, key=predicted_us)
    return max(records, key=rank)


def with_chosen(runs: Sequence[Record | Failed]) -> tuple[Record | Failed, ...]:
    """Return *runs*; the fastest on each GPU gets the wider range of a launch that was chosen.

    A GPU on which all predicted times are equal has no chosen launch.
    """
    chosen: set[int] = set()
    for found in by_gpu([run for run in runs if isinstance(run, Record)]):
        if len({*map(predicted_us, found)}) > 1:
            whole = whole_work(found)
            least = min(map(predicted_us, whole))
            chosen |= {id(one) for one in whole if predicted_us(one) == least}
    return tuple(
        run.as_chosen if isinstance(run, Record) and id(run) in chosen else run for run in runs
    )


def best_of(record: Record, neighbours: Sequence[Neighbour]) -> Neighbour | None:
    """Return the fastest of *neighbours* by prediction if it is noticeably faster, else None.

    Among equally fast ones it is that with the fewest changed settings besides the grid, and then
    with the smallest changes. Neighbours that use more local memory than the launch are left out,
    because predictions are worst for launches that spill. If the launch has no predicted time, it
    is the neighbour with the highest `rank` if that is above the launch's.
    """
    own = record.prediction
    if own is None:
        better = [
            (rank(one.record), one)
            for one in neighbours
            if one.record is not None and rank(one.record) > rank(record)
        ]
        return max(better, key=itemgetter(0), default=(None, None))[1]
    spills = record.resources.local_bytes or 0
    faster = [
        one
        for one in neighbours
        if one.local_bytes <= spills and one.us / own.us - 1 <= -own.noticeable
    ]
    least = min((one.us for one in faster), default=0.0)
    alike = [one for one in faster if one.us <= least * ALIKE]
    return min(alike, key=partial(_size_of_change, record), default=None)


def _size_of_change(record: Record, one: Neighbour) -> tuple[int, float]:
    """Return how many settings besides the grid a neighbour changes, and by what factor in all."""
    changed = _without_grid(one.changes)
    pairs = [(value, setting_of(record, name)) for name, value in changed.items()]
    factors = [
        abs(math.log(new / old))
        for new, old in pairs
        if type(new) is type(old) is int and new > 0 and old > 0
    ]
    return len(changed), sum(factors)


def fastest_grids(neighbours: Sequence[Neighbour]) -> Iterator[Neighbour]:
    """Yield the fastest of each group that differs only in the grid, without idle programs."""
    groups: dict[frozenset[tuple[str, Any]], list[tuple[Neighbour, Record]]] = {}
    for one in neighbours:
        own = frozenset(_without_grid(one.changes).items())
        if one.record is not None:
            groups.setdefault(own, []).append((one, one.record))
    for group in groups.values():
        busy = [
            (one, record)
            for one, record in group
            if not any(has_idle_programs(record, other) for _, other in group)
        ]
        yield min((one for one, _ in busy), key=lambda one: one.us)


def rank(record: Record) -> tuple[int, float]:
    """Return the ranking key of a launch without a predicted time: spills, then resident warps."""
    return -(record.resources.local_bytes or 0), record.occupancy.occupancy


def changes(record: Record) -> Iterator[dict[str, Any]]:
    """Return the changes to try on a launch, by what bounds and what limits it.

    - num_warps: half, unless registers are crowded; twice; four times if the launch spills.
    - num_stages: 1, one fewer, one more, and two more if latency bounds the launch; only one of
      these if the kernel has nothing to pipeline, to show that it has no effect.
    - No cap on registers, if the launch has one and spills, or the cap pads the allocation.
    - A cap on registers (NVIDIA), or one more wave per SIMD (AMD), if only registers limit.

    Arguments that the launch passes by position stay as they are.
    """
    fixed = by_position(record)
    for change in (*_warps_and_stages(record), *_without_clusters(record), *_caps(record)):
        if not fixed & change.keys():
            yield change


def by_position(record: Record) -> set[str]:
    """Return the arguments that the launch passes by position."""
    return {*[*record.arguments][: len(record.launch.arguments)]}


def _warps_and_stages(record: Record) -> Iterator[dict[str, Any]]:
    warps, stages = record.num_warps, record.num_stages
    spills = bool(record.resources.local_bytes)
    waits = record.prediction is not None and record.prediction.bound == "latency"
    fewer = [] if _is_crowded(record) else [warps // 2]
    for value in (*fewer, warps * 2, *([warps * 4] if spills else [])):
        if 1 <= value <= record.gpu.architecture.max_warps_per_program:
            yield {"num_warps": value}
    others = dict.fromkeys((1, stages - 1, stages + 1, *([stages + 2] if waits else [])))
    found = [value for value in others if value >= 1 and value != stages]
    for value in found if _pipelines(record) else found[:1]:
        yield {"num_stages": value}


def _without_clusters(record: Record) -> Iterator[dict[str, Any]]:
    ctas, warps = record.resources.num_ctas, record.num_warps
    if ctas > 1:
        yield {"num_ctas": 1}
        if warps * ctas <= record.gpu.architecture.max_warps_per_program:
            yield {"num_ctas": 1, "num_warps": warps * ctas}


def _is_crowded(record: Record) -> bool:
    """Tell whether a thread with twice the work would spill."""
    _, most = stepped_amounts(record.resources, record.gpu.architecture)["registers"]
    return record.resources.n_regs >= CROWDED * most


def _pipelines(record: Record) -> bool:
    """Tell whether num_stages may change the binary, because of dots or asynchronous copies."""
    counts = record.counts
    if counts is None or "num_stages" in record.constexprs:
        return True
    return bool(counts.dot_flops or counts.not_counted or record.resources.async_copies)


def _caps(record: Record) -> Iterator[dict[str, Any]]:
    if record.resources.local_bytes or record.calculation.padded_vgprs:
        yield from ({name: None} for name in CAPS if record.options.get(name))
    if record.occupancy.limiters == ("registers",):
        yield from caps(record, 1)


def caps(record: Record, number: int) -> Iterator[dict[str, int]]:
    """Return the caps on registers with which 1, 2, ..., *number* more programs fit."""
    resources, architecture = record.resources, record.gpu.architecture
    for _ in range(number):
        steps = {step.resource: step for step in next_steps(resources, architecture)}
        step = steps.get("registers")
        if step is None or not step.cap:
            return
        yield step.cap
        resources = resources.replace(n_regs=step.most_for_one_more, allocated_vgprs=None)


def block_changes(record: Record) -> Iterator[dict[str, Any]]:
    """Return other shapes of a launch's blocks, without a grid and with each grid that may fit.

    A launch whose grid is a function calculates it for the new shape.
    """
    for change in _shapes(record):
        yield change
        yield from grids_of_blocks(record, change)


def _shapes(record: Record) -> Iterator[dict[str, Any]]:
    """Return other shapes of a launch's blocks: each halved, doubled, and doubled with 2x warps.

    A kernel with a single block also gets four times its size. Larger blocks reread less and give a
    program more work at once; smaller ones make more programs. `same_work` tells which shapes do
    the same work. There are none

    - for a launch bound by its start, or without a predicted time;
    - if values in memory are unknown: larger blocks of an embedding bag on an H200 were slower for
      random rows, and faster for the same row over and over;
    - larger with the same warps if registers are crowded and the kernel has several blocks, except
      for BLOCK_K, which does not make the accumulator larger.
    """
    own, counts = record.prediction, record.counts
    if own is None or counts is None or own.bound == "launch":
        return
    if any(one.assumed is None for one in counts.unknowns):
        return
    if any(isinstance(one, Descriptor) for one in record.arguments.values()):
        return
    blocks, most = blocks_of(record), record.gpu.architecture.max_warps_per_program
    fixed = by_position(record)
    is_alone = sum(one > 1 for one in blocks.values()) <= 1
    for name, block in blocks.items():
        for times in (0.5, 2, 4) if is_alone else (0.5, 2):
            if block * times < 1:
                continue
            warps = int(record.num_warps * times)
            sizes = sorted({**blocks, name: int(block * times)}.values())
            if times > 1 and math.prod(sizes[-2:]) > MOST_ELEMENTS:
                continue
            if times < 1 or is_alone or name.endswith("K") or not _is_crowded(record):
                yield {name: int(block * times)}
            if times > 1 and warps <= most and "num_warps" not in fixed:
                yield {name: int(block * times), "num_warps": warps}


def pairs(record: Record, neighbours: Sequence[Neighbour]) -> Iterator[dict[str, Any]]:
    """Return each num_warps of a launch's *neighbours* together with each num_stages of theirs.

    Values that alone make the launch noticeably slower, that fail or that have no effect on the
    binary are left out.
    """
    own = record.prediction
    if own is None:
        return
    most = own.us * (1 + own.noticeable)
    fine = [one.changes for one in neighbours if not one.reason and one.us < most]
    warps, stages = (
        [one for one in fine if one.keys() == {name}] for name in ("num_warps", "num_stages")
    )
    yield from ({**one, **other} for one, other in itertools.product(warps, stages))


def onward(record: Record, neighbours: Sequence[Neighbour]) -> Iterator[dict[str, Any]]:
    """Return changes that continue in the direction of the best of a launch's *neighbours*.

    A setting that the best one changes is changed further in the same direction, or num_warps is
    halved or doubled. There are none if no neighbour is noticeably faster.
    """
    best = best_of(record, neighbours)
    if best is None or best.record is None or best.prediction is None:
        return
    there = [one.changes for one in neighbours]
    sized = {*record.tiles, *splits_of(record)}  # these determine the grid
    blocks = [_without_grid(one) for one in there if sized & one.keys()]
    kinds = (changes, block_changes, split_changes)
    for change in itertools.chain(*(proposed(best.record) for proposed in kinds)):
        named = [name for name in change if name != GRID]
        stale = {GRID} if sized.intersection(named) else set()
        kept = {name: value for name, value in best.changes.items() if name not in stale}
        whole = {
            name: value
            for name, value in {**kept, **change}.items()
            if name == GRID or value != setting_of(record, name)
        }
        if whole in there or _without_grid(whole) in blocks:
            continue
        if all(_goes_on(record, best, name, change[name]) for name in named):
            there.append(whole)
            yield whole


def _without_grid(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if name != GRID}


def _goes_on(record: Record, best: Neighbour, name: str, value: Any) -> bool:
    if name not in best.changes:
        return name == "num_warps"
    before, now = setting_of(record, name), best.changes[name]
    if not all(isinstance(one, int) for one in (before, now, value)):
        return False
    return bool((value - now) * (now - before) > 0)


def blocks_of(record: Record) -> dict[str, int]:
    """Return the constexprs that set the size of a block to a power of two, with their values.

    A kernel of a matrix chooses its block itself.
    """
    if record.matrix is not None:
        return {}
    found = ((name, record.arguments[name]) for name in record.constexprs if name in record.tiles)
    return {name: one for name, one in found if type(one) is int and one.bit_count() == 1}


def changed(asked: Asked, changes: Mapping[str, Any]) -> Asked | None:
    """Return *asked* with *changes* and a recalculated grid; None if it cannot be launched."""
    matrix = asked.matrix
    if matrix is None:
        names = {*NAMES, *(one.name for one in asked.function.params if one.is_constexpr)}
        settings = {name: value for name, value in changes.items() if name in names}
        passed = {name: changes[name] for name in changes.keys() - names - {GRID}}
        found = _relaunched(asked, settings) if settings else asked
        found = _passing(found, passed) if found is not None and passed else found
        if found is None or GRID not in changes:
            return found
        launch = dataclasses.replace(found.launch, grid=changes[GRID])
        return dataclasses.replace(found, launch=launch)
    knobs: dict[str, Any] = {name: changes[name] for name in changes if name in KNOBS}
    others = {name: value for name, value in changes.items() if name not in knobs}
    options = {**matrix.options, **others}
    options = {name: value for name, value in options.items() if value is not None}
    config = dataclasses.replace(matrix.config, **knobs)
    try:
        named = NamedKernel(asked.name, matrix.kernel)
        other = ask(named, matrix.problem, config, asked.gpu, options)
    except InputError:
        return None
    return None if other.why_not() is not None else other


def _passing(asked: Asked, values: Mapping[str, Any]) -> Asked | None:
    """Return *asked* with other arguments; None if the launch does not pass one of them."""
    launch, names = asked.launch, [one.name for one in asked.function.params]
    given = names[: len(launch.arguments)]
    if not values.keys() <= {*given, *launch.keywords}:
        return None
    passed = zip(given, launch.arguments, strict=True)
    arguments = tuple(values.get(name, value) for name, value in passed)
    keywords = {name: values.get(name, value) for name, value in launch.keywords.items()}
    launch = dataclasses.replace(launch, arguments=arguments, keywords=keywords)
    return dataclasses.replace(asked, launch=launch)


def _relaunched(asked: Asked, changes: Mapping[str, Any]) -> Asked | None:
    launch = asked.launch
    left_out = {one.name for one in asked.function.params[: len(launch.arguments)]}
    if changes.keys() - {*NAMES}:
        if asked.relaunch is None:
            return None
        try:
            found = asked.relaunch(changes)
        except Exception:  # noqa: BLE001 - heuristics and grids are the user's own code
            return None
        kept = ("work", "typical", "values", "warm", "in_program")
        known = {name: getattr(launch, name) for name in kept}
        passed = {name: found.keywords[name] for name in launch.keywords if name in found.keywords}
        launch = dataclasses.replace(found, keywords=passed, **known)
    left_out |= {name for name, value in changes.items() if value is None}
    keywords = {**launch.keywords, **changes}
    keywords = {name: value for name, value in keywords.items() if name not in left_out}
    return dataclasses.replace(asked, launch=dataclasses.replace(launch, keywords=keywords))


def aligned(asked: Asked, record: Record) -> Asked | None:
    """Return *asked* with integers and addresses rounded up to multiples of 16.

    None if its loads are as wide as possible, it has no predicted time to compare, or no argument
    can be rounded up without making it another problem.
    """
    load_bytes, launch = record.resources.load_bytes, asked.launch
    if load_bytes is None or load_bytes >= WIDEST_ACCESS or record.prediction is None:
        return None
    values = {
        name: rounded
        for name, value in record.arguments.items()
        if name not in {*record.constexprs, *launch.typical}
        and (rounded := _rounded(value)) != value
    }
    return _passing(asked, values) if values else None


def fewest_aligned(
    asked: Asked,
    record: Record,
    padded: Record,
    compiled: Callable[[Sequence[Asked]], Sequence[Record | Failed]],
) -> Record:
    """Return *padded*, which `aligned` made of *asked*, without the roundings that are not needed.

    A rounding is not needed if loads are as wide and the launch is as fast without it. *compiled*
    compiles and counts launches.
    """
    values = {
        name: value for name, value in padded.arguments.items() if value != record.arguments[name]
    }

    def without(*left: Sequence[str]) -> list[Record | None]:
        """Return the launch without each group of roundings; None for those that are worse."""
        kept = ({name: values[name] for name in values if name not in some} for some in left)
        launches = [_passing(asked, some) or asked for some in kept]
        most = predicted_us(padded) * ALIKE
        return [
            one
            if isinstance(one, Record)
            and (one.resources.load_bytes or 0) >= (padded.resources.load_bytes or 0)
            and predicted_us(one) <= most
            else None
            for one in compiled(launches)
        ]

    own = record.prediction
    if own is None or len(values) == 1 or predicted_us(padded) > own.us * (1 - own.noticeable):
        return padded
    alone = without(*([name] for name in values))
    needless = [name for name, one in zip(values, alone, strict=True) if one is not None]
    (found,) = without(needless) if needless else (None,)
    return found or padded


def _rounded(value: Any) -> Any:
    """Return an integer or an address rounded up so that Triton knows that 16 divides it."""
    if isinstance(value, Pointer):
        return dataclasses.replace(value, aligned=True)
    if type(value) is not int or value <= 1:
        return value
    up = -(-value // ALIGNMENT) * ALIGNMENT
    return up if up <= value * MOST_ROUNDED else value


def no_effect(record: Record, other: Record, name: str) -> str:
    """Say why another value of *name* gives the same binary; "" if the binary differs."""
    if record.resources.binary is None or record.resources != other.resources:
        return ""
    why = "the compiler generates the same code with another value"
    if name == "num_stages":
        why = _why_not_pipelined(record)
    elif name in CAPS:
        why = "the compiler stays below that limit by itself"
    return f"{name} has no effect on the binary: {why}."


def _why_not_pipelined(record: Record) -> str:
    target, loops = record.gpu.target, () if record.counts is None else record.counts.loops
    if record.resources.loop_instructions is None:
        return "no loop is left to pipeline"
    if target.backend == "cuda" and not target.copies_ahead:
        return f"{target.name} cannot copy ahead into shared memory"
    if loops and all(one.step is None for one in loops):
        return "Triton pipelines only `for` loops, and each loop of this kernel is a `while`"
    if record.resources.async_copies:
        return "the loop itself sets its number of stages, as with `tl.range(..., num_stages=)`"
    wide = " and are at least 4 B wide per thread" if target.backend == "cuda" else ""
    return (
        f"Triton pipelines only loads that feed `tl.dot`{wide}, unless the loop itself sets"
        " num_stages, as with `tl.range(..., num_stages=)`"
    )
