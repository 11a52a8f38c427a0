"""What a dry run takes values to be that only a GPU could tell, and where it does so."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import quoted, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Value = bool | int | float
USUAL: dict[str, Value] = {"bool": False, "int": 16, "float": math.nan}
"""What a value of each kind is taken to be; nan passes through arithmetic, and no grid is empty."""
OWN = (str(Path(__file__).parents[1]), "<")
"""How the names of files begin that are of this package, and of code that has no file."""
LIBRARIES = (*(f"{os.sep}{name}{os.sep}" for name in ("torch", "triton")), "torchinductor_")
"""What the names of files of torch have in them, of Triton, and of what Inductor writes."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """A value that was assumed at a line."""

    place: str
    """The file and line that asked for it: the innermost that is not of torch or Triton."""
    use: str
    """What asked for it: a value, nonzero, a copy to the CPU."""
    value: str

    def __str__(self) -> str:
        return f"{self.value} for {self.use} at {self.place}"


class Assumptions:
    """Takes assumptions, and tells of each."""

    def __init__(self, given: Mapping[str, Value], told: Callable[[Assumed], None]) -> None:
        """Take what replaces USUAL, by kind, and what is assumed at single lines, "file.py:12".

        *told* is told each assumption that is taken.
        """
        self.given = given
        self._told = told

    def usual(self, kind: str) -> Value:
        """Return what a value of *kind*, a key of USUAL, is taken to be."""
        return self.given.get(kind, USUAL[kind])

    def take(self, use: str, value: Value | str) -> Any:
        """Note that *value* is assumed for *use*, and return it, or what was given for the line."""
        line = place()
        for name, given in self.given.items():
            if _is_at(line, name):
                value = given
        self._told(Assumed(line, use, str(value)))
        return value


def _is_at(line: str, name: str) -> bool:
    """Tell whether a *line*, by its file's path, is the one that is called *name*."""
    return line == name or line.endswith(f"{os.sep}{name}")


def not_asked_for(given: Mapping[str, Value], assumed: Iterable[Assumed]) -> list[str]:
    """Return those of *given*, as words, that none of what was *assumed* is by."""
    taken = [*assumed]

    def is_by(one: Assumed, name: str, value: Value) -> bool:
        return one.value == str(value) and (name in USUAL or _is_at(one.place, name))

    return [
        f"{name}={value}"
        for name, value in given.items()
        if not any(is_by(one, name, value) for one in taken)
    ]


def place() -> str:
    """Return the file and line that is running: the innermost of no tool, torch or Triton."""
    frame = sys._getframe(1)  # noqa: SLF001 - what inspect.currentframe calls
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_inside(file: str) -> bool:
    written = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    named = any(name in file for name in LIBRARIES) or "contextlib" in file
    return named or file.startswith((*OWN, written) if written else OWN)


def names_value(word: str) -> bool:
    """Tell whether *word*, NAME=VALUE, names what `given_values` takes: a kind or a line."""
    name = word.rpartition("=")[0]
    return name in USUAL or name.rpartition(":")[2].isdigit()


def given_values(words: Iterable[str]) -> dict[str, Value]:
    """Return what `--assume` gives, each as KIND=VALUE or FILE.py:LINE=VALUE.

    Raises InputError for a word that is neither.
    """
    found: dict[str, Value] = {}
    for word in words:
        name, _, text = word.rpartition("=")
        if not names_value(word):
            refuse(f"--assume takes bool=, int=, float= or FILE.py:LINE=, and not {quoted(word)}")
        found[name] = _value(word, text)
    return found


def _value(word: str, text: str) -> Value:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return refuse(f"--assume takes true, false or a number, and not {quoted(word)}")
