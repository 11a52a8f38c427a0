"""One launch of a kernel in a process of its own, for a profiler to look at.

Its argument is what `OneLaunch.to_json` gives.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from occupancy_lab.kernel import load_kernel
from occupancy_lab.measuring.correctness import operands
from occupancy_lab.values import Config, Problem  # noqa: TC001 - from_line reads them
from occupancy_lab.workers.messages import from_line, to_line


@dataclass(frozen=True, slots=True)
class OneLaunch:
    """What to launch: a kernel's name or file, the matrix, the configuration, the programs."""

    kernel: str
    problem: Problem
    config: Config
    num_programs: int

    def to_json(self) -> str:
        """Return the launch as one line of JSON."""
        return to_line(self)

    @classmethod
    def from_json(cls, line: str) -> OneLaunch:
        """Return the launch of a line that `to_json` made."""
        launch: OneLaunch = from_line(cls, line)
        return launch


def launch_once(launch: OneLaunch) -> None:
    """Run *launch* on the current GPU, on random numbers, and wait until it is done."""
    import torch

    kernel, problem = load_kernel(launch.kernel), launch.problem
    first, *others = operands(problem.rows, problem.cols, problem.dtype, kernel.operands)
    kernel.run(first, launch.config, launch.num_programs, *others)
    torch.cuda.synchronize()


def main() -> None:
    """Run the launch that the command line holds."""
    launch_once(OneLaunch.from_json(sys.argv[1]))
