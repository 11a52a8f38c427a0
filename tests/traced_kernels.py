"""Invented kernels of a trace: a recorded launch with any times."""

import functools
from collections.abc import Sequence

from recorded_work import recorded_launches

from occupancy_lab.compiled_records import record_in_program
from occupancy_lab.compiling.store import Store
from occupancy_lab.gpus import find_gpu
from occupancy_lab.launch import BoundLaunch, Launch
from occupancy_lab.occupancy.calculator import Calculation, calculate
from occupancy_lab.record import Record
from occupancy_lab.tracing.traced import GridLaunches, Process, TracedKernel
from occupancy_lab.values import Resources
from occupancy_lab.work.counting import Counting, count_launch

LAUNCH = next(one for one in recorded_launches() if one.trial == "swiglu 22016")
"""A launch that reads a matrix and writes one of half its size."""
BYTES = int(LAUNCH.row["tensor_bytes"])
"""The bytes of its tensors."""
PROCESS = Process(
    pid=1,
    argv=("train.py",),
    triton="3.6.0",
    torch="2.11.0",
    rank=None,
    ended=True,
    seconds=2.0,
    launching_seconds=1.0,
    replays=0,
    launches=1200,
    overhead_ns=0.0,
    hot_ns=None,
    held=0,
    empty_us=2.0,
    errors=(),
)


def calculated() -> Calculation:
    """Return the kernel's occupancy on an H100."""
    numbers = {name: int(LAUNCH.row[name]) for name in ("n_regs", "num_warps", "shared")}
    return calculate(Resources(**numbers, local_bytes=0), find_gpu("h100"))


@functools.cache
def worked() -> Record:
    """Return the kernel with its work."""
    arguments = dict(LAUNCH.arguments)
    bound = BoundLaunch(LAUNCH.kernel, Launch((), arguments, LAUNCH.grid), arguments, (), {})
    resident = calculated().resident_programs
    counting = Counting(LAUNCH.texts, bound, LAUNCH.grid, {}, resident)
    counted = count_launch(counting, Store(None))
    return record_in_program(bound, calculated()).with_counts(counted)


def traced_kernel(
    name: str, grids: Sequence[GridLaunches], constexprs: dict[str, str] | None = None
) -> TracedKernel:
    """Return a kernel with that name that was launched with *grids*."""
    return TracedKernel(
        kernel=name,
        hash="",
        launched_by="triton",
        options={"num_warps": 4, "num_stages": 3},
        constexprs=constexprs or {},
        target=find_gpu("h100").target,
        calculation=calculated(),
        reason=None,
        gpu_source="as asked",
        grids=tuple(grids),
        parts=(),
    )
