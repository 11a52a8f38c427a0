"""A report on one GPU: its chapters, and how it is written to files.

A page is markdown with its pictures in a folder, or one HTML file that contains them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from occupancy_lab.errors import refuse
from occupancy_lab.files import HTML as ENDINGS
from occupancy_lab.files import check_outputs, check_page, export, read_given, read_json
from occupancy_lab.plotting.style import save, svg_text
from occupancy_lab.reporting.chapters.accuracy import (
    Accuracy,
    accuracy_sentence,
    make_accuracy,
    the_accuracy,
)
from occupancy_lab.reporting.chapters.benchmark import (
    Benchmark,
    in_short,
    make_benchmark,
    the_bandwidths,
    the_benchmark,
)
from occupancy_lab.reporting.chapters.example import make_example, the_example
from occupancy_lab.reporting.chapters.miscount import make_miscounts, the_miscounts
from occupancy_lab.reporting.chapters.taken import how_taken
from occupancy_lab.reporting.page import Chapter, Page, Part, Picture
from occupancy_lab.reporting.source import Source, file_source, recorded_source
from occupancy_lab.text import document
from occupancy_lab.text.document import Shown
from occupancy_lab.text.words import count
from occupancy_lab.workers.messages import from_line


def make_report(
    gpu: str | None = None,
    *,
    file: str | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Page:
    """Return the report of what was measured on one GPU, or of what is predicted for it.

    Args:
        gpu: Name of the GPU; None takes an H200, or the only one of *file*.
        file: A CSV file that `sweep --measure --export-csv` wrote, or what `trace --json` wrote;
            None takes the recordings that come with the lab.
        progress: Called with the numbers of finished and of all compiles.

    Raises:
        InputError: no launches were measured on that GPU or can be predicted, or *file* cannot be
            read.
    """
    is_file = file is not None and Path(file).is_file()  # a pipe can be read once
    if file is not None and is_file and (page := _trace_page(file)) is not None:
        return page
    source = recorded_source(gpu, progress) if file is None else file_source(file, gpu)
    return write_page(source)


def _trace_page(file: str) -> Page | None:
    """Return the page of a file that `trace --json` wrote; None for any other file.

    The page has the sentences, tables and notes; the file does not have what the roofline and the
    explanations of kernels need. Raises InputError if the file cannot be read.
    """
    text = read_given(file)
    plain = read_json(text, file) if text.lstrip()[:1] == "{" else None
    if not isinstance(plain, dict) or not {"command", "document"} <= plain.keys():
        return None
    try:
        found: document.Document = from_line(document.Document, json.dumps(plain["document"]))
    except ValueError as error:
        refuse(f"{file} is damaged: {error}")
    of = " for one GPU" if "gpus" in plain else ""
    note = f"`trace --report`{of} also writes the roofline and explains each kernel."
    return trace_page(found, (), (*found.notes, note))


def trace_page(
    found: document.Document, chapters: Sequence[Chapter], notes: tuple[str, ...]
) -> Page:
    """Return the report of a trace, whose page is *found*, with *chapters* before the *notes*."""
    first = Chapter("In short", (document.Bullets(found.answer), *found.tables))
    last = (Chapter("What the numbers are", (document.Bullets(notes),)),) if notes else ()
    return Page(found.title, (first, *chapters, *last))


def write_page(source: Source) -> Page:
    """Return the report of *source*; a chapter without rows says so in a sentence."""
    accuracy = None if source.is_predicted else make_accuracy(source)
    origin = None if source.origin is None else make_accuracy(source.origin)
    benchmark = make_benchmark(source)
    nothing = "these launches cannot be predicted"
    if source.is_predicted:
        nothing = f"no time was measured on {source.gpu.title}"
    return Page(
        f"Fused softmax on {source.gpu.title}{', predicted' if source.is_predicted else ''}",
        (
            _in_short(source, benchmark, accuracy),
            the_benchmark(benchmark),
            the_accuracy(accuracy, nothing),
            the_miscounts(make_miscounts(source)),
            the_example(make_example(source)),
            how_taken(source, origin),
        ),
    )


def _in_short(source: Source, benchmark: Benchmark | None, accuracy: Accuracy | None) -> Chapter:
    blocks: list[Part] = []
    if source.is_predicted:
        blocks.append(
            "The times on this page are **predictions**: nothing was launched on"
            f" {source.gpu.title}."
        )
    if benchmark is not None:
        blocks.append(" ".join(in_short(benchmark)))
    if accuracy is not None:
        blocks.append(accuracy_sentence(accuracy))
    if benchmark is not None:
        blocks.append(the_bandwidths(benchmark))
    return Chapter("In short", tuple(blocks or ["Left out: these launches cannot be predicted."]))


def to_html(page: Page) -> str:
    """Return *page* as HTML, with its text escaped and its pictures embedded."""
    return document.html_page(page.title, page.blocks(_embedded))


def _embedded(picture: Picture) -> str:
    svg = base64.b64encode(svg_text(picture.draw()).encode())
    return f"data:image/svg+xml;base64,{svg.decode()}"


MARKDOWN, HTML = "markdown", "html"


def run(
    gpu: str | None = None,
    *,
    file: str | None = None,
    output: str | None = None,
    form: str | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Shown:
    """Write the report of *gpu*, or of *file*, to *output*, and return what was written.

    *form* is MARKDOWN or HTML; None follows the suffix of *output*. Without *output* the report
    itself is returned, with sentences instead of pictures, and as blocks without a *form*.
    *progress* is as in `make_report`.

    Raises InputError if a file cannot be read or written.
    """
    if output is None:
        page = make_report(gpu, file=file, progress=progress)
        if form == HTML:
            return to_html(page)
        blocks = page.blocks(None)
        return blocks if form is None else document.to_markdown(blocks)
    path = Path(output)
    if form is None:
        check_page(path)
    named = HTML if path.suffix.lower() in ENDINGS else MARKDOWN
    html = (form or named) == HTML
    check_outputs(
        {"--output": path},
        inputs={"--file": file},
        pictures={} if html else {"the folder of pictures": picture_folder(path)},
    )
    page = make_report(gpu, file=file, progress=progress)
    if html:
        export(path, to_html(page))
        return f"{path} is written.\n"
    write_markdown(page, path)
    pictures = count(len(page.pictures), "picture")
    return f"{path} is written, with {pictures} in {picture_folder(path)}.\n"


def write_markdown(page: Page, path: Path) -> None:
    """Write *page* to *path* and its pictures to `picture_folder`; raise InputError on failure."""
    folder = picture_folder(path)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        refuse(f"{folder} cannot be made for the pictures: {error.strerror}")
    for picture in page.pictures:
        save(picture.draw(), folder / f"{picture.name}.svg")

    def address(picture: Picture) -> str:
        return quote(f"{folder.name}/{picture.name}.svg")

    export(path, document.to_markdown(page.blocks(address)))


def picture_folder(path: Path) -> Path:
    """Return reports/h200 for reports/h200.md, and report-pictures for report."""
    return path.with_suffix("") if path.suffix else path.with_name(f"{path.name}-pictures")
