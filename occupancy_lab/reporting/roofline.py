"""Rooflines: launches of a trace, an explanation or a file of rows under the roofs of their GPU."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import refuse
from occupancy_lab.explaining.advice import worth_showing
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.facts import setting
from occupancy_lab.explaining.neighbours import predicted_us
from occupancy_lab.explaining.variants import varying
from occupancy_lab.gpus import Gpu, find_gpu
from occupancy_lab.plotting.roofline import (
    Frame,
    Point,
    Roof,
    area,
    draw_roofline,
    roof_lines,
)
from occupancy_lab.record import Record
from occupancy_lab.text.words import (
    cell,
    count,
    duration,
    listed,
    microseconds,
    prediction_words,
    scaled,
)
from occupancy_lab.tracing.traced import Traced, TracedKernel
from occupancy_lab.work.speed_of_light import TENSOR, dot_tflops, other_tflops

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from occupancy_lab.tracing.script_runs import ScriptExplanation

Row = Mapping[str, Any]


def draw_trace(found: Traced) -> Figure:
    """Return the roofline of a trace, with a point for each kernel and configuration.

    An autotuned kernel of a dry run has the configuration that is predicted to be fastest.

    Raises InputError if no kernel has known times, FLOPs and bytes.
    """
    gpu, kernels = _on_one_gpu(found.shown)
    times = [time for one in kernels if (time := one.time) is not None]
    basis = "measured" if any(time.measured for time in times) else "predicted"
    points = [point for one in kernels if (point := _point(one, basis)) is not None]
    if not points or gpu is None or gpu.bandwidth_gbs is None:
        refuse("there is no roofline: no kernel has a known time, FLOPs and bytes")
    caption = (
        f"Each point is a kernel at its {basis} time; its size is its share of the total time;"
        f" roofs are the rates of {gpu.title}'s data sheet."
    )
    if len(points) < len(kernels):
        without = count(len(kernels) - len(points), "kernel")
        caption += f" {without} without FLOPs or a known time left out."
    title = f"{count(len(points), 'kernel')} on {gpu.title}, {basis}"
    roofs = _roofs([one.record for one in kernels if one.record is not None], gpu)
    return draw_roofline(points, roofs, gpu.bandwidth_gbs * 1e9, title=title, caption=caption)


def _on_one_gpu(shown: Sequence[TracedKernel]) -> tuple[Gpu | None, list[TracedKernel]]:
    """Return the GPU with the most kernels, and these kernels."""
    found: dict[str, tuple[Gpu, list[TracedKernel]]] = {}
    for one in shown:
        if one.calculation is not None:
            gpu = one.calculation.gpu
            found.setdefault(gpu.key, (gpu, []))[1].append(one)
    return max(found.values(), key=lambda pair: len(pair[1]), default=(None, []))


def _point(kernel: TracedKernel, basis: str) -> Point | None:
    """Return the point of a kernel over its longest grid; None without a time of this *basis*."""
    record, time, grid = kernel.record, kernel.time, kernel.longest
    if record is None or time is None or grid is None or kernel.elsewhere or time.basis != basis:
        return None
    of_grid = grid.measured if time.measured else grid.predicted
    if of_grid is None or not of_grid.launches:
        return None
    us, light = of_grid.us / of_grid.launches, record.speed_of_light
    least = cell(None if light is None else light.exact_us)
    lost = "" if time.lost_us is None else f", {duration(time.lost_us)} of them lost"
    words = f"{kernel.kernel}: {microseconds(us)} {time.basis}, least {least} us"
    all_words = f"; {duration(time.us)} in total{lost}"
    return _placed(kernel.kernel, _place_of(record, us), time.us, words, all_words)


def _place_of(record: Record, us: float) -> tuple[float, float] | None:
    """Return the FLOPs per byte and FLOPs per second of a launch; None if not known."""
    memory, counts = record.memory, record.counts
    dram = None if memory is None or memory.dram_bytes is None else memory.dram_bytes.exact
    flops = None if counts is None else counts.flops.exact
    return (flops / dram, flops / us * 1e6) if flops and dram and us else None


def _placed(
    name: str, place: tuple[float, float] | None, us: float, words: str, more: str = ""
) -> Point | None:
    """Return the point at a *place* with a total of *us*; None if *place* is None."""
    if place is None:
        return None
    per_byte, rate = place
    words = f"{words}; {scaled(rate)}FLOP/s, {per_byte:.3g} FLOPs a byte{more}"
    return Point(name, per_byte, rate, us, words)


def check_one_gpu(keys: Sequence[str]) -> None:
    """Raise InputError if an explanation to be drawn is for several GPUs."""
    if len(keys) > 1:
        refuse(f"--plot draws one GPU, and these are {listed(keys)}: name one with --gpu")


def draw_explanation(found: Explanation | ScriptExplanation) -> Figure:
    """Return the roofline of an explanation on one GPU, by predicted times.

    There is a point for each configuration, or for the only launch and its neighbours. Several
    launch lines of a program are drawn as those of a trace.

    Raises InputError for several GPUs, or if no launch has known times, FLOPs and bytes.
    """
    if not isinstance(found, Explanation):
        check_one_gpu([one.gpu.key for one in found.traces])
        if len(found.runs) != 1:
            return draw_trace(found.traces[0].trace.found)
        (found,) = found.runs
    named = [*_named(found)]
    gpus = {record.gpu.key: record.gpu for _, record in named}
    check_one_gpu([*gpus])
    points = [point for name, one in named if (point := _point_of(name, one)) is not None]
    gpu = next(iter(gpus.values()), None)
    if not points or gpu is None or gpu.bandwidth_gbs is None:
        refuse("there is no roofline: no launch has a known time, FLOPs and bytes")
    knobs = [] if found.is_one_launch else varying([one.settings for one in found.records])
    by = f", named by {', '.join(knobs)}" if knobs else ""
    caption = (
        f"Each point is a launch at its predicted time{by}; roofs are the rates of {gpu.title}'s"
        " data sheet."
    )
    if len(points) < len(named):
        without = f"{len(named) - len(points)} of {len(named)} launches"
        caption += f" {without} are left out, without FLOPs or a predicted time."
    roofs = _roofs([record for _, record in named], gpu)
    title = f"{named[0][1].kernel} on {gpu.title}, predicted"
    return draw_roofline(points, roofs, gpu.bandwidth_gbs * 1e9, title=title, caption=caption)


def _named(explained: Explanation) -> Iterator[tuple[str, Record]]:
    """Return the launches of an explanation with names, the fastest first.

    A single launch comes before its neighbours.
    """
    if explained.is_one_launch:
        for case in explained.cases:
            yield "as launched", case.record
            near = [(one.words, one.record) for one in worth_showing(case) if not one.reason]
            found = [(words, record) for words, record in near if record is not None]
            yield from sorted(found, key=lambda pair: predicted_us(pair[1]))
        return
    knobs = varying([record.settings for record in explained.records])
    for record in sorted(explained.records, key=predicted_us):
        yield ", ".join(setting(record.settings, knob) for knob in knobs), record


def _point_of(name: str, record: Record) -> Point | None:
    """Return the point of a launch at its predicted time; None if anything is not known."""
    prediction = record.prediction
    if prediction is None:
        return None
    words = f"{name}: {prediction_words(prediction)} predicted"
    return _placed(name, _place_of(record, prediction.us), 1.0, words)


def _roofs(records: Sequence[Record], gpu: Gpu) -> list[Roof]:
    counted = [one.counts for one in records if one.counts is not None]
    dots = {dtype for counts in counted for dtype in counts.dot_flops}
    others = {dtype for counts in counted for dtype in counts.other_flops}
    return roofs_of(gpu, dots, others)


def roofs_of(gpu: Gpu, dots: Iterable[str], others: Iterable[str]) -> list[Roof]:
    """Return the data sheet's distinct rates as roofs, the highest first.

    A roof is named after the dtypes computed at its rate: those of *dots* in tensor cores, and
    *others*. Dtypes without a known rate are left out.
    """
    named: dict[float, tuple[set[str], set[str]]] = {}
    for place, (dtypes, rate_of) in enumerate([(dots, dot_tflops), (others, other_tflops)]):
        for dtype in dtypes:
            if (rate := rate_of(gpu, dtype)) is not None:
                named.setdefault(rate, (set(), set()))[place].add(dtype)
    found = []
    for rate in sorted(named, reverse=True):
        in_cores, outside = named[rate]
        names = [f"{listed(sorted(in_cores))} {TENSOR}"] if in_cores else []
        names += [listed(sorted(outside))] if outside else []
        found.append(Roof(" and ".join(names), rate * 1e12))
    return found


LAUNCH = (
    *("predicted_us", "us", "flops", "intensity", "dram_read_bytes", "dram_written_bytes"),
    *("launches", "total_us", "expected", "grids", "lost_of", "num_programs"),
)
"""The columns of a launch's work and time that the page of `explore` uses."""
DOTS = ("fp8", "fp16", "bf16", "tf32", "fp32", "fp64", "i8")
"""The dtypes of matrix multiplications with rates in data sheets, as Triton names them."""
OTHERS = ("fp16", "bf16", "fp32", "fp64")
"""The dtypes of all other operations."""
NAMING = ("rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages", "constexprs")
"""The columns that name a row's point beside its kernel."""
LEAST, MOST = 1e-30, 1e30
"""The limits of drawn numbers: anything beyond would leave no room for other points."""
MOST_TICKS = 6
CSS_PIXELS = 96 / 72
"""CSS pixels per typographic point."""


