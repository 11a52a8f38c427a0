"""Records what the driver of the NVIDIA GPU at hand reports about a grid of compiled kernels.

`python reports/record_driver.py` writes reports/data/driver-<gpu>.csv: the registers, local memory
and programs per SM by the driver, and for some configurations whether a cooperative launch is
accepted with the predicted number of programs and with one more.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import os
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from typing import TYPE_CHECKING

from record_files import DATA, table_bytes

from occupancy_lab.compiled_records import compile_matrix
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.errors import DoesNotFitError
from occupancy_lab.gpus import present_gpus
from occupancy_lab.inputs import chosen_kernel
from occupancy_lab.measuring.driver import accepts_cooperative_launch, ask_driver
from occupancy_lab.record import matrix_of
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.gpus import PresentGpu
    from occupancy_lab.record import Record

COLS = (100, 256, 781, 1024, 2000, 4096, 8192, 12672, 16384, 32768)
DTYPES = ("float32", "float16", "bfloat16")
ELEMENTS_A_THREAD = 64
"""Above it ptxas takes many seconds per kernel."""
PROCESSES = 16
"""The most processes that compile at the same time: each has its own matrices on the GPU."""


@functools.cache
def here() -> PresentGpu:
    """Return the GPU at hand."""
    return present_gpus()[0]


@functools.cache
def compiler() -> Compiler:
    """Return a compiler that uses the driver of the GPU at hand."""
    return Compiler(None, here={here().gpu.target})


def launches() -> Iterator[tuple[str, Problem, Config]]:
    """Yield the kernel's name, the problem and the configuration of every point of the grid."""
    kernels = {"softmax": (1, 2, 3, 4), "softmax_row": (1,)}
    for (name, stages), dtype, cols in itertools.product(kernels.items(), DTYPES, COLS):
        block_size = 1 << (cols - 1).bit_length()
        problem = Problem(8192, cols, dtype)
        for num_warps, num_stages in itertools.product((1, 2, 4, 8, 16, 32), stages):
            if block_size <= num_warps * 32 * ELEMENTS_A_THREAD:
                yield name, problem, Config(block_size, num_warps, num_stages)


def row(launch: tuple[str, Problem, Config]) -> dict[str, object] | None:
    """Return the row of *launch*, or None if a program does not fit on the GPU."""
    name, problem, config = launch
    try:
        record = compile_matrix(chosen_kernel(name), problem, config, here().gpu, compiler())
    except DoesNotFitError:
        return None
    return described(record, here())


def described(record: Record, present: PresentGpu) -> dict[str, object]:
    """Return the row of a record: its resources, the prediction and the driver's numbers."""
    said = ask_driver(matrix_of(record).kernel, record.problem, record.config, present.gpu.target)
    held = record.calculation.resident_programs
    launch = (matrix_of(record).kernel, record.problem, record.config)
    tried = matrix_of(record).kernel.name == "softmax" and record.problem.dtype == "float32"
    return {
        "device": present.name,
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "torch": version("torch"),
        "triton": record.triton_version,
        "target": record.gpu.target.name,
        "kernel": matrix_of(record).kernel.name,
        "cols": record.problem.cols,
        "dtype": record.problem.dtype,
        **record.config.settings,
        "n_regs": record.resources.n_regs,
        "local_bytes": record.resources.local_bytes,
        "shared": record.resources.shared,
        "resident_programs": held,
        "driver_n_regs": said.n_regs,
        "driver_local_bytes": said.local_bytes,
        "driver_static_shared": said.static_shared,
        "driver_programs_per_multiprocessor": said.programs_per_multiprocessor,
        "accepted": accepts_cooperative_launch(*launch, held or 0) if tried else None,
        "accepted_one_more": (
            accepts_cooperative_launch(*launch, (held or 0) + 1) if tried else None
        ),
    }


def main() -> None:
    """Write the file and print its number of rows."""
    # A spawned process has its own CUDA context; a forked one could not use its parent's.
    with ProcessPoolExecutor(min(os.cpu_count() or 1, PROCESSES), get_context("spawn")) as pool:
        rows = [found for found in pool.map(row, launches()) if found is not None]
    path = DATA / f"driver-{here().gpu.key}.csv"
    path.write_bytes(table_bytes(rows[0], rows))
    print(f"{len(rows)} rows in {path}")


if __name__ == "__main__":
    main()
