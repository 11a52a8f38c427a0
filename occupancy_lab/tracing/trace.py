"""`occupancy-lab trace` and `trace()`: what a program launched, told at its end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from occupancy_lab.errors import InputError, quoted, refuse
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import chosen_gpus
from occupancy_lab.occupancy.calculator import limiter_words
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import (
    cell,
    count,
    formatted,
    listed,
    percent,
)
from occupancy_lab.tracing import hook, noted, sitecustomize
from occupancy_lab.tracing.folder import folder_of_records
from occupancy_lab.tracing.records import Traced, dry_kernels, read_records
from occupancy_lab.workers import signals
from occupancy_lab.workers.child import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from occupancy_lab.compiling.assumptions import Assumed
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.tracing.records import TracedKernel

NOTHING = "no kernel of Triton was launched"
FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_OF_TERMINALS = {signal.SIGINT, signal.SIGQUIT}
"""What a terminal sends to the program too."""
_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
LONGEST_NAME = 26
"""Characters of a kernel's name in the table: with these it fits 80 columns, times among them."""
MOST_ASSUMED = 10
"""Assumptions that are shown."""
MOST_NAMED = 5
"""Processes that are named each."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a traced program ended."""

    command: tuple[str, ...]
    status: int
    """Its exit status; -N where signal N ended it, as subprocess has it."""
    started: bool
    """Whether a Python of it was there to note anything."""
    dry: bool = False
    """Whether it was run on fake tensors, and nothing was launched."""
    stopped: str | None = None
    """Why a dry run did not come to its end, as a sentence."""
    faults: tuple[str, ...] = ()
    """Why a dry run may lack launches of threads and further processes, as sentences."""
    missing: tuple[str, ...] = ()
    """Operations of libraries that a dry run could not run, whose launches are missing."""
    assumed: tuple[Assumed, ...] = ()
    """What a dry run assumed of values that only a GPU could tell."""


