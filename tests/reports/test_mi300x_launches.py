"""Predicted times beside those of AMD's traces of an MI300X, as recorded."""

from __future__ import annotations

import gzip
import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent.parent.parent
ROWS = pd.read_csv(ROOT / "reports" / "data" / "tracelens-mi300x.csv")
ERRORS = (ROWS["predicted_us"] / ROWS["us"] - 1).abs()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return reports/mi300x_launches.py."""
    monkeypatch.syspath_prepend(ROOT / "reports")
    return importlib.import_module("mi300x_launches")


def test_the_page_has_the_recorded_rows(script: ModuleType) -> None:
    """One of each operation."""
    page = (ROOT / "docs" / "times.md").read_text(encoding="utf-8")
    lines = list(script.table())
    assert "\n".join(lines) in page
    assert len(lines) - 2 == len(script.OPERATIONS) == len(ROWS)
    for row, one in zip(ROWS.itertuples(), script.OPERATIONS, strict=True):
        assert row.trace == one.trace
        assert str(row.kernel).startswith(one.kernel)


def test_half_are_within_a_tenth_and_all_in_their_range() -> None:
    """Of kernels above 10 us on a GPU that nothing was fitted to."""
    assert ROWS["us"].min() > 10
    assert ERRORS.median() <= 0.10
    assert ERRORS.max() <= 0.30
    inside = ROWS["us"].between(ROWS["predicted_low_us"], ROWS["predicted_high_us"])
    assert inside.all()


def test_a_launch_of_a_trace_has_the_time_of_its_kernel(script: ModuleType, tmp_path: Path) -> None:
    """What torch noted of the call, and the profiler of the kernel, go by their External id."""

    def event(category: str, number: int, name: str = "", us: float = 0.0, **more: Any) -> Any:
        return {"cat": category, "name": name, "dur": us, "args": {"External id": number, **more}}

    events = [
        event("cpu_op", 1, "triton_poi_fused_add_0", 30.0, kernel_backend="triton", num_warps=4),
        event("kernel", 1, "triton_poi_fused_add_0", 12.5, grid=[8, 1, 1]),
        event("cpu_op", 2, "triton_poi_fused_mul_1", 31.0, kernel_backend="triton", num_warps=8),
        event("kernel", 2, "triton_poi_fused_mul_1", 13.5),
        event("kernel", 3, "triton_poi_fused_add_0", 14.5),
        {"cat": "Trace", "name": "no arguments"},
    ]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    ((call, us),) = script.launches(path, "triton_poi_fused_add")
    assert (call["num_warps"], us) == (4, 12.5)
