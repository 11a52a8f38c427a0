"""Reads the records of traced processes: the kernels that they launched, and their occupancy.

The program has ended by then. A kernel's resources are read from the files that Triton made of it,
which are beside the records.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from occupancy_lab.arguments import Descriptor, Pointer, dtype_name
from occupancy_lab.compiled_records import record_in_program
from occupancy_lab.compiling.cubin import read_sizes
from occupancy_lab.compiling.notes import Feed
from occupancy_lab.compiling.resources import read_resources
from occupancy_lab.compiling.store import Store
from occupancy_lab.compiling.texts import Texts, kept_files, texts_of
from occupancy_lab.errors import BinaryError, InputError, refuse, unreadable
from occupancy_lab.explaining.case import Case
from occupancy_lab.files import read_bytes
from occupancy_lab.gpus import Gpu, bare_gpus, find_device, present_gpus, usual_gpus
from occupancy_lab.launch import BoundLaunch, Launch
from occupancy_lab.occupancy.calculator import Calculation, calculate, check_fits
from occupancy_lab.options import NAMES
from occupancy_lab.record import Record
from occupancy_lab.tracing.actions import (
    NO_EFFORT,
    Effort,
    case_of_kept,
    with_actions,
    without_timed,
)
from occupancy_lab.tracing.fusing import each_handover, noted_feeds
from occupancy_lab.tracing.traced import (
    GpuTime,
    GridLaunches,
    Launched,
    Part,
    Process,
    Traced,
    TracedKernel,
    counted_grids,
    merged,
    order,
    shortened,
    unusual,
)
from occupancy_lab.values import INT64_MAX, Resources, Target
from occupancy_lab.work.counting import count_launch

_Made = tuple[Any, tuple[int, ...] | None]
"""A launch: its kernel's key and its grid."""
EMPTY_NS, AROUND_NS = 1250, 930
"""The time of a pair of events around nothing, if it was not measured, and the further time around
a kernel. On an H200 (2026-11-22) a pair takes 1.25 us around nothing, 2.85 us around a kernel of
0.67 us by torch.profiler, and 12.90 us around one of 10.72 us."""


def read_records(
    folder: Path,
    gpu: Gpu | None = None,
    directory: Path | None = None,
    *,
    effort: Effort = NO_EFFORT,
    progress: Callable[[str], None] = lambda _said: None,
) -> Traced:
    """Return what the processes whose records are in *folder* launched.

    Occupancy is computed for *gpu*; None means the GPU on which each kernel was launched. The store
    at *directory* keeps the counted work of launches. *effort* says how much is compiled to find
    the changes that save most; *progress* is called with sentences about that, and with "" after
    it.
    """
    processes, found, recent, feeds = [], defaultdict(list), [], []
    for place in sorted(folder.glob("*-*/kernels.jsonl")):
        process, kernels, launched, noted = _read_process(place.parent)
        processes.append(process)
        feeds.append(noted)
        recent += [(process.pid, *one) for one in launched]
        for kernel in kernels:
            found[_key(kernel)].append((process, kernel))
    present = {one.name: one.gpu for one in present_gpus()}
    store = Store(directory)
    traced = {key: _traced(group, folder, gpu, present, store) for key, group in found.items()}
    in_order = tuple(
        Launched(traced[key], one, pid)
        for pid, key, grid in recent
        for one in traced[key].grids
        if one.grid == grid
    )
    handovers = each_handover(
        (noted, [_over(traced[key], grid) for key, grid in firsts]) for noted, firsts in feeds
    )
    kept = {id(traced[key]): _kept(folder, group[0][1]) for key, group in found.items()}

    def case_of(kernel: TracedKernel) -> Case | None:
        case = case_of_kept(kernel, kept[id(kernel)], directory, progress)
        return None if case is None else without_timed(case, kernel, traced.values())

    return with_actions(
        Traced(order(traced.values()), tuple(processes), in_order, handovers=handovers),
        case_of,
        effort,
    )


