"""The overview of a script's launches: their times, what bounds them, and their occupancy."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.arguments import Pointer
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.facts import SHORT_HEADERS, number_headers, numbers
from occupancy_lab.explaining.neighbours import first_of, have_times
from occupancy_lab.prediction import part_cell, time_lost
from occupancy_lab.text.document import Table, literal
from occupancy_lab.text.words import (
    cell,
    count,
    duration,
    formatted,
    known,
    percent,
    range_sentence,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from occupancy_lab.compiling.notes import ScriptLaunch
    from occupancy_lab.errors import CompileError, DoesNotFitError
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.launch import BoundLaunch
    from occupancy_lab.record import Record

    LaunchError = CompileError | DoesNotFitError


@dataclass(frozen=True, slots=True)
class ScriptLine:
    """A launch line of a script on one GPU, with the arguments that it passes."""

    first: ScriptLaunch
    """The first launch of the line."""
    run: Explanation | LaunchError
    """The dry run of its launches, or why none compiles and fits."""
    gpu: Gpu

    @property
    def name(self) -> str:
        """The kernel and the place of the line that launches it."""
        place = Path(self.first.place).name
        return f"{literal(self.first.bound.kernel)}, {literal(place)}"

    @property
    def record(self) -> Record | None:
        """The best of the line's configurations; None if none compiles and fits."""
        return first_of(self.run.records) if isinstance(self.run, Explanation) else None

    @property
    def time(self) -> KernelTime | None:
        """The predicted time of all launches of the line; None if there is none."""
        return KernelTime.predicted(self.record, self.first.times)

    @property
    def passed(self) -> dict[str, str]:
        """The arguments and options in which launches of one kernel may differ, by name."""
        bound = self.first.bound
        classes, found = argument_classes(bound), {}
        for name, value in bound.arguments.items():
            is_plain = name in bound.constexprs or value is None or isinstance(value, int | float)
            found[name] = str(value) if is_plain else classes.get(name, "")
            if type(value) is int and classes.get(name) == MULTIPLE:
                found[name] += f" ({MULTIPLE})"
        found |= {name: str(value) for name, value in bound.options.items()}
        return {name: said for name, said in found.items() if said and name not in self.first.tuned}