def rooflines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return for each GPU of *rows* a picture of measured and one of predicted times.

    A picture is left out without known rates, or without a row that has FLOPs, bytes and a time.
    """
    found = []
    for key in dict.fromkeys(row["gpu"] for row in rows):
        gpu, of_gpu = find_gpu(key), {at: row for at, row in enumerate(rows) if row["gpu"] == key}
        pictures = [_picture(gpu, basis, of_gpu) for basis in ("measured", "predicted")]
        found += [picture for picture in pictures if picture is not None]
    return found


def _us(row: Row, basis: str) -> float | None:
    """Return the time of the launch whose FLOPs and bytes the row has; None if not known.

    A trace's mean time over several grids, or its time on another GPU, is not such a time.
    """
    if basis == "predicted":
        return row.get("predicted_us")
    other = row.get("grids", 1) > 1 or ("grids" in row and row.get("lost_of") != "measured")
    return None if other else row.get("us")


def _place(row: Row, basis: str) -> tuple[float, float] | None:
    """Return the FLOPs per byte and FLOPs per second of a row; None if not known."""
    us, flops, per_byte = _us(row, basis), row.get("flops"), row.get("intensity")
    read, written = row.get("dram_read_bytes"), row.get("dram_written_bytes")
    if flops and per_byte is None and read is not None and written is not None:
        per_byte = flops / (read + written) if read + written else None
    if not us or not flops or not per_byte:
        return None
    found = (per_byte, flops / us * 1e6)
    return found if all(LEAST < one < MOST for one in found) else None


def _all_us(row: Row, basis: str) -> float:
    """Return the total time of a row's launches; 0 for a configuration that is not launched."""
    if not row.get("expected", True):
        return 0.0
    total = row.get("total_us") if basis == "measured" else None
    us = _us(row, basis) or 0.0
    return float(us * row["launches"] if total is None else total)


