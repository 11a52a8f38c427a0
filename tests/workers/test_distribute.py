"""Tasks over workers: each is done once by a free worker, and all are closed."""

import itertools
import threading
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.workers.child import distribute


class Worker:
    """A worker that squares numbers, and counts its calls."""

    def __init__(self) -> None:
        self.closed = 0
        self.done: list[int] = []
        self._busy = threading.Lock()

    def do(self, number: int) -> int:
        """Return the square of *number*; fail if called twice at once."""
        assert self._busy.acquire(blocking=False)
        self.done.append(number)
        self._busy.release()
        return number**2

    def close(self) -> None:
        """Count the call."""
        self.closed += 1


@given(st.sets(st.integers(-99, 99), max_size=20), st.integers(1, 4))
def test_each_task_is_done_once(numbers: set[int], count: int) -> None:
    """Every name comes once with its outcome, and each worker is closed."""
    workers = [Worker() for _ in range(count)]
    tasks = {str(number): number for number in numbers}
    outcomes = list(distribute(tasks, workers, Worker.do))
    assert Counter(outcomes) == Counter((str(number), number**2) for number in numbers)
    done = itertools.chain.from_iterable(worker.done for worker in workers)
    assert sorted(done) == sorted(numbers)
    assert all(worker.closed == 1 for worker in workers)


def test_one_worker_keeps_the_order() -> None:
    """A single worker does the tasks in order."""
    tasks = {name: place for place, name in enumerate("dabc")}
    assert list(distribute(tasks, [Worker()], Worker.do)) == [
        ("d", 0),
        ("a", 1),
        ("b", 4),
        ("c", 9),
    ]


def test_a_slow_task_does_not_hold_up_the_others() -> None:
    """While one worker is busy, the other does the rest."""
    release = threading.Event()

    def do(worker: Worker, number: int) -> int:
        if number == 0:
            assert release.wait(30)
        return worker.do(number)

    order = []
    for name, _ in distribute({number: number for number in range(6)}, [Worker(), Worker()], do):
        order.append(name)
        if len(order) == 5:
            release.set()
    assert order[-1] == 0
    assert sorted(order) == list(range(6))


def test_a_caller_that_stops_closes_the_workers() -> None:
    """A caller that stops early does not wait for closed workers."""
    closed = threading.Event()

    class Endless(Worker):
        """A worker that works until it is closed."""

        def close(self) -> None:
            """End its work."""
            super().close()
            closed.set()

    def do(_worker: Worker, number: int) -> int:
        if number:
            assert closed.wait(30)
        return number

    workers = [Endless(), Endless()]
    outcomes = distribute({0: 0, 1: 1, 2: 2}, workers, do)
    next(outcomes)
    start = time.monotonic()
    outcomes.close()  # type: ignore[attr-defined] # it is a generator
    assert time.monotonic() - start < 30
    assert all(worker.closed == 1 for worker in workers)


def test_an_error_reaches_the_caller() -> None:
    """A task's error is raised, and the workers are closed."""

    def do(_worker: Worker, number: int) -> float:
        return 1 / number

    workers = [Worker(), Worker()]
    with pytest.raises(ZeroDivisionError):
        list(distribute({0: 0, 1: 1}, workers, do))
    assert all(worker.closed == 1 for worker in workers)
