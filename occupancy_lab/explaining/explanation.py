"""`explain`: from a kernel, a problem and GPUs to an explanation, in one call."""

from __future__ import annotations

import dataclasses
import inspect
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.errors import InputError
from occupancy_lab.explaining.advice import what_to_try, with_alternatives
from occupancy_lab.explaining.case import Case, gpu_to_measure, with_times
from occupancy_lab.explaining.compiled import what_fits, what_was_compiled
from occupancy_lab.explaining.duration import the_duration
from occupancy_lab.explaining.formula import the_tutorial
from occupancy_lab.explaining.launch import the_launch, the_memory, write_steps
from occupancy_lab.explaining.limits import answer_in_short, the_limits, the_next_step
from occupancy_lab.explaining.short import write_short
from occupancy_lab.inputs import (
    DEFAULT_ROWS,
    check_elsewhere,
    check_launch,
    chosen_config,
    chosen_gpus,
    chosen_kernel,
    chosen_knobs,
    chosen_problem,
    found_kernel,
)
from occupancy_lab.record import ask, compile_matrix
from occupancy_lab.text.document import Answer, Document
from occupancy_lab.text.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from occupancy_lab.explaining.case import Recorded
    from occupancy_lab.explaining.dry_run import DryRun
    from occupancy_lab.explaining.script_runs import ScriptExplanation
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.inputs import AskedDtype, AskedGpus, AskedKernel, Integer, NamedKernel
    from occupancy_lab.record import MatrixRecord
    from occupancy_lab.values import Config, Problem


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Answer):
    """The records of one configuration on one or several GPUs, and what they mean in words."""

    cases: tuple[Case, ...]
    page: Document | None = None
    """All that there is to say, where that is not the explanation of `cases`."""

    @property
    def records(self) -> tuple[MatrixRecord, ...]:
        """What is known of each launch."""
        return tuple(case.record for case in self.cases)

    @property
    def recorded(self) -> tuple[Recorded, ...]:
        """What was recorded of each of `records`."""
        return tuple(case.recorded for case in self.cases)

    @property
    def document(self) -> Document:
        """All that there is to say."""
        return self.page or write_document(self.cases)

    @property
    def short(self) -> Document | None:
        """What fits a screen; None where `document` does."""
        return None if self.page else write_short(self.cases)

    def to_document(self, *, full: bool = False) -> Document:
        """Return the short explanation, or the *full* one."""
        return self.document if full else self.short or self.document

    def to_markdown(self, *, full: bool = False) -> str:
        """Return the short explanation, or the *full* one, in GitHub's markdown."""
        return self.to_document(full=full).to_markdown()

    def to_dict(self) -> dict[str, Any]:
        """Return records and words, the short and the full, as plain values."""
        short = self.short
        return {
            "records": [record.to_dict() for record in self.records],
            "recorded": [recorded.to_dict() for recorded in self.recorded],
            "short": None if short is None else short.to_dict(),
            "document": self.document.to_dict(),
        }


def compile_cases(
    kernel: NamedKernel,
    problem: Problem,
    configs: Sequence[tuple[Config, Gpu]],
    compiler: Compiler,
) -> list[Case]:
    """Return the case of each launch as *compiler* compiles it."""
    for config, gpu in configs:
        check_launch(kernel.kernel, problem, config, gpu)
    asked = [ask(kernel, problem, config, gpu) for config, gpu in configs]
    singles = [
        ask(kernel, problem, dataclasses.replace(config, num_stages=1), gpu).compilation
        for config, gpu in configs
    ]
    compiler.compile([one.compilation for one in asked] + singles)
    return [
        Case(
            compile_matrix(kernel, problem, config, gpu, compiler),
            compiler.resources(single),
            asked_kernel=kernel.name,
        )
        for (config, gpu), single in zip(configs, singles, strict=True)
    ]


def write_document(cases: tuple[Case, ...]) -> Document:
    """Return the whole explanation of *cases*, which are one kernel and problem on several GPUs."""
    kernel, problem = cases[0].kernel, cases[0].problem
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


@overload
def explain(cols: Integer, **asked: Any) -> Explanation: ...


@overload
def explain(cols: None = None, **asked: Any) -> DryRun | ScriptExplanation: ...


