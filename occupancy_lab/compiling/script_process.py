"""The code of a script's process: runs its function or program, and compiles its launches.

Pythons that multiprocessing starts for the script note their launches; others are reported.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import util
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from unittest import mock

from occupancy_lab.compiling.assumptions import Assumed, Value, not_asked_for
from occupancy_lab.compiling.compiler import Compilation, Compiler
from occupancy_lab.compiling.dry_gpu import seed
from occupancy_lab.compiling.notes import ENDING, Unseen
from occupancy_lab.compiling.recorder import Recorder
from occupancy_lab.compiling.script import Compile, Digests, Ran, Relaunch, Run
from occupancy_lab.compiling.store import Store
from occupancy_lab.errors import OccupancyLabError, quoted, refuse, shortened
from occupancy_lab.gpus import Gpu
from occupancy_lab.kernel import is_triton_function, kernel_file, load_file
from occupancy_lab.values import Failure, Resources
from occupancy_lab.workers.child import captured, loading, serve
from occupancy_lab.workers.messages import from_line, to_line
from occupancy_lab.workers.signals import UnfinishedError

MOST_PRINTED = 1 << 20
"""How many of the last characters of a script's output are shown."""
BEGIN = """
from occupancy_lab.compiling.script_process import begin
begin({gpu!r}, {store!r}, {folder!r}, {given!r})
"""
"""Code that runs before what a process of multiprocessing is to run."""
STARTS = ("from multiprocessing.spawn import", "from multiprocessing.forkserver import")
"""The beginning of the code of a process of multiprocessing."""
LISTS_GPUS = {"cuda": "nvidia-smi", "hip": "rocm-smi"}
"""The program that lists GPUs: programs learn the GPU's vendor from its exit status."""
_process = contextlib.ExitStack()
"""Lives as long as a spawned process."""
_ran: list[tuple[Run, Recorder]] = []
"""The Run that this process made and its recorder, for the compiles that follow."""


class TimeUpError(BaseException):
    """A script exceeded its time limit; no `except Exception` of the script catches this."""


def answer_line(line: str) -> str:
    """Return the answer to a line with a Run, a Compile, a Relaunch or Digests."""
    asked: Run | Compile | Relaunch | Digests = from_line(Run | Compile | Relaunch | Digests, line)
    if isinstance(asked, Digests):
        return to_line(_ran[0][1].digests(asked.launches))
    if isinstance(asked, Relaunch):
        return to_line(_ran[0][1].relaunched(asked.index, asked.changes))
    return to_line(_compile(asked) if isinstance(asked, Compile) else _run(asked))


def _compile(asked: Compile) -> list[Resources | Failure] | list[str | None]:
    ((run, recorder),) = _ran
    found = [recorder.to_compile(one.index, one.changes) for one in asked.launches]
    wanted = [one for one in found if isinstance(one, Compilation)]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the script may have changed it
    compiler = Compiler(run.store, timeout=run.compile_seconds, retry_failed=run.retry_failed)
    if asked.texts:
        texts = iter(compiler.texts(wanted))
        ready = (next(texts) if isinstance(one, Compilation) else None for one in found)
        return [None if one is None else one.pack() for one in ready]
    try:
        compiled = iter(compiler.compile(wanted))
    except UnfinishedError as stop:
        compiled = iter(stop.finished)
    return [next(compiled) if isinstance(one, Compilation) else one for one in found]


