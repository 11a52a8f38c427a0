"""Runs learn.ipynb, the notebook for newcomers, and writes it: `python reports/learn.py`.

Its text has no numbers: they come from the cells below it. The file is byte for byte the same with
the same Triton and pandas.
"""

from __future__ import annotations

import ast
import json
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import triton

NOTEBOOK = Path(__file__).with_name("learn.ipynb")
STORE = "OCCUPANCY_LAB_CACHE_DIR"

STEPS = (
    (
        """\
# From a naive softmax to one that knows its GPU

Why does a fused softmax look the way it does? Every answer below is a call: kernels are compiled
here, for GPUs that need not be here, and the times were recorded on a real one. No GPU is needed,
only `pip install . notebook` in a clone of the repository. Run the cells from the top, then change
them. This is what the times were recorded with.""",
        '''\
from importlib.resources import files

import pandas as pd

import occupancy_lab
from occupancy_lab.evaluating.evaluation import counted_rows
from occupancy_lab.sweeping.recorded import latest_launches, recorded_table

ROWS, COLS, GPU = 4096, 781, "h200"
WIDTHS = [256, COLS, 1024, 2048, 4096, 8192]
problem = occupancy_lab.Problem(ROWS, COLS, "float32")


def measured_alike(table: pd.DataFrame) -> pd.DataFrame:
    """Return what was measured with as many rows and the same dtype, whatever the columns."""
    alike = (table["rows"] == problem.rows) & (table["dtype"] == problem.dtype)
    return table[alike & (table["measured"] == "measured")]


launches = measured_alike(recorded_table().query("gpu == @GPU"))
planned = latest_launches(counted_rows(launches))
launches[["device", "date", "torch", "triton", "timer", "l2"]].drop_duplicates()''',
    ),
    (
        """\
## What does the naive softmax cost?

Written in torch, softmax is five operations, and each of them goes to global memory and back. This
is what they read and write, in elements.""",
        '''\
def traffic(kernel: str) -> pd.DataFrame:
    """Return the elements that each operation of *kernel* reads and writes."""
    return pd.DataFrame(occupancy_lab.load_kernel(kernel).memory_steps(problem))


naive = traffic("softmax_naive")
naive''',
    ),
    (
        """A fused kernel reads the matrix once and writes it once, as a copy does.""",
        """\
fused = traffic("softmax_row")
elements = pd.DataFrame(
    {
        "naive": naive[["reads", "writes"]].sum(),
        "fused": fused[["reads", "writes"]].sum(),
    }
)
elements.assign(ratio=elements["naive"] / elements["fused"])""",
    ),
    (
        """\
Softmax does so little arithmetic that memory is what it waits for, so traffic is time. These are
recorded medians in microseconds, by columns: the five operations, torch's own softmax, the fastest
of the fused launches that were measured, and torch's copy of the matrix, which moves as many bytes
as a fused softmax.""",
        """\
providers = pd.read_csv(files("occupancy_lab.recorded") / "providers-h200.csv")
times = measured_alike(providers).pivot_table(index="cols", columns="provider", values="us")
times["fused"] = planned.groupby("cols")["us"].min()
times.loc[WIDTHS, ["naive", "torch", "fused", "copy"]]""",
    ),
    (
        """\
## Why does one program take a whole row?

The result of every element depends on the maximum and the sum of its row. A program that holds all
of the row in registers finds both without going back to memory. The price is registers: the wider
the row, the more of them each thread needs, until fewer programs fit on a multiprocessor.""",
        """\
FITTING = ["n_regs", "programs_per_multiprocessor", "limiter", "occupancy"]

widths = occupancy_lab.sweep(
    [512, 2048, 8192, 16384], kernel="softmax_row", gpu=GPU, num_warps=8, num_stages=1
)
widths[["cols", "BLOCK_SIZE", *FITTING]]""",
    ),
    (
        """\
## Why is BLOCK_SIZE a power of two?

Triton divides a block among warps, threads and registers, each a power of two, so `tl.arange`,
which numbers the elements of the block, takes nothing else. Ask for a block of exactly a row, and
this is the answer.""",
        """\
try:
    occupancy_lab.explain(COLS, gpu=GPU, block_size=COLS)
except occupancy_lab.InputError as error:
    refusal = str(error)
refusal""",
    ),
    (
        """\
So the block is the next power of two, and a mask switches off the lanes past the end of the row.

## What does the mask cost?

Masked lanes move no memory, but they have registers and take part in every instruction. The first
columns past a power of two double the block and can halve the occupancy. As long as memory stays
busy with the programs that are left, that costs little; when it does not, GB/s fall until the row
has grown into its block.""",
        """\
WARPS = 8

by_row = planned[(planned["kernel"] == "softmax_row") & (planned["num_warps"] == WARPS)]
masked = by_row.assign(
    masked=1 - by_row["cols"] / by_row["BLOCK_SIZE"],
    gbs=2 * 4 * ROWS * by_row["cols"] / by_row["us"] / 1e3,
)
masked.set_index("cols").loc[
    [4096, 4224, 6144, 8192, 8320, 12288],
    ["BLOCK_SIZE", "masked", "n_regs", "occupancy", "us", "gbs"],
]""",
    ),
    (
        """\
Columns that do not fill whole wide loads have a second price: rows start, and the mask ends, in the
middle of one, so each thread loads element by element. `load_bytes` is the widest load of a thread;
a few columns of padding can buy wide ones.""",
        """\
aligned = occupancy_lab.sweep([COLS, 784], gpu=GPU, num_warps=4, num_stages=1)
aligned[["cols", "BLOCK_SIZE", "load_bytes", "store_bytes", "loop_instructions", *FITTING]]""",
    ),
    (
        """\
## What does num_warps do?

It says how many threads share the row. With more of them each mostly needs fewer registers; but the
maximum and the sum must then be brought together across warps, through shared memory, with everyone
waiting. Here the fastest lies in between, and the same occupancy is not the same time.""",
        """\
here = planned[planned["cols"] == COLS]
by_warps = here[(here["kernel"] == "softmax") & (here["num_stages"] == 1)].set_index("num_warps")
by_warps[["n_regs", "barrier_waits", "programs_per_multiprocessor", "occupancy", "us"]]""",
    ),
    (
        """\
## What does num_stages do?

A program that takes one row after another can have the next rows on their way while it works.
On this GPU they wait in shared memory, one buffer for each row in flight, and keeping track of them
takes registers too.""",
        """occupancy_lab.compare(COLS, gpu=GPU, num_stages=(1, 2, 4))""",
    ),
    (
        """\
Where many programs are resident, they already hide each other's waiting, and stages only add
instructions. Where few are, as with many warps per program, enough stages help. Recorded
microseconds by num_stages, down, and num_warps, across:""",
        """\
loops = here[here["kernel"] == "softmax"]
by_stages = loops.pivot_table(index="num_stages", columns="num_warps", values="us")
by_stages""",
    ),
    (
        """\
## Why num_programs?

One way to launch is a program for every row. The other, which stages need, is persistent: as many
programs as the GPU holds at once, each of which loops over rows. How many it holds is the smallest
of several limits, and each limit rounds in the hardware's own way: see the launch and the limits in
this explanation.""",
        """occupancy_lab.explain(COLS, gpu=GPU, num_warps=16, num_stages=1)""",
    ),
    (
        """\
The formula of Triton's tutorial leaves out that rounding and can launch more programs than fit;
the surplus begins only when others have finished, with all of its rows still to do. Some launches
were recorded with both numbers of programs: this is how much longer the tutorial's took, as a
share, by num_warps.""",
        """\
LAUNCH = ["cols", "num_warps", "num_stages"]
surplus = latest_launches(launches.query("kernel == 'softmax' and launched > num_programs"))
fitting = planned[planned["kernel"] == "softmax"]
both = fitting.merge(surplus, on=LAUNCH, suffixes=("", "_tutorial"))
cost = both.assign(longer=both["us_tutorial"] / both["us"] - 1).groupby("num_warps")["longer"]
cost.describe()[["count", "min", "50%", "max"]]""",
    ),
    (
        """\
Is a persistent launch then the fastest? Not by itself: the GPU hands out single rows well. These
are the fastest recorded of each kernel, in microseconds, by columns: `softmax` is persistent,
`softmax_row` has a program for every row.""",
        """\
fastest = planned.pivot_table(index="cols", columns="kernel", values="us", aggfunc="min")
fastest.loc[WIDTHS]""",
    ),
    (
        """\
## Why is AMD different?

The source is the same, the machine is not: another number of threads in a wave, other register
files, other limits, and stages that wait elsewhere. Each difference that matters gets a sentence
with its arithmetic.""",
        """occupancy_lab.compare(COLS, gpu=[GPU, "mi300x"])""",
    ),
    (
        """\
## So what should be launched?

Occupancy says how many programs wait together, not how long they take. `tune` predicts the time of
each configuration from what was compiled, says what bounds it, and ranks them.""",
        """\
tuning = occupancy_lab.tune(COLS, gpu=GPU, num_warps=(2, 4, 8), num_stages=(1, 2))
tuning""",
    ),
    (
        """\
Beside them, the recorded times of the same launches, compiled with the Triton that the first table
names. Where yours lets another number of programs fit, that is another launch, and has none.

From here, `occupancy-lab explain` says all of this of your own kernel and GPU, `occupancy-lab
evaluate` holds every prediction against every recorded time, and on a machine with a GPU
`occupancy-lab measure` and `occupancy-lab tune --measure` time it.""",
        """\
CONFIG = ["kernel", "BLOCK_SIZE", "num_warps", "num_stages"]
beside = tuning.table[[*CONFIG, "predicted_us", "bound", "recorded_us"]].dropna()
beside.assign(off=beside["predicted_us"] / beside["recorded_us"] - 1)""",
    ),
)
"""The markdown of each step, and the code below it."""


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell with *names* and leave its own there; return what it shows, its last line."""
    *statements, last = ast.parse(source).body
    assert isinstance(last, ast.Expr)  # noqa: S101 - every cell above ends in what it shows
    exec(compile(ast.Module(statements, []), "cell", "exec"), names)  # noqa: S102 - a cell is code
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307 - as above


def results() -> tuple[list[Any], dict[str, Any]]:
    """Return what the cells show, run from the top, and the names that they leave."""
    names: dict[str, Any] = {}
    return [run(code, names) for _, code in STEPS], names


def output(shown: Any) -> dict[str, Any]:
    """Return what a notebook keeps of a cell that shows *shown*, without the number of the run."""
    forms = {"text/html": "_repr_html_", "text/markdown": "_repr_markdown_"}
    found = {form: getattr(shown, name)() for form, name in forms.items() if hasattr(shown, name)}
    if "text/markdown" not in found:
        found["text/plain"] = repr(shown)
    return {
        "data": {form: text.splitlines(keepends=True) for form, text in found.items()},
        "execution_count": None,
        "metadata": {},
        "output_type": "execute_result",
    }


def notebook(shown: list[Any]) -> str:
    """Return the notebook whose cells show *shown*, as the text of its file.

    https://nbformat.readthedocs.io/en/latest/format_description.html
    """
    cells: list[dict[str, Any]] = []
    for (text, code), result in zip(STEPS, shown, strict=True):
        ran = {"execution_count": None, "outputs": [output(result)]}
        for kind, source, outputs in (("markdown", text, {}), ("code", code, ran)):
            cells.append(
                {
                    "cell_type": kind,
                    "id": f"cell-{len(cells)}",
                    "metadata": {},
                    **outputs,
                    "source": source.splitlines(keepends=True),
                }
            )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": cells,
        "metadata": {
            "kernelspec": kernel,
            "language_info": {"name": "python"},
            "made_with": made_with(),
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def made_with() -> dict[str, str]:
    """Return the versions that what the cells show depends on."""
    return {"pandas": pd.__version__, "triton": triton.__version__}


if __name__ == "__main__":
    # With nothing compiled before and no calibration, as at a newcomer's.
    with tempfile.TemporaryDirectory() as store, mock.patch.dict(os.environ, {STORE: store}):
        NOTEBOOK.write_text(notebook(results()[0]), encoding="utf-8")
