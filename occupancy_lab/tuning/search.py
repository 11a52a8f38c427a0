"""`tune`: compile every configuration, rank them by prediction, and measure the best if asked."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.errors import InputError
from occupancy_lab.inputs import (
    DEFAULT_ROWS,
    SOFTMAXES,
    TUTORIAL_KERNEL,
    check_elsewhere,
    check_predictable,
    chosen_config,
    chosen_gpus,
    chosen_kernels,
    chosen_problem,
    whole_number,
    whole_numbers,
)
from occupancy_lab.kernel import kernel_names
from occupancy_lab.measuring.process import DEFAULT_RUNS, chosen_devices
from occupancy_lab.record import matrix_record
from occupancy_lab.sweeping.grid import Task, grid_tasks, run_tasks
from occupancy_lab.sweeping.measured import measure_table
from occupancy_lab.sweeping.recorded import faster_rivals, recorded_measurement, recorded_ranking
from occupancy_lab.sweeping.views import sees_stages
from occupancy_lab.table.columns import MEASURED_COLUMNS
from occupancy_lab.throughput.calibrations import calibration_for
from occupancy_lab.throughput.predict import row_resources
from occupancy_lab.tuning.choice import TOP, Choice, Tuning, choice_of, cost_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.inputs import (
        AskedDtype,
        AskedGpus,
        AskedKernel,
        Integer,
        Integers,
    )
    from occupancy_lab.measuring.journal import Journal
    from occupancy_lab.throughput.calibrations import Basis

    Progress = Callable[[int, int], None]


def tune(  # noqa: PLR0913 - one argument per option of the command line
    cols: Integer,
    *,
    rows: Integer = DEFAULT_ROWS,
    dtype: AskedDtype = "float32",
    kernel: AskedKernel | Iterable[AskedKernel] = SOFTMAXES,
    gpu: AskedGpus | None = None,
    triton: str | None = None,
    num_warps: Integers = (),
    num_stages: Integers = (),
    measure: bool = False,
    top: Integer = TOP,
    runs: Integer = DEFAULT_RUNS,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    cache: bool = True,
    journal: Journal | None = None,
    retry_failed: bool = False,
    progress: Progress = lambda _done, _of: None,
    measuring_progress: Progress = lambda _done, _of: None,
) -> Tuning:
    """Return the configuration to launch on a matrix of *rows* x *cols*, and its candidates.

    Every configuration is compiled and predicted. With *measure* the *top* best predicted are
    launched too, and the fastest of them is the choice.

    Args:
        cols: Columns of the matrix.
        rows: Rows of it.
        dtype: float32, float16 or bfloat16, or torch's dtype.
        kernel: Kernels that do the same, as `explain` takes one; several as a list or with commas.
        gpu: The GPU; None takes the one at hand, or an H100 where there is none.
        triton: A Triton, as `explain` takes it.
        num_warps: Warps per program; none takes what compiles in a moment.
        num_stages: Stages of the loop of a persistent kernel; none takes 1 to 4.
        measure: Whether to launch the best on the GPU of this machine.
        top: How many of them.
        runs: Launches timed of each, at the least.
        compile_timeout: Seconds that a compile, or the import of a kernel's file, may take; None
            waits.
        cache: Whether to use the store of compiled resources.
        journal: Where measurements are kept as they come; None keeps them nowhere.
        retry_failed: Whether to compile again what the store says cannot be compiled.
        progress: Called with the compiles done and to do.
        measuring_progress: Called with the configurations measured and to measure.

    Raises:
        InputError: what is asked for makes no sense, nothing can be predicted, or there is no GPU
            to measure on.
        UnfinishedError: Ctrl-C; it has the table of what is finished.
    """
    problem = chosen_problem(rows, cols, dtype)
    top, runs = whole_number("top", top), whole_number("runs", runs)
    if top < 1:
        msg = f"top is {top}; at least 1 configuration is measured"
        raise InputError(msg)
    device, names = _tuned_gpu(gpu, measure=measure)
    basis = _basis(device)
    made = Compiler(
        store_directory() if cache else None,
        triton=triton,
        timeout=compile_timeout,
        retry_failed=retry_failed,
        counted=progress,
    )
    with closing(made) as compiler:
        kernels = chosen_kernels(kernel or SOFTMAXES, compiler.check_file)
        other_triton = not compiler.environment.is_running
        for found in kernels:
            check_predictable(found.kernel)
            check_elsewhere(found, other_triton=other_triton, measure=measure)
        knobs = whole_numbers("num_warps", num_warps), whole_numbers("num_stages", num_stages)
        tasks = list(grid_tasks(kernels, problem, device, *knobs))
        compiled = run_tasks(tasks, compiler)
    table, ranked = _ranked(compiled, tasks)
    table = _with_recorded(table, ranked)
    if measure:
        measured = measure_table(
            table.head(top),
            ranked[:top],
            runs=runs,
            devices=names,
            progress=measuring_progress,
            journal=journal,
        )
        table = table.join(measured[list(MEASURED_COLUMNS)])
    return _tuning(table, ranked, runs, basis)


def _tuned_gpu(asked: AskedGpus | None, *, measure: bool) -> tuple[Gpu, tuple[str | None, ...]]:
    here, names = chosen_devices("tune --measure") if measure else (None, ())
    (gpu, _), *others = chosen_gpus(asked)
    if others and asked is not None:
        several = ", ".join(one.key for one in (gpu, *(other for other, _ in others)))
        msg = f"one GPU is tuned for at a time, and {several} are several"
        raise InputError(msg)
    if here is not None and gpu.key != here.key:
        msg = f"the GPU here is {here.title}; nothing can be measured on {gpu.title}"
        raise InputError(msg)
    if gpu.multiprocessors is None:
        msg = f"{gpu.title} is an architecture, not a GPU; name a GPU, such as h100, to tune for"
        raise InputError(msg)
    return gpu, names


def _basis(gpu: Gpu) -> Basis:
    basis = calibration_for(gpu)
    if basis is None:
        why = "its bandwidth is not known" if gpu.bandwidth_gbs is None else "no GPU is calibrated"
        msg = f"nothing can be predicted for {gpu.title}: {why}"
        raise InputError(msg)
    return basis


def _ranked(table: pd.DataFrame, tasks: Sequence[Task]) -> tuple[pd.DataFrame, list[Task]]:
    """Return the table and its tasks with the best predicted first, and what has no time last.

    The column `ranked` says which predicted times are set against each other; the others follow.

    Raises InputError where nothing has one.
    """
    if table["predicted_us"].isna().all():
        title, reasons = tasks[0].gpu.title, table["reason"].dropna()
        why = "its clock is not known"
        if len(reasons) == len(table):
            why = f"not one configuration is ok; the first: {reasons.iloc[0]}"
        msg = f"nothing can be predicted for {title}: {why}"
        raise InputError(msg)
    seen = table["predicted_us"].notna() & sees_stages(table)
    fewest = table["num_stages"] == table["num_stages"].min()
    table = table.assign(ranked=seen if seen.any() else fewest)
    timed = table[table["predicted_us"].notna()].sort_values("predicted_us", kind="stable")
    timed = timed.sort_values("ranked", ascending=False, kind="stable")
    order = [*timed.index, *table.index.difference(timed.index)]
    return table.loc[order].reset_index(drop=True), [tasks[place] for place in order]


def _with_recorded(table: pd.DataFrame, tasks: Sequence[Task]) -> pd.DataFrame:
    """Return *table* with a column of the times that were recorded; without where none was."""
    import pandas as pd

    found = [
        recorded_measurement(*(task.gpu.key, name, task.problem, task.config), int(programs))
        if (name := task.kernel_name) in kernel_names() and not pd.isna(programs)
        else None
        for task, programs in zip(tasks, table["num_programs"], strict=True)
    ]
    if not any(found):
        return table
    times = [None if one is None else one.us for one in found]
    return table.assign(recorded_us=pd.array(times, dtype="Float64"))


def _tuning(table: pd.DataFrame, tasks: Sequence[Task], runs: int, basis: Basis) -> Tuning:
    predicted = table[table["predicted_us"].notna()]
    launched = predicted[predicted["measured"].notna()] if "us" in table else predicted.iloc[:0]
    choices = [choice_of(row) for row in predicted.to_dict("records")]
    timed = [choice for choice in choices if choice.us is not None]
    gpu, problem = tasks[0].gpu, tasks[0].problem
    tuned = {task.kernel_name for task in tasks}
    own = [name for name in kernel_names() if name in tuned]
    recorded = recorded_ranking(gpu.key, problem, own)
    us = recorded[0].measurement.us if recorded else None
    return Tuning(
        gpu=gpu,
        problem=problem,
        faster=faster_rivals(gpu.key, problem, us) if us else {},
        best=min(timed, key=lambda choice: choice.us or 0.0, default=choices[0]),
        best_predicted=choices[0],
        best_recorded=recorded[0] if recorded else None,
        compared=dict(_compared(predicted, tasks)),
        exhaustive=cost_of(list(predicted["predicted_us"]), runs),
        spent=cost_of(list(launched["predicted_us"]), runs),
        basis=basis,
        table=table,
    )


def _compared(table: pd.DataFrame, tasks: Sequence[Task]) -> Iterator[tuple[str, Choice]]:
    """Return the tutorial's launch, and what each kernel's author would launch, where predicted."""
    for row, task in zip(table.to_dict("records"), tasks, strict=False):
        if task.config == chosen_config(task.kernel, task.problem, task.gpu, {}):
            default = choice_of(row)
            yield f"default of {default.kernel}", default
            if task.kernel_name == TUTORIAL_KERNEL:
                yield from _tutorial(task, row, default)


def _tutorial(task: Task, row: Mapping[Any, Any], default: Choice) -> Iterator[tuple[str, Choice]]:
    """Return the default with as many programs as the tutorial's formula launches."""
    version = str(row["triton_version"])
    record = matrix_record(task.asked(), row_resources(row), triton=version)
    plan = record.tutorial_plan
    prediction = record.prediction_of(plan)
    if prediction is not None and plan.num_programs:
        same = plan.num_programs == default.num_programs
        yield (
            "tutorial",
            dataclasses.replace(
                default,
                num_programs=plan.num_programs,
                predicted_us=prediction.us,
                bound=prediction.bound,
                us=default.us if same else None,
                recorded_us=default.recorded_us if same else None,
            ),
        )
