"""`occupancy-lab trace` in its own process, a program to trace, and the grids of a trace."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from occupancy_lab.tracing.traced import TracedKernel

TOOL = [sys.executable, "-m", "occupancy_lab", "trace"]


def command(what: str) -> list[str]:
    """Return the command that makes tracing/traced_program.py do *what*."""
    return [sys.executable, str(Path(__file__).with_name("tracing") / "traced_program.py"), what]


def run(
    asked: Sequence[str], options: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command under the tool."""
    return subprocess.run(
        [*TOOL, *options, "--", *asked],
        capture_output=True,
        check=False,
        env=os.environ | environment,
    )


def grids(kernel: TracedKernel) -> dict[Any, int]:
    """Return the launches by grid."""
    return {one.grid: one.launches for one in kernel.grids}
