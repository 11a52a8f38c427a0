"""The benchmark in words: what is chosen where, and what that is worth."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from occupancy_lab.reporting import benchmark as data
from occupancy_lab.reporting.benchmark_picture import draw_losses
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.words import config_words, share
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import count, listed, microseconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from occupancy_lab.reporting.benchmark import Benchmark, Span, Width

TITLE = "The tutorial's benchmark"
EVERY = 16
"""One in so many widths is in the table, all where there are fewer."""
MEANINGS: Mapping[str, str] = {
    data.CHOSEN: "the configuration with the least predicted time, of every kernel; finding it"
    " launches nothing",
    data.FASTEST: "the fastest of every configuration that was measured",
    data.TUTORIAL: "the tutorial's kernel, num_warps and num_stages, with as many programs as its"
    " own formula says",
    "torch": "`torch.softmax`",
    "torch.compile": "`torch.compile` of that",
    "naive": "the same in five operations of torch, each through memory",
    data.COPY: "a plain copy of the matrix, which computes nothing",
}


def the_benchmark(benchmark: Benchmark | None) -> Chapter:
    """Say how good the predicted best is at every width, and what it is compared with."""
    if benchmark is None:
        words = "Left out: there are no launches of one problem with several numbers of columns."
        return Chapter(TITLE, (words,))
    return Chapter(
        TITLE,
        (
            setting(benchmark),
            meanings(benchmark.names),
            _table(benchmark),
            _against_fastest(benchmark),
            _losses(benchmark),
            _spans(benchmark),
        ),
    )


def setting(benchmark: Benchmark) -> str:
    """Say which widths there are, and what a bandwidth counts."""
    first, last = benchmark.widths[0].cols, benchmark.widths[-1].cols
    return (
        f"A softmax of {benchmark.rows} rows of {first} to {last} columns, {benchmark.dtype},"
        f" {len(benchmark.widths)} widths. GB/s counts one read and one write of the matrix,"
        " whatever is moved."
    )


def meanings(names: Sequence[str], words: Mapping[str, str] = MEANINGS) -> str:
    """Return a list of what each of *names* is, in the order of *words*."""
    return "\n".join(f"- **{name}**: {text}." for name, text in words.items() if name in names)


def _table(benchmark: Benchmark) -> Table:
    names = [name for name in MEANINGS if name in benchmark.names]

    def row(width: Width) -> tuple[str, ...]:
        return (
            str(width.cols),
            config_words(width.chosen.kernel, width.chosen.config),
            *(f"{width.gbs(name):.0f}" if name in width.us else "-" for name in names),
            share(width.lost()),
        )

    many = len(benchmark.widths) > EVERY
    caption = (
        f"GB/s of every {f'{EVERY}th ' if many else ''}width; *lost* is the time that the chosen"
        " takes longer than the fastest:"
    )
    rows = tuple(map(row, benchmark.widths[:: EVERY if many else 1]))
    return Table(("columns", "what is chosen", *names, "lost"), rows, caption)


def _against_fastest(benchmark: Benchmark) -> str:
    lost = benchmark.lost()
    right = sum(width.is_right for width in benchmark.widths)
    worst = max(benchmark.widths, key=lambda width: width.lost())
    most = count(benchmark.most_configurations, "configuration")
    return (
        f"The chosen is the fastest of up to {most} at {right} of {lost.count} widths. It takes"
        f" {share(lost.mean)} longer than the fastest on average, {share(lost.p90)} or more at one"
        f" width in ten, and {share(lost.most)} at worst: at {worst.cols} columns it takes"
        f" {microseconds(worst.us[data.CHOSEN])}, and"
        f" {config_words(worst.fastest.kernel, worst.fastest.config)}"
        f" {microseconds(worst.us[data.FASTEST])}."
    )


def _losses(benchmark: Benchmark) -> Picture:
    names = [name for name in (data.CHOSEN, data.TUTORIAL) if name in benchmark.names]
    lost = [(name, benchmark.lost(name)) for name in names]
    words = [f"{name} {share(one.median)} (at most {share(one.most)})" for name, one in lost]
    return Picture(
        "losses",
        f"Time lost against the fastest configuration over the columns, medians: {listed(words)}",
        partial(draw_losses, benchmark),
    )


def _spans(benchmark: Benchmark) -> Table:
    headers = (
        "columns",
        "chosen",
        "is the fastest at",
        "loses at most",
        "the tutorial's takes longer by",
    )
    return Table(headers, tuple(map(_span_row, benchmark.spans)), "What is chosen where:")


def _span_row(span: Span) -> tuple[str, ...]:
    widths = span.widths
    return (
        *span_words(span),
        f"{sum(width.is_right for width in widths)} of {len(widths)}",
        share(max(width.lost() for width in widths)),
        tutorial_words(span),
    )


def span_words(span: Span) -> tuple[str, str]:
    """Return the columns of a span, and what is chosen for them."""
    first, last = span.widths[0].cols, span.widths[-1].cols
    columns = str(first) if first == last else f"{first} to {last}"
    return columns, config_words(span.chosen.kernel, span.chosen.config)


def tutorial_words(span: Span) -> str:
    """Return how much longer than the chosen the tutorial's takes, from the least to the most."""
    return _range(
        [
            width.us[data.TUTORIAL] / width.us[data.CHOSEN] - 1.0
            for width in span.widths
            if data.TUTORIAL in width.us
        ]
    )


def _range(shares: Sequence[float]) -> str:
    if not shares:
        return "-"
    least, most = share(min(shares)), share(max(shares))
    return least if least == most else f"{least} to {most}"
