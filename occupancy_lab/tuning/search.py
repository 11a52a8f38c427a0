"""`tune`: compiles all configurations, ranks them by prediction, and may measure the best."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from occupancy_lab.asked import Asked
from occupancy_lab.compiled_records import compile_record
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.errors import refuse
from occupancy_lab.explaining.duration import why_no_time
from occupancy_lab.explaining.facts import all_launched_words
from occupancy_lab.explaining.variants import less_work_sentences
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import (
    DEFAULT_ROWS,
    TUTORIAL_KERNEL,
    AskedDtype,
    AskedGpus,
    AskedKernel,
    Integer,
    Integers,
    check_elsewhere,
    chosen_config,
    chosen_gpus,
    chosen_kernels,
    chosen_problem,
    whole_number,
    whole_numbers,
)
from occupancy_lab.kernel import kernel_names, own_kernel
from occupancy_lab.measuring.journal import Journal
from occupancy_lab.measuring.process import DEFAULT_RUNS, chosen_devices
from occupancy_lab.prediction import CHOSEN
from occupancy_lab.record import Record, matrix_of
from occupancy_lab.signature import Words, read_options
from occupancy_lab.sweeping.grid import grid_tasks, measure_table, run_tasks
from occupancy_lab.sweeping.recorded import faster_rivals, recorded_measurement, recorded_ranking
from occupancy_lab.table.columns import MEASURED_COLUMNS
from occupancy_lab.tuning.choice import TOP, Choice, Tuning, Tunings, choice_of, cost_of
from occupancy_lab.values import Status

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int], None]


def tune(  # noqa: PLR0913 - one argument per option of the command line
    cols: Integer,
    *,
    rows: Integer = DEFAULT_ROWS,
    dtype: AskedDtype = "float32",
    kernel: AskedKernel | Iterable[AskedKernel] = (),
    gpu: AskedGpus | None = None,
    triton: str | None = None,
    num_warps: Integers = (),
    num_stages: Integers = (),
    options: Words = (),
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
    launched on this machine too, at least *runs* times each, and the fastest of them is the choice.
    *journal* keeps measurements as they come in.

    *kernel* has kernels that do the same, several as a list or with commas; the default is the
    softmax kernels. *gpu* is one GPU; None means that of this machine, or an H100 without one. The
    default of *num_warps* is what compiles quickly; that of *num_stages*, for the loop of a
    persistent kernel, is 1 to 4. *progress* is called with the number of finished compiles and the
    number of all, *measuring_progress* with those of measured configurations. The other arguments
    are those of `explain_matrix`.

    Raises:
        InputError: an argument is invalid, nothing can be predicted, or there is no GPU to measure
            on.
        UnfinishedError: Ctrl-C; it has the table of what is finished.
    """
    problem = chosen_problem(rows, cols, dtype)
    top, runs = whole_number("top", top), whole_number("runs", runs)
    if top < 1:
        refuse(f"top is {top}; at least 1 configuration is measured")
    device, names = _tuned_gpu(gpu, measure=measure)
    if device.bandwidth_gbs is None:
        refuse(f"nothing can be predicted for {device.title}: its bandwidth is not known")
    made = Compiler(
        store_directory() if cache else None,
        triton=triton,
        timeout=compile_timeout,
        retry_failed=retry_failed,
        counted=progress,
    )
    with closing(made) as compiler:
        kernels = chosen_kernels(kernel or own_kernel(TUTORIAL_KERNEL).alike, compiler.check_file)
        other_triton = not compiler.environment.is_running
        for found in kernels:
            check_elsewhere(found, other_triton=other_triton, measure=measure)
        knobs = whole_numbers("num_warps", num_warps), whole_numbers("num_stages", num_stages)
        given = read_options(options)
        if measure and given:
            refuse("--measure launches a kernel as it is, without further compiler options")
        tasks = [*grid_tasks(kernels, problem, device, *knobs, options=given)]
        compiled = run_tasks(tasks, compiler)
        tutorial = [
            compile_record(task, compiler)
            for task, status in zip(tasks, compiled["status"], strict=True)
            if task.name == TUTORIAL_KERNEL and status == Status.OK.value and _is_default(task)
        ]
    _check_predicted(compiled, device)
    table = _ranked(compiled)
    ranked = [tasks[place] for place in table.index]
    table = _with_recorded(table.reset_index(drop=True), ranked)
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
    return _of_matrix(_tuning(table, device, problem.words, runs=runs), ranked, tutorial)


def _tuned_gpu(asked: AskedGpus | None, *, measure: bool) -> tuple[Gpu, tuple[str | None, ...]]:
    (gpu, _), *others = chosen_gpus(asked)
    if others and asked is not None:
        several = ", ".join(one.key for one in (gpu, *(other for other, _ in others)))
        refuse(f"one GPU is tuned for at a time, and {several} are several")
    names = chosen_devices("tune --measure", among=[gpu])[1] if measure else ()
    if gpu.multiprocessors is None:
        refuse(f"{gpu.title} is an architecture, not a GPU; name a GPU, such as h100, to tune for")
    return gpu, names


