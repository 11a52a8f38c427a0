"""How commands print their results, wherever the standard streams lead."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Any

import click

from occupancy_lab.text.document import Answer, Document, Shown, html_page, json_text
from occupancy_lab.text.words import visible

_STANDARD_ERROR = 2
_PLAIN = str.maketrans({"█": "#", "░": ".", "•": "-", "±": "+-"})
"""The replacements for characters of bars, lists and ranges that an encoding lacks."""
_COMMAND = re.compile(r"^((?:\x1b\[[\d;]*m|[^\S\n])*:)(:)|(#)(#\[)", re.MULTILINE)
"""The start of a GitHub runner's command: "::" at the beginning of a line, "##[" anywhere."""


class _Stream(io.FileIO):
    """A standard stream that handles its own write errors."""

    def write(self, data: Any, /) -> int:
        """Write *data*; exit with 0 if the reader of standard output has closed it.

        Raises ClickException if standard output cannot be written otherwise. Errors of standard
        error are ignored.
        """
        try:
            return super().write(data)
        except OSError as error:
            # Otherwise the buffers would fail again when Python exits.
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
    """Make sure that the standard streams of this process can be written.

    Characters that an encoding lacks are replaced, and a closed stream leads to the null device. A
    stream that is not the process's own, such as a test's, stays as it is.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Otherwise the next opened file would get its number, and receive the output.
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


def on_github() -> bool:
    """Return whether the output goes to a runner of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def without_commands(text: str) -> str:
    """Return *text* with a space inside anything that GitHub's runner would take for a command."""
    return _COMMAND.sub(r"\1\3 \2\4", text) if on_github() else text


def print_text(text: str) -> None:
    """Print *text* and flush; it cannot control a terminal or GitHub's runner.

    Characters of bars and lists that the encoding lacks are replaced.
    """
    _write(visible(text))


def _write(text: str) -> None:
    text = without_commands(text)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = text.translate(_PLAIN)
    sys.stdout.write(text)
    sys.stdout.flush()


def print_json(values: Any) -> None:
    """Print plain *values* as JSON."""
    print_text(json_text(values) + "\n")


def print_answer(answer: Answer, form: str, document: Document | None = None) -> None:
    """Print *answer*, or its *document*, as json, markdown or html, else for the terminal."""
    if form == "json":
        print_text(answer.to_json() + "\n")
        return
    document = document or answer.to_document()
    if form == "html":
        print_text(html_page(document.title, document.blocks()))
        return
    print_shown(document.to_markdown() if form == "markdown" else document.blocks())


def print_shown(shown: Shown) -> None:
    """Print a text as `print_text` does, or blocks with the terminal's width and colours.

    rich obeys NO_COLOR, FORCE_COLOR, TERM and COLUMNS; without a terminal it prints plain text,
    80 columns wide.
    """
    if isinstance(shown, str):
        print_text(shown)
        return
    from rich.console import Console, Group

    from occupancy_lab.text.terminal import drawn

    console = Console(highlight=False)
    with console.capture() as capture:
        for block in shown:
            console.print()
            console.print(Group(*drawn(block, console.width)))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    # rich adds blank lines around a table.
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    _write("\n".join(kept) + "\n")


def print_note(sentence: str) -> None:
    """Print *sentence* on standard error."""
    click.echo(without_commands(visible(f"occupancy-lab: {sentence}")), err=True)


def show_status(sentence: str) -> None:
    """Replace the status line on standard error by *sentence*, if that is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{visible(sentence)}", err=True, nl=False)
