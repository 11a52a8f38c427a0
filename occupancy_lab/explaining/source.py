"""`explain --source`: a kernel's source with what each line does, and the most costly lines."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_lab.explaining.work import light_words
from occupancy_lab.files import read_bytes
from occupancy_lab.gpus import Gpu
from occupancy_lab.prediction import part_words
from occupancy_lab.record import Record
from occupancy_lab.text.document import Answer, Document, Listing, Section, literal
from occupancy_lab.text.words import amount_words, byte_words, listed, microseconds, percent, scaled
from occupancy_lab.work.counts import (
    NOTHING,
    SECTOR,
    Access,
    Amount,
    Arithmetic,
    Counts,
    Place,
    total,
)
from occupancy_lab.work.execution import Executed
from occupancy_lab.work.memory import Memory
from occupancy_lab.work.speed_of_light import dot_tflops, other_tflops

MOST_COSTLY = 5
"""How many lines the table of the costliest lines has at most."""
A_PART = 0.02
"""The smallest share of the costliest line's cost with which a line is in that table."""
LEAST_SHARE = 0.005
"""The smallest share of the stall cycles that is shown."""
MOST_OF_IT = 0.4
"""The share of a unit's work with which a line is named as the one that keeps it busy."""
LONGEST_LINE = 200
"""How many characters of a source line are shown."""


@dataclass(frozen=True, slots=True)
class Text:
    """The source of a kernel: its lines, and the number of the first."""

    first: int
    lines: tuple[str, ...]

    @classmethod
    def of(
        cls, function: Any, name: str, lines: Sequence[Line], near: Path | None = None
    ) -> Text | None:
        """Return the source of *function*, or else of function *name* in the file of its *lines*.

        If that file is gone, it is looked for in the folder *near*. None if no source is found.
        """
        source = getattr(function, "raw_src", None)
        if source is not None:
            return cls(function.starting_line_number, tuple(one.rstrip() for one in source))
        files = [Path(lines[0].file)] if lines else []
        files += [near / one.name for one in files if near is not None]
        found = (_in_file(file, name, lines[0].number) for file in files)
        return next((one for one in found if one is not None), None)

    def line(self, number: int) -> str:
        """Return the line with this number; "" if the source does not have it."""
        place = number - self.first
        return self.lines[place] if 0 <= place < len(self.lines) else ""


def _in_file(file: Path, name: str, number: int) -> Text | None:
    try:
        text = read_bytes(file).decode()
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.name != name or node.end_lineno is None:
            continue
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        if first <= number <= node.end_lineno:
            lines = text.splitlines()[first - 1 : node.end_lineno]
            return Text(first, tuple(one.rstrip() for one in lines))
    return None


@dataclass(frozen=True, slots=True, repr=False)
class SourceView(Answer):
    """A kernel's source with what each line of it does, on one or several GPUs."""

    records: tuple[Record, ...]
    """The launch on each GPU."""
    name: str
    function: Any = None
    """The JITFunction; None if this process does not have it."""
    near: Path | None = None
    """A folder that may have the kernel's file if the file has moved since the compile."""
    chosen: tuple[str, ...] = ()
    """A sentence for each GPU on which of several configurations is shown."""

    def to_document(self) -> Document:
        """Return the costliest lines and the whole source, once for GPUs that agree."""
        title = f"{literal(self.name)}, on {listed([one.title for one in self.records])}"
        answer = [*self.chosen]
        answer += [
            f"**{one.title}**: it is not known what the lines do:"
            f" {literal(one.why_not_counted or 'none of the compiled texts is at hand')}."
            if one.counts is None
            else f"**{one.title}**: the speed of light is {light_words(one)}."
            for one in self.records
            if one.counts is None or light_words(one) != "-"
        ]
        return Document(title, tuple(answer), tuple(self._sections()))

    def _sections(self) -> Iterator[Section]:
        groups: dict[str, list[Record]] = {}
        for record in self.records:
            if record.counts is not None:
                groups.setdefault(_work_key(lines_of(record)), []).append(record)
        for group in groups.values():
            lines = lines_of(group[0])
            costly = [one for one in lines[:MOST_COSTLY] if one.cost >= lines[0].cost * A_PART]
            text = Text.of(self.function, group[0].kernel, lines, self.near)
            gpus = f", {listed([one.title for one in group])}" if len(groups) > 1 else ""
            sentences = (
                *_order_sentences(costly, group[0]),
                *_bound_sentences(lines, group[0]),
                *_column_sentences(costly, group[0]),
                *(
                    f"The work of {literal(listed(line.helpers))} is counted at line {line.number},"
                    " which calls it."
                    for line in costly
                    if line.helpers
                ),
            )
            if text is None:
                file = literal(lines[0].file) if lines else "its file"
                sentences += (f"The kernel's source is not in {file}.",)
            yield Section(
                f"The lines that cost most{gpus}",
                sentences=sentences,
                listings=(_costly_listing(costly, text, group),),
            )
            if text is not None:
                listing = _source_listing(lines, costly, text)
                yield Section(f"The source{gpus}", listings=(listing,))

    def to_dict(self) -> dict[str, Any]:
        """Return the lines of each launch as plain values."""
        return {
            "kernel": self.name,
            "lines": [
                {"gpu": one.gpu.key, **line.to_dict()}
                for one in self.records
                for line in lines_of(one)
            ],
        }


