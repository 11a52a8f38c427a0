"""An evaluation in words and tables, each number beside its goal and its rivals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.evaluating.metrics import METRICS, percent
from occupancy_lab.text.document import Document, Section, Table, literal
from occupancy_lab.text.words import count

if TYPE_CHECKING:
    from occupancy_lab.evaluating.evaluation import Evaluation, Group, Miss, Result

EXPLAINED = """\
The error of a launch is |predicted / measured - 1|; the bias is the same with its sign.
The goals are what the lab aims at; where a number does not reach its goal, so far it has not.
The first choice is the configuration of a shape with the least predicted time; what it loses is \
its measured time over that of the fastest, minus 1.
The rank correlation is Spearman's between predicted and measured times inside a shape, its mean \
over the shapes.
roofline takes a launch and the traffic at the bandwidth of a plain copy: the same for every \
configuration of a shape. It cannot choose, so its first choice is the first row of the grid.
highest occupancy launches the configuration with the highest occupancy, the first row of the grid \
where several have it. It says no time."""


def write_report(evaluation: Evaluation) -> Document:
    """Return *evaluation* in words."""
    return Document(
        "Predicted times, set against measured ones",
        tuple(_in_short(result) for result in evaluation.results),
        (
            *(_section(result) for result in evaluation.results),
            Section("What the numbers are", sentences=tuple(EXPLAINED.splitlines())),
        ),
    )


def _in_short(result: Result) -> str:
    numbers = {name: metric.write(result.score) for name, metric in METRICS.items()}
    return (
        f"**{result.title}, {literal(result.use)}**: {count(result.shapes, 'shape')},"
        f" {result.launches} measured; median error {numbers['median']},"
        f" 90th percentile {numbers['p90']}; the first choice loses {numbers['mean_loss']},"
        f" {numbers['worst_loss']} at worst."
    )


def _section(result: Result) -> Section:
    sentences = [f"The constants are from: {result.basis}."]
    if result.without_prediction:
        sentences.append(
            f"Measured but not predicted, as too little is known: {result.without_prediction}."
        )
    tables = (_scores(result), _groups(result.groups), _worst(result.worst))
    shown = tuple(table for table in tables if table.rows)
    return Section(f"{result.title}, {literal(result.use)}", shown, tuple(sentences))


def _scores(result: Result) -> Table:
    rows = tuple(
        (
            metric.words,
            "-" if metric.goal is None else metric.form(metric.goal),
            *(metric.write(score) for score in result.scores),
        )
        for metric in METRICS.values()
    )
    return Table(("", "goal", *(score.name for score in result.scores)), rows)


def _groups(groups: tuple[Group, ...]) -> Table:
    rows = tuple(
        (
            f"{group.by}: {group.value}",
            str(group.errors.launches),
            percent(group.errors.median),
            percent(group.errors.p90),
            _signed(group.errors.bias),
        )
        for group in groups
    )
    headers = ("", "launches", "median error", "90th percentile", "median bias")
    return Table(headers, rows, "The error by kind of launch:")


def _worst(worst: tuple[Miss, ...]) -> Table:
    rows = tuple(
        (
            f"{miss.kernel}, {miss.problem.rows} x {miss.problem.cols} {miss.problem.dtype}",
            str(miss.config.block_size),
            str(miss.config.num_warps),
            str(miss.config.num_stages),
            f"{miss.predicted_us:.4g}",
            f"{miss.measured_us:.4g}",
            _signed(miss.error),
            miss.bound,
        )
        for miss in worst
    )
    headers = ("", "BLOCK_SIZE", "warps", "stages", "predicted", "measured", "error", "bound")
    return Table(headers, rows, "The worst predicted, times in us:")


def _signed(share: float) -> str:
    return f"{'+' if share > 0 else ''}{percent(share)}"
