"""Tables of invented launches, with predicted times set by a test."""

from collections.abc import Callable

import pandas as pd
import pytest

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
    "predicted_us": 20.0,
    "bound": "latency",
}


@pytest.fixture(scope="session")
def make_table() -> Callable[..., pd.DataFrame]:
    """Return a function that makes a table with one launch per mapping of values."""
    return lambda *launches: pd.DataFrame([LAUNCH | launch for launch in launches])
