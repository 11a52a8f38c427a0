"""Compiles several at a time: in processes of this machine, or on the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import re
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from occupancy_lab.compiling.process import CompileProcess, Request
from occupancy_lab.errors import InputError, quoted, refuse
from occupancy_lab.values import Failure, Resources, Status
from occupancy_lab.workers.child import distribute

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from distributed import Future

    from occupancy_lab.compiling.texts import Compiled

    Outcome = Resources | Compiled | Failure

ANSWERING = 3.0
"""Seconds that a scheduler has to answer in."""
PATIENCE = 3.0
"""Seconds without a result after which the scheduler is asked whether it has a worker."""

_of_thread = threading.local()


def compile_here(
    requests: Mapping[str, Request],
    jobs: int,
    timeout: float | None,
    python: str = sys.executable,
    *,
    forked: bool = False,
) -> Generator[tuple[str, Outcome]]:
    """Compile *requests* in *jobs* processes and give each name with its outcome when it is there.

    *python* compiles with its own Triton, or, *forked*, forks of this process do. However the
    caller ends, no process is left behind.
    """
    processes = [CompileProcess(python, forked=forked) for _ in range(min(jobs, len(requests)))]
    if forked:
        for process in processes:
            process.start()
    yield from distribute(
        requests, processes, lambda process, request: process.compile(request, timeout)
    )


def compile_on_cluster(
    requests: Mapping[str, Request], scheduler: str, timeout: float | None
) -> Generator[tuple[str, Outcome]]:
    """Compile *requests* on the workers of the Dask *scheduler*, as `compile_here` does here.

    A worker that dies takes nothing along: the scheduler gives its compiles to the others. Where
    there is no worker, standard error says so once. `check_scheduler` says whether there is a
    scheduler.
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
            yield names.pop(future), _outcome(future)


def check_scheduler(address: str) -> None:
    """Raise InputError, within seconds, where no Dask scheduler answers at *address*.

    Dask's own client waits much longer, and for some servers in vain.
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
        msg = f"no Dask scheduler answers at {address}: {why}"
        raise InputError(msg) from error
    import asyncio

    with ThreadPoolExecutor(1) as thread, _quiet():  # a notebook's thread has a loop of its own
        kind = thread.submit(asyncio.run, _kind(address)).result()
    if kind != "Scheduler":
        refuse(f"what answers at {address} is no Dask scheduler")


async def _kind(address: str) -> str | None:
    """Return what a Dask server at *address* says it is; None where there is none."""
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
    """Keep Dask in the block from logging on standard error: what fails is told in the rows."""
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


def _outcome(future: Future) -> Outcome:
    if future.status == "finished":
        outcome: Outcome = future.result()
        return outcome
    reason = f"the cluster gave it up: {future.exception()}"
    return Failure(Status.COMPILE_FAILED, reason)


def compile_checked(request: Request, timeout: float | None) -> Outcome:
    """Compile *request* on a cluster's worker, with one compiling process a worker's thread."""
    process = getattr(_of_thread, "process", None)
    if process is None:
        process = _of_thread.process = CompileProcess()
    outcome: Outcome = process.compile(request, timeout)
    return outcome