class Trace(Answer):
    """The kernels of Triton that a program, or a block of one, launched: a row each."""

    __slots__ = ("_asked", "_finder", "_folder", "_found", "_records", "_session", "outcome")

    def __init__(
        self, found: Traced | None = None, outcome: Outcome | None = None, asked: Any = None
    ) -> None:
        """Take what was found already, or nothing for a block that is still to be run."""
        self._found = found
        self.outcome = outcome
        self._asked = asked
        self._session: Any = None
        self._finder: Any = None
        self._folder: Any = None
        self._records: Any = None

    def __enter__(self) -> Self:
        if self._session is not None or self._found is not None:
            refuse("this trace was used already; make another with trace()")
        self._asked, settings = self._asked
        self._folder = contextlib.ExitStack()
        self._records = self._folder.enter_context(folder_of_records())
        self._session = hook.Session(str(self._records), **settings)
        self._session.install(sitecustomize.imported())
        self._finder = sitecustomize.Finder(self._session.patch)
        sys.meta_path.insert(0, self._finder)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self._finder)
        self._session.close()
        try:
            self._found = read_records(self._records, self._asked)
        finally:
            self._folder.close()

    @property
    def found(self) -> Traced:
        """What was launched; raises InputError before the end of the block."""
        if self._found is None:
            refuse("the trace has not ended; ask for it after its block")
        return self._found

    @property
    def kernels(self) -> tuple[TracedKernel, ...]:
        """Each kernel in each configuration that was launched."""
        return self.found.kernels

    def table(self) -> pd.DataFrame:
        """Return a row for each kernel and configuration."""
        import pandas as pd

        return pd.DataFrame([one.row() for one in self.kernels]).convert_dtypes()

    def to_document(self) -> Document:
        """Return the table, and what the numbers rest on."""
        return write_trace(self.found, self.outcome)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, each process and device apart."""
        outcome = self.outcome
        return {
            "command": None if outcome is None else list(outcome.command),
            "status": None if outcome is None else outcome.status,
            "kernels": [one.to_dict() for one in self.kernels],
            "processes": [dataclasses.asdict(one) for one in self.found.processes],
            "missing": [] if outcome is None else list(outcome.missing),
            "assumed": [] if outcome is None else list(map(dataclasses.asdict, outcome.assumed)),
            "document": self.to_document().to_dict(),
        }

    def __repr__(self) -> str:
        if self._found is None:
            return "<Trace: not ended>"
        return super().__repr__()


def trace(gpu: str | Gpu | None = None, *, times: bool = True, sample: int = hook.SAMPLE) -> Trace:
    """Return what notes the launches of the block that it is a context manager of.

    `with trace() as t:` begins it, and after the block `print(t)` shows the page. Launches of this
    process are noted, of Triton's kernels and of those that torch.compile makes; blocks may be
    nested.

    Args:
        gpu: The GPU to work out occupancy for; None takes the one that is launched on.
        times: Whether launches are timed, by events of torch.
        sample: Of the launches of a kernel over a grid one in so many is timed, after the first 5.

    Raises:
        InputError: the GPU is not known, or *sample* is less than 1.
    """
    return Trace(asked=(_gpu(gpu), _settings(times=times, sample=sample)))


def _gpu(gpu: str | Gpu | None) -> Gpu | None:
    return find_gpu(gpu) if isinstance(gpu, str) else gpu


def _settings(*, times: bool, sample: int) -> dict[str, Any]:
    if sample < 1:
        refuse(f"sample is {sample}; one launch in 1 or more is timed")
    return {"times": times, "sample": sample}


def trace_program(
    command: Sequence[str],
    *,
    gpu: str | Gpu | None = None,
    times: bool = True,
    sample: int = hook.SAMPLE,
    ended: Callable[[int], None] = lambda _status: None,
) -> Trace:
    """Run *command*, with this process's standard streams, and return what it launched.

    Signals are passed on to it, and it decides what becomes of them. *ended* is told its status, as
    an Outcome has it, before anything is read.

    Raises InputError where the GPU is not known or the command cannot be run.
    """
    asked, settings = _gpu(gpu), _settings(times=times, sample=sample)
    with folder_of_records() as folder:
        start = folder / "start"
        start.mkdir()
        for module in (hook, noted, sitecustomize):
            shutil.copy(str(module.__file__), start)
        (folder / "settings.json").write_text(json.dumps(settings), "utf-8")
        before = os.environ.get("PYTHONPATH")
        path = os.pathsep.join(filter(None, [str(start), before]))
        environment = {**os.environ, sitecustomize.FOLDER: str(folder), "PYTHONPATH": path}
        status = _run(command, environment)
        ended(status)
        outcome = Outcome(tuple(command), status, (folder / sitecustomize.STARTED).exists())
        return Trace(read_records(folder, asked), outcome)


def dry_trace(
    command: Sequence[str],
    *,
    gpu: str | Gpu | None = None,
    assume: Sequence[str] = (),
    timeout: float = 120.0,
    progress: Callable[[str], None] = lambda _said: None,
) -> Trace:
    """Return what *command*, `python FILE.py ...`, would launch on *gpu*, without a GPU.

    The file is run as a program by the Python that is named. Its tensors on "cuda" have a shape, a
    dtype and strides; small ones have the values that the program gives them. *gpu* None is the GPU
    at hand, or the H100. *assume* is what values are taken to be that only a GPU could tell, each
    `bool=true`, `int=64`, `float=0.5` or, for a single line, `file.py:12=64`.

    *timeout* is how many seconds it may take; after that it is stopped where it is. *progress* is
    told what is done, and "" when that is done.

    The outcome's status is the program's, or 1 where launches are missing or none compiles. After
    an interrupt what there is is returned, with the status of the interrupt.

    Raises InputError where *command* names no file, or no Python that has torch and Triton, or the
    file does not end in time.
    """
    from occupancy_lab.compiling import store_directory
    from occupancy_lab.compiling.assumptions import given_values
    from occupancy_lab.compiling.script import Script

    file, arguments = _script(command)
    given = given_values(assume)
    asked = _gpu(gpu) or chosen_gpus(None)[0][0]
    python = _python(command[0])
    how: dict[str, Any] = {"arguments": arguments, "python": python, "assume": given}
    how |= {"timeout": timeout, "progress": progress}
    with Script(file, asked, store_directory(), **how) as script:
        found = Traced(dry_kernels(script), ())
        nothing_compiled = found.kernels and all(one.reason for one in found.kernels)
        outcome = Outcome(
            tuple(command),
            signals.exit_status(script.interrupted)
            if script.interrupted is not None
            else script.status or int(bool(nothing_compiled or script.missing)),
            started=True,
            dry=True,
            stopped=script.stopped,
            faults=script.faults,
            missing=script.missing,
            assumed=script.assumed,
        )
    return Trace(found, outcome)


def _script(command: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the file that *command* has Python run, and its arguments."""
    for place, word in enumerate(command):
        if word.endswith(".py") and Path(word).is_file():
            return word, tuple(command[place + 1 :])
        if place and not word.startswith("-"):
            break
    return refuse(
        f"a dry run takes `python FILE.py ...`, and {quoted(shlex.join(command))} names no FILE.py"
    )


