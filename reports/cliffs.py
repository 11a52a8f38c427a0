"""Draws cliffs.svg, the README's picture: `python reports/cliffs.py` remakes it."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy import occupancy, tutorial_occupancy
from occupancy_lab.values import Resources

PICTURE = Path(__file__).with_name("cliffs.svg")
NUM_WARPS, SHARED = 8, 32
EXACT, TUTORIAL, INK = "#0072b2", "#d55e00", "#57606a"


def programs(n_regs: int) -> tuple[int, int]:
    """Return the exact number of programs per SM of an H100, and the tutorial's."""
    resources = Resources(n_regs, NUM_WARPS, SHARED)
    architecture = find_gpu("h100").architecture
    said = tutorial_occupancy(resources, architecture).programs_per_multiprocessor
    return occupancy(resources, architecture).programs_per_multiprocessor, said or 0


def draw(path: Path) -> None:
    """Write the picture to *path*, byte for byte the same every time."""
    mpl.rcParams |= {"svg.hashsalt": "occupancy-lab", "font.size": 11, "svg.fonttype": "path"}
    registers = range(16, 129)
    exact, said = zip(*map(programs, registers), strict=True)
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    axes.step(registers, said, where="post", color=TUTORIAL, lw=1.8, ls="--")
    axes.step(registers, exact, where="post", color=EXACT, lw=2.6)
    axes.annotate("the tutorial's formula", (19, 13), (25, 13.4), color=TUTORIAL)
    axes.annotate("what fits", (17, 8), (16.5, 6.9), color=EXACT, weight="bold")
    axes.annotate(
        "32 registers: 8 programs\n33 registers: 6",
        (33, 6.05),
        (46, 9.3),
        color=INK,
        arrowprops={"arrowstyle": "->", "color": INK},
    )
    axes.set(
        xlabel="registers per thread",
        ylabel="programs per SM",
        title="H100, 8 warps per program: registers cost programs in cliffs",
        xlim=(16, 128),
        ylim=(0, 16.5),
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    draw(PICTURE)
