"""Reads regular files of a sensible size, and writes files completely or not at all.

A command does not overwrite one of its files with another, and what it writes is safe in a
spreadsheet.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import itertools
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from occupancy_lab.errors import InputError, quoted, refuse

if TYPE_CHECKING:
    import pandas as pd

MOST_BYTES = 256 << 20
"""The largest file that is read, bytes: a table of 100,000 rows has some 100 MB."""
OPEN_FILES = ("/dev/fd/", "/dev/stdin", "/dev/stdout", "/proc/self/fd/")
"""Paths of a process's open files, such as the pipe of a shell's <(...)."""
PICTURES = (".svg", ".png")
"""Suffixes of pictures."""
HTML = (".html", ".htm")
"""Suffixes of HTML pages."""
MARKDOWN = (".md", ".markdown")
"""Suffixes of markdown pages, besides no suffix."""
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""Matches texts that a spreadsheet would evaluate, or that were quoted because of that."""


def read_json(text: str, name: str) -> Any:
    """Return the JSON values in *text*, the content of *name*; InputError if it is no JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        why = "it is nested too deeply"
    except json.JSONDecodeError as error:
        why = str(error)
    except ValueError:
        why = "a number in it has thousands of digits"
    return refuse(f"{quoted(name)} is no JSON: {why}")


def read_bytes(path: Path | str, most: int = MOST_BYTES) -> bytes:
    """Return the content of the regular file at *path*.

    Somebody else may have put a pipe or a device there: neither is waited for or read. Raises
    OSError for these, and for a file of more than *most* bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        _check_size(status.st_size, most)
        return os.read(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def read_given(name: str, *, most: int = MOST_BYTES) -> str:
    """Return the UTF-8 text of the file *name*, "-" for standard input; InputError if it fails."""
    try:
        if name == "-":
            content = _read_stream(sys.stdin.buffer, most)
        elif name.startswith(OPEN_FILES):
            with Path(name).open("rb") as stream:
                content = _read_stream(stream, most)
        else:
            content = read_bytes(name, most)
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        called = "standard input" if name == "-" else name
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        refuse(f"{called} cannot be read: {reason}")


def _read_stream(stream: BinaryIO, most: int) -> bytes:
    content = stream.read(most + 1)
    _check_size(len(content), most)
    return content


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB")


def write_file(path: Path, content: bytes) -> None:
    """Write *content* to *path* as `replace_file` does, but to the target of a link.

    A pipe and the like, and a file in a directory that accepts no new file, are written directly.

    Raises OSError if it cannot be written.
    """
    target = Path(os.path.realpath(path))
    if _can_be_replaced(path, target):
        replace_file(target, content)
    else:
        path.write_bytes(content)


def replace_file(path: Path, content: bytes) -> None:
    """Write *content* beside *path* and rename it in one step, replacing what is there.

    A file keeps its permissions. Raises OSError if it cannot be written.
    """
    beside = path.with_name(f".{os.urandom(8).hex()}.part")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        if path.is_file():
            beside.chmod(stat.S_IMODE(path.stat().st_mode))
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _can_be_replaced(path: Path, target: Path) -> bool:
    # /dev/stdout may be a regular file that also gets the rest of the output.
    if any(path.absolute().is_relative_to(streams) for streams in ("/dev", "/proc")):
        return False
    free = not target.exists() or (target.is_file() and os.access(target, os.W_OK))
    return free and os.access(target.parent, os.W_OK)


def export(path: Path, content: str | bytes) -> None:
    """Write *content*, bytes or a text for UTF-8, as `write_file` does; InputError if it fails."""
    with refused(path):
        # A file's name, which the content may mention, may have bytes that are not UTF-8.
        written = content.encode(errors="replace") if isinstance(content, str) else content
        write_file(path, written)


@contextlib.contextmanager
def refused(path: Path) -> Iterator[None]:
    """Raise InputError if the block cannot write to *path*."""
    try:
        yield
    except OSError as error:
        refuse(f"{path} cannot be written: {error.strerror}")


def check_outputs(
    outputs: Mapping[str, Path | str | None],
    *,
    inputs: Mapping[str, Path | str | None] | None = None,
    pictures: Mapping[str, Path | str | None] | None = None,
) -> None:
    """Raise InputError, before any work, if files cannot be written or overwrite each other.

    Each is given by the option that names it; None means that the option was not given. *inputs*
    are files that are read, *pictures* directories into which pictures are written.
    """
    written, folders = _given(outputs), _given(pictures or {})
    for path in written.values():
        _check_place(path, path.parent)
    for folder in folders.values():
        _check_place(folder, next(one for one in (folder, *folder.parents) if one.exists()))
    read = _given(inputs or {})
    pairs = [*itertools.combinations(written.items(), 2)]
    pairs += itertools.product(written.items(), read.items())
    for (option, path), (other, second) in pairs:
        if _same(path, second):
            raise InputError(_both(option, other, path))
    for (option, folder), (other, path) in itertools.product(
        folders.items(), [*written.items(), *read.items()]
    ):
        in_it = path.suffix.lower() in PICTURES and _same(path.parent, folder)
        real = Path(os.path.realpath(folder))
        if in_it or (other in written and real.is_relative_to(os.path.realpath(path))):
            raise InputError(_both(option, other, path))


def check_picture(path: Path | str) -> None:
    """Raise InputError if the name of a picture has no suffix of PICTURES."""
    if Path(path).suffix.lower() not in PICTURES:
        refuse(f"{path} does not end in .svg or .png, the two kinds of picture there are")


def check_page(path: Path | str) -> None:
    """Raise InputError if the name of a page has another suffix than pages have."""
    if Path(path).suffix.lower() not in {"", *MARKDOWN, *HTML}:
        refuse(f"{path} does not end in .md or .html, the two kinds of page there are")


def _given(paths: Mapping[str, Path | str | None]) -> dict[str, Path]:
    return {option: Path(path) for option, path in paths.items() if path is not None}


def _check_place(path: Path, directory: Path) -> None:
    if not directory.is_dir():
        refuse(f"{path} cannot be written: there is no directory {directory}")
    if not os.access(path if path.exists() else directory, os.W_OK):
        refuse(f"{path} cannot be written: permission denied")


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _both(option: str, other: str, path: Path) -> str:
    return f"{option} and {other} both name {path}, which one of them would overwrite"


def csv_text(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return *rows* as CSV; None is an empty cell.

    A text that a spreadsheet would take for a formula, because it begins with = + - @ or a tab,
    gets a quote before it, as OWASP advises; `read_cell` removes it. Numbers are unchanged.
    """
    text = io.StringIO(newline="")
    cells = [
        [
            f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value
            for value in row
        ]
        for row in (columns, *rows)
    ]
    # csv leaves a carriage return, which begins a new row, unquoted.
    returns = any(isinstance(value, str) and "\r" in value for row in cells for value in row)
    csv.writer(
        text,
        quoting=csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL,
        lineterminator="\n",
    ).writerows(cells)
    return text.getvalue()


def read_cell(value: Any) -> Any:
    """Return the text from which `csv_text` made *value*; other values are unchanged."""
    quoted = isinstance(value, str) and value.startswith("'") and _FORMULA.match(value)
    return value[1:] if quoted else value


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of *table* as plain values, with None for missing values."""
    rows: list[Any] = table.astype(object).where(table.notna(), None).to_dict("records")
    return rows