def _python(word: str) -> str:
    """Return the Python that the first *word* of a command stands for, as a shell finds it.

    It is the one that runs this where the word names none, and where `python` without a path is one
    without torch or Triton.

    Raises InputError where a path leads to no Python, or to one without them.
    """
    from occupancy_lab.compiling.environment import ANSWERING, find_environment

    if not re.fullmatch(r"python[\d.]*", Path(word).name):
        return sys.executable
    found = shutil.which(word)
    if found is not None and Path(found).absolute().parent == Path(sys.executable).parent:
        return sys.executable
    try:
        if found is None:
            refuse(f"there is no Python {quoted(word)}")
        python = find_environment(found).python
        if run([python, "-c", _HAS_TORCH], ANSWERING).returncode:
            refuse(f"{word} has no torch that it can import")
    except InputError as error:
        if "/" not in word:
            return sys.executable
        msg = f"{error}; give one that has torch and Triton, such as {sys.executable}"
        raise InputError(msg) from error
    return python


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Return how *command* ended; signals that come meanwhile are the program's."""
    with _signals_passed_on() as children:
        try:
            process = subprocess.Popen(command, env=environment)  # noqa: S603 - the user's own
        except OSError as error:
            msg = f"{quoted(command[0])} cannot be run: {error.strerror}"
            raise InputError(msg) from error
        children.append(process)
        return process.wait()


@contextlib.contextmanager
def _signals_passed_on() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Send signals that come in the block to the program that is put into the list."""
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: object) -> None:
        signals.arrived()
        if number in _OF_TERMINALS and _in_foreground():
            return
        for child in children:
            child.send_signal(number)

    # What the command line does of its own with a signal would end us before the program.
    signals.arrived()
    before = {number: signal.getsignal(number) for number in FORWARDED}
    heeded = [number for number, old in before.items() if old is not signal.SIG_IGN]
    for number in heeded:
        signal.signal(number, pass_on)
    try:
        yield children
    finally:
        for number in heeded:
            signal.signal(number, before[number])


def _in_foreground() -> bool:
    """Tell whether a terminal's Ctrl-C reaches the program by itself."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def end_as(status: int) -> NoReturn:
    """End this process as a program that ended with *status*, by a signal where that did."""
    if status < 0:
        import resource

        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program wrote its own
        with contextlib.suppress(OSError):  # nobody may choose how SIGKILL is taken
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status if status >= 0 else 128 - status)


# The page


