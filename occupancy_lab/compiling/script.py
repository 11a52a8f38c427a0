"""The launches that a script makes, found by running a function of it where nothing is launched.

The function runs in a process of its own, for one GPU that need not be here: it may do anything,
hang or crash. Each launch of a kernel of Triton in it is noted instead of made, and compiled when
that is asked for.
"""

from __future__ import annotations

import ast
import inspect
import os
import runpy
import sys
import traceback
from collections.abc import Mapping  # noqa: TC003 - `from_line` reads the fields' types
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from occupancy_lab.compiling.compile import failure_of
from occupancy_lab.compiling.offline import Device
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.compiling.recorder import Recorder, ScriptLaunch
from occupancy_lab.compiling.store import Store
from occupancy_lab.errors import (
    CompileError,
    CompileTimeoutError,
    InputError,
    OccupancyLabError,
    quoted,
    refuse,
)
from occupancy_lab.kernel import is_triton_function, kernel_file, load_file
from occupancy_lab.launch import Plain  # noqa: TC001 - `from_line` reads the fields' types
from occupancy_lab.values import Failure, Resources, Status
from occupancy_lab.workers.child import Child, Printed, captured, from_line, serve, to_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from occupancy_lab.gpus import Gpu

SCRIPT_TIMEOUT = 120.0
"""Seconds that the function of a script may take: nothing is computed in a dry run."""
MOST_PRINTED = 1 << 20
"""The characters of what a script prints that are shown: the last ones."""


@dataclass(frozen=True, slots=True)
class Run:
    """A script's function that is to be run, `file.py:function`, for the GPU *device*."""

    script: str
    device: Device
    store: str | None
    """The directory of the store of what is compiled; None keeps nothing."""
    arguments: tuple[str, ...] | None = None
    """Where `script` is a file to be run as a program: its arguments. None for a function."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a Run."""

    launches: tuple[ScriptLaunch, ...]
    printed: str
    failure: str | None
    """Why it did not come to its end, as a sentence; None where it did."""


@dataclass(frozen=True, slots=True)
class Compile:
    """One of the launches of the Run before, to be compiled with *changes* to its keywords."""

    index: int
    changes: Mapping[str, Plain]


def names_script(name: str) -> bool:
    """Tell, without importing it, whether *name* is `file.py:this` and `this` no Triton function.

    A function that the file defines with `def` and without a decorator of Triton is a script's.
    """
    path, suffix, entry = name.partition(".py:")
    file = Path(f"{path}.py")
    try:
        if not suffix or not file.is_file():  # a named pipe is waited for
            return False
        tree = ast.parse(file.read_bytes())
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


def device_of(gpu: Gpu) -> Device:
    """Return what a script can ask of *gpu*."""
    architecture = gpu.architecture
    return Device(
        gpu.title,
        gpu.target,
        gpu.multiprocessors,
        architecture.max_threads,
        architecture.registers,
        architecture.max_shared,
        architecture.shared_per_multiprocessor,
        gpu.l2_bytes,
    )


