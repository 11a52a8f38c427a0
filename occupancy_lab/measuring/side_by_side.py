"""`measure_side_by_side`: a kernel and its providers, timed in turns on one matrix."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from occupancy_lab.compiled_records import compile_matrix
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.errors import DoesNotFitError, quoted, refuse
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import (
    DEFAULT_ROWS,
    TUTORIAL_KERNEL,
    AskedDtype,
    AskedKernel,
    Integer,
    NamedKernel,
    check_measurable,
    chosen_config,
    chosen_kernel,
    chosen_knobs,
    chosen_problem,
    whole_number,
)
from occupancy_lab.kernel import Kernel, load_kernel
from occupancy_lab.measuring.journal import Journal, measure_launches
from occupancy_lab.measuring.measure import NAIVE_KERNEL, PROVIDERS
from occupancy_lab.measuring.process import DEFAULT_RUNS, TimedLaunch, chosen_devices
from occupancy_lab.prediction import Prediction, part_cell
from occupancy_lab.record import Record
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import (
    cell,
    conditions_sentence,
    difference_cell,
    formatted,
    listed,
    range_sentence,
)
from occupancy_lab.values import Config, Measurement, Problem, Traffic

KERNEL, TUTORIAL, COPY = "kernel", "tutorial", "copy"
ALL = (KERNEL, TUTORIAL, *PROVIDERS)
"""The names that can be timed: the kernel, the tutorial's launch of `softmax`, and providers."""
UNTIMED = Measurement("not launched", None)


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """The prediction and the measurement of one of ALL."""

    provider: str
    moved: Traffic | None
    """The bytes that must be moved; several passes move more. None if not known."""
    measurement: Measurement
    config: Config | None = None
    """None if it is not launched with a configuration; so are the next two."""
    num_programs: int | None = None
    prediction: Prediction | None = None

    @property
    def gbs(self) -> float | None:
        """The bandwidth for the bytes that must be moved, GB/s; None without a time."""
        return self.measurement.gbs(self.moved)


@dataclass(frozen=True, slots=True, repr=False)
class SideBySide(Answer):
    """The measurements side by side, in the order in which they were asked for."""

    gpu: Gpu
    kernel: str
    problem: Problem
    rows: tuple[ProviderRow, ...]

    def row(self, provider: str) -> ProviderRow | None:
        """Return the row of *provider*, or None if it was not asked for."""
        return next((row for row in self.rows if row.provider == provider), None)

    def share_of_copy(self, row: ProviderRow) -> float | None:
        """Return the bandwidth of *row* over the copy's, or None if either has no time."""
        copy = self.row(COPY)
        if copy is None or copy.gbs is None or row.gbs is None:
            return None
        return row.gbs / copy.gbs

    def to_document(self) -> Document:
        """Return the measurements and their predictions in words."""
        measured = Table(MEASURED, tuple(_measured(self, row) for row in self.rows))
        sections = [Section("Measured", (measured,), tuple(_measured_sentences(self)))]
        planned = [_predicted(row, row.config) for row in self.rows if row.config is not None]
        if planned:
            table = Table(PREDICTED, tuple(planned))
            sections.append(Section("Predicted", (table,), tuple(_predicted_sentences(self))))
        title = f"{self.kernel}, {self.problem.words}, on {self.gpu.title}"
        return Document(title, (_answer(self),), tuple(sections))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "gpu": self.gpu.key,
            "kernel": self.kernel,
            **dataclasses.asdict(self.problem),
            "measured": [self._row(row) for row in self.rows],
        }

    def _row(self, row: ProviderRow) -> dict[str, Any]:
        values = dataclasses.asdict(row) | {"measurement": row.measurement.to_dict()}
        if row.prediction is not None:
            values["prediction"]["bound"] = row.prediction.bound
        return values | {"gbs": row.gbs, "share_of_copy": self.share_of_copy(row)}


