"""The tool in a broken environment works, or says why not in one sentence."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import in_process
import pytest
from hostile_files import put, within

TOOL = Path(sys.executable).with_name("occupancy-lab")
SECONDS = 60
"""Seconds that a command of half a second may take on a busy machine."""
EXPLAIN = "explain --cols 781 --gpu h100"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Return a user's environment with a store that has the answer to EXPLAIN."""
    home = tmp_path_factory.mktemp("home")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in {"FORCE_COLOR", "COLUMNS", "OCCUPANCY_LAB_CACHE_DIR"}
    }
    found = {**kept, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "TOOL": str(TOOL)}
    done = run(f"$TOOL {EXPLAIN}", found)
    assert done.returncode == 0, done.stderr
    return found


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with more points than any buffer holds."""
    file = tmp_path_factory.mktemp("points") / "points.csv"
    file.write_text("target,n_regs,shared,num_warps\n" + "sm_90,32,0,8\n" * 50_000)
    return file


def run(
    script: str, environment: Mapping[str, str], **others: str
) -> subprocess.CompletedProcess[str]:
    """Run a shell *script* in which $TOOL is the tool."""
    return subprocess.run(
        ["/bin/bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, **others},
        timeout=SECONDS,
    )


def is_one_sentence(done: subprocess.CompletedProcess[str], part: str) -> bool:
    """Return whether the tool printed only one sentence, which has *part*, and exited with 2."""
    says = done.stderr.startswith("occupancy-lab: ") and part in done.stderr
    lines = done.stderr.count("\n")
    return says and (done.returncode, done.stdout, lines) == (2, "", 1)


COMMANDS = ["gpus --json", "--help", EXPLAIN, "occupancy --points $POINTS"]
"""A command for each way to print."""


@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_cannot_be_written_is_said(
    environment: Mapping[str, str], points: Path, command: str
) -> None:
    """A full disk behind standard output is exit 2 and one sentence."""
    done = run(f"$TOOL {command} > /dev/full", environment, POINTS=str(points))
    assert is_one_sentence(done, "standard output cannot be written: No space left on device")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_went_is_no_error(
    environment: Mapping[str, str], points: Path, command: str
) -> None:
    """A closed pipe is exit 0, without a message."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            ["/bin/bash", "-c", f"exec $TOOL {command}"],
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
            env={**environment, "POINTS": str(points)},
            timeout=SECONDS,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("$TOOL gpus >&-", 0),
        (f"$TOOL {EXPLAIN} >&-", 0),
        ("$TOOL gpus h10 2>&-", 2),
        ("$TOOL gpus h10 2> /dev/full", 2),
        ("$TOOL gpus h10 <&- >&- 2>&-", 2),
        (f"$TOOL {EXPLAIN} --json <&- >&- 2>&-", 0),
    ],
)
def test_streams_that_are_closed(environment: Mapping[str, str], script: str, status: int) -> None:
    """Without standard streams a command works with the same exit status."""
    done = run(script, environment)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


def test_no_standard_input_is_an_empty_one(environment: Mapping[str, str]) -> None:
    """A closed standard input counts as an empty file of points."""
    done = run("$TOOL occupancy --points - <&-", environment)
    assert is_one_sentence(done, "standard input has no column target")


@pytest.mark.parametrize(
    "changes",
    [
        "PYTHONIOENCODING=ascii",
        "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0",
        "-u HOME",
        "HOME=/dev/null",
        "TMPDIR=/nowhere",
        "COLUMNS=1",
        "COLUMNS=many",
        "TERM=dumb NO_COLOR=1",
        "PYTHONOPTIMIZE=2",
        "PYTHONWARNINGS=error",
        "PYTHONDEVMODE=1",
        "PYTHONUNBUFFERED=1",
    ],
)
def test_strange_environments_change_nothing(environment: Mapping[str, str], changes: str) -> None:
    """Encodings, homes, terminals and Python's switches change nothing."""
    done = run(f"env {changes} $TOOL {EXPLAIN}", environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "h100" in done.stdout.lower() or changes == "COLUMNS=1"
    assert "\x1b" not in done.stdout


def test_an_encoding_without_a_character_replaces_it(environment: Mapping[str, str]) -> None:
    """In ASCII bars are # and dots, and JSON is unchanged."""
    done = run(f"$TOOL {EXPLAIN}", environment, PYTHONIOENCODING="ascii")
    assert done.stdout.isascii()
    assert "#" in done.stdout
    as_json = run(f"$TOOL {EXPLAIN} --json", environment, PYTHONIOENCODING="ascii")
    assert json.loads(as_json.stdout)["records"]


def test_few_files_may_be_open(environment: Mapping[str, str]) -> None:
    """The tool works with a limit of 16 open files."""
    done = run(f"ulimit -n 16; $TOOL {EXPLAIN}", environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("tool", ["$TOOL", f"{sys.executable} -m occupancy_lab"])
def test_a_working_folder_that_is_gone(environment: Mapping[str, str], tool: str) -> None:
    """A deleted working folder matters only for a file in it."""
    gone = "folder=$(mktemp -d); cd $folder; rmdir $folder;"
    done = run(f"{gone} {tool} {EXPLAIN}", environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "H100" in done.stdout
    done = run(f"{gone} {tool} explain --cols 781 --kernel here.py", environment)
    assert is_one_sentence(done, "there is no file here.py")


def test_the_working_folder_holds_no_modules(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    """`python -m occupancy_lab` imports nothing from the working folder."""
    (tmp_path / "triton").mkdir()
    for name in ("random.py", "json.py", "click.py", "tempfile.py", "triton/__init__.py"):
        (tmp_path / name).write_text("raise SystemExit('imported from the working folder')\n")
    done = run(f"cd {tmp_path}; {sys.executable} -m occupancy_lab {EXPLAIN}", environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "H100" in done.stdout


SOURCES = {
    "empty": b"",
    "binary": bytes(range(256)) * 9,
    "brackets": b"[" * 100_000,
    "signs": b"x = " + b"-" * 100_000 + b"1",
    "raises": b"raise ValueError('no')",
}
"""Files without a kernel."""


@pytest.mark.parametrize("source", [*SOURCES, "a pipe"])
@pytest.mark.parametrize(
    "command",
    [("explain", "FILE.py:main", "--gpu", "h100"), ("check", "n_regs < 9", "FILE.py")],
)
def test_files_that_are_no_program_are_refused(
    tmp_path: Path, command: tuple[str, ...], source: str
) -> None:
    """Any other file in a kernel's place is refused in one sentence in time."""
    file = tmp_path / "odd.py"
    file.write_bytes(SOURCES[source]) if source in SOURCES else put(source, file)
    with within(SECONDS):
        done = in_process.run(*(word.replace("FILE.py", str(file)) for word in command))
    assert done.stdout == ""
    assert is_one_sentence(done, "")
    assert "unexpected" not in done.stderr
    assert "Traceback" not in done.stderr
