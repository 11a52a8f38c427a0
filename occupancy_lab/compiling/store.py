"""Where compiled resources are kept between runs, one small JSON file a key."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError, quoted
from occupancy_lab.values import Failure, Resources

if TYPE_CHECKING:
    from collections.abc import Mapping

CACHE_VARIABLE = "OCCUPANCY_LAB_CACHE_DIR"
_FIELDS = {field.name for field in dataclasses.fields(Resources)}
_NEEDED = ("n_regs", "num_warps", "shared", "static_shared")


def store_directory() -> Path:
    """Return the store's directory: $OCCUPANCY_LAB_CACHE_DIR, or occupancy-lab in the XDG cache."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError as error:
            msg = f"{quoted(chosen)} cannot keep compiled resources: nobody has this home folder"
            raise InputError(msg) from error
    from platformdirs import user_cache_path

    return user_cache_path("occupancy-lab")


class Store:
    """Resources by key, shared by any number of processes.

    Each entry is written beside its place and moved there in one step, and holds its whole key: a
    reader sees all of an entry or none. An entry that cannot be read counts as absent, and one
    that cannot be written (no space, no permission) is gone with the run; neither is an error.
    """

    def __init__(self, directory: Path | None) -> None:
        """Keep entries under *directory*; None keeps nothing."""
        self._directory = directory

    def get(self, key: Mapping[str, Any]) -> Resources | None:
        """Return the resources kept under *key*, or None."""
        fields = self._read("resources", key)
        return Resources(**fields) if fields is not None and _is_whole(fields) else None

    def put(self, key: Mapping[str, Any], resources: Resources) -> None:
        """Keep *resources* under *key*."""
        self._keep("resources", key, dataclasses.asdict(resources))

    def get_failure(self, key: Mapping[str, Any]) -> Failure | None:
        """Return why *key* did not compile, or None."""
        fields = self._read("failures", key)
        try:
            return None if fields is None else Failure(**fields)
        except TypeError:
            return None

    def put_failure(self, key: Mapping[str, Any], failure: Failure) -> None:
        """Keep why *key* did not compile."""
        self._keep("failures", key, dataclasses.asdict(failure))

    def _read(self, kind: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
        if self._directory is None:
            return None
        try:
            entry = json.loads(_path(self._directory, kind, key).read_bytes())
            fields = entry[kind] if entry["key"] == key else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return fields if isinstance(fields, dict) else None

    def _keep(self, kind: str, key: Mapping[str, Any], fields: dict[str, Any]) -> None:
        if self._directory is None:
            return
        path = _path(self._directory, kind, key)
        entry = json.dumps({"key": key, kind: fields}, indent=1)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, entry.encode())


def _path(directory: Path, kind: str, key: Mapping[str, Any]) -> Path:
    digest = key_digest(key)
    return directory / kind / digest[:2] / f"{digest[2:]}.json"


def key_digest(key: Mapping[str, Any]) -> str:
    """Return a short name for *key*: equal keys have equal names."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def _is_whole(fields: dict[str, Any]) -> bool:
    numbers = all(isinstance(value, int | None) for value in fields.values())
    return numbers and fields.keys() == _FIELDS and None not in map(fields.get, _NEEDED)


def _write(path: Path, entry: bytes) -> None:
    """Write *entry* beside *path* and move it there in one step."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(entry)
        if path.is_dir():
            path.rmdir()
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