def _over(kernel: TracedKernel, grid: tuple[int, ...] | None) -> tuple[TracedKernel, GridLaunches]:
    """Return *kernel* with its launches over *grid*, which are empty if there are none."""
    empty = GridLaunches(grid, 0)
    return kernel, next((one for one in kernel.grids if one.grid == grid), empty)


def _kept(folder: Path, kernel: Mapping[str, Any]) -> Path:
    return Path(folder, "files", kernel.get("kept", "-"))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Return the lines of a record; a killed process may have cut off the last."""
    for line in read_bytes(path).decode(errors="replace").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return


def _read_process(
    place: Path,
) -> tuple[Process, list[dict[str, Any]], list[_Made], tuple[list[Feed], list[_Made]]]:
    """Return a process, its kernels, its last launches, and which first launches feed others."""
    facts, *told = list(_lines(place / "kernels.jsonl")) or [{}]
    kernels = [one for one in told if not one.keys() & {"passed", "values"}]
    try:
        counted = json.loads((place / "counts.json").read_text("utf-8"))
    except (OSError, ValueError):  # killed before the first flush
        counted = {"kernels": {}}
    empty = counted.get("empty_ns") or []
    empty_ns = min(empty, default=EMPTY_NS) + AROUND_NS
    launches = 0
    for kernel in kernels:
        cells = counted["kernels"].get(str(kernel["kernel"]), [])
        kernel["grids"] = [_grid_launches(cell, empty_ns) for cell in cells]
        for what in ("passed", "values"):
            kernel[what] = {
                shortened(one["grid"]): one[what]
                for one in told
                if what in one and one["kernel"] == kernel["kernel"]
            }
        launches += sum(one.launches + one.tuning for one in kernel["grids"])
    process = Process(
        pid=facts.get("pid", 0),
        argv=tuple(facts.get("argv", ())),
        triton=facts.get("triton"),
        torch=facts.get("torch"),
        rank=facts.get("rank"),
        ended=bool(counted.get("ended")),
        seconds=counted.get("seconds"),
        launching_seconds=counted.get("launching_seconds"),
        replays=counted.get("replays", 0),
        launches=launches,
        overhead_ns=counted.get("spent_ns", 0) + launches * counted.get("hot_ns", 0.0),
        hot_ns=counted.get("hot_ns"),
        held=counted.get("held", 0),
        empty_us=empty_ns / 1000,
        errors=tuple(counted.get("errors", ())),
        gpu_time=_gpu_time(counted.get("profile"), {kernel["name"] for kernel in kernels}),
    )
    numbered = {kernel["kernel"]: kernel for kernel in kernels}
    firsts = [one for one in told if "memory" in one and one["kernel"] in numbered]
    made: list[_Made] = [(_key(numbered[one["kernel"]]), shortened(one["grid"])) for one in firsts]
    launched = []
    for number, cell in counted.get("recent", ()):
        if number in numbered and cell < len(numbered[number]["grids"]):
            kernel = numbered[number]
            launched.append((_key(kernel), kernel["grids"][cell].grid))
    return process, kernels, launched, ([*noted_feeds(firsts)], made)


def _gpu_time(profile: Mapping[str, Any] | None, names: Collection[str]) -> GpuTime | None:
    """Return the sums of `hook.summed`, split by whether a kernel's name is in *names*."""
    if not profile:
        return None
    us = {name: ns / 1000 for name, (_, ns) in profile["kernels"].items()}
    return GpuTime(
        span_us=profile["span_ns"] / 1000,
        busy_us=profile["busy_ns"] / 1000,
        triton_us=sum(us[name] for name in us if name in names),
        copies_us=profile["copies_ns"] / 1000,
        others={name: us[name] for name in sorted(us) if name not in names},
    )