def measure_side_by_side(  # noqa: PLR0913 - one argument per option of the command line
    cols: Integer,
    *,
    rows: Integer = DEFAULT_ROWS,
    dtype: AskedDtype = "float32",
    kernel: AskedKernel = TUTORIAL_KERNEL,
    providers: Sequence[str] = (),
    block_size: Integer | None = None,
    num_warps: Integer | None = None,
    num_stages: Integer | None = None,
    runs: Integer = DEFAULT_RUNS,
    cache: bool = True,
    journal: Journal | None = None,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    progress: Callable[[str], None] = lambda _sentence: None,
) -> SideBySide:
    """Time *kernel* and *providers* in turns on the first GPU of this machine.

    Args:
        cols: Columns of the matrix.
        rows: Rows of the matrix.
        dtype: float32, float16 or bfloat16.
        kernel: A kernel, as in `explain`, that has a name or a file.
        providers: Some of ALL for a softmax, or of the kernel and the copy for another kernel, in
            the order of the answer. None means all of them.
        block_size: BLOCK_SIZE; None means the kernel's default, also for the next two.
        num_warps: Warps per program.
        num_stages: Stages of the loop over rows.
        runs: The least number of timed launches of each.
        cache: Whether to use the store of compiled resources.
        journal: Where measurements are kept as they come in; None keeps none.
        compile_timeout: Seconds that a compile, or the import of a kernel's file, may take; None
            means no limit.
        progress: Called with a sentence before slow steps, and with "" after them.

    Raises:
        InputError: there is no GPU, or an argument is invalid.
        CompileError: Triton cannot compile the kernel within the time limit.
        DoesNotFitError: the GPU cannot hold one program of the kernel.
    """
    gpu, devices = chosen_devices("measure")
    problem = chosen_problem(rows, cols, dtype)
    chosen = chosen_knobs(block_size=block_size, num_warps=num_warps, num_stages=num_stages)
    runs = whole_number("runs", runs)
    directory = store_directory() if cache else None
    with closing(Compiler(directory, timeout=compile_timeout, progress=progress)) as compiler:
        named = chosen_kernel(kernel, compiler.check_file)
        check_measurable(named)
        name, found = str(named.name), named.kernel
        asked = _known(providers, found)
        if KERNEL not in asked and set(chosen.values()) != {None}:
            refuse(
                f"block_size, num_warps and num_stages are the {KERNEL}'s, which is not to be timed"
            )
        config = chosen_config(found, problem, gpu, chosen)
        record = compile_matrix(named, problem, config, gpu, compiler)
        waiting = [_untimed(provider, name, record, compiler) for provider in asked]
    launches = [(problem, launch) for _, launch in waiting if launch is not None]
    measured = iter(measure_launches(launches, runs=runs, devices=devices, journal=journal))
    timed = (
        row if launch is None else dataclasses.replace(row, measurement=next(measured))
        for row, launch in waiting
    )
    return SideBySide(gpu, found.name, problem, tuple(timed))


def _known(providers: Sequence[str], kernel: Kernel) -> Sequence[str]:
    """Return *providers* once each, or all that compute what *kernel* does, and the copy."""
    is_softmax = kernel.compared_with == NAIVE_KERNEL
    own = ALL if is_softmax else (KERNEL, COPY)
    for provider in providers:
        if provider not in ALL:
            refuse(
                f"there is no provider {quoted(provider)}; give all, or some of {', '.join(ALL)}"
            )
        if provider not in own:
            refuse(
                f"{provider} computes a softmax, and {kernel.name} is not compared with"
                f" {NAIVE_KERNEL}; its providers are {' and '.join(own)}"
            )
    return tuple(dict.fromkeys(providers)) or own


