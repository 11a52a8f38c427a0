"""A Python with some version of Triton: the running one, a given one, or one that is made.

Each environment is made once, and kept beside the store of compiled resources.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from occupancy_lab.compiling.compile import triton_version
from occupancy_lab.compiling.store import make_directory, store_directory
from occupancy_lab.errors import refuse
from occupancy_lab.files import replace_file
from occupancy_lab.workers import child

OLDEST_PYTHON = (3, 11)
VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")

ASK = """
import sys
sys.path = [folder for folder in sys.path if folder]
print(*sys.version_info[:2])
import triton
from importlib.metadata import version
print(version("triton"))
"""
"""Runs without the working directory on the path, for which an old Python has no option."""
ANSWERING = 60.0
"""Seconds that a Python may take to say which Triton it has."""
MAKING = 1800.0
"""Seconds that making an environment may take: Triton is a download of 200 MB."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python interpreter, and the version of the Triton that it imports."""

    python: str
    triton: str

    @property
    def is_running(self) -> bool:
        """Return whether this is the running interpreter."""
        return self.python == sys.executable


def running_environment() -> Environment:
    """Return the environment of this process."""
    return Environment(sys.executable, triton_version())


def find_environment(wanted: str | None) -> Environment:
    """Return the environment for *wanted*: a Triton version, a Python, or a venv's folder.

    None means the environment of this process. An environment for another version than the running
    Triton's is made unless there is one; this takes a minute, so a note on standard error comes
    first.

    Raises InputError if *wanted* is none of these, or if the Triton version cannot be installed.
    """
    if wanted is None or wanted in (sys.executable, triton_version()):
        return running_environment()
    if not isinstance(wanted, str):
        refuse(f"triton is {wanted!r}; give a version, such as 3.6.0, or the path of a Python")
    if all(VERSION.fullmatch(one) for one in wanted.split(",")) and "," in wanted:
        refuse(
            f"{wanted} is several versions of Triton; give one. `diff` compares two of any launch,"
            " and `compare` several of a matrix (--cols)"
        )
    path = Path(wanted).expanduser()
    if "/" not in wanted and VERSION.fullmatch(wanted):
        python = triton_python(wanted)
        return Environment(python, _ask(Path(python), wanted))
    if path.is_dir():
        path /= "bin/python"
    if not path.is_file():
        refuse(
            f"{wanted} is neither a Triton version, such as 3.6.0, nor a Python interpreter, nor"
            " the folder of a virtual environment"
        )
    # A venv's python is a link; the Python that it leads to lacks the venv's packages.
    return Environment(str(path.absolute()), _ask(path.absolute(), wanted))


def triton_python(version: str) -> str:
    """Return the interpreter of an environment with Triton *version*, which is made if needed.

    Raises InputError if it cannot be made.
    """
    root = store_directory()
    directory = root / "triton" / version
    python = directory / "bin" / "python"
    _check_owned(root, directory.parent, directory, python.parent, python)
    if directory.exists() and _answer(python) is None:
        shutil.rmtree(directory, ignore_errors=True)
    if not directory.exists():
        from occupancy_lab.text.printing import print_note

        print_note(f"making an environment with Triton {version} in {directory}")
        try:
            make_directory(root)
            _make(version, directory)
        except OSError as error:
            refuse(f"no environment for Triton {version} can be kept in {directory}: {error}")
    with contextlib.suppress(OSError):  # without them, a missing package is named
        _lend_packages(directory)
    return str(python)


def _lend_packages(directory: Path) -> None:
    """Let the environment in *directory* import this interpreter's packages that it lacks.

    Most files of kernels import torch. The environment's own packages come first.
    """
    folder = Path(sysconfig.get_path("purelib", "venv", {"base": str(directory)}))
    lent = "".join(f"{sysconfig.get_path(one)}\n" for one in ("purelib", "platlib")).encode()
    path = folder / "occupancy_lab.pth"
    if not path.exists() or path.read_bytes() != lent:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, lent)  # others may start from it meanwhile


def _check_owned(*paths: Path) -> None:
    """Raise InputError if somebody else may have put a file or folder at one of *paths*.

    Its code would run: each must belong to the user or to root, and nobody else may write to it.
    """
    for path in paths:
        try:
            link, status = path.lstat(), path.stat()
        except OSError:
            continue
        owners = {link.st_uid, status.st_uid}
        if not owners <= {os.getuid(), 0} or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            refuse(
                f"{path} belongs to another user or can be written by others, who may have put"
                " code there that would run; remove it, or make it yours alone (chmod go-w)"
            )


def _make(version: str, directory: Path) -> None:
    """Make an environment in a temporary folder beside *directory*, and rename it in one step."""
    directory.parent.mkdir(mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".") as folder:
        made = Path(folder) / version
        _run([sys.executable, "-I", "-m", "venv", str(made)], version)
        pip = [str(made / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check"]
        _run([*pip, "install", "--quiet", f"triton=={version}"], version)
        try:
            made.rename(directory)
        except OSError:
            # Another process was faster; its environment serves as well.
            if not directory.exists():
                raise


def _run(command: list[str], version: str) -> None:
    try:
        done = child.run(command, MAKING, umask=0o022)
    except subprocess.TimeoutExpired:
        reason = f"it takes longer than {MAKING:g} s"
    else:
        if not done.returncode:
            return
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR: ")]
        told = [*lines[-1:], *errors[-1:]] or [f"exit status {done.returncode}"]
        reason = told[-1].removeprefix("ERROR: ").strip().rstrip(".")
        if any("Retrying (" in line for line in lines):
            reason = "the package index cannot be reached"
    refuse(
        f"no environment for Triton {version} could be made: {reason}; give the path of a Python"
        " that has it"
    )


def _answer(python: Path) -> list[str] | None:
    """Return the lines that *python* prints: its version and its Triton's; None if it is no Python.

    Raises InputError if it does not answer in time.
    """
    try:
        done = child.run([str(python), "-c", ASK], ANSWERING, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        refuse(f"{python} does not say within {ANSWERING:g} s which Triton it has")
    lines = done.stdout.splitlines()
    return lines if lines and re.fullmatch(r"\d+ \d+", lines[0]) else None


def _ask(python: Path, wanted: str) -> str:
    answer = _answer(python)
    if answer is None:
        refuse(f"{wanted} is no Python interpreter that runs")
    found, *rest = answer
    number = found.replace(" ", ".")
    if tuple(map(int, found.split())) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        refuse(f"{wanted} is Python {number}; compiling there takes {oldest} or newer")
    if not rest:
        refuse(f"{wanted} is Python {number} without a Triton that it can import")
    return rest[-1]
