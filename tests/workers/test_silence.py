"""Output written below Python is captured."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from occupancy_lab.workers.child import captured


def test_descriptors_are_taken(capfd: pytest.CaptureFixture[str]) -> None:
    """Output to descriptors 1 and 2 is captured and goes nowhere else."""
    with captured() as printed:
        os.write(1, b"to one, ")
        os.write(2, b"to two")
        assert printed.text == ""
    assert printed.text == "to one, to two"
    assert capfd.readouterr() == ("", "")


def test_libraries_in_c_are_taken(capfd: pytest.CaptureFixture[str]) -> None:
    """Output of C's buffers is captured."""
    library = ctypes.CDLL(None)
    with captured() as printed:
        library.dprintf(1, b"ptxas fatal: %d\n", ctypes.c_int(42))
        library.perror(b"from C")
    assert printed.text.startswith("ptxas fatal: 42\nfrom C: ")
    assert capfd.readouterr() == ("", "")


def test_blocks_nest(capfd: pytest.CaptureFixture[str]) -> None:
    """An inner block captures its own output, the outer block the rest."""
    with captured() as outer:
        os.write(1, b"one ")
        with captured() as inner:
            os.write(1, b"two")
        os.write(1, b"three")
    assert (outer.text, inner.text) == ("one three", "two")
    assert capfd.readouterr() == ("", "")


def test_errors_go_out_and_the_text_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    """An exception leaves the block, and the output is kept."""
    with pytest.raises(ZeroDivisionError), captured() as printed:  # noqa: PT012 - it writes first
        os.write(2, b"the reason")
        1 / 0  # noqa: B018
    assert printed.text == "the reason"
    os.write(1, b"works")
    assert capfd.readouterr() == ("works", "")


def test_no_descriptor_is_left_open() -> None:
    """A block closes its descriptors, also on failure."""
    before = sorted(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), captured():
            1 / 0  # noqa: B018
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_what_is_no_text_does_not_fail(capfd: pytest.CaptureFixture[str]) -> None:
    """Bytes that are not UTF-8, and large output, are captured."""
    with captured() as printed:
        os.write(1, b"\xff\xfe")
        os.write(1, b"x" * 200_000)
    assert printed.text == "\ufffd\ufffd" + "x" * 200_000
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("closed", ["1>&-", "2>&-"])
def test_closed_streams_do_not_fail(closed: str) -> None:
    """Capturing works without standard output or error."""
    program = (
        "from occupancy_lab.workers.child import captured\n"
        "import os\n"
        "with captured() as printed: os.write(1, b'one'); os.write(2, b'two')\n"
        "raise SystemExit(0 if printed.text == 'onetwo' else 3)\n"
    )
    command = f'"$0" -c "$1" {closed}'
    done = subprocess.run(["/bin/sh", "-c", command, sys.executable, program], check=False)
    assert done.returncode == 0
