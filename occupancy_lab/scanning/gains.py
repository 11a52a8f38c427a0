"""What there is to win for a kernel in a cache: one number, at most so many times faster, and why.

A cache says nothing of a launch's size or of its data, so that no time can be predicted. What can
be said is a bound for a full GPU. The warps that are resident on a multiprocessor make passes over
the kernel's code, in each of which every instruction counts once. Such a pass of one warp takes the
multiprocessor at least as long as the longest of

- memory: the bytes of its global accesses, at its share of the GPU's bandwidth;
- issue: its instructions, at the rate of the schedulers;
- local: the bytes of its local memory, at the rate of the way to the L2 cache;
- warps: one latency of the memory and the latencies of its own instructions, divided by the warps
  that wait at the same time (Little's law). Where copies run ahead, the two waits overlap.

A kernel is short of warps where the last is the longest. One more program then helps, by no more
than the ratio of its warps to those of now and no further than to the next of the four. Elsewhere
more occupancy brings nothing, and the gain is 1. Spills are worth what the pass is shorter without
their bytes and instructions. The bytes in flight are an upper bound, as if a warp issued all its
loads at once, so that a kernel which is called short of warps is short of them.

Matrix multiplications on tensor cores take longer than their issue, which is not in these numbers:
more occupancy is worth something to such a kernel only where too few bytes can be in flight to keep
the memory busy, and its tensor cores have that to wait for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from occupancy_lab.throughput.calibrations import calibration_for
from occupancy_lab.throughput.features import issue_rate

if TYPE_CHECKING:
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.scanning.cache import Mix
    from occupancy_lab.values import Resources

LEAST = 1.005
"""A gain below this is none."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times faster a kernel would be at most, and why."""

    factor: float | None
    """None where it is not known."""
    by: str


@dataclass(frozen=True, slots=True)
class Speeds:
    """What a multiprocessor of a GPU does, per us."""

    memory: float
    """Bytes of device memory."""
    local: float
    """Bytes of local memory from and to the L2 cache."""
    issued: float
    """Instructions of its warps."""
    latency_us: float
    """A load from device memory."""
    instruction_us: float
    """From an instruction of a warp to its next."""


@cache
def speeds_of(gpu: Gpu) -> Speeds | None:
    """Return the speeds of *gpu*; None where its size, clock or bandwidth is not known."""
    basis = calibration_for(gpu)
    if basis is None or gpu.multiprocessors is None or gpu.boost_mhz is None:
        return None
    constants = basis.constants
    return Speeds(
        memory=constants.row_bandwidth_gbs * 1e3 / gpu.multiprocessors,
        local=constants.l2_gbs * 1e3,
        issued=issue_rate(gpu) * gpu.boost_mhz,
        latency_us=constants.latency_us,
        instruction_us=constants.instruction_cycles / gpu.boost_mhz,
    )


@dataclass(frozen=True, slots=True)
class Pass:
    """What a warp does in one pass over the kernel's code."""

    moved: float
    """Bytes of global memory."""
    local: float
    instructions: int
    ahead: bool
    """Whether copies run ahead of the warps."""

    def times(self, speeds: Speeds, warps: int) -> dict[str, float]:
        """Return how long each part takes the multiprocessor, us, with *warps* resident on it."""
        own = self.instructions * speeds.instruction_us
        latency = speeds.latency_us if self.moved else 0.0
        wait = max(latency, own) if self.ahead else latency + own
        return {
            "memory": self.moved / speeds.memory,
            "issue": self.instructions / speeds.issued,
            "local": self.local / speeds.local,
            "warps": wait / max(warps, 1),
        }


def pass_of(mix: Mix, resources: Resources, warp_size: int) -> Pass:
    """Return what a warp of the kernel does in one pass.

    Copies ahead move no more than the shared memory that they fill.
    """
    copied = resources.shared / resources.num_warps if mix.copies else 0
    return Pass(
        moved=mix.global_bytes * warp_size + copied,
        local=mix.local_bytes * warp_size,
        instructions=mix.instructions,
        ahead=mix.copies > 0,
    )


