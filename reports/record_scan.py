"""Scans a cache of kernels that nobody here wrote, and holds every row to the GPU's driver.

`python reports/record_scan.py --output FOLDER` calls what reports/foreign_kernels.py has on the
NVIDIA GPU at hand, with fresh caches of Triton and torchinductor, lists them with
`occupancy-lab scan`, timed, and loads each cubin into the driver. It writes scan-<gpu>.csv, with
what the scan and the driver say of each kernel, prints where they differ, and packs some small
entries into scan-entries.tar.xz. `--cache FOLDER` scans a cache that is there, and fills none.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import ctypes
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GPU = "h200"
CONFIGURATIONS = 8
"""Of an autotuner's configurations so many are launched, spread over all of them."""
FILLING = 0.68
"""The share of the time in which kernels are compiled; scanning and the driver have the rest."""
TIMED = 3
"""Scans that are timed, each a process of its own."""
SHARED_SIZE_BYTES, LOCAL_SIZE_BYTES, NUM_REGS, MAX_DYNAMIC_SHARED = 1, 3, 4, 8
"""CUfunction_attribute of cuda.h."""
PREFER_SHARED = 1
"""CU_FUNC_CACHE_PREFER_SHARED of cuda.h."""
UNASKED_SHARED = 48 * 1024
"""Dynamic shared memory above which a kernel asks the driver first, as Triton's driver.c does."""
HELD = ("n_regs", "local_bytes", "static_shared", "programs_per_multiprocessor")
"""The columns that the driver tells too."""
COLUMNS = (
    *("kernel", "hash", "origin", "target", "gpu", "status", "reason"),
    *("num_warps", "num_stages", "num_ctas", "constexprs", "arguments", "shared"),
    *("n_regs", "local_bytes", "static_shared", "programs_per_multiprocessor", "occupancy"),
    *("limiter", "next_step", "gain", "gain_by", "local_accesses", "tensor_instructions"),
    *("triton_version", *(f"driver_{name}" for name in HELD), "driver_error"),
)
FIXTURE_ENTRIES, FIXTURE_BYTES = 60, 2 << 20
FIXTURE_FILES = (".json", ".cubin", ".source")
ORIGINS = {"liger_kernel": "liger-kernel", "fla": "fla-core", "torch": "torch", "triton": "triton"}


def once(call: Any, **_: Any) -> list[float]:
    """Run what an autotuner would measure one time."""
    call()
    return [1.0, 1.0, 1.0]