def tune_launches(
    *, measure: bool = False, top: Integer = 5, runs: Integer = DEFAULT_RUNS, **asked: Any
) -> Tunings:
    """Return the launches that are *asked*, as for `explain`, ranked by predicted time.

    Each GPU has its own ranking. With *measure* the *top* best predicted are timed on this
    machine's GPU, and the fastest of them is the best; *runs* is how many launches measuring each
    times.

    Raises InputError if no launch has a predicted time; the message says why.
    """
    from occupancy_lab.explaining.dry_run import explain_and_time, explain_launch

    runs = whole_number("runs", runs)
    if measure:
        found = explain_and_time(most=whole_number("top", top), runs=runs, **asked)
    else:
        found = explain_launch(**asked)
    table = found.table()
    if table["predicted_us"].isna().all():
        why = why_no_time(found.records[0]).replace("`", "")
        refuse(f"{why}; `sweep` lists these launches without a time")
    tunings = []
    for one in dict.fromkeys(run.gpu for run in found.runs):
        rows = table[table["gpu"] == one.key]
        if rows["predicted_us"].notna().any():
            of_gpu = [run for run in found.runs if run.gpu == one]
            launched = all_launched_words(of_gpu)
            ranked = _ranked(rows).reset_index(drop=True)
            less_work = tuple(less_work_sentences(of_gpu))
            tunings.append(_tuning(ranked, one, launched, runs=runs, less_work=less_work))
    return Tunings(tunings)


def _check_predicted(table: pd.DataFrame, gpu: Gpu) -> None:
    if table["predicted_us"].isna().all():
        reasons = table["reason"].dropna()
        why = "its clock is not known"
        if len(reasons) == len(table):
            why = f"not one configuration is ok; the first: {reasons.iloc[0]}"
        refuse(f"nothing can be predicted for {gpu.title}: {why}")


def _ranked(table: pd.DataFrame) -> pd.DataFrame:
    """Return *table* with the best predicted rows first, and rows without a time last.

    Rows whose column `ranked` is false follow the ranked ones. The best row has the range of a
    launch that is chosen.
    """
    ranked: Any = table.get("whole_work", default=True)
    table = table.assign(ranked=ranked)
    timed = table[table["predicted_us"].notna()]
    timed = timed.sort_values(["ranked", "predicted_us"], ascending=[False, True])
    if len(timed) and timed["predicted_us"].max() > (least := timed["predicted_us"].iloc[0]):
        best = timed.index[timed["predicted_us"] == least]
        table.loc[best, "predicted_high_us"] *= CHOSEN
    return table.loc[[*timed.index, *table.index.difference(timed.index)]]


def _with_recorded(table: pd.DataFrame, tasks: Sequence[Asked]) -> pd.DataFrame:
    import pandas as pd

    found = [
        recorded_measurement(
            task.gpu.key, name, matrix_of(task).problem, matrix_of(task).config, int(programs)
        )
        if (name := task.name) in kernel_names() and not pd.isna(programs)
        else None
        for task, programs in zip(tasks, table["num_programs"], strict=True)
    ]
    if not any(found):
        return table
    times = [None if one is None else one.us for one in found]
    return table.assign(recorded_us=pd.array(times, dtype="Float64"))


def _tuning(
    table: pd.DataFrame, gpu: Gpu, launched: str, *, runs: int, less_work: tuple[str, ...] = ()
) -> Tuning:
    """Return the tuning in a ranked *table* of launches on *gpu*.

    *less_work* says which launches do less than others.
    """
    predicted = table[table["predicted_us"].notna()]
    measured = predicted[predicted["measured"].notna()] if "us" in table else predicted.iloc[:0]
    choices = [choice_of(row) for row in predicted.to_dict("records")]
    timed = [choice for choice in choices if choice.us is not None]
    return Tuning(
        gpu=gpu,
        launched=launched,
        best=min(timed, key=lambda choice: choice.us or 0.0, default=choices[0]),
        best_predicted=choices[0],
        less_work=less_work,
        exhaustive=cost_of(list(predicted["predicted_us"][predicted["ranked"]]), runs),
        spent=cost_of(list(measured["predicted_us"]), runs),
        table=table,
    )


def _of_matrix(found: Tuning, tasks: Sequence[Asked], tutorial: Sequence[Record]) -> Tuning:
    """Return the tuning *found* of *tasks*, launches of a matrix, with what it is compared with.

    *tutorial* has the record of the tutorial's kernel, if it is among them.
    """
    problem, key = matrix_of(tasks[0]).problem, found.gpu.key
    tuned = {task.name for task in tasks}
    recorded = recorded_ranking(key, problem, [name for name in kernel_names() if name in tuned])
    us = recorded[0].measurement.us if recorded else None
    predicted = found.table[found.table["predicted_us"].notna()]
    return dataclasses.replace(
        found,
        problem=problem,
        best_recorded=recorded[0] if recorded else None,
        faster=faster_rivals(key, problem, us) if us else {},
        compared=dict(_compared(predicted, tasks, tutorial)),
    )


def _is_default(task: Asked) -> bool:
    matrix = matrix_of(task)
    return matrix.config == chosen_config(matrix.kernel, matrix.problem, task.gpu, {})


def _compared(
    predicted: pd.DataFrame, tasks: Sequence[Asked], tutorial: Sequence[Record]
) -> Iterator[tuple[str, Choice]]:
    for row, task in zip(predicted.to_dict("records"), tasks, strict=False):
        if not _is_default(task):
            continue
        default = choice_of(row)
        yield f"default of {default.kernel}", default
        for record in tutorial if task.name == TUTORIAL_KERNEL else ():
            plan, prediction = record.tutorial_plan, record.as_tutorial
            if prediction is not None and plan is not None and plan.num_programs:
                same = record.miscount is None
                launched = dataclasses.replace(
                    default,
                    num_programs=plan.num_programs,
                    predicted_us=prediction.us,
                    bound=prediction.bound,
                    predicted_low_us=prediction.low_us,
                    predicted_high_us=prediction.high_us,
                    us=default.us if same else None,
                    recorded_us=default.recorded_us if same else None,
                )
                yield "tutorial", launched
