"""Scans a cache of public kernels, and compares every row with the GPU's driver.

`python reports/record_scan.py --output FOLDER` makes the calls of reports/foreign_kernels.py on the
NVIDIA GPU at hand, with fresh caches of Triton and torchinductor. It lists the caches with
`occupancy-lab scan`, timed, and loads each cubin into the driver. It writes scan-<gpu>.csv with the
numbers of the scan and the driver for each kernel, and prints the differences. `--cache FOLDER`
scans an existing cache instead of filling one.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foreign_kernels
from record_files import group_arguments, run_groups, table_bytes

from occupancy_lab.errors import DriverError
from occupancy_lab.measuring.driver import ask_function

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GPU = "h200"
CONFIGURATIONS = 8
"""How many of an autotuner's configurations are launched, spread over all of them."""
FILLING = 0.68
"""The share of the time for filling the caches; the rest is for scanning and the driver."""
HELD = ("n_regs", "local_bytes", "static_shared", "programs_per_multiprocessor")
"""The columns that the driver reports too."""
COLUMNS = (
    *("kernel", "hash", "origin", "target", "gpu", "status", "reason"),
    *("num_warps", "num_stages", "num_ctas", "constexprs", "arguments", "shared"),
    *("n_regs", "local_bytes", "static_shared", "programs_per_multiprocessor", "occupancy"),
    *("limiter", "next_step", "gain", "gain_by", "local_accesses", "tensor_instructions"),
    *("triton_version", *(f"driver_{name}" for name in HELD), "driver_error"),
)


def fill_group(group: str, until: float) -> None:
    """Call all of a group until *until*, so that the caches contain its kernels."""
    with foreign_kernels.few_configurations(CONFIGURATIONS):
        for trial, why in foreign_kernels.call_all(group):
            print(f"{trial}: {why or 'done'}", flush=True)
            if time.time() > until:
                return


def scan_command(folders: Sequence[str], output: Path, seconds: float) -> list[Any]:
    """Run `occupancy-lab scan`, print its page and its time, and return its rows."""
    target = output / "scan.json"
    command = [
        *(sys.executable, "-m", "occupancy_lab", "scan", *folders, "--gpu", GPU),
        *("--export-json", str(target)),
    ]
    began = time.time()
    subprocess.run(command, timeout=max(seconds, 10), check=True)  # noqa: S603 - the tool itself
    rows: list[Any] = json.loads(target.read_text(encoding="utf-8"))
    target.unlink()
    cores = len(os.sched_getaffinity(0))
    print(f"{len(rows)} rows in {time.time() - began:.2f} s, {cores} cores", flush=True)
    return rows


def ask_driver(rows: list[dict[str, Any]], until: float) -> None:
    """Add the driver's numbers to each row that is ok or does not fit."""
    for row in rows:
        if row["n_regs"] is None or not row["gpu"]:
            continue
        if time.time() > until:
            row["driver_error"] = "no time was left"
            continue
        try:
            row.update(described(row))
        except (OSError, RuntimeError, DriverError) as error:
            row["driver_error"] = str(error)


def described(row: dict[str, Any]) -> dict[str, int]:
    """Return what the driver reports about the cubin of a row."""
    from triton.runtime import driver

    cubin = next(Path(row["entry"]).glob("*.cubin")).read_bytes()
    device = driver.active.get_current_device()
    _, function, *_ = driver.active.utils.load_binary(row["kernel"], cubin, row["shared"], device)
    said = ask_function(function, row["num_warps"] * 32, row["shared"])
    return {f"driver_{name}": value for name, value in dataclasses.asdict(said).items()}


def origin(row: dict[str, Any]) -> str:
    """Return the package of a kernel's source with its version."""
    module = re.search(r"/(liger_kernel|fla|triton|tutorials)/", row["source"])
    return foreign_kernels.package_words(module[1] if module else "torch")


def differences(row: dict[str, Any]) -> list[str]:
    """Return the differences between the scan and the driver in words."""
    return [
        f"{name} {row[name]}, the driver says {row[f'driver_{name}']}"
        for name in HELD
        if f"driver_{name}" in row and row[name] != row[f"driver_{name}"]
    ]


def write_rows(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the rows without the names of this machine's folders."""
    written = []
    for row in rows:
        texts = ", ".join(f"{name}={value}" for name, value in row["constexprs"].items())
        own = {"hash": Path(row["entry"]).name, "constexprs": texts, "origin": origin(row)}
        written.append(row | own)
    path.write_bytes(table_bytes(COLUMNS, written))


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the final summary."""
    held = [row for row in rows if "driver_n_regs" in row]
    wrong = [row for row in held if differences(row)]
    yield f"kernels {len(rows)}, of {len({row['kernel'] for row in rows})} names"
    for names in (map(origin, rows), (row["status"] for row in rows)):
        yield str(dict(collections.Counter(names)))
    yield f"compared with the driver {len(held)}, mismatches {len(wrong)}"
    for row in wrong:
        yield f"! {row['kernel']} {Path(row['entry']).name}: {'; '.join(differences(row))}"
    whys = [row["driver_error"] for row in rows if "driver_error" in row]
    whys += [row["reason"] for row in rows if row["status"] != "ok"]
    for why, number in collections.Counter(whys).most_common(10):
        yield f"! {number}: {why}"


def main() -> None:
    """Fill the caches, scan them, ask the driver, and print how many rows agree."""
    parser = argparse.ArgumentParser(description=__doc__, parents=[group_arguments()])
    parser.add_argument("--output", type=Path, required=True, help="folder of the files")
    parser.add_argument("--seconds", type=float, default=150.0, help="limit of all")
    parser.add_argument("--workers", type=int, default=24, help="groups at a time")
    parser.add_argument("--tutorials", type=Path, default=Path("tutorials"))
    parser.add_argument("--groups", default="", help="parts of the names of the groups, by commas")
    parser.add_argument("--cache", type=Path, help="a cache to scan in place of a fresh one")
    chosen = parser.parse_args()
    foreign_kernels.TUTORIALS = chosen.tutorials.resolve()
    if chosen.group:
        fill_group(chosen.group, chosen.until)
        return
    began = time.time()
    end = began + chosen.seconds
    chosen.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="scan-") as work:
        folders = [] if chosen.cache is None else [str(chosen.cache)]
        if chosen.cache is None:
            # Without a folder the scan finds both by these, like Triton and torch.
            os.environ |= {
                "TRITON_HOME": f"{work}/home",
                "TORCHINDUCTOR_CACHE_DIR": f"{work}/inductor",
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
            }
            os.environ.pop("TRITON_CACHE_DIR", None)
            groups = foreign_kernels.chosen_groups(chosen.groups)
            until = began + FILLING * chosen.seconds
            run_groups(groups, chosen.output, "fill", until, chosen.workers)
        rows = scan_command(folders, chosen.output, (end - time.time()) / 2)
        ask_driver(rows, end - 5)
        write_rows(rows, chosen.output / f"scan-{GPU}.csv")
        print("\n".join(summary(rows)), flush=True)


if __name__ == "__main__":
    main()
