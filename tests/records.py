"""Records of the lab's kernels, compiled in the test's process, each once per run."""

from contextlib import closing
from pathlib import Path

from occupancy_lab import compiled_records
from occupancy_lab.asked import ask
from occupancy_lab.compiling import Store, store_directory, triton_version
from occupancy_lab.compiling.compile import compile_launch, kernel_launch
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import NamedKernel, check_launch
from occupancy_lab.kernel import Kernel
from occupancy_lab.occupancy.calculator import plan_launch
from occupancy_lab.record import Record
from occupancy_lab.values import Config, LaunchPlan, Problem, Resources, Target


def shared_store() -> Store:
    """Return the store of this test run."""
    return Store(Path.home() / "store")


def compile_resources(  # noqa: PLR0913 - what a compile depends on
    kernel: Kernel,
    problem: Problem,
    config: Config,
    target: Target,
    store: Store | None = None,
    *,
    present: bool = False,
) -> Resources:
    """Return the resources of one program of *kernel* on *target*."""
    launch = kernel_launch(kernel, problem, config, target)
    where = store or shared_store()
    named = {"name": kernel.name, "present": present}
    return compile_launch(kernel.function, launch, target, where, **named).resources


def make_record(  # noqa: PLR0913 - what a record starts from
    kernel: Kernel,
    problem: Problem,
    config: Config,
    gpu: Gpu,
    store: Store | None = None,
    *,
    present: bool = False,
) -> Record:
    """Return the record of *kernel* on *gpu*, not counted."""
    check_launch(kernel, problem, config, gpu)
    resources = compile_resources(kernel, problem, config, gpu.target, store, present=present)
    return record_of(kernel, problem, config, gpu, resources, triton=triton_version())


def counted_record(kernel: Kernel, problem: Problem, config: Config, gpu: Gpu) -> Record:
    """Return the record of *kernel* on *gpu* with its counts and its time."""
    named = NamedKernel(kernel.name, kernel)
    with closing(Compiler(store_directory())) as compiler:
        return compiled_records.compile_matrix(named, problem, config, gpu, compiler)


def record_of(  # noqa: PLR0913 - what a record is made of
    kernel: Kernel,
    problem: Problem,
    config: Config,
    gpu: Gpu,
    resources: Resources,
    *,
    triton: str = "3.7.1",
) -> Record:
    """Return the record of *kernel* compiled to *resources*, not counted."""
    asked = ask(NamedKernel(kernel.name, kernel), problem, config, gpu)
    return compiled_records.record_of(asked, resources, triton=triton)


def plan_of(
    kernel: Kernel,
    problem: Problem,
    config: Config,
    programs: int | None,
    multiprocessors: int | None,
) -> LaunchPlan:
    """Return the plan of a launch of *kernel* with *programs* per multiprocessor."""
    grid, work = kernel.launched_grid(problem, config), kernel.launched_work(problem, config)
    known = programs is not None and multiprocessors is not None
    plan = plan_launch(grid, work, programs * multiprocessors if known else None)
    assert plan is not None
    return plan
