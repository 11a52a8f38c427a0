"""Whether processes started by a test are still running."""

from pathlib import Path


def is_running(process: str) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}
