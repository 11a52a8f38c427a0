"""What the further processes of a script launch: its forks, and the Pythons that it starts.

Each of them has a file in a folder of the script's own process. It writes there what it launches
when it launches it, as it may be killed, and what that compiles to, as nobody can ask it later. It
has the file locked for as long as it lives.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import tempfile
import time
from collections.abc import Mapping  # noqa: TC003 - `from_line` reads the fields' types
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from occupancy_lab.arguments import Plain  # noqa: TC001 - as Mapping
from occupancy_lab.compiling.assumptions import Assumed
from occupancy_lab.launch import BoundLaunch  # noqa: TC001 - as Mapping
from occupancy_lab.values import Failure, Resources, Status
from occupancy_lab.workers.child import from_line, to_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUFFIX = ".notes"
ENDING = 10.0
"""Seconds that further processes may take to end after the script."""


@dataclass(frozen=True, slots=True)
class ScriptLaunch:
    """A launch that a script makes; what is no plain value in it is its text."""

    bound: BoundLaunch
    place: str
    """The file and line of the launch line that made it first: bench.py:12."""
    call: int
    """Which launch line that was: the configurations of an autotuner are of one."""
    times: int
    """How often it is made."""
    tuned: Mapping[str, Plain]
    """What the autotuner's configuration sets, by name; empty where nothing is tuned."""


@dataclass(frozen=True, slots=True)
class Use:
    """A launch that has a tensor which a Feed handed over before."""

    launch: int
    """Its index."""
    of: str
    """What the first launch of the Feed calls the tensor."""
    name: str
    """What this launch calls it."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A launch of which tensors lie in the memory of those of the launch right before it."""

    before: int
    """The index of that launch."""
    after: int
    tensors: tuple[tuple[str, str], ...]
    """What the one and the other call each."""
    uses: tuple[Use, ...] = ()
    """The launches that have one of them later, in their order."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the launch compiles to that is *index* in the same file."""

    index: int
    outcome: Resources | Failure


@dataclass(frozen=True, slots=True)
class Began:
    """The process whose file it is."""

    pid: int


@dataclass(frozen=True, slots=True)
class Unseen:
    """An operation of a library that could not be run, whose launches are missing."""

    operation: str


Told = str | Unseen | Assumed
"""What went wrong, as a sentence, what could not be run, or what was assumed."""


class Notes:
    """The file of a process, or of one that is to be forked: the fork has the lock too."""

    def __init__(self, folder: Path) -> None:
        self._file, _ = tempfile.mkstemp(SUFFIX, dir=folder)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def write(self, noted: Began | ScriptLaunch | Compiled | Told | int) -> None:
        """Note a new launch, what it compiles to, a launch by its index, or something else."""
        os.write(self._file, to_line(noted).encode() + b"\n")

    def close(self) -> None:
        """Leave the file to the process that was forked, if any."""
        os.close(self._file)


@dataclass(frozen=True, slots=True)
class Noted:
    """What a further process launched."""

    pid: int | None
    """None where it ended before it could say so."""
    has_ended: bool
    calls: tuple[tuple[tuple[ScriptLaunch, Resources | Failure], ...], ...]
    """What each launch line launched, of an autotuner several."""
    told: tuple[Told, ...]


def read_notes(folder: Path) -> Iterator[Noted]:
    """Return what the processes launched whose files are in *folder*, once they have ended."""
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
    """Wait for the end of the process whose file is at *path*, but not after *until*."""
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
