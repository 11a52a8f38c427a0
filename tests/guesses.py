"""Constants that nobody measured and launches that nobody made, for tests of the prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from records import plan_of

from occupancy_lab.calibrating.calibrate import BOUNDS
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernels import softmax, softmax_row
from occupancy_lab.throughput.calibrations import Basis, Calibration, Constants
from occupancy_lab.throughput.features import Features, features
from occupancy_lab.values import Config, LaunchPlan, Problem, Resources

if TYPE_CHECKING:
    from occupancy_lab.kernel import Kernel

LAUNCH_US = 2.5
H200 = find_gpu("h200")
PEAK_GBS = H200.bandwidth_gbs or 0.0


def scaled(name: str, value: float) -> float:
    """Return a constant from *value* as BOUNDS has it: a bandwidth there is a share of the peak."""
    return value * PEAK_GBS if name.endswith("bandwidth_gbs") else value


CONSTANTS = Constants(
    launch_us=LAUNCH_US,
    **{name: scaled(name, guess) for name, (_, guess, _) in BOUNDS.items()},
)
"""The first guess of each constant for an H200."""
BASIS = Basis(CONSTANTS, "guessed", calibrated=True)


def calibration(gpu: str = "h200", device: str = "NVIDIA H200", **changes: float) -> Calibration:
    """Return the guess as the calibration of *gpu*."""
    constants = CONSTANTS.replace(**changes)
    return Calibration(constants, gpu, device, "2026-11-21", "2.11.0", "3.6.0")


@dataclass(frozen=True)
class GuessedLaunch:
    """What the features of a launch on an H200 are made of."""

    kernel: Kernel
    problem: Problem
    config: Config
    resources: Resources
    programs: int
    """Programs that a multiprocessor holds."""

    @property
    def plan(self) -> LaunchPlan:
        """How many programs are launched."""
        return plan_of(self.kernel, self.problem, self.config, self.programs, H200.multiprocessors)

    @property
    def total_bytes(self) -> int:
        """The bytes that it moves."""
        moved = self.kernel.traffic(self.problem)
        assert moved is not None
        return moved.total_bytes

    @property
    def features(self) -> Features:
        """What the model is given."""
        found = features(
            self.kernel.launched_work(self.problem, self.config),
            self.config.num_stages,
            self.resources,
            self.programs,
            self.plan,
            H200,
        )
        assert found is not None
        return found


@st.composite
def guessed_launches(
    draw: st.DrawFn, kernels: tuple[Kernel, ...] = (softmax.KERNEL, softmax_row.KERNEL)
) -> GuessedLaunch:
    """Return a launch on an H200, of a kernel that a compiler might have made."""
    kernel = draw(st.sampled_from(kernels))
    block_size = 1 << draw(st.integers(5, 16))
    num_warps = 1 << draw(st.integers(0, 5))
    elements = max(block_size // (32 * num_warps), 1)
    stages = draw(st.integers(1, 4)) if kernel is softmax.KERNEL else 1
    dtype = draw(st.sampled_from(["float32", "float16"]))
    problem = Problem(draw(st.integers(1, 200_000)), draw(st.integers(1, block_size)), dtype)
    spills = draw(st.sampled_from([0, 0, elements]))
    copies = min(elements, 64) if stages > 1 else 0
    a_pass = 40 + draw(st.integers(6, 14)) * elements
    resources = Resources(
        n_regs=32,
        num_warps=num_warps,
        shared=min((stages - 1) * block_size * 4, 200_000) + 4 * num_warps,
        local_bytes=4 * spills,
        load_bytes=draw(st.sampled_from([4, 16])),
        instructions=draw(st.integers(20, 90)) if kernel is softmax.KERNEL else a_pass,
        loop_instructions=a_pass if kernel is softmax.KERNEL else None,
        local_traffic=8 * spills,
        shuffles=draw(st.integers(0, 20)),
        barrier_waits=draw(st.integers(0, 6)) if num_warps > 1 else 0,
        shared_accesses=draw(st.integers(0, 8)) + copies,
        global_accesses=elements + (0 if copies else elements),
        async_copies=copies,
        special_functions=elements + 1,
        local_loads=spills,
        local_stores=spills,
    )
    programs = draw(st.integers(1, max(64 // num_warps, 1)))
    return GuessedLaunch(
        kernel, problem, Config(block_size, num_warps, stages), resources, programs
    )
