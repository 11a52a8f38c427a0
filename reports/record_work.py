"""Records public Triton launches: everything that determines their work, ncu's counters, and times.

`python reports/record_work.py --output FOLDER --tutorials FOLDER` runs the groups of
work_launches.py on the NVIDIA GPU at hand, each in its own process. In the first of three phases
they write every launch with its arguments and its kernel's texts, and time it with an empty and
with a warm L2 cache. In the second they repeat each launch once under Nsight Compute, which counts,
and in the third one launch of each kernel of SAMPLED, of which Nsight Compute samples each
instruction. Groups call their launches at the same time; then they measure one after the other.
keep_work.py makes the committed files of FOLDER.

A launch has the same `id` in all files: a digest of its kernel's binary, arguments and grid. `use`
divides kernels, not launches, into tuning, held out and fresh, by a digest of their names
(work_capture.use_of).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import foreign_kernels
import work_launches
from record_files import group_arguments, path_of, read_lines, run_groups, write_json
from work_ncu import CORE, OPTIONS, SAMPLING_OPTIONS, SHARES
from work_process import work

from occupancy_lab.measuring.ncu import find_ncu

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMING, COUNTING = 0.5, 0.9
"""The shares of the time at which timing and counting end."""
WORKERS = 16
"""Processes that call their launches at the same time."""
SMALL_BYTES = 1 << 20
"""Launches with smaller tensors are not sampled."""
SAMPLED = (
    *("triton: 3, fp16", "triton: 6, head 64", "own: reductions", "own: memory", "liger: norms"),
    *("triton: 5", "liger: losses", "triton: 9, fp16", "triton: simple"),
)
"""The groups whose kernels are sampled instruction by instruction, one launch each."""
MOST_SAMPLED = 60
REPORT = ".ncu-rep"
"""How the names of Nsight Compute's reports of sampled launches end."""


def record(chosen: argparse.Namespace) -> None:
    """Run the phases."""
    began, ncu = time.time(), find_ncu()
    folder: Path = chosen.output
    groups = [
        one for one in work_launches.GROUPS if one.startswith(tuple(chosen.groups.split(",")))
    ]
    (folder / "texts").mkdir(parents=True, exist_ok=True)
    timed = began + TIMING * chosen.seconds
    run_groups(groups, folder, "time", timed, WORKERS)
    if ncu is None:
        print("Nsight Compute is not found, and nothing is counted")
        return
    metrics = (*CORE, *SHARES) if chosen.shares else CORE
    groups = [one for one in groups if read_lines(path_of(folder, one, ".launches.jsonl"))]
    counted = began + COUNTING * chosen.seconds
    counting = (str(ncu), *OPTIONS, "--metrics", ",".join(metrics))
    run_groups(groups, folder, "count", counted, WORKERS, lambda _: counting)
    sampled = choose_sampled(folder, groups)

    def sampling(group: str) -> tuple[str, ...]:
        return str(ncu), *SAMPLING_OPTIONS, "--export", str(path_of(folder, group, REPORT))

    run_groups(sampled, folder, "sample", began + chosen.seconds, WORKERS, sampling)


def choose_sampled(folder: Path, groups: Sequence[str]) -> list[str]:
    """Write which launches are sampled, one of each kernel, and return their groups."""
    chosen: dict[str, str] = {}
    kept = []
    for group in [one for one in groups if one in SAMPLED]:
        for line in read_lines(path_of(folder, group, ".launches.jsonl")):
            large = line["tensor_bytes"] >= SMALL_BYTES
            if large and line["kernel"] not in chosen and len(chosen) < MOST_SAMPLED:
                chosen[line["kernel"]] = line["id"]
                kept.append(group)
    write_json(folder / "sampled.json", [*chosen.values()])
    return [*dict.fromkeys(kept)]


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__, parents=[group_arguments()])
    parser.add_argument("--output", type=Path, default=Path("work-recorded"))
    parser.add_argument("--seconds", type=float, default=1800.0, help="of all")
    parser.add_argument("--tutorials", type=Path, default=Path("tutorials"))
    parser.add_argument("--groups", default="", help="beginnings of names, with commas between")
    parser.add_argument(
        "--shares", action="store_true", help="count the busiest unit too, in many more passes"
    )
    chosen = parser.parse_args()
    foreign_kernels.TUTORIALS = chosen.tutorials.resolve()
    if chosen.group:
        work(chosen.output, chosen.group, chosen.phase, chosen.until)
        return
    with tempfile.TemporaryDirectory(prefix="work-") as caches:
        os.environ |= {
            "TRITON_CACHE_DIR": f"{caches}/triton",
            "TRITON_CACHE_AUTOTUNING": "0",
            "FLA_CACHE_RESULTS": "0",
            "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0",
            "LC_ALL": "C.UTF-8",
        }
        record(chosen)


if __name__ == "__main__":
    main()
