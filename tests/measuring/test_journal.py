"""A command's journal: measurements before a kill are not repeated."""

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from faked import _FakedChild
from processes import wait_until
from stand_ins import put_calibration, put_here

from occupancy_lab.cli import main
from occupancy_lab.measuring import journal as journal_module
from occupancy_lab.measuring import process as process_module
from occupancy_lab.measuring.journal import LIFETIME, Journal, measure_launches
from occupancy_lab.measuring.process import Batch, MeasuringProcess, TimedLaunch
from occupancy_lab.values import Config, Measurement, Problem
from occupancy_lab.workers.messages import from_line

FAKED = Path(__file__).parent.parent / "faked.py"
SWEEP = [
    *(sys.executable, str(FAKED), "sweep", "--cols", "100,200,300,400", "--measure", "--csv"),
    *("--num-warps", "4,8", "--num-stages", "1"),
]
PROBLEMS = [Problem(8, cols) for cols in (100, 200, 300)]
LAUNCHES = [(problem, TimedLaunch("softmax", Config(512, 4, 1), 8)) for problem in PROBLEMS]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the test's own store, on a machine with a simulated H200."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "store"))
    put_here(monkeypatch, "h200")
    monkeypatch.setattr(process_module, "Child", _FakedChild)
    monkeypatch.setenv("FAKED_SECONDS", "0")
    return tmp_path / "store"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """Return the list of problems that measuring processes receive."""
    problems: list[Problem] = []
    real = MeasuringProcess.measure

    def measure(process: MeasuringProcess, request: Batch) -> list[Measurement]:
        problems.append(request.problem)
        return real(process, request)

    monkeypatch.setattr(MeasuringProcess, "measure", measure)
    return problems


def kept(store: Path) -> list[dict[str, Any]]:
    """Return what the journals in *store* have: a batch and its measurements each."""
    found = []
    for path in store.glob("unfinished/*/*.json"):
        with contextlib.suppress(FileNotFoundError):  # its command ended meanwhile
            entry = json.loads(path.read_text())
            line = json.loads(entry["line"])
            found.append({"batch": entry["key"]["batch"], **line})
    return found


def rows(text: str) -> dict[tuple[str, str], dict[str, str]]:
    """Return a sweep's CSV rows by cols and num_warps."""
    return {(row["cols"], row["num_warps"]): row for row in csv.DictReader(io.StringIO(text))}


def interrupted(
    journal: Journal, *, launches: list[tuple[Problem, TimedLaunch]] = LAUNCHES
) -> list[float]:
    """Return the times that a command measures before its output fails."""
    found: list[Measurement] = []
    with contextlib.suppress(BrokenPipeError), journal:
        found += measure_launches(launches, journal=journal)
        raise BrokenPipeError
    return [one.us for one in found]


def test_killed_sweep_goes_on(store: Path) -> None:
    """After kill -9 the next run has the finished measurements, and says so."""
    slow = os.environ | {"FAKED_SECONDS": "0.3"}
    with subprocess.Popen(SWEEP, env=slow, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: len(kept(store)) >= 2)
        process.kill()
        assert process.communicate()[0] == ""
    left = kept(store)
    assert 2 <= len(left) < 4
    again = subprocess.run(SWEEP, env=slow, capture_output=True, text=True, check=True)
    table = rows(again.stdout)
    assert len(table) == 8
    assert all(row["measured"] == "measured" for row in table.values())
    for entry in left:
        request = from_line(Batch, entry["batch"])
        times = [one["us"] for one in entry["measurements"]]
        cells = [
            table[str(request.problem.cols), str(launch.config.num_warps)]["us"]
            for launch in request.launches
        ]
        assert cells == [repr(us) for us in times]
    assert (
        f"{2 * len(left)} of 8 launches are taken from the run that was interrupted" in again.stderr
    )
    assert kept(store) == []


def test_command_that_ended_well_measures_anew(store: Path, asked: list[Problem]) -> None:
    """A command that ends well leaves no journal."""
    for _ in range(2):
        with Journal("sweep") as journal:
            measure_launches(LAUNCHES, journal=journal)
    assert asked == PROBLEMS * 2
    assert not kept(store)


