"""`sweep`: a grid of configurations on several GPUs, compiled once each, one row each."""

from __future__ import annotations

import itertools
import os
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import (
    Store,
    compile_resources,
    kernel_launch,
    resource_key,
    store_directory,
)
from occupancy_lab.compiling.compile import would_fail_again
from occupancy_lab.compiling.environment import find_environment, running_environment
from occupancy_lab.compiling.pool import check_scheduler, compile_here, compile_on_cluster
from occupancy_lab.compiling.process import COMPILE_TIMEOUT, Compiler, Request
from occupancy_lab.compiling.store import key_as_json, key_digest
from occupancy_lab.errors import DoesNotFitError, InputError, OccupancyLabError
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
from occupancy_lab.measuring.process import DEFAULT_RUNS, chosen_devices
from occupancy_lab.measuring.verify import grid_of_configs
from occupancy_lab.sweeping.measured import add_columns, measure_table
from occupancy_lab.sweeping.rows import COLUMNS, make_table
from occupancy_lab.values import Config, Failure, Resources
from occupancy_lab.workers import signals
from occupancy_lab.workers.signals import UnfinishedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    from occupancy_lab.compiling.environment import Environment
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.inputs import AskedDtype, AskedGpus, AskedKernel, Integer, Integers
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.measuring.journal import Journal
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

    def why_not(self) -> Failure | None:
        """Return why it need not be compiled, as it cannot be launched or does not fit; or None."""
        try:
            check_launch(self.kernel, self.problem, self.config, self.gpu)
        except InputError as error:
            return Failure("skipped", str(error))
        except DoesNotFitError as error:
            return Failure("does not fit", str(error))
        return None


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


__all__ = ["COLUMNS", "sweep"]

NUM_WARPS = (1, 2, 4, 8, 16, 32)
NUM_STAGES = (1, 2, 3, 4)
INTERRUPTED = Failure("interrupted", "interrupted before it was compiled")
"""What a row has that was not compiled before Ctrl-C."""


def default_jobs() -> int:
    """Return the processes to compile in: one per core that this process may use."""
    return len(os.sched_getaffinity(0))


class _Compiles:
    """What a sweep's tasks need compiled, each key once, however many tasks share it.

    What another Triton compiles lies in the store under keys that only it can work out.
    """

    def __init__(
        self, tasks: Iterable[Task], store: Store, directory: str | None, *, other_triton: bool
    ) -> None:
        self.names: dict[Task, str] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        self.requests: dict[str, Request] = {}
        """What other processes compile."""
        self.own: dict[str, Task] = {}
        """What this process compiles, as no other has the kernel."""
        self._store = store
        for task in tasks:
            target = task.gpu.target
            what = kernel_launch(task.kernel, task.problem, task.config, target), target
            if other_triton:
                key, name = None, key_digest([task.kernel_name, *map(repr, what)])
            else:
                key = resource_key(task.kernel.function, *what)
                name = key_digest(key)
                self.keys[name] = key
            self.names[task] = name
            if task.kernel_name is None:
                self.own[name] = task
            else:
                known = None if key is None else key_as_json(key)
                self.requests[name] = Request(task.kernel_name, *what, directory, key=known)

    def compile_own(self, task: Task) -> Outcome:
        """Compile *task* in this process."""
        try:
            return compile_resources(
                task.kernel, task.problem, task.config, task.gpu.target, self._store
            )
        except OccupancyLabError as error:
            return Failure("compile failed", str(error), lasting=would_fail_again(error))

    def forget_failures(self) -> None:
        """Forget what did not compile."""
        for key in self.keys.values():
            self._store.forget_failure(key)

    def stored(self) -> dict[str, Outcome]:
        """Return what the store has."""
        found: dict[str, Outcome] = {}
        for name, key in self.keys.items():
            outcome: Outcome | None = self._store.get(key) or self._store.get_failure(key)
            if outcome is not None:
                found[name] = outcome
        return found

    def keep(self, name: str, outcome: Outcome) -> Outcome:
        """Put an outcome into the store, unless another try may well give another; return it."""
        key = self.keys.get(name)
        if key is not None and isinstance(outcome, Resources):
            self._store.put(key, outcome)
        elif key is not None and isinstance(outcome, Failure) and outcome.lasting:
            return self._store.put_failure(key, outcome)
        return outcome