def _untimed(
    provider: str, kernel: str, record: Record, compiler: Compiler
) -> tuple[ProviderRow, TimedLaunch | None]:
    """Return a row without a time, and the launch to time, or None if it does not fit."""
    prediction, problem, programs = record.prediction, record.problem, record.num_programs
    if provider in PROVIDERS:
        moved = Traffic(problem.matrix_bytes, problem.matrix_bytes)
        return ProviderRow(provider, moved, UNTIMED), TimedLaunch(provider)
    if provider == TUTORIAL:
        kernel, softmax = TUTORIAL_KERNEL, load_kernel(TUTORIAL_KERNEL)
        config = chosen_config(softmax, problem, record.gpu, {})
        try:
            named = NamedKernel(kernel, softmax)
            record = compile_matrix(named, problem, config, record.gpu, compiler)
        except DoesNotFitError as error:
            refused = Measurement("does not fit", None, str(error))
            return ProviderRow(provider, record.traffic, refused, config), None
        plan, prediction = record.tutorial_plan, record.as_tutorial
        programs = None if plan is None else plan.num_programs
    # Without a number of programs 0 are launched, and the kernel says why that is not possible.
    launch = TimedLaunch(kernel, record.config, programs or 0)
    row = ProviderRow(
        provider, record.traffic, UNTIMED, record.config, launch.num_programs, prediction
    )
    return row, launch


MEASURED = ("", "us", "10-90 %", "GB/s", "of the copy", "relative error")
PREDICTED = (
    *("", "warps", "stages", "programs"),
    *("predicted us", "limits", "bound", "measured us", "off"),
)


def _answer(found: SideBySide) -> str:
    timed = [row for row in found.rows if row.measurement.us is not None and row.provider != COPY]
    if not timed:
        return "Nothing was measured."
    fastest = min(timed, key=lambda row: row.measurement.us or 0.0)
    share = found.share_of_copy(fastest)
    copy = "" if share is None else f", {share:.0%} of the copy's bandwidth"
    return f"The fastest is {fastest.provider}: {cell(fastest.measurement.us)} us measured{copy}."


def _measured(found: SideBySide, row: ProviderRow) -> tuple[str, ...]:
    measured = row.measurement
    return (
        row.provider,
        cell(measured.us),
        "-" if measured.us is None else f"{cell(measured.us_low)} - {cell(measured.us_high)}",
        formatted(row.gbs, ".0f"),
        formatted(found.share_of_copy(row), ".0%"),
        formatted(measured.relative_error, ".1e"),
    )


def _predicted(row: ProviderRow, config: Config) -> tuple[str, ...]:
    prediction = row.prediction
    predicted = None if prediction is None else prediction.us
    return (
        row.provider,
        str(config.num_warps),
        str(config.num_stages),
        formatted(row.num_programs),
        cell(predicted),
        "-" if prediction is None else f"{cell(prediction.low_us)} - {cell(prediction.high_us)}",
        "-" if prediction is None else part_cell(prediction.bound),
        cell(row.measurement.us),
        difference_cell(predicted, row.measurement.us),
    )


def _measured_sentences(found: SideBySide) -> Iterator[str]:
    for row in found.rows:
        if row.measurement.us is None:
            reason = literal(str(row.measurement.reason))
            yield f"{row.provider} has no time, {row.measurement.status}: {reason}."
    timed = [row.measurement for row in found.rows if row.measurement.us is not None]
    if timed and timed[0].conditions is not None:
        yield conditions_sentence(timed[0].conditions, timed[0].runs)
    short = [row.provider for row in found.rows if row.measurement.mostly_launch]
    if short:
        yield (
            f"Less than twice the time of an empty kernel, so mostly the launch: {listed(short)}."
        )
    yield (
        "GB/s are of the bytes that have to move, however often a provider moves them; the relative"
        " error is against torch in float64."
    )


def _predicted_sentences(found: SideBySide) -> Iterator[str]:
    timed = (row.prediction for row in found.rows if row.prediction is not None)
    if (first := next(timed, None)) is not None:
        yield range_sentence(found.gpu, first.basis, calibrated=first.calibrated)
        yield "off is how far the predicted time is off the measured one."