@dataclass(frozen=True, slots=True)
class Overview:
    """All launch lines of a script, GPU by GPU."""

    lines: tuple[ScriptLine, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number of each of `lines`; a line has the same number on each GPU."""
        seen: Counter[tuple[str, str]] = Counter()
        found: dict[tuple[str, int], int] = {}
        numbers = []
        for line in self.lines:
            seen[line.gpu.key, line.name] += 1
            which = line.name, seen[line.gpu.key, line.name]
            numbers.append(found.setdefault(which, len(found) + 1))
        return tuple(numbers)

    @property
    def names(self) -> tuple[str, ...]:
        """The distinct kernels with the lines that launch them."""
        return tuple(dict.fromkeys(line.name for line in self.lines))

    @property
    def is_single(self) -> bool:
        """Whether all is one launch, made once: its own page has everything about it."""
        return max(self.numbers) == 1 and all(
            line.first.times == 1 and isinstance(line.run, Explanation) for line in self.lines
        )

    def of_gpus(self) -> Iterator[tuple[Gpu, dict[int, ScriptLine], KernelTime | None]]:
        """Return each GPU with its lines by number, and their total time."""
        gpus = {line.gpu.key: line.gpu for line in self.lines}
        numbered = [*zip(self.numbers, self.lines, strict=True)]
        for gpu in gpus.values():
            lines = {number: line for number, line in numbered if line.gpu.key == gpu.key}
            yield gpu, lines, KernelTime.total(line.time for line in lines.values())

    def answer(self) -> Iterator[str]:
        """Say for each GPU how long all launches take, and which takes longest."""
        for gpu, lines, total in self.of_gpus():
            if total is None or len(lines) == 1:
                continue
            times = {number: line.time.us for number, line in lines.items() if line.time}
            most = max(times, key=times.__getitem__)
            of = sum(line.first.times for line in lines.values())
            part = "" if of == total.launches else f"{total.launches} of "
            yield (
                f"**{gpu.title}**: {duration(total.us)} ({total.limits}) are predicted for"
                f" {part}{count(of, 'launch')},"
                f" {percent(times[most] / total.us)} of that for launch {most},"
                f" {_kernel(lines[most])}."
            )

    def tables(self) -> Iterator[Table]:
        """Return the tables of several launches' times, occupancy and differences."""
        if self.is_single:
            return
        times = [
            (f"{number} {_kernel(line)}", gpu.key, str(line.first.times), *_times(line, total))
            for gpu, lines, total in self.of_gpus()
            for number, line in lines.items()
        ]
        headers = ("launch", "GPU", "launches", "us", "range", "lost us", "share", "bound")
        shown = len(headers) if any(line.time for line in self.lines) else 3
        yield Table(headers[:shown], tuple(row[:shown] for row in times))
        gpus = [line.gpu for line in self.lines]
        rows = (
            (str(number), *_occupancy_cells(line))
            for number, line in zip(self.numbers, self.lines, strict=True)
        )
        yield Table(("", "GPU", "programs", "waves", *number_headers(gpus)), tuple(rows))
        yield from self._apart()

    def _apart(self) -> Iterator[Table]:
        """Return a table of the launches' lines and arguments, if these are not all the same."""
        wanted = {"line": len(self.names) > 1, "what differs": False}
        rows: dict[int, dict[str, str]] = {}
        for _, lines, _ in self.of_gpus():
            passed: dict[str, list[dict[str, str]]] = {}
            for line in lines.values():
                passed.setdefault(_kernel(line), []).append(line.passed)
            for number, line in lines.items():
                differs = literal(apart(line.passed, passed[_kernel(line)]))
                rows.setdefault(number, {"line": line.name, "what differs": differs or "-"})
                wanted["what differs"] |= bool(differs)
        shown = [name for name in wanted if wanted[name]]
        if shown:
            cells = ((str(number), *(row[name] for name in shown)) for number, row in rows.items())
            yield Table(("", *shown), tuple(cells), prose=True)

    def sentences(self) -> Iterator[str]:
        """Explain the columns, and say which configurations the tables show."""
        if len(self.names) == 1:
            yield f"The launch line is {self.names[0]}."
        if any(line.time for line in self.lines) and not self.is_single:
            is_warm = any(
                line.record is not None and line.record.launch.warm for line in self.lines
            )
            cold = "" if is_warm else " after the L2 cache was emptied"
            yield (
                f"us is the predicted time of a launch{cold}, and range has the 10th and 90th"
                " percentile;"
                " lost us is the time of all launches beyond what their bytes and FLOPs allow at"
                " the rates of the GPU's data sheet; share is the part of the time of all launches;"
                " bound is the part that is predicted to take longest by itself."
            )
        by_number: dict[int, list[ScriptLine]] = {}
        for number, line in zip(self.numbers, self.lines, strict=True):
            by_number.setdefault(number, []).append(line)
        for number, lines in by_number.items():
            if words := _configurations(lines):
                yield f"Launch {number} is shown {words}."
        for line in self.lines:
            if not isinstance(line.run, Explanation):
                yield f"{line.name}: {literal(str(line.run))}."

    def basis(self) -> Iterator[str]:
        """Say for each GPU what the times rest on."""
        for gpu, lines, _ in self.of_gpus():
            records = (line.record for line in lines.values())
            found = next((one.prediction for one in records if one and one.prediction), None)
            if found is not None:
                yield range_sentence(gpu, found.basis, calibrated=found.calibrated)


def _kernel(line: ScriptLine) -> str:
    return literal(line.first.bound.kernel)


def _times(line: ScriptLine, total: KernelTime | None) -> tuple[str, ...]:
    """Return the cells of a line under us, range, lost us, share and bound."""
    time, record = line.time, line.record
    if time is None or total is None or record is None or record.prediction is None:
        return ("-",) * 5
    low, us, high = (cell(one / time.launches) for one in (time.low_us, time.us, time.high_us))
    share = percent(time.us / total.us) if total.us else "-"
    return us, f"{low} to {high}", cell(time.lost_us), share, part_cell(record.prediction.bound)


def _occupancy_cells(line: ScriptLine) -> tuple[str, ...]:
    record = line.record
    if record is None:
        return (line.gpu.key, *["-"] * (len(SHORT_HEADERS) + 2))
    waves = None if record.plan is None else record.plan.waves
    programs = known(record.launch.num_programs)
    return line.gpu.key, programs, formatted(waves, ".2f"), *numbers(record)


def _configurations(lines: Sequence[ScriptLine]) -> str:
    words = {}
    for line in lines:
        if isinstance(line.run, Explanation) and len(line.run.runs) > 1:
            warps = f"{line.gpu.architecture.warp_word}s"
            which = f"with the least local memory and then the most resident {warps}"
            if have_times(line.run.records):
                which = "that is predicted to be fastest"
            words[line.gpu.key] = f"in the one of {len(line.run.runs)} configurations {which}"
    if len({*words.values()}) > 1:
        return "; ".join(f"on {key} {said}" for key, said in words.items())
    return next(iter(words.values()), "")


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The total time of launches with known times, all measured or all predicted."""

    measured: bool
    launches: int
    low_us: float
    """The sum of the low ends of the predicted ranges; equal to `us` if measured."""
    us: float
    high_us: float
    known: int
    """How many of the launches have a speed of light."""
    light_us: float | None
    """The speed of light of those launches; of the most that they may do if that depends on values.
    None if there is none."""
    lost_us: float | None
    """The time of those launches beyond their speed of light, us; 0 if caches held their data."""

    @property
    def basis(self) -> str:
        """The word "measured" or "predicted"."""
        return "measured" if self.measured else "predicted"

    @property
    def limits(self) -> str:
        """The predicted range: "8.41 ms to 9.02 ms"."""
        return f"{duration(self.low_us)} to {duration(self.high_us)}"

    @classmethod
    def of(
        cls,
        times: tuple[float, float, float],
        record: Record | None,
        launches: int,
        *,
        measured: bool,
    ) -> KernelTime:
        """Return the time of *launches* like *record*; *times* are low, mean and high of one."""
        low, us, high = (launches * one for one in times)
        speed = None if record is None else record.speed_of_light
        least = None if speed is None else speed.most_us
        light = None if least is None else launches * least
        known = 0 if light is None else launches
        return cls(measured, launches, low, us, high, known, light, time_lost(us, light))

    @classmethod
    def predicted(cls, record: Record | None, launches: int) -> KernelTime | None:
        """Return the predicted time of *launches* like *record*; None if it has none."""
        found = None if record is None else record.prediction
        if found is None:
            return None
        times = (found.low_us, found.us, found.high_us)
        return cls.of(times, record, launches, measured=False)

    @classmethod
    def total(cls, times: Iterable[KernelTime | None]) -> KernelTime | None:
        """Return the sum of *times*, all measured or all predicted; None if there are none."""
        known = [one for one in times if one is not None]
        if not known:
            return None

        def added(name: str) -> Any:
            found = [getattr(one, name) for one in known if getattr(one, name) is not None]
            return sum(found) if found else None

        summed = {one.name: added(one.name) for one in dataclasses.fields(cls)}
        return cls(**{**summed, "measured": known[0].measured})


MULTIPLE, NO_MULTIPLE = "multiple of 16", "no multiple of 16"
"""The two classes into which Triton sorts integers other than 1; 0 is a multiple."""


def argument_classes(bound: BoundLaunch) -> dict[str, str]:
    """Return the dtype of each tensor, and whether each integer is 1 or a multiple of 16."""
    found = {}
    for name, value in bound.arguments.items():
        if name in bound.constexprs:
            continue
        if isinstance(value, Pointer):
            found[name] = f"{value.dtype}{'' if value.aligned else ' unaligned'}"
        elif type(value) is int:  # Triton does not specialize on the value of a bool
            found[name] = "1" if value == 1 else NO_MULTIPLE if value % 16 else MULTIPLE
    return found


def together(classes: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the class of each argument in launches that compile to one kernel: "not 1"."""
    found = {name: {one.get(name, said) for one in classes} for name, said in classes[0].items()}
    numbers = {frozenset({MULTIPLE, NO_MULTIPLE}): "not 1"}
    return {
        name: numbers.get(frozenset(said), " or ".join(sorted(said)))
        for name, said in found.items()
    }


def apart(own: Mapping[str, str], others: Iterable[Mapping[str, str]]) -> str:
    """Return the entries of *own* that differ in any of *others*: "n multiple of 16"."""
    found = [*others]
    return ", ".join(
        f"{name} {value}"
        for name, value in own.items()
        if any(one.get(name) != value for one in found)
    )
