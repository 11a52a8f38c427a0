"""The overview of a script's launches: what each takes, what bounds it, and how it sits."""

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
from occupancy_lab.prediction import time_lost
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
    """A launch line on one GPU, with what it passes."""

    first: ScriptLaunch
    """Its first launch."""
    run: Explanation | LaunchError
    """What became of its launches."""
    gpu: Gpu

    @property
    def name(self) -> str:
        """The kernel and the line that launches it."""
        place = Path(self.first.place).name
        return f"{literal(self.first.bound.kernel)}, {literal(place)}"

    @property
    def record(self) -> Record | None:
        """That of several configurations which comes first; None where none compiles and fits."""
        return first_of(self.run.records) if isinstance(self.run, Explanation) else None

    @property
    def time(self) -> KernelTime | None:
        """The predicted time of all its launches; None where it is open."""
        return KernelTime.predicted(self.record, self.first.times)

    @property
    def passed(self) -> dict[str, str]:
        """What it passes that may be other elsewhere, by name."""
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
    """All launch lines of a script on each GPU, GPU after GPU."""

    lines: tuple[ScriptLine, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number of each of `lines`, which is the same on each GPU."""
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
        """Each kernel with the line that launches it."""
        return tuple(dict.fromkeys(line.name for line in self.lines))

    def of_gpus(self) -> Iterator[tuple[Gpu, dict[int, ScriptLine], KernelTime | None]]:
        """Return for each GPU its lines by their numbers, and the time of all of them."""
        gpus = {line.gpu.key: line.gpu for line in self.lines}
        numbered = [*zip(self.numbers, self.lines, strict=True)]
        for gpu in gpus.values():
            lines = {number: line for number, line in numbered if line.gpu.key == gpu.key}
            yield gpu, lines, KernelTime.total(line.time for line in lines.values())

    def answer(self) -> Iterator[str]:
        """Say of each GPU how long all launches take, and which takes most."""
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
        """Return the times of the launches, how they sit, and what sets them apart."""
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
            (str(number), *_sits(line))
            for number, line in zip(self.numbers, self.lines, strict=True)
        )
        yield Table(("", "GPU", "programs", "waves", *number_headers(gpus)), tuple(rows))
        yield from self._apart()

    def _apart(self) -> Iterator[Table]:
        """Return the line of each launch, and what it passes, where these are not all the same."""
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
        """Say which line it is where there is one, and which configurations are shown."""
        if len(self.names) == 1:
            yield f"The launch line is {self.names[0]}."
        if any(line.time for line in self.lines):
            yield (
                "us is the predicted time of a launch, range what eight in ten such launches take;"
                " lost us the time of all launches above what their bytes and FLOPs allow at the"
                " rates of the GPU's data sheet; share that of the time of all; bound what is"
                " predicted to take longest by itself."
            )
        by_number: dict[int, list[ScriptLine]] = {}
        for number, line in zip(self.numbers, self.lines, strict=True):
            by_number.setdefault(number, []).append(line)
        for number, lines in by_number.items():
            if words := _configurations(lines):
                yield f"Launch {number} is {words}."
        for line in self.lines:
            if not isinstance(line.run, Explanation):
                yield f"{line.name}: {literal(str(line.run))}."

    def basis(self) -> Iterator[str]:
        """Say of each GPU what the times rest on."""
        for gpu, lines, _ in self.of_gpus():
            records = (line.record for line in lines.values())
            found = next((one.prediction for one in records if one and one.prediction), None)
            if found is not None:
                yield range_sentence(gpu, found.basis, calibrated=found.calibrated)


def _kernel(line: ScriptLine) -> str:
    return literal(line.first.bound.kernel)


def _times(line: ScriptLine, total: KernelTime | None) -> tuple[str, ...]:
    """Return the time of a launch, its range, what all lose, their share of *total*, the bound."""
    time, record = line.time, line.record
    if time is None or total is None or record is None or record.prediction is None:
        return ("-",) * 5
    low, us, high = (cell(one / time.launches) for one in (time.low_us, time.us, time.high_us))
    share = percent(time.us / total.us) if total.us else "-"
    return us, f"{low} to {high}", cell(time.lost_us), share, record.prediction.bound


def _sits(line: ScriptLine) -> tuple[str, ...]:
    record = line.record
    if record is None:
        return (line.gpu.key, *["-"] * (len(SHORT_HEADERS) + 2))
    waves = None if record.plan is None else record.plan.waves
    programs = known(record.launch.num_programs)
    return line.gpu.key, programs, formatted(waves, ".2f"), *numbers(record)


def _configurations(lines: Sequence[ScriptLine]) -> str:
    """Say which of a line's configurations its row shows on each GPU; "" where it has one only."""
    words = {}
    for line in lines:
        if isinstance(line.run, Explanation) and len(line.run.runs) > 1:
            warps = f"{line.gpu.architecture.warp_word}s"
            which = f"with least local memory and then most {warps} resident"
            if have_times(line.run.records):
                which = "that is predicted to take least"
            words[line.gpu.key] = f"of {len(line.run.runs)} configurations the one {which}"
    if len({*words.values()}) > 1:
        return "; ".join(f"on {key} {said}" for key, said in words.items())
    return next(iter(words.values()), "")


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The time of all launches of which it is known: all measured, or all predicted."""

    measured: bool
    launches: int
    low_us: float
    """The least that is predicted of them, one after the other; measured, `us` itself."""
    us: float
    high_us: float
    known: int
    """How many of the launches have a speed of light."""
    light_us: float | None
    """The speed of light of those, of all that they may do where values steer that; None where
    there is none."""
    lost_us: float | None
    """The time of those above it, us. It is 0 where caches had what they read."""

    @property
    def basis(self) -> str:
        """What the time is, in a word."""
        return "measured" if self.measured else "predicted"

    @property
    def limits(self) -> str:
        """The least and the most that is predicted: "8.41 ms to 9.02 ms"."""
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
        """Return that of *launches* like *record*; *times* are the least, mean and most of one."""
        low, us, high = (launches * one for one in times)
        speed = None if record is None else record.speed_of_light
        least = None if speed is None else speed.most_us
        light = None if least is None else launches * least
        known = 0 if light is None else launches
        return cls(measured, launches, low, us, high, known, light, time_lost(us, light))

    @classmethod
    def predicted(cls, record: Record | None, launches: int) -> KernelTime | None:
        """Return the predicted time of so many *launches* as *record* is; None where it is open."""
        found = None if record is None else record.prediction
        if found is None:
            return None
        times = (found.low_us, found.us, found.high_us)
        return cls.of(times, record, launches, measured=False)

    @classmethod
    def total(cls, times: Iterable[KernelTime | None]) -> KernelTime | None:
        """Return the sum of *times*, which are all measured or all predicted; None of none."""
        known = [one for one in times if one is not None]
        if not known:
            return None

        def added(name: str) -> Any:
            found = [getattr(one, name) for one in known if getattr(one, name) is not None]
            return sum(found) if found else None

        summed = {one.name: added(one.name) for one in dataclasses.fields(cls)}
        return cls(**{**summed, "measured": known[0].measured})


MULTIPLE, NO_MULTIPLE = "multiple of 16", "no multiple of 16"
"""What Triton distinguishes of a whole number that is not 1; 0 is a multiple."""


def argument_classes(bound: BoundLaunch) -> dict[str, str]:
    """Return the dtype of each tensor, and of each integer whether it is 1 or a multiple of 16."""
    found = {}
    for name, value in bound.arguments.items():
        if name in bound.constexprs:
            continue
        if isinstance(value, Pointer):
            found[name] = f"{value.dtype}{'' if value.aligned else ' unaligned'}"
        elif type(value) is int:  # of a bool nothing is distinguished
            found[name] = "1" if value == 1 else NO_MULTIPLE if value % 16 else MULTIPLE
    return found


def together(classes: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return what each argument is in launches that compile to one kernel: "not 1"."""
    found = {name: {one.get(name, said) for one in classes} for name, said in classes[0].items()}
    numbers = {frozenset({MULTIPLE, NO_MULTIPLE}): "not 1"}
    return {
        name: numbers.get(frozenset(said), " or ".join(sorted(said)))
        for name, said in found.items()
    }


def apart(own: Mapping[str, str], others: Iterable[Mapping[str, str]]) -> str:
    """Return what is said in *own* that any of *others* has otherwise: "n multiple of 16"."""
    alike = [*others]
    return ", ".join(
        f"{name} {said}"
        for name, said in own.items()
        if any(one.get(name) != said for one in alike)
    )
