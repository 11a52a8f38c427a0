"""Files: read where they have an end, written whole or not at all, and safe in a spreadsheet."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from occupancy_lab.errors import InputError, quoted, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import TextIO

    import pandas as pd

PICTURES = (".svg", ".png")
"""What the names of pictures end in."""
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""How a text begins that a spreadsheet would work out, or that was quoted because of that."""
OPEN_FILES = ("/dev/fd/", "/dev/stdin", "/dev/stdout", "/proc/self/fd/")
"""Where the files are that a process has open, such as the pipe of a shell's <(...)."""
MOST_MIB = 1024
"""The MiB of the largest file of rows that is read: some millions of them."""


def read_text(path: Path | str) -> str:
    """Return the text of the file at *path*; "-" is standard input.

    Raises InputError where it cannot be read: a named pipe, which may be waited for without end, a
    device, and what is larger than MOST_MIB among them.
    """
    if str(path) == "-":
        return _decoded(sys.stdin.buffer.read(), "standard input")
    try:
        found = Path(path).stat()
        if not str(path).startswith(OPEN_FILES):
            if not stat.S_ISREG(found.st_mode):
                refuse(f"{quoted(path)} cannot be read: it is no regular file")
            if found.st_size > MOST_MIB << 20:
                refuse(f"{quoted(path)} cannot be read: it is larger than {MOST_MIB} MiB")
        content = Path(path).read_bytes()
    except OSError as error:
        msg = f"{quoted(path)} cannot be read: {error.strerror}"
        raise InputError(msg) from error
    return _decoded(content, quoted(path))


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{name} cannot be read: it is no text in UTF-8"
        raise InputError(msg) from error


def read_json(text: str, name: str) -> Any:
    """Return the values of *text*, which *name* holds; InputError where it is no JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        why = "it is nested too deeply"
    except json.JSONDecodeError as error:
        why = str(error)
    except ValueError:
        why = "a number in it has thousands of digits"
    return refuse(f"{quoted(name)} is no JSON: {why}")


def write_file(path: Path, content: bytes) -> None:
    """Write *content* to *path* as `replace_file` does, but to the file that a link leads to.

    A pipe and the like, and a file in a directory that takes no other file, are written directly.

    Raises OSError where it cannot be written.
    """
    target = Path(os.path.realpath(path))
    if _can_be_replaced(path, target):
        replace_file(target, content)
    else:
        path.write_bytes(content)


def replace_file(path: Path, content: bytes) -> None:
    """Write *content* beside *path* and move it there in one step, whatever is there.

    A file keeps its permissions. Raises OSError where it cannot be written.
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
    # /dev/stdout may be a regular file, to which the rest of the output goes too.
    if any(path.absolute().is_relative_to(streams) for streams in ("/dev", "/proc")):
        return False
    free = not target.exists() or (target.is_file() and os.access(target, os.W_OK))
    return free and os.access(target.parent, os.W_OK)


def export(path: Path, content: str | bytes) -> None:
    """Write *content*, a text in UTF-8, to *path* as `write_file` does.

    Raises InputError where it cannot be written.
    """
    with refused(path):
        # The name of a file may have bytes that are no UTF-8.
        written = content.encode(errors="replace") if isinstance(content, str) else content
        write_file(path, written)


@contextlib.contextmanager
def refused(path: Path) -> Iterator[None]:
    """Raise InputError where the block cannot write to *path*."""
    try:
        yield
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror}"
        raise InputError(msg) from error


def check_outputs(
    outputs: Mapping[str, Path | str | None],
    *,
    inputs: Mapping[str, Path | str | None] | None = None,
    pictures: Mapping[str, Path | str | None] | None = None,
) -> None:
    """Raise InputError, before any work is done, where files cannot be written beside each other.

    Each is given by the option that names it; None is for an option that was not given. *inputs*
    are files that are read, *pictures* directories that pictures are written into.
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
        if in_it or (other in written and _is_in(folder, path)):
            raise InputError(_both(option, other, path))


def _given(paths: Mapping[str, Path | str | None]) -> dict[str, Path]:
    return {option: Path(path) for option, path in paths.items() if path is not None}


def _check_place(path: Path, directory: Path) -> None:
    """Raise InputError unless there is a *directory* to write *path* into."""
    if not directory.is_dir():
        refuse(f"{path} cannot be written: there is no directory {directory}")
    if not os.access(path if path.exists() else directory, os.W_OK):
        refuse(f"{path} cannot be written: permission denied")


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _is_in(folder: Path, path: Path) -> bool:
    """Return whether *folder* is *path*, or would be below it."""
    return Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(path))


def _both(option: str, other: str, path: Path) -> str:
    return f"{option} and {other} both name {path}, which one of them would overwrite"


def write_csv(table: pd.DataFrame, output: TextIO) -> None:
    """Write *table* as CSV to *output*; what is missing is an empty cell.

    A text that a spreadsheet would take for a formula, as it begins with = + - @ or a tab, has a
    quote before it, as OWASP advises; `read_cell` takes it off again. Numbers stay as they are.
    """
    safe = _with_texts(table, _write_cell).rename(columns=_write_cell)
    returns = any("\r" in str(value) for values in _distinct(table).values() for value in values)
    safe.to_csv(output, index=False, quoting=_quoting(returns=returns))


def csv_text(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return *rows* as CSV, as `write_csv` writes a table; None is an empty cell."""
    text = io.StringIO(newline="")
    cells = [[_write_cell(value) for value in row] for row in (columns, *rows)]
    returns = any("\r" in str(value) for row in cells for value in row)
    csv.writer(text, quoting=_quoting(returns=returns), lineterminator="\n").writerows(cells)
    return text.getvalue()


def _quoting(*, returns: bool) -> Literal[0, 2]:
    """Return what is quoted; csv leaves a carriage return, which begins a new row, unquoted."""
    return csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL


def read_texts(table: pd.DataFrame) -> pd.DataFrame:
    """Return *table*, as it was read, with the texts that `write_csv` was given."""
    return _with_texts(table, read_cell)


def _with_texts(table: pd.DataFrame, change: Callable[[Any], Any]) -> pd.DataFrame:
    changed = {
        name: table[name].map(change)
        for name, values in _distinct(table).items()
        if any(change(value) is not value for value in values)
    }
    return table.assign(**changed)


def _distinct(table: pd.DataFrame) -> dict[str, Any]:
    """Return the values of each column that has texts, each once."""
    texts = table.select_dtypes(exclude=["number", "bool"])
    return {str(name): column.unique() for name, column in texts.items()}


def _write_cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def read_cell(value: Any) -> Any:
    """Return the text that `write_csv` made *value* of; what is no text stays."""
    quoted = isinstance(value, str) and value.startswith("'") and _FORMULA.match(value)
    return value[1:] if quoted else value


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of *table* as plain values, None for what is missing."""
    rows: list[Any] = table.astype(object).where(table.notna(), None).to_dict("records")
    return rows
