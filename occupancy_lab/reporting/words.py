"""Small words that several chapters use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.kernel import Grid, load_kernel
from occupancy_lab.text.words import count

if TYPE_CHECKING:
    from occupancy_lab.values import Config, Problem


def share(number: float) -> str:
    """Return 0.0314 as "3.1%"."""
    return f"{100 * number:.1f}%"


def config_words(kernel: str, config: Config) -> str:
    """Return "softmax, 8 warps, 4 stages"; stages only where there is a loop for them."""
    words = [kernel, count(config.num_warps, "warp")]
    if load_kernel(kernel).grid is Grid.PERSISTENT:
        words.append(count(config.num_stages, "stage"))
    return ", ".join(words)


def problem_words(problem: Problem) -> str:
    """Return "4096 x 781 float32"."""
    return f"{problem.rows} x {problem.cols} {problem.dtype}"
