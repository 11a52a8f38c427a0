"""Compiles in separate processes, which can be timed out and killed, and may die.

They run one at a time, several on this machine, or on the workers of a Dask cluster. Each process
runs `main`: it reads one request per line and writes one answer per line.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.compile import compile_launch, failure_of, resource_key
from occupancy_lab.compiling.store import Store, key_as_json
from occupancy_lab.compiling.texts import Compiled
from occupancy_lab.errors import InputError, OccupancyLabError, quoted, refuse
from occupancy_lab.kernel import innermost, load_file, load_function
from occupancy_lab.launch import Launch
from occupancy_lab.values import Failure, Status, Target
from occupancy_lab.workers.child import Child, distribute, serve
from occupancy_lab.workers.forked import ForkedChild
from occupancy_lab.workers.messages import from_line, to_line

if TYPE_CHECKING:
    from distributed import Future

Found = Compiled | Failure
ATTEMPTS = 3
"""How often a compile is tried if its process dies: a process killed from outside may succeed."""
COMPILE_TIMEOUT = 120.0
"""Seconds that a compile may take: blocks with many elements per thread take 150 s and more."""


@dataclass(frozen=True, slots=True)
class Import:
    """A kernel's file that is only to be imported."""

    file: str


@dataclass(frozen=True, slots=True)
class Request:
    """One compile: the kernel's name for `load_function`, and everything else that it needs."""

    kernel: str
    launch: Launch
    target: Target
    store: str | None
    """The store's directory; None if the compiling process is to keep nothing."""
    present: bool = False
    """Whether the target's GPU is here, so that the compiled kernel is loaded on it."""
    key: str | None = None
    """The `resource_key` that the compiling machine must get, as JSON; None accepts any."""


class CompileProcess:
    """One compiling process, which is started when needed and restarted after it died."""

    def __init__(self, python: str = sys.executable, *, forked: bool = False) -> None:
        """Compile with the interpreter *python* and the Triton of its environment.

        If *forked*, compile in a fork of this process instead, where no GPU's driver works.
        """
        module = "occupancy_lab.compiling.process"
        self._child = ForkedChild(main) if forked else Child(module, python=python)

    def compile(self, request: Request, timeout: float | None) -> Found:
        """Return the result of *request*; each try may take *timeout* seconds."""
        outcome: Found = self._ask(request, Found, timeout)
        return outcome

    def import_file(self, file: Path, timeout: float | None) -> Failure | None:
        """Import a kernel's *file* in the process, and return why that fails, or None."""
        failure: Failure | None = self._ask(Import(str(file)), Failure | None, timeout)
        return failure

    def _ask(self, request: Request | Import, kind: Any, timeout: float | None) -> Any:
        for _ in range(ATTEMPTS):
            if self._child.closed:
                return Failure(Status.COMPILE_FAILED, "interrupted")
            line = self._child.ask(to_line(request), timeout)
            if line is None:
                return Failure(Status.TIMED_OUT, f"longer than {timeout:g} s", timeout)
            if not line:
                continue
            try:
                return from_line(kind, line)
            except ValueError:
                self._child.end()
                reason = f"the compiling process sent an invalid answer: {line.strip()[:40]!r}"
                return Failure(Status.COMPILE_FAILED, reason)
        reason = f"the compiling process died {ATTEMPTS} times: {self._child.last_words}"
        return Failure(Status.COMPILE_FAILED, reason)

    def close(self) -> None:
        """End the process for good; any thread may call this, even during a compile."""
        self._child.close()


class _NoTorch(ModuleType):
    """Stands in for torch, which Triton imports to recognize tensors."""

    class Tensor:
        """A class without instances, so that no argument is a tensor."""


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """Keep Triton from importing torch, which takes 1.3 s per process, unless it is imported.

    No argument is a tensor here, and the environment of another Triton may not have torch.
    """
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = _NoTorch("torch")
    try:
        yield
    finally:
        del sys.modules["torch"]


def answer(request: Request) -> Found:
    """Return the result of *request*, or why it does not compile."""
    try:
        kernel, name = load_function(request.kernel)
        function = innermost(kernel)
        with _without_torch():
            differences = _differences(function, request)
        if differences:
            reason = f"on {os.uname().nodename} {' and '.join(differences)}"
            return Failure(Status.COMPILE_FAILED, reason)
        # Triton's own driver needs torch to find the GPU.
        with contextlib.nullcontext() if request.present else _without_torch():
            return compile_launch(
                function,
                request.launch,
                request.target,
                Store(request.store),
                name=name,
                present=request.present,
            )
    except OccupancyLabError as error:
        return failure_of(error)


def import_file(file: str) -> Failure | None:
    """Import a kernel's file, and return why that fails, or None."""
    try:
        load_file(Path(file))
    except InputError as error:
        return Failure(Status.COMPILE_FAILED, str(error))
    except BaseException as error:  # noqa: BLE001 - a file may raise anything
        reason = f"{file} cannot be imported: {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            reason += f"; {sys.executable}, which compiles it, does not have that module"
        return Failure(Status.COMPILE_FAILED, reason.rstrip(": "))
    return None


