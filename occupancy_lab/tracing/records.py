"""From the records of traced processes to the kernels that they launched, with their occupancy.

The program has ended when this reads them: what a kernel takes comes from the files that Triton
made of it, which lie beside the records.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import operator
from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.cubin import read_sizes
from occupancy_lab.compiling.resources import read_resources
from occupancy_lab.compiling.store import Store
from occupancy_lab.errors import BinaryError, refuse
from occupancy_lab.files import read_bytes
from occupancy_lab.gpus import bare_gpus, find_device, present_gpus, usual_gpus
from occupancy_lab.occupancy.calculator import calculate, check_fits
from occupancy_lab.occupancy.planning import plan_launch
from occupancy_lab.options import OPTIONS
from occupancy_lab.throughput.launch_time import predict_launch
from occupancy_lab.tracing.counted import count_kept, kept_files
from occupancy_lab.values import Resources, Target, Work
from occupancy_lab.work.counting import Counted
from occupancy_lab.work.memory import local_memory, memory, work_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.occupancy.calculator import Calculation
    from occupancy_lab.values import LaunchPlan, Prediction
    from occupancy_lab.work.counts import Counts, Executed
    from occupancy_lab.work.memory import Memory

EMPTY_NS, AROUND_NS = 1250, 930
"""What a pair of events takes around nothing, where that was not measured, and what more around a
kernel. On an H200 (2026-11-22) it takes 1.25 us around nothing, 2.85 us around a kernel of 0.67 us
by torch.profiler, and 12.90 us around one of 10.72 us."""


@dataclass(frozen=True, slots=True)
class GridLaunches:
    """The launches of a kernel over one grid."""

    grid: tuple[int, ...] | None
    """Programs in each dimension; None for all grids after the first 256."""
    launches: int
    """Those of the program itself; one in a CUDA graph counts once, when it is captured."""
    tuning: int = 0
    """Further launches, by an autotuner."""
    captured: int = 0
    """How many of `launches` were captured in a CUDA graph."""
    samples: int = 0
    """Launches that were timed."""
    us: float | None = None
    """The mean time of `launches`, those in CUDA graphs aside; None where none was timed."""

    @property
    def total_us(self) -> float | None:
        """The time of all launches, those in CUDA graphs aside; None where none was timed."""
        return None if self.us is None else self.us * (self.launches - self.captured)


@dataclass(frozen=True, slots=True)
class Part:
    """What one process launched of a kernel on one device."""

    pid: int
    device: int | None
    grids: tuple[GridLaunches, ...]


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """A compiled kernel that was launched, with all its launches."""

    kernel: str
    hash: str
    """Triton's hash of its source, its target and its options."""
    launched_by: str
    """triton, or inductor where torch.compile's own launcher is used."""
    options: Mapping[str, Any]
    """num_warps, num_stages, and other options that are not as usual."""
    constexprs: Mapping[str, str]
    target: Target | None
    calculation: Calculation | None
    """How it sits on its GPU; None where that is not known, as `reason` says."""
    reason: str | None
    gpu_source: str
    """How the GPU is known."""
    grids: tuple[GridLaunches, ...]
    """The launches of all processes, the most frequent grid first."""
    parts: tuple[Part, ...]
    """The launches of each process and device."""
    choices: int = 1
    """In a dry run, the autotuner's configurations of which this may be the one launched."""
    tuned: frozenset[str] = frozenset()
    """What those set, by name."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """In a dry run, what Triton distinguishes of each argument that is no constexpr."""
    counts: Counts | None = None
    """What the first launch of the most frequent grid does; None where that is not known."""
    executed: Executed | None = None
    """Likewise, what its machine code executes."""

    @property
    def launches(self) -> int:
        """Launches of the program itself."""
        return sum(one.launches for one in self.grids)

    @property
    def tuning(self) -> int:
        """Further launches, by an autotuner."""
        return sum(one.tuning for one in self.grids)

    @property
    def captured(self) -> int:
        """Launches that were captured in a CUDA graph."""
        return sum(one.captured for one in self.grids)

    @property
    def samples(self) -> int:
        """Launches that were timed."""
        return sum(one.samples for one in self.grids)

    @property
    def total_us(self) -> float | None:
        """The time of all launches whose grid was timed; None where none was."""
        known = [one.total_us for one in self.grids if one.total_us is not None]
        return sum(known) if known else None

    @property
    def us(self) -> float | None:
        """The mean time of a launch."""
        timed = sum(one.launches - one.captured for one in self.grids if one.us is not None)
        return None if self.total_us is None or not timed else self.total_us / timed

    @property
    def usual_grid(self) -> tuple[int, ...] | None:
        """The most frequent grid; None where it is not known."""
        return self.grids[0].grid if self.grids else None

    def plan(self, grid: tuple[int, ...] | None) -> LaunchPlan | None:
        """Return how the programs of *grid* fill the GPU; None where that is not known."""
        if grid is None or self.calculation is None:
            return None
        return plan_launch(grid, Work(), self.calculation.resident_programs)

    @property
    def memory(self) -> Memory | None:
        """What the launch of `counts` moves."""
        if self.counts is None or self.calculation is None:
            return None
        found = self.calculation
        programs, resident = self.counts.programs, found.resident_programs
        local = local_memory(self.executed, found.resources, programs, resident)
        return memory(self.counts, found.gpu, local)

    @property
    def prediction(self) -> Prediction | None:
        """How long the launch of `counts` takes; None where that is left open."""
        if self.counts is None or self.calculation is None:
            return None
        found = self.calculation
        fit = found.occupancy.programs_per_multiprocessor
        inside = (self.counts, self.executed, self.memory, found.resources)
        return predict_launch(*inside, fit, found.gpu)

    def row(self) -> dict[str, Any]:
        """Return the kernel as one flat row of plain values, with the plan of its usual grid."""
        found, prediction = self.calculation, self.prediction
        usual = self.usual_grid
        plan = self.plan(usual)
        resources = None if found is None else found.resources
        held = None if found is None else found.occupancy
        return {
            "kernel": self.kernel,
            **self.options,
            **self.constexprs,
            "launches": self.launches,
            "tuning_launches": self.tuning,
            "captured_launches": self.captured,
            "grids": len(self.grids),
            "grid": None if usual is None else "x".join(map(str, usual)),
            "num_programs": None if plan is None else plan.num_programs,
            "resident_programs": None if plan is None else plan.resident_programs,
            **_filling(plan),
            "gpu": None if found is None else found.gpu.key,
            "n_regs": None if resources is None else resources.n_regs,
            "local_bytes": None if resources is None else resources.local_bytes,
            "shared": None if resources is None else resources.shared + resources.static_shared,
            "programs_per_multiprocessor": (
                None if held is None else held.programs_per_multiprocessor
            ),
            "occupancy": None if held is None else held.occupancy,
            "limiter": None if held is None else "+".join(held.limiters),
            **(
                {}
                if found is None
                else work_columns(self.counts, self.memory, found.gpu, self.executed)
            ),
            "predicted_us": None if prediction is None else prediction.us,
            "predicted_low_us": None if prediction is None else prediction.low_us,
            "predicted_high_us": None if prediction is None else prediction.high_us,
            "bound": None if prediction is None else prediction.bound,
            "us": self.us,
            "total_us": self.total_us,
            "timed_launches": self.samples,
            "processes": len({part.pid for part in self.parts}),
            "devices": len({(part.pid, part.device) for part in self.parts}),
            "reason": self.reason,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything as nested plain values, each process and device apart."""
        found = self.calculation
        return {
            **self.row(),
            "hash": self.hash,
            "launched_by": self.launched_by,
            "options": dict(self.options),
            "constexprs": dict(self.constexprs),
            "target": None if self.target is None else str(self.target),
            "gpu_source": self.gpu_source,
            "grids": [self._grid(one) for one in self.grids],
            "parts": [
                {**dataclasses.asdict(part), "grids": [self._grid(one) for one in part.grids]}
                for part in self.parts
            ],
            "calculation": None if found is None else found.to_dict(),
        }

    def _grid(self, one: GridLaunches) -> dict[str, Any]:
        return {**dataclasses.asdict(one), **_filling(self.plan(one.grid))}


