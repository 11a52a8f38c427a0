"""Compares other models of a matmul's time with the lab's, on the tunes recorded on an H100.

Each model predicts each configuration of data/tunes-h100.csv that multiplies matrices:

- the roofline of the arguments: their bytes and the FLOPs at the rates of the data sheet;
- Triton's old `estimate_matmul_time` (https://github.com/triton-lang/kernels,
  kernels/matmul_perf_model.py), which autotuners were given as `perf_model`;
- the constants of XLA's cost model of a dot (https://github.com/openxla/xla,
  xla/service/gpu/model/gpu_dot_fusion_cost_model.cc): the longest of the tensor cores in whole
  waves, of device memory at the bandwidth measured for so many bytes, and of the L2 cache with the
  time of each pass of the loop.

All three predict only the launch itself, without its launch overhead.
"""

from __future__ import annotations

import bisect
import collections
import math
import re
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from record_files import DATA, rows_of
from record_tunes import lost, percent

from occupancy_lab.gpus import find_gpu
from occupancy_lab.work.speed_of_light import dot_tflops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

GPU = find_gpu("h100")
LEAST_US = 10.0
"""Shorter launches are left out of the errors: their launch overhead is in no other model."""
DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "tf32"}

SUBCORES = 4
SUBCORE_FLOPS = {"float16": 512, "bfloat16": 512, "float32": 256}
"""FLOPs per cycle, as `triton.testing.get_max_tensorcore_tflops` has them for GPUs since the
A100."""