class Script:
    """A function of a script that was run for one GPU: its launches, and what they compile to.

    Its process lives until `close`.
    """

    def __init__(  # noqa: PLR0913 - what a run and its compiles depend on
        self,
        name: str,
        gpu: Gpu,
        directory: Path | None,
        *,
        arguments: tuple[str, ...] | None = None,
        timeout: float = SCRIPT_TIMEOUT,
        compile_timeout: float | None = COMPILE_TIMEOUT,
        progress: Callable[[str], None] = lambda _said: None,
    ) -> None:
        """Run the function *name*, `file.py:function`, for *gpu*, within *timeout* seconds.

        With *arguments*, *name* is a file, which is run as a program that is given them.

        The store at *directory* keeps what is compiled. What the script prints goes to standard
        error. *progress* is told what is done, and "" when that is done.

        Raises InputError, with the line of the script, for what it cannot do in a dry run before it
        has launched anything; `stopped` says what came after.
        """
        store = None if directory is None else str(directory)
        self._name, self.gpu = name, gpu
        self._request = Run(name, device_of(gpu), store, arguments)
        self._timeout, self._compile_timeout = timeout, compile_timeout
        self._progress = progress
        self._child = Child("occupancy_lab.compiling.script")
        self._ran = False
        self._last_words = ""
        self.stopped: str | None = None
        """Why the script ended early, after launches, as a sentence; None where it did not."""
        try:
            self.launches = self._run()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process."""
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> tuple[ScriptLaunch, ...]:
        self._progress(f"running {self._name} for {self.gpu.key} ...")
        try:
            line = self._child.ask(to_line(self._request), self._timeout)
        finally:
            self._progress("")
        if line is None:
            refuse(f"{self._name} takes longer than {self._timeout:g} s to make its launches")
        if not line:
            refuse(f"{self._name} ends its process: {self._child.last_words}")
        ran: Ran = from_line(Ran, line)
        if ran.printed and not self._ran:
            print(ran.printed, end="", file=sys.stderr)  # noqa: T201 - the script prints it
        if ran.failure is not None and not ran.launches:
            raise InputError(ran.failure)
        self.stopped = ran.failure
        self._ran = True
        return ran.launches

    def resources(self, index: int, changes: Mapping[str, Plain] | None = None) -> Resources:
        """Return what one program of the launch takes that is *index* in `launches`.

        *changes* are keywords of the launch that are to be others.

        Raises CompileError where it cannot be compiled or takes longer than it may, and InputError
        for keywords that Triton does not take.
        """
        bound = self.launches[index].bound
        self._progress(f"compiling {bound.kernel} for {self.gpu.target.name} ...")
        try:
            line = self._child.ask(to_line(Compile(index, changes or {})), self._compile_timeout)
            if not line and not self._child.closed:  # the next compile needs the kernels again
                self._again()
        finally:
            self._progress("")
        if line is None:
            target = self.gpu.target.name
            raise CompileTimeoutError.of(bound.kernel, self._compile_timeout, target)
        if not line:
            msg = f"the process that compiles {bound.kernel} died: {self._last_words}"
            raise CompileError(msg)
        outcome: Resources | Failure = from_line(Resources | Failure, line)
        if isinstance(outcome, Resources):
            return outcome
        error = CompileError if outcome.status is Status.COMPILE_FAILED else InputError
        raise error(outcome.reason)

    def _again(self) -> None:
        """Run the script once more after its process died in a compile."""
        self._last_words = self._child.last_words
        if [one.bound for one in self._run()] != [one.bound for one in self.launches]:
            refuse(f"{self._name} makes other launches when it is run again")


_recorders: list[Recorder] = []
"""The recorder of the Run that this process made, for the compiles that follow."""


def answer_line(line: str) -> str:
    """Return the answer to a line that is a Run or a Compile."""
    asked: Run | Compile = from_line(Run | Compile, line)
    return to_line(_compile(asked) if isinstance(asked, Compile) else _run(asked))


def _compile(asked: Compile) -> Resources | Failure:
    """Return what a launch compiles to, or why it does not."""
    try:
        return _recorders[0].resources(asked.index, asked.changes)
    except OccupancyLabError as error:
        return failure_of(error)


def _run(asked: Run) -> Ran:
    name, _, entry = asked.script.partition(".py:")
    path = Path(f"{name}.py" if asked.arguments is None else asked.script)
    recorder = Recorder(asked.device, Store(None if asked.store is None else Path(asked.store)))
    _recorders[:] = [recorder]
    failure, printed = None, Printed()
    sys.argv = [str(path), *(asked.arguments or ())]
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - for the process's life
    try:
        sys.path.insert(0, str(path.resolve().parent))
        if asked.arguments is None:
            file = kernel_file(asked.script)
            with captured() as printed, recorder.recording():
                _function(load_file(file), asked.script, entry)()
        else:
            with captured() as printed, recorder.recording():
                runpy.run_path(str(path.resolve()), run_name="__main__")
    except BaseException as error:  # noqa: BLE001 - whatever a script raises, it raised it
        # A program that has done all that it was to do may end itself so.
        ended = isinstance(error, SystemExit) and error.code in {None, 0}
        if asked.arguments is None or not ended:
            failure = _sentence(error, asked.script, path)
    launches = recorder.launches
    if failure is None and not launches:
        failure = f"{asked.script} launches no kernel of Triton"
    return Ran(launches, printed.text[-MOST_PRINTED:], failure)


def _function(module: Any, script: str, entry: str) -> Callable[[], object]:
    """Return the function to call; a benchmark of triton.testing.perf_report is run whole."""
    found = getattr(module, entry, None)
    if type(found).__name__ == "Mark" and hasattr(found, "benchmarks"):
        return module.__dict__[entry].run  # type: ignore[no-any-return] # Triton has no types
    if not callable(found) or is_triton_function(found):
        refuse(f"{script} has no function {quoted(entry)} that launches kernels")
    needed = [
        name
        for name, one in inspect.signature(found).parameters.items()
        if one.default is one.empty and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}
    ]
    if needed:
        refuse(f"{script} takes {', '.join(needed)}; name a function that can be called without")
    return found  # type: ignore[no-any-return] # whatever it is, it can be called


def _sentence(error: BaseException, script: str, file: Path) -> str:
    """Return what ended a script, with the line of it from which that came."""
    cause = error.__cause__ if "cannot be imported" in str(error) else None
    error = cause or error
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file.resolve())]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    where = f"{file}:{lines[-1]}" if lines else script
    if isinstance(error, SystemExit):
        return f"{where} ends the script with status {error.code}"
    if isinstance(error, OccupancyLabError):
        return f"{where}: {error}" if lines else str(error)
    words = error.msg if isinstance(error, SyntaxError) else str(error)
    raised = (frames[-1].line or "") if frames else ""  # an assert says no more
    message = next(iter(words.strip().splitlines()), raised)
    return f"{where}: {type(error).__name__}: {message}".rstrip(": ")


def main() -> None:
    """Serve, once torch and Triton are imported, so that the time limit is the script's alone."""
    import torch  # noqa: F401
    import triton  # noqa: F401

    serve(answer_line)
