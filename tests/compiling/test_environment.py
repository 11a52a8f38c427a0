"""Environments for other Tritons: the running one, given ones and new ones."""

import itertools
import os
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import is_running

from occupancy_lab.compiling import environment, triton_version
from occupancy_lab.compiling.environment import Environment, find_environment, triton_python
from occupancy_lab.errors import InputError


def fake_python(path: Path, *lines: str, run: Path | None = None) -> Path:
    """Make an executable that prints *lines* and leaves the file *run* behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    left = "" if run is None else f"touch '{run}'\n"
    path.write_text("#!/bin/sh\n" + left + "".join(f"echo '{line}'\n" for line in lines))
    path.chmod(0o755)
    return path


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Use a fresh store, fake venv and pip, and return the commands that run."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "store"))
    ran: list[list[str]] = []

    def run(command: list[str], version: str) -> None:
        ran.append(command)
        if "venv" in command:
            fake_python(Path(command[-1]) / "bin" / "python", "3 11", version)

    monkeypatch.setattr(environment, "_run", run)
    return ran


def test_the_running_triton_needs_no_environment(commands: list[list[str]]) -> None:
    """The running Triton's version needs no other interpreter."""
    assert find_environment(triton_version()) == Environment(sys.executable, triton_version())
    assert not commands


def test_an_environment_is_made_once(
    commands: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first call makes an environment and says so, the second finds it."""
    first, second = (triton_python("3.4.5") for _ in range(2))
    assert first == second == str(tmp_path / "store/triton/3.4.5/bin/python")
    assert [command[-1] for command in commands[1:]] == ["triton==3.4.5"]
    assert capsys.readouterr().err.count("making an environment with Triton 3.4.5") == 1
    assert find_environment("3.4.5") == Environment(first, "3.4.5")
    assert [path.name for path in (tmp_path / "store/triton").iterdir()] == ["3.4.5"]


@pytest.mark.usefixtures("commands")
def test_a_made_environment_finds_the_packages_that_it_lacks() -> None:
    """Files of kernels import torch: packages of the running Python come after its own."""
    folder = Path(triton_python("3.4.5")).parents[1]
    (path,) = folder.rglob("*.pth")
    assert path.parent.name == "site-packages"
    assert sysconfig.get_path("purelib") in path.read_text(encoding="utf-8").splitlines()


def test_a_broken_environment_is_made_again(commands: list[list[str]]) -> None:
    """An environment whose Python is gone is replaced."""
    python = Path(triton_python("3.4.5"))
    python.unlink()
    assert triton_python("3.4.5") == str(python)
    assert python.is_file()
    assert len(commands) == 4


def owned_by_another(path: Path) -> None:
    """Give *path* to another user."""
    os.lchown(path, 12345, -1)


def writable(path: Path) -> None:
    """Let a group write to *path*."""
    path.chmod(path.stat().st_mode | 0o020)


def link_of_another(path: Path) -> None:
    """Replace *path* by another user's link to a working Python."""
    python = path.rename(path.with_name("fine"))
    path.symlink_to(python)
    os.lchown(path, 12345, -1)


PLACES = ("", "triton", "triton/3.4.5", "triton/3.4.5/bin", "triton/3.4.5/bin/python")
"""The folders and files from the store to the Python that is run, by their paths in the store."""


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        *itertools.product(PLACES, (owned_by_another, writable)),
        (PLACES[-1], link_of_another),
    ],
)
def test_what_others_can_write_to_is_not_run(
    commands: list[list[str]], tmp_path: Path, name: str, plant: Callable[[Path], None]
) -> None:
    """A Python that another user may have put there is not run, and is named."""
    only_root_can_give(plant)
    python = Path(triton_python("3.4.5"))
    fake_python(python, "3 11", "3.4.5", run=tmp_path / "was run")
    plant(tmp_path / "store" / name)
    with pytest.raises(InputError, match=r"others, who may have put") as caught:
        find_environment("3.4.5")
    assert str(caught.value).startswith(f"{tmp_path / 'store' / name} belongs to another user")
    assert not (tmp_path / "was run").exists()
    assert len(commands) == 2


def only_root_can_give(plant: Callable[[Path], None]) -> None:
    """Skip a test that gives a file away if the user may not do so."""
    if plant is not writable and os.getuid() != 0:
        pytest.skip("only root can give a file to another user")


