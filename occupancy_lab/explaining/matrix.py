"""`explain --cols`: compile and explain the launch of a kernel for a matrix."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing

from occupancy_lab.asked import ask
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.errors import refuse
from occupancy_lab.explaining.explanation import Explanation, explain_asked
from occupancy_lab.explaining.matrix_section import write_steps
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import (
    DEFAULT_ROWS,
    AskedDtype,
    AskedGpus,
    AskedKernel,
    Integer,
    Integers,
    check_elsewhere,
    chosen_config,
    chosen_gpus,
    chosen_problem,
    combined_knobs,
    found_kernel,
)
from occupancy_lab.kernel import check_is_compiled
from occupancy_lab.record import matrix_of
from occupancy_lab.signature import Words, read_options


def explain_matrix(  # noqa: PLR0913 - one argument per option of the command line
    cols: Integer,
    *,
    rows: Integer = DEFAULT_ROWS,
    dtype: AskedDtype = "float32",
    kernel: AskedKernel = "softmax",
    gpu: AskedGpus | None = None,
    triton: str | None = None,
    block_size: Integers | None = None,
    num_warps: Integers | None = None,
    num_stages: Integers | None = None,
    options: Words = (),
    cache: bool = True,
    measure: bool = False,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    retry_failed: bool = False,
    progress: Callable[[str], None] = lambda _sentence: None,
) -> Explanation:
    """Compile *kernel* for a matrix of *rows* x *cols* and explain its launch on each GPU.

    Args:
        cols: Columns of the matrix.
        rows: Rows of the matrix.
        dtype: float32, float16 or bfloat16, or torch's dtype.
        kernel: The name of one of the lab's kernels, the path of a Python file with a `KERNEL`, or
            a Kernel.
        gpu: GPUs or targets by their names (h100, sm_90, cuda:90:32, gfx942), several as a list or
            with commas; or Gpus. None takes the GPU at hand, or an H100 and an MI300X if there is
            none.
        triton: A version of Triton, or the path of a Python or of a virtual environment that has
            one. An environment for a version is made if there is none yet. None takes the Triton at
            hand.
        block_size: BLOCK_SIZE, one number or several, each of which is a launch; None takes the
            kernel's default, as for the next two.
        num_warps: Warps per program.
        num_stages: Stages of the loop over rows.
        options: Further compiler options: "maxnreg=64".
        cache: Whether to use the store of compiled resources.
        measure: Whether to also launch the kernel and time it on the first GPU of this machine,
            which must be among *gpu*, as well as the best change found.
        compile_timeout: Seconds that a compile, or the import of a kernel's file, may take; None
            sets no limit.
        retry_failed: Whether to retry what the store has as a failed compile.
        progress: Called with a description before each slow step, and with "" after it.

    Raises:
        InputError: the arguments make no sense; the message says what would be accepted.
        CompileError: Triton cannot compile the kernel for a target, or not in time.
        DoesNotFitError: a GPU does not fit one program of the kernel.
    """
    problem = chosen_problem(rows, cols, dtype)
    chosen = combined_knobs(block_size=block_size, num_warps=num_warps, num_stages=num_stages)
    gpus = chosen_gpus(gpu)
    here = None
    if measure:
        from occupancy_lab.measuring.process import gpu_to_measure

        here = gpu_to_measure([one for one, _ in gpus])
    compiler = Compiler(
        store_directory() if cache else None,
        triton=triton,
        here={one.target for one, present in gpus if present},
        timeout=compile_timeout,
        retry_failed=retry_failed,
        progress=progress,
    )
    with closing(compiler):
        found = found_kernel(kernel, compiler.check_file)
        none_chosen = set(chosen[0].values()) == {None}
        if found.kernel.function is None and none_chosen and not measure and triton is None:
            page = write_steps(found.kernel, problem, [one for one, _ in gpus])
            return Explanation((), (), compiler, page=page)
        check_is_compiled(found.kernel)
        other_triton = not compiler.environment.is_running
        check_elsewhere(found, other_triton=other_triton, measure=measure)
    given = read_options(options)
    if measure and given:
        refuse("--measure launches a kernel as it is, without further compiler options")
    knobs = [knob for knob, value in chosen[0].items() if value is not None]
    asked = []
    for (one, _), each in itertools.product(gpus, chosen):
        config = chosen_config(found.kernel, problem, one, each)
        asked.append(ask(found, problem, config, one, given, knobs=knobs))
    explained = explain_asked(asked, compiler, triton=triton if other_triton else None)
    return explained if here is None else _measured(explained, str(found.name), here)


def _measured(explained: Explanation, kernel: str, gpu: Gpu) -> Explanation:
    """Return *explained* with measured times of its launches on *gpu*, and of their best changes.

    A change of compiler options has none: a kernel's `run` takes only a configuration.
    """
    from occupancy_lab.explaining.measured import best_changes, launches_on, with_times
    from occupancy_lab.measuring.journal import measure_launches
    from occupancy_lab.measuring.process import TimedLaunch

    every = (*launches_on(explained, gpu), *best_changes(explained, gpu))
    records = [record for record in every if not matrix_of(record).options]
    launches = [
        (record.problem, TimedLaunch(kernel, record.config, record.num_programs or 1))
        for record in records
    ]
    return with_times(
        explained, dict(zip(map(id, records), measure_launches(launches), strict=True))
    )
