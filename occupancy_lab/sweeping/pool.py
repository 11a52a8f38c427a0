"""Where compiles run: processes of this machine, or the workers of a Dask cluster."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from occupancy_lab.compiling.process import CompileProcess
from occupancy_lab.errors import InputError
from occupancy_lab.spread import spread
from occupancy_lab.values import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from occupancy_lab.compiling.request import Request
    from occupancy_lab.values import Resources

    Outcome = Resources | Failure

_of_thread = threading.local()


def compile_here(
    requests: Mapping[str, Request], jobs: int, timeout: float | None
) -> Iterator[tuple[str, Outcome]]:
    """Compile *requests* in *jobs* processes and give each name with its outcome when it is there.

    However the caller ends, no process is left behind.
    """
    processes = [CompileProcess() for _ in range(min(jobs, len(requests)))]
    return spread(requests, processes, lambda process, request: process.compile(request, timeout))


def compile_on_cluster(
    requests: Mapping[str, Request], scheduler: str, timeout: float | None
) -> Iterator[tuple[str, Outcome]]:
    """Compile *requests* on the workers of the Dask *scheduler*, as `compile_here` does here.

    A worker that dies takes nothing along: the scheduler gives its compiles to the others.

    Raises InputError where Dask is not installed or the scheduler does not answer.
    """
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        msg = "--scheduler needs Dask: pip install 'occupancy-lab[dask]'"
        raise InputError(msg) from error
    try:
        client = Client(scheduler, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        msg = f"no Dask scheduler answers at {scheduler}: {error}"
        raise InputError(msg) from error
    with client, client.as_current():
        futures = {
            client.submit(compile_on_worker, request, timeout, pure=False): name
            for name, request in requests.items()
        }
        for future in as_completed(list(futures), raise_errors=False):
            if future.status == "finished":
                yield futures[future], future.result()
            else:
                reason = f"the cluster gave it up: {future.exception()}"
                yield futures[future], Failure("compile failed", reason, lasting=False)


def compile_on_worker(request: Request, timeout: float | None) -> Outcome:
    """Compile *request* on a cluster's worker, with one compiling process a worker's thread."""
    process = getattr(_of_thread, "process", None)
    if process is None:
        process = _of_thread.process = CompileProcess()
    outcome: Outcome = process.compile(request, timeout)
    return outcome
