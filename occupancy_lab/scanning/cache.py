"""The kernels in Triton caches: which folders hold one, and what its files say.

Triton keeps each kernel in a folder of its own: NAME.json (the metadata), NAME.cubin or NAME.hsaco
(the binary), and the texts that it was compiled from (Triton's `CacheManager`). torchinductor keeps
such a cache for each device in the folder triton/DEVICE of its own cache. This module imports
neither.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from occupancy_lab.compiling import inductor
from occupancy_lab.compiling.amdgcn import kernel_body, read_amdgcn, scratch_width
from occupancy_lab.compiling.cubin import read_sizes
from occupancy_lab.compiling.resources import pipeline_shared_bytes
from occupancy_lab.compiling.sass import count_kinds
from occupancy_lab.compiling.texts import BINARIES, TEXTS
from occupancy_lab.errors import BinaryError, quoted, refuse, unreadable
from occupancy_lab.files import read_bytes
from occupancy_lab.options import NAMES
from occupancy_lab.scanning.page import ScannedKernel
from occupancy_lab.values import Resources, Status, Target

SUFFIXES = frozenset({*BINARIES.values(), *TEXTS, "spv", "zebin"})
"""The suffixes of a kernel's files besides .json; the last two are of Intel's backend."""
UNFINISHED = "tmp.pid_"
"""The prefix of folders in which Triton writes a file before it moves the file to its place."""
MOST_BYTES = 64 << 20
"""The largest file that is read; the largest of Triton's own are about 1 MB."""
MOST_WARPS = 64
MATRIX = ("\tv_mfma_", "\tv_wmma_", "\tv_smfmac_", "\tv_swmmac_")
Read: TypeAlias = tuple[Resources, int | None, int | None]
"""The resources, accesses to local memory and multiplications of matrices in a binary."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The files of one kernel in a cache."""

    folder: str
    name: str
    """The name of its files without their suffixes."""
    suffixes: frozenset[str]

    def path(self, suffix: str) -> str:
        """Return the path of the file with *suffix*."""
        return f"{self.folder}/{self.name}.{suffix}"


@dataclass(frozen=True, slots=True)
class Found:
    """The contents of the folders that were searched."""

    entries: tuple[Entry, ...]
    unreadable: Mapping[str, str]
    """The folders that cannot be listed, with the reasons."""
    tuned: tuple[str, ...]
    """torchinductor's files with the best configuration of a kernel."""


@dataclass(frozen=True, slots=True)
class CachedKernel:
    """A kernel as the files of its entry describe it."""

    entry: Entry
    name: str
    target: Target
    resources: Resources
    num_stages: int | None
    maxnreg: int | None
    waves_per_eu: int | None
    triton_version: str | None
    local_accesses: int | None
    """Loads and stores of local memory, each of which counts once, wherever it is in the code; None
    if the instruction encoding of the target is not known."""
    tensor_instructions: int | None
    """Matrix multiplications on tensor cores, counted likewise."""


def default_directories() -> tuple[str, ...]:
    """Return the places of Triton's cache (its `knobs.cache`) and torchinductor's cache.

    They need not exist.
    """
    home = os.environ.get("TRITON_HOME") or os.path.expanduser("~")  # noqa: PTH111 - it never raises
    triton = os.environ.get("TRITON_CACHE_DIR") or f"{home}/.triton/cache"
    return tuple(dict.fromkeys((triton, inductor.cache_directory())))


def find_entries(directories: Iterable[str | os.PathLike[str]]) -> Found:
    """Return the kernels in *directories* and all folders below them, each folder once.

    Raises InputError if one of *directories* is not a directory.
    """
    entries: list[Entry] = []
    tuned: list[str] = []
    unreadable: dict[str, str] = {}
    seen: set[tuple[int, int]] = set()

    def note(error: OSError) -> None:
        unreadable[error.filename] = error.strerror or str(error)

    roots = [os.fspath(one) for one in directories]
    for root in roots:
        if not Path(root).is_dir():
            refuse(f"{quoted(root)} is not a directory; give a Triton cache or one entry")
    for root in roots:
        top = root.rstrip("/") or "/"
        for folder, folders, names in os.walk(top, onerror=note, followlinks=True):
            folders[:] = sorted(one for one in folders if not one.startswith(UNFINISHED))
            try:
                found = Path(folder).stat()
            except OSError as error:  # it was removed meanwhile
                note(error)
                continue
            if (found.st_dev, found.st_ino) in seen:  # for example a link that leads back
                folders.clear()
                continue
            seen.add((found.st_dev, found.st_ino))
            names.sort()
            entries += _kernels(folder, names)
            tuned += [f"{folder}/{name}" for name in names if name.endswith(".best_config")]
    return Found(tuple(entries), unreadable, tuple(tuned))


def _kernels(folder: str, names: Iterable[str]) -> list[Entry]:
    """Return the kernels among the files *names*: those with a binary or a compiler's text."""
    found: dict[str, set[str]] = {}
    for file in names:
        name, _, suffix = file.rpartition(".")
        if suffix in SUFFIXES or (suffix == "json" and not file.startswith("__grp__")):
            found.setdefault(name, set()).add(suffix)
    return [
        Entry(folder, name, frozenset(suffixes))
        for name, suffixes in found.items()
        if suffixes & SUFFIXES
    ]


