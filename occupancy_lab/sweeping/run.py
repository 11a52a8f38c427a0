"""`sweep`, and the whole command: sweep with progress, choose rows, export, plot and print."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.errors import InputError, quoted, refuse
from occupancy_lab.files import plain_rows, refused
from occupancy_lab.gpus import Gpu, find_gpu
from occupancy_lab.inputs import (
    DEFAULT_ROWS,
    AskedDtype,
    AskedGpus,
    AskedKernel,
    Integer,
    Integers,
    check_elsewhere,
    chosen_gpus,
    chosen_kernel,
    chosen_problems,
    whole_number,
    whole_numbers,
)
from occupancy_lab.measuring.journal import Journal
from occupancy_lab.measuring.process import DEFAULT_RUNS, chosen_devices
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.prediction import part_cell, ratio_error
from occupancy_lab.signature import Words, read_options
from occupancy_lab.sweeping.grid import add_columns, expand, measure_table, run_tasks
from occupancy_lab.sweeping.recorded import row_conditions, row_resources
from occupancy_lab.table.columns import COLUMNS, MEASURED_COLUMNS, RESULTS, SWEEP_COLUMNS, kinds_of
from occupancy_lab.table.rows import FORMS, Exports, View, to_table
from occupancy_lab.text.document import Block, Shown, Table, literal
from occupancy_lab.text.printing import show_status
from occupancy_lab.text.words import (
    as_sentence,
    cell,
    change,
    conditions_sentence,
    count,
    difference,
    limiter_list,
    listed,
    percent,
    range_sentence,
)
from occupancy_lab.throughput.launch_time import MEASURED
from occupancy_lab.values import Status
from occupancy_lab.workers.signals import UnfinishedError, exit_status

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int], None]


def sweep(  # noqa: PLR0913 - one argument a dimension of the grid, and how to compile it
    cols: Integers,
    *,
    rows: Integers = DEFAULT_ROWS,
    dtype: AskedDtype | Iterable[AskedDtype] = "float32",
    kernel: AskedKernel = "softmax",
    gpu: AskedGpus | None = None,
    triton: str | None = None,
    block_size: Integers = (),
    num_warps: Integers = (),
    num_stages: Integers = (),
    options: Words = (),
    jobs: Integer | None = None,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    scheduler: str | None = None,
    cache: bool = True,
    retry_failed: bool = False,
    measure: bool = False,
    runs: Integer = DEFAULT_RUNS,
    devices: str | Sequence[int] | None = None,
    journal: Journal | None = None,
    progress: Progress = lambda _done, _of: None,
    measuring_progress: Progress = lambda _done, _of: None,
) -> pd.DataFrame:
    """Compile every configuration and return a table with one row each, in the order of the grid.

    Failed configurations have rows too: `status` is "ok", "does not fit", "compile failed",
    "timed out", "skipped" or "interrupted", and `reason` says why. `occupancy_lab.table.COLUMNS`
    describes the columns; unknown numbers are missing. With *measure*, rows that are ok and for the
    GPU of this machine are launched, and the table has the columns of a measurement.

    Args:
        cols: Columns of the matrix, one number or several, as for all arguments up to *num_stages*
            except *kernel* and *triton*.
        rows: Rows of the matrix.
        dtype: float32, float16 or bfloat16, or torch's dtypes.
        kernel: A kernel, as `explain` takes it.
        gpu: GPUs or targets, as `explain` takes them.
        triton: A Triton, as `explain` takes it.
        block_size: BLOCK_SIZE; none takes the smallest that holds a row. A kernel with `configs`
            takes these, as in `tune`, if neither this nor one of the next two is given.
        num_warps: Warps per program; none takes 1 to 32.
        num_stages: Stages of the loop over rows; none takes 1 to 4.
        options: Further compiler options of every launch: "maxnreg=64".
        jobs: Compiling processes; None takes one per core.
        compile_timeout: Seconds that a compile may take; None sets no limit.
        scheduler: The address of a Dask scheduler whose workers compile instead.
        cache: Whether to use the store of compiled resources.
        retry_failed: Whether to retry what the store has as a failed compile.
        measure: Whether to time the rows that are ok on the GPU of this machine.
        runs: The minimum number of timed launches for each configuration.
        devices: The GPUs that share the launches: "all", or their numbers. None takes the first.
        journal: Keeps measurements as they arrive; None does not keep them.
        progress: Called with the numbers of finished and of all compiles.
        measuring_progress: Called with the numbers of finished and of all measurements.

    Raises:
        InputError: the arguments make no sense, or there is no GPU to measure on.
        UnfinishedError: Ctrl-C; it has the table, with the status "interrupted" for rows that were
            not compiled, and without the missing times.
    """
    problems = chosen_problems(rows, cols, dtype)
    made = Compiler(
        store_directory() if cache else None,
        triton=triton,
        jobs=None if jobs is None else whole_number("jobs", jobs),
        scheduler=scheduler,
        timeout=compile_timeout,
        retry_failed=retry_failed,
        counted=progress,
    )
    with closing(made) as compiler:
        found = chosen_kernel(kernel, compiler.check_file)
        gpus = [one for one, _ in chosen_gpus(gpu)]
        here, names = (
            chosen_devices("a measured sweep", devices, among=gpus) if measure else (None, ())
        )
        other_triton = not compiler.environment.is_running
        check_elsewhere(found, other_triton=other_triton, measure=measure)
        if scheduler is not None:
            found.check_name("a Dask cluster")
        given = read_options(options)
        if measure and given:
            refuse("--measure launches a kernel as it is, without further compiler options")
        tasks = [
            *expand(
                found,
                problems=problems,
                gpus=gpus,
                block_sizes=whole_numbers("block_size", block_size),
                num_warps=whole_numbers("num_warps", num_warps),
                num_stages=whole_numbers("num_stages", num_stages),
                options=given,
            )
        ]
        failures = filter(None, (one.why_not() for one in tasks))
        skipped = [one.reason for one in failures if one.status is Status.SKIPPED]
        if skipped and len(skipped) == len(tasks):
            refuse(skipped[0])
        try:
            table = run_tasks(tasks, compiler)
        except UnfinishedError as interrupt:
            finished = add_columns(interrupt.finished, {}) if measure else interrupt.finished
            raise UnfinishedError(finished) from interrupt
    if here is None:
        return table
    return measure_table(
        table,
        tasks,
        gpu=here,
        runs=whole_number("runs", runs),
        devices=names,
        progress=measuring_progress,
        journal=journal,
    )


@contextlib.contextmanager
def shown_progress(*stages: str, quiet: bool = False) -> Iterator[list[Callable[[int, int], None]]]:
    """Return for each of *stages* a function that draws its progress, rate and time left.

    Nothing is drawn if standard error is not a terminal, or with *quiet*.
    """
    if quiet or not sys.stderr.isatty():
        yield [lambda _done, _of: None for _ in stages]
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:.1f}/s")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:

        def shown(task: TaskID) -> Callable[[int, int], None]:
            return lambda done, of: bar.update(task, completed=done, total=of, visible=True)

        yield [shown(bar.add_task(stage, total=None, visible=False)) for stage in stages]


NOT_WRITTEN = 2
"""The exit status if a file could not be written."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The output and the exit status of a sweep."""

    shown: Shown
    status: int
    """0; 1 if no configuration is ok, NOT_WRITTEN, or the status of the signal that ended it."""
    complaints: tuple[str, ...] = ()
    """A sentence for each error after the rows were finished."""


