"""The least time of a launch.

The speed of light of a launch is the longest of the times that its bytes, each moved once, and its
FLOPs take alone at the rates of the GPU's data sheet (Williams et al. 2009, Roofline). Products of
matrices of several dtypes take turns on the same tensor cores, so their times add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from occupancy_lab.gpus import Gpu
from occupancy_lab.prediction import Part
from occupancy_lab.work.counts import NOTHING, Amount, Counts
from occupancy_lab.work.execution import Executed
from occupancy_lab.work.memory import Memory

MEMORY = "memory"
"""The part of a speed of light that is due to device memory."""
TENSOR = "tensor cores"
"""The suffix, after a dtype, of parts that are products of matrices."""


@dataclass(frozen=True, slots=True)
class SpeedOfLight:
    """The least time that a launch can take on a GPU, and what determines it."""

    us: float | None
    """None where none of the rates that the launch needs is known."""
    binds: str | None
    """The longest part."""
    parts: tuple[Part, ...]
    """The times that its bytes and its FLOPs of each kind would take alone."""
    unknown: tuple[str, ...] = ()
    """The parts without a rate on the GPU's data sheet; they could take longer."""
    most_us: float | None = None
    """The least time for the most work that unknown values allow; otherwise equal to `us`. None
    where the work has no upper limit or where a rate is not known."""
    open: tuple[str, ...] = ()
    """The parts whose amount depends on unknown values."""

    @property
    def exact_us(self) -> float | None:
        """The least time; None where unknown values may make it longer."""
        return self.us if self.us == self.most_us else None

    def part_us(self, name: str) -> float | None:
        """Return the time of a part alone; None where the part or its time is not known."""
        return next((part.us for part in self.parts if part.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the speed of light as plain values."""
        return {
            "us": self.us,
            "most_us": self.most_us,
            "binds": self.binds,
            "parts": {part.name: part.us for part in self.parts},
            "unknown": list(self.unknown),
            "open": list(self.open),
        }


def speed_of_light(counts: Counts | None, moved: Memory, gpu: Gpu) -> SpeedOfLight:
    """Return the least time on *gpu* of a launch that moves and computes the least possible.

    The rate of products of matrices is that of the tensor cores for the dtype of the factors. The
    rate of all else is that of FP32, which doubles for 16-bit types.
    """
    demands = [one for one in _demands(counts, moved, gpu) if one.amount != NOTHING]
    unknown = tuple(one.name for one in demands if one.rate is None)
    units: dict[str, list[_Demand]] = {}
    for one in demands:
        if one.rate is not None:
            units.setdefault(TENSOR if one.in_cores else one.kind, []).append(one)
    timed = {}
    for some in units.values():  # one after another on the same unit
        kinds = " and ".join(one.kind for one in some)
        name = f"{kinds} {TENSOR}" if some[0].in_cores else kinds
        highs = [one.us(one.amount.high) for one in some if one.amount.high is not None]
        most_us = sum(highs) if len(highs) == len(some) else None
        timed[name] = sum(one.us(one.amount.low) for one in some), most_us
    parts = tuple(Part(name, us) for name, (us, _) in timed.items() if us)
    longest = max(parts, key=lambda part: part.us, default=None)
    us, binds = (None, None) if longest is None else (longest.us, longest.name)
    known = [most_us for _, most_us in timed.values() if most_us is not None]
    most = max(known, default=None) if len(known) == len(timed) and not unknown else None
    open_ = tuple(name for name, (us, most_us) in timed.items() if us != most_us)
    return SpeedOfLight(us, binds, parts, unknown, most, open_)


@dataclass(frozen=True, slots=True)
class _Demand:
    """The bytes, or the FLOPs of one kind, that a unit of the GPU has to do."""

    kind: str
    amount: Amount
    rate: float | None
    """In 1e9 per second; None where it is not known."""
    in_cores: bool = False
    """Whether they are products of matrices in tensor cores."""

    @property
    def name(self) -> str:
        return f"{self.kind} {TENSOR}" if self.in_cores else self.kind

    def us(self, amount: int) -> float:
        """Return the time of an amount at the rate, which is known."""
        return amount / (self.rate or math.inf) / 1e3


def _demands(counts: Counts | None, moved: Memory, gpu: Gpu) -> Iterator[_Demand]:
    yield _Demand(MEMORY, moved.once_bytes, gpu.bandwidth_gbs)
    if counts is None:
        return
    others = dict(counts.other_flops)
    for dtype, flops in counts.dot_flops.items():
        own = {"fp32": gpu.tensor_fp32_tflops, "fp64": gpu.tensor_fp64_tflops}
        if own.get(dtype, 0.0) is None:  # no tensor core multiplies them
            others[dtype] = flops + others.get(dtype, NOTHING)
        else:
            yield _Demand(dtype, flops, _giga(dot_tflops(gpu, dtype)), in_cores=True)
    for dtype, flops in others.items():
        yield _Demand(dtype, flops, _giga(other_tflops(gpu, dtype)))


def _giga(tera: float | None) -> float | None:
    return None if tera is None else tera * 1e3


SEVERAL = {"tf32x3": ("tf32", 3), "bf16x3": ("bf16", 3), "bf16x6": ("bf16", 6)}
"""More exact ways to multiply FP32: the type of the products, and how many each one takes."""


def dot_tflops(gpu: Gpu, dtype: str) -> float | None:
    """Return the rate of *gpu* for products of matrices of *dtype*, Triton's name of the type.

    The rate is in 1e12 operations per second; None where it is not known. FP32 that is not rounded
    to TF32 is multiplied without tensor cores on NVIDIA; a product in tf32x3 takes three in TF32.
    """
    if dtype in SEVERAL:
        rounded, products = SEVERAL[dtype]
        whole = dot_tflops(gpu, rounded)
        return None if whole is None else whole / products
    if dtype.startswith("fp8"):
        return gpu.tensor_fp8_tflops
    own: dict[str, float | None] = {
        "fp16": gpu.tensor_fp16_tflops,
        "bf16": gpu.tensor_bf16_tflops,
        "tf32": gpu.tensor_tf32_tflops or gpu.tensor_fp32_tflops,
        "fp32": gpu.tensor_fp32_tflops or gpu.fp32_tflops,
        "i8": gpu.tensor_int8_tflops,
        "int8": gpu.tensor_int8_tflops,
        "fp64": gpu.tensor_fp64_tflops or gpu.fp64_tflops,
    }
    return own.get(dtype)


def other_tflops(gpu: Gpu, dtype: str) -> float | None:
    """Return the rate of *gpu* outside tensor cores for *dtype*, in 1e12 operations per second."""
    if dtype == "fp64":
        return gpu.fp64_tflops
    if gpu.fp32_tflops is None:
        return None
    return gpu.fp32_tflops * (2 if dtype in {"fp16", "bf16"} else 1)


def intensity(counts: Counts, moved: Memory) -> float | None:
    """Return the FLOPs of a launch per byte of device memory; None where either is not exact."""
    flops = counts.flops.exact
    moved_bytes = None if moved.dram_bytes is None else moved.dram_bytes.exact
    return None if flops is None or not moved_bytes else flops / moved_bytes


def work_columns(
    counts: Counts | None, moved: Memory | None, gpu: Gpu, executed: Executed | None
) -> dict[str, Any]:
    """Return the columns of a launch's work on *gpu*; None where a number is not known exactly.

    Sectors are those that the instructions of its warps request, unless TMA copies request others.
    """
    asking: Counts | Executed | None = counts
    if executed is not None and executed.kinds.get("bulk_copies", NOTHING) == NOTHING:
        asking = executed
    amounts = {
        "flops": None if counts is None else counts.flops,
        "executed_instructions": None if executed is None else executed.instructions,
        "load_sectors": None if asking is None else asking.load_sectors,
        "store_sectors": None if asking is None else asking.store_sectors,
        "l2_bytes": None if moved is None else moved.l2_bytes,
        "dram_read_bytes": None if moved is None else moved.dram_read_bytes,
        "dram_written_bytes": None if moved is None else moved.dram_written_bytes,
    }
    return {
        **{name: None if one is None else one.exact for name, one in amounts.items()},
        "intensity": None if counts is None or moved is None else intensity(counts, moved),
        "speed_of_light_us": None if moved is None else speed_of_light(counts, moved, gpu).exact_us,
    }
