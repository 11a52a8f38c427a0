"""The command line on a machine that seems to have an H200, whose launches are invented.

`python faked.py ARGUMENT...` takes the arguments of `occupancy-lab`. Another process invents its
measurements, as another process makes the real ones: times that no two launches share, after
FAKED_SECONDS.
"""

import itertools
import os
import sys
import time
from pathlib import Path

from occupancy_lab.measuring.process import Batch
from occupancy_lab.values import Conditions, Measurement
from occupancy_lab.workers.child import Child, serve
from occupancy_lab.workers.messages import from_line, to_line

CONDITIONS = Conditions(
    device="NVIDIA H200",
    date="2026-11-21",
    driver=None,
    torch="2.11.0",
    triton="3.6.0",
    timer="device events",
    l2="flushed",
)
_start = time.time() % 1e5
_calls = itertools.count(1)


def answer(line: str) -> str:
    """Return invented measurements of the batch *line*."""
    batch = from_line(Batch, line)
    time.sleep(float(os.environ.get("FAKED_SECONDS", "0.1")))
    return to_line([_measured(batch.runs) for _ in batch.launches])


def _measured(runs: int) -> Measurement:
    us = _start + next(_calls) / 7
    return Measurement("measured", CONDITIONS, us=us, us_low=us, us_high=us, runs=runs)


def main() -> None:
    """Serve in a separate process."""
    serve(answer)


class _FakedChild(Child):
    """Runs the server of this file in place of the measuring one."""

    def __init__(self, _server: str, *, environment: dict[str, str]) -> None:
        super().__init__(
            "faked", environment=environment | {"PYTHONPATH": str(Path(__file__).parent)}
        )


def _run() -> None:
    """Run the command line on a machine that seems to have an H200."""
    import torch

    from occupancy_lab import cli, inputs
    from occupancy_lab.gpus import find_gpu
    from occupancy_lab.gpus.present import PresentGpu
    from occupancy_lab.measuring import process

    gpu = find_gpu("h200")
    here = (PresentGpu(gpu, gpu.title, {}, 0, gpu, uuid=os.environ.get("FAKED_UUID", "1")),)
    inputs.present_gpus = process.present_gpus = lambda: here
    torch.cuda.is_available = lambda: True
    process.Child = _FakedChild
    cli.main(sys.argv[1:])


if __name__ == "__main__":
    _run()
