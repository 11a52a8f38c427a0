"""The worked example: the tutorial's configuration on one problem, and what else has a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from occupancy_lab.explaining.compiled import stage_sentences
from occupancy_lab.explaining.duration import the_duration
from occupancy_lab.explaining.launch import megabytes, write_steps
from occupancy_lab.explaining.limits import answer_in_short, the_limits, the_next_step
from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.kernel import load_kernel
from occupancy_lab.occupancy.calculator import limiter_words
from occupancy_lab.occupancy.planning import traffic
from occupancy_lab.plotting.style import (
    EXACT,
    FAINT,
    INK,
    MUTED,
    TUTORIAL,
    Placer,
    describe,
    outline,
    styled,
)
from occupancy_lab.reporting.example import fastest
from occupancy_lab.reporting.launches import config_words, problem_words
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.source import MEASURED
from occupancy_lab.text.document import Section, Table
from occupancy_lab.text.words import (
    cell,
    change,
    count,
    listed,
    microseconds,
    percent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes

    from occupancy_lab.record import Record
    from occupancy_lab.reporting.example import Example
    from occupancy_lab.reporting.launches import Variant

NAIVE_KERNEL = "softmax_naive"
MOST_NAMED = 3
"""Recorded launches that a sentence names; the table has them all."""


TITLE = "A worked example"


def the_example(example: Example | None) -> Chapter:
    """Explain one launch by its numbers, and what would be faster."""
    if example is None:
        words = "Left out: no problem was measured with the tutorial's configuration and 1 stage."
        return Chapter(TITLE, (words,))
    case = example.case
    record, calculations = case.record, (case.calculation,)
    setting = (
        f"{problem_words(record.problem)}: what `occupancy-lab explain` says of it, as Triton"
        f" {record.triton_version} compiled it, with BLOCK_SIZE {record.config.block_size}."
        f" {answer_in_short(case)}{_bound_words(example)}"
    )
    return Chapter(
        f"{TITLE}: {record.problem.cols} columns, {count(record.config.num_warps, 'warp')},"
        f" {count(record.config.num_stages, 'stage')}",
        (
            setting,
            the_limits(calculations),
            the_next_step(calculations),
            _the_stages(example),
            the_duration((case,)),
            _the_warps(example),
            _picture(example),
            _the_choice(example),
            _the_naive_steps(example),
        ),
    )


def _bound_words(example: Example) -> str:
    """Tell what limits the programs from what limits the time, which is said of the same launch."""
    record = example.case.record
    if record.prediction is None:
        return ""
    return (
        f" That is what fits, by {limiter_words(example.case.calculation)}; the time is bound by"
        f" {record.prediction.bound}."
    )


def _the_stages(example: Example) -> Section:
    """Set what num_stages costs beside what it brings."""
    one = example.single_stage
    rows = tuple(
        (
            str(variant.config.num_stages),
            str(variant.resources.n_regs),
            str(variant.resources.shared),
            *_fitting(variant),
            cell(variant.us),
            change(variant.us / one.us - 1.0),
        )
        for variant in example.over_stages
    )
    mp = example.case.architecture.multiprocessor_word
    headers = (
        *("num_stages", "registers per thread", "shared memory, B", f"programs per {mp}"),
        *("occupancy", _header(example), "against 1 stage"),
    )
    return Section(
        "What num_stages costs and brings",
        (Table(headers, rows),),
        (*stage_sentences(example.case), *_stages_verdict(example)),
    )


def _stages_verdict(example: Example) -> Iterator[str]:
    one, own = example.single_stage, example.tutorial
    best = fastest(example.over_stages)
    number = best.config.num_stages
    blind = example.times is not MEASURED and not own.resources.async_copies
    if one == own or blind:
        return
    verdict = f"it costs {'more' if own.us > one.us else 'less'} than it brings"
    if example.are_alike(own, one):
        verdict = "that is too close to say that it costs more, or less, than it brings"
    yield (
        f"{example.times.word.capitalize()}, num_stages {own.config.num_stages} takes"
        f" {microseconds(own.us)} against {microseconds(one.us)} with num_stages 1"
        f" ({change(own.us / one.us - 1.0)}): {verdict}."
        + ("" if example.are_alike(own, best) else f" The fastest here is num_stages {number}.")
    )
    slowest = max(example.over_stages, key=lambda variant: variant.us)
    if slowest.config.num_stages == 2 and slowest.resources.async_copies:  # noqa: PLR2004 - of 2 stages
        yield (
            "2 stages are the slowest: a pass starts a copy at its end and waits for it at the"
            " beginning of the next, which hides nothing, and the copy is paid for."
        )


def _the_warps(example: Example) -> Section:
    """Set the warps beside each other, with what their instructions come to."""
    stages = example.tutorial.config.num_stages
    rows = tuple(_warps_row(example, number) for number in example.num_warps)
    kinds = (count(stages, "stage"), "1 stage", "one program per row")
    headers = (
        *("num_warps", "elements per thread", f"occupancy, {kinds[0]}"),
        *(f"instructions, {kind}" for kind in kinds),
        *(f"us, {kind}" for kind in kinds),
    )
    caption = (
        f"The instructions are those of all warps for a row; the times are {example.times.word}:"
    )
    table = Table(headers, rows, caption)
    return Section("What warps cost and bring", (table,), tuple(_warps_sentences(example)))


def _warps_row(example: Example, num_warps: int) -> tuple[str, ...]:
    stages, block_size = example.tutorial.config.num_stages, example.tutorial.config.block_size
    own = example.with_stages(stages, num_warps)
    kinds = (own, example.with_stages(1, num_warps), example.with_rows(num_warps))
    return (
        str(num_warps),
        f"{block_size / num_warps / example.case.architecture.warp_size:g}",
        "-" if own is None else percent(own.occupancy.occupancy),
        *("-" if one is None else str(one.instructions or "-") for one in kinds),
        *("-" if one is None else cell(one.us) for one in kinds),
    )


def _warps_sentences(example: Example) -> Iterator[str]:
    own, alike = example.tutorial, example.alike_warps
    stages = count(own.config.num_stages, "stage")
    if own in alike:
        other = min(alike, key=lambda one: one.instructions or 0)
        yield _alike_sentence(example, stages)
    else:
        other = fastest(example.over_warps)
        yield (
            f"With {stages}, {count(own.config.num_warps, 'warp')} {example.times.take}"
            f" {microseconds(own.us)} and {count(other.config.num_warps, 'warp')}"
            f" {microseconds(other.us)} ({change(other.us / own.us - 1.0)})."
        )
    if own.instructions and other.instructions and own.instructions > other.instructions:
        yield (
            f"Every warp goes through the whole loop for its share of a row, reduction and barriers"
            f" included: {count(own.config.num_warps, 'warp')} issue {own.instructions}"
            f" instructions per row, and {count(other.config.num_warps, 'warp')}"
            f" {other.instructions}."
        )


def _alike_sentence(example: Example, stages: str) -> str:
    """Say that the tutorial's warps are among the fastest, or that the times cannot tell."""
    alike = example.alike_warps
    if len(alike) == 1:
        return f"{count(alike[0].config.num_warps, 'warp')} {example.times.are} the fastest here."
    times = [one.us for one in alike]
    return (
        f"With {stages}, {listed([str(one.config.num_warps) for one in alike])} warps"
        f" {example.times.take} {microseconds(min(times))} to {microseconds(max(times))}: that"
        " is too close to say which is the fastest."
    )


