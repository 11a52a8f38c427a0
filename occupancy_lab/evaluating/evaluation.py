"""`evaluate`: how good the predictions of a table of measured launches are, and the report."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.asked import ask
from occupancy_lab.compiled_records import compile_runs, with_counts
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.errors import refuse
from occupancy_lab.evaluating.score import METRICS, Score, TimeErrors, score, time_errors
from occupancy_lab.gpus import Gpu, find_gpus
from occupancy_lab.inputs import NamedKernel, chosen_kernel, gpu_measured
from occupancy_lab.kernel import Kernel, own_kernel
from occupancy_lab.prediction import part_cell
from occupancy_lab.sweeping.recorded import (
    UNSTEADY,
    read_table,
    recorded_table,
    row_config,
    row_problem,
)
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import as_sentence, change, count, difference, formatted, listed
from occupancy_lab.throughput.launch_time import MEASURED, basis_words
from occupancy_lab.throughput.rounds import launch_us
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    import pandas as pd

SHAPE = ["rows", "cols", "dtype"]
"""The columns that identify a shape; all its configurations, of one or several kernels, compete."""


def counted_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a steady time of the planned launch, in order.

    The prediction is not for rows that launched another number of programs, such as the tutorial's.
    Rows whose times spread by more than UNSTEADY are left out too.
    """
    planned = (table["launched"] == table["num_programs"]).astype("boolean").fillna(value=False)
    rows = table[(table["measured"] == "measured") & planned.astype(bool)]
    if {"us_low", "us_high"} <= set(rows):
        unsteady = rows["us_high"].astype(float) > UNSTEADY * rows["us_low"].astype(float)
        rows = rows[~unsteady]
    types = {"us": float, "occupancy": float, "num_warps": int, "num_stages": int}
    return rows.astype(types).reset_index(drop=True)


def with_predictions(
    rows: pd.DataFrame, kernels: Mapping[str, NamedKernel], gpu: Gpu
) -> pd.DataFrame:
    """Return those of *rows*, all of *gpu*, that have a predicted time or get one now.

    They have the columns predicted_us, bound, roofline_us and shape (a number). If predicted_us is
    empty, the launch is compiled and counted. *kernels* has the kernels that are not the lab's own,
    by name.

    Raises InputError if a kernel is neither there nor the lab's own.
    """
    import pandas as pd

    found: dict[str, Any] = {
        name: [*rows[name]] if name in rows else [None] * len(rows) for name in TIMES
    }
    missing = [place for place, us in enumerate(found["predicted_us"]) if pd.isna(us)]
    every = rows.to_dict("records")
    asked = [
        ask(_named(row, kernels), row_problem(row), row_config(row), gpu)
        for row in (every[place] for place in missing)
    ]
    with closing(Compiler(store_directory())) as compiler:
        runs = with_counts(compile_runs(asked, compiler), asked, compiler)
    for place, run in zip(missing, runs, strict=True):
        if run.prediction is not None:
            found["predicted_us"][place] = run.prediction.us
            found["bound"][place] = run.prediction.bound
    known = rows.assign(**found)
    chosen = known[known["predicted_us"].notna()].astype({"predicted_us": float})
    return chosen.assign(
        roofline_us=[_roofline_us(row, kernels, gpu) for row in chosen.to_dict("records")],
        shape=chosen.groupby(SHAPE, sort=False).ngroup(),
    )


TIMES = ("predicted_us", "bound")
"""The columns of a predicted time."""


def _named(row: Mapping[Any, Any], kernels: Mapping[str, NamedKernel]) -> NamedKernel:
    name = str(row["kernel"])
    return kernels.get(name) or NamedKernel(name, own_kernel(name))


def _roofline_us(row: Mapping[Any, Any], kernels: Mapping[str, NamedKernel], gpu: Gpu) -> float:
    """Return the time of a launch plus its bytes at the data sheet's bandwidth, us."""
    kernel = _named(row, kernels).kernel
    moved = kernel.launched_work(row_problem(row), row_config(row)).known_bytes or 0
    return launch_us(gpu) + moved / (gpu.bandwidth_gbs or math.inf) / 1e3


PREDICTION, ROOFLINE, OCCUPANCY = "prediction", "roofline", "highest occupancy"
GROUPS = ("bound", "kernel", "num_warps", "num_stages", "spills")
"""The properties by which launches are grouped, to see where errors are."""


