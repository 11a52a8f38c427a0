"""Fills the parts of README.md and of docs/ that quote the tool's output.

`python reports/readme.py` remakes them. A part lies between two comments that name it. The parts in
`COMPILED` depend on the installed Triton; the others are made of the files in data/ and in tests/.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import textwrap
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import compare_time
import dry_programs
import mi300x_launches
import numpy as np
import other_models
import record_actions
import record_steps
import record_tunes
from record_files import read_table

from occupancy_lab import Config, Problem, explain, load_kernel
from occupancy_lab.calibrating.units import Units
from occupancy_lab.compiling import Store, triton_version
from occupancy_lab.compiling.store import CACHE_VARIABLE
from occupancy_lab.evaluating import evaluate
from occupancy_lab.evaluating.evaluation import Evaluation, counted_rows
from occupancy_lab.evaluating.score import METRICS
from occupancy_lab.gpus import CudaArchitecture, architectures
from occupancy_lab.operators.softmax import FORWARD
from occupancy_lab.reporting.source import of_problem
from occupancy_lab.sweeping.recorded import (
    OTHER_SOFTMAXES,
    latest_launches,
    read_rows,
    recorded_table,
)
from occupancy_lab.text.words import byte_words, listed, microseconds
from occupancy_lab.values import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd

    from occupancy_lab.evaluating.evaluation import Result

ROOT = Path(__file__).parent.parent
DATA, DOCS, EXAMPLES = ROOT / "reports" / "data", ROOT / "docs", ROOT / "examples"
CUDA_TEST = ROOT / "tests" / "occupancy" / "test_cuda.py"
LLVM = ROOT / "tests" / "occupancy" / "recorded" / "llvm_occupancy.csv"
CUDA = [one for one in architectures().values() if isinstance(one, CudaArchitecture)]
GPUS = ("h100", "h200")
KNOBS = ("BLOCK_SIZE", "num_warps", "num_stages")
SPILLING = ("spills", "yes")
"""The launches of an evaluation that spill registers."""
DRY = {
    "driver_n_regs": "sm_90_n_regs",
    "driver_local_bytes": "sm_90_local_bytes",
    "driver_static_shared": "sm_90_static_shared",
    "shared": "sm_90_shared",
    "num_warps": "sm_90_num_warps",
}
"""The columns of the real launch, and those of the dry run that must be equal."""
PROGRAMS = "sm_90_programs_per_multiprocessor"
WIDTH = 100
"""The width of a page's lines."""
COMMAND = "occupancy-lab explain --cols 781"
TUTORIAL = Config(1024, 8, 4)
"""The configuration that `COMMAND` launches on an H100, like the tutorial."""
WIDE, SHORT = Problem(32768, 4096), Problem(4096, 1024)
"""The problems of the lessons: a matrix so large that moving it takes all the time, and short
rows."""


def console() -> str:
    """Return the output of `COMMAND`."""
    return _shown(COMMAND)


LAYER_NORM = """\
occupancy-lab explain examples/layer_norm.py:layer_norm --gpu h100,mi300x \\
    --signature "X=*fp16, Y=*fp16, W=*fp16, B=*fp16, Mean=*fp32, Rstd=*fp32,
                 stride=2048, N=2048, eps=1e-5" \\
    --constexpr BLOCK_SIZE=2048 --num-warps 8 --grid 4096 \\
    --bytes-read "4096 * N * 2" --bytes-written "4096 * N * 2\""""
MATMUL = """\
occupancy-lab sweep examples/matmul.py:tuned_matmul --gpu h100,mi300x \\
    --signature "*fp16,*fp16,*fp16,4096,4096,4096,4096,4096,4096" \\
    --grid "cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)\""""
