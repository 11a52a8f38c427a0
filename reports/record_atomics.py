"""Records the times of atomic additions, by the number of addresses they share and their distance.

`python reports/record_atomics.py --output data/atomics-h100.csv` launches ADDITIONS on the NVIDIA
GPU at hand, with an empty L2 cache before each launch, and writes a row for each. `--predict h100`
predicts the launches in that GPU's file again, without a GPU, and renews its column predicted_us;
that needs the Triton that launched them, 3.6.
"""

from __future__ import annotations

import argparse
import itertools
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl
from record_tunes import rows_of, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from occupancy_lab.launch import Launch
    from occupancy_lab.record import Failed, Record

DATA = Path(__file__).parent / "data"
KIND = "atomics"
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


ADDITIONS = {one.__name__: one for one in (add_each, add_sums)}


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


def measure(row: Mapping[str, Any]) -> float:
    """Return the time of a launch on the GPU at hand in us."""
    import torch

    kind = getattr(torch, row["dtype"])
    x, out = (torch.ones(ROOM, device="cuda", dtype=kind) for _ in range(2))
    grid = (triton.cdiv(row["n"], BLOCK),)
    given = (x, out, row["n"], row["addresses"], row["stride"], BLOCK, row["sem"])

    def launch() -> None:
        ADDITIONS[row["kernel"]][grid](*given)

    found: float = triton.testing.do_bench(launch, warmup=5, rep=20, quantiles=(0.5,))
    return 1e3 * found


def records_of(launches: Iterable[tuple[str, Launch]], key: str) -> list[Record | Failed]:
    """Return the records of launches of functions, `file.py:function`, without launching them."""
    from occupancy_lab.asked import Asked
    from occupancy_lab.compiled_records import compile_runs, with_counts
    from occupancy_lab.compiling.compiler import Compiler
    from occupancy_lab.gpus import find_gpu
    from occupancy_lab.kernel import load_function

    gpu = find_gpu(key)
    asked = [Asked(load_function(name)[0], launch, gpu, name) for name, launch in launches]
    compiler = Compiler(None)
    return with_counts(compile_runs(asked, compiler), asked, compiler)


def read_recorded(kind: str, key: str) -> list[dict[str, Any]]:
    """Return the rows of a GPU's file with launches of a kind: "atomics", "rows"."""
    return rows_of(DATA / f"{kind}-{key}.csv")


def measure_or_predict(
    description: str | None,
    kind: str,
    columns: Sequence[str],
    measured: Callable[[], Iterable[Mapping[str, Any]]],
    predict: Callable[..., list[Record | Failed]],
    cells: Callable[[Record | Failed], dict[str, Any]],
) -> None:
    """Write what is *measured* to --output; for --predict renew the *cells* of the recorded rows.

    *predict* returns the records of the launches of rows on a GPU, without launching them.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--predict")
    asked = parser.parse_args()
    if asked.output:
        write_rows(asked.output, columns, measured())
    if asked.predict:
        known = read_recorded(kind, asked.predict)
        predicted = zip(known, predict(known, asked.predict), strict=True)
        rows = [row | cells(record) for row, record in predicted]
        write_rows(DATA / f"{kind}-{asked.predict}.csv", columns, rows)


def predicted_times(record: Record | Failed) -> dict[str, Any]:
    """Return the columns PREDICTED of a record; none without a predicted time."""
    from occupancy_lab.prediction import time_columns

    time = getattr(record, "prediction", None)
    return {} if time is None else {name: time_columns(time)[name] for name in PREDICTED}


def predict(rows: Sequence[Mapping[str, Any]], key: str) -> list[Record | Failed]:
    """Return the records of the launches of *rows* on a GPU, without launching them."""
    from occupancy_lab.arguments import Pointer
    from occupancy_lab.launch import Launch

    launches = []
    for row in rows:
        n, addresses, stride = (int(row[one]) for one in ("n", "addresses", "stride"))
        tensor = Pointer(row["dtype"], 4 * ROOM)
        constexprs = {"ADDRESSES": addresses, "STRIDE": stride, "BLOCK": BLOCK}
        constexprs["SEM"] = row["sem"]
        launch = Launch((tensor, tensor, n), constexprs, (-(-n // BLOCK),))
        launches.append((f"{__file__}:{row['kernel']}", launch))
    return records_of(launches, key)


read = partial(read_recorded, KIND)


def main() -> None:
    """Measure or predict."""
    measure_or_predict(
        __doc__,
        KIND,
        COLUMNS,
        lambda: [row | {"us": measure(row)} for row in launches()],
        predict,
        lambda record: {"predicted_us": predicted_times(record).get("predicted_us")},
    )


if __name__ == "__main__":
    main()
