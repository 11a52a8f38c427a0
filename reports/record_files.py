"""The files that recorders write and read: tables, JSON lines, and whole files."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file as texts."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table_bytes(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return these *columns* of *rows* as CSV."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [*columns], lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


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
