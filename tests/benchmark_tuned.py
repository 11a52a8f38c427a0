"""What a launch costs the host: plain, autotuned and by `tuned`. Prints a table, asserts nothing.

Without a GPU: Triton compiles for an H100 and finds its kernel as on one, and the last step, which
hands it to the driver, does nothing. Launches take turns in rounds, and each has its fastest round.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
from launched_kernels import matmul
from triton.compiler import CompiledKernel

import occupancy_lab
from occupancy_lab.compiling.offline import offline
from occupancy_lab.digest import source_digest
from occupancy_lab.gpus import find_gpu

ROUNDS, LAUNCHES = 30, 1000
BLOCKS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
CONFIG = {**dict.fromkeys(BLOCKS, 64), "GROUP_SIZE_M": 8, "num_warps": 4, "num_stages": 3}
SIZES = {"M": 512, "N": 512, "K": 512}


def file_of(folder: str) -> Path:
    """Write a file with the one launch, and return its path."""
    times = {"predicted_us": 1.0, "predicted_low_us": None, "predicted_high_us": None}
    values = {
        "format": "occupancy-lab tuned",
        "version": 2,
        "kernel": {"name": "matmul", "digest": source_digest(matmul)},
        "triton": triton.__version__,
        "sizes": [*SIZES],
        "tensors": dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "fp16"),
        "constexprs": {"ACTIVATION": ""},
        "gpus": {"h100": [{"sizes": SIZES, "config": CONFIG, **times, "bound": "latency"}]},
        "left_out": [],
        "basis": {"h100": "nothing"},
    }
    path = Path(folder) / "tuned.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def us_of(launches: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the host's microseconds for each of *launches*."""
    found = dict.fromkeys(launches, float("inf"))
    for _ in range(ROUNDS):
        for name, launch in launches.items():
            start = time.perf_counter()
            for _ in range(LAUNCHES):
                launch()
            found[name] = min(found[name], (time.perf_counter() - start) / LAUNCHES * 1e6)
    return found


def main() -> None:
    """Print each launch's cost."""
    CompiledKernel._init_handles = lambda _: None
    CompiledKernel.run = property(lambda _: lambda *_, **__: None)
    configs = [
        triton.Config({**dict.fromkeys(BLOCKS, 64), "GROUP_SIZE_M": group}) for group in (8, 4)
    ]

    def bench(call: Callable[[], Any], **_: Any) -> list[float]:
        call()
        return [1.0, 1.0, 1.0]

    autotuned = triton.autotune(configs, key=[*SIZES], do_bench=bench)(matmul)
    a = torch.empty((512, 512), dtype=torch.float16)
    passed = (a, a, a, *SIZES.values(), 512, 1, 512, 1, 512, 1)
    with tempfile.TemporaryDirectory() as folder, offline(find_gpu("h100").target):
        tuned = occupancy_lab.tuned(file_of(folder))(matmul)
        found = us_of(
            {
                "@triton.jit": lambda: matmul[(64,)](*passed, ACTIVATION="", **CONFIG),
                "@triton.autotune, tuned before": lambda: autotuned[(64,)](*passed, ACTIVATION=""),
                "@occupancy_lab.tuned": lambda: tuned[(64,)](*passed, ACTIVATION=""),
            }
        )
    for name, us in found.items():
        print(f"{name:32} {us:6.2f} us")


if __name__ == "__main__":
    main()
