"""Applies the changes that `occupancy-lab trace` names to library kernels, and times them.

`python reports/record_actions.py --output FOLDER --gpu h100` runs programs of record_steps.py under
`occupancy-lab trace` on the NVIDIA GPU at hand. For each kernel in PLACES, all of them Liger's, it
makes the change that the trace names in the function that launches the kernel, and runs the program
again. It writes actions-<gpu>.csv with the time that the trace predicted for the change, and the
measured times before and after it. `--predict h100,h200` runs the programs dry again, without a
GPU, and renews the predictions for these changes in the tables in data/.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from record_files import DATA, rows_of, run_logged, write_rows
from record_steps import DRY_SECONDS, PROGRAMS, STEPS, predict_each, run_mode, run_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PLACES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "_rms_norm_backward_kernel": (("rms_norm", "rms_norm_backward"),),
    "_layer_norm_backward_kernel": (("layer_norm", "layer_norm_backward"),),
    "liger_cross_entropy_kernel": (
        ("cross_entropy", "cross_entropy_forward"),
        ("fused_linear_cross_entropy", "fused_linear_cross_entropy_forward"),
    ),
}
"""The modules of liger_kernel.ops and the functions in them that launch each kernel."""
CHANGES = (
    (r"grid (?P<now>\d+)", r"(\.multi_processor_count)\b", r"\1 * {now} // {before}"),
    (r"num_warps (?P<now>\d+)", r"(?<=\bnum_warps=)[^,\n]+(?=,\n)", "{now}"),
    (r"BLOCK_SIZE (?P<now>\d+)", r"(?<=\bBLOCK_SIZE=)[^,\n]+(?=,\n)", "{now}"),
)
"""The name of an action, the matching part of the function's source, and its replacement."""
COLUMNS = (
    *("program", "kernel", "action", "launches", "predicted_us", "said_us", "said_low_us"),
    *("said_high_us", "before_us", "after_us"),
)


def change_source(kernel: str, action: str) -> None:
    """Make the change that *action* names in the functions that launch *kernel*."""
    now, _, before = action.partition(" instead of ")
    for module_name, function_name in PLACES[kernel]:
        module = importlib.import_module(f"liger_kernel.ops.{module_name}")
        source = inspect.getsource(getattr(module, function_name))
        for said, place, there in CHANGES:
            found = re.search(said, now)
            if found is not None:
                first = re.findall(r"\d+", before)[0]
                source = re.sub(place, there.format(now=found["now"], before=first), source)
        exec(compile(source, module.__file__ or "", "exec"), vars(module))  # noqa: S102 - its own source


def trace(folder: Path, program: str, kernel: str = "", action: str = "") -> dict[str, Any]:
    """Return the trace's row of each kernel of a program, after *action* on *kernel* if given."""
    path = folder / f"{program}-{kernel or 'before'}.json"
    own = [sys.executable, __file__, "--program", program, "--kernel", kernel, "--action", action]
    actions = ["--actions", "0" if action else "300"]
    words = [sys.executable, "-m", "occupancy_lab", "trace", "--json", "--output", str(path)]
    until = time.time() + DRY_SECONDS
    why = run_logged([*words, *actions, "--", *own], path.with_suffix(".log"), until)
    if why:
        print(f"{program} {kernel}: {why}", flush=True)
    return json.loads(path.read_text("utf-8")) if path.exists() else {"rows": [], "kernels": []}


def made_rows(folder: Path, program: str) -> Iterator[dict[str, Any]]:
    """Return a row for each kernel of a program for which the trace named an action."""
    before = trace(folder, program)
    for one in before["kernels"]:
        tried, kernel = one.get("tried") or {}, one["kernel"]
        if not tried.get("change"):
            continue
        after: dict[str, Any] = {}
        if kernel in PLACES:
            found = trace(folder, program, kernel, bare(tried))["kernels"]
            after = max(
                (other for other in found if other["kernel"] == kernel),
                key=lambda other: other["launches"],
                default={},
            )
        yield {
            "program": program,
            "kernel": kernel,
            "launches": one["launches"],
            **said(tried),
            "before_us": one["us"],
            "after_us": after.get("us"),
        }


def bare(tried: Mapping[str, Any]) -> str:
    """Return the change that a trace names for a kernel, without its condition."""
    return (tried.get("change") or "").partition(" (if ")[0]


def said(tried: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of the change that a trace names for a kernel."""
    low, high = re.findall(r"\(([\d.]+) to ([\d.]+)\)", tried["times"])[0]
    return {
        "action": bare(tried),
        "predicted_us": tried["now_us"],
        "said_us": tried["us"],
        "said_low_us": low,
        "said_high_us": high,
    }


def predict_again(folder: Path, gpu: str) -> None:
    """Predict the recorded changes of *gpu* again if a dry run names the same ones."""
    path = DATA / f"actions-{gpu}.csv"
    rows = rows_of(path)
    for program in dict.fromkeys(row["program"] for row in rows):
        run_mode(folder, program, "dry", gpu, time.time() + DRY_SECONDS)
        for one in json.loads((folder / f"{program}-dry.json").read_text("utf-8"))["kernels"]:
            tried = one.get("tried") or {}
            for row in rows:
                recorded = (row["program"], row["kernel"], *numbers(row["action"]))
                if recorded == (program, one["kernel"], *numbers(bare(tried))):
                    row.update(said(tried) | {"action": row["action"]})
    write_rows(path, COLUMNS, rows)


def numbers(action: str) -> list[str]:
    """Return the sorted numbers of an action, so that their order in the text does not matter.

    Numbers of the grid are left out if there are others, since the grid follows from those.
    """
    others = re.sub(r"grid [\d x]+ instead of [\d x]+", "", action)
    return sorted(re.findall(r"\d+", others) or re.findall(r"\d+", action))


def table(folder: Path, gpus: Sequence[str]) -> str:
    """Return the table of docs/trace.md."""
    lines = [
        "| | kernel | change | predicted us | before us | after us | in the range |",
        "|---|---|---|--:|--:|--:|---|",
    ]
    for gpu in gpus:
        for row in rows_of(folder / f"actions-{gpu}.csv"):
            if not row["after_us"]:
                continue
            low, high, after = (
                float(row[name]) for name in ("said_low_us", "said_high_us", "after_us")
            )
            cells = (
                *(f"{gpu.upper()}: {row['program']}", f"`{row['kernel']}`", row["action"]),
                f"{float(row['said_us']):.1f} ({low:.1f} to {high:.1f})",
                *(f"{float(row['before_us']):.1f}", f"{after:.1f}"),
                "yes" if low <= after <= high else "faster" if after < low else "slower",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run each program, then again with each change, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--programs", default="llama,transformer,liger")
    parser.add_argument("--predict", help="predict the recorded changes again, and end")
    parser.add_argument("--program", choices=[*PROGRAMS], help=argparse.SUPPRESS)
    parser.add_argument("--kernel", default="", help=argparse.SUPPRESS)
    parser.add_argument("--action", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.program:
        if asked.action:
            change_source(asked.kernel, asked.action)
        run_program(asked.program, STEPS, profiled=False)
        return
    if asked.predict:
        predict_each(predict_again, asked.predict)
        return
    asked.output.mkdir(parents=True, exist_ok=True)
    rows = [row for name in asked.programs.split(",") for row in made_rows(asked.output, name)]
    write_rows(asked.output / f"actions-{asked.gpu}.csv", COLUMNS, rows)
    print(table(asked.output, [asked.gpu]))


if __name__ == "__main__":
    main()
