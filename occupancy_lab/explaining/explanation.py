"""What becomes of launches on each GPU, and what it means: of a matrix's, or of any."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.errors import InputError
from occupancy_lab.explaining.advice import (
    wanted_besides,
    what_to_try,
    with_alternatives,
)
from occupancy_lab.explaining.case import Case, gpu_to_measure, with_times
from occupancy_lab.explaining.compiled import what_fits, what_was_compiled
from occupancy_lab.explaining.duration import the_duration
from occupancy_lab.explaining.formula import the_tutorial
from occupancy_lab.explaining.launch import the_launch, the_memory, write_steps
from occupancy_lab.explaining.limits import answer_in_short, the_limits, the_next_step
from occupancy_lab.explaining.neighbours import Neighbour, changed, changes, comparable
from occupancy_lab.explaining.short import launch_title, the_launch_in_short, write_short
from occupancy_lab.explaining.variants import write_variants
from occupancy_lab.inputs import (
    DEFAULT_ROWS,
    check_elsewhere,
    chosen_config,
    chosen_gpus,
    chosen_kernel,
    chosen_knobs,
    chosen_problem,
    found_kernel,
)
from occupancy_lab.record import Failed, Record, ask, compile_record, records_of
from occupancy_lab.signature import read_options
from occupancy_lab.text.document import Answer, Document, Section, literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from occupancy_lab.explaining.case import Recorded
    from occupancy_lab.explaining.script_runs import ScriptExplanation
    from occupancy_lab.inputs import AskedDtype, AskedGpus, AskedKernel, Integer
    from occupancy_lab.record import Asked
    from occupancy_lab.signature import Words


@dataclass(frozen=True, repr=False)
class Explanation(Answer):
    """What launches compile to on each GPU, and how they would sit there."""

    runs: tuple[Record | Failed, ...]
    """Each launch on each GPU, in the order in which they were asked for."""
    asked: tuple[Asked, ...] = field(repr=False, compare=False)
    compiler: Compiler = field(repr=False, compare=False)
    """What compiles the launches that these are compared with."""
    measured: tuple[str, ...] = ()
    """The keys of the GPUs that are here and time their launch."""
    triton: str | None = None
    """What another Triton was asked for by; None is the Triton here."""
    page: Document | None = None
    """All that there is to say, where nothing is compiled."""

    @property
    def records(self) -> tuple[Record, ...]:
        """What compiled and fits."""
        return tuple(run for run in self.runs if isinstance(run, Record))

    @property
    def failures(self) -> tuple[Failed, ...]:
        """What does not, and why."""
        return tuple(run for run in self.runs if isinstance(run, Failed))

    @property
    def recorded(self) -> tuple[Recorded, ...]:
        """What was recorded of each of `records` elsewhere."""
        return tuple(case.recorded for case in self.cases)

    @property
    def is_one_launch(self) -> bool:
        """Whether each GPU has one launch."""
        return len({run.gpu.key for run in self.runs}) == len(self.runs)

    @functools.cached_property
    def cases(self) -> tuple[Case, ...]:
        """Each of `records` with what it is compared with, which is compiled for it."""
        asked = [
            one for one, run in zip(self.asked, self.runs, strict=True) if isinstance(run, Record)
        ]
        return make_cases(
            asked, self.records, self.compiler, triton=self.triton, measured=self.measured
        )

    @property
    def short(self) -> Document | None:
        """What fits a screen; None where `document` does."""
        return None if self.page else self._document(full=False)

    @property
    def document(self) -> Document:
        """All that there is to say."""
        return self.page or self._document(full=True)

    def _document(self, *, full: bool) -> Document:
        if not self.is_one_launch:
            return write_variants(self.runs, full=full)
        return (write_full if full else write_short)(self.cases, self.failures)

    def to_document(self, *, full: bool = False) -> Document:
        """Return the short explanation, or the *full* one with the arithmetic."""
        return self.document if full else self.short or self.document

    def to_markdown(self, *, full: bool = False) -> str:
        """Return the short explanation, or the *full* one, in GitHub's markdown."""
        return self.to_document(full=full).to_markdown()

    def table(self) -> pd.DataFrame:
        """Return a row for each launch on each GPU, with its constexprs and options."""
        import pandas as pd

        return pd.DataFrame([run.row() for run in self.runs]).convert_dtypes()

    def to_dict(self) -> dict[str, Any]:
        """Return records and words, the short and the full, as plain values."""
        short = self.short
        return {
            "records": [run.to_dict() for run in self.runs],
            "recorded": [one.to_dict() for one in self.recorded] if self.is_one_launch else [],
            "short": None if short is None else short.to_dict(),
            "document": self.document.to_dict(),
        }

    def __repr__(self) -> str:
        """Return a line that says what was explained."""
        if not self.runs:
            return super().__repr__()
        gpus = ", ".join(dict.fromkeys(run.gpu.key for run in self.runs))
        fit = f"{len(self.records)} of {len(self.runs)} compile and fit"
        return f"<{type(self).__name__} of {self.runs[0].kernel} on {gpus}: {fit}>"


def explain_asked(asked: Sequence[Asked], compiler: Compiler, **others: Any) -> Explanation:
    """Return what becomes of *asked*; *others* are further fields of an Explanation.

    Raises what the first launch fails with where all fail.
    """
    runs = compile_runs(asked, compiler)
    if not any(isinstance(run, Record) for run in runs):
        asked[0].check()
        with closing(compiler):
            compile_record(asked[0], compiler)
    return Explanation(tuple(runs), tuple(asked), compiler, **others)


