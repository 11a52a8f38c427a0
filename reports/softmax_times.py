"""Predicts the times of the recorded softmaxes, and writes them beside the measured times.

`python reports/softmax_times.py` compiles every launch of reports/data/measured-GPU.csv, counts its
work, and fills the columns predicted_us and bound of every launch with as many programs as fit or
as the tutorial's formula gives. `evaluate` and the reports read them. The Triton has to be that of
the recording; it takes a quarter of an hour on 16 cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from record_files import DATA, read_table, table_bytes

from occupancy_lab.asked import ask
from occupancy_lab.compiled_records import compile_runs, with_counts
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import chosen_kernel
from occupancy_lab.record import Record
from occupancy_lab.sweeping.recorded import row_config, row_problem
from occupancy_lab.workers.child import cores
from occupancy_lab.workers.forked import in_forks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.asked import Asked
    from occupancy_lab.prediction import Prediction

    Rows = list[dict[str, str]]

GPUS = ("h100", "h200")
NAMES = ("kernel", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages")
PREDICTED = ("predicted_us", "bound")
PART, WRITTEN = 32, 16
"""How many launches a fork predicts at once, and after how many such parts the file is written."""


def file_of(gpu: str) -> Path:
    """Return the file of the launches recorded on *gpu*."""
    return DATA / f"measured-{gpu}.csv"


def cells(prediction: Prediction | None) -> dict[str, str]:
    """Return the columns of a predicted time, empty if there is none."""
    if prediction is None:
        return dict.fromkeys(PREDICTED, "")
    return {"predicted_us": f"{prediction.us:.3f}", "bound": prediction.bound}


def predicted(record: Record, launched: str) -> Prediction | None:
    """Return the predicted time of *record* with *launched* programs; None if it is not known."""
    plan = record.plan
    if plan is not None and launched == str(plan.num_programs):
        return record.prediction
    return record.with_others.get(int(launched or 0))


def fill(launches: Sequence[Rows], asked: Sequence[Asked]) -> str:
    """Return the columns of the rows of each of *launches* as JSON.

    The store has the compiled kernels of *asked*.
    """
    compiler = Compiler(store_directory(), jobs=1)
    runs = with_counts(compile_runs(asked, compiler), asked, compiler, jobs=1, besides=True)
    return json.dumps(
        [
            cells(predicted(run, row["launched"]) if isinstance(run, Record) else None)
            for run, rows in zip(runs, launches, strict=True)
            for row in rows
        ]
    )


def main() -> None:
    """Fill the columns, and write the file after every few parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", choices=GPUS, action="append")
    for gpu in parser.parse_args().gpu or GPUS:
        rows = read_table(file_of(gpu))
        measured = defaultdict(list)
        for row in rows:
            if row["us"]:
                measured[tuple(row[name] for name in NAMES)].append(row)
        launches = [*measured.values()]
        asked = [
            ask(chosen_kernel(row["kernel"]), row_problem(row), row_config(row), find_gpu(gpu))
            for row, *_ in launches
        ]
        compile_runs(asked, Compiler(store_directory()))
        calls = {
            place: partial(fill, launches[place : place + PART], asked[place : place + PART])
            for place in range(0, len(launches), PART)
        }
        for count, (place, (answer, words)) in enumerate(in_forks(calls, cores(), None), start=1):
            if not answer:
                sys.exit(f"A part of {gpu} is not counted: {words}")
            filled = itertools.chain(*launches[place : place + PART])
            for row, columns in zip(filled, json.loads(answer), strict=True):
                row.update(columns)
            if count % WRITTEN == 0 or count == len(calls):
                file_of(gpu).write_bytes(table_bytes(rows[0], rows))
                print(f"{gpu}: {count} of {len(calls)} parts", flush=True)


if __name__ == "__main__":
    main()