@dataclass(frozen=True, slots=True, repr=False)
class SourceViews(Answer):
    """The sources of the kernels that a program launches."""

    name: str
    views: tuple[SourceView, ...]

    def to_document(self) -> Document:
        """Return the pages of all kernels as one."""
        sections: list[Section] = []
        for view in self.views:
            page = view.to_document()
            sections += [Section(page.title, (), page.answer), *page.sections]
        return Document(f"{self.name}: what its kernels' lines do", (), tuple(sections))

    def to_dict(self) -> dict[str, Any]:
        """Return what each kernel's lines do as plain values."""
        return {"script": self.name, "kernels": [view.to_dict() for view in self.views]}


def _work_key(lines: Sequence[Line]) -> str:
    """Return a text that is equal for lines that do the same work, whatever their times."""
    whole = (dataclasses.replace(one, least_us=0.0) for one in lines)
    return repr(sorted(whole, key=lambda one: (one.file, one.number)))


def lines_of(record: Record) -> tuple[Line, ...]:
    """Return what each line of a launch does, the most costly first; () if it is not counted."""
    if record.counts is None or record.memory is None:
        return ()
    return by_line(record.counts, record.memory, record.gpu, record.executed)


COLUMNS = ("bytes", "width", "FLOPs", "trips", "executed", "live", "spills", "stalls")
"""The columns of a listing before the source line."""
NARROW = ("", "line", "bytes", "live", "stalls")
"""The columns before the source in a narrow terminal."""


def _cells(line: Line) -> tuple[str, ...]:
    return (
        _words(line.bytes, byte_words),
        f"{', '.join(map(str, line.thread_bytes))} B" if line.thread_bytes else "",
        _words(line.flops, scaled),
        "" if line.trips is None else _words(line.trips, scaled),
        "" if line.instructions is None else _words(line.instructions, scaled),
        str(line.live_registers) if line.live_registers else "",
        "" if line.local_bytes is None else _words(line.local_bytes, byte_words),
        f"{line.stall_share:.0%}" if (line.stall_share or 0.0) >= LEAST_SHARE else "",
    )


def _words(amount: Amount, words: Any) -> str:
    return "" if amount == NOTHING else amount_words(amount.low, amount.high, words)


def _costly_listing(costly: Sequence[Line], text: Text | None, group: Sequence[Record]) -> Listing:
    """Return the costliest lines with their time on each GPU.

    In a narrow terminal the source is below each line.
    """
    times = [{(one.file, one.number): one.least_us for one in lines_of(each)} for each in group]
    headers = [f"on {one.title}" for one in group] if len(group) > 1 else ["least time"]
    rows = [
        (
            f"#{place}",
            str(line.number),
            *_cells(line),
            *(
                microseconds(us) if (us := of_gpu[line.file, line.number]) else ""
                for of_gpu in times
            ),
        )
        for place, line in enumerate(costly, start=1)
    ]
    sources = ["" if text is None else text.line(one.number).strip() for one in costly]
    header, *found = _aligned(("", "line", *COLUMNS, *headers), rows)
    below = [f"    {source}" for source in sources]
    narrow = [line for pair in zip(found, below, strict=True) for line in pair if line.strip()]
    return Listing(tuple(_beside([header, *found], ["", *sources])), (header, *narrow))


