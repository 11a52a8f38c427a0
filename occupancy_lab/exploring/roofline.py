"""The rows of a file under the roofs of their GPUs: all numbers and words of the pictures."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from occupancy_lab.gpus import find_gpu
from occupancy_lab.text.words import count, microseconds, scaled
from occupancy_lab.work.memory import dot_tflops, other_tflops

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.plotting.roofline import Point, Roof

    Row = Mapping[str, Any]

LAUNCH = (
    *("predicted_us", "us", "flops", "intensity", "dram_read_bytes", "dram_written_bytes"),
    *("launches", "total_us", "expected", "grids", "lost_of", "num_programs"),
)
"""The columns of a launch's work and time that the page takes of a row."""
DOTS = ("fp8", "fp16", "bf16", "tf32", "fp32", "fp64", "i8")
"""The dtypes of products of matrices that data sheets have rates of, as Triton names them."""
OTHERS = ("fp16", "bf16", "fp32", "fp64")
"""Those of everything else."""
LEAST, MOST = 1e-30, 1e30
"""Between these are the numbers of every launch: what is beyond leaves no room for other points."""
MOST_TICKS = 6
CSS_PIXELS = 96 / 72
"""Of a point, of which an inch has 72."""


def rooflines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a picture for each GPU of *rows* by measured times, and one by predicted ones.

    A GPU without known rates has none, and none by times that no row with FLOPs and bytes has.
    """
    found = []
    for key in dict.fromkeys(row["gpu"] for row in rows):
        gpu, of_gpu = find_gpu(key), {at: row for at, row in enumerate(rows) if row["gpu"] == key}
        pictures = [_picture(gpu, basis, of_gpu) for basis in ("measured", "predicted")]
        found += [picture for picture in pictures if picture is not None]
    return found


def _us(row: Row, basis: str) -> float | None:
    """Return the time of the launch that the row's FLOPs and bytes are of.

    None too for a trace's mean over several grids, and for its time on another GPU than the row's,
    above whose speed of light nothing is known to be lost.
    """
    if basis == "predicted":
        return row.get("predicted_us")
    other = row.get("grids", 1) > 1 or ("grids" in row and row.get("lost_of") != "measured")
    return None if other else row.get("us")


def _place(row: Row, basis: str) -> tuple[float, float] | None:
    """Return the FLOPs per byte and FLOPs a second of a row; None where one is not known."""
    us, flops, per_byte = _us(row, basis), row.get("flops"), row.get("intensity")
    read, written = row.get("dram_read_bytes"), row.get("dram_written_bytes")
    if flops and per_byte is None and read is not None and written is not None:
        per_byte = flops / (read + written) if read + written else None
    if not us or not flops or not per_byte:
        return None
    found = (per_byte, flops / us * 1e6)
    return found if all(LEAST < one < MOST for one in found) else None


def _all_us(row: Row, basis: str) -> float:
    """Return the time of all launches of a row; 0 for a configuration that is not launched."""
    if not row.get("expected", True):
        return 0.0
    total = row.get("total_us") if basis == "measured" else None
    us = _us(row, basis) or 0.0
    return float(us * row["launches"] if total is None else total)


def _name(row: Row) -> str:
    names = ("rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages", "constexprs")
    known = [f"{name} {row[name]}" for name in names if name in row]
    return f"{row['kernel']} ({', '.join(known)})"


def _roofs(gpu: Gpu) -> list[Roof]:
    """Return all rates of the data sheet, as no column says which dtypes the FLOPs of a row are of.

    Products of matrices that are as fast without tensor cores have no roof of their own.
    """
    from occupancy_lab.reporting.roofline import roofs_of

    dots = [dtype for dtype in DOTS if dot_tflops(gpu, dtype) != other_tflops(gpu, dtype)]
    return roofs_of(gpu, dots, OTHERS)


def _points(rows: Mapping[int, Row], basis: str) -> dict[int, Point]:
    """Return the point of each row that has one, by the row's number; those of most time first.

    Unless all rows say how often they are launched, all points have the same time.
    """
    from occupancy_lab.plotting.roofline import Point

    shared = _are_counted(rows)
    found = {}
    for at, row in rows.items():
        if (place := _place(row, basis)) is None:
            continue
        per_byte, rate = place
        words = (
            f"{_name(row)}: {microseconds(_us(row, basis) or 0.0)} {basis};"
            f" {scaled(rate)}FLOP/s, {per_byte:.3g} FLOPs a byte"
        )
        all_us = _all_us(row, basis) if shared else 1.0
        found[at] = Point(row["kernel"], per_byte, rate, all_us, words)
    return dict(sorted(found.items(), key=lambda pair: pair[1].us, reverse=True))


def _are_counted(rows: Mapping[int, Row]) -> bool:
    """Return whether each row says how often it is launched."""
    return all("launches" in row for row in rows.values())


def _picture(gpu: Gpu, basis: str, rows: Mapping[int, Row]) -> dict[str, Any] | None:
    """Return all of a picture of *rows* on *gpu*; None where no point or no roof is known."""
    from occupancy_lab.plotting.roofline import Frame, area, roof_lines

    points, roofs = _points(rows, basis), _roofs(gpu)
    if not points or not roofs or gpu.bandwidth_gbs is None:
        return None
    bandwidth = gpu.bandwidth_gbs * 1e9
    frame = Frame.around([*points.values()], roofs, bandwidth)
    total = sum(point.us for point in points.values())
    return {
        "gpu": gpu.key,
        "basis": basis,
        "title": f"{count(len(points), 'row')} on {gpu.title} by {basis} times",
        "caption": _caption(gpu, basis, rows, len(points)),
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
                "radius": area(point.us / total if total else 0.0) ** 0.5 / 2 * CSS_PIXELS,
                "name": point.name,
                "words": point.words,
            }
            for at, point in points.items()
        ],
    }


def _caption(gpu: Gpu, basis: str, rows: Mapping[int, Row], drawn: int) -> str:
    sized = ", as large as its share of the time of all" if _are_counted(rows) else ""
    if not all(row.get("expected", True) for row in rows.values()):
        sized += " (none of a configuration that is not launched)"
    left = len(rows) - drawn
    without = f" {count(left, 'row')} without FLOPs, bytes or a {basis} time left out." * bool(left)
    return (
        f"Each point is a launch by its {basis} time{sized}; roofs are the rates of {gpu.title}'s"
        f" data sheet for every dtype.{without}"
    )


def _powers(low: float, high: float) -> list[float]:
    """Return the powers of ten from *low* to *high*, evenly fewer where there are many."""
    places = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    return [10.0**place for place in places[:: -(-len(places) // MOST_TICKS) or 1]]