def _run(asked: Run) -> Ran:
    name, _, entry = asked.script.partition(".py:")
    path = Path(f"{name}.py" if asked.arguments is None else asked.script)
    folder = Path(tempfile.mkdtemp(prefix="notes-"))
    recorder = Recorder(asked.gpu, Store(asked.store), folder, asked.assume, untuned=asked.untuned)
    _ran[:] = [(asked, recorder)]
    prepare(path, asked.arguments or ())
    seed()
    error: BaseException | None = None
    own = os.getpid()

    def failed(what: str, raised: BaseException) -> None:
        recorder.tell(f"{what} ended early: {_sentence(raised, asked.script, path)}")

    with captured() as printed, recording_all(recorder), _ending(failed) as end:
        try:
            with _time_limit(asked):
                if asked.arguments is None:
                    script_function(load_file(kernel_file(asked.script)), asked.script, entry)()
                else:
                    _run_program(path)
        except BaseException as raised:  # noqa: BLE001 - a script may raise anything
            error = raised
        if os.getpid() != own:
            _end_fork(error, end, failed)
        end(error)
    told = recorder.gather()
    launches, reason = recorder.launches, None
    # A program may end itself with status 0 when it is done.
    if error is not None and (asked.arguments is None or _status(error)):
        reason = _sentence(error, asked.script, path)
    elif asked.arguments is None and not launches:
        reason = f"{asked.script} launches no Triton kernel"
    assumed = tuple(one for one in told if isinstance(one, Assumed))
    return Ran(
        launches,
        printed.text[-MOST_PRINTED:],
        reason,
        _status(error),
        faults=tuple(one for one in told if isinstance(one, str)),
        missing=tuple(one.operation for one in told if isinstance(one, Unseen)),
        assumed=assumed,
        not_asked_for=tuple(not_asked_for(asked.assume, assumed)),
        recent=recorder.recent,
        feeds=recorder.feeds,
    )


def prepare(path: Path, arguments: Sequence[str] = ()) -> None:
    """Let this process look to the script at *path* as if Python ran it with *arguments*."""
    sys.argv = [str(path), *arguments]
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - for the process's life
    sys.path.insert(0, str(path.resolve().parent))


@contextlib.contextmanager
def _time_limit(asked: Run) -> Iterator[None]:
    def stop(*_: object) -> None:
        msg = f"it {asked.late}"
        raise TimeUpError(msg)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, asked.seconds or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _run_program(path: Path) -> None:
    """Run the file at *path* as a program in the module `__main__`, which stays in place."""
    program = ModuleType("__main__")
    program.__file__ = str(path.resolve())
    sys.modules["__main__"] = program
    code = compile(path.read_bytes(), program.__file__, "exec", dont_inherit=True)
    exec(code, vars(program))  # noqa: S102 - the user's own program


@contextlib.contextmanager
def _ending(
    failed: Callable[[str, BaseException], None],
) -> Iterator[Callable[[BaseException | None], None]]:
    """Yield a function that ends a script, after its end or an error, as Python itself would.

    It waits for threads and processes, and calls what the block registered with atexit. *failed* is
    called with what ended early, and why.
    """
    from multiprocessing import forkserver, util
    from unittest import mock

    hooks: list[functools.partial[object]] = []

    def register(hook: Any, *args: Any, **keywords: Any) -> Any:
        hooks.append(functools.partial(hook, *args, **keywords))
        return hook

    def unregister(hook: object) -> None:
        hooks[:] = [one for one in hooks if one.func != hook]

    def thread_failed(thread: Any) -> None:
        threading.__excepthook__(thread)
        if thread.exc_value is not None and thread.exc_type is not SystemExit:
            failed("a thread", thread.exc_value)

    def end_all() -> None:
        _wait_for_threads()
        while hooks:
            try:
                hooks.pop()()
            except BaseException as error:  # noqa: BLE001 - Python goes on after any error
                traceback.print_exc()
                failed("what atexit called", error)
        util._exit_function()  # type: ignore[attr-defined] # noqa: SLF001
        with contextlib.suppress(OSError):  # its socket is gone already
            forkserver._forkserver._stop()  # type: ignore[attr-defined] # noqa: SLF001

    def end(error: BaseException | None) -> None:
        if error is None or isinstance(error, SystemExit):
            end_all()
            return
        # Threads and processes may wait forever for something that the script did not reach.
        ending = threading.Thread(target=end_all, daemon=True)
        ending.start()
        ending.join(ENDING)

    with (
        mock.patch.object(atexit, "register", register),
        mock.patch.object(atexit, "unregister", unregister),
        mock.patch.object(threading, "excepthook", thread_failed),
    ):
        yield end