TUNED = """\
occupancy-lab tune examples/matmul.py:shapes --gpu h100,b200,mi300x --output tuned.json"""
SCRIPT = "occupancy-lab explain examples/matmul.py:main --gpu b200"
CACHED = "sweep --cols 12672 --gpu h100,mi300x --num-warps 4,8,16,32 --num-stages 1,2 --quiet"
"""The command that fills the scanned cache."""
SCAN = "occupancy-lab scan cache"
MATRIX = "occupancy-lab explain --kernel examples/rms_norm.py --cols 2048 --gpu h100"


def layer_norm() -> str:
    """Return the whole explanation of a layer norm."""
    return _shown(LAYER_NORM)


def matmul() -> str:
    """Return the table of a tuned matrix multiplication."""
    return _shown(MATMUL, columns="100")


def tuned() -> str:
    """Return the choices for a matrix multiplication in each size."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(EXAMPLES)
        return _shown(TUNED, columns="100", folder=Path(folder))


def script() -> str:
    """Return the explanation of the launches of a script."""
    return _shown(SCRIPT, columns="100")


def dry_run() -> str:
    """Return a program with a launch line, and the output of its dry run."""
    done = _run([sys.executable, EXAMPLES / "dry_run.py"], ROOT)
    return f"{_file('dry_run.py')}\n\n```text\n{done.rstrip()}\n```"


def rms_norm() -> str:
    """Return a file with the simplest KERNEL."""
    return _file("rms_norm.py")


def matrix() -> str:
    """Return the explanation of the simplest KERNEL, up to the table of its launch."""
    return _shown(MATRIX, until="The limits")


def scan() -> str:
    """Return the scan of a cache with the configurations of a sweep."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        printed(CACHED.split(), ROOT, **{CACHE_VARIABLE: folder})
        Path(str(store.triton_cache)).rename(Path(folder) / "cache")
        return _shown(SCAN, folder=Path(folder))


def _file(name: str) -> str:
    return f"```python\n{(EXAMPLES / name).read_text(encoding='utf-8').rstrip()}\n```"


def _shown(command: str, until: str = "", columns: str = "80", folder: Path = ROOT) -> str:
    """Return *command* and its output on *columns* columns, up to the line with *until*."""
    words = shlex.split(command.replace("\\\n", ""))[1:]
    shown = printed(words, folder, COLUMNS=columns).rstrip()
    if until:
        lines = shown.splitlines()
        end = next(place for place, line in enumerate(lines) if until in line)
        shown = "\n".join(lines[:end]).rstrip() + "\n ..."
    return f"```console\n$ {command}\n{shown}\n```"


def printed(words: Sequence[str], folder: Path, **variables: str) -> str:
    """Return what the tool prints in *folder*, without a GPU."""
    return _run([sys.executable, "-m", "occupancy_lab", *words], folder, **variables)


