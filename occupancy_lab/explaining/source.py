"""`explain --source`: a kernel's own source, with what each line does, the most costly first."""

from __future__ import annotations

import ast
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.explaining.work import light_words
from occupancy_lab.files import read_bytes
from occupancy_lab.text.document import Answer, Document, Listing, Section, literal
from occupancy_lab.text.words import amount_words, byte_words, listed, microseconds, scaled
from occupancy_lab.work.counts import NOTHING, Amount, total
from occupancy_lab.work.memory import dot_tflops, other_tflops

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.work.counts import Access, Arithmetic, Counts, Executed, Place
    from occupancy_lab.work.memory import Memory

MOST_COSTLY = 5
"""The lines of the table of those that cost most."""
A_PART = 0.02
"""The share of the costliest line's cost from which on a line is one of them."""
LEAST_SHARE = 0.005
"""The share of the stall cycles from which on it is shown of a line."""
LONGEST_LINE = 200
"""Characters of a line of the source that are shown."""


@dataclass(frozen=True, slots=True)
class Text:
    """The source of a kernel: its lines, and the number of the first."""

    first: int
    lines: tuple[str, ...]

    @classmethod
    def of(
        cls, function: Any, name: str, lines: Sequence[Line], near: Path | None = None
    ) -> Text | None:
        """Return that of *function*, or else of the function *name* in the file of its *lines*.

        A file that is not there any more may be in the folder *near*. None where none is.
        """
        source = getattr(function, "raw_src", None)
        if source is not None:
            return cls(function.starting_line_number, tuple(one.rstrip() for one in source))
        files = [Path(lines[0].file)] if lines else []
        files += [near / one.name for one in files if near is not None]
        found = (_in_file(file, name, lines[0].number) for file in files)
        return next((one for one in found if one is not None), None)

    def line(self, number: int) -> str:
        """Return the line of that number; "" where it is none of these."""
        place = number - self.first
        return self.lines[place] if 0 <= place < len(self.lines) else ""


def _in_file(file: Path, name: str, number: int) -> Text | None:
    """Return the source of the function *name* that has line *number* of *file*."""
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
    """The JITFunction; None where this process has it not."""
    near: Path | None = None
    """A folder where the kernel's file may be, if it was elsewhere when it was compiled."""

    def to_document(self) -> Document:
        """Return the lines that cost most, and the whole source, for each GPU that differs."""
        title = f"{literal(self.name)}, on {listed([one.title for one in self.records])}"
        answer = [
            f"**{one.title}**: what its lines do is not known:"
            f" {literal(one.why_not_counted or 'nothing of its texts is at hand')}."
            if one.counts is None
            else f"**{one.title}**: the speed of light is {light_words(one)}."
            for one in self.records
            if one.counts is None or light_words(one) != "-"
        ]
        return Document(title, tuple(answer), tuple(self._sections()))

    def _sections(self) -> Iterator[Section]:
        alike: dict[str, list[Record]] = {}
        for record in self.records:
            if record.counts is not None:
                alike.setdefault(_same(lines_of(record)), []).append(record)
        for group in alike.values():
            lines = lines_of(group[0])
            costly = _costly(lines)
            text = Text.of(self.function, group[0].kernel, lines, self.near)
            gpus = f", {listed([one.title for one in group])}" if len(alike) > 1 else ""
            sentences = (
                *_order_sentences(costly, group[0]),
                *_register_sentences(group[0]),
                *_helper_sentences(costly),
            )
            if text is None:
                file = literal(lines[0].file) if lines else "its file"
                sentences += (f"Its source is not in {file}.",)
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
        """Return the page of each kernel, one after the other."""
        sections: list[Section] = []
        for view in self.views:
            page = view.to_document()
            sections += [Section(page.title, (), page.answer), *page.sections]
        return Document(f"{self.name}: what its kernels' lines do", (), tuple(sections))

    def to_dict(self) -> dict[str, Any]:
        """Return what the lines of each kernel do as plain values."""
        return {"script": self.name, "kernels": [view.to_dict() for view in self.views]}


