"""How fast the tool is: prints a table, asserts nothing. `make bench` runs it.

Cold is with an empty store and an empty Triton cache, warm the run after it.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from occupancy_lab.occupancy.points import evaluate_points

POINTS = 1_000_000
REPEATS = 5
TOOL = Path(sys.executable).with_name("occupancy-lab")


def seconds(*arguments: str, **environment: str) -> float:
    """Return the wall-clock seconds of one run of the tool."""
    start = time.perf_counter()
    subprocess.run(
        [TOOL, *arguments], check=True, stdout=subprocess.DEVNULL, env=os.environ | environment
    )
    return time.perf_counter() - start


def explain_seconds() -> tuple[float, float]:
    """Return the median seconds of `explain --cols 781`, cold and warm."""
    cold, warm = [], []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as directory:
            places = {"OCCUPANCY_LAB_CACHE_DIR": directory, "TRITON_CACHE_DIR": directory}
            cold.append(seconds("explain", "--cols", "781", **places))
            warm.append(seconds("explain", "--cols", "781", **places))
    return statistics.median(cold), statistics.median(warm)


def points_table() -> pd.DataFrame:
    """Return random points over NVIDIA and AMD targets."""
    random = np.random.default_rng(0)
    targets = np.array(["sm_80", "sm_90", "sm_100", "gfx942", "gfx1100"])
    return pd.DataFrame(
        {
            "target": targets[random.integers(0, len(targets), POINTS)],
            "n_regs": random.integers(16, 256, POINTS),
            "shared": random.integers(0, 100_000, POINTS),
            "num_warps": 2 ** random.integers(0, 5, POINTS),
        }
    )


def points_per_second() -> tuple[float, float]:
    """Return points per second in memory, and from CSV to CSV."""
    table = points_table()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        evaluate_points(table)
        times.append(time.perf_counter() - start)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "points.csv"
        table.to_csv(path, index=False)
        whole = seconds("occupancy", "--points", str(path))
    return POINTS / statistics.median(times), POINTS / whole


PLAIN_LOOP = """
import itertools
from occupancy_lab.compiling.offline import offline
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.values import Config, Problem

kernel = load_kernel("softmax")
for gpu, cols in itertools.product(("h100", "a100", "mi300x"), (781, 2000, 4000)):
    for num_warps, num_stages in itertools.product((4, 8, 16), (1, 2, 3, 4)):
        config = Config(1 << (cols - 1).bit_length(), num_warps, num_stages)
        launch = kernel.launch(Problem(4096, cols), config)
        with offline(find_gpu(gpu).target):
            launch.warm_up(kernel.function)
"""
SWEEP = (
    *("sweep", "--gpu", "h100,a100,mi300x", "--cols", "781,2000,4000", "--csv"),
    *("--num-warps", "4,8,16", "--num-stages", "1,2,3,4"),
)
LARGE_SWEEP = (
    *("sweep", "--gpu", "h100,h200,a100,b200,mi300x", "--cols", "700,781,900,1000,1023", "--csv"),
    *("--num-warps", "1,2,4,8,16", "--num-stages", "1,2,3,4"),
)


def sweep_seconds() -> tuple[float, float, float]:
    """Return seconds of a loop of warmups, of the same sweep cold, and of 500 rows warm."""
    with tempfile.TemporaryDirectory() as directory:
        cache = os.environ | {"TRITON_CACHE_DIR": directory}
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", PLAIN_LOOP], check=True, env=cache)
        plain = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as directory:
        places = {"OCCUPANCY_LAB_CACHE_DIR": directory, "TRITON_CACHE_DIR": directory}
        cold = seconds(*SWEEP, **places)
        seconds(*LARGE_SWEEP, **places)
        warm = statistics.median(seconds(*LARGE_SWEEP, **places) for _ in range(REPEATS))
    return plain, cold, warm


def main() -> None:
    """Print the table."""
    help_ = statistics.median(seconds("--help") for _ in range(REPEATS))
    cold, warm = explain_seconds()
    in_memory, through_files = points_per_second()
    print(f"--help                     {help_:8.2f} s    goal 0.2 s")
    print(f"explain --cols 781, cold   {cold:8.2f} s    goal 4 s")
    print(f"explain --cols 781, warm   {warm:8.2f} s    goal 0.6 s")
    print(f"points, in memory          {in_memory / 1e6:8.2f} M/s  goal 2 M/s")
    print(f"points, CSV to CSV         {through_files / 1e6:8.2f} M/s")
    plain, swept, again = sweep_seconds()
    print(f"108 compiles, plain loop   {plain:8.2f} s")
    print(f"the same swept, cold       {swept:8.2f} s    goal {plain / 1.7:.2f} s (1.7 times)")
    print(f"500 rows swept, warm       {again:8.2f} s    goal 1 s")


if __name__ == "__main__":
    main()
