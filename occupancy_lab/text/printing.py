"""How commands print what they give, wherever the standard streams lead."""

from __future__ import annotations

import functools
import io
import math
import os
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from occupancy_lab.text.document import Answer, Document

_STANDARD_ERROR = 2
_PLAIN = str.maketrans({"█": "#", "░": ".", "•": "-", "±": "+-"})
"""What stands for the characters of a bar, a list or a range that an encoding lacks."""


class _Stream(io.FileIO):
    """A standard stream, whose errors are told from those of other files."""

    def write(self, data: Any, /) -> int:
        """Write *data*; exit with 0 where the reader of standard output has seen enough.

        Raises ClickException where standard output cannot be written. What standard error cannot
        take is lost.
        """
        try:
            return super().write(data)
        except OSError as error:
            # What the buffers still hold would fail once more when Python exits.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if self.fileno() == _STANDARD_ERROR:
                return memoryview(data).nbytes
            if isinstance(error, BrokenPipeError):
                sys.exit(0)
            msg = f"standard output cannot be written: {error.strerror}"
            raise click.ClickException(msg) from error


def open_streams() -> None:
    """Make the standard streams of this process ones that can be written, whatever they are.

    What an encoding lacks is replaced, and a stream that was closed leads nowhere. A stream that is
    not the process's own, such as a test's, stays as it is.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The next file that is opened would have its number, and get what is printed.
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8", closefd=False))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):
            raw = _Stream(stream.fileno(), "w", closefd=False)
            own = io.TextIOWrapper(
                io.BufferedWriter(raw),
                encoding=stream.encoding,
                errors="replace",
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, own)


def print_text(text: str) -> None:
    """Print *text*, with plain characters where an encoding lacks those of a bar or a list.

    All of it is written when this returns.
    """
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = text.translate(_PLAIN)
    sys.stdout.write(text)
    sys.stdout.flush()


def print_json(values: Any) -> None:
    """Print plain *values* as `json_text` has them."""
    print_text(json_text(values) + "\n")


def json_text(values: Any) -> str:
    """Return plain *values* as indented, strict JSON: a number that is not finite is null."""
    import json

    try:
        return json.dumps(values, indent=2, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(values), indent=2, allow_nan=False)


def _finite(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _finite(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def print_answer(answer: Answer, form: str, document: Document | None = None) -> None:
    """Print *answer*, or the *document* of it, as "json", "markdown" or for the "terminal"."""
    if form == "json":
        print_text(answer.to_json() + "\n")
    else:
        text = (document or answer.to_document()).to_markdown()
        (print_text if form == "markdown" else print_markdown)(text)


LONGEST_NAME = 20
"""Characters up to which the names in a table's first column stay on one line."""


@functools.cache
def _folding_markdown() -> Any:
    """Return rich's Markdown, but with words that are too long for a column of a table broken.

    rich would cut them off. Short names in the first column are not broken: the other columns are
    narrower instead.
    """
    from rich.markdown import Markdown, TableElement
    from rich.table import Table

    class FoldingTable(TableElement):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for part in super().__rich_console__(console, options):
                if isinstance(part, Table):
                    for column in part.columns:
                        column.overflow = "fold"
                    first = part.columns[0]
                    names = map(str, (first.header, *first.cells))
                    first.no_wrap = max(map(len, names)) <= LONGEST_NAME
                yield part

    class FoldingMarkdown(Markdown):
        elements = {**Markdown.elements, "table_open": FoldingTable}  # noqa: RUF012 - rich's form

    return FoldingMarkdown


def print_markdown(markdown: str) -> None:
    """Print *markdown* as wide and as colourful as the terminal allows.

    rich obeys NO_COLOR, FORCE_COLOR, TERM and COLUMNS; without a terminal it prints plain text,
    80 columns wide.
    """
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as capture:
        console.print(_folding_markdown()(markdown, justify="left"))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    # rich leaves two blank lines around a table, and one before its first.
    shown = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    print_text("\n".join(shown) + "\n")


def print_note(sentence: str) -> None:
    """Print *sentence* on standard error, where it disturbs no output."""
    click.echo(f"occupancy-lab: {sentence}", err=True)


def show_status(sentence: str) -> None:
    """Show *sentence* on standard error in place of the one before, where that is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{sentence}", err=True, nl=False)