def _filling(plan: LaunchPlan | None) -> dict[str, float | None]:
    """Return the waves of programs, and how full the last is, of 1; None where it is not known."""
    waves = tail = None
    if plan is not None:
        waves = plan.waves
        if plan.last_round and plan.resident_programs:
            tail = plan.last_round / plan.resident_programs
    return {"waves": waves, "tail": tail}


@dataclass(frozen=True, slots=True)
class Process:
    """A process that launched kernels."""

    pid: int
    argv: tuple[str, ...]
    triton: str | None
    torch: str | None
    rank: str | None
    ended: bool
    """Whether its record is whole; a process that was killed has told no end."""
    seconds: float | None
    """From Triton's import to its end, or to the last that it wrote."""
    replays: int
    """CUDA graphs replayed."""
    launches: int
    """Launches noted, those of autotuners among them."""
    overhead_ns: float
    """What noting them took of its time."""
    hot_ns: float | None
    """What noting one took that is not first, not timed and of a grid that was there before."""
    held: int
    """How often the GPU was kept busy for 50 us, so that a launch could be timed."""
    empty_us: float
    """What two events take around a kernel, which is taken off each launch's time."""
    errors: tuple[str, ...]
    """What went wrong in noting."""


@dataclass(frozen=True, slots=True)
class Traced:
    """All that was launched, most time or most launches first."""

    kernels: tuple[TracedKernel, ...]
    processes: tuple[Process, ...]


