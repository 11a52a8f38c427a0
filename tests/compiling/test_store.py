"""Resources outlive a run, whatever happens to the files that keep them."""

import contextlib
import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile_files import put, within
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.compiling import Store, store_directory
from occupancy_lab.compiling.store import MOST_BYTES
from occupancy_lab.compiling.texts import Texts, unpack
from occupancy_lab.values import Failure, Resources, Status
from occupancy_lab.workers.messages import to_line

KEY = {"triton": "3.7.1", "arguments": ["*fp32", "i32"], "keywords": {"num_warps": 8}}
KEPT = Resources(32, 8, 12320, local_bytes=0, barriers=1, pipeline_shared=12288)
LINE = to_line(KEPT)
FAILURE = Failure(Status.COMPILE_FAILED, "ptxas does not like it", lasting=True)


def only_entry(directory: Path) -> Path:
    """Return the file of the store's only entry."""
    (file,) = (file for file in directory.rglob("*") if file.is_file())
    return file


def changed(**changes: Any) -> Callable[[Path], object]:
    """Return the damage that makes *changes* to an entry's JSON with a correct checksum."""

    def damage(file: Path) -> None:
        entry = json.loads(file.read_text()) | changes
        file.write_text(json.dumps(entry | {"sha256": checksum(entry)}))

    return damage


def fields(**changes: Any) -> Callable[[Path], object]:
    """Return the damage that makes *changes* to the fields of the resources; None removes one."""
    made = json.loads(LINE) | changes
    return changed(line=json.dumps({name: one for name, one in made.items() if one is not None}))


def checksum(entry: dict[str, Any]) -> str:
    """Return an entry's correct checksum."""
    rest = {name: value for name, value in entry.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def replaced(content: bytes) -> Callable[[Path], object]:
    """Return the damage that replaces an entry's content by *content*."""
    return lambda file: file.write_bytes(content)


def folder_in_place(file: Path) -> None:
    """Put a folder in the entry's place."""
    file.unlink()
    file.mkdir()


def link_to_itself(file: Path) -> None:
    """Put a link to itself in the entry's place."""
    file.unlink()
    file.symlink_to(file)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2),
    "empty": replaced(b""),
    "zeros": replaced(bytes(400)),
    "not JSON": replaced(b"{'key': 1}"),
    "not text": replaced(b"\xff\xfe\x00"),
    "too deep": replaced(b"[" * 200_000),
    "a list": replaced(b"[]"),
    "null": replaced(b"null"),
    "no key": changed(key=None),
    "no line": changed(line=None),
    "no JSON in its line": changed(line="AAAA"),
    "another key": changed(key=KEY | {"triton": "3.6.0"}),
    "a missing field": fields(agprs=None, instructions=None),
    "an extra field": fields(cluster=2),
    "text for a number": fields(n_regs="32"),
    "no checksum": lambda file: file.write_text(json.dumps({"key": KEY, "line": LINE})),
    "another checksum": lambda file: file.write_text(
        json.dumps({"key": KEY, "line": LINE, "sha256": checksum({})})
    ),
    "too many bytes": lambda file: file.write_bytes(file.read_bytes() + b" " * MOST_BYTES),
    "a pipe in its place": lambda file: put("a pipe", file),
    "a device in its place": lambda file: put("a device", file),
    "a folder in its place": folder_in_place,
    "a link to itself": link_to_itself,
}


@given(st.from_type(Resources))
def test_every_value_survives(tmp_path_factory: pytest.TempPathFactory, kept: Resources) -> None:
    """Any resources, with any unknown fields, come back unchanged."""
    store = Store(tmp_path_factory.getbasetemp() / "every value")
    store.put(KEY, kept)
    assert store.get(KEY) == kept