def _wait_for_threads() -> None:
    """Wait for the threads that Python waits for, as threading._shutdown does in the main one."""
    for call in reversed(threading._threading_atexits):  # type: ignore[attr-defined] # noqa: SLF001
        call()
    own = {threading.main_thread(), threading.current_thread()}
    while threads := [one for one in threading.enumerate() if not one.daemon and one not in own]:
        threads[0].join()


def _end_fork(
    error: BaseException | None,
    end: Callable[[BaseException | None], None],
    failed: Callable[[str, BaseException], None],
) -> NoReturn:
    if isinstance(error, SystemExit):
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)  # noqa: T201 - as Python does
    elif error is not None:
        failed(f"process {os.getpid()}", error)
        traceback.print_exception(error)
    end(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_status(error))


def _status(error: BaseException | None) -> int:
    code = error.code if isinstance(error, SystemExit) else error and 1
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def script_function(module: Any, script: str, entry: str) -> Callable[[], object]:
    """Return the function to call; a benchmark of triton.testing.perf_report is run as a whole."""
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
        refuse(
            f"{script} takes {', '.join(needed)}; name a function that can be called without"
            " arguments"
        )
    return found  # type: ignore[no-any-return] # whatever it is, it can be called


def _sentence(error: BaseException, script: str, file: Path) -> str:
    """Return in a sentence what ended a script, with the line of the script that caused it."""
    cause = error.__cause__ if "cannot be imported" in str(error) else None
    error = cause or error
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file.resolve())]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    where = f"{file}:{lines[-1]}" if lines else script
    if isinstance(error, SystemExit):
        return f"{where} ends the script with status {error.code}"
    if isinstance(error, TimeUpError):
        return f"{where}: {error}"
    if isinstance(error, KeyboardInterrupt):
        return f"{where}: it was interrupted"
    if isinstance(error, OccupancyLabError):
        return f"{where}: {error}" if lines else str(error)
    words = error.msg if isinstance(error, SyntaxError) else str(error)
    raised = (frames[-1].line or "") if frames else ""  # an assert has no message
    message = next(iter(words.strip().splitlines()), raised)
    return f"{where}: {type(error).__name__}: {message}".rstrip(": ")


@contextlib.contextmanager
def recording_all(recorder: Recorder) -> Iterator[None]:
    """Make *recorder* record in the block, also in processes that multiprocessing spawns there."""
    gpu, store = recorder.gpu, recorder.store
    begin = loading() + BEGIN.format(
        gpu=to_line(gpu),
        store=None if store.directory is None else str(store.directory),
        folder=str(recorder.folder),
        given=dict(recorder.given),
    )
    spawn, start = util.spawnv_passfds, subprocess.Popen.__init__

    def spawn_noting(path: Any, command: Sequence[Any], *others: Any) -> int:
        words = [
            f"{begin}{word}" if isinstance(word, str) and word.startswith(STARTS) else word
            for word in command
        ]
        return spawn(path, words, *others)

    def start_named(process: Any, command: Any, *args: Any, **keywords: Any) -> None:
        words = [command] if isinstance(command, str | bytes | os.PathLike) else list(command)
        if words == [LISTS_GPUS[gpu.target.backend]]:
            command = ["echo", gpu.title]
        if Path(os.fsdecode(words[0])).name.startswith("python"):
            command_text = shortened(shlex.join(map(os.fsdecode, words)))
            recorder.tell(f"{command_text} was started as a separate program, which is not run dry")
        start(process, command, *args, **keywords)

    with (
        mock.patch.object(util, "spawnv_passfds", spawn_noting),
        mock.patch.object(subprocess.Popen, "__init__", start_named),
        recorder.recording(),
    ):
        yield


def begin(gpu: str, store: str | None, folder: str, given: Mapping[str, Value]) -> None:
    """Note the launches of this process, for as long as it lives."""
    recorder = Recorder(from_line(Gpu, gpu), Store(store), Path(folder), given)
    recorder.begin_process()
    seed()
    _process.enter_context(recording_all(recorder))


def main() -> None:
    """Serve requests after importing torch and Triton: the time limit covers only the script."""
    import torch  # noqa: F401
    import triton  # noqa: F401

    serve(answer_line)
