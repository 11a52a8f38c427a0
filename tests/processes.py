"""Whether processes started by a test are still running, and waiting for them."""

import time
from collections.abc import Callable
from pathlib import Path


def is_running(process: str) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def wait_until(there: Callable[[], bool], every: float = 0.02) -> None:
    """Wait until a condition is true, which is looked at *every* so many seconds, for 2 minutes."""
    end = time.monotonic() + 120
    while not there():
        assert time.monotonic() < end
        time.sleep(every)