@pytest.mark.parametrize(
    "other",
    [
        {},
        KEY | {"triton": "3.7.2"},
        KEY | {"arguments": ["i32", "*fp32"]},
        KEY | {"keywords": {"num_warps": 4}},
        KEY | {"more": None},
    ],
)
def test_keys_are_told_apart(tmp_path: Path, other: dict[str, Any]) -> None:
    """A key that differs in any part has its own entry."""
    store = Store(tmp_path)
    store.put(KEY, KEPT)
    assert store.get(other) is None
    store.put(other, KEPT.replace(n_regs=99))
    assert store.get(KEY) == KEPT


def test_texts_are_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    """Texts come back as they were; what is not packed texts counts as absent."""
    store, texts = Store(tmp_path), Texts("kernel", "hip", 4, 1, 0, "module {}", amdgcn="s_endpgm")
    store.put_line("texts", KEY, texts.pack())
    assert unpack(store.get_line("texts", KEY) or "") == texts
    store.put_line("texts", KEY, "AAAA")
    assert unpack(store.get_line("texts", KEY) or "") is None


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_entry_is_absent_and_repaired(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    """A damaged entry counts as absent, and the next put repairs it."""
    store = Store(tmp_path)
    store.put(KEY, KEPT)
    damage(only_entry(tmp_path))
    with within(10):
        assert store.get(KEY) is None
    store.put(KEY, KEPT)
    assert store.get(KEY) == KEPT


@given(place=st.integers(0), of_failure=st.booleans())
def test_a_flipped_bit_is_never_another_answer(
    tmp_path_factory: pytest.TempPathFactory, *, place: int, of_failure: bool
) -> None:
    """With any flipped bit, the answer is unchanged or absent."""
    directory = tmp_path_factory.mktemp("flipped")
    store = Store(directory)
    if of_failure:
        right: Resources | Failure = store.put_failure(KEY, FAILURE)
    else:
        store.put(KEY, KEPT)
        right = KEPT
    file = only_entry(directory)
    content = bytearray(file.read_bytes())
    content[place // 8 % len(content)] ^= 1 << place % 8
    file.write_bytes(content)
    assert (store.get_failure(KEY) if of_failure else store.get(KEY)) in {right, None}


def test_a_failure_says_where_it_is_remembered(tmp_path: Path) -> None:
    """A kept failure names its reason, its file and --retry-failed."""
    store = Store(tmp_path)
    kept = store.put_failure(KEY, FAILURE)
    assert store.get_failure(KEY) == Store(tmp_path).get_failure(KEY) == kept
    assert kept.reason.startswith("ptxas does not like it; remembered in ")
    assert f" {only_entry(tmp_path)}," in kept.reason
    assert "--retry-failed" in kept.reason
    store.forget("failures", KEY)
    assert store.get_failure(KEY) is None
    store.forget("failures", KEY)


def test_a_failure_that_is_not_kept_names_no_file(tmp_path: Path) -> None:
    """A failure that is not kept has only the compiler's reason."""
    (tmp_path / "file").touch()
    for store in (Store(None), Store(tmp_path / "file" / "below")):
        assert store.put_failure(KEY, FAILURE) == FAILURE
        store.forget("failures", KEY)


def test_nobody_else_can_write_to_a_new_store(tmp_path: Path) -> None:
    """A new store is writable only for its user, whatever the umask."""
    before = os.umask(0)
    try:
        Store(tmp_path / "new").put(KEY, KEPT)
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o022 == 0


def test_nothing_of_somebody_elses_is_removed(tmp_path: Path) -> None:
    """A non-empty folder in an entry's place stays."""
    store = Store(tmp_path)
    store.put(KEY, KEPT)
    place = only_entry(tmp_path)
    folder_in_place(place)
    (place / "precious").touch()
    store.put(KEY, KEPT)
    assert store.get(KEY) is None
    assert only_entry(tmp_path) == place / "precious"


@pytest.mark.parametrize("place", ["/dev/null", "/dev/null/below", "/proc/no such place"])
def test_a_store_that_cannot_be_written(place: str) -> None:
    """In an unwritable place put and get do nothing and raise nothing."""
    store = Store(Path(place))
    store.put(KEY, KEPT)
    assert store.get(KEY) is None


@pytest.mark.parametrize("name", ["resources", "resources/ab"])
def test_a_file_in_a_folders_place(tmp_path: Path, name: str) -> None:
    """A file in the place of a store's folder stays, and nothing is raised."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    store = Store(tmp_path)
    keys = [{"number": number} for number in range(1000 if "/" in name else 3)]
    for key in keys:
        store.put(key, KEPT)
    assert (tmp_path / name).read_bytes() == b""
    kept = [store.get(key) for key in keys]
    assert None in kept
    assert (KEPT in kept) == ("/" in name)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space"), KeyboardInterrupt()])
def test_a_put_that_ends_early_leaves_the_entry_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """On a full disk, and after Ctrl-C, the old entry stays whole and no part of a new one."""
    store = Store(tmp_path)
    store.put(KEY, KEPT)
    files = sorted(tmp_path.rglob("*"))

    def fail(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr(Path, "replace", fail)
    is_stopped = isinstance(error, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt) if is_stopped else contextlib.nullcontext():
        store.put(KEY, KEPT.replace(n_regs=99))
    assert store.get(KEY) == KEPT
    assert sorted(tmp_path.rglob("*")) == files


WORKER = """
import sys, time
from pathlib import Path
from occupancy_lab.compiling.store import Store
from occupancy_lab.values import Resources

store, role, seen = Store(Path(sys.argv[1])), sys.argv[2], 0
print("ready", flush=True)
sys.stdin.readline()
until = time.monotonic() + 1.0
while time.monotonic() < until:
    for number in range(8):
        key, right = {"number": number}, Resources(number, 8, 1000 * number, sgprs=number)
        if role == "write":
            store.put(key, right)
        found = store.get(key)
        assert found in ((right,) if role == "write" else (right, None)), found
        seen += found is not None
assert seen > 10, seen
"""


def test_processes_share_a_store(tmp_path: Path) -> None:
    """While two processes write, a reader sees correct entries or none."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, tmp_path, role],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for role in ("write", "write", "read")
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    said = [worker.communicate(timeout=60)[1] for worker in workers]
    assert [(worker.returncode, text) for worker, text in zip(workers, said, strict=True)] == [
        (0, "")
    ] * 3
    assert len([file for file in tmp_path.rglob("*") if file.is_file()]) == 8


def test_the_variable_chooses_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """OCCUPANCY_LAB_CACHE_DIR is the store's directory, with ~ expanded."""
    monkeypatch.setenv("HOME", "/home/somebody")
    for chosen, place in (("/data/store", "/data/store"), ("~/store", "/home/somebody/store")):
        monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", chosen)
        assert store_directory() == Path(place)


@pytest.mark.skipif(sys.platform != "linux", reason="XDG is how Linux finds caches")
@pytest.mark.parametrize("chosen", [None, ""])
def test_the_place_is_the_users_cache(monkeypatch: pytest.MonkeyPatch, chosen: str | None) -> None:
    """The default is occupancy-lab in XDG_CACHE_HOME or ~/.cache."""
    monkeypatch.delenv("OCCUPANCY_LAB_CACHE_DIR")
    if chosen is not None:
        monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", chosen)
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/data/cache")
    assert store_directory() == Path("/data/cache/occupancy-lab")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert store_directory() == Path("/home/somebody/.cache/occupancy-lab")


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("x" * 2**21, True),
        ('"' * (MOST_BYTES // 3), True),
        ('"' * (MOST_BYTES // 2), False),
    ],
)
def test_lines_are_kept_as_far_as_they_can_be_read(
    line: str, *, kept: bool, tmp_path: Path
) -> None:
    """Long lines are kept unless they are too long to be read back."""
    store = Store(tmp_path)
    store.put_line("counted", {"kernel": "one"}, line)
    assert store.get_line("counted", {"kernel": "one"}) == (line if kept else None)
    assert any(tmp_path.rglob("*.json")) is kept
