"""Tables of launches that nobody made, and a model that says what a test wants."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from occupancy_lab.evaluating import evaluation
from occupancy_lab.throughput import predict

if TYPE_CHECKING:
    from collections.abc import Callable

LAUNCH = {
    "gpu": "h200",
    "kernel": "softmax",
    "rows": 4096,
    "cols": 1024,
    "dtype": "float32",
    "BLOCK_SIZE": 1024,
    "num_warps": 4,
    "num_stages": 1,
    "n_regs": 32,
    "n_spills": 0,
    "shared": 16,
    "instructions": 60,
    "loop_instructions": 200,
    "programs_per_multiprocessor": 8,
    "occupancy": 0.5,
    "num_programs": 1056,
    "launched": 1056,
    "measured": "measured",
    "us": 20.0,
    "use": "held out",
}


@pytest.fixture(scope="session")
def make_table() -> Callable[..., pd.DataFrame]:
    """Return the function that makes a table: a launch for each mapping of special values."""
    return lambda *launches: pd.DataFrame([LAUNCH | launch for launch in launches])


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return the function that has the model say times: `say([us, ...], bound, roofline_us)`."""

    def set_up(times: list[float], bound: str = "latency", roofline_us: float = 10.0) -> None:
        left = iter(times)

        def predictions(launches: list[Any], *_: Any) -> list[SimpleNamespace]:
            return [SimpleNamespace(us=next(left), bound=bound) for _ in launches]

        monkeypatch.setattr(predict, "predictions", predictions)
        monkeypatch.setattr(evaluation, "roofline_us", lambda _total, _constants: roofline_us)

    return set_up