def read_records(folder: Path, gpu: Gpu | None = None, store: Store | None = None) -> Traced:
    """Return what the processes whose records are in *folder* launched.

    *gpu* is the one that occupancy is for; None takes the one that each kernel was launched on.
    *store* keeps what launches do.
    """
    processes, found = [], defaultdict(list)
    for place in sorted(folder.glob("*-*/kernels.jsonl")):
        process, kernels = _read_process(place.parent)
        processes.append(process)
        for kernel in kernels:
            found[_key(kernel)].append((process, kernel))
    present = {one.name: one.gpu for one in present_gpus()}
    kept = store or Store(None)
    traced = [_traced(group, folder, gpu, present, kept) for group in found.values()]
    return Traced(order(traced), tuple(processes))


def order(kernels: Iterable[TracedKernel]) -> tuple[TracedKernel, ...]:
    """Return *kernels* with that of the most time first, then that of the most launches."""
    return tuple(sorted(kernels, key=lambda one: (one.total_us or 0.0, one.launches), reverse=True))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Return the lines of a record; the last may be cut off, as its process was killed."""
    for line in read_bytes(path).decode(errors="replace").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return


def _read_process(place: Path) -> tuple[Process, list[dict[str, Any]]]:
    facts, *told = list(_lines(place / "kernels.jsonl")) or [{}]
    kernels = [one for one in told if "passed" not in one]
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
        kernel["passed"] = {
            shortened(one["grid"]): one["passed"]
            for one in told
            if "passed" in one and one["kernel"] == kernel["kernel"]
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
        replays=counted.get("replays", 0),
        launches=launches,
        overhead_ns=counted.get("spent_ns", 0) + launches * counted.get("hot_ns", 0.0),
        hot_ns=counted.get("hot_ns"),
        held=counted.get("held", 0),
        empty_us=empty_ns / 1000,
        errors=tuple(counted.get("errors", ())),
    )
    return process, kernels


def _grid_launches(cell: Mapping[str, Any], empty_ns: float) -> GridLaunches:
    samples, grid = cell["samples"], cell["grid"]
    mean_us = None
    if samples:
        # Launches since the last that was timed took as long as that one.
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


def shortened(grid: Sequence[int]) -> tuple[int, ...]:
    """Return a grid without the dimensions at its end that are 1."""
    sizes = tuple(grid)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes = sizes[:-1]
    return sizes


def _key(kernel: Mapping[str, Any]) -> tuple[Any, ...]:
    constexprs = tuple(sorted(kernel.get("constexprs", {}).items()))
    return kernel["name"], kernel["hash"], kernel.get("gpu"), constexprs


def merged(grids: Iterable[GridLaunches]) -> tuple[GridLaunches, ...]:
    """Return one GridLaunches for each grid of *grids*, the most frequent first."""
    groups = defaultdict(list)
    for one in grids:
        groups[one.grid].append(one)
    summed = []
    for grid, group in groups.items():
        samples = sum(one.samples for one in group)
        # A launch is counted after it is timed.
        weights = [max(one.launches - one.captured, one.samples) for one in group if one.samples]
        times = [one.us or 0.0 for one in group if one.samples]
        us = sum(map(operator.mul, weights, times))
        summed.append(
            GridLaunches(
                grid,
                sum(one.launches for one in group),
                sum(one.tuning for one in group),
                sum(one.captured for one in group),
                samples,
                us / sum(weights) if weights else None,
            )
        )
    return tuple(sorted(summed, key=lambda one: (one.launches, one.tuning), reverse=True))


def _traced(
    group: list[tuple[Process, dict[str, Any]]],
    folder: Path,
    asked: Gpu | None,
    present: Mapping[str, Gpu],
    store: Store,
) -> TracedKernel:
    first = group[0][1]
    kept = folder / "files" / first.get("kept", "-")
    metadata = {**first.get("metadata", {}), **_metadata(kept)}
    target = _target(metadata)
    calculation, reason, source = None, None, "not known"
    try:
        resources = _resources(kept, metadata, first, target)
        gpu, source = _gpu_of(first, target, asked, present)
        calculation = calculate(resources, gpu)
        check_fits(calculation)
    except Exception as error:  # noqa: BLE001 - a kernel that cannot be read is a row that says so
        reason = str(error)
    grids = merged(one for _, kernel in group for one in kernel["grids"])
    counted = Counted()
    if calculation is not None and grids:
        grid, resident = grids[0].grid, calculation.resident_programs
        given = (kernel["passed"].get(grid) for _, kernel in group)
        passed = next((one for one in given if one is not None), None)
        if grid is not None and passed is not None:
            named = {"name": first["name"], **metadata}
            counted = count_kept(
                kept, named, target, passed, grid=grid, resident=resident, store=store
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
        counts=counted.counts,
        executed=counted.executed,
    )


def unusual(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are to be shown: not those that go without saying."""
    return {
        one.name: options[one.name]
        for one in OPTIONS
        if one.name in options and options[one.name] not in one.usual
    }


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
    kept: Path, metadata: Mapping[str, Any], first: Mapping[str, Any], target: Target | None
) -> Resources:
    """Return what the kernel takes, from its files or, without them, as its process told it."""
    asm = kept_files(kept)
    backend = "cuda" if target is None else target.backend
    try:
        return read_resources(asm, SimpleNamespace(**metadata), backend)
    except (BinaryError, AttributeError, TypeError) as error:
        told: dict[str, Any] = {
            "num_warps": metadata.get("num_warps"),
            "shared": metadata.get("shared"),
            "n_regs": first.get("n_regs"),
        }
        if "cubin" in asm:
            told |= read_sizes(asm["cubin"], first["name"])[0]
        elif first.get("n_spills") is not None:
            told["local_bytes"] = 4 * first["n_spills"]
        if None in told.values():
            msg = f"the files that Triton made of {first['name']} are gone"
            raise BinaryError(msg) from error
        return Resources(**told, num_ctas=metadata.get("num_ctas", 1))


def _gpu_of(
    kernel: Mapping[str, Any],
    target: Target | None,
    asked: Gpu | None,
    present: Mapping[str, Gpu],
) -> tuple[Gpu, str]:
    """Return the GPU to work out a kernel for, and how it is known."""
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
        return device, "as the program named it"
    if name is not None:
        bare = bare_gpus()[target.name]
        return dataclasses.replace(
            bare, title=name, multiprocessors=size
        ), "as the program named it"
    return usual_gpus()[target.name], f"the usual GPU of {target.name}, as none was named"
