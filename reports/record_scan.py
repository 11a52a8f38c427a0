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
import ctypes
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foreign_kernels
from record_files import table_bytes

from occupancy_lab.errors import DriverError
from occupancy_lab.measuring.driver import ask_function

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GPU = "h200"
CONFIGURATIONS = 8
"""How many of an autotuner's configurations are launched, spread over all of them."""
FILLING = 0.68
"""The share of the time for filling the caches; the rest is for scanning and the driver."""
MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES of cuda.h."""
PREFER_SHARED = 1
"""CU_FUNC_CACHE_PREFER_SHARED of cuda.h."""
UNASKED_SHARED = 48 * 1024
"""Dynamic shared memory above which a kernel must ask the driver first, as in Triton's driver.c."""
HELD = ("n_regs", "local_bytes", "static_shared", "programs_per_multiprocessor")
"""The columns that the driver reports too."""
COLUMNS = (
    *("kernel", "hash", "origin", "target", "gpu", "status", "reason"),
    *("num_warps", "num_stages", "num_ctas", "constexprs", "arguments", "shared"),
    *("n_regs", "local_bytes", "static_shared", "programs_per_multiprocessor", "occupancy"),
    *("limiter", "next_step", "gain", "gain_by", "local_accesses", "tensor_instructions"),
    *("triton_version", *(f"driver_{name}" for name in HELD), "driver_error"),
)


def fill_group(group: str, _folder: Path) -> None:
    """Call all of a group in this process, so that the caches contain its kernels."""
    with foreign_kernels.few_configurations(CONFIGURATIONS):
        for trial, why in foreign_kernels.call_all(group):
            print(f"{trial}: {why or 'done'}", flush=True)


def scan_command(folders: Sequence[str], output: Path, seconds: float) -> list[Any]:
    """Run `occupancy-lab scan`, print its page and its time, and return its rows."""
    target = output / "scan.json"
    command = [
        *(sys.executable, "-m", "occupancy_lab", "scan", *folders, "--gpu", GPU),
        *("--export-json", str(target)),
    ]
    began = time.monotonic()
    subprocess.run(command, timeout=max(seconds, 10), check=True)  # noqa: S603 - the tool itself
    rows: list[Any] = json.loads(target.read_text(encoding="utf-8"))
    target.unlink()
    cores = len(os.sched_getaffinity(0))
    print(f"{len(rows)} rows in {time.monotonic() - began:.2f} s, {cores} cores", flush=True)
    return rows


class Driver:
    """The CUDA driver, with the first device's context."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raise RuntimeError if it refuses."""
        error = getattr(self.library, name)(*arguments)
        if error:
            msg = f"{name} answers with error {error}"
            raise RuntimeError(msg)

    def describe(self, row: dict[str, Any]) -> dict[str, int]:
        """Return what the driver reports about the cubin of a row."""
        cubin = next(Path(row["entry"]).glob("*.cubin")).read_bytes()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), cubin)
        try:
            name = row["kernel"].encode()
            self.call("cuModuleGetFunction", ctypes.byref(function), module, name)
            return self._described(function, row)
        finally:
            self.call("cuModuleUnload", module)

    def _described(self, function: ctypes.c_void_p, row: dict[str, Any]) -> dict[str, int]:
        if row["shared"] + (row["static_shared"] or 0) > UNASKED_SHARED:
            self.call("cuFuncSetCacheConfig", function, PREFER_SHARED)
            self.call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, row["shared"])
        said = ask_function(function.value or 0, row["num_warps"] * 32, row["shared"])
        return {f"driver_{name}": value for name, value in dataclasses.asdict(said).items()}


def ask_driver(rows: list[dict[str, Any]], until: float) -> None:
    """Add the driver's numbers to each row that is ok or does not fit."""
    try:
        driver = Driver()
    except (OSError, RuntimeError) as error:
        print(f"no driver, nothing is compared: {error}")
        return
    for row in rows:
        if row["n_regs"] is None or not row["gpu"]:
            continue
        if time.monotonic() > until:
            row["driver_error"] = "no time was left"
            continue
        try:
            row.update(driver.describe(row))
        except (OSError, RuntimeError, DriverError) as error:
            row["driver_error"] = str(error)


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder of the files")
    parser.add_argument("--seconds", type=float, default=150.0, help="limit of all")
    parser.add_argument("--workers", type=int, default=24, help="groups at a time")
    parser.add_argument("--tutorials", type=Path, default=Path("tutorials"))
    parser.add_argument("--groups", default="", help="parts of the names of the groups, by commas")
    parser.add_argument("--cache", type=Path, help="a cache to scan in place of a fresh one")
    chosen = parser.parse_args()
    began = time.monotonic()
    chosen.output.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="scan-"))
    folders: list[str] = []
    if chosen.cache is not None:
        folders = [str(chosen.cache)]
    else:
        # Without a folder the scan finds both by these, like Triton and torch.
        os.environ |= {
            "TRITON_HOME": str(work / "home"),
            "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        os.environ.pop("TRITON_CACHE_DIR", None)
        foreign_kernels.TUTORIALS = chosen.tutorials.resolve()
        foreign_kernels.run_groups(fill_group, chosen, work, began + FILLING * chosen.seconds)
        print(f"filled in {time.monotonic() - began:.0f} s", flush=True)
    end = began + chosen.seconds
    try:
        rows = scan_command(folders, chosen.output, (end - time.monotonic()) / 2)
        write_rows(rows, chosen.output / f"scan-{GPU}.csv")
        ask_driver(rows, end - 5)
        write_rows(rows, chosen.output / f"scan-{GPU}.csv")
        print("\n".join(summary(rows)), flush=True)
    finally:
        foreign_kernels.keep_logs(work, chosen.output)
        shutil.rmtree(work, ignore_errors=True)
    print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
