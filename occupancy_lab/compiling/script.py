"""Finds the launches of a script: runs one of its functions where nothing is really launched.

The function runs in a process of its own, for one GPU that need not be here, because it may do
anything, hang or crash. Each launch of a Triton kernel there is noted instead of made, and compiled
when that is asked for. `script_process` is the code of that process.
"""

from __future__ import annotations

import ast
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from occupancy_lab.arguments import Plain
from occupancy_lab.compiling.assumptions import Assumed, Value
from occupancy_lab.compiling.compiler import INTERRUPTED
from occupancy_lab.compiling.environment import Environment, running_environment
from occupancy_lab.compiling.notes import Feed, ScriptLaunch
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.compiling.store import Store
from occupancy_lab.compiling.texts import Texts, unpack
from occupancy_lab.errors import refuse
from occupancy_lab.files import read_bytes
from occupancy_lab.gpus import Gpu
from occupancy_lab.launch import Launch
from occupancy_lab.text.document import literal
from occupancy_lab.values import Failure, Resources, Status
from occupancy_lab.workers import signals
from occupancy_lab.workers.child import Child
from occupancy_lab.workers.messages import from_line, to_line

STOPPING = 20.0
"""Seconds that a script may take to stop after its time is up or after an interrupt."""
SCRIPT_TIMEOUT = 120.0
"""Seconds that a script's function may take; a dry run computes nothing."""
NOT_LAUNCHED = "Nothing was launched: GPU tensors had shapes, but only small ones had values."
"""The sentence of each page about a script."""
AT_ONCE = 32
"""Launches that the process gets at once for compiling."""


@dataclass(frozen=True, slots=True)
class Run:
    """A script's function, `file.py:function`, or a program, that is to be run for *gpu*."""

    script: str
    gpu: Gpu
    store: str | None = None
    """The directory of the store for compiled kernels; None keeps nothing."""
    arguments: tuple[str, ...] | None = None
    """The arguments, if `script` is a file that is to be run as a program. None for a function."""
    assume: Mapping[str, Value] = field(default_factory=dict)
    """Assumptions that replace the usual ones, about values that only a GPU could compute."""
    seconds: float | None = SCRIPT_TIMEOUT
    """The time limit, after which the script is stopped wherever it is."""
    compile_seconds: float | None = COMPILE_TIMEOUT
    """The time limit for compiling one launch."""
    untuned: bool = False
    """Whether the launches are those of kernels without `tuned` and the package's own hooks, as
    `as_compared` returns them."""
    retry_failed: bool = False
    """Whether to compile again what the store says cannot be compiled."""

    @property
    def late(self) -> str:
        """The words for exceeding the time limit, with the option that raises the limit."""
        option = "--compile-timeout" if self.arguments is None else "--timeout"
        return f"takes longer than {self.seconds:g} s; {option} gives it more"


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a Run."""

    launches: tuple[ScriptLaunch, ...]
    printed: str
    failure: str | None
    """Why the script did not come to its end, as a sentence; None if it did."""
    status: int
    """Python's exit status afterwards."""
    faults: tuple[str, ...]
    """Why launches of threads and of further processes may be missing."""
    missing: tuple[str, ...]
    """Library operations that cannot run here, so that their launches are missing."""
    assumed: tuple[Assumed, ...]
    """The assumptions about values that only a GPU could compute."""
    not_asked_for: tuple[str, ...] = ()
    """Given assumptions, as NAME=VALUE, that no value of that kind or at that line used."""
    recent: tuple[int, ...] = ()
    """The last launches of the script's own process in order, by index."""
    feeds: tuple[Feed, ...] = ()
    """The launches that share tensors with the launch right before them."""

    @property
    def why_it_failed(self) -> str:
        """Why the script did not come to its end, with what was assumed before."""
        return f"{self.failure}{_assumed_words(self.assumed)}"

    def unused_assumptions(self) -> Iterator[str]:
        """Return a sentence for each given assumption that nothing used."""
        for word in self.not_asked_for:
            yield f"Nothing asked for a value that `--assume {literal(word)}` gives."

    def why_launches_are_missing(self) -> Iterator[str]:
        """Return a sentence for each reason why a page may lack launches."""
        if self.failure is not None:
            yield (
                f"The script went no further: {literal(self.failure)}; launches after that are not"
                " here."
            )
        yield from (f"Launches may be missing: {literal(fault)}." for fault in self.faults)
        yield from (
            f"Launches are missing: the operation {literal(name)} has no kernel for a GPU that can"
            " be run here."
            for name in self.missing
        )


