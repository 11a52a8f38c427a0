"""Every kernel in caches of Triton as a row: what it takes, what limits it, what is to win."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import refuse
from occupancy_lab.expressions import Kind
from occupancy_lab.gpus import CudaArchitecture, usual_gpus
from occupancy_lab.inputs import asked_gpus
from occupancy_lab.occupancy import next_steps, programs_after
from occupancy_lab.occupancy.exact import limiting
from occupancy_lab.scanning.cache import (
    CachedKernel,
    Unreadable,
    default_directories,
    find_entries,
    pipeline_bytes,
    read_entry,
    read_text,
)
from occupancy_lab.scanning.gains import find_gain
from occupancy_lab.scanning.recorded import NOTHING, forget_sources, read_recorded, read_tuned
from occupancy_lab.table.columns import COLUMNS as TABLE_COLUMNS
from occupancy_lab.text.document import Answer
from occupancy_lab.text.words import listed, resource_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from occupancy_lab.expressions import Value
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.inputs import AskedGpus
    from occupancy_lab.scanning.cache import Entry
    from occupancy_lab.text.document import Document
    from occupancy_lab.values import NextStep, Resources, Target

REGISTER_STEP = 8
"""Registers that ptxas and a warp's allocation go by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedKernel:
    """One kernel of a cache on one GPU; what is not known is None, or "" of a text."""

    kernel: str
    target: str = ""
    """What it was compiled for: sm_90, gfx942."""
    gpu: str = ""
    """The key of the GPU that it was worked out for."""
    status: str = "ok"
    """ok, unreadable, not compiled, unknown target, other target or does not fit."""
    reason: str = ""
    """Why it is not ok."""
    num_warps: int | None = None
    """Warps as launched."""
    num_stages: int | None = None
    num_ctas: int | None = None
    maxnreg: int | None = None
    """The cap on registers that was asked for; None for none."""
    waves_per_eu: int | None = None
    """The same of an AMD kernel."""
    constexprs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Those that are recorded."""
    arguments: str = ""
    """The types of its arguments, "*fp32:16, i32"."""
    n_regs: int | None = None
    local_bytes: int | None = None
    """Local memory (scratch) per thread, bytes."""
    local_accesses: int | None = None
    """Instructions that load from or store to it."""
    static_shared: int | None = None
    shared: int | None = None
    """Dynamic shared memory (LDS) per program, bytes."""
    limiter: str = ""
    """Every resource that binds, with + between them: registers+warps."""
    programs_per_multiprocessor: int | None = None
    occupancy: float | None = None
    next_step: str = ""
    """What brings a further program, or why nothing does."""
    next_programs: int | None = None
    """Programs per multiprocessor after it; None where nothing brings a further one."""
    fewer_registers: int | None = None
    """Registers per thread that it takes fewer; None where it takes other things alone."""
    fewer_shared: int | None = None
    """Bytes of dynamic shared memory that it takes fewer, as above."""
    gain: float | None = None
    """How many times faster it would be at most; 1 where nothing is to win."""
    gain_by: str = ""
    """By what, and why."""
    bound: str = ""
    """What keeps it from being faster: memory, issue, local memory, programs (too few at once), or
    tensor cores."""
    tensor_instructions: int | None = None
    triton_version: str = ""
    source: str = ""
    """The file and line of its function: softmax.py:24."""
    program: str = ""
    """A digest of the compiler's first text: equal ones compute the same, with other options."""
    entry: str = ""
    """Its folder in the cache."""

    @property
    def constexprs_text(self) -> str:
        """Return the constexprs as a cell has them: "BLOCK_SIZE=1024, EVEN=True"."""
        return ", ".join(f"{name}={value}" for name, value in self.constexprs.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {name: getattr(self, name) for name in COLUMNS} | {
            "constexprs": dict(self.constexprs)
        }


COLUMNS = tuple(field.name for field in dataclasses.fields(ScannedKernel))


def values_of(kernel: ScannedKernel, names: Sequence[str] = COLUMNS) -> dict[str, Value]:
    """Return a row for a condition: its columns and, where none has their name, its constexprs.

    A text that is not known is None, as a number is.
    """
    values: dict[str, Any] = dict.fromkeys(names) | dict(kernel.constexprs)
    for name in COLUMNS:
        value = getattr(kernel, name)
        if name == "constexprs":
            value = kernel.constexprs_text
        values[name] = None if value == "" else value
    return values


def kinds_of(kernels: Sequence[ScannedKernel]) -> dict[str, Kind]:
    """Return what each name stands for that a condition over *kernels* may have."""
    kinds = {
        name: Kind.NUMBER if type(value) is int else Kind.TEXT
        for one in kernels
        for name, value in one.constexprs.items()
    }
    return kinds | {name: TABLE_COLUMNS[name].kind for name in COLUMNS}


@dataclass(frozen=True, slots=True, repr=False)
class Scan(Answer):
    """The kernels of caches, those with most to win first."""

    kernels: tuple[ScannedKernel, ...]
    directories: tuple[str, ...]
    gpus: Mapping[str, Gpu]
    """The GPU that was taken for each target."""
    others: int
    """Entries without a kernel: launchers that Triton compiled, and what it tuned."""

    def rows(self) -> list[dict[str, Any]]:
        """Return each kernel as a dict of plain values."""
        return [one.to_dict() for one in self.kernels]

    def with_kernels(self, kernels: Iterable[ScannedKernel]) -> Scan:
        """Return the scan with these kernels in place of its own."""
        return dataclasses.replace(self, kernels=tuple(kernels))

    def table(self) -> pd.DataFrame:
        """Return the rows as a table."""
        import pandas as pd

        return pd.DataFrame(self.rows(), columns=[*COLUMNS])

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the rows, for JSON."""
        return self.rows()

    def to_document(self) -> Document:
        """Return the headline, and the kernels with most to win."""
        from occupancy_lab.scanning.page import write_scan

        return write_scan(self)


def scan(*directories: str | os.PathLike[str], gpu: AskedGpus | None = None) -> Scan:
    """Return every kernel in caches of Triton, without a GPU and without running anything.

    Args:
        *directories: Caches, folders above caches, or single entries; none are Triton's own cache
            and torchinductor's.
        gpu: GPUs as `explain` takes them, at most one of a target; kernels for other targets have
            the status "other target". None takes the first GPU that the table has of each target.

    Raises:
        InputError: a directory is none, a GPU is not known, or two have the same target.
    """
    asked = None if gpu is None else _by_target(asked_gpus(gpu))
    folders = tuple(os.fspath(one) for one in directories) or default_directories()
    found = find_entries(folder for folder in folders if directories or Path(folder).is_dir())
    tuned = read_tuned(found.tuned)
    forget_sources()
    kernels = _borne_out([_scanned(entry, asked, tuned) for entry in found.entries])
    kernels += [_unlisted(folder, why) for folder, why in found.unreadable.items()]
    kernels.sort(key=_rank)
    targets = dict.fromkeys(one.target for one in kernels if one.gpu)
    gpus = {name: one for name in targets if (one := _gpu_for(name, asked))}
    return Scan(tuple(kernels), folders, gpus, found.others)


def _borne_out(kernels: Sequence[ScannedKernel]) -> list[ScannedKernel]:
    """Return *kernels* without the gain of leaving maxnreg out where an entry shows it is none."""

    def code(one: ScannedKernel) -> tuple[Any, ...]:
        return one.program, one.target, one.num_warps, one.num_stages, one.num_ctas

    free = {code(one): one for one in kernels if one.program and one.maxnreg is None}
    found = []
    for one in kernels:
        other = None if one.maxnreg is None else free.get(code(one))
        if other and one.local_bytes and (other.local_bytes or 0) >= one.local_bytes:
            why = f"without maxnreg={one.maxnreg} it has {other.local_bytes} B of local memory"
            found.append(dataclasses.replace(one, gain=1.0, gain_by=why))
        else:
            found.append(one)
    return found


def _by_target(gpus: Iterable[Gpu]) -> dict[str, Gpu]:
    found: dict[str, Gpu] = {}
    for gpu in gpus:
        other = found.setdefault(gpu.target.name, gpu)
        if other != gpu:
            refuse(f"{other.key} and {gpu.key} are both {gpu.target.name}; give one of them")
    return found


def _gpu_for(target: str, asked: Mapping[str, Gpu] | None) -> Gpu | None:
    return usual_gpus().get(target) if asked is None else asked.get(target)


def _rank(one: ScannedKernel) -> tuple[bool, float, float, str]:
    """Sort by what there is to win; then what is least occupied, then what is not ok."""
    return (
        one.status != "ok",
        -(one.gain or 0.0),
        one.occupancy or 0.0,
        one.kernel,
    )


def _unlisted(folder: str, why: str) -> ScannedKernel:
    return ScannedKernel(
        kernel=Path(folder).name,
        status="unreadable",
        reason=f"the folder cannot be read: {why}",
        entry=folder,
    )


def _scanned(
    entry: Entry, asked: Mapping[str, Gpu] | None, tuned: Mapping[str, Mapping[str, int]]
) -> ScannedKernel:
    kernel = read_entry(entry)
    if isinstance(kernel, Unreadable):
        return ScannedKernel(
            kernel=kernel.name,
            target=kernel.target or "",
            status=kernel.status,
            reason=kernel.reason,
            entry=entry.folder,
        )
    resources = kernel.resources
    recorded = _recorded(kernel, tuned)
    read = ScannedKernel(
        kernel=kernel.name,
        target=kernel.target.name,
        num_warps=resources.num_warps,
        num_stages=kernel.num_stages,
        num_ctas=resources.num_ctas,
        maxnreg=kernel.maxnreg,
        waves_per_eu=kernel.waves_per_eu,
        constexprs=recorded.constexprs,
        arguments=recorded.arguments,
        n_regs=resources.n_regs,
        local_bytes=resources.local_bytes,
        local_accesses=None
        if kernel.mix is None
        else kernel.mix.local_loads + kernel.mix.local_stores,
        static_shared=resources.static_shared,
        shared=resources.shared,
        tensor_instructions=None if kernel.mix is None else kernel.mix.tensor_instructions,
        triton_version=kernel.triton_version or "",
        source=recorded.source,
        program=recorded.program,
        entry=entry.folder,
    )
    gpu = _gpu_for(kernel.target.name, asked)
    if gpu is None or gpu.target != kernel.target:
        return dataclasses.replace(read, **_without_gpu(kernel.target, asked))
    return dataclasses.replace(read, gpu=gpu.key, **_on_gpu(kernel, gpu))


def _recorded(kernel: CachedKernel, tuned: Mapping[str, Mapping[str, int]]) -> Any:
    entry = kernel.entry
    suffix = next((one for one in ("source", "ttir") if one in entry.suffixes), None)
    blocks = tuned.get(entry.folder.rpartition("/")[2], {})
    if suffix is None:
        return dataclasses.replace(NOTHING, constexprs=dict(blocks))
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


@dataclass(frozen=True, slots=True)
class Fit:
    """How a kernel's resources sit on a GPU."""

    programs: int
    limiters: tuple[str, ...]
    steps: tuple[NextStep, ...]
    """The next step of each limiter that has one."""
    programs_after: int | None


@cache
def fit_of(resources: Resources, gpu: Gpu) -> Fit:
    """Return how *resources* sit on *gpu*; equal ones are worked out once."""
    architecture = gpu.architecture
    allowed = limiting(resources, architecture)
    programs = min(allowed.values())
    limiters = tuple(name for name, number in allowed.items() if number == programs)
    steps = next_steps(resources, architecture)
    return Fit(
        programs,
        limiters,
        tuple(step for step in steps if step.resource in limiters),
        programs_after(steps, resources, architecture),
    )


def _on_gpu(kernel: CachedKernel, gpu: Gpu) -> dict[str, Any]:
    """Return the columns that depend on the GPU."""
    resources = kernel.resources
    fit = fit_of(resources, gpu)
    limiter = "+".join(fit.limiters)
    warps = fit.programs * resources.num_warps
    step = _step_words(kernel, gpu, fit)
    after = fit.programs_after
    found = {
        "limiter": limiter,
        "programs_per_multiprocessor": fit.programs,
        "occupancy": warps / gpu.architecture.max_warps,
        "next_step": step,
        "next_programs": after,
        "fewer_registers": None if after is None else _fewer(fit, "registers"),
        "fewer_shared": None if after is None else _fewer(fit, "shared"),
    }
    if not fit.programs:
        which = listed([resource_word(gpu.vendor, name) for name in fit.limiters])
        why = f"one program needs more {which} than {gpu.title} gives a program"
        return {**found, "status": "does not fit", "reason": why}
    gain = find_gain(
        kernel.mix,
        resources,
        gpu,
        programs=fit.programs,
        after=after,
        step=step,
        capped=any(one.option is not None for one in fit.steps),
        spill_advice=_spill_advice(kernel, gpu),
    )
    return {
        **found,
        "gain": gain.factor,
        "gain_by": gain.by,
        "bound": gain.bound,
    }


def _fewer(fit: Fit, resource: str) -> int | None:
    for step in fit.steps:
        if step.resource == resource and step.most_for_one_more is not None:
            return step.now - step.most_for_one_more
    return None


def _step_words(kernel: CachedKernel, gpu: Gpu, fit: Fit) -> str:
    """Return what brings a further program, with how to ask for it, or why nothing does."""
    if fit.programs_after is None:
        full = [name for name in fit.limiters if name not in {one.resource for one in fit.steps}]
        binding = [resource_word(gpu.vendor, name) for name in full or fit.limiters]
        return f"none, {listed(binding)} are full" if full else f"none by {listed(binding)}"
    return " and ".join(_one_step(kernel, gpu, step) for step in fit.steps)


def _one_step(kernel: CachedKernel, gpu: Gpu, step: NextStep) -> str:
    unit = f"{resource_word(gpu.vendor, step.resource)} {step.now} to {step.most_for_one_more}"
    if step.option is not None:
        return f"{unit} ({step.option})"
    if step.resource != "shared":
        return unit
    stages = (kernel.num_stages or 1) > 1 and pipeline_bytes(kernel) > 0
    return f"{unit} ({'fewer num_stages' if stages else 'a smaller block'})"


def _spill_advice(kernel: CachedKernel, gpu: Gpu) -> str:
    """Return what gives a kernel that spills more registers, or fewer values to keep in them."""
    used, architecture = kernel.resources.n_regs, gpu.architecture
    if kernel.maxnreg is not None:
        return f"without maxnreg={kernel.maxnreg}"
    if isinstance(architecture, CudaArchitecture):
        threads = kernel.resources.num_warps * architecture.warp_size
        allowed = architecture.registers // threads // REGISTER_STEP * REGISTER_STEP
        if used >= allowed < architecture.max_registers_per_thread:
            return "fewer num_warps, which allow more registers, or a smaller block"
    return "a smaller block or more num_warps"
