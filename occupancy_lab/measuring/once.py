"""One launch of a kernel in a process of its own, for a profiler to look at.

`python -m occupancy_lab.measuring.once JSON`, where the JSON is what `OneLaunch.to_json` gives.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass

from occupancy_lab.kernel import load_kernel
from occupancy_lab.measuring.correctness import operands
from occupancy_lab.values import Config, Problem


@dataclass(frozen=True, slots=True)
class OneLaunch:
    """What to launch: a kernel's name or file, the matrix, the configuration, the programs."""

    kernel: str
    problem: Problem
    config: Config
    num_programs: int

    def to_json(self) -> str:
        """Return the launch as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, line: str) -> OneLaunch:
        """Return the launch of a line that `to_json` made."""
        values = json.loads(line)
        return cls(
            kernel=values["kernel"],
            problem=Problem(**values["problem"]),
            config=Config(**values["config"]),
            num_programs=values["num_programs"],
        )


def launch_once(launch: OneLaunch) -> None:
    """Run *launch* on the current GPU, on random numbers, and wait until it is done."""
    import torch

    kernel, problem = load_kernel(launch.kernel), launch.problem
    first, *others = operands(problem.rows, problem.cols, problem.dtype, kernel.operands)
    kernel.run(first, launch.config, launch.num_programs, *others)
    torch.cuda.synchronize()


if __name__ == "__main__":
    launch_once(OneLaunch.from_json(sys.argv[1]))