L2_BYTES_PER_US = 6.65e6
LOOP_US = 0.4
"""Of a pass of the loop, where it does not copy by the TMA unit."""
NO_WARPGROUP = 0.63
"""The part of the tensor cores' rate without WGMMA, of fewer than 64 rows."""
BANDWIDTHS = {
    1 << 20: 179.06,
    1 << 21: 346.75,
    1 << 22: 639.38,
    1 << 23: 1069.98,
    1 << 24: 1583.95,
    1 << 25: 1974.72,
    1 << 26: 2343.19,
    1 << 27: 2632.96,
    1 << 28: 2766.69,
    1 << 29: 2968.89,
    1 << 30: 3126.0,
}
"""GiB/s of device memory on an H100, by bytes."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product of matrices, and the configuration that is launched."""

    dtype: str
    m: int
    n: int
    k: int
    block_m: int
    block_n: int
    block_k: int
    num_warps: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Product:
        """Return what a recorded row launched."""
        words = re.findall(r"(\w+) (\d+)", f"{row['problem']}, {row['config']}")
        found = {name: int(number) for name, number in words}
        sizes = (found[name] for name in ("M", "N", "K", "BLOCK_M", "BLOCK_N", "BLOCK_K"))
        return cls(row["group"].split()[1], *sizes, found["num_warps"])

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return 4 if self.dtype == "float32" else 2

    @property
    def rows(self) -> int:
        """Programs along m."""
        return -(-self.m // self.block_m)

    @property
    def columns(self) -> int:
        """Programs along n."""
        return -(-self.n // self.block_n)

    @property
    def moved(self) -> int:
        """Bytes of the three matrices."""
        return (self.m * self.k + self.k * self.n + self.m * self.n) * self.item

    @property
    def flops_per_us(self) -> float:
        """The tensor cores' rate by the data sheet."""
        return (dot_tflops(GPU, DTYPES[self.dtype]) or math.nan) * 1e6


def roofline_us(one: Product) -> float:
    """Return the longer of moving the matrices and multiplying them."""
    moving = one.moved / ((GPU.bandwidth_gbs or math.nan) * 1e3)
    return max(moving, 2 * one.m * one.n * one.k / one.flops_per_us)


def triton_us(one: Product) -> float:
    """Return the time of Triton's old model, its mixed powers of 1000 and 1024 included."""
    size, mhz = GPU.multiprocessors or 0, GPU.boost_mhz or 0
    programs, mega = one.rows * one.columns, 1024 * 1024
    subcores = size * SUBCORES
    tflops = subcores * mhz * SUBCORE_FLOPS[one.dtype] * 1e-6
    tflops *= min(subcores, programs * min(one.num_warps, 4)) / subcores
    m, n = max(one.m, one.block_m), max(one.n, one.block_n)
    multiplying = 2 * m * n * one.k / 1024**3 / tflops
    few, more = min(1.0, programs / 32), max(min(1.0, (programs - 32) / (108 - 32)), 0.0)
    gbs = (GPU.bandwidth_gbs or math.nan) * (0.95 * few + 0.05 * more)
    reads = ((m * one.k, one.columns), (n * one.k, one.rows))
    memory = sum(size * one.item * (1 + 0.2 * (times - 1)) for size, times in reads) / mega
    cache = sum(size * one.item * 0.8 * (times - 1) for size, times in reads) / mega
    loading, storing = memory / gbs + cache / (4 * gbs), m * n * one.item / mega / (0.6 * gbs)
    return (max(multiplying, loading) + storing) * 1e3


def xla_us(one: Product) -> float:
    """Return the time by the constants of XLA's model of a dot."""
    programs = one.rows * one.columns
    size = GPU.multiprocessors or 1
    rate = one.flops_per_us * (1.0 if one.block_m >= 64 else NO_WARPGROUP)  # noqa: PLR2004
    in_waves = -(-programs // size) * size
    multiplying = 2 * one.block_m * one.block_n * one.k * in_waves / rate
    asked = programs * (one.block_m + one.block_n) * one.k * one.item
    cache = asked / L2_BYTES_PER_US + -(-one.k // one.block_k) * LOOP_US
    return max(multiplying, one.moved / (measured_gib(one.moved) * 1024**3 / 1e6), cache)


def measured_gib(moved: int) -> float:
    """Return the bandwidth for so many bytes, between those that were measured."""
    sizes = [*BANDWIDTHS]
    place = bisect.bisect_left(sizes, moved)
    if place in {0, len(sizes)}:
        return BANDWIDTHS[sizes[min(place, len(sizes) - 1)]]
    low, high = sizes[place - 1 : place + 1]
    share = (moved - low) / (high - low)
    return BANDWIDTHS[low] + share * (BANDWIDTHS[high] - BANDWIDTHS[low])


MODELS: Mapping[str, Callable[[Product], float] | None] = {
    "the roofline of the arguments": roofline_us,
    "Triton's old matmul_perf_model": triton_us,
    "XLA's constants of a dot": xla_us,
    "the lab": None,
}
"""By what it is called what predicts a product; None for the recorded prediction."""


def table() -> Iterator[str]:
    """Yield the lines of docs/times.md."""
    heads = "matmul, H100 | median error | 90th percentile | first slower by | at most | best of 5"
    yield f"| {heads} |"
    yield "|---|--:|--:|--:|--:|--:|"
    recorded: dict[tuple[str, str], list[dict[str, Any]]] = collections.defaultdict(list)
    for row in rows_of(DATA / "tunes-h100.csv"):
        if row["group"].startswith("matmul") and row["us"] and row["predicted_us"]:
            recorded[row["group"], row["tune"]].append(row)
    for name, model in MODELS.items():
        tunes = [
            [{**row, "predicted_us": model(Product.of(row))} for row in rows] if model else rows
            for rows in recorded.values()
        ]
        yield f"| {' | '.join((name, *_cells(tunes, ranks=model is not roofline_us)))} |"


def _cells(tunes: Sequence[Sequence[Mapping[str, Any]]], *, ranks: bool) -> Iterator[str]:
    off = sorted(
        abs(row["predicted_us"] / row["us"] - 1)
        for rows in tunes
        for row in rows
        if row["us"] > LEAST_US
    )
    yield f"{statistics.median(off):.0%}".replace("%", " %")
    yield f"{off[int(0.9 * len(off))]:.0%}".replace("%", " %")
    found = [one for rows in tunes if (one := lost(rows)) is not None]
    first, _, five = (statistics.fmean(map(math.log1p, one)) for one in zip(*found, strict=True))
    most = math.log1p(max(one[0] for one in found))
    yield from ((percent(first), percent(most), percent(five)) if ranks else ("-", "-", "-"))
