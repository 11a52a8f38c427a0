"""Every kernel in Triton caches as a row: its resources, its limiter, and its possible gain."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from occupancy_lab.errors import refuse
from occupancy_lab.gpus import CudaArchitecture, Gpu, usual_gpus
from occupancy_lab.inputs import AskedGpus, asked_gpus
from occupancy_lab.occupancy.calculator import Calculation, calculate, limiter_words
from occupancy_lab.options import CAPS
from occupancy_lab.scanning.cache import (
    CachedKernel,
    default_directories,
    find_entries,
    has_loop,
    pipeline_bytes,
    read_entry,
    read_text,
)
from occupancy_lab.scanning.gains import (
    FEWER_STAGES,
    FEWER_WARPS,
    MORE_WARPS,
    SMALLER_BLOCK,
    Ahead,
    beside_others,
    function_of,
    gain_of,
    shown_slower,
)
from occupancy_lab.scanning.page import (
    COLUMNS,
    LAUNCH_COLUMNS,
    TOP,
    Scan,
    ScannedKernel,
    write_scan,
)
from occupancy_lab.scanning.recorded import Recorded, forget_sources, read_recorded, read_tuned
from occupancy_lab.table.rows import FORMS, Exports, View
from occupancy_lab.text.document import Shown
from occupancy_lab.text.words import listed, resource_word
from occupancy_lab.values import NextStep, Status, Target

if TYPE_CHECKING:
    from occupancy_lab.record import Record
    from occupancy_lab.scanning.launched import KnownLaunch
    from occupancy_lab.signature import Words

REGISTER_STEP = 8
"""The granularity of registers per thread, of ptxas and of a warp's allocation."""


def scan(
    *directories: str | os.PathLike[str],
    gpu: AskedGpus | None = None,
    grid: str | None = None,
    assume: Words = (),
    times: bool = True,
) -> Scan:
    """Return every kernel in Triton caches, without a GPU and without running anything.

    Args:
        *directories: Caches, folders above caches, or single entries; by default Triton's own cache
            and torchinductor's.
        gpu: GPUs as `explain` takes them, at most one for each target; kernels for other targets
            get the status "other target". None takes the first known GPU of each target.
        grid: The grid for kernels whose own is not known, such as "cdiv(N, BLOCK_SIZE)"; the source
            of torch.compile's kernels has their grid.
        assume: Values of arguments and of tensors of integers, such as "N=4096" or {"N": 4096}, for
            each kernel that has a parameter of this name.
        times: Whether to count what launches do and predict their times, if the grid is known; that
            takes about 50 ms for each launch that was not counted before.

    Raises:
        InputError: a directory does not exist, a GPU is not known, two GPUs have the same target,
            no kernel has an assumed parameter, or *grid* is invalid.
    """
    by_target: dict[str, Gpu] = {}
    for named in () if gpu is None else asked_gpus(gpu):
        other = by_target.setdefault(named.target.name, named)
        if other != named:
            refuse(f"{other.key} and {named.key} are both {named.target.name}; give one of them")
    asked = None if gpu is None else by_target
    folders = tuple(os.fspath(one) for one in directories) or default_directories()
    found = find_entries(folder for folder in folders if directories or Path(folder).is_dir())
    tuned = read_tuned(found.tuned)
    forget_sources()
    kernels: list[ScannedKernel] = []
    read: list[tuple[CachedKernel, Recorded]] = []
    for kernel in map(read_entry, found.entries):
        if isinstance(kernel, ScannedKernel):
            kernels.append(kernel)
        else:
            read.append((kernel, _recorded(kernel, tuned)))
    gpus = {one.target.name: _gpu_for(one.target, asked) for one, _ in read}
    records: Mapping[int, Record] = {}
    if grid is not None or assume or (times and any(one.grid_type for _, one in read)):
        records = _records(read, gpus, grid, assume, times=times)
    kernels = [*beside_others([*kernels, *_worked_out(read, gpus, asked, records)])]
    kernels += [
        ScannedKernel(
            kernel=Path(folder).name,
            status="unreadable",
            reason=f"the folder cannot be read: {why}",
            entry=folder,
        )
        for folder, why in found.unreadable.items()
    ]
    # By lost time and gain; without times by spills. Kernels without results come last.
    kernels.sort(
        key=lambda one: (
            one.status != Status.OK,
            -(one.lost_us or 0.0),
            -(one.gain or 0.0),
            -(one.local_bytes or 0),
            one.occupancy or 0.0,
            one.kernel,
        )
    )
    targets = dict.fromkeys(one.target for one in kernels if one.gpu)
    taken = {name: one for name in targets if (one := gpus[name])}
    return Scan(tuple(kernels), folders, taken)