def write_trace(found: Traced, outcome: Outcome | None) -> Document:
    """Return the page of what was launched."""
    title = "trace"
    if outcome is not None:
        kind = "dry run" if outcome.dry else "trace"
        title = f"{kind} of {literal(shlex.join(outcome.command))}"
    if not found.kernels:
        sentences = (*_dry_sentences(found, outcome), *_faults(found))
        sections = (Section("", (), sentences),) if sentences else ()
        return Document(title, (f"{_nothing(outcome)}.",), sections)
    timed = any(one.total_us is not None for one in found.kernels)
    total = sum(one.total_us or 0.0 for one in found.kernels) if timed else None
    gpus = [one.calculation.gpu for one in found.kernels if one.calculation is not None]
    times = () if total is None else ("us", "share")
    shown = _one_of_each_tuner(found.kernels)
    numbered = [(str(number), one) for number, one in enumerate(shown, 1)]
    # What is wide is in a table of its own, as names are to be whole where 80 columns are all.
    taken = () if timed else ("regs", "shared B")
    headers = ("kernel", "launches", *times, "waves", "%", *taken, "local B")
    rows = tuple((f"{number} {_name(one)}", *_row(one, total)) for number, one in numbered)
    further = tuple(
        (
            number,
            _programs(one),
            "-" if one.calculation is None else limiter_words(one.calculation),
            literal(configuration(one)) + _distinction(one, shown),
        )
        for number, one in numbered
    )
    tables = (
        Table(headers, rows),
        Table(("", "programs", "limiter", "configuration"), further, prose=True),
    )
    whole = [
        f"Kernel {number} is {literal(one.kernel)}."
        for number, one in numbered
        if len(one.kernel) > LONGEST_NAME
    ]
    sentences = (
        *whole,
        *_legend(gpus),
        *_tuning_sentences(found),
        *_gpu_sentences(shown),
        *_grid_sentences(found),
        *_dry_sentences(found, outcome),
        *_faults(found),
    )
    answer = (_summary(found), *_time_sentences(found, total))
    return Document(title, answer, (Section("", tables, sentences),))


def _one_of_each_tuner(kernels: Sequence[TracedKernel]) -> list[TracedKernel]:
    """Return *kernels* with one configuration of each autotuner, with the launches of all."""
    groups: dict[Any, list[TracedKernel]] = {}
    for one in kernels:
        fixed = [
            (name, value)
            for name, value in {**one.options, **one.constexprs}.items()
            if name not in one.tuned
        ]
        key = (
            id(one) if one.choices == 1 else (one.kernel, one.choices, repr((fixed, one.arguments)))
        )
        groups.setdefault(key, []).append(one)
    return [group[0] if len(group) == 1 else _first_of(group) for group in groups.values()]


def _first_of(group: Sequence[TracedKernel]) -> TracedKernel:
    """Return the configuration with least local memory, and of those with the most occupancy."""

    def rank(one: TracedKernel) -> tuple[Any, ...]:
        found = one.calculation
        if found is None or one.reason is not None:
            return (True,)
        return False, found.resources.local_bytes or 0, -found.occupancy.occupancy

    return min(group, key=rank)


def _distinction(kernel: TracedKernel, shown: Sequence[TracedKernel]) -> str:
    """Return the arguments in which *kernel* differs from others of its configuration."""
    alike = [
        one
        for one in shown
        if (one.kernel, configuration(one)) == (kernel.kernel, configuration(kernel))
    ]
    words = [
        f"{name} {said}"
        for name, said in kernel.arguments.items()
        if any(one.arguments.get(name) != said for one in alike)
    ]
    return f"; {literal(', '.join(words))}" if words else ""


def _legend(gpus: Sequence[Gpu]) -> Iterator[str]:
    """Say what the columns mean whose names do not say it."""
    words = dict.fromkeys(gpu.architecture.multiprocessor_word for gpu in gpus)
    if words:
        yield (
            "Programs are those of a launch, and of how many that run at once; waves is their"
            " quotient, whose part behind the point is how full the last wave is; % is the"
            f" occupancy of each {' or '.join(words)}; local B is local memory per thread, register"
            " spills among it."
        )


