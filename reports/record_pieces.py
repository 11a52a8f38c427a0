"""Records how long launches take that read or write short pieces of device memory.

`python reports/record_pieces.py --output data/pieces-h200.csv` draws 128 launches: rows that are
gathered, scattered or added by an index, copies with strides, transposes, and four kernels that
store parts of sectors or lines: rows an element at a time, tiles in interleaved parts, narrow
columns of tiles, and rows whose length is no multiple of a vector's. It measures each on
the NVIDIA GPU at hand with an empty L2 cache, and counts with Nsight Compute what device memory
moves. `--predict h200` predicts the launches in that GPU's file again, without a GPU, and renews
the columns that begin with predicted; that needs the Triton that launched them, 3.6.
"""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl
from record_atomics import PREDICTED, Recorder, median_us, on_gpu, predicted_times
from work_ncu import read_counts

from occupancy_lab.arguments import Pointer
from occupancy_lab.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from occupancy_lab.record import Failed, Record

    Row = Mapping[str, Any]

MOVED = ("dram_read_bytes", "dram_written_bytes")
COLUMNS = (
    *("kernel", "dtype", "x", "index", "y", "arguments", "programs", *PREDICTED, "us"),
    *(f"predicted_{one}" for one in MOVED),
    *MOVED,
)
"""x, index and y are the elements of tensors."""
SIZES = {"float16": 2, "float32": 4, "float64": 8}
READ, ROOM = 1 << 28, 1 << 29
"""About the bytes that a launch reads, and the bytes of the largest tensor."""
COUNTED = ("dram__bytes_read.sum", "dram__bytes_write.sum")


