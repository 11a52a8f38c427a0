"""`explain`: from a kernel, a problem and GPUs to an explanation, in one call."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.process import COMPILE_TIMEOUT, Compiler
from occupancy_lab.explaining.advice import find_alternatives, what_to_try
from occupancy_lab.explaining.case import Case, gpu_to_measure, with_times
from occupancy_lab.explaining.compiled import what_fits, what_was_compiled
from occupancy_lab.explaining.duration import the_duration
from occupancy_lab.explaining.formula import the_tutorial
from occupancy_lab.explaining.launch import the_launch, the_memory, write_steps
from occupancy_lab.explaining.limits import answer_in_short, the_limits, the_next_step
from occupancy_lab.explaining.short import write_short
from occupancy_lab.inputs import (
    DEFAULT_ROWS,
    check_problem,
    chosen_config,
    chosen_gpus,
    chosen_kernel,
)
from occupancy_lab.kernel import load_kernel
from occupancy_lab.record import compile_record
from occupancy_lab.text.document import Document, ShownAsTables
from occupancy_lab.text.printing import json_text
from occupancy_lab.text.words import listed
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.record import Record


@dataclass(frozen=True, slots=True)
class Explanation(ShownAsTables):
    """The records of one configuration on one or several GPUs, and what they mean in words."""

    records: tuple[Record, ...]
    document: Document
    """All that there is to say."""
    short: Document | None = None
    """What fits a screen; None where `document` does."""

    def to_markdown(self, *, full: bool = False) -> str:
        """Return the short explanation, or the *full* one, in GitHub's markdown."""
        return (self.document if full or self.short is None else self.short).to_markdown()

    def to_dict(self) -> dict[str, Any]:
        """Return records and words, the short and the full, as plain values."""
        return {
            "records": [record.to_dict() for record in self.records],
            "short": None if self.short is None else self.short.to_dict(),
            "document": self.document.to_dict(),
        }

    def to_json(self) -> str:
        """Return records and words as a JSON document."""
        return json_text(self.to_dict())


def _case(  # noqa: PLR0913 - the values that a record starts from
    name: str,
    kernel: Kernel,
    problem: Problem,
    gpu: Gpu,
    chosen: Mapping[str, int | None],
    *,
    compiler: Compiler,
    present: bool,
) -> Case:
    config = chosen_config(kernel, problem, gpu, chosen)
    record = compile_record(name, kernel, problem, config, gpu, compiler=compiler, present=present)
    single, resources = Config(config.block_size, config.num_warps, 1), record.resources
    if config != single:
        resources = compiler.resources(name, kernel, problem, single, gpu.target, present=present)
    asked = frozenset(knob for knob, value in chosen.items() if value is not None)
    return Case(record, resources, asked_kernel=name, asked=asked)


def write_document(cases: tuple[Case, ...]) -> Document:
    """Return the whole explanation of *cases*, which are one kernel and problem on several GPUs."""
    kernel, problem = cases[0].record.kernel, cases[0].record.problem
    titles = listed([case.title for case in cases])
    calculations = tuple(case.calculation for case in cases)
    return Document(
        f"{kernel.name}, {problem.rows} x {problem.cols} {problem.dtype}, on {titles}",
        tuple(answer_in_short(case) for case in cases),
        (
            what_fits(cases),
            what_was_compiled(cases),
            the_limits(calculations),
            the_next_step(calculations),
            the_tutorial(calculations),
            the_launch(cases),
            the_memory(cases),
            the_duration(cases),
            what_to_try(cases),
        ),
    )


def explain(  # noqa: PLR0913 - one argument an option of the command line, all but one by name
    cols: int,
    *,
    rows: int = DEFAULT_ROWS,
    dtype: str = "float32",
    kernel: str = "softmax",
    gpu: str | Iterable[str] | None = None,
    block_size: int | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    cache: bool = True,
    measure: bool = False,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    progress: Callable[[str], None] = lambda _said: None,
) -> Explanation:
    """Compile *kernel* for a matrix of *rows* x *cols* and explain how it sits on each GPU.

    Args:
        cols: Columns of the matrix.
        rows: Rows of the matrix.
        dtype: float32, float16 or bfloat16.
        kernel: A kernel of the lab's own, or the path of a Python file with a `KERNEL`.
        gpu: Names of GPUs or targets (h100, sm_90, cuda:90:32, gfx942), as a list or with commas.
            None takes the GPU at hand, and an H100 beside an MI300X where there is none.
        block_size: BLOCK_SIZE; None takes the kernel's default, as for the next two.
        num_warps: Warps per program.
        num_stages: Stages of the loop over rows.
        cache: Whether to use the store of compiled resources.
        measure: Whether to launch the kernel and time it too, on the first GPU of this machine,
            which must be among those asked for.
        compile_timeout: Seconds that a compile, or the import of a kernel's file, may take; None
            waits.
        progress: Told what takes long before it is done, and "" after it.

    Raises:
        InputError: what is asked for makes no sense; the message says what would.
        CompileError: Triton cannot compile the kernel for a target, or takes longer than it may.
        DoesNotFitError: a GPU does not fit one program of it.
    """
    problem = Problem(rows, cols, dtype)
    check_problem(problem)
    chosen = {"block_size": block_size, "num_warps": num_warps, "num_stages": num_stages}
    gpus = chosen_gpus(gpu)
    here = gpu_to_measure([one for one, _ in gpus]) if measure else None
    directory = store_directory() if cache else None
    cases = []
    with closing(Compiler(directory, timeout=compile_timeout, progress=progress)) as compiler:
        compiler.check_file(kernel)
        found = load_kernel(kernel)
        if found.function is None and not measure and not any(chosen.values()):
            return Explanation((), write_steps(found, problem, [one for one, _ in gpus]))
        found = chosen_kernel(kernel)
        for one, present in gpus:
            case = _case(kernel, found, problem, one, chosen, compiler=compiler, present=present)
            case = with_times(case, measure=one is here)
            cases.append(dataclasses.replace(case, alternatives=find_alternatives(case, directory)))
    explained = tuple(cases)
    return Explanation(
        tuple(case.record for case in explained), write_document(explained), write_short(explained)
    )
