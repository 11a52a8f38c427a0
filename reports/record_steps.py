"""Compares dry traces of training steps with real ones, and their lost time with Nsight Compute.

`python reports/record_steps.py --output FOLDER --gpu h100` runs each of PROGRAMS under
`occupancy-lab trace` on the NVIDIA GPU at hand, dry for the same GPU, and once under Nsight
Compute. It writes steps-<gpu>.csv with a row for each kernel of a program: the launches in both
traces, the measured and the predicted total time, the least time by `trace`, and the time and the
"speed of light" by Nsight Compute: the share of its peak at which the busier of the multiprocessors
and the memory works. `--predict h100,h200` runs the recorded programs dry again, without a GPU, and
renews the predictions in the tables in data/.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import record_trace
from record_files import DATA, rows_of, run_logged, write_rows
from work_ncu import BUSIEST, OPTIONS, SHARES, SPEED_OF_LIGHT, busiest, read_counts

from occupancy_lab.measuring.ncu import find_ncu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

STEPS = 12
FIRST = 5
DRY_SECONDS = 900.0
"""The limit of a dry run that is made again."""
COLUMNS = (
    *("program", "kernel", "configurations", "launches", "dry_launches", "measured_us"),
    *("predicted_us", "predicted_low_us", "predicted_high_us", "least_us", "dry_least_us"),
    *("busiest", "busiest_us", "ncu_us", "ncu_speed_of_light", "ncu_busiest"),
)
TIMES = ("predicted_us", "predicted_low_us", "predicted_high_us")
DURATION = "gpu__time_duration.sum"
SHORT_US = 10.0
"""Shorter kernels are hardly bound by a unit."""


def llama() -> Callable[[], Any]:
    """Return a training step of two layers of a Llama of transformers with Liger's kernels."""
    import torch
    import transformers
    from liger_kernel.transformers import apply_liger_kernel_to_llama

    apply_liger_kernel_to_llama()
    config = transformers.LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=2,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=32000,
    )
    model = transformers.LlamaForCausalLM(config).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, 32000, (8, 1024), device="cuda")

    def step() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def linear_attention(name: str) -> Callable[[], Any]:
    """Return a step through a layer of flash-linear-attention, forward and backward."""
    import fla.layers
    import torch

    layer = getattr(fla.layers, name)(hidden_size=1024, num_heads=8).cuda().bfloat16()
    x = torch.randn(4, 2048, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def step() -> None:
        output = layer(x)
        (output[0] if isinstance(output, tuple) else output).sum().backward()

    return step


PROGRAMS: dict[str, Callable[[], Callable[[], Any]]] = {
    "llama": llama,
    "transformer": record_trace.PROGRAMS["transformer"].made,
    "compiled": record_trace.PROGRAMS["compiled"].made,
    "liger": record_trace.PROGRAMS["liger"].made,
    "autotuned": record_trace.PROGRAMS["autotuned"].made,
    "GatedLinearAttention": partial(linear_attention, "GatedLinearAttention"),
    "DeltaNet": partial(linear_attention, "DeltaNet"),
}


def run_program(name: str, steps: int, *, profiled: bool) -> None:
    """Run *steps* of a program; the profiler runs during the last one if *profiled*."""
    import torch

    step = PROGRAMS[name]()
    for number in range(steps):
        if profiled and number == steps - 1:
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStart()
        step()
    torch.cuda.synchronize()


def run_mode(folder: Path, name: str, mode: str, gpu: str, until: float) -> None:
    """Run a program in a mode: trace, dry or ncu; print why it failed."""
    steps = 3 if mode == "ncu" else STEPS
    own = [sys.executable, __file__, "--program", name, "--steps", str(steps)]
    lab = [sys.executable, "-m", "occupancy_lab", "trace", "--json"]
    lab += ["--output", str(folder / f"{name}-{mode}.json")]
    environment = {}
    if mode == "trace":
        words = [*lab, "--", *own]
    elif mode == "dry":
        words = [*lab, "--dry-run", "--gpu", gpu, "--timeout", "400", "--", *own]
        environment["CUDA_VISIBLE_DEVICES"] = ""
    else:
        words = [str(find_ncu() or "ncu"), *OPTIONS, "--metrics", ",".join((*SHARES, DURATION))]
        kernels = "|".join(kernels_of(folder / f"{name}-trace.json"))
        words += ["--kernel-name", f"regex:^({kernels})$", "--launch-count", "80"]
        words += [*own, "--profiled"]
    why = run_logged(words, folder / f"{name}-{mode}.log", until, **environment)
    if why:
        print(f"{name} {mode}: {why}", flush=True)


def made_rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a program."""
    traced, dry = (kernels_of(folder / f"{name}-{mode}.json") for mode in ("trace", "dry"))
    counted = counts_of(folder / f"{name}-ncu.log")
    for kernel in dict.fromkeys([*traced, *dry]):
        real, made = traced.get(kernel, {}), dry.get(kernel, {})
        us, share, unit = counted.get(kernel, (None, None, None))
        yield {
            "program": name,
            "kernel": kernel,
            "configurations": real.get("configurations"),
            "launches": real.get("launches"),
            "measured_us": real.get("total_us"),
            **predicted(made),
            "least_us": real.get("least_us"),
            "ncu_us": us,
            "ncu_speed_of_light": share,
            "ncu_busiest": unit,
        }


def kernels_of(path: Path) -> dict[str, dict[str, Any]]:
    """Return the sums over the launches of each kernel in what `trace --json` wrote."""
    rows = json.loads(path.read_text("utf-8"))["rows"] if path.exists() else []
    found: dict[str, dict[str, Any]] = collections.defaultdict(dict)
    for row in rows:
        if row.get("expected") is False:
            continue
        launches = row["launches"]
        one = found[row["kernel"]]
        one["configurations"] = one.get("configurations", 0) + 1
        one["launches"] = one.get("launches", 0) + launches
        each = {name: row[name] for name in (*TIMES, "busiest_us")}
        each["least_us"] = row["speed_of_light_us"]
        sums = {name: us * launches for name, us in each.items() if us is not None}
        if row["total_us"] is not None:
            sums["total_us"] = row["total_us"]
        for column, value in sums.items():
            one[column] = one.get(column, 0.0) + value
        units = one.setdefault("units", collections.Counter())
        units[row["busiest"]] += sums.get("busiest_us", 0.0)
        one["busiest"] = max(units, key=units.__getitem__)
    return found


def predict_again(folder: Path, gpu: str) -> None:
    """Renew the predictions in the recorded rows of *gpu* by dry runs that write into *folder*."""
    path = DATA / f"steps-{gpu}.csv"
    rows = rows_of(path)
    for name in dict.fromkeys(row["program"] for row in rows):
        run_mode(folder, name, "dry", gpu, time.time() + DRY_SECONDS)
        made = kernels_of(folder / f"{name}-dry.json")
        for row in rows:
            if row["program"] == name and row["kernel"] in made:
                row.update(predicted(made[row["kernel"]]))
    write_rows(path, COLUMNS, rows)


def predict_each(again: Callable[[Path, str], None], gpus: str) -> None:
    """Call *again* for each of *gpus*, with a temporary folder."""
    for gpu in gpus.split(","):
        with tempfile.TemporaryDirectory() as folder:
            again(Path(folder), gpu)


def predicted(made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a dry run's sums."""
    return {
        "dry_launches": made.get("launches"),
        **{name: made.get(name) for name in (*TIMES, "busiest", "busiest_us")},
        "dry_least_us": made.get("least_us"),
    }


def counts_of(path: Path) -> dict[str, tuple[float, float, str | None]]:
    """Return the median time and speed of light that Nsight Compute counted for each kernel.

    The third value is the unit of its busiest counter, if those were counted.
    """
    found: dict[str, list[Mapping[str, Any]]] = collections.defaultdict(list)
    for row in read_counts(path.read_text("utf-8", errors="replace")) if path.exists() else []:
        found[re.split(r"[(<]", row["kernel"])[0].strip()].append(row["counts"])
    return {
        kernel: (
            statistics.median(one.get(DURATION, 0.0) / 1e3 for one in counts),
            statistics.median(
                max(one.get(share, 0.0) for share in SPEED_OF_LIGHT) / 100 for one in counts
            ),
            busiest(counts[len(counts) // 2]).get(BUSIEST[0]),
        )
        for kernel, counts in found.items()
    }


def table(folder: Path, gpus: Sequence[str]) -> str:
    """Return the table of docs/trace.md: the sums over the kernels that have both times."""
    lines = [
        (
            "| | kernels | launches | dry run | measured ms | predicted ms | error | first five |"
            " busy | least | unit |"
        ),
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for gpu in gpus:
        programs: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
        for row in rows_of(folder / f"steps-{gpu}.csv"):
            programs[row["program"]].append(row)
        for name, rows in programs.items():
            both = [row for row in rows if row["measured_us"] and row["predicted_us"]]
            measured, predicted = (
                sum(float(row[f"{kind}_us"]) for row in both) for kind in ("measured", "predicted")
            )
            launches, dry = (
                sum(int(row[column] or 0) for row in rows)
                for column in ("launches", "dry_launches")
            )
            first = [
                {id(row) for row in sorted(both, key=lambda row: -float(row[column]))[:FIRST]}
                for column in ("measured_us", "predicted_us")
            ]
            cells = (
                *(f"{gpu.upper()}: {name}", len(both), launches, dry, f"{measured / 1e3:.1f}"),
                *(f"{predicted / 1e3:.1f}", f"{predicted / measured - 1:+.1%}".replace("%", " %")),
                len(first[0] & first[1]) if len(both) >= FIRST else "-",
                *(points_off(rows, name) for name in ("busiest_us", "dry_least_us")),
                units_alike(rows),
            )
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def points_off(rows: Sequence[Mapping[str, str]], name: str) -> str:
    """Return by how many percentage points predicted and counted shares differ at the median."""
    names = (name, "measured_us", "ncu_speed_of_light")
    known = ([float(row[name]) for name in names] for row in rows if all(map(row.get, names)))
    points = [100 * abs(us / measured - counted) for us, measured, counted in known]
    return f"{statistics.median(points):.1f}" if points else "-"


def units_alike(rows: Sequence[Mapping[str, str]]) -> str:
    """Return in how many longer kernels the busiest unit is the same as Nsight Compute's."""
    units = [
        row["busiest"] == row["ncu_busiest"]
        for row in rows
        if row["busiest"] and row["ncu_busiest"] and float(row["ncu_us"]) > SHORT_US
    ]
    return f"{sum(units)} of {len(units)}" if units else "-"


def main() -> None:
    """Run all programs in turn, with the dry runs beside them, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--modes", default="dry,trace,ncu")
    parser.add_argument("--predict", help="predict the recorded steps of these GPUs again, and end")
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--profiled", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=STEPS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.program:
        run_program(asked.program, asked.steps, profiled=asked.profiled)
        return
    if asked.predict:
        predict_each(predict_again, asked.predict)
        return
    asked.output.mkdir(parents=True, exist_ok=True)
    names, modes = asked.programs.split(","), asked.modes.split(",")
    run = partial(run_mode, asked.output, gpu=asked.gpu, until=time.time() + asked.seconds)
    with ThreadPoolExecutor(len(names)) as beside:
        if "dry" in modes:
            for name in names:
                beside.submit(run, name, "dry")
        for mode in [one for one in modes if one != "dry"]:
            for name in names:
                run(name, mode)
    rows = (row for name in names for row in made_rows(asked.output, name))
    write_rows(asked.output / f"steps-{asked.gpu}.csv", COLUMNS, rows)
    print(table(asked.output, [asked.gpu]))


if __name__ == "__main__":
    main()