def _records(
    read: Sequence[tuple[CachedKernel, Recorded]],
    gpus: Mapping[str, Gpu | None],
    grid: str | None,
    assume: Words,
    *,
    times: bool,
) -> dict[int, Record]:
    """Return the record of each kernel whose launch is known, with its counts, by index in *read*.

    Empty without *times*. Raises InputError as `scan` does for *grid* and *assume*.
    """
    # Without this import a cache that has no known launches is read in half the time.
    from occupancy_lab.compiled_records import check_trips
    from occupancy_lab.scanning.launched import launch_of, read_grid, with_work
    from occupancy_lab.signature import read_assumed

    parameters = dict.fromkeys(one.name for _, recorded in read for one in recorded.parameters)
    sizes = () if grid is None else read_grid(grid)
    assumed = read_assumed(assume, parameters)
    launches: dict[int, KnownLaunch] = {}
    for place, (kernel, recorded) in enumerate(read if times else ()):
        gpu = gpus[kernel.target.name]
        if gpu is None:
            continue
        calculation = _calculated(kernel.resources, gpu)
        launch = launch_of(kernel, recorded, calculation, sizes, assumed)
        if launch is not None and calculation.occupancy.programs_per_multiprocessor:
            launches[place] = launch
    found = dict(zip(launches, with_work([*launches.values()]), strict=True))
    check_trips(assumed, found.values())
    return found


def _worked_out(
    read: Sequence[tuple[CachedKernel, Recorded]],
    gpus: Mapping[str, Gpu | None],
    asked: Mapping[str, Gpu] | None,
    records: Mapping[int, Record],
) -> Iterator[ScannedKernel]:
    rows = [_row(*one) for one in read]
    local_bytes: dict[tuple[Any, ...], dict[Caps, int | None]] = {}
    for row in rows:
        if row.program:
            local_bytes.setdefault(_code(row), {})[_caps(row)] = row.local_bytes
    functions: dict[tuple[str, ...], list[ScannedKernel]] = {}
    for place, row in enumerate(rows):
        if place in records and (found := records[place].prediction) is not None:
            rows[place] = dataclasses.replace(row, predicted_us=found.us)
        functions.setdefault(function_of(row), []).append(rows[place])
    for place, ((kernel, _), row) in enumerate(zip(read, rows, strict=True)):
        gpu = gpus[kernel.target.name]
        if gpu is None:
            columns = _without_gpu(kernel.target, asked)
        else:
            slower = shown_slower(row, functions[function_of(row)])
            capped = local_bytes.get(_code(row), {})
            columns = on_gpu(kernel, row, gpu, capped, records.get(place), slower=slower)
        yield dataclasses.replace(row, **columns)


Caps: TypeAlias = "tuple[int | None, ...]"
"""An entry's caps on registers, in the order of CAPS."""


def _code(row: ScannedKernel) -> tuple[Any, ...]:
    """Return the key of entries that differ only in their caps on registers."""
    return row.program, row.target, row.num_warps, row.num_stages, row.num_ctas


def _caps(row: ScannedKernel, **others: int) -> Caps:
    return tuple(others.get(name, getattr(row, name)) for name in CAPS)


def _gpu_for(target: Target, asked: Mapping[str, Gpu] | None) -> Gpu | None:
    found = (usual_gpus() if asked is None else asked).get(target.name)
    return found if found is not None and found.target == target else None


