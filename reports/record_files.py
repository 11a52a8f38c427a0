"""The files that recorders write and read, and the processes that they run."""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

DATA = Path(__file__).resolve().parent / "data"
ROOT = DATA.parents[1]
sys.path.insert(0, str(ROOT))  # where the lab is not installed


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file as texts."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table, with times as numbers; no rows if there is no file."""
    return [
        {
            name: (float(text) if text else None) if name.endswith("us") else text
            for name, text in row.items()
        }
        for row in (read_table(path) if path.exists() else ())
    ]


def table_bytes(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return these *columns* of *rows* as CSV."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [*columns], lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


def write_rows(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write these *columns* of *rows*, numbers with five digits."""
    shortened = (
        {name: f"{cell:.5g}" if isinstance(cell, float) else cell for name, cell in row.items()}
        for row in rows
    )
    path.write_bytes(table_bytes(columns, shortened))


def append(path: Path, **columns: Any) -> None:
    """Append *columns* to a file of JSON lines."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(columns, default=str) + "\n")


def lines_of(content: bytes) -> list[dict[str, Any]]:
    """Return the JSON lines in *content*, without those that a stopped process left incomplete."""
    found = []
    for line in content.decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON lines of a file; none if there is no file."""
    return lines_of(path.read_bytes()) if path.exists() else []


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that no reader sees a part of it."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(path)


def write_json(path: Path, content: Any) -> None:
    """Write *content* as a whole JSON file."""
    write_whole(path, json.dumps(content).encode())


def digest(*parts: bytes) -> str:
    """Return a short digest of *parts*."""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def run_logged(words: Sequence[str | Path], log: Path, until: float, **environment: str) -> str:
    """Run a command until *until*, with its output in *log*; return why it failed, or "".

    It can import the lab and the recorders. Nothing that it started outlives it.
    """
    if time.time() > until:
        return "not tried, no time was left"
    paths = os.pathsep.join([str(ROOT), *sys.path])
    with log.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603 - named by a recorder
            words,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={**os.environ, "PYTHONPATH": paths, **environment},
            start_new_session=True,
        )
    try:
        status = process.wait(until - time.time())
    except subprocess.TimeoutExpired:
        return "stopped, its time was over"
    finally:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return f"status {status}" if status else ""


def path_of(folder: Path, group: str, suffix: str) -> Path:
    """Return the file of a group of launches with a suffix."""
    return folder / (re.sub(r"[^a-z0-9]+", "-", group.lower()) + suffix)


def group_arguments() -> argparse.ArgumentParser:
    """Return a parser of the arguments with which `run_groups` runs a script again."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--group", help=argparse.SUPPRESS)
    parser.add_argument("--phase", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    return parser


def run_groups(  # noqa: PLR0913, PLR0917 - what differs between the recorders
    groups: Iterable[str],
    folder: Path,
    phase: str,
    until: float,
    workers: int,
    before: Callable[[str], Sequence[str]] = lambda _: (),
) -> None:
    """Run this script again for each of *groups* in its own process, *workers* at a time.

    They should end at *until*, and are killed a little later. Their output is in *folder*. The
    words that *before* gives for a group precede its command.
    """

    def run(group: str) -> None:
        began, log = time.time(), path_of(folder, group, f".{phase}.log")
        own = ("--group", group, "--phase", phase, "--until", str(until))
        words = [*before(group), sys.executable, *sys.argv, *own]
        with tempfile.TemporaryDirectory() as temporary:  # Nsight Compute locks a file there
            why = run_logged(words, log, until + 20, OMP_NUM_THREADS="1", TMPDIR=temporary)
        print(f"{phase} {group}: {time.time() - began:.0f} s {why}", flush=True)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, groups))