@dataclass(frozen=True, slots=True)
class Changed:
    """One of the launches of a Run, with *changes* to its arguments and options, by name."""

    index: int
    changes: Mapping[str, Plain]


@dataclass(frozen=True, slots=True)
class Relaunch(Changed):
    """Asks for a launch of the Run with its changes, and with its grid computed anew."""


@dataclass(frozen=True, slots=True)
class Digests:
    """Asks for the `source_digest` of the kernels of launches of the Run, by their index."""

    launches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Compile:
    """Asks to compile launches of the Run."""

    launches: tuple[Changed, ...]
    texts: bool = False
    """Whether to answer with their texts, as `Texts.pack` packs them, or None without texts."""


def names_script(name: str) -> bool:
    """Return, without importing it, whether *name* is `file.py:function` for a script's function.

    A script's function is one that the file defines with `def` and without a decorator of Triton.
    """
    path, _, entry = name.partition(".py:")
    try:
        tree = ast.parse(read_bytes(f"{path}.py"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    jit = {"jit", "autotune", "heuristics"}
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == entry
        and not any(
            jit & {getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(decorator)}
            for decorator in node.decorator_list
        )
        for node in tree.body
    )


class Script:
    """A function of a script that was run for one GPU, with its launches and their compiles.

    Its process lives until `close`; what is compiled after that runs the script again.
    """

    def __init__(
        self,
        run: Run,
        *,
        environment: Environment | None = None,
        progress: Callable[[str], None] = lambda _said: None,
    ) -> None:
        """Make the *run* with the Python of *environment*; None means the running one.

        That Python also compiles, with its Triton. The script's output goes to standard error.
        *progress* is called with a sentence before slow steps, and with "" after them.

        Raises InputError, with the line of the script, if a function fails or ends before it has
        launched anything. In other cases, and for a program, `ran` says why it went no further.
        """
        self.store = Store(run.store)
        """Also keeps what is computed from compiled kernels."""
        self.gpu = run.gpu
        self.environment = environment or running_environment()
        self._request = run
        self._progress = progress
        process = "occupancy_lab.compiling.script_process"
        self._child = Child(process, python=self.environment.python)
        self._is_open = True
        self.interrupted: KeyboardInterrupt | None = None
        """The interrupt of the script or of a compile; nothing is compiled after it."""
        try:
            self.ran = self._run()
        except BaseException:
            self.close()
            raise

    @property
    def launches(self) -> tuple[ScriptLaunch, ...]:
        """The launches, in the order in which the script first made them."""
        return self.ran.launches

    def close(self) -> None:
        """End the process."""
        self._child.end()
        self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask_again(self, asked: Compile | Relaunch | Digests) -> str | None:
        """Return the answer of the process as `_ask` does; run the script again after `close`.

        That process ends with this object or this process.
        """
        if not self._is_open and not self._child.closed:
            self._is_open = True
            weakref.finalize(self, self._child.close)
            line = self._ask(self._request, self._request.seconds)
            if not line or from_line(Ran, line).launches != self.launches:
                self._child.close()
        return self._ask(asked)

    def _run(self) -> Ran:
        seconds = self._request.seconds
        limit = None if seconds is None else seconds + STOPPING
        self._progress(f"running {self._request.script} for {self.gpu.key} ...")
        try:
            line = self._ask(self._request, limit)
        finally:
            self._progress("")
        if self.interrupted is not None and not line:
            raise self.interrupted
        if line is None:
            refuse(f"{self._request.script} {self._request.late}")
        if not line:
            refuse(f"{self._request.script} ends its process: {self._child.last_words}")
        ran: Ran = from_line(Ran, line)
        if ran.printed:
            print(ran.printed, end="", file=sys.stderr)  # noqa: T201 - the script prints it
        if ran.failure is not None and not ran.launches and self._request.arguments is None:
            refuse(ran.why_it_failed)
        return ran

    def outcomes(self, wanted: Sequence[Changed]) -> list[Resources | Failure]:
        """Return what one program of each of *wanted* takes, or why it does not compile.

        All cores compile. After an interrupt, unfinished compiles are failures.
        """
        target, number = self.gpu.target.name, len(wanted)
        found: list[Resources | Failure] = []
        try:
            while len(found) < number and self.interrupted is None:
                part = wanted[len(found) : len(found) + AT_ONCE]
                title = self.launches[part[0].index].bound.kernel
                which = f"{len(found) + 1} of {number}"
                self._progress(f"compiling {title} for {target}, {which} ...")
                line = self._ask_again(Compile(tuple(part)))
                if line:
                    found += from_line(tuple[Resources | Failure, ...], line)
                elif line is not None or self.interrupted is None:
                    self._child.close()  # a new process would not have the kernels
                    reason = f"the process that compiles died: {self._child.last_words}"
                    found += [Failure(Status.COMPILE_FAILED, reason)] * len(part)
        finally:
            self._progress("")
        return [*found, *[INTERRUPTED] * (number - len(found))]

    def texts(self, wanted: Sequence[Changed]) -> list[Texts | None]:
        """Return the texts of the kernels of *wanted*, which compile; None for those without."""
        found: list[Texts | None] = []
        for place in range(0, len(wanted), AT_ONCE):
            part = wanted[place : place + AT_ONCE]
            line = None
            if self.interrupted is None and not self._child.closed:
                line = self._ask_again(Compile(tuple(part), texts=True))
            packed = from_line(tuple[str | None, ...], line) if line else (None,) * len(part)
            found += [None if one is None else unpack(one) for one in packed]
        return found

    def _ask(
        self, asked: Run | Compile | Relaunch | Digests, limit: float | None = None
    ) -> str | None:
        """Return the answer of the process, "" if the process died, or None without an answer.

        There is no answer if the process takes longer than *limit* s, or does not stop when it is
        interrupted.
        """
        try:
            return self._child.ask(to_line(asked), limit)
        except KeyboardInterrupt as stop:
            signals.arrived()
            self.interrupted = stop
            return self._child.interrupt(STOPPING) or None

    def relaunched(self, index: int, changes: Mapping[str, Plain]) -> Launch:
        """Return launch *index* with *changes* to its keywords, and its grid computed anew.

        Raises InputError if that is not possible.
        """
        line = None if self._child.closed else self._ask_again(Relaunch(index, changes))
        found: Launch | str = from_line(Launch | str, line) if line else "its process has ended"
        return refuse(found) if isinstance(found, str) else found

    def digests(self, launches: Sequence[int]) -> tuple[str, ...]:
        """Return the `source_digest` of the kernel of each of *launches*, given by their index.

        It is "" if the process that launched the kernel has ended.
        """
        line = None if self._child.closed else self._ask_again(Digests(tuple(launches)))
        return from_line(tuple[str, ...], line) if line else ("",) * len(launches)


def _assumed_words(assumed: Sequence[Assumed]) -> str:
    """Return words about the assumptions made before a failure, and the option that sets them."""
    if not assumed:
        return ""
    more = f" and {len(assumed) - 1} more" if len(assumed) > 1 else ""
    return f"; assumed: {assumed[0]}{more}, which --assume float=0.5, int=64 or bool=true sets"