@dataclass(frozen=True, slots=True)
class Group:
    """The errors of the launches with the same value of one property."""

    by: str
    """One of GROUPS."""
    value: str
    errors: TimeErrors


@dataclass(frozen=True, slots=True)
class Miss:
    """A launch with a large prediction error."""

    kernel: str
    problem: Problem
    config: Config
    bound: str
    predicted_us: float
    measured_us: float
    error: float
    """predicted / measured - 1."""


@dataclass(frozen=True, slots=True)
class Result:
    """The quality of the predictions for one use of one GPU's launches."""

    gpu: str
    """The key of the GPU."""
    title: str
    """The GPU's name."""
    use: str
    """tuning, held out, fresh, check, or another value of `use`; "all" without such a column."""
    basis: str
    """The basis of the predicted times."""
    calibrated: bool
    """Whether launches on such a GPU were measured before."""
    shapes: int
    launches: int
    without_prediction: int
    """Further measured launches, of which too little is known to predict them."""
    scores: tuple[Score, ...]
    """The scores of the prediction, of a roofline and of the highest occupancy."""
    groups: tuple[Group, ...]
    worst: tuple[Miss, ...]
    """The launches with the largest errors, the largest first."""

    @property
    def score(self) -> Score:
        """The prediction's score."""
        return self.scores[0]


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation(Answer):
    """The quality of the predictions for a table's launches, by GPU and use."""

    results: tuple[Result, ...]
    left_out: tuple[str, ...] = ()
    """Uses in the table that were not asked for, and that are not in the default."""

    def to_document(self, *, full: bool = True) -> Document:
        """Return the evaluation in words: the *full* text, or a screen."""
        sections = (
            *(_result_section(result) for result in self.results),
            Section(
                "What the numbers are",
                sentences=(*_uses(self), *EXPLAINED.splitlines(), *_left_out(self)),
            ),
        )
        found = {f"{one.title}, {literal(one.use)}": one.score for one in self.results}
        sentences = (*_uses(self), SHORT, *_left_out(self))
        overview = Section("", (_score_table(found),), sentences)
        return Document(
            "Predicted times, set against measured ones",
            tuple(_in_short(result) for result in self.results),
            sections if full else (overview,),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as plain values; errors and losses are shares, 0.01 is 1%."""
        return dataclasses.asdict(self)


def evaluate(
    table: pd.DataFrame | None = None,
    *,
    kernels: Mapping[str, Kernel | NamedKernel] | None = None,
    top: int = 10,
) -> Evaluation:
    """Return how good the predictions of the measured launches in *table* are.

    Launches without a predicted time are compiled and counted.

    Args:
        table: The columns of a measured sweep, as from `read_table` and `recorded_table`; the order
            of the rows settles ties. Only launches with as many programs as planned count. Each
            value of `use`, if it is there, is evaluated separately. None takes the recorded
            measurements, as the command does.
        kernels: Kernels by name that are not the lab's own, as from `load_kernel` or
            `chosen_kernel`.
        top: How many of the worst launches to list.

    Raises:
        InputError: a kernel is not known, or no measured launch can be predicted.
    """
    if table is None:
        table = choose(recorded_table(), (), ())
    rows = counted_rows(table if "use" in table else table.assign(use="all"))
    nothing = "there is nothing to evaluate"
    if rows.empty:
        refuse(f"{nothing}: no launch was measured with its planned num_programs")
    named = {
        name: one if isinstance(one, NamedKernel) else NamedKernel(None, one)
        for name, one in (kernels or {}).items()
    }
    results = []
    for key, of_gpu in rows.groupby("gpu", sort=False):
        gpu = gpu_measured(str(key), set(of_gpu.get("device", default=())))
        for use, launches in of_gpu.groupby("use", sort=False):
            claimed = with_predictions(launches, named, gpu)
            if len(claimed):
                without = len(launches) - len(claimed)
                results.append(make_result(claimed, str(use), without, gpu, top))
    if not results:
        gpus = ", ".join(map(str, rows["gpu"].unique()))
        refuse(
            f"{nothing}: {len(rows)} launches were measured, but no time is predicted of them on"
            f" {gpus}"
        )
    return Evaluation(tuple(results))


def make_result(rows: pd.DataFrame, use: str, without: int, gpu: Gpu, top: int) -> Result:
    """Return the quality of the predictions that `with_predictions` added to *rows*.

    *without* launches could not be predicted; the *top* worst are listed.
    """
    return Result(
        gpu=gpu.key,
        title=gpu.title,
        use=use,
        basis=basis_words(gpu),
        calibrated=gpu.key in MEASURED,
        shapes=rows["shape"].nunique(),
        launches=len(rows),
        without_prediction=without,
        scores=(
            score(PREDICTION, rows, rows["predicted_us"]),
            score(ROOFLINE, rows, rows["roofline_us"]),
            score(OCCUPANCY, rows, -rows["occupancy"], times=False),
        ),
        groups=tuple(_groups(rows)),
        worst=tuple(_worst(rows, top)),
    )


def _groups(rows: pd.DataFrame) -> Iterator[Group]:
    spilled = rows["n_spills"].astype(float)
    words = (spilled > 0).map({True: "yes", False: "no"}).where(spilled.notna(), "not known")
    known = rows.assign(spills=words)
    for by in GROUPS:
        for value, some in known.groupby(by):
            yield Group(by, str(value), time_errors(some["predicted_us"], some["us"]))


def _worst(rows: pd.DataFrame, top: int) -> Iterator[Miss]:
    error = difference(rows["predicted_us"], rows["us"])
    order = error.abs().sort_values(ascending=False, kind="stable").index[:top]
    for row in rows.assign(error=error).loc[order].to_dict("records"):
        yield Miss(
            kernel=str(row["kernel"]),
            problem=row_problem(row),
            config=row_config(row),
            bound=str(row["bound"]),
            predicted_us=float(row["predicted_us"]),
            measured_us=float(row["us"]),
            error=float(row["error"]),
        )


def broken_limits(evaluation: Evaluation, limits: Mapping[str, float]) -> Iterator[str]:
    """Return a sentence for each limit, by a name of METRICS, that a prediction breaks."""
    for result in evaluation.results:
        for name, limit in limits.items():
            metric = METRICS[name]
            if not metric.keeps(result.score, limit):
                value = formatted(metric.read(result.score), ".4g")
                yield (
                    f"{result.title}, {result.use}: the {metric.words} is"
                    f" {'not known' if value == '-' else value}, and may be {limit:g} at"
                    f" {'least' if metric.least else 'most'}"
                )


USES: Mapping[str, str] = {
    "tuning": "the model was fitted to the launches of tuning",
    "held out": "the launches of held out were kept out of fitting, to test it",
    "fresh": "the shapes of fresh were drawn at random after it was fitted",
}
"""The uses that are evaluated by default, with their meanings; "benchmark", the tutorial's, must be
asked for."""


def run(
    *,
    file: str | None = None,
    gpus: Sequence[str] = (),
    uses: Sequence[str] = (),
    kernels: Sequence[str] = (),
    top: int = 10,
    **limits: float | None,
) -> tuple[Evaluation, tuple[str, ...]]:
    """Return the evaluation of the recorded launches or of *file*, and sentences on broken limits.

    *gpus* and *uses* select rows; by default all GPUs and, if the table has uses, those of USES,
    which leave out the tutorial's benchmark. *kernels* are files of kernels that are not the lab's
    own. *limits* are max_median, max_p90, max_mean_loss, max_worst_loss and min_rank; None means no
    limit.

    Raises InputError for what cannot be read, selected or predicted.
    """
    with closing(Compiler(store_directory())) as compiler:
        found = [chosen_kernel(one, compiler.check_file) for one in kernels]
    own = {one.kernel.name: one for one in found}
    table = recorded_table() if file is None else read_table(file, kernels=own)
    chosen = choose(table, gpus, uses)
    evaluation = evaluate(chosen, kernels=own, top=top)
    if "use" in table and not uses:
        there = table.loc[table["gpu"].isin(chosen["gpu"]), "use"]
        left_out = tuple(sorted(set(there) - set(chosen["use"])))
        evaluation = dataclasses.replace(evaluation, left_out=left_out)
    given = {name.partition("_")[2]: limit for name, limit in limits.items() if limit is not None}
    return evaluation, tuple(broken_limits(evaluation, given))


def choose(table: pd.DataFrame, gpus: Sequence[str], uses: Sequence[str]) -> pd.DataFrame:
    """Return the rows of *table* on *gpus* and for *uses*, with the defaults of `run`.

    Raises InputError if there are none.
    """
    keys = [gpu.key for gpu in find_gpus(",".join(gpus))] if gpus else table["gpu"].unique()
    chosen = table[table["gpu"].isin(keys)]
    if "use" in table:
        chosen = chosen[chosen["use"].isin(uses or USES)]
    elif uses:
        refuse(f"the table has no column use, which could be {' or '.join(uses)}")
    if chosen.empty:
        there = table[[name for name in ("gpu", "use") if name in table]].drop_duplicates()
        rows = "; ".join(", ".join(map(str, row)) for row in there.itertuples(index=False))
        refuse(f"no launch was measured on these GPUs for this use; there are: {rows or 'none'}")
    return chosen


SHORT = (
    "The first choice is the configuration of a shape with the least predicted time. `--full` has"
    " the errors by kind of launch, the worst launches, and what the numbers are."
)
EXPLAINED = """\
The error of a launch is |predicted / measured - 1|; the bias is the same with its sign.
The first choice is the configuration of a shape with the least predicted time; what it loses is \
its measured time over that of the fastest, minus 1.
The rank correlation is Spearman's between predicted and measured times inside a shape, its mean \
over the shapes.
roofline takes a launch and the traffic at the bandwidth of the data sheet: the same for \
every configuration of a shape. It cannot choose, so its first choice is the first row of the grid.
highest occupancy launches the configuration with the highest occupancy, the first row of the grid \
where several have it. It says no time."""


def _uses(evaluation: Evaluation) -> Iterator[str]:
    there = {one.use for one in evaluation.results}
    if words := [meaning for use, meaning in USES.items() if use in there]:
        yield as_sentence("; ".join(words))


def _left_out(evaluation: Evaluation) -> Iterator[str]:
    if evaluation.left_out:
        uses = listed([literal(use) for use in evaluation.left_out])
        options = " ".join(f"--use {shlex.quote(use)}" for use in evaluation.left_out)
        yield f"Launches whose use is {uses} are left out; `{options}` takes them instead."


def _in_short(result: Result) -> str:
    numbers = {name: metric.write(result.score) for name, metric in METRICS.items()}
    return (
        f"**{result.title}, {literal(result.use)}**: {count(result.shapes, 'shape')},"
        f" {result.launches} measured; median error {numbers['median']},"
        f" 90th percentile {numbers['p90']}; the first choice loses {numbers['mean_loss']},"
        f" {numbers['worst_loss']} at worst."
    )


def _result_section(result: Result) -> Section:
    sentences = [f"The times rest on {result.basis}."]
    if result.without_prediction:
        sentences.append(
            f"Measured but not predicted, as too little is known: {result.without_prediction}."
        )
    scores = _score_table({score.name: score for score in result.scores})
    tables = (scores, _group_table(result.groups), _worst_table(result.worst))
    shown = tuple(table for table in tables if table.rows)
    return Section(f"{result.title}, {literal(result.use)}", shown, tuple(sentences))


def _score_table(scores: Mapping[str, Score]) -> Table:
    rows = tuple((metric.words, *map(metric.write, scores.values())) for metric in METRICS.values())
    return Table(("", *scores), rows)


def _group_table(groups: tuple[Group, ...]) -> Table:
    rows = tuple(
        (
            f"{group.by}: {part_cell(group.value) if group.by == 'bound' else group.value}",
            str(group.errors.launches),
            f"{group.errors.median:.1%}",
            f"{group.errors.p90:.1%}",
            change(group.errors.bias),
        )
        for group in groups
    )
    headers = ("", "launches", "median error", "90th percentile", "median bias")
    return Table(headers, rows, "The error by kind of launch:")


def _worst_table(worst: tuple[Miss, ...]) -> Table:
    rows = tuple(
        (
            f"{miss.kernel}, {miss.problem.words}",
            *map(str, dataclasses.astuple(miss.config)),
            f"{miss.predicted_us:.4g}",
            f"{miss.measured_us:.4g}",
            change(miss.error),
            part_cell(miss.bound),
        )
        for miss in worst
    )
    headers = ("", "BLOCK_SIZE", "warps", "stages", "predicted", "measured", "error", "bound")
    return Table(headers, rows, "The worst predicted, times in us:")
