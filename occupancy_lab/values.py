"""Values that travel from a launch to a record; each is frozen and made by one function.

Problem, Config and Gpu become Resources, Occupancy, LaunchPlan, a Prediction (of `prediction`) and
a Measurement, and together one Record. None always means "not known", never zero.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

ITEM_BYTES: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MAX_STAGES = 64
"""The most stages of a loop. Triton unrolls each before the loop, so that compile time grows
quadratically; what 64 stages keep in flight covers the memory latency of any GPU."""
COUNTED = "counted"
"""The metadata key under which a field of Resources has the words for what is counted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A row-major matrix of *rows* x *cols* elements of *dtype* (a torch dtype's name)."""

    rows: int
    cols: int
    dtype: str = "float32"

    @property
    def words(self) -> str:
        """The size and dtype in words: "4096 x 781 float32"."""
        return f"{self.rows} x {self.cols} {self.dtype}"

    @property
    def item_bytes(self) -> int:
        """Bytes per element."""
        return ITEM_BYTES[self.dtype]

    @property
    def matrix_bytes(self) -> int:
        """Bytes of the whole matrix, without padding."""
        return self.rows * self.cols * self.item_bytes

    @property
    def needs_int64_offsets(self) -> bool:
        """Whether the offset of an element, counted in elements, does not fit 32 bits."""
        return self.rows * self.cols > INT32_MAX


@dataclass(frozen=True, slots=True)
class Config:
    """The knobs of a launch, with Triton's names (`block_size` is BLOCK_SIZE)."""

    block_size: int
    num_warps: int
    num_stages: int

    @property
    def settings(self) -> dict[str, int]:
        """The knobs by Triton's names."""
        return {
            "BLOCK_SIZE": self.block_size,
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
        }


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a launch, as given by the user or its kernel; None means not known."""

    read_bytes: int | None = None
    """Bytes that the work must read from global memory."""
    written_bytes: int | None = None
    pieces: int | None = None
    """Pieces of work, which the programs take in turns; None: each program of the grid is one."""
    together: int | None = None
    """Programs that wait for each other, so that all of them must be resident at once; None: none
    do."""
    piece: str = "program"
    """The word for a piece of work: row, block."""

    @property
    def traffic(self) -> Traffic | None:
        """Bytes that the work must move; None unless both directions are given."""
        read, written = self.read_bytes, self.written_bytes
        return None if read is None or written is None else Traffic(read, written)

    @property
    def known_bytes(self) -> int | None:
        """Bytes that the work moves at least; None if none are given."""
        given = [one for one in (self.read_bytes, self.written_bytes) if one is not None]
        return sum(given) if given else None


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a compile: Triton's GPUTarget without Triton."""

    backend: str
    arch: str
    """For "cuda" the compute capability without its dot ("90"), for "hip" the gfx name."""
    warp_size: int

    @property
    def name(self) -> str:
        """The vendor's compiler name: sm_90, gfx942."""
        return f"sm_{self.arch}" if self.backend == "cuda" else self.arch

    @property
    def copies_ahead(self) -> bool:
        """Whether Triton prefetches through shared memory: on NVIDIA from sm_80 on."""
        return self.backend == "cuda" and int(self.arch) >= 80  # noqa: PLR2004 - sm_80

    def __str__(self) -> str:
        """Return the form for `triton.tools.compile --target`: cuda:90:32."""
        return f"{self.backend}:{self.arch}:{self.warp_size}"


def _counted(words: str) -> Any:
    """Return a field of Resources that counts instructions of the binary, described by *words*."""
    return field(default=None, metadata={COUNTED: words})


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that one program of a compiled kernel takes from a multiprocessor.

    Only the first three are needed to calculate an occupancy; the others are None if the vendor has
    no such resource or if they were not read. A program of several CTAs is a cluster: its resources
    are those that each CTA takes from its own multiprocessor.
    """

    n_regs: int
    """32-bit registers per thread: CUDA registers, or VGPRs (AGPRs included) per lane."""
    num_warps: int
    """Launched warps: with warp specialization more than the num_warps asked for."""
    shared: int
    """Dynamic shared memory (LDS), bytes per program: Triton's `metadata.shared`."""
    static_shared: int = 0
    """Shared memory in the binary itself, bytes, without the driver's own reserve."""
    local_bytes: int | None = None
    """Local memory (scratch) per thread, bytes: the stack frame, including register spills."""
    num_ctas: int = 1
    """CTAs (thread blocks) per program; several are a cluster."""
    barriers: int | None = None
    """Named barriers per program (CUDA)."""
    tensor_memory: int | None = None
    """Columns of tensor memory per program (CUDA): Triton's `metadata.tmem_size`."""
    sgprs: int | None = None
    """Scalar registers per wave (HIP)."""
    agprs: int | None = None
    """Accumulation VGPRs per lane (HIP, gfx9); `n_regs` includes them if the file is unified."""
    allocated_vgprs: int | None = None
    """VGPRs that the kernel descriptor asks for (HIP): `n_regs` rounded up, or more when padded."""
    vgpr_spills: int | None = None
    """VGPRs that the compiler spilled (HIP)."""
    sgpr_spills: int | None = None
    """SGPRs that the compiler spilled (HIP), to VGPR lanes: no memory traffic."""
    pipeline_shared: int | None = None
    """The part of `shared` that holds rows in flight: the buffers for num_stages."""
    binary: int | None = None
    """A digest of the kernel's instructions: equal digests mean one binary."""
    load_bytes: int | None = None
    """The widest global load of a thread, bytes per instruction."""
    store_bytes: int | None = None
    """The widest global store of a thread, bytes per instruction."""
    tensor_size: int | None = None
    """Multiply-adds per warp and tensor core instruction, averaged over the kernel's
    instructions."""
    instructions: int | None = _counted(
        "instructions a warp issues once: all of the kernel outside its loop"
    )
    loop_instructions: int | None = _counted(
        "instructions a warp issues in one pass of the loop; none where there is no loop"
    )
    stall_cycles: int | None = _counted(
        "cycles of a warp alone from instruction to instruction, as scheduled (NVIDIA), per pass"
    )
    local_traffic: int | None = _counted(
        "bytes a thread moves to and from local memory, per pass of the loop"
    )
    shuffles: int | None = _counted("exchanges between the lanes of a warp, per pass")
    barrier_waits: int | None = _counted("barriers of the program's warps, per pass")
    shared_accesses: int | None = _counted("loads from and stores to shared memory (LDS), per pass")
    global_accesses: int | None = _counted("loads from and stores to global memory, per pass")
    async_copies: int | None = _counted(
        "copies from global to shared memory that no warp waits for, per pass"
    )
    special_functions: int | None = _counted(
        "exponentials, reciprocals, roots and the like, per pass"
    )
    tensor_instructions: int | None = _counted(
        "matrix multiplications on tensor cores (MFMA and WMMA on AMD), per pass"
    )
    local_loads: int | None = _counted("loads from local memory (scratch), per pass")
    local_stores: int | None = _counted("stores to local memory (scratch), per pass")

    @property
    def n_spills(self) -> int | None:
        """Triton's `n_spills`: 4-byte words of local memory per thread, spilled or not."""
        return None if self.local_bytes is None else self.local_bytes // 4

    def replace(self, **changes: Any) -> Resources:
        """Return a copy with *changes* made."""
        return dataclasses.replace(self, **changes)


COUNTERS: Mapping[str, str] = {
    field.name: field.metadata[COUNTED]
    for field in dataclasses.fields(Resources)
    if COUNTED in field.metadata
}
"""The fields of Resources that count instructions of the binary, and what each counts. Without a
loop, a pass is the whole kernel."""


class Status(StrEnum):
    """The outcome of a launch that was to be compiled."""

    OK = "ok"
    DOES_NOT_FIT = "does not fit"
    """The GPU cannot hold one program of it."""
    COMPILE_FAILED = "compile failed"
    TIMED_OUT = "timed out"
    """The compile exceeded the time limit."""
    SKIPPED = "skipped"
    """The request is invalid, so nothing was compiled."""
    INTERRUPTED = "interrupted"
    """A signal came before it was compiled."""
    NOT_COMPILED = "not compiled"
    """A cache entry whose compile failed or was ended: it is no kernel."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a launch has no Resources, or does not fit."""

    status: Status
    reason: str
    seconds: float | None = None
    """The time limit of a compile that exceeded it."""
    lasting: bool = field(default=False, kw_only=True)
    """Whether another try would give the same; not so after a full disk, a killed process, or a
    time limit, which any kernel may exceed on a busy machine."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The programs per multiprocessor that a resource allows."""

    resource: str
    """warps, registers, sgprs, shared, programs (slots for them), barriers or tensor_memory."""
    programs: int | None
    """None if the kernel uses none of the resource, so that there is no limit."""
    steps: tuple[str, ...]
    """The arithmetic with this kernel's numbers; empty without a limit."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many programs of a kernel run at once per multiprocessor, and what limits them.

    For programs that are clusters it counts CTAs; `Clusters` has the number of whole clusters.
    """

    programs_per_multiprocessor: int
    num_warps: int
    max_warps: int
    """The most warps per multiprocessor."""
    limits: tuple[Limit, ...]

    @property
    def limiters(self) -> tuple[str, ...]:
        """Every resource whose limit is the minimum."""
        least = self.programs_per_multiprocessor
        return tuple(limit.resource for limit in self.limits if limit.programs == least)

    @property
    def warps_per_multiprocessor(self) -> int:
        """Warps resident at once."""
        return self.programs_per_multiprocessor * self.num_warps

    @property
    def occupancy(self) -> float:
        """Theoretical occupancy: resident warps over the most per multiprocessor."""
        return self.warps_per_multiprocessor / self.max_warps

    def limit(self, resource: str) -> Limit:
        """Return the limit of *resource*; KeyError if the formula has no such limit."""
        for limit in self.limits:
            if limit.resource == resource:
                return limit
        raise KeyError(resource)


@dataclass(frozen=True, slots=True)
class TutorialOccupancy:
    """The result of the formula of Triton's fused softmax tutorial for the same kernel."""

    programs_per_multiprocessor: int | None
    """None if the formula raises ZeroDivisionError."""
    limits: tuple[Limit, ...]
    missing_terms: tuple[str, ...]
    """The fewest terms that must be added to correct it; empty if it is right or fails."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """The distance of a resource from the next cliff."""

    resource: str
    now: int
    most_for_one_more: int | None
    """The largest amount with which this resource allows one more program; None if there is
    none."""
    least_for_one_fewer: int | None
    """The smallest amount with which this resource costs a program; None if there is none."""
    option: str | None = None
    """The launch option that asks the compiler for `most_for_one_more`, such as maxnreg=80; what it
    would spill is not known before a compile. None if there is no such option."""

    @property
    def cap(self) -> dict[str, int]:
        """`option` by its name, for a launch: {"maxnreg": 80}; empty if it is None."""
        name, _, most = (self.option or "").partition("=")
        return {name: int(most)} if most else {}


@dataclass(frozen=True, slots=True)
class Clusters:
    """How many clusters, the programs of a launch with num_ctas above 1, a GPU holds at once."""

    num_ctas: int
    """CTAs (thread blocks) per cluster."""
    resident: int | None
    """Whole clusters that the GPU holds; None if it is not known how its SMs are grouped."""
    steps: tuple[str, ...]
    """The arithmetic with this kernel's numbers; empty if `resident` is None."""
    next_step: NextStep | None
    """The nearest num_ctas with which the GPU holds more CTAs, or fewer; None as above."""
    source: str
    """The source of the groups of SMs, or why they are not known."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How a launch's work is spread over programs and time.

    Work comes in pieces: rows, blocks of elements, or the programs of a grid, each of which is its
    own piece. A cluster of CTAs is one program.
    """

    work: int
    """Pieces of work to be done."""
    num_programs: int | None
    """Programs launched; None if the number of multiprocessors is not known."""
    resident_programs: int | None
    """Programs that the whole GPU holds at once."""
    grid: tuple[int, ...] | None = None
    """The launched grid, in 1 to 3 dimensions; None for a persistent launch."""

    @property
    def is_persistent(self) -> bool:
        """Whether as many programs are launched as fit, and take the pieces in turns."""
        return self.grid is None

    @property
    def waves(self) -> float | None:
        """Programs launched over programs that the GPU holds at once; None if it holds none."""
        if self.num_programs is None or not self.resident_programs:
            return None
        return self.num_programs / self.resident_programs

    @property
    def at_once(self) -> int | None:
        """Pieces that are worked on at the same time."""
        if self.num_programs is None or self.resident_programs is None:
            return None
        return min(self.num_programs, self.resident_programs)

    @property
    def rounds(self) -> int | None:
        """Pieces that the busiest program slot does, one after the other."""
        return None if self.at_once is None else -(-self.work // max(self.at_once, 1))

    @property
    def last_round(self) -> int | None:
        """Pieces left for the last round, the tail: for a grid, the programs of its last wave."""
        if self.at_once is None or self.rounds is None:
            return None
        return self.work - max(self.rounds - 1, 0) * self.at_once


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that a launch must move through global memory, ignoring caches."""

    read_bytes: int
    written_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes read and written."""
        return self.read_bytes + self.written_bytes

    def floor_us(self, bandwidth_gbs: float | None) -> float | None:
        """Return the least time in us at a bandwidth in GB/s (1e9 bytes); None without one."""
        return None if bandwidth_gbs is None else self.total_bytes / bandwidth_gbs / 1e3


@dataclass(frozen=True, slots=True)
class Conditions:
    """Where, when and how launches were timed."""

    device: str
    """The driver's name for the GPU."""
    date: str | None
    """The day, as 2026-11-21."""
    driver: str | None
    """The version of the GPU's driver."""
    torch: str
    triton: str
    timer: str
    """How the launches were timed."""
    l2: str
    """The state of the L2 cache at the start of each launch."""
    sm_mhz: int | None = None
    """The multiprocessors' clock right after the launches."""
    throttled: str | None = None
    """Why the clock was throttled, in words; None if it was not, or if it is not known."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """How long launches took on a real GPU, or why there is no time."""

    status: str
    """measured, wrong result, out of memory, does not fit, launch failed or device lost."""
    conditions: Conditions | None
    """None if the device was lost before it could report them."""
    reason: str | None = None
    """Why there is no time."""
    us: float | None = None
    """Median time of a launch, us."""
    us_low: float | None = None
    """The 10th percentile of the times, us."""
    us_high: float | None = None
    """The 90th percentile of the times, us."""
    runs: int | None = None
    relative_error: float | None = None
    """Norm of the difference from torch in float64, over torch's norm; None if not compared."""
    mostly_launch: bool | None = None
    """Whether the time is less than twice that of an empty kernel, so that it says little."""

    def gbs(self, traffic: Traffic | None) -> float | None:
        """Return the bandwidth of moving *traffic* in the median time, GB/s."""
        return None if self.us is None or traffic is None else traffic.total_bytes / self.us / 1e3

    def to_dict(self) -> dict[str, Any]:
        """Return every field; an infinite or NaN error becomes None, because JSON has neither."""
        error = self.relative_error
        finite = error is not None and math.isfinite(error)
        return dataclasses.asdict(self) | {"relative_error": error if finite else None}