def _tuning_sentences(found: Traced) -> Iterator[str]:
    if any(one.tuning for one in found.kernels):
        yield "Launches after a + are those of an autotuner's benchmarks."


def _nothing(outcome: Outcome | None) -> str:
    if outcome is None or outcome.started:
        return NOTHING
    return (
        "Nothing could be noted: the program is no Python, or one that leaves out PYTHONPATH or"
        " sitecustomize, as -E, -I and -S do"
    )


def configuration(kernel: TracedKernel) -> str:
    """Return options and constexprs in words: "num_warps 4, num_stages 3, BLOCK 1024"."""
    return ", ".join(
        f"{name} {value}" for name, value in {**kernel.options, **kernel.constexprs}.items()
    )


def _name(kernel: TracedKernel) -> str:
    """Return a kernel's name, the middle of a long one left out."""
    name, half = kernel.kernel, LONGEST_NAME // 2
    short = name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[1 - half :]}"
    return literal(short)


def _row(kernel: TracedKernel, total: float | None) -> tuple[str, ...]:
    tuning = f" + {kernel.tuning}" if kernel.tuning else ""
    times = []
    if total is not None:
        part = kernel.total_us
        times = [cell(kernel.us), "-" if part is None or not total else percent(part / total)]
    found = kernel.calculation
    sits = ("-",) * (4 if total is None else 2)
    if found is not None:
        resources = found.resources
        shared = resources.shared + resources.static_shared
        taken = () if total is not None else (formatted(resources.n_regs), formatted(shared))
        local = formatted(resources.local_bytes)
        sits = (f"{100 * found.occupancy.occupancy:.0f}", *taken, local)
    launches = f"{kernel.launches}{'?' if kernel.choices > 1 else ''}{tuning}"
    plan = kernel.plan(kernel.usual_grid)
    waves = "-" if plan is None or plan.waves is None else f"{plan.waves:.2f}"
    return (launches, *times, waves, *sits)


def _programs(kernel: TracedKernel) -> str:
    """Return the programs of the usual grid, and of how many that run at once."""
    usual = kernel.usual_grid
    plan = kernel.plan(usual)
    if usual is None:
        return "-"
    if plan is None or plan.waves is None:
        return str(math.prod(usual))
    return f"{plan.num_programs} of {plan.resident_programs}"


def _summary(found: Traced) -> str:
    names = {one.kernel for one in found.kernels}
    launches = round(sum(one.launches / one.choices for one in found.kernels))
    words = [
        (
            f"{launches} launch{'' if launches == 1 else 'es'} of {count(len(names), 'kernel')}"
            f" in {count(len(found.kernels), 'configuration')}"
        )
    ]
    if tuning := sum(one.tuning for one in found.kernels):
        words.append(f"{tuning} more while tuning")
    processes = [one for one in found.processes if one.launches]
    devices = {(part.pid, part.device) for one in found.kernels for part in one.parts}
    if len(processes) > 1:
        words.append(f"summed over {len(processes)} processes")
    elif len(devices) > 1:
        words.append(f"summed over {len(devices)} devices")
    sentence = ", ".join(words) + "."
    if captured := sum(one.captured for one in found.kernels):
        replays = sum(one.replays for one in found.processes)
        sentence += (
            f" {captured} of them captured in CUDA graphs, which were replayed {replays} times:"
            " what a replay launches is not seen, so each counts once."
        )
    return sentence


