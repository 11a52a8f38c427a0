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
    FAINT,
    TUTORIAL,
    Placer,
    are_alike,
    describe,
    outline,
    styled,
)
from occupancy_lab.reporting.launches import problem_words, summary_of
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import count, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from vendors import Vendors

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record


@dataclass(frozen=True, slots=True)
class Steps:
    """One kernel on one GPU with each num_stages, the fewest first."""

    gpu: Gpu
    num_warps: int
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
        """Programs that fit per multiprocessor."""
        return tuple(record.occupancy.programs_per_multiprocessor for record in self.records)

    @property
    def elements(self) -> int:
        """Elements of a row that one thread (lane) holds at once."""
        threads = self.num_warps * self.gpu.architecture.warp_size
        return max(self.records[0].config.block_size // threads, 1)

    @property
    def shared_is_the_same(self) -> bool:
        """Whether num_stages does not touch shared memory."""
        return len(set(self.shared)) == 1

    @property
    def shared_holds_rows(self) -> bool:
        """Whether each stage after the first takes a row of BLOCK_SIZE more in shared memory."""
        return all(
            after.resources.shared - before.resources.shared
            == (after.config.num_stages - before.config.num_stages) * _row_bytes(after)
            for before, after in itertools.pairwise(self.records)
        )

    @property
    def more_regs(self) -> float:
        """Registers per thread with the most stages over those with the fewest."""
        return self.n_regs[-1] / self.n_regs[0]


@dataclass(frozen=True, slots=True)
class Stages:
    """Every kernel with every num_stages, and those of one problem and num_warps to be shown."""

    every: tuple[Steps, ...]
    shown: tuple[Steps, ...]

    def of(self, vendor: str) -> tuple[Steps, ...]:
        """Return the kernels on one vendor's GPUs."""
        return tuple(steps for steps in self.every if steps.gpu.vendor == vendor)


def make_stages(vendors: Vendors, num_warps: int) -> Stages:
    """Return what num_stages does; shown is the widest problem with *num_warps*, a kernel a GPU.

    A kernel that a GPU does not hold with every num_stages is left out.
    """
    widest = max(vendors.problems, key=lambda problem: problem.cols)
    every: list[Steps] = []
    shown: list[Steps] = []
    for problem, warps, gpu in itertools.product(vendors.problems, vendors.num_warps, vendors.gpus):
        found = [vendors.at(gpu, problem, warps, stages) for stages in vendors.num_stages]
        held = tuple(record for record in found if record is not None)
        if len(held) < len(found):
            continue
        every.append(Steps(gpu, warps, held))
        if (problem, warps) == (widest, num_warps):
            shown.append(every[-1])
    return Stages(tuple(every), tuple(shown))


def _row_bytes(record: Record) -> int:
    return record.config.block_size * record.problem.item_bytes


def the_stages(stages: Stages) -> Chapter:
    """Say what num_stages takes on either vendor's GPUs."""
    said = "\n".join(_stages_sentence(vendor, stages.of(vendor)) for vendor in _vendors(stages))
    record = stages.shown[0].records[0]
    kernel = f"{problem_words(record.problem)}, num_warps {record.config.num_warps}"
    numbers = [str(one.config.num_stages) for one in stages.shown[0].records]
    table = Table(
        ("GPU", "", *(f"num_stages {number}" for number in numbers)),
        tuple(row for steps in stages.shown for row in _steps_rows(steps)),
        f"The kernels of the picture, {kernel}:",
    )
    words = [_shown_words(steps) for steps in stages.shown]
    name = f"Registers and shared memory over num_stages, {kernel}: {'; '.join(words)}"
    picture = Picture("num-stages", name, partial(draw_stages, stages.shown))
    return Chapter(
        "What num_stages does",
        (
            "A kernel here is that of a GPU, a problem and a num_warps, with every num_stages.",
            said,
            picture,
            table,
            _elements_sentence(stages.shown),
        ),
    )


def _elements_sentence(shown: Sequence[Steps]) -> str:
    held: dict[int, list[str]] = {}
    for steps in shown:
        held.setdefault(steps.elements, []).append(steps.gpu.title)
    said = [f"{number} on {listed(titles)}" for number, titles in held.items()]
    return f"Elements of a row that one thread (lane) holds at once: {'; '.join(said)}."


def _vendors(stages: Stages) -> tuple[str, ...]:
    return tuple(dict.fromkeys(steps.gpu.vendor for steps in stages.every))


def _stages_sentence(vendor: str, every: Sequence[Steps]) -> str:
    last = every[0].records[-1].config.num_stages
    return f"- **{vendor}**: " + " ".join(_stages_clauses(every, last))


def _stages_clauses(every: Sequence[Steps], last: int) -> Iterator[str]:
    word, total = every[0].gpu.architecture.shared_word, len(every)
    same = sum(steps.shared_is_the_same for steps in every)
    rows = sum(steps.shared_holds_rows for steps in every)
    if rows:
        yield (
            f"for {rows} of {count(total, 'kernel')} each further stage takes one more row, of"
            f" BLOCK_SIZE elements, of {word}."
        )
    if same:
        yield (
            f"for {same} of {count(total, 'kernel')} the {word} is the same with every num_stages:"
            " the rows in flight are in registers."
        )
    more = summary_of(steps.more_regs for steps in every)
    first = count(every[0].records[0].config.num_stages, "stage")
    yield (
        f"With {count(last, 'stage')} a kernel has {more.least:.2f} to {more.most:.2f} times the"
        f" registers that it has with {first}, {more.median:.2f} times at the median."
    )
    fewer = sum(steps.programs[-1] < steps.programs[0] for steps in every)
    yield f"Then {fewer} of {total} have fewer programs on a multiprocessor than with {first}."


def _steps_rows(steps: Steps) -> Iterator[tuple[str, ...]]:
    mp = steps.gpu.architecture
    yield (steps.gpu.title, f"{mp.register_word}s", *map(str, steps.n_regs))
    yield ("", f"{mp.shared_word}, B", *map(str, steps.shared))
    yield ("", f"programs, {mp.multiprocessor_word}", *map(str, steps.programs))


def _shown_words(steps: Steps) -> str:
    registers, shared = (_range(numbers) for numbers in (steps.n_regs, steps.shared))
    return f"{steps.gpu.title} {registers} registers and {shared} B"


def _range(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    return str(first) if first == last else f"{first} to {last}"


WIDTH, HEIGHT = 9.0, 4.2
"""Inches."""
COLOURS: Mapping[str, str] = {"AMD": TUTORIAL, "NVIDIA": EXACT}
KIB = 1024


def draw_stages(shown: Sequence[Steps]) -> Figure:
    """Return a figure of one kernel: a panel of its registers and one of its shared memory."""
    record = shown[0].records[0]
    with styled():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        registers, shared = figure.subplots(1, 2)
        _draw(registers, [(steps, steps.n_regs) for steps in shown])
        registers.set_ylabel("registers per thread (VGPRs per lane)")
        _draw(shared, [(steps, [size / KIB for size in steps.shared]) for steps in shown])
        shared.set_ylabel("shared memory (LDS) per program, KiB")
        kernel = f"{problem_words(record.problem)}, num_warps {record.config.num_warps}"
        title = f"What num_stages takes: {kernel}"
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=11)
        figure.draw_without_rendering()
        for axes in (registers, shared):
            _label(axes, shown)
    describe(figure, title)
    return figure


def _draw(axes: Axes, lines: Sequence[tuple[Steps, Sequence[float]]]) -> None:
    for steps, amounts in lines:
        stages = [record.config.num_stages for record in steps.records]
        colour = COLOURS[steps.gpu.vendor]
        style: dict[str, Any] = {"color": colour, "markersize": 4, "linewidth": 1.8}
        axes.plot(stages, amounts, "o-", clip_on=False, zorder=3, **style)
    axes.set_xticks(stages)
    axes.set_ylim(bottom=0)
    axes.margins(y=0.12)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("num_stages")
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def _label(axes: Axes, shown: Sequence[Steps]) -> None:
    """Write the GPUs beside the lines, those of lines that lie on each other together."""
    curves = [outline(axes, line) for line in axes.lines]
    groups: list[list[int]] = []
    for place, curve in enumerate(curves):
        vendor = shown[place].gpu.vendor
        alike = (
            group
            for group in groups
            if shown[group[0]].gpu.vendor == vendor and are_alike(curves[group[0]], curve)
        )
        group = next(alike, None)
        if group is None:
            groups.append([place])
        else:
            group.append(place)
    placer = Placer(axes, [curves[group[0]] for group in groups])
    for group in groups:
        first = shown[group[0]].gpu
        words = "\n".join(shown[place].gpu.title for place in group)
        placer.at_curve(words, curves[group[0]], color=COLOURS[first.vendor])