def _picture(example: Example) -> Picture:
    own, best = example.tutorial, fastest(example.variants)
    return Picture(
        "example",
        f"{example.times.word.capitalize()} time over num_warps:"
        f" {microseconds(own.us)} for the tutorial's {config_words(own.kernel, own.config)},"
        f" {microseconds(best.us)} for the fastest, {config_words(best.kernel, best.config)}",
        partial(draw_example, example),
    )


def _moved(record: Record) -> int:
    return traffic(record.kernel.steps(record.problem), record.problem).total_bytes


def _the_choice(example: Example) -> Section:
    """Say what to launch instead, and what it brings."""
    own, moved = example.tutorial, _moved(example.case.record)
    beside = bool(example.recorded)
    rows = tuple(
        (
            name,
            config_words(one.kernel, one.config),
            cell(one.us),
            f"{moved / one.us / 1e3:.0f}",
            change(one.us / own.us - 1.0),
            *((cell(one.recorded_us),) if beside else ()),
        )
        for name, one in _choices(example)
    )
    headers = (
        *("", "configuration", _header(example), "GB/s", "against the tutorial's"),
        *(("recorded us",) if beside else ()),
    )
    return Section(
        "What to launch instead",
        (Table(headers, rows),),
        (*_choice_sentences(example), *_copy_sentences(example)),
    )


def _copy_sentences(example: Example) -> Iterator[str]:
    """Say what a plain copy of the matrix takes, measured if one was, and else predicted."""
    record, known = example.case.record, example.case.recorded.copy
    moved = _moved(record)
    if known is not None and known.us is not None:
        us, where = known.us, "measured" if example.times is MEASURED else "recorded"
    elif record.prediction is not None:
        us, where = moved / record.prediction.copy_gbs / 1e3, "predicted"
    else:
        return
    yield f"A plain copy of this matrix, {where}: {microseconds(us)}, {moved / us / 1e3:.0f} GB/s."


