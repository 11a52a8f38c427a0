"""The compiler behind these tests, and a bound on the time of what reads its binaries."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


@pytest.fixture(scope="session")
def sample() -> ModuleType:
    """Return the module sample.py; what it compiles is kept in the Triton cache of this run."""
    pytest.importorskip("triton")
    specification = importlib.util.spec_from_file_location(
        "sample", Path(__file__).with_name("sample.py")
    )
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


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
