"""`sweep`: a grid of configurations on several GPUs, compiled once each, one row each."""

from __future__ import annotations

import dataclasses
import itertools
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from occupancy_lab.asked import Matrix, ask
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compile import failure_of
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.errors import DoesNotFitError, InputError, refuse
from occupancy_lab.inputs import (
    DEFAULT_ROWS,
    NamedKernel,
    check_elsewhere,
    check_launch,
    chosen_config,
    chosen_gpus,
    chosen_kernel,
    chosen_problems,
    next_power_of_two,
    whole_number,
    whole_numbers,
)
from occupancy_lab.kernel import Grid
from occupancy_lab.launch import Launch
from occupancy_lab.measuring.process import DEFAULT_RUNS, chosen_devices
from occupancy_lab.measuring.verify import grid_of_configs
from occupancy_lab.record import Failed, Record, records_of, with_counts
from occupancy_lab.signature import read_options
from occupancy_lab.sweeping.measured import add_columns, measure_table
from occupancy_lab.sweeping.rows import make_table
from occupancy_lab.values import Config, Failure, Resources
from occupancy_lab.workers.signals import UnfinishedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    from occupancy_lab.asked import Asked
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.inputs import AskedDtype, AskedGpus, AskedKernel, Integer, Integers
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.measuring.journal import Journal
    from occupancy_lab.signature import Words
    from occupancy_lab.values import Problem

    Outcome = Resources | Failure
    Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Task:
    """A cell of the grid; `kernel_name` is what `load_kernel` finds the kernel by.

    It is None for a Kernel that only this process has.
    """

    kernel_name: str | None
    kernel: Kernel
    problem: Problem
    config: Config
    gpu: Gpu
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further compiler options."""

    def why_not(self) -> Failure | None:
        """Return why it need not be compiled, as it cannot be launched or does not fit; or None."""
        try:
            check_launch(self.kernel, self.problem, self.config, self.gpu)
        except (InputError, DoesNotFitError) as error:
            return failure_of(error)
        return None

    def asked(self) -> Asked:
        """Return its launch; InputError where the kernel cannot be launched so."""
        named = NamedKernel(self.kernel_name, self.kernel)
        return ask(named, self.problem, self.config, self.gpu, self.options)

    def refused(self, failure: Failure, triton: str) -> Failed:
        """Return it as a launch that has no record because of *failure*."""
        return Failed(
            kernel=self.kernel.name,
            launch=Launch((), {}),
            arguments={},
            constexprs=(),
            options={},
            gpu=self.gpu,
            matrix=Matrix(self.kernel, self.problem, self.config, self.options),
            failure=failure,
            triton_version=triton,
        )


def expand(  # noqa: PLR0913 - one argument a dimension of the grid
    kernel_name: str | None,
    kernel: Kernel,
    *,
    problems: Sequence[Problem],
    gpus: Sequence[Gpu],
    block_sizes: Sequence[int],
    num_warps: Sequence[int],
    num_stages: Sequence[int],
) -> Iterator[Task]:
    """Return every cell: GPUs outermost, then problems, BLOCK_SIZE, num_warps and num_stages.

    Without *block_sizes* a kernel that holds a row takes the smallest that does, and one that does
    not takes its default. Without any knob a kernel with configs takes these, as `tune` does.
    """
    for gpu, problem in itertools.product(gpus, problems):
        if kernel.configs is not None and not (block_sizes or num_warps or num_stages):
            yield from grid_tasks([NamedKernel(kernel_name, kernel)], problem, gpu)
            continue
        sizes = block_sizes or (_own_block_size(kernel, problem, gpu),)
        for knobs in itertools.product(sizes, num_warps or NUM_WARPS, num_stages or NUM_STAGES):
            yield Task(kernel_name, kernel, problem, Config(*knobs), gpu)


def _own_block_size(kernel: Kernel, problem: Problem, gpu: Gpu) -> int:
    in_blocks = kernel.grid is Grid.BLOCKS or kernel.passes is not None
    if in_blocks or kernel.configs is not None:
        return kernel.default_config(problem, gpu.architecture.max_shared).block_size
    return next_power_of_two(problem.cols)


def grid_tasks(
    kernels: Sequence[NamedKernel],
    problem: Problem,
    gpu: Gpu,
    num_warps: Sequence[int] = (),
    num_stages: Sequence[int] = (),
) -> Iterator[Task]:
    """Return every configuration of every kernel, each kernel's own default among them.

    Of several, a kernel with configs that has none for the problem is left out.
    """
    for name, kernel in kernels:
        if kernel.configs is not None and len(kernels) > 1 and not kernel.configs(problem):
            continue
        loops = kernel.grid is Grid.PERSISTENT or kernel.configs is not None
        stages = num_stages if loops else (1,)
        configs = grid_of_configs(kernel, problem, gpu, num_warps, stages)
        for config in dict.fromkeys((*configs, chosen_config(kernel, problem, gpu, {}))):
            yield Task(name, kernel, problem, config, gpu)


NUM_WARPS = (1, 2, 4, 8, 16, 32)
NUM_STAGES = (1, 2, 3, 4)


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
    """Compile every configuration and give a table with one row each, in the order of the grid.

    A configuration that cannot be had is a row too: `status` is "ok", "does not fit",
    "compile failed", "timed out", "skipped" or "interrupted", and `reason` says why.
    `occupancy_lab.table.COLUMNS` says what each column holds; a number that is not known is
    missing. With *measure* rows that are ok are launched where they are for the GPU of this
    machine, and the columns of a measurement are there too.

    Args:
        cols: Columns of the matrix, one number or several; as are all but *kernel* and *triton* up
            to *num_stages*.
        rows: Rows of the matrix.
        dtype: float32, float16 or bfloat16, or torch's dtypes.
        kernel: A kernel, as `explain` takes it.
        gpu: GPUs or targets, as `explain` takes them.
        triton: A Triton, as `explain` takes it.
        block_size: BLOCK_SIZE; none takes the smallest that holds a row. A kernel with `configs`
            takes these where neither this nor one of the next two is given, as `tune` does.
        num_warps: Warps per program; none takes 1 to 32.
        num_stages: Stages of the loop over rows; none takes 1 to 4.
        options: Further compiler options of every launch: "maxnreg=64".
        jobs: Compiling processes; None takes one per core.
        compile_timeout: Seconds a compile may take; None waits.
        scheduler: The address of a Dask scheduler whose workers compile instead.
        cache: Whether to use the store of compiled resources.
        retry_failed: Whether to compile again what the store says cannot be compiled.
        measure: Whether to time what is ok on the GPU of this machine.
        runs: Launches timed of each configuration, at the least.
        devices: The GPUs that share the launches: "all", or their numbers. None takes the first.
        journal: Where measurements are kept as they come; None keeps them nowhere.
        progress: Called with the compiles done and to do.
        measuring_progress: Called with the configurations measured and to measure.

    Raises:
        InputError: what is asked for makes no sense as a whole, or there is no GPU to measure on.
        UnfinishedError: Ctrl-C; it has the table, with the status "interrupted" in the rows that
            were not compiled, and without the times that were not measured.
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
        here, names = _measured_on(gpus, devices) if measure else (None, ())
        other_triton = not compiler.environment.is_running
        check_elsewhere(found, other_triton=other_triton, measure=measure)
        if scheduler is not None:
            found.check_name("a Dask cluster")
        given = read_options(options)
        if measure and given:
            refuse("--measure launches a kernel as it is, without further compiler options")
        tasks = [
            dataclasses.replace(task, options=given)
            for task in expand(
                *found,
                problems=problems,
                gpus=gpus,
                block_sizes=whole_numbers("block_size", block_size),
                num_warps=whole_numbers("num_warps", num_warps),
                num_stages=whole_numbers("num_stages", num_stages),
            )
        ]
        try:
            table = run_tasks(tasks, compiler, counted=True)
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