def _grid_launches(cell: Mapping[str, Any], empty_ns: float) -> GridLaunches:
    samples, grid = cell["samples"], cell["grid"]
    mean_us = None
    if samples:
        # Launches since the last timed one count with its time.
        since = max(cell["count"] - cell["weighed"], 0)
        ns = (cell["ns"] + since * cell["last_ns"]) / max(cell["count"], cell["weighed"], 1)
        mean_us = max(ns - empty_ns, 0.0) / 1000
    return GridLaunches(
        None if grid is None else shortened(grid),
        cell["count"] + cell["captured"],
        cell["tuning"],
        cell["captured"],
        samples,
        mean_us,
    )


def _key(kernel: Mapping[str, Any]) -> tuple[Any, ...]:
    constexprs = tuple(sorted(kernel.get("constexprs", {}).items()))
    return kernel["name"], kernel["hash"], kernel.get("gpu"), constexprs


def _traced(
    group: list[tuple[Process, dict[str, Any]]],
    folder: Path,
    asked: Gpu | None,
    present: Mapping[str, Gpu],
    store: Store,
) -> TracedKernel:
    first = group[0][1]
    kept = _kept(folder, first)
    files, metadata = kept_files(kept), {**first.get("metadata", {}), **_metadata(kept)}
    target = _target(metadata)
    calculation, reason, source = None, None, "not known"
    try:
        resources = _resources(files, metadata, first, target)
        gpu, source = _gpu_of(first, target, asked, present)
        calculation = calculate(resources, gpu)
        check_fits(calculation)
    except Exception as error:  # noqa: BLE001 - a kernel that cannot be read is a row that says so
        reason = str(error)
    grids = merged(one for _, kernel in group for one in kernel["grids"])
    if calculation is not None:
        named = {"name": first["name"], **metadata}
        texts = texts_of(files, SimpleNamespace(**named), calculation.gpu.target.backend)
        counted = {one.grid for one in counted_grids(grids)}
        grids = tuple(
            dataclasses.replace(
                one, record=_record(group, texts, named, calculation, grid=one.grid, store=store)
            )
            if one.grid in counted
            else one
            for one in grids
        )
    return TracedKernel(
        kernel=first["name"],
        hash=str(first["hash"]),
        launched_by=first.get("by", "triton"),
        options=unusual(metadata),
        constexprs=first.get("constexprs", {}),
        target=target,
        calculation=calculation,
        reason=reason,
        gpu_source=source,
        grids=grids,
        parts=tuple(
            Part(process.pid, kernel.get("device"), tuple(kernel["grids"]))
            for process, kernel in group
        ),
        elsewhere=asked is not None and find_device(first.get("gpu") or "") not in {None, asked},
    )


def _record(  # noqa: PLR0913 - what counts depend on
    group: Sequence[tuple[Process, dict[str, Any]]],
    texts: Texts | None,
    metadata: Mapping[str, Any],
    calculation: Calculation,
    *,
    grid: tuple[int, ...] | None,
    store: Store,
) -> Record | None:
    """Return the first launch over *grid* that a process of *group* noted, with its counts."""
    given = (
        (kernel["passed"][grid], kernel["values"].get(grid, {}))
        for _, kernel in group
        if grid in kernel["passed"]
    )
    passed, values = next(given, (None, {}))
    if grid is None or passed is None:
        return None
    constexprs = group[0][1].get("constexprs", {})
    try:
        run = launch_of(metadata, passed, grid, constexprs)
    except (InputError, KeyError, TypeError):  # the record is damaged
        return None
    found = with_counts(record_in_program(run, calculation), texts, values, store)
    return None if found.counts is None else found


def _metadata(kept: Path) -> dict[str, Any]:
    for path in kept.glob("*.json"):
        with contextlib.suppress(OSError):
            found = next(_lines(path), {})
            if "target" in found:
                return found
    return {}


def _target(metadata: Mapping[str, Any]) -> Target | None:
    found = metadata.get("target")
    if not isinstance(found, dict):
        return None
    return Target(found["backend"], str(found["arch"]), found["warp_size"])