def _points(rows: Mapping[int, Row], basis: str, *, counted: bool) -> dict[int, Point]:
    """Return the points by the number of their row, those with the most time first.

    All have the same size unless the launches of every row are *counted*.
    """
    found = {}
    for at, row in rows.items():
        known = ", ".join(f"{name} {row[name]}" for name in NAMING if name in row)
        us = microseconds(_us(row, basis) or 0.0)
        words = f"{row['kernel']} ({known}): {us} {basis}"
        all_us = _all_us(row, basis) if counted else 1.0
        point = _placed(row["kernel"], _place(row, basis), all_us, words)
        if point is not None:
            found[at] = point
    return dict(sorted(found.items(), key=lambda pair: pair[1].us, reverse=True))


def _picture(gpu: Gpu, basis: str, rows: Mapping[int, Row]) -> dict[str, Any] | None:
    # All rates are drawn, because no column has the dtypes of a row's FLOPs. Multiplications that
    # are as fast without tensor cores have no roof of their own.
    dots = [dtype for dtype in DOTS if dot_tflops(gpu, dtype) != other_tflops(gpu, dtype)]
    counted = all("launches" in row for row in rows.values())
    points, roofs = _points(rows, basis, counted=counted), roofs_of(gpu, dots, OTHERS)
    if not points or not roofs or gpu.bandwidth_gbs is None:
        return None
    bandwidth = gpu.bandwidth_gbs * 1e9
    frame = Frame.around([*points.values()], roofs, bandwidth)
    total = sum(point.us for point in points.values())
    sized = "; its size is its share of the total time" if counted else ""
    if not all(row.get("expected", True) for row in rows.values()):
        sized += " (0 for a configuration that is not launched)"
    left = len(rows) - len(points)
    without = f" {count(left, 'row')} without FLOPs, bytes or a {basis} time left out." * bool(left)
    return {
        "gpu": gpu.key,
        "basis": basis,
        "title": f"{count(len(points), 'row')} on {gpu.title} by {basis} times",
        "caption": (
            f"Each point is a launch at its {basis} time{sized}; roofs are the rates of"
            f" {gpu.title}'s data sheet for every dtype.{without}"
        ),
        "frame": dataclasses.asdict(frame),
        "ticks": [
            [(at, f"{at:g}") for at in _powers(frame.left, frame.right)],
            [(at, scaled(at)) for at in _powers(frame.bottom, frame.top)],
        ],
        "lines": [dataclasses.asdict(line) for line in roof_lines(roofs, bandwidth, frame)],
        "points": [
            {
                "row": at,
                "place": (point.intensity, point.rate),
                "radius": area(point.us, total) ** 0.5 / 2 * CSS_PIXELS,
                "name": point.name,
                "words": point.words,
            }
            for at, point in points.items()
        ],
    }


def _powers(low: float, high: float) -> list[float]:
    """Return the powers of ten from *low* to *high*, evenly thinned out to MOST_TICKS."""
    places = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    return [10.0**place for place in places[:: -(-len(places) // MOST_TICKS) or 1]]