def _same(lines: Sequence[Line]) -> str:
    """Return a text that is the same where lines do the same, however long that takes."""
    whole = (dataclasses.replace(one, least_us=0.0) for one in lines)
    return repr(sorted(whole, key=lambda one: (one.file, one.number)))


def lines_of(record: Record) -> tuple[Line, ...]:
    """Return what the lines of a launch do, the most costly first; none where it is not counted."""
    if record.counts is None or record.memory is None:
        return ()
    return by_line(record.counts, record.memory, record.gpu, record.executed)


def _costly(lines: Sequence[Line]) -> tuple[Line, ...]:
    if not lines:
        return ()
    enough = lines[0].cost * A_PART
    return tuple(one for one in lines[:MOST_COSTLY] if one.cost >= enough)


COLUMNS = ("bytes", "width", "FLOPs", "trips", "executed", "live", "spills", "stalls")
"""What a listing has of each line before the line itself."""
NARROW = ("", "line", "bytes", "live", "stalls")
"""Of these what a narrow terminal shows of the source, so that there is room for it."""


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
    """Return the costliest lines, with times by GPU; a narrow terminal has their source below."""
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
    """Return the source, each line with its number, what it does, and its place by cost."""
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
    """Return the header and each row as right-aligned cells, without the columns that are empty."""
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
        "The order is that of stalls: each line's share of the cycles for which warps stand at"
        " their instructions, those until results are there among them."
    )
    if record.gpu.vendor == "AMD":
        yield (
            f"The stalls of {record.title} rest on latencies that documents give; no AMD GPU has"
            " confirmed them."
        )


def _register_sentences(record: Record) -> Iterator[str]:
    """Say where most registers are live, which is why a thread takes so many."""
    fullest = None if record.executed is None else record.executed.fullest
    if fullest is not None:
        yield (
            "live is how many registers of a thread hold a value that is still needed there, at"
            f" most: {fullest.live} of the {record.resources.n_regs} that a thread takes, at line"
            f" {fullest.place.outermost.line}."
        )


def _helper_sentences(costly: Sequence[Line]) -> Iterator[str]:
    for line in costly:
        if line.helpers:
            what = literal(listed(line.helpers))
            yield f"What {what} does counts at line {line.number}, which calls it."


@dataclass(frozen=True, slots=True)
class Line:
    """What a launch does at a line of its kernel."""

    file: str
    number: int
    read: Amount
    """Bytes that loads and atomic operations of the line ask for."""
    written: Amount
    bytes: Amount
    """Bytes of both, those of an atomic operation once, as they go through the L2 cache."""
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
    """Return what each line does, the costliest first, with its share of the device memory."""
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
        computing = sum(_flop_us(one, gpu) for one in arithmetic)
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
                max(moving, computing),
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
    """Return the file of the kernel and the line in it that does what is done at *place*."""
    return place.outermost.file, place.outermost.line


def _distinct(access: Access) -> int:
    return access.unique_bytes.low if access.unique_bytes.high is None else access.unique_bytes.high


def _a_byte_us(moved: Amount | None, accesses: Sequence[Access], gpu: Gpu, *, reads: bool) -> float:
    """Return the time of device memory that a distinct byte of an access stands for."""
    chosen = (one for one in accesses if (one.reads if reads else one.writes))
    distinct = sum(map(_distinct, chosen))
    if moved is None or gpu.bandwidth_gbs is None or not distinct:
        return 0.0
    return moved.low / gpu.bandwidth_gbs / 1e3 / distinct


def _flop_us(one: Arithmetic, gpu: Gpu) -> float:
    rate = (dot_tflops if one.operation == "dot" else other_tflops)(gpu, one.dtype)
    return one.flops.low / rate / 1e6 if rate else 0.0