def compile_runs(asked: Sequence[Asked], compiler: Compiler) -> list[Record | Failed]:
    """Return what becomes of each of *asked*, compiled together."""
    refused = [one.why_not() for one in asked]
    wanted = [one for one, failure in zip(asked, refused, strict=True) if failure is None]
    with closing(compiler):
        compiled = iter(compiler.compile([one.compilation for one in wanted]))
    outcomes = [next(compiled) if failure is None else failure for failure in refused]
    return records_of(asked, outcomes, triton=compiler.environment.triton)


def make_cases(
    asked: Sequence[Asked],
    records: Sequence[Record],
    compiler: Compiler,
    *,
    triton: str | None = None,
    measured: Sequence[str] = (),
) -> tuple[Case, ...]:
    """Return the case of each of *records*: its neighbours, and of a matrix what was recorded.

    All that they are compared with is compiled together.
    """
    made = [
        Case(record, asked_kernel=one.name, triton=triton)
        for one, record in zip(asked, records, strict=True)
    ]
    wanted: list[tuple[int, Any, Asked]] = []
    for place, (one, case) in enumerate(zip(asked, made, strict=True)):
        for name, value in changes(case.record):
            other = changed(one, name, value)
            if other is not None:
                wanted.append((place, (name, value), other))
        wanted += [(place, named, other) for named, other in wanted_besides(case).items()]
    runs = compile_runs([other for *_, other in wanted], compiler)
    found: list[dict[Any, Record | Failed]] = [{} for _ in made]
    for (place, named, _), run in zip(wanted, runs, strict=True):
        found[place][named] = run
    return tuple(
        _completed(case, one, measure=case.record.gpu.key in measured)
        for case, one in zip(made, found, strict=True)
    )


def _completed(case: Case, found: Mapping[Any, Record | Failed], *, measure: bool) -> Case:
    settings = dict(changes(case.record))
    neighbours = []
    for named, run in found.items():
        if named[0] in settings and _told_apart(case.record, run):
            name, value = named
            neighbours.append(Neighbour.of(case.record, name, value, run))
    single = found.get(("num_stages", 1))
    if case.record.num_stages == 1:
        single = case.record
    case = dataclasses.replace(
        case,
        neighbours=tuple(neighbours),
        single_stage=single if isinstance(single, Record) else None,
    )
    besides = {
        named: run
        for named, run in found.items()
        if named[0] not in settings and isinstance(run, Record)
    }
    return with_alternatives(with_times(case, measure=measure), besides)


def _told_apart(record: Record, other: Record | Failed) -> bool:
    """Tell whether times, where there are any, tell two launches apart."""
    if isinstance(other, Failed) or None in {record.prediction, other.prediction}:
        return True
    return comparable(record, other)


def write_full(cases: Sequence[Case], failures: Sequence[Failed] = ()) -> Document:
    """Return the whole explanation of one launch on several GPUs.

    What a kernel of a matrix adds is there where one made the launch.
    """
    found, calculations = tuple(cases), tuple(case.calculation for case in cases)
    of_matrix = all(case.record.matrix is not None for case in cases)
    planned = all(case.record.plan is not None for case in cases)
    moved = all(case.record.traffic is not None for case in cases)
    tried = what_to_try(cases)
    sections: tuple[tuple[bool, Callable[[], Section]], ...] = (
        (True, lambda: the_launch_in_short(cases)),
        (of_matrix, lambda: what_fits(found)),
        (of_matrix, lambda: what_was_compiled(found)),
        (True, lambda: the_limits(calculations)),
        (True, lambda: the_next_step(calculations)),
        (of_matrix, lambda: the_tutorial(calculations)),
        (planned, lambda: the_launch(found)),
        (moved or of_matrix, lambda: the_memory(found)),
        (planned, lambda: the_duration(found)),
        (True, lambda: dataclasses.replace(tried, sentences=tried.sentences[:-1])),
    )
    return Document(
        launch_title(cases),
        (
            *(answer_in_short(case) for case in cases),
            *(f"**{one.title}**: {literal(one.failure.reason)}." for one in failures),
        ),
        tuple(section() for shown, section in sections if shown),
    )


@overload
def explain(cols: Integer, **asked: Any) -> Explanation: ...


@overload
def explain(cols: None = None, **asked: Any) -> Explanation | ScriptExplanation: ...


def explain(cols: Integer | None = None, **asked: Any) -> Explanation | ScriptExplanation:
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
    options: Words = (),
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
        options: Further compiler options: "maxnreg=64".
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
        none_chosen = set(chosen.values()) == {None}
        if found.kernel.function is None and none_chosen and not measure and triton is None:
            page = write_steps(found.kernel, problem, [one for one, _ in gpus])
            return Explanation((), (), compiler, page=page)
        found = chosen_kernel(kernel)
        other_triton = not compiler.environment.is_running
        check_elsewhere(found, other_triton=other_triton, measure=measure)
    given = read_options(options)
    if measure and given:
        msg = "--measure launches a kernel as it is, without further compiler options"
        raise InputError(msg)
    knobs = frozenset(knob for knob, value in chosen.items() if value is not None)
    asked = []
    for one, _ in gpus:
        config = chosen_config(found.kernel, problem, one, chosen)
        asked.append(ask(found, problem, config, one, given).asked_for(knobs))
    return explain_asked(
        asked,
        compiler,
        measured=() if here is None else (here.key,),
        triton=triton if other_triton else None,
    )
