"""What the L2 cache serves of a launch, what device memory has to, and the least time it all takes.

The speed of light of a launch is the longest of the times that its bytes, each moved once, and its
FLOPs take by themselves, at the rates of the GPU's data sheet (Williams et al. 2009, Roofline).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from occupancy_lab.values import Part
from occupancy_lab.work.counts import NOTHING, SECTOR, Amount, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.values import Work
    from occupancy_lab.work.counts import Counts, Executed, Footprint

PARTITIONED = frozenset({"sm_80", "sm_90", "sm_100", "sm_103"})
"""Where the L2 cache is two halves, each of which caches what the multiprocessors beside it load,
so that what all of them load takes its room twice (NVIDIA's A100 white paper)."""
MEMORY = "memory"
"""The part of a speed of light that is bytes of device memory."""
TENSOR = "tensor cores"
"""What the parts are called, after a dtype, that are products of matrices."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a launch moves, by where it is served: bytes of the whole launch; None is not known."""

    l2_bytes: Amount | None
    """What its programs ask the L2 cache for and write to it: whole sectors of 32 bytes, with none
    of them served by an L1 cache."""
    dram_read_bytes: Amount | None
    """What device memory has to give: each tensor once, and again what the L2 cache lost."""
    dram_written_bytes: Amount | None
    """What device memory has to take in the end: each byte once."""
    once_read_bytes: Amount | None
    """What device memory has to give where a cache loses nothing: each byte once."""
    given: bool = False
    """Whether the user said bytes of device memory."""

    @property
    def dram_bytes(self) -> Amount | None:
        """What device memory has to give and take."""
        read, written = self.dram_read_bytes, self.dram_written_bytes
        return None if read is None or written is None else read + written

    @property
    def least_bytes(self) -> int:
        """The bytes of device memory if each is moved once, or as many as the user said."""
        known = (self.once_read_bytes, self.dram_written_bytes)
        return sum(one.low for one in known if one is not None)


@dataclass(frozen=True, slots=True)
class SpeedOfLight:
    """The least time that a launch can take on a GPU, and why."""

    us: float | None
    """None where no rate that it needs is known."""
    binds: str | None
    """The part that takes longest."""
    parts: tuple[Part, ...]
    """The times of its bytes and of its FLOPs by kind, each as if there were nothing else."""
    unknown: tuple[str, ...] = ()
    """The parts that the GPU's data sheet has no rate for: they could take longer."""

    def part_us(self, name: str) -> float | None:
        """Return the time of a part by itself; None where there is none, or it is not known."""
        return next((part.us for part in self.parts if part.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "us": self.us,
            "binds": self.binds,
            "parts": {part.name: part.us for part in self.parts},
            "unknown": list(self.unknown),
        }


def moved(counts: Counts | None, given: Work, gpu: Gpu, resident: int | None) -> Memory | None:
    """Return what a launch moves: what the user has *given*, and else what its *counts* say.

    None where neither says anything. The rest is as `memory` takes it.
    """
    found = Memory(None, None, None, None) if counts is None else memory(counts, gpu, resident)
    said = {
        name: Amount.of(number)
        for name, number in (
            ("dram_read_bytes", given.read_bytes),
            ("once_read_bytes", given.read_bytes),
            ("dram_written_bytes", given.written_bytes),
        )
        if number is not None
    }
    if counts is None and not said:
        return None
    return replace(found, **said, given=bool(said))


def memory(counts: Counts, gpu: Gpu, resident: int | None) -> Memory:
    """Return what a launch moves of which *resident* programs run at once; None is not known.

    Bytes that programs which run at once share are read from device memory once, as such programs
    go through their loops in step. Where all that they touch fits the cache, a program that goes
    over its part once more finds it there. What later programs touch again they find there if it
    fits together with all that is touched in between, and else read anew.
    """
    asked = total(one.sectors * SECTOR for one in counts.accesses)
    reads = (_given(one, counts, resident, capacity(gpu)) for one in counts.footprints)
    return Memory(asked, total(reads), counts.unique_written_bytes, counts.unique_read_bytes)


def capacity(gpu: Gpu) -> int | None:
    """Return the bytes that the last cache before the device memory keeps of what all load.

    On NVIDIA's GPUs with two partitions that is half of the L2 cache; on AMD's with an Infinity
    Cache it is that. None where neither is known.
    """
    if gpu.infinity_cache_bytes is not None or gpu.l2_bytes is None:
        return gpu.infinity_cache_bytes
    return gpu.l2_bytes // (2 if gpu.target.name in PARTITIONED else 1)


def _given(tensor: Footprint, counts: Counts, resident: int | None, room: int | None) -> Amount:
    """Return the bytes of a tensor that device memory gives, with *room* bytes of cache."""
    accesses = [one for one in counts.accesses if one.reads and one.tensor == tensor.tensor]
    asked = total(one.sectors * SECTOR for one in accesses)
    most = None if asked.high is None else max(asked.high, tensor.read.high or asked.high)
    if _fits(_touched(counts), room):
        return tensor.read
    if room is None or resident is None or tensor.resident is None:
        return Amount(tensor.read.low, most)
    waves = max(counts.programs / max(resident, 1), 1.0)
    passes = 1.0
    if not _fits(_touched(counts, 1.0), room):
        own = (tensor.a_program or 0) * counts.programs
        moved = min(asked.low, total(one.bytes for one in accesses).low)
        passes = max(moved / own, 1.0) if own else 1.0

    def given(distinct: int, limit: int, at_once: int) -> int:
        until_again = distinct / at_once if at_once else 1.0
        again = 1.0 if _fits(_touched(counts, until_again), room) else waves / until_again
        return max(distinct, min(limit, round(distinct * max(again, 1.0) * passes)))

    low = given(tensor.read.low, asked.low, min(tensor.resident.low, tensor.read.low))
    highs = (tensor.read.high, asked.high, tensor.resident.high)
    if None in highs:
        return Amount(low, most)
    read, limit, at_once = (high or 0 for high in highs)
    return Amount(low, max(low, given(read, limit, min(at_once, read))))


def _fits(touched: float | None, room: int | None) -> bool:
    return touched is not None and room is not None and touched <= room


def _touched(counts: Counts, waves: float | None = None) -> float | None:
    """Return the distinct bytes that so many *waves* of programs touch, or the launch.

    None where they are not known.
    """
    found = 0.0
    for one in counts.footprints:
        whole = (one.read + one.written).high
        at_once = None if one.resident is None else one.resident.high
        of_waves = None if waves is None or at_once is None else at_once * waves
        known = [amount for amount in (whole, of_waves) if amount is not None]
        if not known or (waves is not None and of_waves is None):
            return None
        found += min(known)
    return found


def speed_of_light(counts: Counts | None, moved: Memory, gpu: Gpu) -> SpeedOfLight:
    """Return the least time of a launch on *gpu*, of the least that it moves and computes.

    Of products of matrices the rate is that of the tensor cores, by the dtype of what is
    multiplied; of everything else that of FP32, which is twice as high for 16 bits.
    """
    parts, unknown = [], []
    for name, work, rate in _demands(counts, moved, gpu):
        if not work:
            continue
        if rate is None:
            unknown.append(name)
        else:
            parts.append(Part(name, work / rate / 1e3))
    longest = max(parts, key=lambda part: part.us, default=None)
    us, binds = (None, None) if longest is None else (longest.us, longest.name)
    return SpeedOfLight(us, binds, tuple(parts), tuple(unknown))


def _demands(
    counts: Counts | None, moved: Memory, gpu: Gpu
) -> Iterator[tuple[str, int, float | None]]:
    """Return each part's name, its bytes or FLOPs, and its rate, 1e9 a second."""
    yield MEMORY, moved.least_bytes, gpu.bandwidth_gbs
    if counts is None:
        return
    for dtype, flops in counts.dot_flops.items():
        yield f"{dtype} {TENSOR}", flops.low, _giga(dot_tflops(gpu, dtype))
    for dtype, flops in counts.other_flops.items():
        yield dtype, flops.low, _giga(other_tflops(gpu, dtype))


def _giga(tera: float | None) -> float | None:
    return None if tera is None else tera * 1e3


def dot_tflops(gpu: Gpu, dtype: str) -> float | None:
    """Return the rate at which *gpu* multiplies matrices of *dtype*, as Triton's language names it.

    1e12 operations a second; None where it is not known. FP32 that is not rounded to TF32 is
    multiplied without tensor cores on NVIDIA.
    """
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
    """Return the rate of *gpu* for operations of *dtype* outside tensor cores, as `dot_tflops`."""
    if dtype == "fp64":
        return gpu.fp64_tflops
    if gpu.fp32_tflops is None:
        return None
    return gpu.fp32_tflops * (2 if dtype in {"fp16", "bf16"} else 1)


def intensity(counts: Counts, moved: Memory) -> float | None:
    """Return the FLOPs of a launch per byte of device memory; None where one is not exact."""
    flops = counts.flops.exact
    moved_bytes = None if moved.dram_bytes is None else moved.dram_bytes.exact
    return None if flops is None or not moved_bytes else flops / moved_bytes


def work_columns(
    counts: Counts | None, moved: Memory | None, gpu: Gpu, executed: Executed | None
) -> dict[str, Any]:
    """Return the columns of what a launch does on *gpu*; None is not known, or not exactly.

    The sectors are those that the instructions of its warps ask for, unless copies of whole blocks
    (TMA) ask for others.
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
        "speed_of_light_us": None if moved is None else speed_of_light(counts, moved, gpu).us,
    }
