"""reports/record_trace.py on GPUs that are made up; torchrun, its processes and the tool are real.

`python ranks_program.py --output FOLDER --only torchrun` does what the report does, where
tests/tracing and reports are in PYTHONPATH.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import record_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

program = record_trace.PROGRAMS["torchrun"]
record_trace.PROGRAMS["torchrun"] = dataclasses.replace(program, steps=9)
record_trace.SCRIPT = __file__
record_trace.gpus = lambda: 2  # type: ignore[assignment]
record_trace.events = dict
LAUNCHES: dict[str, list[float]] = {}
"""What the profiler would see: the time of each launch by its kernel."""


@contextlib.contextmanager
def profiled(kernels: dict[str, list[float]]) -> Iterator[None]:
    """Put the launches of the block into *kernels*."""
    LAUNCHES.clear()
    yield
    kernels.update(LAUNCHES)


def make_up() -> None:
    """Have Triton and torch find a GPU that is made up."""
    import torch
    import traced_program
    import triton

    class Launcher(traced_program.Launcher):
        def __init__(self, _source: Any, metadata: Any) -> None:
            self.name = metadata.name

        def __call__(self, *_args: Any) -> None:
            LAUNCHES.setdefault(self.name, []).append(40.0)

    triton.runtime.driver.active.launcher_cls = Launcher
    devices: list[int] = [0]
    driver: Any = triton.runtime.driver.active
    driver.get_current_device = lambda: devices[0]
    torch.cuda.set_device = lambda device: devices.__setitem__(0, int(device))
    torch.cuda.init = torch.cuda.synchronize = lambda *_: None
    torch.cuda.get_device_name = lambda *_: "NVIDIA H200"


record_trace.profiled = profiled

if __name__ == "__main__":
    if "--program" in sys.argv:
        make_up()
    record_trace.main()
