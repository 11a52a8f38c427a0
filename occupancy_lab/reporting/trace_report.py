"""The report of a trace: what is lost, the roofline, and the kernels that lose most, explained."""

from __future__ import annotations

import dataclasses
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy_lab.compiling import triton_version
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.errors import InputError
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.duration import the_duration
from occupancy_lab.explaining.launches import KernelTime
from occupancy_lab.explaining.short import limits_with_bars, the_launch_in_short
from occupancy_lab.explaining.source import SourceView
from occupancy_lab.files import HTML, export
from occupancy_lab.plotting.style import svg_text
from occupancy_lab.reporting.contents import trace_page, write_markdown
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.roofline import draw_trace
from occupancy_lab.text import document
from occupancy_lab.text.document import Bullets, Section, literal
from occupancy_lab.text.words import as_sentence, cell, count, duration, microseconds, percent
from occupancy_lab.tracing.actions import MOST_EXPLAINED
from occupancy_lab.tracing.page import configuration, main_grid_words, shown_kernels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.reporting.page import Page, Part
    from occupancy_lab.tracing.trace import Trace
    from occupancy_lab.tracing.traced import TracedKernel

ADDRESS = re.compile(r'<img alt="[^"]*" src="picture:([\w-]+)">')
"""An image of HTML that a picture is to take the place of."""


def make_trace_report(found: Trace) -> Page:
    """Return the report of a trace, a dry run's or that of a program that launched kernels."""
    page = found.to_document()
    shown, notes, chapters = shown_kernels(found.found), [*page.notes], []
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
    dry = found.outcome is not None and found.outcome.ran is not None
    near = next((Path(word).parent for word in words if word.endswith(".py")), None)
    versions = (one.triton for one in found.found.processes)
    triton = next(filter(None, versions), None) or triton_version()
    for number, one in enumerate(shown[:MOST_EXPLAINED], 1):
        parts = _explained(one, total, near, triton, dry=dry)
        blocks = tuple(_without(notes, part) for part in parts)
        chapters.append(Chapter(f"{number} {literal(one.kernel)}", blocks))
    if len(shown) > MOST_EXPLAINED:
        notes.append(f"The {MOST_EXPLAINED} kernels that lose most are explained, of {len(shown)}.")
    return trace_page(page, chapters, tuple(notes))


def _without(notes: Sequence[str], part: Part) -> Part:
    """Return *part* without the sentences that are among *notes*, which stand at the end."""
    if not isinstance(part, Section):
        return part
    return dataclasses.replace(
        part, sentences=tuple(one for one in part.sentences if one not in notes)
    )


def _explained(
    kernel: TracedKernel, total: KernelTime | None, near: Path | None, triton: str, *, dry: bool
) -> Iterator[Part]:
    """Return what a kernel loses, its launch, limits and parts, and the lines that cost most.

    A *dry* run knows which options a launch passes; another has all that the binary was made with.
    """
    yield Bullets(tuple(_sentences(kernel, total)))
    calculation, record = kernel.calculation, kernel.record
    if calculation is None or record is None:
        if calculation is not None:
            yield limits_with_bars((calculation,))
        return
    usual, options = default_options(record.gpu.target), record.options
    if not dry:
        options = {name: value for name, value in options.items() if value != usual.get(name)}
    record = dataclasses.replace(
        record,
        arguments={**kernel.constexprs, **record.arguments},
        constexprs=tuple(kernel.constexprs),
        options=options,
        usual_options=usual,
        triton_version=triton,
    )
    case = Case(record)
    yield the_launch_in_short([case])
    lines = SourceView((record,), kernel.kernel, near=near).to_document().sections[:1]
    yield from lines
    if record.prediction is not None:
        yield the_duration((case,))
    yield limits_with_bars((calculation,))


def _sentences(kernel: TracedKernel, total: KernelTime | None) -> Iterator[str]:
    time = kernel.time
    if time is None or total is None or time.measured != total.measured or not time.launches:
        yield f"No time is known of its {count(kernel.launches, 'launch')}."
    else:
        takes = "takes" if time.launches == 1 else "take"
        words = f"{count(time.launches, 'launch')} {takes} {duration(time.us)}, {time.basis}"
        if total.us:
            words += f": {percent(time.us / total.us)} of the time of all kernels"
        yield f"{words}; {microseconds(time.us / time.launches)} each."
        if time.lost_us is not None and time.light_us is not None:
            least = time.light_us / max(time.known, 1)
            yield (
                f"**{duration(time.lost_us)} of that are lost**: for its bytes and FLOPs, at the"
                f" rates of the data sheet, a launch needs {cell(least)} us."
            )
    if len(kernel.grids) > 1:
        yield f"What follows is of a launch over the grid {main_grid_words(kernel)}."
    if kernel.action is not None:
        sentence, saved = kernel.action.sentence, kernel.saved_us
        if saved:
            over = "that grid" if len(kernel.grids) > 1 else "all launches"
            sentence = f"What brings most: {sentence} Over {over}: {duration(saved)}."
        yield sentence
    if words := configuration(kernel):
        yield f"Its configuration is {literal(words)}."
    if kernel.reason is not None:
        yield f"How it sits is not known: {literal(kernel.reason)}."


def write_trace_report(found: Trace, path: Path) -> None:
    """Write the report of *found*: HTML where *path* ends in .html, else markdown.

    The pictures of markdown go into a folder beside it.

    Raises InputError where something cannot be written.
    """
    page = make_trace_report(found)
    if path.suffix.lower() in HTML:
        export(path, to_html(page))
    else:
        write_markdown(page, path)


def to_html(page: Page) -> str:
    """Return *page* as HTML with its pictures as parts of it, which name a kernel on hover."""

    def drawn(picture: Picture) -> str:
        svg, words = svg_text(picture.draw()), escape(picture.words)
        style = f'role="img" aria-label="{words}" style="max-width:100%;height:auto"'
        return svg[svg.index("<svg ") :].replace("<svg ", f"<svg {style} ", 1)

    pictures = {one.name: one for one in page.pictures}
    written = document.html_page(page.title, page.blocks(lambda one: f"picture:{one.name}"))
    return ADDRESS.sub(lambda found: drawn(pictures[found[1]]), written)
