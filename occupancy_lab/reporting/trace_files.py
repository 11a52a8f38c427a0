"""The files of a trace besides its page: roofline, timeline and report."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import triton_version
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.errors import InputError, refuse
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.duration import the_duration
from occupancy_lab.explaining.kernel_time import KernelTime
from occupancy_lab.explaining.short import limits_with_bars, the_launch_in_short
from occupancy_lab.explaining.source import SourceView
from occupancy_lab.files import HTML, check_outputs, check_page, check_picture, export
from occupancy_lab.plotting.style import save, svg_text
from occupancy_lab.reporting.contents import picture_folder, trace_page, write_markdown
from occupancy_lab.reporting.page import Chapter, Page, Part, Picture
from occupancy_lab.reporting.roofline import draw_trace
from occupancy_lab.text import document
from occupancy_lab.text.document import Bullets, Section, literal
from occupancy_lab.text.words import as_sentence, cell, count, duration, microseconds, percent
from occupancy_lab.tracing.actions import MOST_EXPLAINED
from occupancy_lab.tracing.page import configuration
from occupancy_lab.tracing.traced import Launched, TracedKernel

if TYPE_CHECKING:
    from occupancy_lab.tracing.trace import Trace


@dataclass(frozen=True, slots=True)
class TraceFiles:
    """The paths of the files to write; None for files that are not wanted."""

    plot: str | None = None
    """The picture of the roofline."""
    report: str | None = None
    """The report as markdown or HTML."""
    timeline: str | None = None
    """The launches one after another as a Chrome trace."""

    def check(self, output: str | None, gpu: str | None) -> None:
        """Raise InputError, before a program is run, if a file cannot be written.

        *output* is the path of the page, and *gpu* names the GPU, or several with commas.
        """
        if self.report is not None:
            check_page(self.report)
        wanted = {"--plot": self.plot, "--report": self.report, "--timeline": self.timeline}
        pictures = {}
        if self.report is not None and Path(self.report).suffix.lower() not in HTML:
            pictures["the folder of pictures"] = picture_folder(Path(self.report))
        check_outputs({"--output": output, **wanted}, pictures=pictures)
        if self.plot is not None:
            check_picture(self.plot)
        given = [option for option, path in wanted.items() if path is not None]
        if given and gpu is not None and "," in gpu:
            refuse(f"{given[0]} takes one GPU, and --gpu names several")

    def write(self, found: Trace) -> None:
        """Write the files of *found*; raise InputError if a file or the roofline is impossible."""
        if self.plot is not None:
            save(draw_trace(found.found), Path(self.plot))
        if self.report is not None:
            page, path = make_trace_report(found), Path(self.report)
            if path.suffix.lower() in HTML:
                export(path, to_html(page))
            else:
                write_markdown(page, path)
        if self.timeline is not None:
            export(Path(self.timeline), json.dumps(timeline(found)))


MOST_SHOWN = 4096
"""How many launches a timeline has if their order is not known."""


def timeline(found: Trace) -> dict[str, Any]:
    """Return the last launches of each process, one after another, as the values of a JSON file.

    A launch takes the mean measured time of its kernel and grid or, if nothing was measured at all,
    the predicted time. A launch without such a time is a mark. The time between launches, of the
    host or of other kernels, is left out.
    """
    launches = found.found.recent or tuple(_in_any_order(found))
    measured = any(one.grid.us is not None for one in launches)
    basis = "measured" if measured else "predicted"
    events: list[dict[str, Any]] = []
    for pid, group in itertools.groupby(launches, key=lambda one: one.pid):
        events += _of_process(pid, group, found, basis=basis)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "times": f"{basis}, a mean of each kernel and grid",
            "order": "as launched" if found.found.recent else "not known: kernel after kernel",
        },
    }


def _in_any_order(found: Trace) -> Iterator[Launched]:
    """Return up to MOST_SHOWN launches, kernel by kernel."""
    each = (
        Launched(kernel, grid, 0)
        for kernel in found.found.shown
        for grid in kernel.grids
        for _ in range(min(grid.launches, MOST_SHOWN))
    )
    return itertools.islice(each, MOST_SHOWN)


def _of_process(
    pid: int, launches: Iterable[Launched], found: Trace, *, basis: str
) -> Iterator[dict[str, Any]]:
    program = "" if found.outcome is None else shlex.join(found.outcome.command)
    name = {"name": f"{program or 'launches'}, {basis}"}
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": name}
    at = 0.0
    for one in launches:
        time = one.grid.measured if basis == "measured" else one.grid.predicted
        event: dict[str, Any] = {
            "name": one.kernel.kernel,
            "cat": basis,
            "pid": pid,
            "tid": 0,
            "ts": at,
            "args": _arguments(one),
        }
        if time is None or not time.launches:
            yield {**event, "ph": "i", "s": "t", "name": f"{one.kernel.kernel}: no time is known"}
            continue
        us = time.us / time.launches
        yield {**event, "ph": "X", "dur": us}
        at += us


def _arguments(one: Launched) -> dict[str, Any]:
    """Return what Perfetto shows of a selected launch, without unknown values."""
    record = one.grid.record
    prediction = None if record is None else record.prediction
    light = None if record is None else record.speed_of_light
    values = {
        "grid": None if one.grid.grid is None else "x".join(map(str, one.grid.grid)),
        "configuration": configuration(one.kernel),
        "speed_of_light_us": None if light is None else light.exact_us,
        "predicted_us": None if prediction is None else prediction.us,
        "bound": None if prediction is None else prediction.bound,
    }
    return {name: value for name, value in values.items() if value is not None}


ADDRESS = re.compile(r'<img alt="[^"]*" src="picture:([\w-]+)">')
"""An HTML image that is replaced by a picture."""


def make_trace_report(found: Trace) -> Page:
    """Return the report of a trace, of a dry run or of a program that launched kernels."""
    page = found.to_document()
    shown, notes, chapters = found.found.shown, [*page.notes], []
    try:
        figure = draw_trace(found.found)
    except InputError as error:
        notes.append(as_sentence(str(error)))
    else:
        picture = Picture("roofline", f"A roofline: {figure.get_suptitle()}", lambda: figure)
        chapters.append(Chapter("Under the roofs of the GPU", (picture,)))
    times = [one.time for one in shown if one.time is not None]
    total = KernelTime.total([one for one in times if one.measured] or times)
    words = () if found.outcome is None else found.outcome.command
    near = next((Path(word).parent for word in words if word.endswith(".py")), None)
    versions = (one.triton for one in found.found.processes)
    triton = next(filter(None, versions), None) or triton_version()
    for number, one in enumerate(shown[:MOST_EXPLAINED], 1):
        parts = _explained(one, total, near, triton)
        blocks = tuple(_without(notes, part) for part in parts)
        chapters.append(Chapter(f"{number} {literal(one.kernel)}", blocks))
    if len(shown) > MOST_EXPLAINED:
        notes.append(f"Of {len(shown)} kernels, the {MOST_EXPLAINED} that lose most are explained.")
    return trace_page(page, chapters, tuple(notes))


def _without(notes: Sequence[str], part: Part) -> Part:
    """Return *part* without the sentences of *notes*, which the page has at its end."""
    if not isinstance(part, Section):
        return part
    return dataclasses.replace(
        part, sentences=tuple(one for one in part.sentences if one not in notes)
    )


def _explained(
    kernel: TracedKernel, total: KernelTime | None, near: Path | None, triton: str
) -> Iterator[Part]:
    """Return a kernel's lost time, its launch, lines that cost most, time and limits."""
    yield Bullets(tuple(_sentences(kernel, total)))
    calculation, record = kernel.calculation, kernel.record
    if calculation is None or record is None:
        if calculation is not None:
            yield limits_with_bars((calculation,))
        return
    if not kernel.lines:  # a trace has all options of the binary, whoever chose them
        usual = default_options(record.gpu.target)
        record = dataclasses.replace(
            record,
            arguments={**kernel.constexprs, **record.arguments},
            constexprs=tuple(kernel.constexprs),
            options={name: one for name, one in record.options.items() if one != usual.get(name)},
            usual_options=usual,
            triton_version=triton,
        )
    case = Case(record)
    yield the_launch_in_short([case])
    yield from SourceView((record,), kernel.kernel, near=near).to_document().sections[:1]
    if record.prediction is not None:
        yield the_duration((case,))
    yield limits_with_bars((calculation,))