def _row(kernel: CachedKernel, recorded: Recorded) -> ScannedKernel:
    """Return the columns that do not depend on the GPU."""
    sources = (kernel.resources, kernel, recorded)
    found = {name: getattr(one, name) for one in sources for name in COLUMNS if hasattr(one, name)}
    found |= {"target": kernel.target.name, "entry": kernel.entry.folder}
    found["triton_version"] = kernel.triton_version or ""
    return ScannedKernel(kernel=kernel.name, **found)


def _recorded(kernel: CachedKernel, tuned: Mapping[str, Mapping[str, int]]) -> Recorded:
    entry = kernel.entry
    suffix = next((one for one in ("source", "ttir") if one in entry.suffixes), None)
    blocks = tuned.get(entry.folder.rpartition("/")[2], {})
    if suffix is None:
        return Recorded(dict(blocks))
    try:
        compiled = Path(entry.path(suffix)).stat().st_mtime
    except OSError:
        compiled = 0.0
    return read_recorded(read_text(entry, suffix), compiled, blocks)


def _without_gpu(target: Target, asked: Mapping[str, Gpu] | None) -> dict[str, Any]:
    if asked is not None and target.name not in asked:
        keys = listed([gpu.key for gpu in asked.values()])
        why = f"it was compiled for {target.name}, and {keys} runs {listed([*asked])}"
        return {"status": "other target", "reason": why}
    why = f"{target} is not in the table of architectures"
    return {"status": "unknown target", "reason": why}


_calculated = cache(calculate)
"""Equal kernels are calculated once."""


def on_gpu(  # noqa: PLR0913 - everything that is known of the entry
    kernel: CachedKernel,
    row: ScannedKernel,
    gpu: Gpu,
    capped: Mapping[Caps, int | None],
    record: Record | None = None,
    *,
    slower: Collection[str] = (),
) -> dict[str, Any]:
    """Return the columns of *row* that depend on the GPU.

    *capped* has the local memory of entries of the same code by their caps on registers; *record*
    is the launch, if known. Proposals that other entries show to be *slower* are not made.
    """
    case = _calculated(kernel.resources, gpu)
    held, after = case.occupancy, case.next_programs
    steps = {one.resource: one for one in case.next_steps if one.resource in held.limiters}
    against = ""
    if after and held.programs_per_multiprocessor:
        against = _against(kernel, row, steps.values(), capped, slower)
    named = None if against else after
    fewer = {name: one.now - (one.most_for_one_more or 0) for name, one in steps.items() if named}
    if case.padded_vgprs:
        fewer.pop("registers", None)
    step = against or _step_words(kernel, case, steps, after)
    found = {
        "gpu": gpu.key,
        "limiter": "+".join(held.limiters),
        "programs_per_multiprocessor": held.programs_per_multiprocessor,
        "occupancy": held.occupancy,
        "next_step": step,
        "next_programs": named,
        "fewer_registers": fewer.get("registers"),
        "fewer_shared": fewer.get("shared"),
    }
    if not held.programs_per_multiprocessor:
        why = f"one program needs more {limiter_words(case)} than {gpu.title} gives a program"
        return {**found, "status": Status.DOES_NOT_FIT, "reason": why}
    ahead = Ahead(
        after if row.local_accesses else named,
        step,
        _condition(row, case, steps.values(), capped),
        _spill_advice(kernel, gpu, slower),
        kernel.local_accesses or 0,
    )
    gain, by = gain_of(record, ahead)
    if record is not None:
        found |= {name: one for name, one in record.row().items() if name in LAUNCH_COLUMNS}
        found["grid"] = "x".join(map(str, record.launch.grid or ()))
        found["why_not_counted"] = record.why_not_counted or ""
    free = capped.get((None,) * len(CAPS))
    if row.maxnreg is not None and row.local_bytes and (free or 0) >= row.local_bytes:
        gain = gain and 1.0
        by = f"without maxnreg={row.maxnreg} it has {free} B of local memory"
    timed = None if record is None else record.prediction
    return {**found, "gain": gain, "gain_by": by, "bound": "" if timed is None else timed.bound}


