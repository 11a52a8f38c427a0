"""Makes explore.html and the kernels that it knows; no GPU is needed.

`python reports/explore.py --compile` compiles every configuration and writes
reports/data/explored.csv: what was read of each binary, and nothing that is worked out from it.
`python reports/explore.py` predicts the times of these rows, looks up the recorded ones, writes
occupancy_lab/exploring/kernels.json, and has the page made. Its predictions rest on the
calibrations in reports/data: make the page again when one of them changes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from occupancy_lab import exploring, load_kernel, sweep
from occupancy_lab.asked import ask
from occupancy_lab.compiled_records import matrix_record
from occupancy_lab.exploring.page import explore
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.sweeping.recorded import read_rows, recorded_as_compiled
from occupancy_lab.table.columns import RESOURCES
from occupancy_lab.throughput.calibrations import calibration_for
from occupancy_lab.throughput.model import launch_times, overfull_us, row_rates
from occupancy_lab.throughput.predict import row_config, row_problem, row_resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.throughput.calibrations import Constants
    from occupancy_lab.throughput.features import Features

DATA = Path(__file__).with_name("data") / "explored.csv"
PAGE = Path(__file__).with_name("explore.html")
KNOWN = Path(exploring.__file__).with_name("kernels.json")
GPUS = ("h100", "h200", "b200", "mi300x", "mi350x", "rx7900xtx")
KERNELS = ("softmax", "softmax_row")
ROWS, COLS = 4096, (256, 781, 1024, 2048, 4096, 8192, 12672, 32768)
DTYPES = ("float32", "bfloat16")
NUM_WARPS, NUM_STAGES = (1, 2, 4, 8, 16, 32), (1, 2, 3, 4)
MOST_ELEMENTS = 64
"""Elements of a row per thread, above which every configuration spills."""
CONFIGURATION = ("gpu", "kernel", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages")
READ = tuple(name for name in RESOURCES if name != "n_spills")
"""Columns of the binary; n_spills is local_bytes in words."""


def compile_rows() -> None:
    """Compile every configuration for every GPU and write a row each that can be launched."""
    tables = []
    for gpu in GPUS:
        architecture = find_gpu(gpu).architecture
        lanes = architecture.warp_size
        for cols in COLS:
            warps = [
                warps
                for warps in NUM_WARPS
                if warps <= architecture.max_warps_per_program
                and cols <= warps * lanes * MOST_ELEMENTS
                and warps * lanes <= 2 * cols
            ]
            for kernel in KERNELS:
                stages = NUM_STAGES if kernel == "softmax" else (1,)
                asked = {"kernel": kernel, "num_warps": warps, "num_stages": stages, "gpu": gpu}
                tables.append(sweep(cols, rows=ROWS, dtype=DTYPES, jobs=2, **asked))
        print(gpu, sum(map(len, tables)), flush=True)
    table = pd.concat(tables, ignore_index=True)
    table = table[table["status"] == "ok"]
    table[[*CONFIGURATION, *READ, "triton_version"]].to_csv(DATA, index=False, lineterminator="\n")
    print(f"{len(table)} rows in {DATA}")


USED = (
    *("n_regs", "shared", "static_shared", "barriers", "tensor_memory", "sgprs"),
    *("allocated_vgprs", "n_spills"),
)
TIMES = (
    *("predicted_ns", "fixed_ns", "round_ns", "overfull_ns", "bound", "bytes"),
    *("measured_ns", "measured_programs"),
)
"""Nanoseconds: of the launch, before its first rows, of a row while all programs run, and what one
program too many adds; what bounds it; the bytes moved; and what was recorded, with how many
programs."""


def kernels() -> dict[str, Any]:
    """Return the rows as columns: names once and numbered, times in whole nanoseconds."""
    rows = read_rows(DATA).to_dict("records")
    known = [row | _times(row) for row in rows]
    names = {
        name: list(dict.fromkeys(row[name] for row in known))
        for name in ("gpu", "kernel", "dtype", "bound")
    }
    columns = ("cols", "BLOCK_SIZE", "num_warps", "num_stages", *USED, *TIMES)
    return {
        "rows": ROWS,
        "triton": _only(row["triton_version"] for row in known),
        "measured_triton": _only(row["measured_triton"] for row in known if row["measured_triton"]),
        "basis": {gpu: calibration_for(find_gpu(gpu)).words for gpu in GPUS},
        "names": names,
        "columns": {
            **{name: [names[name].index(row[name]) for row in known] for name in names},
            **{
                name: [_integer(row.get(name)) for row in known]
                for name in columns
                if name not in names
            },
        },
    }


def _only(values: Any) -> str:
    (value,) = set(values)
    return str(value)


def _integer(value: Any) -> int | None:
    return None if value is None or pd.isna(value) else round(value)


def _times(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return what is predicted and recorded of a row's launch."""
    kernel, gpu = load_kernel(row["kernel"]), find_gpu(row["gpu"])
    problem, config, resources = row_problem(row), row_config(row), row_resources(row)
    asked = ask(NamedKernel(kernel.name, kernel), problem, config, gpu)
    record = matrix_record(asked, resources, triton="")
    plan, prediction = record.plan, record.prediction
    launch = record.planned().features(gpu)
    recorded = recorded_as_compiled(gpu.key, kernel.name, problem, config)
    return {
        "n_spills": resources.n_spills,
        "bytes": record.launch.work.known_bytes,
        "measured_ns": None if recorded is None else recorded[1].us * 1e3,
        "measured_programs": None if recorded is None else recorded[0],
        "measured_triton": None if recorded is None else recorded[1].conditions.triton,
        **_predicted(launch, plan.num_programs, calibration_for(gpu).constants),
        "predicted_ns": prediction.us * 1e3,
        "bound": prediction.bound,
    }


def _predicted(launch: Features, num_programs: int, constants: Constants) -> dict[str, Any]:
    rates = row_rates(launch, constants)
    dispatch = 0.0 if launch.loops else constants.program_us * launch.multiprocessors
    longer = None
    if launch.loops and num_programs < launch.work:
        longer = overfull_us(launch, constants, num_programs + 1) * 1e3
    return {
        "fixed_ns": float(launch_times(launch, constants).fixed) * 1e3,
        "round_ns": len(rates) * max(1 / rates[-1], dispatch) * 1e3,
        "overfull_ns": longer,
    }


def main() -> None:
    """Write what the page knows of kernels, then the page."""
    KNOWN.write_text(json.dumps(kernels(), separators=(",", ":")) + "\n")
    explore(PAGE)
    print(f"{PAGE}: {PAGE.stat().st_size} bytes, {KNOWN.stat().st_size} of them kernels")


if __name__ == "__main__":
    if sys.argv[1:] == ["--compile"]:
        compile_rows()
    else:
        main()
