"""Kernel files, compilers and signals cannot disturb the command line."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import is_running, wait_until

TOOL = Path(sys.executable).with_name("occupancy-lab")
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -9}
GOOD = "from occupancy_lab.kernels.softmax_row import KERNEL\n"
PTXAS = """#!/bin/sh
case "$*" in *--version*) echo "Cuda compilation tools, release 12.8, V12.8.93"; exit;; esac
echo $$ > "$PTXAS_PID.part" && mv "$PTXAS_PID.part" "$PTXAS_PID"
sleep 600
"""
"""A ptxas that does not end."""
ASKED = {
    "explain": ("--gpu", "sm_90"),
    "compare": ("--gpu", "sm_90,sm_80"),
    "sweep": ("--gpu", "sm_90", "--num-warps", "4", "--num-stages", "1"),
    "tune": ("--gpu", "h100", "--num-warps", "4", "--num-stages", "1"),
}


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Return an environment with its own store, Triton cache and temporary folder."""
    names = ("OCCUPANCY_LAB_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR")
    for name in names:
        (tmp_path / name).mkdir()
    return os.environ | {name: str(tmp_path / name) for name in names}


def run(places: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tool with a time limit."""
    return subprocess.run(
        [TOOL, *arguments], env=places, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("command", ASKED)
def test_files_that_crash_are_a_sentence(
    command: str, places: dict[str, str], tmp_path: Path
) -> None:
    """Every command refuses a kernel's file that crashes, with exit 2."""
    file = tmp_path / "odd.py"
    file.write_text("import os; os.abort()")
    done = run(places, command, "--cols", "100", "--kernel", str(file), *ASKED[command])
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"occupancy-lab: {file} cannot be imported: ")
    assert done.stderr.count("\n") == 1
    assert not list(Path(places["TMPDIR"]).iterdir())


def test_json_stays_json(places: dict[str, str], tmp_path: Path) -> None:
    """A kernel's file that prints does not print into the answer."""
    file = tmp_path / "prints.py"
    file.write_text(f"import os\nprint('one')\nos.write(1, b'two')\n{GOOD}")
    for _ in range(2):
        done = run(
            places, "explain", "--cols", "9", "--kernel", str(file), "--gpu", "sm_90", "--json"
        )
        assert json.loads(done.stdout)["records"][0]["kernel"] == "softmax_row"
        assert "one\ntwo" in done.stderr


def test_time_limits_are_for_files_too(places: dict[str, str], tmp_path: Path) -> None:
    """A kernel's file that never ends is refused at the compile's time limit."""
    file = tmp_path / "endless.py"
    file.write_text("while True: pass")
    asked = ("--cols", "9", "--kernel", str(file), "--gpu", "sm_90", "--compile-timeout", "0.5")
    done = run(places, "explain", *asked)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"occupancy-lab: {file} takes longer than 0.5 s to import\n"


@pytest.mark.parametrize(
    ("command", "number"), [("explain", signal.SIGINT), *(("sweep", number) for number in STATUS)]
)
def test_signals_end_the_compiler_too(
    command: str, number: signal.Signals, places: dict[str, str], tmp_path: Path
) -> None:
    """Each signal ends the tool, ptxas, and removes temporary files."""
    ptxas = tmp_path / "ptxas"
    ptxas.write_text(PTXAS)
    ptxas.chmod(0o755)
    pid_file = tmp_path / "pid"
    more = {"TRITON_PTXAS_PATH": str(ptxas), "PTXAS_PID": str(pid_file)}
    with subprocess.Popen(
        [TOOL, command, "--cols", "100", *ASKED[command]],
        env=places | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(pid_file.exists)
        process.send_signal(number)
        _, complaints = process.communicate(timeout=30)
    assert process.returncode == STATUS[number]
    if number != signal.SIGKILL:
        rest = "; what was finished is above" if command == "sweep" else ""
        assert complaints.split("\n")[-2] == f"occupancy-lab: interrupted{rest}"
        assert "Traceback" not in complaints
    wait_until(lambda: not is_running(pid_file.read_text().strip()))
    wait_until(lambda: not list(Path(places["TMPDIR"]).iterdir()))


@pytest.mark.parametrize("command", ["explain", "compare"])
def test_a_terminal_is_told_what_takes_long(command: str, places: dict[str, str]) -> None:
    """A terminal shows progress and erases it; a run from the store shows none."""
    said = []
    for _ in range(2):
        terminal, end = pty.openpty()
        done = subprocess.run(
            [TOOL, command, "--cols", "100", *ASKED[command]],
            env=places,
            stdout=subprocess.PIPE,
            stderr=end,
            check=True,
            timeout=120,
        )
        os.close(end)
        said.append(read_all(terminal))
        assert b"compiling" not in done.stdout
    assert "softmax" in said[0]
    assert said[0].endswith("\r\x1b[K")
    assert said[1] == ""


def read_all(terminal: int) -> str:
    """Return everything written to a terminal whose other end is closed."""
    with open(terminal, "rb", buffering=0) as stream:
        try:
            return stream.read(1 << 16).decode()
        except OSError:  # Linux's end of file
            return ""