COMMANDS = [
    ("sweep", "--cols", "100,200", "--num-warps", "4", "--num-stages", "1", "--measure", "--quiet"),
    ("tune", "--cols", "100", "--num-warps", "4", "--num-stages", "1", "--measure", "--quiet"),
    ("measure", "--cols", "100", "--provider", "kernel,copy"),
]


def exit_status(*arguments: str) -> int:
    """Run the tool in this process and return its exit status."""
    with pytest.raises(SystemExit) as exit_:
        main(list(arguments))
    return int(exit_.value.code or 0)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_each_command_goes_on(
    command: tuple[str, ...],
    store: Path,
    asked: list[Problem],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each measuring command goes on after it did not come to its end."""
    put_calibration(monkeypatch, store)

    def fail(*_printed: object) -> None:
        raise KeyboardInterrupt

    printer = "print_shown" if command[0] == "sweep" else "commands.print_answer"
    with monkeypatch.context() as patch:
        patch.setattr(f"occupancy_lab.cli.{printer}", fail)
        assert exit_status(*command) == 130
    done = len(asked)
    assert done == len(kept(store)) > 0
    assert "goes on from what was measured" in capsys.readouterr().err
    assert exit_status(*command) == 0
    assert len(asked) == done
    assert "are taken from the run that was interrupted, measured" in capsys.readouterr().err
    assert not kept(store)
    assert exit_status(*command) == 0
    assert len(asked) == 2 * done
    assert capsys.readouterr().err == ""


def test_kept_times_are_taken_as_they_were(asked: list[Problem]) -> None:
    """The same command reuses the interrupted one's times and adds the missing."""
    first = interrupted(Journal("sweep"), launches=LAUNCHES[:2])
    again = interrupted(Journal("sweep"), launches=LAUNCHES[:2])
    assert first == again
    assert asked == PROBLEMS[:2]


@pytest.mark.parametrize(
    "journal",
    [Journal("tune"), Journal("sweep", resume=False), Journal("sweep", keep=False)],
    ids=["another command", "no resume", "no cache"],
)
def test_another_command_measures_all(journal: Journal, asked: list[Problem]) -> None:
    """Another command, or one told to, reuses nothing."""
    interrupted(Journal("sweep"))
    interrupted(journal)
    assert asked == PROBLEMS * 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("driver_version", lambda: "999.1"),
        ("version", lambda _name: "9.9"),
        ("device_names", lambda: ("H200 SXM 2",)),
        ("CUDA_LAUNCH_BLOCKING", "1"),
        ("LIFETIME", 0 * LIFETIME),
    ],
)
def test_nothing_is_mixed(
    name: str, value: object, asked: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If anything that a time depends on changed, or a day is over, all is measured."""
    interrupted(Journal("sweep"))
    if name.startswith("CUDA"):
        monkeypatch.setenv(name, str(value))
    else:
        monkeypatch.setattr(journal_module, name, value)
    interrupted(Journal("sweep"))
    assert asked == PROBLEMS * 2


@pytest.mark.parametrize("status", ["device lost", "out of memory"])
def test_passing_faults_are_not_kept(
    status: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch that another try may time is not kept without a time."""
    lost = [Measurement(status, None, "for now")]
    monkeypatch.setattr(MeasuringProcess, "measure", lambda _process, _request: lost)
    assert interrupted(Journal("sweep")) == [None] * 3
    assert not kept(store)


def test_journal_that_cannot_be_kept_is_no_error(
    asked: list[Problem], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the store cannot be written everything is measured, and nothing else is promised."""
    store.write_text("")
    for _ in range(2):
        interrupted(Journal("sweep"))
    assert asked == PROBLEMS * 2
    assert capsys.readouterr().err == ""


def test_old_journals_are_deleted(store: Path) -> None:
    """An expired journal is deleted."""
    interrupted(Journal("tune"))
    old = [*store.glob("unfinished/*/*.json")]
    for path in old:
        os.utime(path, (0, 0))
    interrupted(Journal("sweep"))
    assert not any(path.exists() for path in old)