def run(
    view: View,
    exports: Exports,
    *,
    launches: Callable[..., Any] | None = None,
    form: str | None,
    plot: str | None = None,
    **grid: Any,
) -> Swept:
    """Sweep the *grid*, write the files, and return the text to print and the exit status.

    *grid* has the arguments of `sweep`, or of *launches*, which returns an Explanation. If
    a signal ends the sweep, the finished part is printed and written. If one file cannot be
    written, the others still are.

    Raises InputError, before any work, for invalid arguments and paths.
    """
    if launches is None:
        columns = [*SWEEP_COLUMNS, *(MEASURED_COLUMNS if grid.get("measure") else ())]
        view.check({name: COLUMNS[name].kind for name in columns}, UNMEASURED)
    exports.check(inputs={"--kernel": grid.get("kernel")}, pictures={"--plot": plot})
    gpus = {gpu.key: gpu for gpu, _ in chosen_gpus(grid.get("gpu"))}
    said: Sequence[str] = ()
    signalled = 0
    if launches is None:
        table, signalled = _swept(**grid)
    else:
        if not grid.pop("quiet", False):
            grid["progress"] = show_status
        launched = launches(**grid, all_may_fail=True)
        table, said = launched.table(), launched.less_work
    chosen = choose(table, view)
    rows = plain_rows(chosen)
    complaints = [*exports.write([*chosen], rows)]
    if plot is not None:
        try:
            _plot(chosen, Path(plot), gpus)
        except InputError as error:
            complaints.append(str(error))
    shown: Shown
    if form:
        shown = FORMS[form]([*chosen], rows)
    elif view.where is not None and len(table) and not len(chosen):
        shown = (f"{_summary(table)}; none meets --where {literal(quoted(view.where))}.", *said)
    else:
        shown = (*to_screen(chosen, gpus, len(table)), *said)
    if signalled:
        return Swept(shown, signalled, (*complaints, "interrupted; what was finished is above"))
    if complaints:
        return Swept(shown, NOT_WRITTEN, tuple(complaints))
    return Swept(shown, 0 if (table["status"] == "ok").any() else 1)


