"""A time limit for tests of the binary readers."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def bounded() -> Iterator[None]:
    """End a test after 20 s: with time quadratic in the input it would take minutes."""

    def late(_number: int, _frame: object) -> None:
        message = "this takes longer than 20 s"
        raise TimeoutError(message)

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, 20)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)
