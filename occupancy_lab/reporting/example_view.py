"""The worked example: an explanation's own sections, with what was measured between them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from occupancy_lab.explaining.compiled import stage_sentences
from occupancy_lab.explaining.document import Section, Table
from occupancy_lab.explaining.duration import the_duration
from occupancy_lab.explaining.explanation import answer_in_short
from occupancy_lab.explaining.limits import the_limits, the_next_step
from occupancy_lab.explaining.notes import cell
from occupancy_lab.explaining.words import article, change, count, microseconds, percent
from occupancy_lab.reporting.example_picture import draw_example
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.words import config_words, problem_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.reporting.example import Example
    from occupancy_lab.reporting.variants import Variant

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
        f" {record.triton_version} compiled it. {answer_in_short(case)}"
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
        ),
    )


def _the_stages(example: Example) -> Section:
    """Set what num_stages costs beside what it brings."""
    one = example.single_stage
    rows = tuple(
        (
            str(variant.config.num_stages),
            str(variant.resources.n_regs),
            str(variant.resources.shared),
            *_held(variant),
            cell(variant.us),
            change(variant.us / one.us - 1.0),
        )
        for variant in example.over_stages
    )
    mp = example.case.architecture.multiprocessor_word
    headers = (
        *("num_stages", "registers a thread", "shared memory, B", f"programs {article(mp)} {mp}"),
        *("occupancy", "measured us", "against 1 stage"),
    )
    return Section(
        "What num_stages costs and brings",
        (Table(headers, rows),),
        (*stage_sentences(example.case), *_stages_verdict(example)),
    )


def _stages_verdict(example: Example) -> Iterator[str]:
    one, own = example.single_stage, example.tutorial
    best = min(example.over_stages, key=lambda variant: variant.us)
    if one == own:
        return
    verdict = "more than it brings" if own.us > one.us else "less than it brings"
    yield (
        f"Measured, num_stages {own.config.num_stages} takes {microseconds(own.us)} against"
        f" {microseconds(one.us)} with num_stages 1 ({change(own.us / one.us - 1.0)}): it costs"
        f" {verdict}. The fastest here is num_stages {best.config.num_stages}."
    )


def _the_warps(example: Example) -> Section:
    """Set the warps beside each other, with what their instructions come to."""
    stages = example.tutorial.config.num_stages
    rows = tuple(_warps_row(example, number) for number in example.num_warps)
    headers = (
        *("num_warps", "elements a thread", "instructions a row", "barriers a row", "occupancy"),
        *(f"us, {count(stages, 'stage')}", "us, 1 stage", "us, one program a row"),
    )
    caption = f"Instructions of all warps, barriers and occupancy with {count(stages, 'stage')}:"
    table = Table(headers, rows, caption)
    return Section("What warps cost and bring", (table,), tuple(_warps_sentences(example)))


def _warps_row(example: Example, num_warps: int) -> tuple[str, ...]:
    stages, block_size = example.tutorial.config.num_stages, example.tutorial.config.block_size
    own = example.with_stages(stages, num_warps)
    timed = (own, example.with_stages(1, num_warps), example.with_rows(num_warps))
    found: tuple[object, ...] = (None,) * 3
    if own is not None:
        found = own.instructions, own.resources.barrier_waits, percent(own.held.occupancy)
    return (
        str(num_warps),
        f"{block_size / num_warps / example.case.architecture.warp_size:g}",
        *("-" if one is None else str(one) for one in found),
        *("-" if one is None else cell(one.us) for one in timed),
    )


def _warps_sentences(example: Example) -> Iterator[str]:
    own, best = example.tutorial, example.fastest_warps
    warps, fewer = (count(one.config.num_warps, "warp") for one in (own, best))
    if own == best:
        yield f"{warps} are the fastest here."
        return
    yield (
        f"With {count(own.config.num_stages, 'stage')}, {warps} take {microseconds(own.us)} and"
        f" {fewer} {microseconds(best.us)} ({change(best.us / own.us - 1.0)})."
    )
    if own.instructions and best.instructions and own.instructions > best.instructions:
        yield (
            f"Every warp goes through the whole loop for its share of a row, reduction and barriers"
            f" included: {warps} issue {own.instructions} instructions a row, and {fewer}"
            f" {best.instructions}."
        )


def _picture(example: Example) -> Picture:
    own, best = example.tutorial, example.fastest
    return Picture(
        "example",
        f"Measured time over num_warps: {config_words(own.kernel, own.config)} take"
        f" {microseconds(own.us)}, the fastest, {config_words(best.kernel, best.config)},"
        f" {microseconds(best.us)}",
        partial(draw_example, example),
    )


def _the_choice(example: Example) -> Section:
    """Say what to launch instead, and what it brings."""
    own, best, predicted = example.tutorial, example.fastest, example.predicted_best
    moved = example.case.record.traffic.total_bytes
    found = {
        "the tutorial's": own,
        "the same with 1 stage": example.single_stage,
        "the fastest persistent": example.fastest_of_kernel,
        "predicted best": predicted,
        "the fastest": best,
    }
    rows = tuple(
        (
            name,
            config_words(one.kernel, one.config),
            cell(one.us),
            f"{moved / one.us / 1e3:.0f}",
            change(one.us / own.us - 1.0),
        )
        for name, one in found.items()
        if one is not None
    )
    headers = ("", "configuration", "measured us", "GB/s", "against the tutorial's")
    sentences = []
    if predicted is not None:
        chosen = config_words(predicted.kernel, predicted.config)
        gain = change(predicted.us / own.us - 1.0)
        sentences.append(
            f"Without a launch, the prediction chooses {chosen}: {microseconds(predicted.us)} when"
            f" measured ({gain})."
        )
    return Section("What to launch instead", (Table(headers, rows),), tuple(sentences))


def _held(variant: Variant) -> tuple[str, str]:
    return str(variant.held.programs_per_multiprocessor), percent(variant.held.occupancy)