def _measured_on(
    gpus: Sequence[Gpu], devices: str | Sequence[int] | None
) -> tuple[Gpu, tuple[str | None, ...]]:
    here, names = chosen_devices("a measured sweep", devices)
    if here.key not in {gpu.key for gpu in gpus}:
        asked = ", ".join(gpu.title for gpu in gpus)
        refuse(f"the GPU here is {here.title}, and no row is for it to be measured on: {asked}")
    return here, names


def run_tasks(tasks: Sequence[Task], compiler: Compiler, *, counted: bool = False) -> pd.DataFrame:
    """Return the table of *tasks* as *compiler* compiles them, with a row each, as `sweep` does.

    Where they are *counted*, it has what each of them does.

    Raises UnfinishedError, with the table of what is finished, on Ctrl-C.
    """
    unfinished = None
    try:
        outcomes = compile_tasks(tasks, compiler)
    except UnfinishedError as interrupt:
        outcomes, unfinished = interrupt.finished, interrupt
    runs = task_runs(outcomes, compiler.environment.triton)
    if unfinished is not None:
        raise UnfinishedError(make_table(runs)) from unfinished
    if not counted:
        return make_table(runs)
    asked = [
        task.asked() if isinstance(run, Record) else None
        for (task, _), run in zip(outcomes, runs, strict=True)
    ]
    return make_table(with_counts(runs, asked, compiler))


def task_runs(outcomes: Sequence[tuple[Task, Outcome]], triton: str) -> list[Record | Failed]:
    """Return what becomes of tasks that the Triton of version *triton* compiled, in their order."""
    compiled = [(task.asked(), one) for task, one in outcomes if isinstance(one, Resources)]
    records = iter(records_of(*zip(*compiled, strict=True), triton=triton) if compiled else ())
    return [
        task.refused(one, triton) if isinstance(one, Failure) else next(records)
        for task, one in outcomes
    ]


def compile_tasks(tasks: Sequence[Task], compiler: Compiler) -> list[tuple[Task, Outcome]]:
    """Return each of *tasks* with what it compiles to, or why it does not, in their order.

    Raises UnfinishedError, with the outcomes, INTERRUPTED those of what is not finished, on Ctrl-C.
    """
    refused = {task: failure for task in tasks if (failure := task.why_not()) is not None}
    wanted = [task for task in tasks if task not in refused]
    unfinished = None
    try:
        outcomes = compiler.compile([task.asked().compilation for task in wanted])
    except UnfinishedError as interrupt:
        outcomes, unfinished = interrupt.finished, interrupt
    compiled = {**refused, **dict(zip(wanted, outcomes, strict=True))}
    found = [(task, compiled[task]) for task in tasks]
    if unfinished is not None:
        raise UnfinishedError(found) from unfinished
    return found
