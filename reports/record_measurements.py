"""Measures launches on the GPU at hand.

`python reports/record_measurements.py` writes two files into reports/data: measured-<gpu>.csv with
every configuration of the softmax kernels on the shapes of shapes.csv and of the tutorial's
benchmark, and providers-<gpu>.csv with the implementations that they are compared with. The names
of parts (configurations, providers) as arguments select these parts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from occupancy_lab.asked import ask
from occupancy_lab.compiling import kernel_launch, store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.gpus import present_gpus
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.kernel import own_kernel
from occupancy_lab.measuring.journal import measure_launches
from occupancy_lab.measuring.measure import PROVIDERS, provider
from occupancy_lab.measuring.process import TimedLaunch
from occupancy_lab.record import matrix_of
from occupancy_lab.reporting.source import COMPILE_TIMEOUT, USE, WIDTHS, tasks_of
from occupancy_lab.sweeping.grid import add_columns, measured_row, run_tasks
from occupancy_lab.table.columns import COLUMNS
from occupancy_lab.values import ITEM_BYTES, Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from occupancy_lab.asked import Asked
    from occupancy_lab.gpus import Gpu

DATA = Path(__file__).with_name("data")
LEFT_OUT = (
    "predicted_us",
    "predicted_low_us",
    "predicted_high_us",
    "predicted_gbs",
    "bound",
    "basis",
    "busiest",
    "busiest_us",
    "least_us",
    "limiter",
    "waves",
    "barriers",
    "tensor_memory",
    "num_ctas",
    "sgprs",
    "allocated_vgprs",
    "flops",
    "executed_instructions",
    "load_sectors",
    "store_sectors",
    "l2_bytes",
    "dram_read_bytes",
    "dram_written_bytes",
    "intensity",
    "speed_of_light_us",
    "lost_us",
    "lost_of",
)
"""Columns of a sweep that follow from the others or that NVIDIA's GPUs do not have."""


def shapes() -> dict[str, list[Problem]]:
    """Return the problems by their use: tuning, held out, fresh, benchmark."""
    found: dict[str, list[Problem]] = {}
    for row in pd.read_csv(DATA / "shapes.csv").to_dict("records"):
        problem = Problem(int(row["rows"]), int(row["cols"]), str(row["dtype"]))
        found.setdefault(str(row["use"]), []).append(problem)
    return found | {USE: list(WIDTHS)}


