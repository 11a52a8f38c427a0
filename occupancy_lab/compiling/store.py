"""Keeps compiled results and what follows from them between runs, one JSON file per key."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from occupancy_lab.errors import quoted, refuse
from occupancy_lab.files import read_bytes, replace_file
from occupancy_lab.values import Failure, Resources
from occupancy_lab.workers.messages import from_line, to_line

CACHE_VARIABLE = "OCCUPANCY_LAB_CACHE_DIR"
MOST_BYTES, KEY_BYTES = 16 << 20, 1 << 20
"""The largest stored file that is read, bytes, and how much of it is left for the key. Resources
have some 2000, the compressed texts of a matmul some 60,000."""
CHECKSUM = "sha256"
"""The name under which a stored file has the checksum of the rest."""


def store_directory() -> Path:
    """Return the store's directory: $OCCUPANCY_LAB_CACHE_DIR, or occupancy-lab in the XDG cache."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError:
            refuse(f"{quoted(chosen)} cannot keep compiled resources: nobody has this home folder")
    from platformdirs import user_cache_path

    return user_cache_path("occupancy-lab")


def make_directory(directory: Path) -> None:
    """Make the store's *directory* if there is none, writable only for its owner.

    Raises OSError if it cannot be made.
    """
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)


def read_kept(text: str | bytes) -> dict[str, Any]:
    """Return the values of a JSON *text* that `write_kept` wrote, including the checksum.

    A text written by hand may lack the checksum. Raises ValueError if the text is no JSON object or
    if its checksum does not match its values.
    """
    try:
        values = json.loads(text)
        wrong = not isinstance(values, dict) or (
            CHECKSUM in values and values[CHECKSUM] != _checksum(values)
        )
    except RecursionError:
        wrong = True
    if wrong:
        msg = "it is no JSON object, or its checksum does not match its values"
        raise ValueError(msg)
    return dict(values)


def _checksum(values: Mapping[str, Any]) -> str:
    return key_digest({name: value for name, value in values.items() if name != CHECKSUM})


def write_kept(path: Path, values: Mapping[str, Any]) -> None:
    """Write *values* with their checksum to *path* as JSON, completely or not at all.

    Raises OSError if that fails.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():  # an empty folder may be in the file's place
        path.rmdir()
    whole = {**values, CHECKSUM: _checksum(values)}
    replace_file(path, (json.dumps(whole, indent=1, default=repr) + "\n").encode())


class Store:
    """Keeps lines of JSON by kind and key, for any number of processes.

    Each entry is written beside its place and renamed in one step, and contains its whole key and a
    checksum, so a reader sees all of an entry or nothing. An entry that is unreadable or damaged
    counts as absent, and an entry that cannot be written (no space, no permission) is lost with the
    run; neither is an error.
    """

    def __init__(self, directory: Path | str | None) -> None:
        """Keep entries under *directory*; None keeps nothing."""
        self.directory = None if directory is None else Path(directory)

    @property
    def triton_cache(self) -> Path | None:
        """The folder that Triton keeps the lab's compiles in; None if it cannot be written."""
        if self.directory is None:
            return None
        try:
            make_directory(self.directory)
            has_room = shutil.disk_usage(self.directory).free > MOST_BYTES
        except OSError:
            return None
        is_free = has_room and os.access(self.directory, os.W_OK)
        return self.directory / "triton-cache" if is_free else None

    def get_line(self, kind: str, key: Mapping[str, Any]) -> str | None:
        """Return the line of a *kind* kept under *key*, as it was given to `put_line`, or None."""
        if self.directory is None:
            return None
        try:
            entry = read_kept(read_bytes(_path(self.directory, kind, key), MOST_BYTES))
        except (OSError, ValueError):
            return None
        whole = entry.keys() == {"key", "line", CHECKSUM}
        same = whole and key_digest(entry["key"]) == key_digest(key)
        return entry["line"] if same and isinstance(entry["line"], str) else None

    def put_line(self, kind: str, key: Mapping[str, Any], line: str) -> bool:
        """Keep a line of a *kind* under *key*, unless it is too long to be read.

        Return whether it is kept.
        """
        if self.directory is None or len(json.dumps(line)) + KEY_BYTES > MOST_BYTES:
            return False
        try:
            make_directory(self.directory)
            write_kept(_path(self.directory, kind, key), {"key": key, "line": line})
        except OSError:
            return False
        return True

    def get(self, key: Mapping[str, Any]) -> Resources | None:
        """Return the resources kept under *key*, or None."""
        found: Resources | None = self._value(Resources, "resources", key)
        return found

    def put(self, key: Mapping[str, Any], resources: Resources) -> None:
        """Keep *resources* under *key*."""
        self.put_line("resources", key, to_line(resources))

    def get_failure(self, key: Mapping[str, Any]) -> Failure | None:
        """Return why *key* did not compile, and the file that remembers it; or None."""
        found: Failure | None = self._value(Failure, "failures", key)
        if found is None or self.directory is None:
            return None
        path = _path(self.directory, "failures", key)
        reason = f"{found.reason}; remembered in {path}, --retry-failed compiles it again"
        return Failure(found.status, reason)

    def put_failure(self, key: Mapping[str, Any], failure: Failure) -> Failure:
        """Keep why *key* did not compile, and return it as `get_failure` does from now on."""
        self.put_line("failures", key, to_line(failure))
        return self.get_failure(key) or failure

    def _value(self, of: Any, kind: str, key: Mapping[str, Any]) -> Any:
        try:
            return from_line(of, self.get_line(kind, key) or "")
        except ValueError:
            return None

    def forget(self, kind: str, key: Mapping[str, Any]) -> None:
        """Forget what a *kind* has under *key*, such as the reason why it did not compile."""
        if self.directory is not None:
            with contextlib.suppress(OSError):
                _path(self.directory, kind, key).unlink()

    def forget_before(self, kind: str, seconds: float) -> None:
        """Forget what a *kind* has from before a time in *seconds*, as files have it."""
        if self.directory is not None:
            for path in self.directory.glob(f"{kind}/*/*.json"):
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime < seconds:
                        path.unlink()


def _path(directory: Path, kind: str, key: Mapping[str, Any]) -> Path:
    digest = key_digest(key)
    return directory / kind / digest[:2] / f"{digest[2:]}.json"


def key_digest(key: Any) -> str:
    """Return a short name for *key*: equal keys have equal names."""
    return hashlib.sha256(key_as_json(key).encode()).hexdigest()


def key_as_json(key: Any) -> str:
    """Return *key* as JSON that is the same for equal keys."""
    return json.dumps(key, sort_keys=True, default=repr)