def answer_line(line: str) -> str:
    """Return the answer to a line with a Request or an Import."""
    asked: Request | Import = from_line(Request | Import, line)
    return to_line(import_file(asked.file) if isinstance(asked, Import) else answer(asked))


def _differences(function: Any, request: Request) -> list[str]:
    """Return in words what differs here from the machine that asked and changes the binary."""
    if request.key is None:
        return []
    asked = json.loads(request.key)
    own = json.loads(key_as_json(resource_key(function, request.launch, request.target)))
    changed = {name for name, _ in own["environment"].items() ^ asked["environment"].items()}
    words = {
        "triton": f"Triton is {own['triton']}, not {asked['triton']}",
        "environment": f"the environment differs ({', '.join(sorted(changed))})",
    }
    names = [name for name in own if own[name] != asked.get(name)]
    return list(dict.fromkeys(words.get(name, "the kernel file differs") for name in names))


def main() -> None:
    """Serve requests after importing Triton, so that a time limit covers only the compile."""
    import triton  # noqa: F401

    serve(answer_line)


ANSWERING = 3.0
"""Seconds that a scheduler has to answer."""
PATIENCE = 3.0
"""Seconds without a result after which the scheduler is asked whether it has any worker."""

_of_thread = threading.local()


def compile_here(
    requests: Mapping[str, Request],
    jobs: int,
    timeout: float | None,
    python: str = sys.executable,
    *,
    forked: bool = False,
) -> Generator[tuple[str, Found]]:
    """Compile *requests* in *jobs* processes, and yield each name and outcome when it is there.

    *python* compiles with its own Triton; if *forked*, forks of this process compile instead. No
    process is left behind, however the caller ends.
    """
    processes = [CompileProcess(python, forked=forked) for _ in range(min(jobs, len(requests)))]
    yield from distribute(
        requests, processes, lambda process, request: process.compile(request, timeout)
    )


def compile_on_cluster(
    requests: Mapping[str, Request], scheduler: str, timeout: float | None
) -> Generator[tuple[str, Found]]:
    """Compile *requests* on the workers of the Dask *scheduler*, as `compile_here` does here.

    If a worker dies, the scheduler gives its compiles to others. If there is no worker, a note on
    standard error says so once. `check_scheduler` says whether there is a scheduler.
    """
    if not requests:
        return
    from distributed import Client

    from occupancy_lab.text.printing import print_note

    with _quiet(), Client(scheduler, set_as_default=False) as client, client.as_current():
        finished: SimpleQueue[Future] = SimpleQueue()
        names = {}
        for name, request in requests.items():
            future = client.submit(compile_checked, request, timeout, pure=False)
            names[future] = name
            future.add_done_callback(finished.put)
        told = False
        while names:
            try:
                future = finished.get(timeout=PATIENCE)
            except Empty:
                if not told and not client.nthreads():
                    print_note(f"no worker has joined {scheduler}; waiting for one")
                    told = True
                continue
            reason = f"the cluster gave it up: {future.exception()}"
            gone = Failure(Status.COMPILE_FAILED, reason)
            yield names.pop(future), future.result() if future.status == "finished" else gone


def check_scheduler(address: str) -> None:
    """Raise InputError, within seconds, if no Dask scheduler answers at *address*.

    Dask's own client waits much longer, and for some servers forever.
    """
    if importlib.util.find_spec("distributed") is None:
        refuse("--scheduler needs Dask: pip install 'occupancy-lab[dask]'")
    match = re.fullmatch(r"(?:tcp|tls)://(\[[^]]+\]|[^:/\[\]]+):(\d{1,5})", address)
    if match is None:
        refuse(f"{quoted(address)} is no address of a Dask scheduler, such as tcp://host:8786")
    try:
        socket.create_connection((match[1].strip("[]"), int(match[2])), ANSWERING).close()
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        refuse(f"no Dask scheduler answers at {address}: {why}")
    import asyncio

    with ThreadPoolExecutor(1) as thread, _quiet():  # a notebook's thread has a loop of its own
        kind = thread.submit(asyncio.run, _kind(address)).result()
    if kind != "Scheduler":
        refuse(f"the server at {address} is not a Dask scheduler")


async def _kind(address: str) -> str | None:
    """Return the type that a Dask server at *address* reports, or None if there is no server."""
    import asyncio

    from distributed.core import rpc
    from distributed.security import Security

    arguments = Security().get_connection_args("client")
    try:
        async with asyncio.timeout(ANSWERING), rpc(address, connection_args=arguments) as server:
            kind: str = (await server.identity())["type"]
    except Exception:  # noqa: BLE001 - bytes of another protocol can make Dask raise anything
        return None
    return kind


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask from logging on standard error in the block: the rows report failures."""
    names = ("distributed", "distributed.client", "tornado", "tornado.application")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def compile_checked(request: Request, timeout: float | None) -> Found:
    """Compile *request* on a cluster's worker, which has one compiling process per thread."""
    process = getattr(_of_thread, "process", None)
    if process is None:
        process = _of_thread.process = CompileProcess()
    outcome: Found = process.compile(request, timeout)
    return outcome