WIDTH_KINDS: Sequence[Callable[[int], int]] = (
    lambda width: width | 1,
    lambda width: width // 64 * 64 + 8 * max(width // 8 % 8, 1),
    lambda width: 64 * max(width // 64 | 1, 3),
    lambda width: 1 << width.bit_length() - 1,
)
"""How a drawn width is rounded: to an odd number, to a multiple of 8 but not of 64, to a multiple
of 64 that is no power of two, and to a power of two."""
DRAWN = 40
"""How many shapes are drawn at a time."""
SEEDS = {"held out": 20261122, "fresh": 20261123}
"""The seed of the drawn shapes, by use. If the model is changed after the fresh shapes were looked
at, they become held out and new ones are drawn."""


def drawn_shapes(seed: int) -> list[Problem]:
    """Return the problems that the rule draws, as it did before any of them was measured.

    The kinds of widths and the dtypes alternate. Widths are between 64 and 200,000, and matrices
    between 1 and 512 MiB; both are drawn uniformly in the logarithm.
    """
    generator, dtypes, found = np.random.default_rng(seed), list(ITEM_BYTES), []
    least, most = np.log2([64, 2**20]), np.log2([2e5, 2**29])
    for place in range(DRAWN):
        dtype = dtypes[place % len(dtypes)]
        width, matrix_bytes = np.exp2(generator.uniform(least, most))
        cols = WIDTH_KINDS[place % len(WIDTH_KINDS)](int(width))
        rows = max(round(matrix_bytes / (cols * ITEM_BYTES[dtype])), 1)
        found.append(Problem(rows, cols, dtype))
    return found


def warm_up_provider(problem: Problem, name: str) -> None:
    """Have *name* compile into its disk cache, which the measuring process reads."""
    import torch

    dtype = getattr(torch, problem.dtype)
    with contextlib.suppress(Exception):  # a row gives the reason why something does not compile
        provider(name)[0](torch.empty(problem.rows, problem.cols, dtype=dtype, device="cuda"))
    torch.compiler.reset()  # it gives up after 8 shapes


def warm_up(name: str, problem: Problem, config: Config) -> None:
    """Have Triton compile into its own cache, which the measuring process reads."""
    kernel, target = own_kernel(name), present_gpus()[0].gpu.target
    with contextlib.suppress(Exception):  # a row gives the reason why something does not compile
        kernel_launch(kernel, problem, config, target).warm_up(kernel.function)


def measured(tasks: Sequence[Asked]) -> pd.DataFrame:
    """Return a row for each task, and another if the tutorial's formula launches more programs."""
    with contextlib.closing(Compiler(store_directory(), timeout=COMPILE_TIMEOUT)) as compiler:
        table = run_tasks(tasks, compiler)
    compiled = [task for task, status in zip(tasks, table["status"], strict=True) if status == "ok"]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        matrices = [task.matrix for task in compiled]
        asked = [(one.kernel.name, one.problem, one.config) for one in matrices]
        list(processes.map(warm_up, *zip(*asked, strict=True), chunksize=4))
    places, counts = [], []
    for place, row in enumerate(table.to_dict("records")):
        wanted = [row["num_programs"], row["tutorial_num_programs"]]
        launched = sorted({int(count) for count in wanted if not pd.isna(count)})
        places += [place] * max(len(launched), 1)
        counts += launched or [0]
    table = table.iloc[places].reset_index(drop=True)
    fine = [place for place, status in enumerate(table["status"]) if status == "ok"]
    launches = [
        (matrix_of(task).problem, TimedLaunch(str(task.name), matrix_of(task).config, counts[at]))
        for at, task in ((at, tasks[places[at]]) for at in fine)
    ]
    found = measure_launches(launches)
    return add_columns(table, {at: (counts[at], one) for at, one in zip(fine, found, strict=True)})


def providers(asked: Sequence[tuple[Problem, str]]) -> pd.DataFrame:
    """Return a row for each pair of a problem and the name of another implementation."""
    launches = [(problem, TimedLaunch(name)) for problem, name in asked]
    found = measure_launches(launches)
    rows = [
        dataclasses.asdict(problem) | {"provider": launch.kernel} | measured_row(0, one)
        for (problem, launch), one in zip(launches, found, strict=True)
    ]
    return pd.DataFrame(rows).drop(columns="launched")


def write(table: pd.DataFrame, name: str) -> None:
    """Write *table* into reports/data, with times rounded to 1 ns."""
    times = table[["us", "us_low", "us_high"]].astype("Float64").round(3)
    errors = table["relative_error"].astype(float).map("{:.2g}".format).replace("nan", None)
    whole = {str(one): "Int64" for one in table if str(one) in COLUMNS and COLUMNS[str(one)].whole}
    table = table.assign(**times, relative_error=errors).astype(whole)
    table.to_csv(DATA / name, index=False, lineterminator="\n")
    print(f"{len(table)} rows in {name}", flush=True)


def record_configurations(gpu: Gpu) -> None:
    """Measure every configuration on every shape and write the rows."""
    parts = []
    for use, problems in shapes().items():
        tasks = [*tasks_of(problems, gpu), *tasks_of_own_blocks(problems, gpu)]
        parts.append(measured(tasks).assign(use=use))
        write(pd.concat(parts).drop(columns=list(LEFT_OUT)), f"measured-{gpu.key}.csv")


MODULES = {"liger": "liger_kernel", "quack": "quack"}
"""The modules of the kernels that are compared with if they are installed."""


def takes(name: str, problem: Problem) -> bool:
    """Tell whether *name* takes such rows: quack's are multiples of 16 bytes, Liger's are short."""
    if name == "quack":
        return problem.cols * problem.item_bytes % 16 == 0
    return name != "liger" or problem.cols <= LARGEST_BLOCK


LARGEST_BLOCK = 65536
"""The largest block worth compiling for a kernel that holds a whole row in one block."""


OWN_BLOCKS = ("softmax_pieces", "softmax_tile", "softmax_cooperative")
"""The kernels that have their own configurations."""


def tasks_of_own_blocks(problems: Sequence[Problem], gpu: Gpu) -> list[Asked]:
    """Return every configuration of the kernels that choose their own blocks."""
    kernels = {name: own_kernel(name) for name in OWN_BLOCKS}
    return [
        ask(NamedKernel(name, kernel), problem, config, gpu)
        for problem in problems
        for name, kernel in kernels.items()
        for config in kernel.configs(problem)
    ]


def record_providers(gpu: Gpu) -> None:
    """Measure the other implementations on every shape, all in one session.

    Liger's and quack's kernels are included if they are installed, for rows that they support.
    """
    # Some matrices have two uses.
    everything = dict.fromkeys(problem for problems in shapes().values() for problem in problems)
    names = [*PROVIDERS, *(name for name, module in MODULES.items() if find_spec(module))]
    asked = [(problem, name) for problem in everything for name in names if takes(name, problem)]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        slow = [one for one in asked if one[1] in {"torch.compile", "quack"}]
        list(processes.map(warm_up_provider, *zip(*slow, strict=True), chunksize=4))
    # Alone, so that all others are timed like the lab's kernels, whose batches keep nothing.
    alone = [one for one in asked if one[1] == "torch.compile"]
    beside = [one for one in asked if one[1] != "torch.compile"]
    write(pd.concat([providers(beside), providers(alone)]), f"providers-{gpu.key}.csv")


PARTS = {
    "configurations": record_configurations,
    "providers": record_providers,
}


def main() -> None:
    """Write the files of the named parts, or of all parts."""
    gpu = present_gpus()[0].gpu
    for part in sys.argv[1:] or PARTS:
        PARTS[part](gpu)


if __name__ == "__main__":
    main()