def _resources(
    files: Mapping[str, Any],
    metadata: Mapping[str, Any],
    first: Mapping[str, Any],
    target: Target | None,
) -> Resources:
    """Return a kernel's resources from its files, or without them as its process told them."""
    backend = "cuda" if target is None else target.backend
    try:
        return read_resources(files, SimpleNamespace(**metadata), backend)
    except (BinaryError, AttributeError, TypeError):
        told: dict[str, Any] = {
            "num_warps": metadata.get("num_warps"),
            "shared": metadata.get("shared"),
            "n_regs": first.get("n_regs"),
        }
        if "cubin" in files:
            told |= read_sizes(files["cubin"], first["name"])[0]
        elif first.get("n_spills") is not None:
            told["local_bytes"] = 4 * first["n_spills"]
        if None in told.values():
            unreadable(f"the files that Triton made of {first['name']} are gone")
        return Resources(**told, num_ctas=metadata.get("num_ctas", 1))


def _gpu_of(
    kernel: Mapping[str, Any],
    target: Target | None,
    asked: Gpu | None,
    present: Mapping[str, Gpu],
) -> tuple[Gpu, str]:
    if asked is not None:
        if target is not None and asked.target.name != target.name:
            refuse(f"it is compiled for {target.name}, and {asked.title} is {asked.target.name}")
        return asked, "as asked"
    if target is None or target.name not in bare_gpus():
        refuse(
            "its target is not known" if target is None else f"{target.name} is not in the table"
        )
    name: Any = kernel.get("gpu")
    size = kernel.get("multiprocessors")
    if name in present:
        return present[name], "as its driver describes it"
    device = None if name is None else find_device(name)
    if device is not None and size in {None, device.multiprocessors}:
        return device, "as the script named it"
    if name is not None:
        named = dataclasses.replace(bare_gpus()[target.name], title=name, multiprocessors=size)
        return named, "as the script named it"
    return usual_gpus()[target.name], f"the usual GPU of {target.name}, as none was named"


def with_counts(
    record: Record, texts: Texts | None, values: Mapping[str, Sequence[int]], store: Store
) -> Record:
    """Return a noted launch with what it does and its time, or with why that is not known.

    *values* are those of its small integer tensors when it was made. If the counts depend on
    values, the returned launch has the values of the tensors that it only reads.
    """
    found = count_launch(record.counting(texts), store)
    if found.counts is not None and found.counts.unknowns:
        written = {one.tensor for one in found.counts.footprints if one.written.high != 0}
        read = {name: tuple(of) for name, of in values.items() if name not in written}
        if read:
            launch = dataclasses.replace(record.launch, values=read)
            record = dataclasses.replace(record, launch=launch)
            found = count_launch(record.counting(texts), store)
    return record.with_counts(found)


def launch_of(
    metadata: Mapping[str, Any],
    passed: Mapping[str, Any],
    grid: tuple[int, ...],
    constexprs: Collection[str] = (),
) -> BoundLaunch:
    """Return the noted launch of the kernel with Triton's *metadata* and the arguments *passed*.

    Raises InputError, KeyError or TypeError if the note is damaged.
    """
    arguments = {parameter: _argument(value) for parameter, value in passed.items()}
    declared = tuple(name for name in arguments if name in constexprs)
    options = {name: metadata[name] for name in NAMES if metadata.get(name) is not None}
    launch = Launch((), arguments, grid)
    return BoundLaunch(metadata["name"], launch, arguments, declared, options)


def _argument(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "base" in value:
        shape, strides, block = (tuple(value[name]) for name in ("shape", "strides", "block_shape"))
        return Descriptor(_argument(value["base"]), shape, strides, block, value["padding"])
    storage = value["storage_bytes"]
    dtype = dtype_name(value["dtype"])
    return Pointer(dtype, INT64_MAX if storage is None else storage, value["aligned"])