def _source_listing(lines: Sequence[Line], costly: Sequence[Line], text: Text) -> Listing:
    known = {one.number: one for one in lines}
    marks = {one.number: f"#{place}" for place, one in enumerate(costly, start=1)}
    rows = [
        (
            marks.get(number, ""),
            str(number),
            *(_cells(known[number]) if number in known else ("",) * len(COLUMNS)),
        )
        for number in range(text.first, text.first + len(text.lines))
    ]
    headers, sources = ("", "line", *COLUMNS), ("", *text.lines)
    places = [headers.index(name) for name in NARROW]
    few = _aligned(NARROW, [tuple(row[place] for place in places) for row in rows])
    wide = _aligned(headers, rows)
    return Listing(tuple(_beside(wide, sources)), tuple(_beside(few, sources)))


def _aligned(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the header and rows with right-aligned cells, without empty columns."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    shown = [place for place in range(len(headers)) if any(row[place] for row in rows)]
    return [
        "  ".join(cells[place].rjust(widths[place]) for place in shown)
        for cells in (headers, *rows)
    ]


def _beside(numbers: Sequence[str], sources: Sequence[str]) -> Iterator[str]:
    for before, source in zip(numbers, sources, strict=True):
        yield f"{before}  {source[:LONGEST_LINE]}".rstrip()


def _order_sentences(costly: Sequence[Line], record: Record) -> Iterator[str]:
    if not costly or costly[0].stall_share is None:
        return
    yield (
        "The order is that of stalls: each line's share of the cycles that warps spend at its"
        " instructions, including the wait for their results."
    )
    if record.gpu.vendor == "AMD":
        yield (
            f"The stalls of {record.title} rest on documented latencies, which have not been"
            " confirmed on an AMD GPU."
        )


def _bound_sentences(lines: Sequence[Line], record: Record) -> Iterator[str]:
    """Name the line that keeps the unit busy which bounds the launch, unless it is the first."""
    bound = None if record.prediction is None else record.prediction.bound
    counts = record.counts
    if bound is None or counts is None or len(lines) < 2:  # noqa: PLR2004 - another one
        return
    shares: dict[int, float] = {}
    moves = bound in {"bandwidth", "l2"}
    if moves:
        for access in counts.accesses:
            line = access.place.outermost.line
            shares[line] = shares.get(line, 0.0) + access.sectors.typical * SECTOR
    elif bound in {"issue", "alu", "fma", "uniform"}:
        shares = {one.number: one.instructions.typical for one in lines if one.instructions}
    whole = sum(shares.values())
    most = max(shares, key=shares.__getitem__, default=None)
    if most is None or most == lines[0].number or shares[most] < MOST_OF_IT * whole:
        return
    part = (
        f"{byte_words(round(shares[most]))} of the {byte_words(round(whole))} of whole sectors"
        if moves
        else f"{percent(shares[most] / whole)} of the instructions"
    )
    yield f"Most of the time goes to {part_words(bound)}; line {most} has {part}."


def _column_sentences(costly: Sequence[Line], record: Record) -> Iterator[str]:
    """Say what bytes, the least time and live registers are, and why columns are left out."""
    if costly:
        yield (
            "bytes are what programs ask for, from caches too; the least time is that of the line's"
            " part of the device memory traffic, or of its FLOPs if that is longer."
        )
    if record.executed is None and record.why_not_executed is not None:
        yield (
            f"{literal(record.why_not_executed)} So the columns width, executed, live, spills and"
            " stalls are left out."
        )
    fullest = None if record.executed is None else record.executed.fullest
    if fullest is not None:
        yield (
            "live is the largest number of a thread's registers that hold a value still needed at"
            f" the line; the maximum is {fullest.live} of the {record.resources.n_regs} that a"
            f" thread takes, at line {fullest.place.outermost.line}."
        )


@dataclass(frozen=True, slots=True)
class Line:
    """What a launch does at one line of its kernel."""

    file: str
    number: int
    read: Amount
    """Bytes that the line's loads and atomic operations ask for."""
    written: Amount
    bytes: Amount
    """Bytes read and written, those of an atomic operation once, as they go through the L2."""
    flops: Amount
    trips: Amount | None
    """Iterations of the loop that the line begins; None if it begins none."""
    least_us: float
    """The least time for the line's part of the device memory traffic or for its FLOPs of one
    dtype, whichever is longest, as in the speed of light."""
    instructions: Amount | None = None
    """Instructions that warps execute for the line; None if not known."""
    stall_share: float | None = None
    """The line's share of `ExecutedLine.cycles`."""
    thread_bytes: tuple[int, ...] = ()
    """The widths in bytes per thread of the line's global loads and stores, ascending."""
    local_bytes: Amount | None = None
    """Bytes of local memory that the line moves, as by spills; None if not known."""
    live_registers: int | None = None
    """The largest number of a thread's live registers at the line; None if not known."""
    helpers: tuple[str, ...] = ()
    """The lines of helper functions whose work is counted here, as "file.py:12"."""

    @property
    def cost(self) -> float:
        """The key by which lines are ordered: `stall_share`, or `least_us` without one."""
        return self.least_us if self.stall_share is None else self.stall_share

    def to_dict(self) -> dict[str, Any]:
        """Return the line as plain values."""
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
    """Return what each line does, the costliest first."""
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
        places.setdefault(_line(place), []).append(place)
    reads = _a_byte_us(memory.once_read_bytes, counts.accesses, gpu, reads=True)
    writes = _a_byte_us(memory.once_written_bytes, counts.accesses, gpu, reads=False)
    found = []
    for line, here in places.items():
        accesses = [one for one in counts.accesses if _line(one.place) == line]
        arithmetic = [one for one in counts.arithmetic if _line(one.place) == line]
        loops = [one.trips for one in counts.loops if _line(one.place) == line]
        moving = sum(_distinct(one) * (reads * one.reads + writes * one.writes) for one in accesses)
        computing: dict[tuple[bool, str], float] = {}
        for one in arithmetic:
            unit = (one.operation == "dot", one.dtype)
            computing[unit] = computing.get(unit, 0.0) + _flop_us(one, gpu)
        ran = [one for one in run if _line(one.place) == line]
        stalled = sum(one.cycles for one in ran)
        widths = {one.thread_bytes for one in asked if _line(one.place) == line}
        inside = sorted({(one.file, one.line) for one in here if one.called_from})
        found.append(
            Line(
                *line,
                total(one.bytes for one in accesses if one.reads),
                total(one.bytes for one in accesses if one.writes),
                total(one.bytes for one in accesses),
                total(one.flops for one in arithmetic),
                sum(loops[1:], loops[0]) if loops else None,
                max([moving, *computing.values()]),
                None if executed is None else total(one.instructions for one in ran),
                stalled / cycles if cycles else None,
                tuple(sorted(widths)),
                None if executed is None else total(one.local_bytes for one in ran),
                max((one.live for one in ran), default=None),
                tuple(f"{file.rpartition('/')[2]}:{number}" for file, number in inside),
            )
        )
    found.sort(key=lambda one: (-one.cost, -one.least_us, -one.bytes.low, -one.flops.low))
    return tuple(found)


def _line(place: Place) -> tuple[str, int]:
    return place.outermost.file, place.outermost.line


def _distinct(access: Access) -> int:
    return access.unique_bytes.low if access.unique_bytes.high is None else access.unique_bytes.high


def _a_byte_us(moved: Amount | None, accesses: Sequence[Access], gpu: Gpu, *, reads: bool) -> float:
    """Return the time of device memory per distinct byte of an access."""
    chosen = (one for one in accesses if (one.reads if reads else one.writes))
    distinct = sum(map(_distinct, chosen))
    if moved is None or gpu.bandwidth_gbs is None or not distinct:
        return 0.0
    return moved.low / gpu.bandwidth_gbs / 1e3 / distinct


def _flop_us(one: Arithmetic, gpu: Gpu) -> float:
    rate = (dot_tflops if one.operation == "dot" else other_tflops)(gpu, one.dtype)
    return one.flops.low / rate / 1e6 if rate else 0.0
