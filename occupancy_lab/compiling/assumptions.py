"""The values that a dry run assumes where only a GPU could compute them, and where it does so."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_lab.errors import quoted, refuse

Value = bool | int | float
USUAL: dict[str, Value] = {"bool": False, "int": 16, "float": math.nan}
"""The value assumed for each kind; nan passes through arithmetic, and 16 makes no grid empty."""
OWN = (str(Path(__file__).parents[1]), "<")
"""The beginnings of the file names of this package, and of code that is in no file."""
LIBRARIES = (*(f"{os.sep}{name}{os.sep}" for name in ("torch", "triton")), "torchinductor_")
"""Parts of the file names of torch, of Triton, and of the code that Inductor writes."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """A value that was assumed at a line."""

    place: str
    """The file and line that needed the value: the innermost outside torch and Triton."""
    use: str
    """The operation that needed the value: a value, nonzero, a copy to the CPU."""
    value: str

    def __str__(self) -> str:
        return f"{self.value} for {self.use} at {self.place}"


class Assumptions:
    """Chooses the values that a dry run assumes, and reports each."""

    def __init__(self, given: Mapping[str, Value], told: Callable[[Assumed], None]) -> None:
        """Replace values of USUAL by those *given* for a kind, or for a single line ("file.py:12").

        *told* is called with each assumption.
        """
        self.given = given
        self._told = told

    def usual(self, kind: str) -> Value:
        """Return the value assumed for *kind*, a key of USUAL."""
        return self.given.get(kind, USUAL[kind])

    def take(self, use: str, value: Value | str) -> Any:
        """Report that *value* is assumed for *use*; return it, or the value given for this line."""
        line = place()
        for name, given in self.given.items():
            if _is_at(line, name):
                value = given
        self._told(Assumed(line, use, str(value)))
        return value


def _is_at(line: str, name: str) -> bool:
    """Return whether *name* means *line*; *line* has the whole path of its file."""
    return line == name or line.endswith(f"{os.sep}{name}")


def not_asked_for(given: Mapping[str, Value], assumed: Iterable[Assumed]) -> list[str]:
    """Return the *given* values, as words, that no assumption in *assumed* used."""
    taken = [*assumed]

    def used(one: Assumed, name: str, value: Value) -> bool:
        return one.value == str(value) and (name in USUAL or _is_at(one.place, name))

    return [
        f"{name}={value}"
        for name, value in given.items()
        if not any(used(one, name, value) for one in taken)
    ]


def place() -> str:
    """Return the file and line that is running: the innermost outside this tool, torch, Triton."""
    frame = sys._getframe(1)  # noqa: SLF001 - what inspect.currentframe calls
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_inside(file: str) -> bool:
    written = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    named = any(name in file for name in LIBRARIES) or "contextlib" in file
    return named or file.startswith((*OWN, written) if written else OWN)


def names_value(word: str) -> bool:
    """Return whether *word*, NAME=VALUE, names a kind or a line, as `given_values` takes them."""
    name = word.rpartition("=")[0]
    return name in USUAL or name.rpartition(":")[2].isdigit()


def given_values(words: Iterable[str]) -> dict[str, Value]:
    """Return the values that `--assume` gives, each as KIND=VALUE or FILE.py:LINE=VALUE.

    Raises InputError for any other word.
    """
    found: dict[str, Value] = {}
    for word in words:
        name, _, text = word.rpartition("=")
        if not names_value(word):
            refuse(f"--assume takes bool=, int=, float= or FILE.py:LINE=, not {quoted(word)}")
        found[name] = _value(word, text)
    return found


def _value(word: str, text: str) -> Value:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return refuse(f"--assume takes true, false or a number, not {quoted(word)}")