def explain(cols: Integer | None = None, **asked: Any) -> Explanation | DryRun | ScriptExplanation:
    """Compile a kernel and explain how it sits on each GPU: a matrix's launch, or any.

    With *cols* the rest are `explain_matrix`'s arguments; without they are `explain_launch`'s, or
    `kernel` is "file.py:function", an ordinary function whose launches are explained.

    Raises:
        InputError: what is asked for makes no sense; the message says what would.
        CompileError: Triton cannot compile the kernel for a target, or takes longer than it may.
        DoesNotFitError: a GPU does not fit one program of it.
    """
    of_matrix = _arguments(explain_matrix)
    if cols is not None and asked.keys() <= of_matrix:
        return explain_matrix(cols, **asked)
    # Neither is of use to a matrix, whose explanation they would delay by 20 ms.
    from occupancy_lab.compiling.script import names_script
    from occupancy_lab.explaining.dry_run import explain_launch
    from occupancy_lab.explaining.script_runs import explain_script

    of_launch = _arguments(explain_launch)
    foreign = asked.keys() - (of_launch if cols is None else of_matrix)
    unknown = foreign - of_matrix - of_launch
    if unknown:
        msg = f"explain() takes no argument {min(unknown)!r}"
        raise TypeError(msg)
    if cols is not None:
        msg = (
            f"{min(foreign)} describes a launch of a function of Triton, and cols a matrix;"
            " give one of them"
        )
        raise InputError(msg)
    if "kernel" not in asked or foreign:
        what = f"{min(foreign)} is of a matrix; give its cols too" if foreign else "give --cols"
        msg = f"{what}, or a function of Triton as FILE.py:FUNCTION with its --signature"
        raise InputError(msg)
    kernel = asked["kernel"]
    if isinstance(kernel, str) and names_script(kernel):
        unused = sorted(asked.keys() - _arguments(explain_script) - {"kernel"})
        if unused:
            msg = f"{unused[0]} has no use for {kernel}, which makes its launches itself"
            raise InputError(msg)
        return explain_script(kernel, **{name: asked[name] for name in asked if name != "kernel"})
    return explain_launch(**asked)


def _arguments(function: Callable[..., Any]) -> set[str]:
    return {*inspect.signature(function).parameters}


def explain_matrix(  # noqa: PLR0913 - one argument per option of the command line
    cols: Integer,
    *,
    rows: Integer = DEFAULT_ROWS,
    dtype: AskedDtype = "float32",
    kernel: AskedKernel = "softmax",
    gpu: AskedGpus | None = None,
    triton: str | None = None,
    block_size: Integer | None = None,
    num_warps: Integer | None = None,
    num_stages: Integer | None = None,
    cache: bool = True,
    measure: bool = False,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    retry_failed: bool = False,
    progress: Callable[[str], None] = lambda _sentence: None,
) -> Explanation:
    """Compile *kernel* for a matrix of *rows* x *cols* and explain how it sits on each GPU.

    Args:
        cols: Columns of the matrix.
        rows: Rows of the matrix.
        dtype: float32, float16 or bfloat16, or torch's dtype.
        kernel: A kernel of the lab's own by its name, the path of a Python file with a `KERNEL`, or
            a Kernel.
        gpu: GPUs or targets by their names (h100, sm_90, cuda:90:32, gfx942), several as a list or
            with commas; or Gpus. None takes the GPU at hand, and an H100 beside an MI300X where
            there is none.
        triton: A version of Triton, or the path of a Python or of a virtual environment that has
            one. An environment for a version is made if there is none yet. None takes the Triton at
            hand.
        block_size: BLOCK_SIZE; None takes the kernel's default, as for the next two.
        num_warps: Warps per program.
        num_stages: Stages of the loop over rows.
        cache: Whether to use the store of compiled resources.
        measure: Whether to launch the kernel and time it too, on the first GPU of this machine,
            which must be among those asked for.
        compile_timeout: Seconds that a compile, or the import of a kernel's file, may take; None
            waits.
        retry_failed: Whether to compile again what the store says cannot be compiled.
        progress: Told what takes long before it is done, and "" after it.

    Raises:
        InputError: what is asked for makes no sense; the message says what would.
        CompileError: Triton cannot compile the kernel for a target, or takes longer than it may.
        DoesNotFitError: a GPU does not fit one program of it.
    """
    problem = chosen_problem(rows, cols, dtype)
    chosen = chosen_knobs(block_size=block_size, num_warps=num_warps, num_stages=num_stages)
    gpus = chosen_gpus(gpu)
    here = gpu_to_measure([one for one, _ in gpus]) if measure else None
    directory = store_directory() if cache else None
    maker = Compiler(
        directory,
        triton=triton,
        here={one.target for one, present in gpus if present},
        timeout=compile_timeout,
        retry_failed=retry_failed,
        progress=progress,
    )
    cases = []
    with closing(maker) as compiler:
        found = found_kernel(kernel, compiler.check_file)
        none_chosen = set(chosen.values()) == {None}
        if found.kernel.function is None and none_chosen and not measure and triton is None:
            return Explanation((), write_steps(found.kernel, problem, [one for one, _ in gpus]))
        found = chosen_kernel(kernel)
        other_triton = not compiler.environment.is_running
        check_elsewhere(found, other_triton=other_triton, measure=measure)
        asked = frozenset(knob for knob, value in chosen.items() if value is not None)
        other = triton if other_triton else None
        configs = [(chosen_config(found.kernel, problem, one, chosen), one) for one, _ in gpus]
        for made in compile_cases(found, problem, configs, compiler):
            case = dataclasses.replace(made, asked=asked, triton=other)
            case = with_times(case, measure=case.record.gpu is here)
            cases.append(with_alternatives(case, compiler))
    return Explanation(tuple(cases))
