"""Notes of a script's further processes are read however the processes end."""

import dataclasses
import os
import signal
from pathlib import Path

import pytest

from occupancy_lab.arguments import Pointer
from occupancy_lab.compiling import notes
from occupancy_lab.compiling.notes import Began, Compiled, Notes, ScriptLaunch, read_notes
from occupancy_lab.launch import BoundLaunch, Launch
from occupancy_lab.values import Failure, Resources, Status

LAUNCH = Launch((Pointer("float32", 4096), 8), {"BLOCK": 64}, (4,))
BOUND = BoundLaunch("add", LAUNCH, {"x": LAUNCH.arguments[0], "n": 8}, ("BLOCK",), {})
FIRST = ScriptLaunch(BOUND, "bench.py:3", call=1, times=0, tuned={"BLOCK": 64})
SECOND = dataclasses.replace(FIRST, tuned={"BLOCK": 128})
THIRD = dataclasses.replace(FIRST, call=2, tuned={})


def test_notes_are_read_after_the_end(tmp_path: Path) -> None:
    """Launches are counted with their outcomes, a call's configurations together."""
    own = Notes(tmp_path)
    for noted in (
        Began(7),
        FIRST,
        0,
        Compiled(0, Resources(32, 4, 0)),
        SECOND,
        1,
        THIRD,
        2,
        0,
        "a fault",
    ):
        own.write(noted)
    own.close()
    (found,) = read_notes(tmp_path)
    assert (found.pid, found.has_ended, found.told) == (7, True, ("a fault",))
    first, second, third = [
        dataclasses.replace(one, times=times)
        for one, times in ((FIRST, 2), (SECOND, 1), (THIRD, 1))
    ]
    gone = Failure(Status.COMPILE_FAILED, "process 7 ended before it had compiled it")
    assert found.calls == (((first, Resources(32, 4, 0)), (second, gone)), ((third, gone),))


def test_a_process_that_is_killed_leaves_what_it_wrote(tmp_path: Path) -> None:
    """A killed process releases its lock; a cut-off line is left out."""
    own = Notes(tmp_path)
    pid = os.fork()
    if pid == 0:
        own.write(FIRST)
        own.write(0)
        os.write(own._file, b'{"bound": {"ker')
        os.kill(os.getpid(), signal.SIGKILL)
    own.close()
    (found,) = read_notes(tmp_path)
    os.waitpid(pid, 0)
    assert found.has_ended
    assert [[one.times for one, _ in call] for call in found.calls] == [[1]]


def test_a_process_that_goes_on_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that keeps running is reported, and its notes are read."""
    monkeypatch.setattr(notes, "ENDING", 0.1)
    own = Notes(tmp_path)
    own.write(FIRST)
    (found,) = read_notes(tmp_path)
    own.close()
    assert not found.has_ended
    assert len(found.calls) == 1
