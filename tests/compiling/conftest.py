"""The compiler behind these tests: Triton with a cache of its own."""

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
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Return the module sample.py; what it compiles is kept in a folder of this run."""
    pytest.importorskip("triton")
    specification = importlib.util.spec_from_file_location(
        "sample", Path(__file__).with_name("sample.py")
    )
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        specification.loader.exec_module(module)
        yield module


@pytest.fixture
def bounded() -> Iterator[None]:
    """End a test after 20 s that would take minutes where time grows with the input's square."""

    def late(_number: int, _frame: object) -> None:
        message = "this takes longer than 20 s"
        raise TimeoutError(message)

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