def test_an_environment_is_the_users_alone_whatever_the_umask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A loose umask does not make a new environment unsafe."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "store"))
    real = environment.child.run

    def run(command: list[str], timeout: float, **how: Any) -> subprocess.CompletedProcess[str]:
        if "venv" in command:
            made = Path(command[-1])
            link = f"ln -s {sys.executable} {made}/bin/python"
            command = ["sh", "-c", f"mkdir -p {made}/bin && {link}"]
        return real(["true"] if "pip" in command else command, timeout, **how)

    monkeypatch.setattr(environment.child, "run", run)
    before = os.umask(0)
    try:
        made = triton_python("3.4.5")
    finally:
        os.umask(before)
    assert triton_python("3.4.5") == made


@pytest.mark.usefixtures("commands")
def test_makers_at_the_same_time_leave_one(tmp_path: Path) -> None:
    """Concurrent makers of one environment all get it and leave nothing else."""
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(triton_python("3.4.5"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 4
    assert [path.name for path in (tmp_path / "store/triton").iterdir()] == ["3.4.5"]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("ERROR: No matching distribution found for triton==3.4.5", "No matching distribution"),
        ("WARNING: Retrying (Retry(total=4))\nERROR: No matching", "index cannot be reached"),
        ("The virtual environment was not created", "was not created"),
        ("", "exit status 1"),
    ],
)
def test_what_cannot_be_made_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output: str, reason: str
) -> None:
    """If venv or pip fails, one sentence says why, and nothing is left."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(
        environment.child,
        "run",
        lambda command, _timeout, **_: subprocess.CompletedProcess(command, 1, output),
    )
    with pytest.raises(
        InputError, match=rf"Triton 3\.4\.5 could be made: .*{reason}.*; give the path"
    ):
        triton_python("3.4.5")
    assert not list((tmp_path / "triton").iterdir())


def test_a_store_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The message names the folder that cannot keep an environment."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"Triton 3\.4\.5 can be kept in .*file"):
        triton_python("3.4.5")


@pytest.mark.parametrize("wanted", ["env", "env/bin/python"])
def test_a_venv_or_its_python_can_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    """A given environment is named by its own path, not its link's."""
    base = fake_python(tmp_path / "base", "3 12", "3.9.0")
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(base)
    monkeypatch.chdir(tmp_path)
    python = str(tmp_path / "env" / "bin" / "python")
    assert find_environment(wanted) == Environment(python, "3.9.0")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((), "no Python interpreter that runs"),
        (("hello",), "no Python interpreter that runs"),
        (("3 9", "3.1.0"), r"is Python 3\.9; compiling there takes 3\.11 or newer"),
        (("3 11",), r"is Python 3\.11 without a Triton"),
    ],
)
def test_a_wrong_interpreter_is_told(tmp_path: Path, lines: tuple[str, ...], reason: str) -> None:
    """No Python, an old one or one without Triton is refused with the reason."""
    path = fake_python(tmp_path / "python", *lines)
    with pytest.raises(InputError, match=reason):
        find_environment(str(path))


@pytest.mark.parametrize("wanted", ["newest", "/no/such/python", ""])
def test_what_is_neither_version_nor_path_is_told(
    wanted: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Other words are refused with what is accepted."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"a Triton version, such as 3\.6\.0|no Python"):
        find_environment(wanted)


def test_a_python_that_hangs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent interpreter is refused at its limit, and its processes end."""
    monkeypatch.setattr(environment, "ANSWERING", 0.5)
    path = fake_python(tmp_path / "python")
    path.write_text("#!/bin/sh\nsleep 600 & echo $! > $0.pid\nwait\n")
    with pytest.raises(InputError, match=r"does not say within 0\.5 s which Triton"):
        find_environment(str(path))
    started = Path(f"{path}.pid").read_text().strip()
    deadline = time.monotonic() + 30
    while is_running(started):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_making_has_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Making an environment is given up at its limit with a sentence."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(environment, "MAKING", 0.01)
    with pytest.raises(InputError, match=r"could be made: it takes longer than 0\.01 s"):
        triton_python("3.4.5")


def test_several_versions_are_refused_with_the_commands_that_take_them() -> None:
    """A list of versions is no environment; the commands that compare versions are named."""
    with pytest.raises(InputError, match=r"several versions of Triton; give one\. `diff`"):
        find_environment("3.6.0,3.7.1")


def test_a_pipe_is_no_python(tmp_path: Path) -> None:
    """A named pipe is refused without being read."""
    os.mkfifo(tmp_path / "python")
    with pytest.raises(InputError, match="neither a Triton version"):
        find_environment(str(tmp_path / "python"))


def test_the_working_directory_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder called triton in the working directory is not imported."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise SystemExit('run')\n")
    monkeypatch.chdir(tmp_path)
    assert environment._ask(Path(sys.executable), "this one") == triton_version()
