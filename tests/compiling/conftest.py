"""A bound on the time of what reads binaries."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def bounded() -> Iterator[None]:
    """End a test after 20 s of its own that would take minutes with time of the input's square."""

    def late(_number: int, _frame: object) -> None:
        message = "this takes longer than 20 s"
        raise TimeoutError(message)

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, 20)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)