def _run(command: Sequence[str | Path], folder: Path, **variables: str) -> str:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""} | variables
    done = subprocess.run(  # noqa: S603 - this Python, and commands and files of this repository
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def versions() -> str:
    """Compare the kernel that `console` shows with that of another Triton."""
    h100 = _launches("h100")
    (then,) = h100[_is(h100, "softmax", Problem(4096, 781), TUTORIAL)].to_dict("records")
    (now,) = explain(cols=781, gpu="h100").records
    return _paragraph(
        f"**The compiler decides too**: {now.resources.n_regs} registers and"
        f" {now.occupancy.programs_per_multiprocessor} programs per SM of the H100 are Triton"
        f" {triton_version()}'s. The kernel that Triton {then['triton_version']} made of the same"
        f" source takes {then['n_regs']:.0f} registers per thread, and"
        f" {then['programs_per_multiprocessor']:.0f} programs fit."
        f" `occupancy-lab compare --cols 781 --gpu h100 --triton"
        f" {then['triton_version']},{triton_version()}` compares both."
    )


def unseen() -> str:
    """State the errors on kernels of packages that nobody had looked at, the last set apart."""
    rows = read_table(DATA / "unseen-h200.csv")
    last = max(int(one["set"]) for one in rows)
    long, timed, errors = _unseen(rows)
    newest = [one for one in rows if int(one["set"]) == last]
    those, with_time, of_newest = _unseen(newest)
    dates = [one["date"] for one in rows]
    packages = len({one["package"] for one in rows})
    errors_of_all = _paragraph(
        f"The kernels above are public, and the model grew with them. From {min(dates)} to"
        f" {max(dates)}, {long} launches above 10 us of {packages} further packages, such as vLLM,"
        " SGLang, Mamba and Transformer Engine, were predicted and then timed on an H200"
        f" ([table](../reports/data/unseen-h200.csv), as predicted then). {timed} had a predicted"
        f" time: {errors}. They came in {last} sets; the model learned from each of the first"
        f" eight before the next was predicted. Of the last set, {those} launches of"
        f" {len({one['package'] for one in newest})} packages, {with_time} had a time:"
        f" {of_newest}. Most launches without a time depend on the data. The largest errors were"
        " those of tables that the L1 cache keeps, of loops, masks and addresses that depend on the"
        " data, of hash tables and counts of equal labels, and of kernels whose programs use a few"
        " bytes of many cache lines."
    )
    return f"{errors_of_all}\n\n{_paragraph(_followed_unseen(rows))}"


def measured_launch() -> str:
    """Return the first lines that `explain --measure` printed of a launch on an H200."""
    text = (DATA / "measured-launch-h200.txt").read_text("utf-8")
    return f"```console\n{text}...\n```"


def _followed_unseen(rows: Sequence[Mapping[str, str]]) -> str:
    """State what the changes that `explain` named first brought."""
    sets = len({one["set"] for one in rows if one["change"]})
    columns = ("us", "change_us", "change_predicted_low_us", "change_predicted_high_us")
    tried = [[float(one[name]) for name in columns] for one in rows if one["change"]]
    faster = sum(after < before for before, after, *_ in tried)
    inside = sum(low <= after <= high for _, after, low, high in tried)
    gain = statistics.geometric_mean(before / after for before, after, *_ in tried)
    most = max(before / after for before, after, *_ in tried)
    return (
        f"For {len(tried)} launches of the last {sets} sets `explain` named a change to make them"
        f" faster, before any was timed. All were tried: {faster} were faster, by a factor of"
        f" {gain:.2f} in the geometric mean and {most:.0f} at most, and {inside} took a time in the"
        " range of the change."
    )


def _unseen(rows: Iterable[Mapping[str, str]]) -> tuple[int, int, str]:
    """Return how many launches are above 10 us, how many of them have a time, and its errors."""
    long = [one for one in rows if float(one["us"]) > 10]  # noqa: PLR2004 - us, as above
    timed = [one for one in long if one["predicted_us"]]
    errors = [abs(float(one["predicted_us"]) / float(one["us"]) - 1) for one in timed]
    inside = [
        float(one["predicted_low_us"]) <= float(one["us"]) <= float(one["predicted_high_us"])
        for one in timed
    ]
    words = (
        f"the median error is {np.median(errors):.0%}, the 90th-percentile error"
        f" {np.quantile(errors, 0.9):.0%}, and {np.mean(inside):.0%} took a time in the range"
    )
    return len(long), len(timed), words


def lessons() -> str:
    """State what the times measured on an H200 teach."""
    table = latest_launches(_launches("h200"))
    first = table.iloc[0]
    taken = (
        f"Measured on an {first['device']}, {first['date']}, torch {first['torch']}, Triton"
        f" {first['triton']}, float32, L2 cache flushed. [The H200's report](../reports/h200.md)"
        " says what occupancy and a wrong num_programs cost."
    )
    items = (_fusing(table), _rows(table), _stages(table), _reached(table))
    return "\n".join((_paragraph(taken), "", *map(_item, items)))


def _fusing(table: pd.DataFrame) -> str:
    problem = Problem(4096, 781)
    naive, fused = (load_kernel(name).traffic(problem) for name in ("softmax_naive", "softmax_row"))
    fastest = counted_rows(table[of_problem(table, problem)])["us"].min()
    copied = _provider("copy", problem)
    return (
        f"**Fusing comes first.** The naive softmax is five torch operations, and each goes through"
        f" memory. On {_size(problem)} they read {byte_words(naive.read_bytes)} and write"
        f" {byte_words(naive.written_bytes)}, {naive.total_bytes / fused.total_bytes:.1f} times"
        f" what a fused kernel or a plain copy moves. They take"
        f" {microseconds(_provider('naive', problem))}, the fastest fused launch"
        f" {microseconds(fastest)} and the copy {microseconds(copied)}"
        f" ({fused.total_bytes / copied / 1e3:.0f} GB/s)."
    )


LARGE_BYTES = 16 * 2**20
"""The size of a matrix whose copy takes longer than the launch overhead."""


def _reached(table: pd.DataFrame) -> str:
    """State how close the fastest launch of each large matrix comes to a copy."""
    shape = ["rows", "cols", "dtype"]
    ours = counted_rows(table[table["kernel"].isin(FORWARD)]).groupby(shape)["us"].min()
    timed = read_rows(DATA / "providers-h200.csv").pivot_table("us", shape, "provider")
    both = timed.join(ours.astype(float), how="inner").reset_index()
    size = both["rows"] * both["cols"] * both["dtype"].map(ITEM_BYTES)
    share = (both["copy"] / both["us"])[size >= LARGE_BYTES]
    rivals = {
        title: (both[name] / both["us"]).dropna()
        for name, title in OTHER_SOFTMAXES.items()
        if name in both
    }
    faster = [
        f"{title} on {(found < 1.0).sum()} of {len(found)}"
        + (f" (by {1 - found.min():.1%} at most)" if found.min() < 1.0 else "")
        for title, found in rivals.items()
    ]
    mean = np.exp(np.log(share).mean())
    return (
        "**A softmax can be as fast as a copy.** `occupancy_lab.softmax` chooses by prediction from"
        f" several kernels. On {len(share)} matrices of 16 MiB and more, their fastest recorded"
        f" launch reaches {mean:.2f} of a copy's speed (geometric mean; from {share.min():.2f} to"
        f" {share.max():.2f}). The lowest are rows of 16-bit elements, of odd length or shared by"
        f" several programs. Other softmaxes are faster on some matrices: {', '.join(faster)}."
    )


def _rows(table: pd.DataFrame) -> str:
    wide = counted_rows(table[of_problem(table, WIDE) & (table["kernel"] == "softmax_row")])
    row, loop = (
        _us(table, kernel, SHORT, Config(1024, 32, num_stages))
        for kernel, num_stages in (("softmax_row", 1), ("softmax", 3))
    )
    return (
        f"**One program per row is often better.** At {_size(WIDE)} it takes"
        f" {microseconds(wide['us'].min())} and a plain copy"
        f" {microseconds(_provider('copy', WIDE))}. Device memory delivers less to programs that"
        " stride over the rows, each at its own pace. One program per row is not always better: at"
        f" {_size(SHORT)} with 32 warps it takes {microseconds(row)}, and the loop over rows with 3"
        f" stages {microseconds(loop)}."
    )


def _stages(table: pd.DataFrame) -> str:
    few, many = (
        [_us(table, "softmax", SHORT, Config(1024, num_warps, stage)) for stage in (1, 2, 3, 4)]
        for num_warps in (32, 4)
    )
    return (
        "**num_stages 2 hides nothing.** The copy of a row starts at the end of an iteration, and"
        " the next iteration waits for it at its beginning. 3 or more stages help when few programs"
        f" are resident: with 1 to 4 stages, {_size(SHORT)} with 32 warps takes"
        f" {listed([f'{us:.1f}' for us in few])} us."
        f" With 4 warps and 16 programs per SM it takes {min(many):.1f} to {max(many):.1f} us"
        " whatever the number of stages."
    )


def units() -> str:
    """Return the properties of both GPUs' units, and the rate of each dtype's fastest product."""
    found = [
        json.loads((DATA / f"units-{gpu}.json").read_text(encoding="utf-8"))["units"]
        for gpu in GPUS
    ]
    lines = ["| | H100 | H200 | unit | |", "| --- | --: | --: | --- | --- |"]
    for field in dataclasses.fields(Units):
        if field.name != "products":
            values = " | ".join(f"{one[field.name]:.4g}" for one in found)
            unit, meaning = field.metadata["unit"], field.metadata["meaning"]
            lines.append(f"| {field.name} | {values} | {unit} | {meaning} |")
    for dtype in dict.fromkeys(one["dtype"] for one in found[0]["products"]):
        rates = " | ".join(
            f"{max(each['tflops'] or 0.0 for each in some if each['dtype'] == dtype):.0f}"
            for some in (one["products"] for one in found)
        )
        lines.append(f"| {dtype} | {rates} | TFLOP/s | tensor cores, with the fastest tile |")
    return "\n".join(lines)


def reader() -> str:
    """Return the results of advice that three readers without knowledge of the lab followed."""
    heads = ("GPU", "kernel", "step", "predicted us", "measured us")
    lines = [f"| {' | '.join(heads)} |", "| --- | --- | --- | --: | --: |"]
    for gpu in GPUS:
        for row in read_table(DATA / f"reader-{gpu}.csv"):
            low, high = row["predicted_low_us"], row["predicted_high_us"]
            predicted = f"{row['predicted_us']} ({low} to {high})"
            said = f"{row['kernel']} | {row['step']} | {predicted} | {row['us']}"
            lines.append(f"| {gpu.upper()} | {said} |")
    return "\n".join(lines)


def any_kernel() -> str:
    """Return the errors of the predicted times of any kernel's launches, by their use."""
    rows = {gpu: compare_time.read(gpu) for gpu in GPUS}
    columns = ["launches", "median error", "90th percentile", "in the range"]
    heads = [f"{gpu.upper()}: {columns[0]} | {' | '.join(columns[1:])}" for gpu in rows]
    lines = [
        f"| above 10 us | {' | '.join(heads)} |",
        f"| --- |{' --: |' * len(columns) * len(rows)}",
    ]
    uses = {
        "tuning": "kernels that the constants were fitted to (on an H100)",
        "held out": "held out",
        "fresh": "fresh: kernels of libraries, recorded later",
    }
    kinds = {"memory": "no dots", "dots": "dots", "matmul": "matmul", "attention": "attention"}
    for use, words in uses.items():
        some = {gpu: [row for row in found if row.use == use] for gpu, found in rows.items()}
        lines.append(_errors_row(words, some))
        for kind, named in kinds.items() if use != "tuning" else ():
            of_kind = {gpu: [row for row in one if row.kind == kind] for gpu, one in some.items()}
            if min(map(len, of_kind.values())) >= 2 * compare_time.FIRST:
                lines.append(_errors_row(f"- {named}", of_kind))
        warm = {gpu: [row.warm for row in one] for gpu, one in some.items()}
        lines.append(_errors_row("- all, right after the same launch", warm))
    tried = {gpu: [row for row in found if row.use != "tuning"] for gpu, found in rows.items()}
    for dots, words in ((False, "no dots"), (True, "dots")):
        some = {
            gpu: [row for row in found if (row.kind != "memory") == dots]
            for gpu, found in tried.items()
        }
        named = f"held out and fresh, {words}"
        counted = {gpu: [row.counted for row in found] for gpu, found in some.items()}
        lines.append(_errors_row(f"{named}, binary not followed", counted))
        roofline = {gpu: [row.roofline for row in found] for gpu, found in some.items()}
        lines.append(_errors_row(f"{named}, the data sheet's roofline", roofline))
    profiled = {
        gpu: [row.profiled for row in found if row.profiled_us is not None]
        for gpu, found in rows.items()
    }
    lines.append(_errors_row("all, within a program", profiled))
    choices = map(_choices_sentence, rows, rows.values())
    return "\n".join([*lines, "", _warm_sentence(tried), *choices])


def _errors_row(words: str, rows: Mapping[str, Sequence[compare_time.Compared]]) -> str:
    cells = []
    for found in map(compare_time.errors, rows.values()):
        shares = [f"{one:.0%}" for one in (found.median, found.p90, found.inside)]
        cells += [str(found.launches), *shares[:2], shares[2] if found.inside else "-"]
    return f"| {words} | {' | '.join(cells)} |"


def _warm_sentence(rows: Mapping[str, Sequence[compare_time.Compared]]) -> str:
    found = []
    for gpu, some in rows.items():
        one = compare_time.errors(dataclasses.replace(row, us=row.warm_us) for row in some)
        both = f"median error {one.median:.0%}, 90th-percentile error {one.p90:.0%}"
        found.append(f"{both} on an {gpu.upper()}")
    return _paragraph(
        "A time that is predicted with an empty cache is a worse prediction of what held-out and"
        f" fresh kernels take right after the same launch: {'; '.join(found)}."
    )


def _choices_sentence(gpu: str, rows: Sequence[compare_time.Compared]) -> str:
    first, five = zip(*compare_time.first_choices(rows), strict=True)
    tried = compare_time.advised([row for row in rows if row.use != "tuning"])
    faster = sum(one.change < 0 for one in tried)
    inside = sum(one.advice.is_inside for one in tried)
    worst = max(one.change for one in tried)
    return _paragraph(
        f"On an {gpu.upper()}, {len(first)} problems have three configurations or more. The"
        " configuration that is predicted to be fastest takes on average"
        f" {np.mean(first):.1%} longer than the fastest one, {max(first):.1%} at worst; the best of"
        f" the first five takes {np.mean(five):.1%} longer. For {len(tried)} launches of kernels"
        " that no constant was fitted to, another configuration is predicted to be noticeably"
        f" faster. In {faster / len(tried):.0%} of these launches it is faster, at worst"
        f" {abs(worst):.1%} {'slower' if worst > 0 else 'faster'}, and in"
        f" {inside / len(tried):.0%} its time lies in the range."
    )


def checks() -> str:
    """State how each number was checked, and the errors of the predicted times."""
    drawn = re.search(r"POINTS_PER_ARCHITECTURE = ([0-9_]+)", CUDA_TEST.read_text(encoding="utf-8"))
    points = int(drawn[1]) * len(CUDA) if drawn else 0
    return "\n".join(
        (
            _item(
                "**Occupancy on NVIDIA**: against `cuda_occupancy.h`, NVIDIA's own header, which"
                f" the tests compile: no mismatch on {points / 1e6:.1f} million random points over"
                " every compute capability. And against the driver of an H200, for"
                f" [{_kernels_of(DATA / 'driver-h200.csv')}](../reports/data/driver-h200.csv):"
                " registers, local memory and programs per SM are equal, and the driver accepts"
                " cooperative launches of exactly the predicted number of programs and refuses one"
                " program more. `python reports/record_driver.py` records the same on your GPU."
            ),
            _item(
                "**Occupancy on AMD**: against LLVM's own `; Occupancy:` as far as that goes"
                f" (registers and waves), on {_kernels_of(LLVM)}, and against published hardware"
                " reports. No AMD GPU has confirmed it here."
            ),
            _launches_checked(),
            _item(
                "**Registers, local memory and shared memory**: against `cuobjdump`, LLVM's"
                " assembly and the driver."
            ),
            _times_checked(),
            _item(
                "**The lab's own kernels**: against torch in float64, in Triton's interpreter and"
                " on a GPU."
            ),
        )
    )


def _launches_checked() -> str:
    rows = read_table(DATA / "launches-h200.csv")
    alike = [row for row in rows if all(row[real] == row[dry] for real, dry in DRY.items())]
    fitting = [row for row in alike if row["driver_programs_per_multiprocessor"] != "0"]
    equal = [row for row in fitting if row[PROGRAMS] == row[f"driver_{PROGRAMS[6:]}"]]
    same = sum(row["cubin"] == row["sm_90_binary"] for row in rows)
    waves = {}
    for name in ("gfx942", "gfx1100"):
        explained = [row for row in rows if row[f"{name}_status"] == "explained"]
        agree = sum(
            row[f"{name}_waves_per_simd"] == row[f"{name}_llvm_occupancy"] for row in explained
        )
        waves[name] = f"{agree} of {len(explained)}"
    kernels = len({row["kernel"] for row in rows})
    return _item(
        f"**Any launch**: [{len(rows)} launches of {kernels} public"
        " kernels](../reports/data/launches-h200.csv) on an H200 against their dry runs. The"
        " kernels are those of Triton's tutorials, Liger and flash-linear-attention, and those that"
        " torch.compile generates. Registers, local memory, shared memory and warps are equal in"
        f" {len(alike)} launches, programs per SM in {len(equal)} of the {len(fitting)} that fit,"
        f" and every byte of the binary in {same}. Of the launches that compile for"
        f" {' and '.join(waves)} and fit, {' and '.join(waves.values())} have the waves per SIMD"
        " that LLVM reports."
    )


def _times_checked() -> str:
    held_out, benchmark = _result("h200", "held out"), _result("h200", "benchmark")
    other, drawn = _result("h100", "held out"), _result("h100", "fresh")
    shapes = _launches("h200").drop_duplicates(["rows", "cols", "dtype"])
    (spilling,) = (one.errors for one in held_out.groups if (one.by, one.value) == SPILLING)
    found = _item(
        "**Time**: against every configuration tried of the softmax kernels on"
        f" {len(shapes)} shapes, measured on an H200 with Triton {shapes['triton'].iloc[0]}."
        f" {held_out.shapes} of these shapes were drawn at random and held out before anything was"
        " measured on them. The fresh shapes were drawn and measured when the model was made. No"
        " constant was chosen by held-out or fresh shapes"
        " ([shapes.csv](../reports/data/shapes.csv)). `make evaluate` holds the predictions to"
        " both in CI:"
    )
    fresh = (_result("h200", "fresh"),) if "fresh" in set(_launches("h200")["use"]) else ()
    sentences = Evaluation((held_out, *fresh)).to_document().answer
    quoted = "\n  >\n".join(
        textwrap.fill(
            sentence, WIDTH, initial_indent="  > ", subsequent_indent="  > ", break_on_hyphens=False
        )
        for sentence in sentences
    )
    return f"{found}\n\n{quoted}\n\n" + textwrap.indent(
        _paragraph(
            "Launching the configuration with the highest occupancy instead loses"
            f" {held_out.scores[-1].mean_loss:.0%} on the held-out shapes. Launches that spill"
            f" registers are predicted worst (median error {spilling.median:.0%}). On the"
            f" tutorial's own benchmark the first choice loses {_written(benchmark, 'mean_loss')},"
            f" {_written(benchmark, 'worst_loss')} at worst. On an H100, recorded in the same way,"
            f" {other.launches} launches of the held-out shapes have a median error of"
            f" {_written(other, 'median')} and a 90th-percentile error of"
            f" {_written(other, 'p90')}; {drawn.launches} launches of the fresh shapes have"
            f" {_written(drawn, 'median')} and {_written(drawn, 'p90')}.",
            WIDTH - 2,
        ),
        "  ",
    )


COMPILED: Mapping[str, Callable[[], str]] = {
    "console": console,
    "versions": versions,
    "dry_run": dry_run,
    "layer_norm": layer_norm,
    "matmul": matmul,
    "tuned": tuned,
    "script": script,
    "matrix": matrix,
    "scan": scan,
}
"""The parts that depend on the installed Triton."""
SHOWN_WITH = "3.7.1"
"""The Triton version of the parts in `COMPILED`."""
PARTS: Mapping[str, Callable[[], str]] = {
    **COMPILED,
    "rms_norm": rms_norm,
    "lessons": lessons,
    "units": units,
    "checks": checks,
    "any_kernel": any_kernel,
    "unseen": unseen,
    "measured_launch": measured_launch,
    "reader": reader,
    "others": lambda: "\n".join(other_models.table()),
    "mi300x": lambda: "\n".join(mi300x_launches.table()),
    "tunes": partial(record_tunes.table, DATA, GPUS),
    "steps": partial(record_steps.table, DATA, GPUS),
    "actions": partial(record_actions.table, DATA, GPUS),
    "programs": lambda: dry_programs.table(read_table(DATA / "dry-programs.csv")),
}
"""Every part by its name in the comments."""
PAGES: Mapping[Path, tuple[str, ...]] = {
    ROOT / "README.md": ("console",),
    DOCS / "kernels.md": (
        "reader",
        "dry_run",
        "layer_norm",
        "matmul",
        "script",
        "rms_norm",
        "matrix",
    ),
    DOCS / "scan.md": ("scan",),
    DOCS / "sweep.md": ("versions",),
    DOCS / "trace.md": ("steps", "actions", "programs"),
    DOCS / "tuning.md": ("tuned", "tunes"),
    DOCS / "times.md": (
        "measured_launch",
        "units",
        "any_kernel",
        "unseen",
        "others",
        "mi300x",
        "lessons",
    ),
    DOCS / "how-it-works.md": ("checks",),
}
"""The parts of each page."""


def fill(text: str, name: str) -> str:
    """Return *text* with its part *name* renewed; raise ValueError if *text* has no such part."""
    start, end = f"<!-- {name}: python reports/readme.py -->\n", f"\n<!-- end of {name} -->"
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        msg = f"the page has no part {name}"
        raise ValueError(msg)
    return f"{before}{start}{PARTS[name]()}{end}{after}"


@cache
def _launches(gpu: str) -> pd.DataFrame:
    """Return the launches measured on *gpu*, the latest recording first."""
    table = recorded_table()
    return table[(table["gpu"] == gpu) & (table["measured"] == "measured")]


@cache
def _result(gpu: str, use: str) -> Result:
    table = _launches(gpu)
    (result,) = evaluate(table[table["use"] == use]).results
    return result


def _written(result: Result, name: str) -> str:
    return METRICS[name].write(result.score)


def _is(table: pd.DataFrame, kernel: str, problem: Problem, config: Config) -> pd.Series[bool]:
    same = of_problem(table, problem) & (table["kernel"] == kernel)
    for name, value in zip(KNOBS, dataclasses.astuple(config), strict=True):
        same &= table[name] == value
    return same


def _us(table: pd.DataFrame, kernel: str, problem: Problem, config: Config) -> float:
    """Return the latest time of a launch with as many programs as fit."""
    return float(counted_rows(table[_is(table, kernel, problem, config)])["us"].iloc[-1])


def _provider(name: str, problem: Problem) -> float:
    table = read_rows(DATA / "providers-h200.csv")
    return float(table[of_problem(table, problem) & (table["provider"] == name)]["us"].iloc[-1])


def _kernels_of(path: Path) -> str:
    """Return the number of kernels in a file of compiled kernels, and the Triton versions."""
    rows = read_table(path)
    return f"{len(rows)} kernels of Triton {listed(sorted({row['triton'] for row in rows}))}"


def _size(problem: Problem) -> str:
    return f"{problem.rows} x {problem.cols}"


def _paragraph(text: str, width: int = WIDTH) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False)


def _item(text: str) -> str:
    return f"- {textwrap.indent(_paragraph(text, WIDTH - 2), '  ').lstrip()}"


if __name__ == "__main__":
    for path, names in PAGES.items():
        page = path.read_text(encoding="utf-8")
        for part in names:
            page = fill(page, part)
        path.write_text(page, encoding="utf-8")
