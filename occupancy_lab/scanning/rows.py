"""One kernel of a cache as a row of plain values, and what a condition over rows may name."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.expressions import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from occupancy_lab.expressions import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedKernel:
    """One kernel of a cache on one GPU; what is not known is None, or "" of a text."""

    kernel: str
    target: str = ""
    """What it was compiled for: sm_90, gfx942."""
    gpu: str = ""
    """The key of the GPU that it was worked out for."""
    status: str = "ok"
    """ok, unreadable, unknown target, other target or does not fit."""
    reason: str = ""
    """Why it is not ok."""
    num_warps: int | None = None
    """Warps as launched."""
    num_stages: int | None = None
    num_ctas: int | None = None
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
    entry: str = ""
    """Its folder in the cache."""

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {name: getattr(self, name) for name in COLUMNS} | {
            "constexprs": dict(self.constexprs)
        }


def constexprs_text(constexprs: Mapping[str, Any]) -> str:
    """Return constexprs as a cell has them: "BLOCK_SIZE=1024, EVEN=True"."""
    return ", ".join(f"{name}={value}" for name, value in constexprs.items())


COLUMNS = tuple(field.name for field in dataclasses.fields(ScannedKernel))
NUMBERS = frozenset(
    {
        *("num_warps", "num_stages", "num_ctas", "n_regs", "local_bytes", "local_accesses"),
        *("static_shared", "shared", "programs_per_multiprocessor", "occupancy", "gain"),
        *("next_programs", "fewer_registers", "fewer_shared", "tensor_instructions"),
    }
)
"""The columns with numbers; the others have texts."""


def values_of(kernel: ScannedKernel, names: Sequence[str] = COLUMNS) -> dict[str, Value]:
    """Return a row for a condition: its columns and, where none has their name, its constexprs.

    A text that is not known is None, as a number is.
    """
    values: dict[str, Any] = dict.fromkeys(names) | dict(kernel.constexprs)
    for name in COLUMNS:
        value = getattr(kernel, name)
        if name == "constexprs":
            value = constexprs_text(value)
        values[name] = None if value == "" else value
    return values


def kinds_of(kernels: Sequence[ScannedKernel]) -> dict[str, Kind]:
    """Return what each name stands for that a condition over *kernels* may have."""
    kinds = {
        name: Kind.NUMBER if type(value) is int else Kind.TEXT
        for one in kernels
        for name, value in one.constexprs.items()
    }
    return kinds | {name: Kind.NUMBER if name in NUMBERS else Kind.TEXT for name in COLUMNS}
