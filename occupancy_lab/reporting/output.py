"""A page into files: markdown with its pictures beside it, or one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from occupancy_lab.errors import InputError
from occupancy_lab.files import check_outputs, export
from occupancy_lab.plotting.style import save
from occupancy_lab.reporting.contents import make_report
from occupancy_lab.reporting.html import to_html
from occupancy_lab.text.words import count

if TYPE_CHECKING:
    from collections.abc import Callable

    from occupancy_lab.reporting.page import Page, Picture

MARKDOWN, HTML = "markdown", "html"


def run(
    gpu: str | None = None,
    *,
    file: str | None = None,
    output: str | None = None,
    form: str | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> str:
    """Write the report of *gpu*, or of *file*, to *output*, and say what was written.

    *form* is MARKDOWN or HTML; None follows the suffix of *output*. Without *output* the report
    itself is given, as markdown with sentences for its pictures if no form is asked for.
    *progress* is called with the compiles that are done and those to do, where it needs any.

    Raises InputError for what cannot be read or written.
    """
    if output is None:
        page = make_report(gpu, file=file, progress=progress)
        return to_html(page) if form == HTML else page.to_markdown(_in_words)
    path = Path(output)
    html = (form or _form_of(path)) == HTML
    check_outputs(
        {"--output": path},
        inputs={"--file": file},
        pictures={} if html else {"the folder of pictures": _folder(path)},
    )
    page = make_report(gpu, file=file, progress=progress)
    if html:
        export(path, to_html(page))
        return f"{path} is written.\n"
    write_markdown(page, path)
    return f"{path} is written, with {count(len(page.pictures), 'picture')} in {_folder(path)}.\n"


def _form_of(path: Path) -> str:
    return HTML if path.suffix.lower() in {".html", ".htm"} else MARKDOWN


def write_markdown(page: Page, path: Path) -> None:
    """Write *page* to *path*, and its pictures into the folder beside it that has its name.

    Raises InputError where something cannot be written.
    """
    folder = _folder(path)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        msg = f"{folder} cannot be made for the pictures: {error.strerror}"
        raise InputError(msg) from error
    for picture in page.pictures:
        save(picture.draw(), folder / f"{picture.name}.svg")
    export(path, page.to_markdown(lambda one: _link(one, folder)))


def _folder(path: Path) -> Path:
    """Return reports/h200 for reports/h200.md, and report-pictures for report."""
    return path.with_suffix("") if path.suffix else path.with_name(f"{path.name}-pictures")


def _link(picture: Picture, folder: Path) -> str:
    return f"![{picture.words}]({quote(f'{folder.name}/{picture.name}.svg')})"


def _in_words(picture: Picture) -> str:
    return f"*Picture: {picture.words}.*"