def find_gain(  # noqa: PLR0913 - what a gain depends on
    mix: Mix | None,
    resources: Resources,
    gpu: Gpu,
    *,
    warps: int,
    warps_after: int | None,
    step: str,
    spill_advice: str,
) -> Gain:
    """Return what the kernel would gain at most by its next step, or without its spills.

    *warps* are resident now, and *warps_after* with the next *step*, in words; None where nothing
    brings a further program. *spill_advice* is what to do against spills.
    """
    speeds = speeds_of(gpu)
    if mix is None or speeds is None:
        why = "its instructions" if mix is None else f"the speed of {gpu.title}"
        return Gain(None, f"not known, as {why} is not" if mix else f"not known, as {why} are not")
    work = pass_of(mix, resources, gpu.architecture.warp_size)
    now = work.times(speeds, warps)
    longest = max(now, key=lambda part: now[part])
    spilled = _without_spills(mix, work, speeds, warps, spill_advice)
    if longest != "warps":
        more = Gain(1.0, _enough(longest, mix, gpu))
    elif mix.tensor:
        more = _of_tensor_kernel(work, speeds, warps, warps_after, step)
    else:
        more = _of_warps(work, speeds, warps, warps_after, step)
    return spilled if (spilled.factor or 0) > (more.factor or 0) else more


def _without_spills(mix: Mix, work: Pass, speeds: Speeds, warps: int, advice: str) -> Gain:
    accesses = mix.local_loads + mix.local_stores
    if not accesses:
        return Gain(1.0, "")
    rest = Pass(work.moved, 0, work.instructions - accesses, work.ahead)
    factor = max(work.times(speeds, warps).values()) / max(rest.times(speeds, warps).values())
    beside = f"{accesses} loads and stores of local memory beside {mix.global_accesses} of global"
    return Gain(factor, f"{advice}: {beside}")


def _of_warps(work: Pass, speeds: Speeds, warps: int, after: int | None, step: str) -> Gain:
    now = work.times(speeds, warps)
    enough = max(value for part, value in now.items() if part != "warps")
    needed = now["warps"] * warps / enough if enough else 0.0
    short = _short(work, speeds, warps, needed)
    if after is None:
        return Gain(1.0, f"{short}, but {step}")
    factor = max(now.values()) / max(work.times(speeds, after).values())
    return Gain(factor, f"{step}: {short}")


def _short(work: Pass, speeds: Speeds, warps: int, needed: float) -> str:
    own = work.instructions * speeds.instruction_us
    if work.moved and speeds.latency_us >= own:
        held = warps * work.moved / 1024
        wanted = speeds.latency_us * speeds.memory / 1024
        if held < wanted:
            return f"{held:.3g} of the {wanted:.3g} KiB in flight that keep the memory busy"
    return f"{warps} of the {needed:.0f} warps that hide its latencies"


def _of_tensor_kernel(work: Pass, speeds: Speeds, warps: int, after: int | None, step: str) -> Gain:
    held, wanted = warps * work.moved, speeds.latency_us * speeds.memory
    if held >= wanted or after is None:
        return Gain(1.0, "tensor cores do its work, which few warps keep busy")
    factor = min(after / warps, wanted / held if held else 1.0)
    flight = f"{held / 1024:.3g} of the {wanted / 1024:.3g} KiB in flight"
    return Gain(factor, f"{step}: {flight}, if its tensor cores wait for memory")


def _enough(longest: str, mix: Mix, gpu: Gpu) -> str:
    if longest == "local":
        return "its local memory keeps it busy, not too few warps"
    if mix.tensor:
        return "tensor cores do its work, which few warps keep busy"
    words = {
        "memory": f"its {gpu.architecture.warp_word}s keep the memory busy",
        "issue": f"its {gpu.architecture.warp_word}s keep the schedulers busy",
    }
    return words[longest]