def fill_group(group: str, folder: Path) -> None:
    """Call all of a group in this process, so that what it compiles is in the caches."""
    import foreign_kernels
    import torch
    from triton.runtime import Autotuner

    torch.set_num_threads(1)
    prune = Autotuner.prune_configs

    def fewer(tuner: Any, keywords: Any) -> Any:
        left = prune(tuner, keywords)
        return left[:: max(1, -(-len(left) // CONFIGURATIONS))]

    Autotuner.prune_configs = fewer
    Autotuner.do_bench = property(lambda _: once)
    trials = list(foreign_kernels.GROUPS[group]())
    random.Random(0).shuffle(trials)  # noqa: S311 - so that a group with many has some of each
    done = folder / f"{re.sub(r'[^a-z0-9]+', '-', group)}.trials"
    for trial, call in trials:
        try:
            call()
            torch.cuda.synchronize()
            said = "done"
        except Exception as error:  # noqa: BLE001 - it is named
            said = f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"[:200]
        with done.open("a", encoding="utf-8") as file:
            file.write(f"{trial}\t{said}\n")
        if "CUDA error" in said:  # no later launch of this process would work
            return


def run_group(group: str, folder: Path) -> None:
    """Run a group in this forked process, which ends with it."""
    os.setsid()  # so that what it starts ends with it
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        fill_group(group, folder)
    except BaseException:  # noqa: BLE001 - it is in the log
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def fill(groups: Sequence[str], work: Path, until: float, workers: int) -> None:
    """Run each group in a process of its own, so many at a time, until the time is over."""
    import foreign_kernels  # noqa: F401 - imported once, before the processes are forked

    waiting, running = list(groups), {}
    while (waiting or running) and time.monotonic() < until:
        while waiting and len(running) < workers:
            group = waiting.pop(0)
            child = os.fork()
            if not child:
                run_group(group, work)
            running[child] = group, time.monotonic()
        child, status = os.waitpid(-1, os.WNOHANG)
        if child in running:
            group, since = running.pop(child)
            said = "" if status == 0 else f", ended with status {status}"
            print(f"{group}: {time.monotonic() - since:.0f} s{said}", flush=True)
        else:
            time.sleep(0.1)
    for child, (group, _) in running.items():
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print(f"{group}: stopped, its time is over", flush=True)
    for group in waiting:
        print(f"{group}: not tried, no time was left", flush=True)


def scan_command(folders: Sequence[str], output: Path, seconds: float) -> tuple[list[Any], str]:
    """Run `occupancy-lab scan` some times; return its rows, and a line with the times."""
    target = output / "scan.json"
    command = [
        *(sys.executable, "-m", "occupancy_lab", "scan", *folders, "--gpu", GPU),
        *("--export-json", str(target)),
    ]
    times, page = [], ""
    for _ in range(TIMED):
        began = time.monotonic()
        done = subprocess.run(  # noqa: S603 - the tool itself
            command, capture_output=True, text=True, timeout=max(seconds, 10), check=False
        )
        times.append(time.monotonic() - began)
        page = done.stdout
        if done.returncode:
            print(f"scan ended with {done.returncode}: {done.stderr.strip()}")
            break
    print(page)
    rows = json.loads(target.read_text(encoding="utf-8"))
    target.unlink()
    shown = ", ".join(f"{one:.2f}" for one in times)
    return rows, f"{len(rows)} rows in {shown} s, {len(os.sched_getaffinity(0))} cores"


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
        """Call a function; RuntimeError where it refuses."""
        error = getattr(self.library, name)(*arguments)
        if error:
            msg = f"{name} answers with error {error}"
            raise RuntimeError(msg)

    def describe(self, row: dict[str, Any]) -> dict[str, int]:
        """Return what the driver says of the cubin of a row."""
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
        def attribute(number: int) -> int:
            value = ctypes.c_int()
            self.call("cuFuncGetAttribute", ctypes.byref(value), number, function)
            return value.value

        static = attribute(SHARED_SIZE_BYTES)
        if row["shared"] + static > UNASKED_SHARED:
            self.call("cuFuncSetCacheConfig", function, PREFER_SHARED)
            self.call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, row["shared"])
        programs = ctypes.c_int()
        self.call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            *(ctypes.byref(programs), function, row["num_warps"] * 32),
            ctypes.c_size_t(row["shared"]),
        )
        return {
            "driver_n_regs": attribute(NUM_REGS),
            "driver_local_bytes": attribute(LOCAL_SIZE_BYTES),
            "driver_static_shared": static,
            "driver_programs_per_multiprocessor": programs.value,
        }


def ask_driver(rows: list[dict[str, Any]], until: float) -> None:
    """Add to each row that is ok, or does not fit, what the driver says of its cubin."""
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
        except (OSError, RuntimeError) as error:
            row["driver_error"] = str(error)


def origin(row: dict[str, Any]) -> str:
    """Return the package that a kernel's source is from, with its version."""
    path = row["source"]
    package = re.search(r"/(liger_kernel|fla|triton|tutorials)/", path)
    name = package[1].replace("tutorials", "triton") if package else "torch"
    with contextlib.suppress(ImportError):
        return f"{ORIGINS[name]} {version(ORIGINS[name])}" if name in ORIGINS else name
    return name


def differences(row: dict[str, Any]) -> list[str]:
    """Return in words what the driver says otherwise than the scan."""
    return [
        f"{name} {row[name]}, the driver says {row[f'driver_{name}']}"
        for name in HELD
        if f"driver_{name}" in row and row[name] != row[f"driver_{name}"]
    ]


def write_rows(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the rows without anything of this machine's folders."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            texts = ", ".join(f"{name}={value}" for name, value in row["constexprs"].items())
            own = {"hash": Path(row["entry"]).name, "constexprs": texts, "origin": origin(row)}
            writer.writerow(row | own)


def pack(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Pack the small entries of as many different kernels as fit."""
    by_kernel: dict[str, list[Path]] = collections.defaultdict(list)
    for row in rows:
        if row["status"] == "ok":
            by_kernel[row["kernel"]].append(Path(row["entry"]))
    chosen = [sorted(folders, key=size_of) for folders in by_kernel.values()]
    order = sorted((folders[0] for folders in chosen), key=size_of)
    order += sorted((one for folders in chosen for one in folders[1:2]), key=size_of)
    packed = 0
    with tarfile.open(path, "w:xz") as archive:
        for folder in order[:FIXTURE_ENTRIES]:
            for file in sorted(folder.iterdir()):
                if file.suffix in FIXTURE_FILES and not file.name.startswith("__grp__"):
                    archive.add(file, f"{folder.name}/{file.name}")
            packed += 1
    size = path.stat().st_size
    note = "" if size <= FIXTURE_BYTES else ": too large for a fixture"
    print(f"{packed} entries packed in {size / 1e6:.2f} MB{note}")


def size_of(folder: Path) -> int:
    """Return the bytes of what would be packed of an entry."""
    return sum(one.stat().st_size for one in folder.iterdir() if one.suffix in FIXTURE_FILES)


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Return the lines of the table at the end."""
    held = [row for row in rows if "driver_n_regs" in row]
    wrong = [row for row in held if differences(row)]
    yield f"kernels {len(rows)}, of {len({row['kernel'] for row in rows})} names"
    for name, number in collections.Counter(map(origin, rows)).most_common():
        yield f"  from {name}: {number}"
    for status, number in collections.Counter(row["status"] for row in rows).most_common():
        yield f"  {status}: {number}"
    for name in ("constexprs", "arguments", "source"):
        yield f"  with {name}: {sum(bool(row[name]) for row in rows)}"
    yield f"compared with the driver {len(held)}, mismatches {len(wrong)}"
    for row in wrong:
        yield f"! {row['kernel']} {Path(row['entry']).name}: {'; '.join(differences(row))}"
    refused = collections.Counter(row["driver_error"] for row in rows if "driver_error" in row)
    for why, number in refused.most_common():
        yield f"! {number} not compared: {why}"
    reasons = collections.Counter(row["reason"] for row in rows if row["status"] != "ok")
    for why, number in reasons.most_common(10):
        yield f"! {number} not worked out: {why}"


def keep_logs(work: Path, output: Path) -> None:
    """Copy what the groups printed and which calls failed, and say how many did."""
    with contextlib.suppress(OSError):
        shutil.copy(work / "log.txt", output / "log.txt")
    lines = [
        f"{file.stem}\t{line}"
        for file in sorted(work.glob("*.trials"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    (output / "trials.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    failed = sum(not line.endswith("\tdone") for line in lines)
    print(f"{len(lines)} calls, {failed} of which failed (trials.txt)")


def main() -> None:
    """Fill the caches, scan them, ask the driver, and say how many rows agree."""
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
        # Without a folder the scan finds both by these, as Triton and torch do.
        os.environ |= {
            "TRITON_HOME": str(work / "home"),
            "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        os.environ.pop("TRITON_CACHE_DIR", None)
        import foreign_kernels

        foreign_kernels.TUTORIALS = chosen.tutorials.resolve()
        parts = chosen.groups.split(",")
        groups = [one for one in foreign_kernels.GROUPS if any(part in one for part in parts)]
        fill(groups, work, began + FILLING * chosen.seconds, chosen.workers)
        print(f"filled in {time.monotonic() - began:.0f} s", flush=True)
    end = began + chosen.seconds
    try:
        rows, timed = scan_command(folders, chosen.output, (end - time.monotonic()) / 2)
        print(timed, flush=True)
        write_rows(rows, chosen.output / f"scan-{GPU}.csv")
        ask_driver(rows, end - 5)
        write_rows(rows, chosen.output / f"scan-{GPU}.csv")
        lines = [timed, *summary(rows)]
        (chosen.output / "scan-summary.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print("\n".join(lines), flush=True)
        pack(rows, chosen.output / "scan-entries.tar.xz")
    finally:
        keep_logs(work, chosen.output)
        shutil.rmtree(work, ignore_errors=True)
    print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