def _time_sentences(found: Traced, total: float | None) -> Iterator[str]:
    seconds = sum(one.seconds or 0.0 for one in found.processes)
    if total is not None:
        timed = sum(one.samples for one in found.kernels)
        events = max(one.empty_us for one in found.processes)
        less = f", less the {events:.2f} us that the events take"
        yield (
            f"{total / 1000:.3g} ms in kernels of Triton"
            + (f", {percent(total / 1e6 / seconds)} of {seconds:.3g} s" if seconds else "")
            + f": {timed} launches were timed{less}, and those between them took the mean of both."
        )
    overhead = sum(one.overhead_ns for one in found.processes)
    launches = sum(one.launches for one in found.processes)
    if launches and overhead and seconds:
        held = sum(one.held for one in found.processes)
        words = f" The GPU was held {held} times for 50 us, to time a launch." if held else ""
        hot = [one.hot_ns for one in found.processes if one.hot_ns is not None]
        each = f", {max(hot) / 1000:.2f} us of a usual launch" if hot else ""
        yield (
            f"Noting took {overhead / 1e6:.3g} ms, {percent(overhead / 1e9 / seconds)} of"
            f" {seconds:.3g} s{each}.{words}"
        )


def _gpu_sentences(shown: Sequence[TracedKernel]) -> Iterator[str]:
    """Say for which GPU occupancy is, and of which kernels it is not known."""
    said = {
        f"Occupancy on {one.calculation.title}, {one.gpu_source}."
        for one in shown
        if one.calculation is not None
    }
    yield from sorted(said)
    reasons: dict[str, list[TracedKernel]] = {}
    for one in shown:
        if one.reason is not None:
            reasons.setdefault(one.reason, []).append(one)
    for reason, those in reasons.items():
        words = f"{literal(those[0].kernel)}, {literal(configuration(those[0]))}"
        more = f" and {len(those) - 1} more" if len(those) > 1 else ""
        yield f"{words}{more}: {literal(reason)}."


def _grid_sentences(found: Traced) -> Iterator[str]:
    several = [one for one in found.kernels if len(one.grids) > 1]
    if several:
        words = [f"{literal(one.kernel)} {len(one.grids)}" for one in several[:MOST_NAMED]]
        more = f" and {len(several) - MOST_NAMED} more" if len(several) > MOST_NAMED else ""
        yield f"The most frequent grid is shown of several: {listed(words)}{more}; --json has all."


def _dry_sentences(found: Traced, outcome: Outcome | None) -> Iterator[str]:
    if outcome is None or not outcome.dry:
        return
    yield "Nothing was launched: tensors of the GPU had shapes, and only small ones values."
    if any(one.choices > 1 for one in found.kernels):
        yield (
            "Of an autotuned kernel, marked ?, the configuration with least local memory and then"
            " most occupancy is shown; any of them may be launched, and --json has all."
        )
    if outcome.stopped is not None:
        yield (
            f"The program went no further: {literal(outcome.stopped)}; launches after that are not"
            " here."
        )
    yield from (f"Launches may be missing: {literal(fault)}." for fault in outcome.faults)
    yield from (
        f"Launches are missing: the operation {literal(name)} has no kernel for a GPU that can be"
        " run here."
        for name in outcome.missing
    )
    yield from _assumed_sentences(outcome.assumed)


def _assumed_sentences(assumed: Sequence[Assumed]) -> Iterator[str]:
    yield from (f"Assumed: {literal(str(one))}." for one in assumed[:MOST_ASSUMED])
    if len(assumed) > MOST_ASSUMED:
        yield f"{len(assumed) - MOST_ASSUMED} more values were assumed; --json has all."


def _faults(found: Traced) -> Iterator[str]:
    """Say which records are not whole, and what went wrong in noting."""
    cut = [one for one in found.processes if not one.ended]
    for one in cut[:MOST_NAMED]:
        yield (
            f"Process {one.pid} was killed or had not ended: launches after its last note are not"
            " counted."
        )
    if len(cut) > MOST_NAMED:
        yield f"So it was with {len(cut) - MOST_NAMED} more processes."
    for error in dict.fromkeys(error for one in found.processes for error in one.errors):
        yield f"Noting went wrong, and the program went on: {literal(error)}."
