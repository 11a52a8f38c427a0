"""What the lab says of a kernel, checked against what the NVIDIA GPU at hand says and does."""

from __future__ import annotations

import itertools
from contextlib import closing
from typing import TYPE_CHECKING

from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.process import Compiler, check_files
from occupancy_lab.errors import DoesNotFitError, InputError
from occupancy_lab.gpus import present_gpus
from occupancy_lab.inputs import DEFAULT_ROWS, check_problem, chosen_config, chosen_kernel
from occupancy_lab.kernel import Grid
from occupancy_lab.measuring.checks import driver_checks, launch_checks, ncu_checks
from occupancy_lab.record import compile_record
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from occupancy_lab.gpus import Gpu, PresentGpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.measuring.checks import Check
    from occupancy_lab.record import Record

DEFAULT_COLS = 781
"""The columns that the tutorial explains itself with."""
NUM_STAGES = (1, 2, 3, 4)
PROFILED = 3
"""Configurations that Nsight Compute looks at: it takes some 3 s for each."""
ELEMENTS_A_THREAD = 64
"""Above this ptxas takes many seconds a kernel."""


def verify_here(  # noqa: PLR0913 - one argument an option of the command line
    cols: int = DEFAULT_COLS,
    *,
    rows: int = DEFAULT_ROWS,
    dtype: str = "float32",
    kernel: str = "softmax",
    num_warps: Sequence[int] = (),
    num_stages: Sequence[int] = (),
    ncu: bool = True,
) -> tuple[Check, ...]:
    """Check a grid of configurations on the first NVIDIA GPU at hand; `verify` says what.

    Without *num_warps* every number of warps that compiles in a moment is taken, without
    *num_stages* 1 to 4 of a persistent kernel and 1 of another. Raises InputError where there is
    no NVIDIA GPU, or what is asked makes no sense.
    """
    present = next((one for one in present_gpus() if one.gpu.vendor == "NVIDIA"), None)
    if present is None:
        msg = "verify needs an NVIDIA GPU, and none is at hand; explain does without one"
        raise InputError(msg)
    problem = Problem(rows, cols, dtype)
    check_problem(problem)
    check_files([kernel], store_directory())
    configs = grid_of_configs(chosen_kernel(kernel), problem, present.gpu, num_warps, num_stages)
    return verify(kernel, problem, configs, present, profiled=PROFILED if ncu else 0)


def grid_of_configs(
    kernel: Kernel,
    problem: Problem,
    gpu: Gpu,
    num_warps: Sequence[int] = (),
    num_stages: Sequence[int] = (),
) -> tuple[Config, ...]:
    """Return every configuration of *num_warps* and *num_stages*; `verify_here` says what () is."""
    architecture = gpu.architecture
    block_size = chosen_config(kernel, problem, gpu, {}).block_size
    threads_at_least = block_size / ELEMENTS_A_THREAD
    powers = (1 << power for power in range(architecture.max_warps_per_program.bit_length()))
    warps = num_warps or [n for n in powers if n * architecture.warp_size >= threads_at_least]
    stages = num_stages or (NUM_STAGES if kernel.grid is Grid.PERSISTENT else (1,))
    return tuple(Config(block_size, *knobs) for knobs in itertools.product(warps, stages))


def verify(
    kernel: str,
    problem: Problem,
    configs: Iterable[Config],
    present: PresentGpu,
    *,
    profiled: int = PROFILED,
) -> tuple[Check, ...]:
    """Return the checks of each of *configs* that fits, in their order.

    *kernel* is what `load_kernel` finds it by. Registers, local memory, static shared memory and
    programs are set against the driver's, num_programs against what it accepts to launch at once.
    Nsight Compute looks at *profiled* of the configurations, spread over them; where it fails,
    a check says why. The kernel is compiled as it is without a GPU.

    Raises InputError where *present* is no NVIDIA GPU or there is no configuration, and
    DoesNotFitError where not one fits.
    """
    if present.gpu.vendor != "NVIDIA":
        msg = f"{present.name} is no NVIDIA GPU; its driver cannot be asked"
        raise InputError(msg)
    records = _fitting(kernel, problem, configs, present.gpu)
    last = len(records) - 1
    places = {place * last // max(profiled - 1, 1) for place in range(profiled)}
    checks: list[Check] = []
    for place, record in enumerate(records):
        checks += (*driver_checks(record), *launch_checks(record))
        if place in places:
            checks += ncu_checks(kernel, record)
    return tuple(checks)


def _fitting(name: str, problem: Problem, configs: Iterable[Config], gpu: Gpu) -> list[Record]:
    kernel = chosen_kernel(name)
    records, refusal = [], None
    with closing(Compiler(None)) as compiler:
        for config in configs:
            try:
                records.append(
                    compile_record(name, kernel, problem, config, gpu, compiler=compiler)
                )
            except DoesNotFitError as error:
                refusal = error
    if not records:
        raise refusal or InputError("there is no configuration to check; name num_warps")
    return records
