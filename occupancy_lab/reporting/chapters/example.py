"""The worked example: the tutorial's configuration on one problem, compared with others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from occupancy_lab.explaining.limits import held_in_short
from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.plotting.style import (
    EXACT,
    INK,
    TUTORIAL,
    Placer,
    describe,
    head,
    lined,
    outline,
    styled,
)
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.source import (
    COPY,
    MEASURED,
    PROBLEM,
    ROW_KERNEL,
    Name,
    Source,
    TimeWords,
    Variant,
    config_words,
    gbs_of,
    of_problem,
    row_name,
    rows_of,
    span_words,
    tutorial_name,
    variants_of,
)
from occupancy_lab.sweeping.recorded import row_problem
from occupancy_lab.text.document import Section, Table, literal
from occupancy_lab.text.words import cell, change, count, microseconds, percent
from occupancy_lab.values import Config, Problem


@dataclass(frozen=True, slots=True)
class Example:
    """The tutorial's launch for one problem, and all configurations that have a time."""

    problem: Problem
    times: TimeWords
    """The words for the times of the variants."""
    variants: Mapping[Name, Variant]
    tutorial: Variant
    """The tutorial's configuration, launched with as many programs as fit."""
    predicted_best: Variant | None
    """None if nothing can be predicted."""
    copy_us: float | None
    """The measured time of a plain copy of the matrix; None if it was not measured."""
    triton: str

    def found(self, kernel: str, num_warps: int, num_stages: int) -> Variant | None:
        """Return *kernel* with the tutorial's BLOCK_SIZE; None if it has no time."""
        config = Config(self.tutorial.config.block_size, num_warps, num_stages)
        return self.variants.get((kernel, config))

    @property
    def over_stages(self) -> tuple[Variant, ...]:
        """The tutorial's configuration with every number of stages, in ascending order."""
        stages = sorted({config.num_stages for _, config in self.variants})
        own = self.tutorial.config
        found = (self.found(TUTORIAL_KERNEL, own.num_warps, number) for number in stages)
        return tuple(filter(None, found))

    @property
    def num_warps(self) -> tuple[int, ...]:
        """All values of num_warps that have a time."""
        return tuple(sorted({config.num_warps for _, config in self.variants}))

    def over_warps(self, kernel: str, num_stages: int) -> tuple[Variant, ...]:
        """Return *kernel* with every number of warps, in ascending order."""
        found = (self.found(kernel, number, num_stages) for number in self.num_warps)
        return tuple(filter(None, found))

    def fastest(self, kernel: str | None = None) -> Variant:
        """Return the fastest variant of all, or of *kernel*."""
        found = (one for one in self.variants.values() if kernel in {None, one.kernel})
        return min(found, key=lambda variant: variant.us)


def make_example(source: Source) -> Example | None:
    """Return the example for PROBLEM, or else for the first problem with the required rows.

    Those are the tutorial's configuration and the same with one stage. None if no problem has both.
    """
    own = source.planned[source.planned["kernel"] == TUTORIAL_KERNEL]
    for problem in dict.fromkeys((PROBLEM, *map(row_problem, own.to_dict("records")))):
        kernel, config = tutorial_name(problem, source.gpu)
        variants = variants_of(source, problem)
        if {(kernel, config), (kernel, dataclasses.replace(config, num_stages=1))} <= set(variants):
            predicted = rows_of(source.predictions, problem).to_dict("records")
            best = min(predicted, key=lambda row: float(row["predicted_us"]), default=None)
            copies = source.providers
            if not copies.empty:
                copies = copies[of_problem(copies, problem) & (copies["provider"] == COPY)]
            return Example(
                problem,
                source.times,
                variants,
                variants[kernel, config],
                None if best is None else variants[row_name(best)],
                None if copies.empty else float(copies.iloc[-1]["us"]),
                str(own["triton_version"].iloc[0]),
            )
    return None


TITLE = "A worked example"


def the_example(example: Example | None) -> Chapter:
    """Return the chapter that explains one launch by its numbers, and what would be faster."""
    if example is None:
        words = "Left out: no problem was measured with the tutorial's configuration and 1 stage."
        return Chapter(TITLE, (words,))
    problem, own = example.problem, example.tutorial
    asked = f"--rows {problem.rows} --cols {problem.cols} --dtype {problem.dtype}"
    setting = (
        f"{problem.words} as Triton {literal(example.triton)} compiled it, with BLOCK_SIZE"
        f" {own.config.block_size}. {held_in_short(own.calculation)}. `occupancy-lab explain"
        f" {asked} --gpu {own.calculation.gpu.key}` shows the calculation, and where time goes."
    )
    best = example.fastest()
    picture = Picture(
        "example",
        f"{example.times.word.capitalize()} time over num_warps:"
        f" {microseconds(own.us)} for the tutorial's {config_words(own.kernel, own.config)},"
        f" {microseconds(best.us)} for the fastest, {config_words(best.kernel, best.config)}",
        partial(draw_example, example),
    )
    return Chapter(
        f"{TITLE}: {problem.cols} columns, {count(own.config.num_warps, 'warp')},"
        f" {count(own.config.num_stages, 'stage')}",
        (
            setting,
            Section("Costs and gains of num_stages", (_stages(example),), _verdict(example)),
            Section("Gains of occupancy and warps", (), tuple(_warps_sentences(example))),
            picture,
            Section("What to launch instead", (_choices(example),)),
        ),
    )


