"""Launches the softmaxes of kernels/ many times beside other work on the same GPU; run it by hand.

    python tests/stress_softmax.py --launches 10000
    compute-sanitizer --tool memcheck python tests/stress_softmax.py --launches 1 --small
    compute-sanitizer --tool racecheck python tests/stress_softmax.py --launches 1 --small

Each launch finishes with torch's result, or raises; a launch that hangs is ended by the time limit.
"""

import argparse
import faulthandler
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from records import compile_resources, plan_of

from occupancy_lab import find_gpu
from occupancy_lab.compiling import Store
from occupancy_lab.kernel import own_kernel
from occupancy_lab.occupancy import occupancy
from occupancy_lab.values import Problem

KERNELS = ("softmax_pieces", "softmax_tile", "softmax_cooperative")
SMALL = ((3, 129), (9, 781), (5, 8200), (4, 20001))
LARGE = ((64, 40000), (33, 131072), (7, 300001), (300, 9001))


def cases(
    shapes: tuple[tuple[int, int], ...], dtypes: Iterable[torch.dtype]
) -> Iterator[tuple[Any, ...]]:
    """Return every launch: its name, a function that makes it, and its expected result."""
    gpu = find_gpu("h200")
    for rows, cols in shapes:
        for dtype in dtypes:
            x = torch.randn(rows, cols, device="cuda").to(dtype)
            problem = Problem(rows, cols, str(dtype).removeprefix("torch."))
            expected = torch.softmax(x.double(), 1)
            for name in KERNELS:
                kernel = own_kernel(name)
                for config in kernel.configs(problem)[:: 4 if shapes is LARGE else 2]:
                    found = compile_resources(kernel, problem, config, gpu.target, Store(None))
                    programs = occupancy(found, gpu.architecture).programs_per_multiprocessor
                    plan = plan_of(kernel, problem, config, programs, gpu.multiprocessors)
                    yield name, kernel, x, config, plan.num_programs, expected


def main() -> None:
    """Launch, compare, and print how many results were right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--launches", type=int, default=10_000)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seconds", type=float, default=300.0)
    asked = parser.parse_args()
    faulthandler.dump_traceback_later(asked.seconds + 60, exit=True)
    dtypes = (torch.float32, torch.bfloat16)
    launches = list(cases(SMALL if asked.small else LARGE, dtypes))
    if not asked.small:
        launches = [one for one in launches if one[0] == "softmax_cooperative"]
    side, a, b = torch.cuda.Stream(), *torch.randn(2, 2048, 2048, device="cuda")
    done = wrong = 0
    start = time.monotonic()
    while done < asked.launches and time.monotonic() - start < asked.seconds:
        for name, kernel, x, config, num_programs, expected in launches:
            if not asked.small:
                with torch.cuda.stream(side):
                    for _ in range(3):
                        torch.mm(a, b)
                        b.clone().add_(1.0)
            y = kernel.run(x, config, num_programs)
            done += 1
            if asked.small or done % 37 == 0:
                error = float((y.double() - expected).norm() / expected.norm())
                if not error < 2 * torch.finfo(x.dtype).eps:
                    wrong += 1
                    print("wrong", name, tuple(x.shape), x.dtype, config, error)
            if done >= asked.launches and not asked.small:
                break
    torch.cuda.synchronize()
    seconds = time.monotonic() - start
    print(f"{done} launches of {len(launches)} kinds in {seconds:.1f} s, {wrong} wrong")


if __name__ == "__main__":
    main()
