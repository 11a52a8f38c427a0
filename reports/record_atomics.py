"""Records the times of atomic additions, by the number of addresses they share and their distance.

`python reports/record_atomics.py --output data/atomics-h100.csv` times the launches of both kernels
on the NVIDIA GPU at hand, with an empty L2 cache before each, and writes a row for each. `--predict
h100` predicts the launches in that GPU's file again, without a GPU, and renews its column
predicted_us; that needs the Triton that launched them, 3.6.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from record_files import DATA, rows_of, write_rows

from occupancy_lab.arguments import Pointer
from occupancy_lab.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from occupancy_lab.record import Failed, Record

    Row = Mapping[str, Any]

PREDICTED = ("predicted_us", "predicted_low_us", "predicted_high_us")
COLUMNS = ("kernel", "n", "addresses", "stride", "dtype", "sem", "predicted_us", "us")
SEMS = ("acq_rel", "relaxed")
"""The memory semantics of the additions: Triton's default, and that of torch.compile's kernels."""
BLOCK, ROOM = 1024, 1 << 26
"""Elements of a program, and of each tensor."""


@triton.jit
def add_each(
    x,
    out,
    n,
    ADDRESSES: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    SEM: tl.constexpr,
):
    """Add each element to one of ADDRESSES elements, which are STRIDE apart, in rotation."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.atomic_add(out + (at % ADDRESSES) * STRIDE, values, mask=at < n, sem=SEM)


@triton.jit
def add_sums(
    x,
    out,
    n,
    ADDRESSES: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    SEM: tl.constexpr,
):
    """Add each block's sum to one of ADDRESSES elements, which are STRIDE apart, in rotation."""
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + at, mask=at < n, other=0), axis=0)
    tl.atomic_add(out + (block % ADDRESSES) * STRIDE, total, sem=SEM)


def launches() -> Iterator[dict[str, Any]]:
    """Yield the launches as rows without times."""
    addresses = (1, 2, 8, 32, 64, 1024, 1 << 16, 1 << 20)
    each = ("add_each", (1 << 20, 1 << 23), addresses, (1, 8, 32))
    sums = ("add_sums", (1 << 22, 1 << 26), (1, 16, 256, 4096), (1,))
    dtypes = ("float32", "int32")
    for sem, dtype, (kernel, *choices) in itertools.product(SEMS, dtypes, (each, sums)):
        for n, addresses, stride in itertools.product(*choices):
            found = {"kernel": kernel, "n": n, "addresses": addresses, "stride": stride}
            yield found | {"dtype": dtype, "sem": sem}


def predicted_times(record: Record | Failed) -> dict[str, Any]:
    """Return the columns PREDICTED of a record; none without a predicted time."""
    from occupancy_lab.prediction import time_columns

    time = getattr(record, "prediction", None)
    return {} if time is None else {name: time_columns(time)[name] for name in PREDICTED}


def on_gpu(kernel: Any, launch: Launch) -> Callable[[], None]:
    """Return a launch of *kernel* on the GPU at hand, with tensors of ones."""

    def tensor(dtype: torch.dtype, size: int) -> torch.Tensor:
        return torch.ones(size // dtype.itemsize, device="cuda", dtype=dtype)

    given = [
        tensor(getattr(torch, one.dtype), one.storage_bytes) if isinstance(one, Pointer) else one
        for one in launch.arguments
    ]
    return lambda: kernel[launch.grid](*given, **launch.keywords)


def median_us(call: Callable[[], None]) -> float:
    """Return how long a launch takes on the GPU at hand."""
    return 1e3 * float(triton.testing.do_bench(call, warmup=5, rep=20, quantiles=(0.5,)))


@dataclass(frozen=True)
class Recorder:
    """Launches of the kernels of a file that are measured on a GPU and predicted without one."""

    file: str
    kind: str
    columns: Sequence[str]
    launches: Callable[[], Iterable[Row]]
    launch_of: Callable[[Row], tuple[str, Launch]]
    """Returns the name of a row's kernel and its launch."""
    measure: Callable[[Iterable[Row]], Iterable[Row]] | None = None
    """Returns rows with what was measured, if that is more than the times of `on_gpu`."""
    cells: Callable[[Record | Failed], dict[str, Any]] = predicted_times
    """Returns the columns that a prediction renews."""

    def read(self, key: str) -> list[dict[str, Any]]:
        """Return the rows of a GPU's file."""
        return rows_of(DATA / f"{self.kind}-{key}.csv")

    def predict(self, rows: Iterable[Row], key: str) -> list[Record | Failed]:
        """Return the records of the launches of *rows* on a GPU, without launching them."""
        from occupancy_lab.asked import Asked
        from occupancy_lab.compiled_records import compile_runs, with_counts
        from occupancy_lab.compiling.compiler import Compiler
        from occupancy_lab.gpus import find_gpu
        from occupancy_lab.kernel import load_function

        gpu, asked = find_gpu(key), []
        for kernel, launch in map(self.launch_of, rows):
            name = f"{self.file}:{kernel}"
            asked.append(Asked(load_function(name)[0], launch, gpu, name))
        compiler = Compiler(None)
        return with_counts(compile_runs(asked, compiler), asked, compiler)

    def timed(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield *rows* with the times of their launches on the GPU at hand."""
        from occupancy_lab.kernel import load_function

        for row in rows:
            kernel, launch = self.launch_of(row)
            function, _ = load_function(f"{self.file}:{kernel}")
            yield {**row, "us": median_us(on_gpu(function, launch))}

    def main(self, description: str | None) -> None:
        """Write measured launches to --output; for --predict renew the recorded ones' cells."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--output", type=Path)
        parser.add_argument("--predict")
        asked = parser.parse_args()
        if asked.output:
            write_rows(asked.output, self.columns, (self.measure or self.timed)(self.launches()))
        if asked.predict:
            known = self.read(asked.predict)
            predicted = zip(known, self.predict(known, asked.predict), strict=True)
            rows = [row | self.cells(record) for row, record in predicted]
            write_rows(DATA / f"{self.kind}-{asked.predict}.csv", self.columns, rows)


def launch_of(row: Row) -> tuple[str, Launch]:
    """Return the kernel and the launch of *row*."""
    n, addresses, stride = (int(row[one]) for one in ("n", "addresses", "stride"))
    tensor = Pointer(row["dtype"], 4 * ROOM)
    constexprs = {"ADDRESSES": addresses, "STRIDE": stride, "BLOCK": BLOCK, "SEM": row["sem"]}
    return row["kernel"], Launch((tensor, tensor, n), constexprs, (-(-n // BLOCK),))


ATOMICS = Recorder(
    *(__file__, "atomics", COLUMNS, launches, launch_of),
    cells=lambda record: {"predicted_us": predicted_times(record).get("predicted_us")},
)

if __name__ == "__main__":
    ATOMICS.main(__doc__)
