"""Makes explore.html and the data of its kernels, without a GPU.

`python reports/explore.py --compile` compiles and counts every configuration and writes
reports/data/explored.csv with the resources of each binary and the predicted times. Do it again
when the model or its data change.
`python reports/explore.py` looks up the recorded times of these rows, writes
occupancy_lab/exploring/kernels.json, and makes the page.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from occupancy_lab import exploring, load_kernel
from occupancy_lab.compiled_records import compile_runs, with_counts
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.exploring.page import explore
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.record import Record
from occupancy_lab.sweeping.grid import expand
from occupancy_lab.sweeping.recorded import recorded_as_compiled, row_config, row_problem
from occupancy_lab.table.columns import COLUMNS
from occupancy_lab.table.rows import read_file
from occupancy_lab.values import Problem
from occupancy_lab.work.counting import count_launches
from occupancy_lab.workers.child import cores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from occupancy_lab.asked import Asked
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.work.counting import Counted

DATA = Path(__file__).with_name("data") / "explored.csv"
PAGE = Path(__file__).with_name("explore.html")
KNOWN = Path(exploring.__file__).with_name("kernels.json")
GPUS = ("h100", "h200", "b200", "mi300x", "mi350x", "rx7900xtx")
KERNELS = ("softmax", "softmax_row")
ROWS, COLS = 4096, (256, 781, 1024, 2048, 4096, 8192, 12672, 32768)
DTYPES = ("float32", "bfloat16")
NUM_WARPS, NUM_STAGES = (1, 2, 4, 8, 16, 32), (1, 2, 3, 4)
MOST_ELEMENTS = 64
"""The most elements of a row per thread: above it every configuration spills."""
NAMED = ("gpu", "kernel", "dtype")
KNOBS = ("cols", "BLOCK_SIZE", "num_warps", "num_stages")
READ = (
    *("n_regs", "shared", "static_shared", "barriers", "tensor_memory", "sgprs"),
    *("allocated_vgprs", "n_spills"),
)
TIMES = ("predicted_us", "start_us", "round_us", "overfull_us", "bytes")
"""The predicted time of the launch, the time before its first rows, the time of a row while all
programs run, the additional time of one program too many, and the bytes moved."""
RECORDED = ("measured_us", "measured_programs")
"""The recorded time, and the number of programs that it was recorded with."""


def compile_rows() -> None:
    """Compile and count every configuration for every GPU; write a row for each possible launch."""
    rows: list[dict[str, Any]] = []
    for gpu in GPUS:
        rows += _compiled(find_gpu(gpu))
        print(gpu, len(rows), flush=True)
    columns = [*NAMED, "rows", *KNOBS, *READ, *TIMES, "basis", "triton_version"]
    table = pd.DataFrame(rows, columns=columns).convert_dtypes().round(3)
    table.to_csv(DATA, index=False, lineterminator="\n")
    print(f"{len(table)} rows in {DATA}")


def _asked(gpu: Gpu) -> Iterator[Asked]:
    most, lanes = gpu.architecture.max_warps_per_program, gpu.architecture.warp_size
    for cols in COLS:
        problems = [Problem(ROWS, cols, dtype) for dtype in DTYPES]
        warps = [
            warps
            for warps in NUM_WARPS
            if warps <= most and cols <= warps * lanes * MOST_ELEMENTS and warps * lanes <= 2 * cols
        ]
        for name in KERNELS:
            yield from expand(
                NamedKernel(name, load_kernel(name)),
                problems=problems,
                gpus=[gpu],
                block_sizes=(),
                num_warps=warps,
                num_stages=NUM_STAGES if name == "softmax" else (1,),
            )


def _compiled(gpu: Gpu) -> Iterator[dict[str, Any]]:
    """Yield a row for each configuration that can be launched on *gpu*."""
    asked, compiler = [*_asked(gpu)], Compiler(store_directory())
    runs = with_counts(compile_runs(asked, compiler), asked, compiler)
    with closing(compiler):
        texts = compiler.texts([one.compilation for one in asked])
    records = {place: run for place, run in enumerate(runs) if isinstance(run, Record)}
    counting = {
        place: record.counting(texts[place], num_programs=number + 1)
        for place, record in records.items()
        if (number := record.num_programs or 0) < ROWS
    }
    found = count_launches([*counting.values()], compiler.store, cores())
    overfull = dict(zip(counting, found, strict=True))
    for place, record in records.items():
        yield record.row() | _times(record, overfull.get(place))


def _times(record: Record, overfull: Counted | None) -> dict[str, float | None]:
    """Return the columns of TIMES for a record; *overfull* has one program too many."""
    found: dict[str, float | None] = {"bytes": record.launch.work.known_bytes}
    prediction = record.prediction
    if prediction is None:
        return found
    parts = {part.name: part.us for part in prediction.parts}
    start = parts["launch"] + parts["code"]
    found["start_us"] = start
    # The tail is the time of the last round beyond its share of the rows.
    rounds = ROWS / (record.plan.at_once or 1)
    found["round_us"] = (prediction.us - start - parts.get("tail", 0.0)) / rounds
    longer = None if overfull is None else record.with_counts(overfull).prediction
    if longer is not None:
        found["overfull_us"] = longer.us - prediction.us
    return found


def kernels() -> dict[str, Any]:
    """Return the rows as columns: names listed once and numbered, times in us."""
    rows = [row | _recorded(row) for row in read_file(DATA, COLUMNS).rows]
    names = {name: list(dict.fromkeys(row[name] for row in rows)) for name in NAMED}
    return {
        "rows": ROWS,
        "triton": _only(row["triton_version"] for row in rows),
        "measured_triton": _only(row["measured_triton"] for row in rows if row["measured_triton"]),
        "basis": {gpu: _only(row["basis"] for row in rows if row["gpu"] == gpu) for gpu in GPUS},
        "names": names,
        "columns": {
            name: [names[name].index(row[name]) if name in names else row[name] for row in rows]
            for name in (*NAMED, *KNOBS, *READ, *TIMES, *RECORDED)
        },
    }


def _only(values: Any) -> str:
    (value,) = set(values)
    return str(value)


def _recorded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded columns of a row's launch."""
    found = recorded_as_compiled(row["gpu"], row["kernel"], row_problem(row), row_config(row))
    programs, measurement = found or (None, None)
    taken = measurement and measurement.conditions
    return {
        "measured_us": measurement and measurement.us,
        "measured_programs": programs,
        "measured_triton": taken and taken.triton,
    }


def main() -> None:
    """Write the page's kernels, then the page."""
    KNOWN.write_text(json.dumps(kernels(), separators=(",", ":")) + "\n")
    explore(PAGE)
    print(f"{PAGE}: {PAGE.stat().st_size} bytes, {KNOWN.stat().st_size} of them kernels")


if __name__ == "__main__":
    if sys.argv[1:] == ["--compile"]:
        compile_rows()
    else:
        main()
