"""The roofline of a trace: its kernels, measured or predicted, under the roofs of their GPU."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from occupancy_lab.errors import refuse
from occupancy_lab.text.words import cell, count, duration, microseconds, scaled
from occupancy_lab.tracing.page import shown_kernels
from occupancy_lab.work.memory import TENSOR, dot_tflops, other_tflops

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.figure import Figure

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.plotting.roofline import Point, Roof
    from occupancy_lab.tracing.traced import Traced, TracedKernel


def draw_trace(found: Traced) -> Figure:
    """Return the roofline of what was launched: a point for each kernel and configuration.

    Of an autotuned kernel of a dry run it is the configuration that is predicted to be fastest.

    Raises InputError where no kernel has a time, FLOPs and bytes that are known.
    """
    from occupancy_lab.plotting.roofline import draw_roofline

    gpu, kernels = _on_one_gpu(shown_kernels(found))
    times = [time for one in kernels if (time := one.time) is not None]
    basis = "measured" if any(time.measured for time in times) else "predicted"
    points = [point for one in kernels if (point := _point(one, basis)) is not None]
    if not points or gpu is None or gpu.bandwidth_gbs is None:
        refuse("there is no roofline: of no kernel time, FLOPs and bytes are known")
    caption = (
        f"Each point is a kernel by its {basis} time, as large as its share of all; roofs are the"
        f" rates of {gpu.title}'s data sheet."
    )
    if len(points) < len(kernels):
        without = count(len(kernels) - len(points), "kernel")
        caption += f" {without} without FLOPs or a known time left out."
    title = f"{count(len(points), 'kernel')} on {gpu.title}, {basis}"
    roofs = [*_roofs(kernels, gpu)]
    return draw_roofline(points, roofs, gpu.bandwidth_gbs * 1e9, title=title, caption=caption)


def _on_one_gpu(shown: Sequence[TracedKernel]) -> tuple[Gpu | None, list[TracedKernel]]:
    """Return the GPU of most kernels, and those on it."""
    gpus = {
        one.calculation.gpu.key: one.calculation.gpu for one in shown if one.calculation is not None
    }
    keys = Counter(one.calculation.gpu.key for one in shown if one.calculation is not None)
    if not keys:
        return None, []
    key = keys.most_common(1)[0][0]
    on_it = [one for one in shown if one.calculation and one.calculation.gpu.key == key]
    return gpus[key], on_it


def _point(kernel: TracedKernel, basis: str) -> Point | None:
    """Return the launch over the most frequent grid by its time of that *basis*.

    None where it has no place in the picture.
    """
    from occupancy_lab.plotting.roofline import Point

    work, time, grid = kernel.work, kernel.time, kernel.grids[0] if kernel.grids else None
    if work is None or time is None or grid is None or kernel.elsewhere or time.basis != basis:
        return None
    of_grid = grid.measured if time.measured else grid.predicted
    dram = None if work.memory.dram_bytes is None else work.memory.dram_bytes.exact
    flops = work.counts.flops.exact
    if of_grid is None or not of_grid.launches or not flops or not dram:
        return None
    us = of_grid.us / of_grid.launches
    if not us:
        return None
    lost = "" if time.lost_us is None else f", {duration(time.lost_us)} of them lost"
    words = (
        f"{kernel.kernel}: {microseconds(us)} {time.basis}, least {cell(work.light.us)} us;"
        f" {scaled(flops / us * 1e6)}FLOP/s, {flops / dram:.3g} FLOPs a byte;"
        f" {duration(time.us)} in all{lost}"
    )
    return Point(kernel.kernel, flops / dram, flops / us * 1e6, time.us, words)


def _roofs(kernels: Sequence[TracedKernel], gpu: Gpu) -> Iterator[Roof]:
    """Return the rates of what *kernels* compute, each once, the highest first."""
    from occupancy_lab.plotting.roofline import Roof

    rates: dict[str, float | None] = {}
    for one in kernels:
        if one.work is not None:
            counts = one.work.counts
            rates |= {f"{dtype} {TENSOR}": dot_tflops(gpu, dtype) for dtype in counts.dot_flops}
            rates |= {dtype: other_tflops(gpu, dtype) for dtype in counts.other_flops}
    names: dict[float, list[str]] = {}
    for name, rate in rates.items():
        if rate is not None:
            names.setdefault(rate, []).append(name)
    for rate in sorted(names, reverse=True):
        yield Roof(" and ".join(sorted(names[rate])), rate * 1e12)