@triton.jit
def gather(x, index, y, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Copy rows that an index names."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)[None, :]
    values = tl.load(x + tl.load(index + row)[:, None] * WIDTH + column)
    tl.store(y + row[:, None] * WIDTH + column, values)


@triton.jit
def scatter(x, index, y, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Copy rows to where an index says."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)[None, :]
    values = tl.load(x + row[:, None] * WIDTH + column)
    tl.store(y + tl.load(index + row)[:, None] * WIDTH + column, values)


@triton.jit
def add(x, index, y, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Add rows to those that an index names."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)[None, :]
    values = tl.load(x + row[:, None] * WIDTH + column)
    tl.atomic_add(y + tl.load(index + row)[:, None] * WIDTH + column, values)


@triton.jit
def copy(x, y, FROM: tl.constexpr, TO: tl.constexpr, BLOCK: tl.constexpr):
    """Copy elements that are FROM apart to where they are TO apart."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at * TO, tl.load(x + at * FROM))


@triton.jit
def transpose(x, y, m, n, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ALONG: tl.constexpr):
    """Transpose an m x n matrix in tiles, along its rows first if ALONG is 1, else its columns."""
    row = tl.program_id(ALONG) * HEIGHT + tl.arange(0, HEIGHT)[:, None]
    column = tl.program_id(1 - ALONG) * WIDTH + tl.arange(0, WIDTH)[None, :]
    is_inside = (row < m) & (column < n)
    tile = tl.load(x + row * n + column, mask=is_inside)
    tl.store(y + column * m + row, tile, mask=is_inside)


@triton.jit
def steps(x, y, STRIDE: tl.constexpr, STEPS: tl.constexpr, APART: tl.constexpr):
    """Store STEPS elements of rows, APART from each other, a row for each of 256 threads."""
    row, value = tl.program_id(0) * 256 + tl.arange(0, 256), tl.load(x)
    for step in range(STEPS):
        tl.store(y + row * STRIDE + step * APART, value)


@triton.jit
def parts(x, y, PARTS: tl.constexpr):
    """Store 1024 elements that are PARTS apart, then those beside them, until all are stored."""
    at, value = tl.program_id(0) * 1024 + tl.arange(0, 1024), tl.load(x)
    for part in tl.static_range(PARTS):
        tl.store(y + at * PARTS + part, value)


@triton.jit
def tiles(x, y, ROWS: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    """Store a matrix of COLUMNS columns of tiles, one column after the other."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(y + row * WIDTH * COLUMNS + column, tl.load(x))


@triton.jit
def lengths(x, y, n, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Store the first n elements of a row."""
    column = tl.arange(0, BLOCK)
    tl.store(y + tl.program_id(0) * STRIDE + column, tl.load(x), mask=column < n)


MOVERS = {
    one.__name__: one
    for one in (gather, scatter, add, copy, transpose, steps, parts, tiles, lengths)
}


def launches() -> Iterator[dict[str, Any]]:
    """Yield the launches as rows without times; the same ones each time."""
    draw = random.Random(29)  # noqa: S311

    def row(kernel: str, dtype: str, elements: Sequence[int], programs: int, **numbers: int) -> Any:
        words = " ".join(f"{name}={number}" for name, number in numbers.items())
        tensors = dict(zip(("x", "index", "y"), elements, strict=True))
        launch = {"arguments": words, "programs": programs}
        return {"kernel": kernel, "dtype": dtype, **tensors, **launch}

    for _ in range(16):
        for kernel in ("gather", "scatter", "add"):
            dtype = draw.choice(("float32", "float32", "float16"))
            width = 1 << draw.randrange(10)
            rows = min(READ // SIZES[dtype] // width, 1 << 22) >> draw.randrange(3)
            block = max(1 << draw.randrange(9, 12), width) // width
            table = (ROOM // SIZES[dtype]) >> draw.randrange(6)
            x, y = (table, rows * width) if kernel == "gather" else (rows * width, table)
            yield row(kernel, dtype, (x, rows, y), rows // block, WIDTH=width, ROWS=block)
    for _ in range(12):
        dtype = draw.choice((*SIZES,))
        apart = [1, draw.choice((2, 3, 5, 8, 12, 16, 24, 32, 50, 64))]
        draw.shuffle(apart)
        count = min(ROOM // SIZES[dtype] // max(apart), 1 << 25) >> draw.randrange(2)
        x, y = (count * one for one in apart)
        strides = {"FROM": apart[0], "TO": apart[1]}
        yield row("copy", dtype, (x, 0, y), count // 1024, **strides, BLOCK=1024)
    for _ in range(20):
        dtype = draw.choice((*SIZES,))
        m, n = (draw.randrange(2000, 9000) // 16 * 16 for _ in range(2))
        height, width = (1 << draw.randrange(4, 7) for _ in range(2))
        programs = -(-m // height) * -(-n // width)
        sides = {"m": m, "n": n, "HEIGHT": height, "WIDTH": width, "ALONG": draw.randrange(2)}
        yield row("transpose", dtype, (m * n, 0, m * n), programs, **sides)
    for _ in range(12):
        dtype, size = draw.choice((("float32", 4), ("float16", 2)))
        bytes_ = draw.choice((24, 64, 256)) << 20
        apart = draw.choice((1, 1, 3, 32 // size))
        stride = draw.choice((32, 63, 64, 200, 256)) * 4 // size
        number = max(min(draw.choice((1, 8, 16, 64)), stride // apart), 1)
        programs = bytes_ // size // stride // 256
        numbers = {"STRIDE": stride, "STEPS": number, "APART": apart}
        yield row("steps", dtype, (1, 0, programs * 256 * stride), programs, **numbers)
        number = 1 << draw.randrange(1, 5)
        programs = bytes_ // size // number // 1024
        yield row("parts", dtype, (1, 0, programs * 1024 * number), programs, PARTS=number)
        width, columns = 1 << draw.randrange(1, 6), 1 << draw.randrange(1, 4)
        height = 2048 // width
        high = bytes_ // size // (height * width * columns)
        elements, sides = high * 2048 * columns, {"ROWS": height, "WIDTH": width}
        yield row("tiles", dtype, (1, 0, elements), high * columns, **sides, COLUMNS=columns)
        n = draw.randrange(400, 4000)
        stride = draw.choice((n, -(-n // 16) * 16, -(-n // 64) * 64))
        programs, block = bytes_ // size // stride, triton.next_power_of_2(n)
        lengths_ = {"n": n, "STRIDE": stride, "BLOCK": block}
        yield row("lengths", dtype, (1, 0, programs * stride), programs, **lengths_)


def grid_of(row: Row) -> tuple[int, ...]:
    """Return the grid of a launch."""
    given = arguments_of(row)
    if row["kernel"] == "tiles":
        return int(row["programs"]) // given["COLUMNS"], given["COLUMNS"]
    if row["kernel"] != "transpose":
        return (int(row["programs"]),)
    high, wide = -(-given["m"] // given["HEIGHT"]), -(-given["n"] // given["WIDTH"])
    return (high, wide) if given["ALONG"] == 0 else (wide, high)


def arguments_of(row: Row) -> dict[str, int]:
    """Return the numbers that a launch gives its kernel, by name."""
    pairs = (one.split("=") for one in row["arguments"].split())
    return {name: int(number) for name, number in pairs}


def prepared(row: Row) -> Callable[[], None]:
    """Return a launch of the kernel of *row* on the GPU at hand."""
    import torch

    kernel, launch = launch_of(row)
    rows = int(row["index"])
    if rows:
        x, _, y = launch.arguments
        table = int(row["x" if kernel == "gather" else "y"]) // arguments_of(row)["WIDTH"]
        draw = torch.Generator("cuda").manual_seed(rows)
        places = torch.randperm(max(table, rows), device="cuda", generator=draw)[:rows]
        launch = replace(launch, arguments=(x, places % table, y))
    return on_gpu(MOVERS[kernel], launch)


def measure(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield *rows* with the times on the GPU at hand and the bytes of its device memory."""
    found = [{**row, "us": median_us(prepared(row))} for row in rows]
    command = [
        *("ncu", "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"),
        *("--kernel-name", f"regex:^({'|'.join(MOVERS)})$", "--metrics", ",".join(COUNTED)),
        *(sys.executable, __file__, "--launch"),
    ]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    for row, counted in zip(found, read_counts(printed), strict=True):
        moved = (counted["counts"][one] for one in COUNTED)
        yield {**row, **dict(zip(MOVED, moved, strict=True))}


def launch_of(row: Row) -> tuple[str, Launch]:
    """Return the kernel and the launch of *row*."""
    x, y = (Pointer(row["dtype"], SIZES[row["dtype"]] * int(row[one])) for one in "xy")
    tensors = [x, Pointer("int64", 8 * int(row["index"])), y] if int(row["index"]) else [x, y]
    numbers = arguments_of(row)
    scalars = [numbers.pop(one) for one in ("m", "n") if one in numbers]
    return row["kernel"], Launch((*tensors, *scalars), numbers, grid_of(row))


def predicted_columns(record: Record | Failed) -> dict[str, Any]:
    """Return the columns of a record that begin with predicted."""
    times, memory = predicted_times(record), getattr(record, "memory", None)
    if not times or memory is None:
        return {}
    written = memory.written_within_bytes or memory.dram_written_bytes
    return {
        **times,
        **{
            f"predicted_{name}": round(one.most)
            for name, one in zip(MOVED, (memory.dram_read_bytes, written), strict=True)
        },
    }


PIECES = Recorder(
    *(__file__, "pieces", COLUMNS, launches, launch_of, measure, predicted_columns),
)

if __name__ == "__main__":
    if sys.argv[1:] == ["--launch"]:  # each once, for Nsight Compute
        for one in launches():
            prepared(one)()
    else:
        PIECES.main(__doc__)
