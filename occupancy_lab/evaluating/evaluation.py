"""`evaluate`: from a table of measured launches to how good their predictions are, in one call."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError
from occupancy_lab.evaluating.counted import counted_rows, with_claims
from occupancy_lab.evaluating.score import Errors, errors, score
from occupancy_lab.inputs import gpu_measured
from occupancy_lab.text.notebook import ShownAsTables
from occupancy_lab.text.printing import json_text
from occupancy_lab.throughput.calibrations import calibration_for
from occupancy_lab.throughput.table import row_config, row_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pandas as pd

    from occupancy_lab.evaluating.score import Score
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.throughput.calibrations import Basis
    from occupancy_lab.values import Config, Problem

PREDICTION, ROOFLINE, OCCUPANCY = "prediction", "roofline", "highest occupancy"
GROUPS = ("bound", "kernel", "num_warps", "num_stages", "spills")
"""What launches are told apart by, to see where the errors are."""


@dataclass(frozen=True, slots=True)
class Group:
    """The errors of the launches that are alike in one thing."""

    by: str
    """One of GROUPS."""
    value: str
    errors: Errors


@dataclass(frozen=True, slots=True)
class Miss:
    """A launch that was predicted badly."""

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
    """How good the predictions of one use of one GPU's launches are."""

    gpu: str
    """The key of the GPU."""
    title: str
    """What it is called."""
    use: str
    """tuning, held out, check, or what else `use` says; "all" where the table has none."""
    basis: str
    """Where the model's constants are from."""
    calibrated: bool
    """Whether they were measured on a GPU of this kind."""
    shapes: int
    launches: int
    without_prediction: int
    """Launches beside these that were measured, but that the model knows too little of."""
    scores: tuple[Score, ...]
    """Of the prediction, of a roofline and of the highest occupancy."""
    groups: tuple[Group, ...]
    worst: tuple[Miss, ...]
    """The launches with the greatest errors, the greatest first."""

    @property
    def score(self) -> Score:
        """The prediction's score."""
        return self.scores[0]


@dataclass(frozen=True, slots=True)
class Evaluation(ShownAsTables):
    """How good the predictions of a table's launches are, by GPU and use."""

    results: tuple[Result, ...]

    def to_markdown(self) -> str:
        """Return the evaluation in GitHub's markdown."""
        from occupancy_lab.evaluating.report import write_report

        return write_report(self).to_markdown()

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as plain values; errors and losses are shares, 0.01 is 1%."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """Return the evaluation as a JSON document."""
        return json_text(self.to_dict())


def evaluate(
    table: pd.DataFrame,
    *,
    kernels: Mapping[str, Kernel] | None = None,
    basis_of: Callable[[Gpu], Basis | None] = calibration_for,
    top: int = 10,
) -> Evaluation:
    """Predict every launch of *table* that was measured, and say how good the predictions are.

    Args:
        table: The columns of a measured sweep, as `read_table` and `recorded_table` give it; the
            order of its rows settles ties. Only the launches with as many programs as planned
            count. `use`, where it is there, sets launches apart.
        kernels: Kernels by name that are not the lab's own.
        basis_of: Gives the constants to predict with on a GPU, None where it has none.
        top: How many of the worst launches to list.

    Raises:
        InputError: a kernel is not known, or no measured launch can be predicted.
    """
    rows = counted_rows(table if "use" in table else table.assign(use="all"))
    results = []
    for name, of_gpu in rows.groupby("gpu", sort=False):
        gpu = gpu_measured(str(name), set(of_gpu.get("device", default=())))
        basis = basis_of(gpu)
        if basis is None:
            continue
        for use, launches in of_gpu.groupby("use", sort=False):
            claimed = with_claims(launches, kernels or {}, gpu, basis)
            if len(claimed):
                without = len(launches) - len(claimed)
                results.append(_result(claimed, str(use), without, gpu, basis, top))
    if not results:
        raise InputError(_why_nothing(rows))
    return Evaluation(tuple(results))


def _why_nothing(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "there is nothing to evaluate: no launch was measured with its planned num_programs"
    gpus = ", ".join(map(str, rows["gpu"].unique()))
    return (
        f"there is nothing to evaluate: {len(rows)} launches were measured, but the model knows "
        f"too little of them or of {gpus}; occupancy-lab calibrate finds out about a GPU at hand"
    )


def _result(  # noqa: PLR0913, PLR0917 - what a result is made of
    rows: pd.DataFrame, use: str, without: int, gpu: Gpu, basis: Basis, top: int
) -> Result:
    return Result(
        gpu=gpu.key,
        title=gpu.title,
        use=use,
        basis=basis.words,
        calibrated=basis.calibrated,
        shapes=rows["shape"].nunique(),
        launches=len(rows),
        without_prediction=without,
        scores=_scores(rows),
        groups=tuple(_groups(rows)),
        worst=tuple(_worst(rows, top)),
    )


def _scores(rows: pd.DataFrame) -> tuple[Score, ...]:
    return (
        score(PREDICTION, rows, rows["predicted_us"]),
        score(ROOFLINE, rows, rows["copy_us"]),
        score(OCCUPANCY, rows, -rows["occupancy"], times=False),
    )


def _groups(rows: pd.DataFrame) -> Iterator[Group]:
    spilled = rows["n_spills"].astype(float)
    words = (spilled > 0).map({True: "yes", False: "no"}).where(spilled.notna(), "not known")
    known = rows.assign(spills=words)
    for by in GROUPS:
        for value, some in known.groupby(by):
            found = errors(some["predicted_us"], some["us"])
            yield Group(by, str(value), found)


def _worst(rows: pd.DataFrame, top: int) -> Iterator[Miss]:
    error = rows["predicted_us"] / rows["us"] - 1.0
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
