"""Compares the softmaxes' recorded times with those that the model of any kernel predicts.

`python reports/softmax_times.py --output reports/data/softmax-times.csv` compiles every fifth
launch that was recorded on an H100, counts what it does, and predicts its time on the GPUs where it
was recorded: by that model, and by the model of described traffic, which was fitted to softmaxes.
`--table` prints how near both are. The Triton has to be the one of the recording.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from compare_time import LEAST_US
from record_tunes import rows_of, write_rows

from occupancy_lab.asked import ask
from occupancy_lab.compiled_records import compile_runs, with_counts, with_predictions
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.evaluating.score import time_errors
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import chosen_kernel
from occupancy_lab.record import Record
from occupancy_lab.throughput.predict import row_config, row_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DATA = Path(__file__).resolve().parent / "data"
FILE = DATA / "softmax-times.csv"
GPUS = ("h100", "h200")
EVERY = 5
USES = ("tuning", "held out", "fresh")
NAMES = ("kernel", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages")
TIMES = ("us", "predicted_us", "described_us")
COLUMNS = ("gpu", "use", *NAMES, "n_spills", *TIMES)


def recorded(gpu: str) -> dict[tuple[str, ...], dict[str, str]]:
    """Return the launches of *gpu* that were timed as they are planned, by their names."""
    with (DATA / f"measured-{gpu}.csv").open(encoding="utf-8") as file:
        return {
            tuple(row[name] for name in NAMES): row
            for row in csv.DictReader(file)
            if row["measured"] == "measured"
            and row["launched"] == row["num_programs"]
            and row["use"] in USES
        }


def predicted() -> Iterator[dict[str, Any]]:
    """Yield a row for each launch that is compared, of each GPU."""
    rows = [recorded(gpu) for gpu in GPUS]
    names = list(rows[0])[::EVERY]
    first = find_gpu(GPUS[0])
    asked = [
        ask(chosen_kernel(row["kernel"]), row_problem(row), row_config(row), first)
        for row in (rows[0][name] for name in names)
    ]
    compiler = Compiler(store_directory())
    runs = with_counts(compile_runs(asked, compiler), asked, compiler)
    for gpu, measured in zip(GPUS, rows, strict=True):
        there = [
            (measured[name], dataclasses.replace(run, gpu=find_gpu(gpu)))
            for name, run in zip(names, runs, strict=True)
            if isinstance(run, Record) and name in measured
        ]
        described = with_predictions([run for _, run in there])
        for (row, run), other in zip(there, described, strict=True):
            own = run.time_with(run.occupancy.programs_per_multiprocessor, run.resources)
            yield {
                **{name: row[name] for name in COLUMNS if name in row},
                "predicted_us": None if own is None else own.us,
                "described_us": None if other.prediction is None else other.prediction.us,
            }


def read() -> list[dict[str, Any]]:
    """Return the rows of the file, times as numbers; None is not predicted."""
    return rows_of(FILE)


def errors(rows: Sequence[Mapping[str, Any]], column: str) -> tuple[float, float]:
    """Return how far off the times of *column* are by half of *rows* and by nine in ten of them."""
    found = time_errors(*(pd.Series([row[one] for row in rows]) for one in (column, "us")))
    return found.median, found.p90


def compared(gpu: str, kernel: str | None = None, *, spills: bool | None = None) -> list[Any]:
    """Return the longer launches on *gpu* that both models predict, of *kernel* or of all."""
    return [
        row
        for row in read()
        if row["gpu"] == gpu
        and kernel in {None, row["kernel"]}
        and spills in {None, int(row["n_spills"]) > 0}
        and row["us"] >= LEAST_US
        and None not in {row["predicted_us"], row["described_us"]}
    ]


def table() -> str:
    """Return how near both models are, as markdown."""
    kinds: Sequence[tuple[str, dict[str, Any]]] = (
        ("all", {}),
        ("that spill no registers", {"spills": False}),
        *((name, {"kernel": name}) for name in sorted({row["kernel"] for row in read()})),
    )
    lines = [
        "| above 10 us | launches | any: half | nine in ten | described: half | nine in ten |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for gpu in GPUS:
        for name, chosen in kinds:
            rows = compared(gpu, **chosen)
            if not rows:
                continue
            cells = [
                f"{one:.1%}".replace("%", " %")
                for column in TIMES[1:]
                for one in errors(rows, column)
            ]
            lines.append(f"| {gpu.upper()}: {name} | {len(rows)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the file, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=FILE)
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        print(table(), end="")
        return
    write_rows(asked.output, COLUMNS, predicted())


if __name__ == "__main__":
    main()