def _the_naive_steps(example: Example) -> Section:
    """Say what each step of the naive softmax moves, and what they take where that was measured."""
    record = example.case.record
    kernel = load_kernel(NAIVE_KERNEL)
    (steps,) = write_steps(kernel, record.problem, ()).sections
    moved = traffic(kernel.steps(record.problem), record.problem).total_bytes
    words = (
        f"M rows and N columns: the {count(len(steps.tables[0].rows) - 1, 'torch operation')} of"
        f" {kernel.name} move {megabytes(moved)}, {moved / _moved(record):.1f} times"
        " what a fused kernel or a plain copy does."
    )
    if example.naive is not None and example.naive.us is not None:
        where = "Measured" if example.times is MEASURED else "Recorded"
        words += f" {where}: {microseconds(example.naive.us)}."
    return Section("What the naive softmax moves", steps.tables, (words,))


def _choices(example: Example) -> Iterator[tuple[str, Variant]]:
    named = dict(_named(example))
    yield from named.items()
    for variant in example.recorded:
        if variant not in named.values():
            yield "recorded too", variant


def _named(example: Example) -> Iterator[tuple[str, Variant]]:
    yield "the tutorial's", example.tutorial
    yield "the same with 1 stage", example.single_stage
    yield "the fastest persistent", fastest(example.variants, TUTORIAL_KERNEL)
    if example.predicted_best is not None:
        yield "predicted best", example.predicted_best
    if example.times is MEASURED:
        yield "the fastest", fastest(example.variants)


def _choice_sentences(example: Example) -> Iterator[str]:
    own, best = example.tutorial, example.predicted_best
    if best is None:
        return
    chosen, gain = config_words(best.kernel, best.config), change(best.us / own.us - 1.0)
    if example.times is MEASURED:
        yield (
            f"Without a launch, the prediction chooses {chosen}: {microseconds(best.us)} when"
            f" measured ({gain})."
        )
        return
    yield (
        f"The prediction chooses {chosen}: {microseconds(best.us)} against"
        f" {microseconds(own.us)} for the tutorial's ({gain})."
    )
    if own.recorded_us is None or len(example.recorded) == 1:
        return
    others = [
        f"{microseconds(us)} for {config_words(one.kernel, one.config)}"
        f" ({change(us / own.recorded_us - 1.0)})"
        for one in [one for one in example.recorded if one != own][:MOST_NAMED]
        if (us := one.recorded_us) is not None
    ]
    yield (
        f"Of {len(example.recorded)} recorded launches the tutorial's took"
        f" {microseconds(own.recorded_us)}, and the fastest others {listed(others)}."
    )


def _header(example: Example) -> str:
    return f"{example.times.word} us"


def _fitting(variant: Variant) -> tuple[str, str]:
    return str(variant.occupancy.programs_per_multiprocessor), percent(variant.occupancy.occupancy)


WIDTH, HEIGHT = 7.2, 4.0
"""Inches."""
GREEN = "#117733"


def draw_example(example: Example) -> Figure:
    """Return a figure of the times over num_warps, the tutorial's choice marked."""
    with styled():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        lines = []
        for label, colour, variants in _curves(example):
            warps = [variant.config.num_warps for variant in variants]
            times = [variant.us for variant in variants]
            (line,) = axes.plot(warps, times, "o-", color=colour, markersize=4, linewidth=1.8)
            if any(one.recorded_us for one in variants):
                _draw_recorded(axes, variants, colour)
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
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        title = f"Time of a launch over its warps, {problem_words(example.case.record.problem)}"
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=11)
        if example.recorded:
            words = "In diamonds: what others recorded."
            figure.supxlabel(words, x=0.01, ha="left", color=MUTED, fontsize=9)
        figure.draw_without_rendering()
        outlines = [outline(axes, line) for _, _, line in lines]
        placer = Placer(axes, outlines)
        placer.at_point(f"the tutorial's\n{at[1]:.1f} us", at, color=INK)
        for (label, colour, _), curve in zip(lines, outlines, strict=True):
            placer.at_curve(label, curve, color=colour)
    describe(figure, title)
    return figure


def _draw_recorded(axes: Axes, variants: Sequence[Variant], colour: str) -> None:
    """Draw what others measured of *variants* beside what is predicted."""
    found = [one for one in variants if one.recorded_us is not None]
    warps = [one.config.num_warps for one in found]
    times = [one.recorded_us or 0.0 for one in found]
    style: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": colour}
    axes.plot(warps, times, "D", markersize=6, markeredgewidth=1.4, zorder=3, **style)


def _curves(example: Example) -> Iterator[tuple[str, str, list[Variant]]]:
    """Return what is drawn: its label, its colour and its launches."""
    stages = example.tutorial.config.num_stages
    warps = example.num_warps
    found = [example.with_stages(stages, number) for number in warps]
    yield f"persistent, num_stages {stages}", TUTORIAL, [one for one in found if one]
    found = [example.with_stages(1, number) for number in warps]
    yield "persistent, num_stages 1", EXACT, [one for one in found if one]
    found = [example.with_rows(number) for number in warps]
    if any(found):
        yield "one program per row", GREEN, [one for one in found if one]