def _sentences(kernel: TracedKernel, total: KernelTime | None) -> Iterator[str]:
    time = kernel.time
    if time is None or total is None or time.measured != total.measured or not time.launches:
        yield f"No time is known for its {count(kernel.launches, 'launch')}."
    else:
        takes = "takes" if time.launches == 1 else "take"
        words = f"{count(time.launches, 'launch')} {takes} {duration(time.us)}, {time.basis}"
        if total.us:
            words += f": {percent(time.us / total.us)} of the total time of all kernels"
        yield f"{words}; {microseconds(time.us / time.launches)} each."
        if time.lost_us is not None and time.light_us is not None:
            least = time.light_us / max(time.known, 1)
            yield (
                f"**{duration(time.lost_us)} of that are lost**: for its bytes and FLOPs, at the"
                f" rates of the data sheet, a launch needs {cell(least)} us."
            )
    if len(kernel.grids) > 1 and kernel.longest is not None:
        grid = " x ".join(map(str, kernel.longest.grid or ())) or "that was not noted"
        of = f"{kernel.longest.launches} of {count(kernel.launches, 'launch')}"
        yield f"The following describes a launch over the grid {grid}, with {of}."
    if kernel.action is not None:
        sentence, saved = kernel.action.sentence, kernel.saved_us
        if saved:
            over = "that grid" if len(kernel.grids) > 1 else "all launches"
            sentence = f"What brings most: {sentence} Over {over}: {duration(saved)}."
        yield sentence
    if words := configuration(kernel):
        yield f"Its configuration is {literal(words)}."
    if kernel.reason is not None:
        yield f"Its occupancy is not known: {literal(kernel.reason)}."


def to_html(page: Page) -> str:
    """Return *page* as HTML with inline pictures, which name a kernel on hover."""

    def drawn(picture: Picture) -> str:
        svg, words = svg_text(picture.draw()), escape(picture.words)
        style = f'role="img" aria-label="{words}" style="max-width:100%;height:auto"'
        return svg[svg.index("<svg ") :].replace("<svg ", f"<svg {style} ", 1)

    pictures = {one.name: one for one in page.pictures}
    written = document.html_page(page.title, page.blocks(lambda one: f"picture:{one.name}"))
    return ADDRESS.sub(lambda found: drawn(pictures[found[1]]), written)
