"""What num_stages costs on each GPU, registers or shared memory, in words and a picture."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from occupancy_lab.plotting.style import (
    EXACT,
    TUTORIAL,
    Placer,
    are_alike,
    describe,
    head,
    lined,
    outline,
    styled,
)
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.source import span_words, summary_of
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from vendors import Vendors

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.values import Problem


@dataclass(frozen=True, slots=True)
class Steps:
    """One kernel on one GPU with each num_stages, in ascending order."""

    gpu: Gpu
    problem: Problem
    num_warps: int
    num_stages: tuple[int, ...]
    records: tuple[Record, ...]

    @property
    def n_regs(self) -> tuple[int, ...]:
        """Registers per thread."""
        return tuple(record.resources.n_regs for record in self.records)

    @property
    def shared(self) -> tuple[int, ...]:
        """Shared memory per program, bytes."""
        return tuple(record.resources.shared for record in self.records)

    @property
    def programs(self) -> tuple[int, ...]:
        """Programs that fit on a multiprocessor."""
        return tuple(record.occupancy.programs_per_multiprocessor for record in self.records)


@dataclass(frozen=True, slots=True)
class Stages:
    """Every kernel with every num_stages, and those of the problem and num_warps that is shown."""

    every: tuple[Steps, ...]
    shown: tuple[Steps, ...]


def make_stages(vendors: Vendors, num_warps: int) -> Stages:
    """Return the effects of num_stages; the widest problem with *num_warps* is shown for each GPU.

    A kernel that does not fit on a GPU with every num_stages is left out.
    """
    every: list[Steps] = []
    for problem, warps, gpu in itertools.product(vendors.problems, vendors.num_warps, vendors.gpus):
        found = [vendors.at(gpu, problem, warps, stages) for stages in vendors.num_stages]
        held = tuple(record for record in found if record is not None)
        if len(held) == len(found):
            every.append(Steps(gpu, problem, warps, vendors.num_stages, held))
    widest = max(vendors.problems, key=lambda problem: problem.cols)
    shown = [one for one in every if (one.problem, one.num_warps) == (widest, num_warps)]
    return Stages(tuple(every), tuple(shown))


def the_stages(stages: Stages) -> Chapter:
    """State what num_stages takes on the GPUs of each vendor."""
    first = stages.shown[0]
    kernel = f"{first.problem.words}, num_warps {first.num_warps}"
    table = Table(
        ("GPU", "", *(f"num_stages {number}" for number in first.num_stages)),
        tuple(row for steps in stages.shown for row in _rows(steps)),
        f"The kernels of the picture, {kernel}:",
    )
    words = [
        f"{steps.gpu.title} {_ends(steps.n_regs)} registers and {_ends(steps.shared)} B"
        for steps in stages.shown
    ]
    name = f"Registers and shared memory over num_stages, {kernel}: {'; '.join(words)}"
    picture = Picture("num-stages", name, partial(draw_stages, stages.shown))
    return Chapter("What num_stages does", (picture, table))


def stages_sentences(stages: Stages) -> Iterator[str]:
    """State what more stages take for each vendor's kernels, and how many programs are left."""
    for vendor in dict.fromkeys(steps.gpu.vendor for steps in stages.every):
        every = [steps for steps in stages.every if steps.gpu.vendor == vendor]
        word, stages_tried = every[0].gpu.architecture.shared_word, every[0].num_stages
        fewest, most = stages_tried[0], stages_tried[-1]
        where = f"the {word} takes one more row for each"
        if all(len(set(steps.shared)) == 1 for steps in every):
            where = f"the {word} stays the same: the rows in flight are in registers"
        more = summary_of(steps.n_regs[-1] / steps.n_regs[0] for steps in every)
        fewer = sum(steps.programs[-1] < steps.programs[0] for steps in every)
        yield (
            f"**{vendor}**: with {most} stages {where}. A kernel then has {more.least:.2f} to"
            f" {more.most:.2f} times the registers that it has with {fewest}, {more.median:.2f}"
            f" times at the median, and {fewer} of {count(len(every), 'kernel')} have fewer"
            " programs on a multiprocessor."
        )


def _rows(steps: Steps) -> Iterator[tuple[str, ...]]:
    mp = steps.gpu.architecture
    yield (steps.gpu.title, f"{mp.register_word}s", *map(str, steps.n_regs))
    yield ("", f"{mp.shared_word}, B", *map(str, steps.shared))
    yield ("", f"programs, {mp.multiprocessor_word}", *map(str, steps.programs))


def _ends(numbers: Sequence[int]) -> str:
    return span_words(str(numbers[0]), str(numbers[-1]))


WIDTH, HEIGHT = 9.0, 4.2
"""Inches."""
COLOURS: Mapping[str, str] = {"AMD": TUTORIAL, "NVIDIA": EXACT}
KIB = 1024


def draw_stages(shown: Sequence[Steps]) -> Figure:
    """Return a figure of one kernel with a panel of its registers and one of its shared memory."""
    first = shown[0]
    with styled():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        registers, shared = figure.subplots(1, 2)
        _draw(registers, [(steps, steps.n_regs) for steps in shown])
        registers.set_ylabel("registers per thread (VGPRs per lane)")
        _draw(shared, [(steps, [size / KIB for size in steps.shared]) for steps in shown])
        shared.set_ylabel("shared memory (LDS) per program, KiB")
        title = f"What num_stages takes: {first.problem.words}, num_warps {first.num_warps}"
        head(figure, title)
        figure.draw_without_rendering()
        for axes in (registers, shared):
            _label(axes, shown)
    describe(figure, title)
    return figure


def _draw(axes: Axes, lines: Sequence[tuple[Steps, Sequence[float]]]) -> None:
    for steps, amounts in lines:
        colour = COLOURS[steps.gpu.vendor]
        style: dict[str, Any] = {"color": colour, "markersize": 4, "linewidth": 1.8}
        axes.plot(steps.num_stages, amounts, "o-", clip_on=False, zorder=3, **style)
    axes.set_xticks(lines[0][0].num_stages)
    axes.set_ylim(bottom=0)
    axes.margins(y=0.12)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("num_stages")
    lined(axes)


def _label(axes: Axes, shown: Sequence[Steps]) -> None:
    """Write the GPUs beside the lines; lines that coincide share a label."""
    groups: list[tuple[Any, str, list[str]]] = []
    for steps, line in zip(shown, axes.lines, strict=True):
        curve, vendor = outline(axes, line), steps.gpu.vendor
        alike = (one for one in groups if one[1] == vendor and are_alike(one[0], curve))
        group = next(alike, None)
        if group is None:
            groups.append((curve, vendor, [steps.gpu.title]))
        else:
            group[2].append(steps.gpu.title)
    placer = Placer(axes, [curve for curve, _, _ in groups])
    for curve, vendor, titles in groups:
        placer.at_curve("\n".join(titles), curve, color=COLOURS[vendor])