def _compile_all(
    compiles: _Compiles,
    compile_requests: Callable[[Mapping[str, Request]], Generator[tuple[str, Outcome]]],
    progress: Progress,
) -> Mapping[str, Outcome]:
    """Return the outcome of each compile; UnfinishedError has those finished before a signal.

    *compile_requests* compiles in other processes what the store lacks.
    """
    outcomes = compiles.stored()
    own = {name: task for name, task in compiles.own.items() if name not in outcomes}
    missing = {name: request for name, request in compiles.requests.items() if name not in outcomes}
    total = len(own) + len(missing)
    progress(0, total)
    here = ((name, compiles.compile_own(task)) for name, task in own.items())
    try:
        with closing(compile_requests(missing)) as elsewhere:
            for count, (name, outcome) in enumerate(itertools.chain(here, elsewhere), start=1):
                outcomes[name] = compiles.keep(name, outcome)
                progress(count, total)
    except KeyboardInterrupt as interrupt:
        signals.arrived()
        raise UnfinishedError(outcomes) from interrupt
    return outcomes


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
    "compile failed", "timed out", "skipped" or "interrupted", and `reason` says why. COLUMNS says
    what each column holds; a number that is not known is missing. With *measure* rows that are ok
    are launched where they are for the GPU of this machine, and MEASURED_COLUMNS of
    `occupancy_lab.sweeping.measured` are there too.

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
    if scheduler is not None:
        check_scheduler(scheduler)
    with closing(Compiler(store_directory() if cache else None, timeout=compile_timeout)) as one:
        found = chosen_kernel(kernel, one.check_file)
    gpus = [one for one, _ in chosen_gpus(gpu)]
    here, names = _measured_on(gpus, devices) if measure else (None, ())
    environment = find_environment(triton)
    check_elsewhere(found, other_triton=not environment.is_running, measure=measure)
    if scheduler is not None:
        found.check_name("a Dask cluster")
    tasks = list(
        expand(
            *found,
            problems=problems,
            gpus=gpus,
            block_sizes=whole_numbers("block_size", block_size),
            num_warps=whole_numbers("num_warps", num_warps),
            num_stages=whole_numbers("num_stages", num_stages),
        )
    )
    try:
        table = run_tasks(
            tasks,
            environment=environment,
            jobs=None if jobs is None else whole_number("jobs", jobs),
            compile_timeout=compile_timeout,
            scheduler=scheduler,
            cache=cache,
            retry_failed=retry_failed,
            progress=progress,
        )
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
        msg = f"the GPU here is {here.title}, and no row is for it to be measured on: {asked}"
        raise InputError(msg)
    return here, names


def run_tasks(  # noqa: PLR0913 - how to compile, as sweep takes it
    tasks: Sequence[Task],
    *,
    environment: Environment | None = None,
    jobs: int | None = None,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    scheduler: str | None = None,
    cache: bool = True,
    retry_failed: bool = False,
    progress: Progress = lambda _done, _of: None,
) -> pd.DataFrame:
    """Compile *tasks* and give a table with one row each, as `sweep` does of its grid.

    The Triton is that of *environment*; None is this process's.

    Raises UnfinishedError, with the table of what is finished, on Ctrl-C.
    """
    environment = environment or running_environment()
    unfinished = None
    try:
        outcomes = compile_tasks(
            tasks,
            environment=environment,
            jobs=jobs,
            compile_timeout=compile_timeout,
            scheduler=scheduler,
            cache=cache,
            retry_failed=retry_failed,
            progress=progress,
        )
    except UnfinishedError as interrupt:
        outcomes, unfinished = interrupt.finished, interrupt
    table = make_table([(task, outcomes[task]) for task in tasks], environment.triton)
    if unfinished is not None:
        raise UnfinishedError(table) from unfinished
    return table


def compile_tasks(  # noqa: PLR0913 - how to compile, as sweep takes it
    tasks: Sequence[Task],
    *,
    environment: Environment | None = None,
    jobs: int | None = None,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    scheduler: str | None = None,
    cache: bool = True,
    retry_failed: bool = False,
    progress: Progress = lambda _done, _of: None,
) -> Mapping[Task, Outcome]:
    """Return what each of *tasks* compiles to, or why it does not, as `run_tasks` compiles them.

    Raises UnfinishedError, with the outcomes, INTERRUPTED those of what is not finished, on Ctrl-C.
    """
    environment = environment or running_environment()

    def compile_requests(requests: Mapping[str, Request]) -> Generator[tuple[str, Outcome]]:
        if scheduler is not None:
            return compile_on_cluster(requests, scheduler, compile_timeout)
        return compile_here(requests, jobs or default_jobs(), compile_timeout, environment.python)

    failures = {task: failure for task in tasks if (failure := task.why_not()) is not None}
    directory = store_directory() if cache else None
    compiles = _Compiles(
        (task for task in tasks if task not in failures),
        Store(directory),
        None if directory is None or scheduler is not None else str(directory),
        other_triton=not environment.is_running,
    )
    if retry_failed:
        compiles.forget_failures()
    unfinished = None
    try:
        outcomes = _compile_all(compiles, compile_requests, progress)
    except UnfinishedError as interrupt:
        outcomes, unfinished = interrupt.finished, interrupt
    found = {
        task: failures.get(task) or outcomes.get(compiles.names[task], INTERRUPTED)
        for task in tasks
    }
    if unfinished is not None:
        raise UnfinishedError(found) from unfinished
    return found
