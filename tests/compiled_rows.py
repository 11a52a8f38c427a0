"""Rows of compiled kernels for tests of gates; missing values are calculated."""

from typing import Any

from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy import occupancy
from occupancy_lab.values import Resources


def compiled(kernel: str = "softmax", gpu: str = "h100", **changes: Any) -> dict[str, Any]:
    """Return a row as in a sweep, with the occupancy of its resources."""
    row: dict[str, Any] = {
        "gpu": gpu,
        "target": find_gpu(gpu).target.name,
        "kernel": kernel,
        "BLOCK_SIZE": 1024,
        "num_warps": 8,
        "num_stages": 4,
        "status": "ok",
        "reason": None,
        "n_regs": 38,
        "local_bytes": 0,
        "shared": 12320,
        "static_shared": 0,
        **changes,
    }
    if row["status"] != "ok" or None in (row["n_regs"], row["shared"]):
        return row
    resources = Resources(row["n_regs"], row["num_warps"], row["shared"], row["static_shared"])
    held = occupancy(resources, find_gpu(gpu).architecture)
    return row | {
        "programs_per_multiprocessor": held.programs_per_multiprocessor,
        "limiter": "+".join(held.limiters),
        "occupancy": held.occupancy,
    }


def failed(**changes: Any) -> dict[str, Any]:
    """Return a row of a kernel that does not compile."""
    results = dict.fromkeys(["n_regs", "local_bytes", "shared", "static_shared"])
    row = compiled(status="compile failed", reason="error: no such thing", **results)
    return row | changes