def _against(
    kernel: CachedKernel,
    row: ScannedKernel,
    steps: Iterable[NextStep],
    capped: Mapping[Caps, int | None],
    slower: Collection[str],
) -> str:
    """Say why the step that lets one more program in is not proposed; "" if it is proposed."""
    if row.local_accesses:
        return "none, as it spills already"
    for step in steps:
        local = capped.get(_caps(row, **step.cap)) if step.cap else None
        if local is not None and local > (row.local_bytes or 0):
            return f"none, as with {step.option} it has {local} B of local memory"
        if (how := _how(kernel, step)) in slower:
            return f"none, as another entry with {how} is not faster"
    return ""


def _condition(
    row: ScannedKernel,
    case: Calculation,
    steps: Iterable[NextStep],
    capped: Mapping[Caps, int | None],
) -> str:
    """Return the condition of a step that no entry of the same code shows to hold; else ""."""
    for step in steps:
        if step.resource == "shared":
            return "each program takes no longer"
        if _is_padding(case, step):
            continue
        if _caps(row, **step.cap) not in capped:
            return "it does not spill"
    return ""


def _step_words(
    kernel: CachedKernel, case: Calculation, steps: Mapping[str, NextStep], after: int | None
) -> str:
    """Return what lets one more program in, with the option for it, or why nothing does."""
    limiters = case.occupancy.limiters
    if after is None:
        full = [name for name in limiters if name not in steps]
        binding = listed([resource_word(case.gpu.vendor, name) for name in full or limiters])
        return f"none, {binding} are full" if full else f"none by {binding}"
    return " and ".join(_one_step(kernel, case, step) for step in steps.values())


def _is_padding(case: Calculation, step: NextStep) -> bool:
    """Tell whether a step only has to reduce registers that waves_per_eu pads."""
    return step.resource == "registers" and case.padded_vgprs is not None


def _one_step(kernel: CachedKernel, case: Calculation, step: NextStep) -> str:
    unit = f"{resource_word(case.gpu.vendor, step.resource)} {step.now} to {step.most_for_one_more}"
    if _is_padding(case, step):
        return f"{unit} ({case.resources.n_regs} are in use: {step.option} or none)"
    how = _how(kernel, step)
    return f"{unit} ({how})" if how else unit


def _how(kernel: CachedKernel, step: NextStep) -> str:
    """Return how to ask for a step; "" if not known."""
    if step.option is not None or step.resource != "shared":
        return step.option or ""
    if (kernel.num_stages or 1) > 1 and pipeline_bytes(kernel) > 0:
        return FEWER_STAGES
    return SMALLER_BLOCK if has_loop(kernel) else ""


def _spill_advice(kernel: CachedKernel, gpu: Gpu, slower: Collection[str]) -> str:
    """Return what gives a kernel that spills more registers or fewer values."""
    used, architecture = kernel.resources.n_regs, gpu.architecture
    if kernel.maxnreg is not None:
        without = f"without maxnreg={kernel.maxnreg}"
        return "" if without in slower else without
    ways = {MORE_WARPS: MORE_WARPS}
    if isinstance(architecture, CudaArchitecture):
        threads = kernel.resources.num_warps * architecture.warp_size
        allowed = architecture.registers // threads // REGISTER_STEP * REGISTER_STEP
        if used >= allowed < architecture.max_registers_per_thread:
            ways = {FEWER_WARPS: f"{FEWER_WARPS} for more registers per thread"}
    if has_loop(kernel):
        ways[SMALLER_BLOCK] = SMALLER_BLOCK
    return " or ".join(words for way, words in ways.items() if way not in slower)


def scan_views(
    view: View,
    exports: Exports,
    directories: Sequence[str],
    form: str | None = None,
    **asked: Any,
) -> tuple[Shown, int]:
    """Return what `occupancy-lab scan` prints, and its exit status.

    The status is 1 if no kernel can be read. Raises InputError for invalid arguments and files
    that cannot be written.
    """
    exports.check()
    whole = scan(*directories, **asked)
    found = whole.choose(dataclasses.replace(view, top=None))
    rows = found.rows()[: view.top]
    if complaints := [*exports.write(COLUMNS, rows)]:
        refuse("; ".join(complaints))
    status = int(all(one.n_regs is None for one in whole.kernels))
    if form is not None:
        return FORMS[form](COLUMNS, rows), status
    return write_scan(found, top=view.top or TOP, every=view != View()).blocks(), status
