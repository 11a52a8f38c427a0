"""Tasks distributed over workers: each free worker takes the next task."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from occupancy_lab.workers import signals

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence


class UnfinishedError(KeyboardInterrupt):
    """A signal in the middle of the work; raised from it, with what was finished before."""

    def __init__(self, finished: Any) -> None:
        super().__init__("interrupted")
        self.finished = finished


class Closable(Protocol):
    """A worker: something that can be ended from another thread."""

    def close(self) -> None:
        """End it for good."""


Name = TypeVar("Name")
Task = TypeVar("Task")
Outcome = TypeVar("Outcome")
Worker = TypeVar("Worker", bound=Closable)


def distribute(
    tasks: Mapping[Name, Task], workers: Sequence[Worker], do: Callable[[Worker, Task], Outcome]
) -> Generator[tuple[Name, Outcome]]:
    """Have *workers* do *tasks*, and give each name with its outcome as soon as it is there.

    However the caller ends, every worker is closed.
    """
    free = list(workers)
    waiting = list(reversed(list(tasks.items())))
    running: dict[Future[Outcome], tuple[Name, Worker]] = {}
    with ThreadPoolExecutor(max(len(workers), 1)) as threads:
        try:
            while waiting or running:
                while waiting and free:
                    name, task = waiting.pop()
                    worker = free.pop()
                    running[threads.submit(do, worker, task)] = name, worker
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    name, worker = running.pop(future)
                    free.append(worker)
                    yield name, future.result()
        except KeyboardInterrupt:
            signals.arrived()
            raise
        finally:
            for worker in workers:
                worker.close()
