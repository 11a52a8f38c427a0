"""What the launches of a traced kernel do: from what was noted of one and the files beside it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.texts import texts_of
from occupancy_lab.files import read_bytes
from occupancy_lab.launch import INT64_MAX, BoundLaunch, Descriptor, Launch, Pointer, dtype_name
from occupancy_lab.options import NAMES
from occupancy_lab.work.counting import Counted, count_launch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from occupancy_lab.compiling.store import Store
    from occupancy_lab.compiling.texts import Texts
    from occupancy_lab.values import Target

TEXTS = ("ttir", "ttgir", "ptx", "amdgcn")
BINARIES = ("cubin", "hsaco")


def kept_files(folder: Path) -> dict[str, Any]:
    """Return the binary and the texts of the kernel in *folder*, by how their files' names end."""
    found: dict[str, Any] = {}
    for path in folder.glob("*"):
        kind = path.suffix[1:]
        if kind in {*BINARIES, *TEXTS}:
            with contextlib.suppress(OSError):  # the cache may have anything in a file's place
                content = read_bytes(path)
                found[kind] = content if kind in BINARIES else content.decode(errors="replace")
    return found


def count_kept(
    run: BoundLaunch,
    texts: Texts | None,
    *,
    values: Mapping[str, Sequence[int]],
    resident: int | None,
    store: Store,
) -> tuple[BoundLaunch, Counted]:
    """Return what a launch does that was noted, or why that is not known, and the launch.

    *values* are what its small tensors of whole numbers had when it was made. Where what it does
    depends on values, the launch that is returned has those that it only reads. *resident* and
    *store* are as `count_launch` takes them.
    """
    assumed: dict[str, Any] = {"assume": {}, "resident": resident}
    found = count_launch(texts, run, run.launch.grid, store, **assumed)
    if found.counts is None or not found.counts.unknowns:
        return run, found
    written = {one.tensor for one in found.counts.footprints if one.written.high != 0}
    read = {name: tuple(of) for name, of in values.items() if name not in written}
    if not read:
        return run, found
    known = replace(run, launch=replace(run.launch, values=read))
    return known, count_launch(texts, known, run.launch.grid, store, **assumed)


def launch_of(
    metadata: Mapping[str, Any],
    passed: Mapping[str, Any],
    grid: tuple[int, ...],
    constexprs: Collection[str] = (),
) -> BoundLaunch:
    """Return the launch of the kernel with Triton's *metadata* that *passed* was noted of.

    Raises InputError, KeyError or TypeError where that is damaged.
    """
    arguments = {parameter: _argument(value) for parameter, value in passed.items()}
    declared = tuple(name for name in arguments if name in constexprs)
    options = {name: metadata[name] for name in NAMES if metadata.get(name) is not None}
    launch = Launch((), arguments, grid)
    return BoundLaunch(metadata["name"], launch, arguments, declared, options)


def texts_of_kept(folder: Path, metadata: Mapping[str, Any], target: Target | None) -> Texts | None:
    """Return the texts of a kernel; None where they, or the metadata, are gone."""
    if target is None:
        return None
    try:
        return texts_of(kept_files(folder), SimpleNamespace(**metadata), target.backend)
    except AttributeError:
        return None


def _argument(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "base" in value:
        shape, strides, block = (tuple(value[name]) for name in ("shape", "strides", "block_shape"))
        return Descriptor(_argument(value["base"]), shape, strides, block, value["padding"])
    storage = value["storage_bytes"]
    dtype = dtype_name(value["dtype"])
    return Pointer(dtype, INT64_MAX if storage is None else storage, value["aligned"])
