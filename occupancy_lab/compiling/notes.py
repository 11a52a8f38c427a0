"""The launches of a script's further processes: its forks, and the Pythons that it starts.

Each process has a file in a folder of the script's own process. It notes a launch there as soon as
it makes the launch, because it may be killed, and it notes the compiled result, because nobody can
ask for it later. It locks the file for as long as it lives.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from occupancy_lab.arguments import Plain
from occupancy_lab.compiling.assumptions import Assumed
from occupancy_lab.launch import BoundLaunch
from occupancy_lab.values import Failure, Resources, Status
from occupancy_lab.workers.messages import from_line, to_line

SUFFIX = ".notes"
ENDING = 10.0
"""Seconds that further processes may take to end after the script ended."""


@dataclass(frozen=True, slots=True)
class ScriptLaunch:
    """A launch that a script makes; values that are not plain are replaced by their text."""

    bound: BoundLaunch
    place: str
    """The file and line of the launch line that made it first, such as bench.py:12."""
    call: int
    """The number of that launch line; all configurations of an autotuner share it."""
    times: int
    """How often the launch is made."""
    tuned: Mapping[str, Plain]
    """The values set by the autotuner's configuration, by name; empty without an autotuner."""
    passed: tuple[str, ...] = ()
    """The arguments and options that the launch line itself passes, as far as it is known."""


@dataclass(frozen=True, slots=True)
class Use:
    """A launch that uses a tensor which a Feed passed on before."""

    launch: int
    """The launch's index."""
    of: str
    """The tensor's name in the first launch of the Feed."""
    name: str
    """The tensor's name in this launch."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A launch whose tensors share memory with those of the launch right before it."""

    before: int
    """The index of the launch before."""
    after: int
    tensors: tuple[tuple[str, str], ...]
    """The name of each shared tensor in the launch before and in the launch after."""
    uses: tuple[Use, ...] = ()
    """The later launches that use one of these tensors, in order."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The compiled result of launch number *index* in the same file."""

    index: int
    outcome: Resources | Failure


@dataclass(frozen=True, slots=True)
class Began:
    """The process that writes this file."""

    pid: int


@dataclass(frozen=True, slots=True)
class Unseen:
    """A library operation that could not run, so that its launches are missing."""

    operation: str


Told = str | Unseen | Assumed
"""A failure as a sentence, an operation that could not run, or an assumption."""


class Notes:
    """The file of a process, or of a fork that is to be made, which inherits the lock."""

    def __init__(self, folder: Path) -> None:
        self._file, _ = tempfile.mkstemp(SUFFIX, dir=folder)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def write(self, noted: Began | ScriptLaunch | Compiled | Told | int) -> None:
        """Note a new launch, its compiled result, a repeated launch's index, or something else."""
        os.write(self._file, to_line(noted).encode() + b"\n")

    def close(self) -> None:
        """Close the file here; a forked process keeps it open."""
        os.close(self._file)


@dataclass(frozen=True, slots=True)
class Noted:
    """The launches of a further process."""

    pid: int | None
    """None if the process ended before it noted its id."""
    has_ended: bool
    calls: tuple[tuple[tuple[ScriptLaunch, Resources | Failure], ...], ...]
    """The launches of each launch line; an autotuner makes several."""
    told: tuple[Told, ...]


def read_notes(folder: Path) -> Iterator[Noted]:
    """Return the launches of the processes with files in *folder*, once they have ended."""
    until = time.monotonic() + ENDING
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        has_ended = _has_ended(path, until)
        launches: list[ScriptLaunch] = []
        times: dict[int, int] = {}
        outcomes: dict[int, Resources | Failure] = {}
        told: list[Told] = []
        pid = None
        for line in path.read_text("utf-8").splitlines():
            with contextlib.suppress(ValueError):  # the process was killed at this line
                match from_line(int | ScriptLaunch | Compiled | Began | Told, line):
                    case int() as index:
                        times[index] = times.get(index, 0) + 1
                    case Compiled(index, outcome):
                        outcomes[index] = outcome
                    case Began(number):
                        pid = number
                    case ScriptLaunch() as launch:
                        launches.append(launch)
                    case one:
                        told.append(one)
        gone = Failure(Status.COMPILE_FAILED, f"process {pid} ended before it had compiled it")
        found = [
            (dataclasses.replace(one, times=times.get(index, 0)), outcomes.get(index, gone))
            for index, one in enumerate(launches)
        ]
        calls = (tuple(group) for _, group in groupby(found, key=lambda pair: pair[0].call))
        yield Noted(pid, has_ended, tuple(calls), tuple(told))


def _has_ended(path: Path, until: float) -> bool:
    """Wait until *until* at the latest for the end of the process with the file at *path*."""
    with path.open("rb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    return False
                time.sleep(0.05)
            else:
                return True