def _swept(*, quiet: bool = False, **grid: Any) -> tuple[pd.DataFrame, int]:
    """Return the table, and the exit status of the signal that ended the work, or 0."""
    with shown_progress("compiling", "measuring", quiet=quiet) as (compiling, measuring):
        try:
            return sweep(progress=compiling, measuring_progress=measuring, **grid), 0
        except UnfinishedError as interrupt:
            return interrupt.finished, exit_status(interrupt)


def _plot(table: pd.DataFrame, directory: Path, gpus: Mapping[str, Gpu]) -> None:
    """Draw a heat map of each GPU's rows, and the curves of its first configuration that is ok.

    Raises InputError if the pictures cannot be written.
    """
    from occupancy_lab.plotting import draw_curves, draw_heatmap, save

    with refused(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for gpu, rows in table.groupby("gpu", sort=False):
            figures = {f"heatmap-{gpu}": draw_heatmap(rows)}
            fine = rows[rows["status"] == "ok"]
            if len(fine):
                resources = row_resources(fine.iloc[0].to_dict())
                figures[f"curves-{gpu}"] = draw_curves(calculate(resources, gpus[str(gpu)]))
            for name, figure in figures.items():
                for suffix in ("svg", "png"):
                    save(figure, directory / f"{name}.{suffix}")


SHOWN = {
    "n_regs": "n_regs",
    "local_bytes": "local",
    "shared": "shared",
    "programs_per_multiprocessor": "programs",
    "tutorial_programs": "tutorial",
    "occupancy": "occupancy",
    "limiter": "limiter",
    "predicted_us": "predicted us",
    "speed_of_light_us": "least us",
    "bound": "bound",
    "us": "measured us",
    "difference": "off",
}
"""The columns that a screen shows, and their names there; exports have all columns."""
SPARED = ("tutorial_programs", "shared", "limiter", "n_regs")
"""The columns that are left out on a narrow screen, in this order."""
_UNTOLD = ("target", "status", "reason", "triton_version", "num_ctas")
"""The identifying columns that a screen leaves out."""
ALIKE = "="
"""The mark of a predicted time that is not noticeably longer than the shortest."""
WITHIN = "between predicted_low_us and predicted_high_us, which exports have"
"""The words for the range, which a screen does not show."""
UNMEASURED = dict.fromkeys(MEASURED_COLUMNS, "--measure gives it")
"""How to get the columns that a table without measurements lacks."""


def choose(table: pd.DataFrame, view: View) -> pd.DataFrame:
    """Return the rows of a sweep that *view* shows; raise InputError if it is invalid.

    By default the rows are sorted by time for each GPU and matrix.
    """
    table = table if view.sort else _fastest_first(table)
    rows = plain_rows(table)
    kinds = kinds_of(rows)
    kinds |= {str(name): COLUMNS[str(name)].kind for name in table if str(name) in COLUMNS}
    view.check(kinds, UNMEASURED)
    return table.iloc[view.places(rows, kinds)]


def _fastest_first(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows sorted by time for each GPU and matrix.

    Rows that do less work than others follow those, and rows without a time are last.
    """
    us = table["predicted_us"]
    if "us" in table:
        us = table["us"].where(table["measured"].notna(), us)
    order = table.assign(group=_groups(table), untimed=us.isna(), less=~_whole(table), time=us)
    return table.loc[order.sort_values(["group", "untimed", "less", "time"]).index]


def _whole(table: pd.DataFrame) -> pd.Series[bool]:
    if "whole_work" in table:
        return table["whole_work"].astype(bool)
    return table["gpu"].map(lambda _gpu: True).astype(bool)


def _groups(table: pd.DataFrame) -> pd.Series[int]:
    same = [name for name in ("gpu", "rows", "cols", "dtype") if name in table]
    return table.groupby(same, sort=False, dropna=False).ngroup()


def to_screen(
    table: pd.DataFrame, gpus: Mapping[str, Gpu] | None = None, of: int | None = None
) -> tuple[Block, ...]:
    """Return what a screen shows: what all rows share, the rows that are ok, and failures.

    *of* is the number of rows that these were chosen from; None if all are shown. `predicted us` is
    always shown, `measured us` and the error of the prediction if launches were measured. *gpus*
    has GPUs that are not in the table of devices by their keys, such as the GPU at hand.
    """
    grid = [str(name) for name in table if name not in RESULTS and name not in _UNTOLD]
    varying = [name for name in grid if len(table[name].astype(str).unique()) > 1]
    shared = [
        f"{literal(name)} {literal(str(table[name].iloc[0]))}"
        for name in grid
        if name not in varying and len(table)
    ]
    shared += [f"Triton {version}" for version in table["triton_version"].unique()]
    parts: list[Block] = [", ".join(shared)] if shared else []
    fine = table[table["status"] == "ok"]
    if len(fine):
        shown = _shown(fine, gpus or {})
        columns = [name for name in SHOWN if name in shown and _says_something(shown, name)]
        wide = shown[[*varying, *columns]].rename(columns=SHOWN)
        shown = _narrowed(wide)
        spared = [str(name) for name in wide if name not in shown]
        parts.append(_table(shown))
    parts += [_table(rows) for rows in _failures(table, varying) if len(rows)]
    legend = _legend(shown, spared) if len(fine) else ""
    parts.append(f"{_summary(table, of)}.{legend}")
    return (*parts, *_time_sentences(fine, gpus or {}))


def _says_something(table: pd.DataFrame, name: str) -> bool:
    if name == "local_bytes":
        return bool(table[name].fillna(0).any())
    if name == "speed_of_light_us":
        least = table.groupby("gpu", sort=False)[name].nunique()
        return bool((least > 1).any() and table["predicted_us"].isna().any())
    return name == "predicted_us" or bool(table[name].notna().any())


def _shown(fine: pd.DataFrame, gpus: Mapping[str, Gpu]) -> pd.DataFrame:
    vendors = {key: (gpus.get(key) or find_gpu(key)).vendor for key in fine["gpu"].unique()}
    limiters = zip(fine["gpu"], fine["limiter"], strict=True)
    shown = fine.assign(
        occupancy=fine["occupancy"].map(percent, na_action="ignore"),
        limiter=[", ".join(limiter_list(vendors[key], names)) for key, names in limiters],
        predicted_us=fine["predicted_us"].map(cell, na_action="ignore").astype("string")
        + _marks(fine),
        speed_of_light_us=fine["speed_of_light_us"].map(cell, na_action="ignore"),
        bound=fine["bound"].map(part_cell, na_action="ignore"),
    )
    if "us" not in fine:
        return shown
    off = difference(fine["predicted_us"], fine["us"])
    return shown.assign(
        us=fine["us"].map(cell, na_action="ignore"),
        difference=off.map(change, na_action="ignore"),
    )


def _marks(fine: pd.DataFrame) -> pd.Series[str]:
    """Return ALIKE for each row that is not noticeably slower than the fastest of its group.

    Rows that do less work than others have no mark.
    """
    marks = fine["gpu"].map(lambda _gpu: "")
    ranked = fine[fine["predicted_us"].notna() & _whole(fine)]
    for _, rows in ranked.groupby(_groups(fine)):
        first = rows.sort_values("predicted_us").iloc[0]
        most = first["predicted_us"] * (1 + ratio_error(first["basis"], first["bound"]))
        alike = rows.index[rows["predicted_us"] < most]
        marks[alike] = f" {ALIKE}" if len(alike) > 1 else ""
    return marks


def _narrowed(shown: pd.DataFrame) -> pd.DataFrame:
    """Return the table without as many of the SPARED columns as it takes to fit the terminal."""
    room = shutil.get_terminal_size().columns
    for name in SPARED:
        texts = ([str(header), *map(str, column.dropna())] for header, column in shown.items())
        longest = (max(len(word) for text in one for word in text.split()) for one in texts)
        if sum(2 + letters for letters in longest) <= room:
            break
        shown = shown.drop(columns=SHOWN[name], errors="ignore")
    return shown


def _legend(shown: pd.DataFrame, spared: list[str]) -> str:
    meanings = {
        "tutorial": "the number by the tutorial's formula",
        "least us": "the speed of light by the data sheet",
        "off": "the error of the predicted time",
    }
    told = [f"{name} is {meaning}" for name, meaning in meanings.items() if name in shown]
    if shown[SHOWN["predicted_us"]].str.endswith(ALIKE).any():
        told.append(f"{ALIKE} marks times that predictions do not tell from the fastest")
    words = [", ".join(told), f"a wider terminal shows {listed(spared)}" if spared else ""]
    return "".join(f" {as_sentence(one)}" for one in words if one)


def _failures(table: pd.DataFrame, varying: list[str]) -> Iterator[pd.DataFrame]:
    failed = table[table["status"] != "ok"]
    if len(failed):
        yield failed[[*varying, "status", "reason"]].rename(columns=SHOWN)
    if "measured" in table:
        timeless = table[table["measured"].notna() & table["us"].isna()]
        names = SHOWN | {"measured": "when launched", "why_not": "reason"}
        yield timeless[[*varying, "measured", "why_not"]].rename(columns=names)


def _time_sentences(fine: pd.DataFrame, gpus: Mapping[str, Gpu]) -> Iterator[str]:
    for key, rows in fine[fine["predicted_us"].notna()].groupby("gpu", sort=False):
        gpu = gpus.get(str(key)) or find_gpu(str(key))
        basis, calibrated = str(rows["basis"].iloc[0]), gpu.key in MEASURED
        yield range_sentence(gpu, basis, calibrated=calibrated, within=WITHIN)
    yield from _stages_without_loop(fine)
    if "us" not in fine:
        return
    measured = fine[fine["us"].notna()]
    if len(measured):
        (first,) = plain_rows(measured.head(1))
        yield conditions_sentence(row_conditions(first), first["runs"])


def _stages_without_loop(fine: pd.DataFrame) -> Iterator[str]:
    if "num_stages" not in fine:
        return
    flat = fine[fine["loop_instructions"].isna() & fine["instructions"].notna()]
    for kernel, rows in flat.groupby("kernel", sort=False):
        if len(rows["num_stages"].unique()) > 1:
            yield (
                f"{literal(str(kernel))} has no loop to pipeline: rows that differ only in"
                " num_stages are equal."
            )


def _table(table: pd.DataFrame) -> Table:
    return to_table([*table], plain_rows(table))


def _summary(table: pd.DataFrame, of: int | None = None) -> str:
    counts = table["status"].value_counts()
    parts = ", ".join(f"{number} {status}" for status, number in counts.items())
    several = count(len(table), "configuration")
    if of is not None and of > len(table):
        several = f"{len(table)} of {count(of, 'configuration')}"
    return f"{several}: {parts or 'none'}"
