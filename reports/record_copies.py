"""Records how many cycles narrow copies from the L1 cache to shared memory take on an NVIDIA GPU.

`python reports/record_copies.py --output data/narrow-copies-h200.csv` draws 80 patterns of the
places that a warp copies from and to, 4 or 8 bytes a thread (cp.async.ca), and times each: one
program repeats the copy, of 4 and of 8 warps, and the cache has all that it copies. Needs torch
2.9.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import TYPE_CHECKING

from record_files import table_bytes, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SOURCE = """
extern "C" __global__ void copies(
    const char* src, const int* from, const int* to, long long* cycles, int times) {
  __shared__ __align__(128) char shared[32768];
  int lane = threadIdx.x % 32;
  bool copying = from[lane] >= 0;
  const char* source = src + (copying ? from[lane] : 0);
  unsigned target;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }"
      : "=r"(target) : "l"(shared));
  target += to[lane];
  long long begin = 0;
  for (int round = 0; round < 2; round++) {
    __syncthreads();
    begin = clock64();
    for (int time = 0; copying && time < times; time++)
      #pragma unroll
      for (int copy = 0; copy < COPIES; copy++)
        asm volatile("cp.async.ca.shared.global [%0], [%1], SIZE;" :: "r"(target), "l"(source));
    asm volatile("cp.async.wait_all;");
    __syncthreads();
  }
  if (threadIdx.x == 0) *cycles = clock64() - begin;
}
"""
DRAW = random.Random(11)  # noqa: S311 - the same patterns each time
ROOM, COPIES, TIMES, REPEATED = 16384, 8, (64, 192), 5
"""Bytes that patterns lie in, copies of an iteration, iterations of two runs, and runs of each."""


def rows_of_source(size: int) -> list[int]:
    """Return places of 1 to 16 rows with strides that were drawn."""
    per, stride = 32 // DRAW.choice((1, 2, 4, 8, 16)), DRAW.randrange(1, 400) * size
    step = DRAW.choice((1, 1, 2, 3, 4)) * size
    return [(lane // per * stride + lane % per * step) % ROOM for lane in range(32)]


def drawn(size: int) -> list[int]:
    """Return 32 different places."""
    return [one * size for one in DRAW.sample(range(ROOM // size), 32)]


def transposed(size: int) -> tuple[list[int], list[int]]:
    """Return places of rows, and where their columns lie as rows, some of them swizzled."""
    per, stride = DRAW.choice((4, 8, 16, 32)), DRAW.choice((128, 512, 1024, 2048, 3128, 264))
    swizzle, row = DRAW.choice((0, 16)), DRAW.choice((128, 256, 136))
    places = [(lane % per, lane // per * size) for lane in range(32)]
    source = [(lane // per * stride + lane % per * size) % ROOM for lane in range(32)]
    return source, [one * row + (at ^ one % 8 * swizzle) for one, at in places]


def patterns() -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield bytes of a thread, and from and to where each thread copies; one that rests from -1."""
    for size in (4, 8):
        for _ in range(10):
            yield size, [DRAW.randrange(ROOM // size) * size for _ in range(32)], drawn(size)
            few = DRAW.sample(range(32), DRAW.choice((8, 16, 24)))
            source = [DRAW.randrange(ROOM // size) * size for _ in range(32)]
            yield size, [-1 if lane in few else source[lane] for lane in range(32)], drawn(size)
            apart = DRAW.choice((1, 2, 3, 8, 16, 33, 36)) * size
            yield size, rows_of_source(size), [lane * apart for lane in range(32)]
            yield size, *transposed(size)


def timed(kernel: Callable[..., None], source: Sequence[int], target: Sequence[int]) -> float:
    """Return the cycles from one copy of a warp to the next."""
    import torch

    src = torch.zeros(ROOM * 2, dtype=torch.int8, device="cuda")
    places = [torch.tensor(one, dtype=torch.int32, device="cuda") for one in (source, target)]
    cycles, found = torch.zeros(1, dtype=torch.int64, device="cuda"), []
    for warps in (4, 8):
        least = []
        for times in TIMES:
            runs = []
            for _ in range(REPEATED):
                kernel((1, 1, 1), (32 * warps, 1, 1), args=[src, *places, cycles, times])
                runs.append(cycles.item())
            least.append(min(runs))
        found.append((least[1] - least[0]) / ((TIMES[1] - TIMES[0]) * COPIES * warps))
    return min(found)


def main() -> None:
    """Time the patterns and write a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    output = parser.parse_args().output

    import torch

    compiled = {}
    for size in (4, 8):
        text = SOURCE.replace("SIZE", str(size)).replace("COPIES", str(COPIES))
        compiled[size] = torch.cuda._compile_kernel(text, "copies")  # noqa: SLF001
    rows = [
        {
            "bytes": size,
            "source": " ".join(map(str, source)),
            "target": " ".join(map(str, target)),
            "cycles": f"{timed(compiled[size], source, target):.3f}",
        }
        for size, source, target in patterns()
    ]
    write_whole(output, table_bytes(rows[0], rows))


if __name__ == "__main__":
    main()