def read_entry(entry: Entry) -> CachedKernel | ScannedKernel:
    """Return the kernel of *entry*, or a row that says why it cannot be read."""
    name, target = entry.name, None

    def nothing(status: str, reason: str, target: str = "") -> ScannedKernel:
        return ScannedKernel(
            kernel=name, target=target, status=status, reason=reason, entry=entry.folder
        )

    if entry.suffixes <= {*TEXTS}:
        return nothing(Status.NOT_COMPILED, "its compile did not finish")
    try:
        metadata = _metadata(entry)
        name = metadata["name"]
        target = metadata["target"]
        if target.backend not in BINARIES:
            why = f"Triton's backend {quoted(target.backend)} is not known; cuda and hip are"
            return nothing("unknown target", why, target.arch)
        read = _read_cuda if target.backend == "cuda" else _read_hip
        resources, local_accesses, tensor_instructions = read(entry, metadata)
    except BinaryError as error:
        return nothing("unreadable", str(error), "" if target is None else target.name)
    return CachedKernel(
        entry=entry,
        name=name,
        target=target,
        resources=resources,
        num_stages=metadata["num_stages"],
        maxnreg=metadata["maxnreg"],
        waves_per_eu=metadata["waves_per_eu"] or None,
        triton_version=metadata["triton_version"],
        local_accesses=local_accesses,
        tensor_instructions=tensor_instructions,
    )


def _metadata(entry: Entry) -> dict[str, Any]:
    if "json" not in entry.suffixes:
        binary = next(iter(entry.suffixes - {*TEXTS}))
        unreadable(f"there is no .json file with the metadata of its {binary}")
    text = read_entry_file(entry, "json")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        unreadable("the .json file is cut off or not JSON")
    if not isinstance(found, dict) or not isinstance(found.get("target"), dict):
        unreadable("the .json file is not the metadata of a kernel: it names no target")
    target = found["target"]
    texts = {"name": found.get("name"), "backend": target.get("backend")}
    for key, value in texts.items():
        if not isinstance(value, str):
            unreadable(f"the .json file is not a kernel's metadata: its {key} is {quoted(value)}")
    numbers = {
        key: _number(found, key, needed=key in {"num_warps", "shared"})
        for key in (*NAMES, "shared", "tmem_size")
    }
    if not 1 <= (numbers["num_warps"] or 0) <= MOST_WARPS:
        unreadable(f"the .json file is damaged: num_warps is {numbers['num_warps']}")
    version, warp_size = found.get("triton_version"), target.get("warp_size")
    return {
        **numbers,
        "name": found["name"],
        "num_ctas": numbers["num_ctas"] or 1,
        "triton_version": version if isinstance(version, str) else None,
        "target": Target(
            target["backend"],
            str(target.get("arch")),
            warp_size if type(warp_size) is int else 0,
        ),
    }


def _number(found: Mapping[str, Any], key: str, *, needed: bool) -> int | None:
    value = found.get(key)
    if value is None and not needed:
        return None
    if type(value) is not int or not 0 <= value < 2**31:
        unreadable(f"the .json file is not a kernel's metadata: its {key} is {quoted(value)}")
    return value


def read_entry_file(entry: Entry, suffix: str) -> bytes:
    """Return the content of a file of *entry*; raise BinaryError if it cannot be read."""
    if suffix not in entry.suffixes:
        unreadable(f"the .{suffix} file is missing")
    try:
        return read_bytes(entry.path(suffix), MOST_BYTES)
    except OSError as error:
        unreadable(f"the .{suffix} file cannot be read: {error.strerror}")


def read_text(entry: Entry, suffix: str) -> str:
    """Return a text of the entry; "" if it is missing or cannot be read."""
    try:
        return read_entry_file(entry, suffix).decode(errors="replace")
    except BinaryError:
        return ""


def has_loop(kernel: CachedKernel) -> bool:
    """Tell whether the kernel is known to loop; without a loop, its block holds all of its work."""
    text = read_text(kernel.entry, "ttgir")
    return "scf.for" in text or "scf.while" in text


def pipeline_bytes(kernel: CachedKernel) -> int:
    """Return the bytes of shared memory for prefetched data, which num_stages asks for."""
    buffers = pipeline_shared_bytes(read_text(kernel.entry, "ttgir"))
    return min(buffers, kernel.resources.shared)


def _read_cuda(entry: Entry, metadata: Mapping[str, Any]) -> Read:
    sizes, code = read_sizes(read_entry_file(entry, "cubin"), metadata["name"])
    resources = Resources(**_launched(metadata), **sizes, tensor_memory=metadata["tmem_size"])
    found = count_kinds(code.own, code.arch)
    if found is None:
        return resources, None, None
    spills = found["local_loads"] + found["local_stores"]
    return resources, spills, found["tensor_instructions"]


def _read_hip(entry: Entry, metadata: Mapping[str, Any]) -> Read:
    if "amdgcn" not in entry.suffixes:
        missing = "amdgcn" if "hsaco" in entry.suffixes else "amdgcn and hsaco"
        unreadable(f"there is no {missing}, from which the registers are read")
    text = read_entry_file(entry, "amdgcn").decode(errors="replace")
    resources = Resources(**_launched(metadata), **read_amdgcn(text, metadata["name"]))
    return resources, *amd_mix(kernel_body(text, metadata["name"]))


def _launched(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: metadata[name] for name in ("num_warps", "shared", "num_ctas")}


def amd_mix(body: str) -> tuple[int, int]:
    """Return the accesses to local memory of *body* and its multiplications of matrices."""
    accesses = (*_lines(body, "_load_"), *_lines(body, "_store_"))
    spills = sum(bool(scratch_width(line)) for line in accesses)
    return spills, sum(map(body.count, MATRIX))


def _lines(body: str, name: str) -> Iterator[str]:
    """Return the lines of *body* that contain *name*; much faster than a regular expression."""
    place = body.find(name)
    while place >= 0:
        end = body.find("\n", place) % (len(body) + 1)
        yield body[body.rfind("\n", 0, place) + 1 : end]
        place = body.find(name, end)