def _stages(example: Example) -> Table:
    mp = example.tutorial.calculation.architecture.multiprocessor_word
    headers = (
        *("num_stages", "registers per thread", "shared memory, B", f"programs per {mp}"),
        *("occupancy", f"{example.times.word} us", "against 1 stage"),
    )
    one = example.over_stages[0]
    rows = tuple(
        (
            str(variant.config.num_stages),
            str(variant.calculation.resources.n_regs),
            str(variant.calculation.resources.shared),
            str(variant.calculation.occupancy.programs_per_multiprocessor),
            percent(variant.occupancy),
            cell(variant.us),
            change(variant.us / one.us - 1.0),
        )
        for variant in example.over_stages
    )
    return Table(headers, rows)


def _verdict(example: Example) -> tuple[str, ...]:
    """Say whether num_stages gains more than it costs, if the times can tell."""
    one, own = example.over_stages[0], example.tutorial
    resources = own.calculation.resources
    if own == one or (example.times is not MEASURED and not resources.async_copies):
        return ()
    verdict = f"it costs {'more' if own.us > one.us else 'less'} than it gains"
    low, high = sorted((one.us, own.us))
    if high <= low * (1.0 + example.times.alike):
        verdict = "the times are too close to say whether it costs more than it gains"
    words = (
        f"num_stages {own.config.num_stages} takes {microseconds(own.us)}, {example.times.word},"
        f" against {microseconds(one.us)} with num_stages 1, and {resources.shared} B of shared"
        f" memory against {one.calculation.resources.shared} B: {verdict}."
    )
    return (words,)


def _warps_sentences(example: Example) -> Iterator[str]:
    grid = [one for (kernel, _), one in example.variants.items() if kernel == TUTORIAL_KERNEL]
    highest = max(one.occupancy for one in grid)
    full = [one.us for one in grid if one.occupancy == highest]
    less = [one.us for one in grid if one.occupancy < highest]
    take = example.times.take
    yield (
        f"Of {count(len(grid), 'configuration')} of {TUTORIAL_KERNEL}, {len(full)} have the highest"
        f" occupancy, {percent(highest)}, and {take} {_times(full)}."
        + (f" The other {len(less)} {take} {_times(less)}." if less else "")
    )
    if less and min(less) < max(full):
        yield "So occupancy alone does not say which is the fastest."
    own = example.tutorial
    other = min(
        example.over_warps(own.kernel, own.config.num_stages), key=lambda one: one.instructions or 0
    )
    if own.instructions and other.instructions and own.instructions > other.instructions:
        yield (
            "Every warp executes the whole loop for its share of a row, including reduction and"
            f" barriers: {count(own.config.num_warps, 'warp')} issue {own.instructions}"
            f" instructions per row, and {count(other.config.num_warps, 'warp')}"
            f" {other.instructions}."
        )


def _times(times: Sequence[float]) -> str:
    return span_words(microseconds(min(times)), microseconds(max(times)))


def _choices(example: Example) -> Table:
    """Return a table of the tutorial's launch and what to launch instead."""
    own = example.tutorial

    def times(us: float) -> tuple[str, str, str]:
        return cell(us), f"{gbs_of(example.problem, us):.0f}", change(us / own.us - 1.0)

    named = {
        "the tutorial's": own,
        "the same with 1 stage": example.over_stages[0],
        "the fastest persistent": example.fastest(TUTORIAL_KERNEL),
    }
    if example.predicted_best is not None:
        named["predicted best"] = example.predicted_best
    if example.times is MEASURED:
        named["the fastest"] = example.fastest()
    rows = [
        (name, config_words(one.kernel, one.config), *times(one.us)) for name, one in named.items()
    ]
    if example.copy_us is not None:
        rows.append(("a plain copy", "-", *times(example.copy_us)))
    headers = ("", "configuration", f"{example.times.word} us", "GB/s", "against the tutorial's")
    return Table(headers, tuple(rows))


WIDTH, HEIGHT = 7.2, 4.0
"""Inches."""
GREEN = "#117733"


def draw_example(example: Example) -> Figure:
    """Return a figure of the times over num_warps, with the tutorial's choice marked."""
    stages = example.tutorial.config.num_stages
    pipelined = example.over_warps(TUTORIAL_KERNEL, stages)
    curves = [
        (f"persistent, num_stages {stages}", TUTORIAL, pipelined),
        ("persistent, num_stages 1", EXACT, example.over_warps(TUTORIAL_KERNEL, 1)),
    ]
    if rows := example.over_warps(ROW_KERNEL, 1):
        curves.append(("one program per row", GREEN, rows))
    with styled():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        lines = []
        for label, colour, variants in curves:
            warps = [variant.config.num_warps for variant in variants]
            times = [variant.us for variant in variants]
            (line,) = axes.plot(warps, times, "o-", color=colour, markersize=4, linewidth=1.8)
            lines.append((label, colour, line))
        tutorial = example.tutorial
        mark: dict[str, Any] = {"color": INK, "markersize": 9, "markeredgecolor": "white"}
        at = tutorial.config.num_warps, tutorial.us
        axes.plot([at[0]], [at[1]], "o", zorder=4, **mark)
        axes.set_xscale("log", base=2)
        axes.set_xticks(example.num_warps, [str(number) for number in example.num_warps])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("num_warps")
        axes.set_ylabel(f"{example.times.word} us")
        lined(axes)
        title = f"Time of a launch over its warps, {example.problem.words}"
        head(figure, title)
        figure.draw_without_rendering()
        outlines = [outline(axes, line) for _, _, line in lines]
        placer = Placer(axes, outlines)
        placer.at_point(f"the tutorial's\n{at[1]:.1f} us", at, color=INK)
        for (label, colour, _), curve in zip(lines, outlines, strict=True):
            placer.at_curve(label, curve, color=colour)
    describe(figure, title)
    return figure
