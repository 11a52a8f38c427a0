"""What is recorded of a trace beside the profiler: which counts are held against which."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from record_trace import Run


def kernel(launches: int, us: float | None, **others: Any) -> dict[str, Any]:
    """Return a kernel as the tool's JSON has it."""
    return {
        "kernel": "add",
        "launched_by": "triton",
        "launches": launches,
        "tuning_launches": 0,
        "captured_launches": 0,
        "timed_launches": 7,
        "us": us,
        "total_us": None if us is None else us * launches,
        **others,
    }


def runs(name: str, kernels: list[Any], times: list[float], steps: int) -> tuple[Run, Run]:
    """Return a run under the tool, and one under the profiler."""
    traced, profile = (Run(name, mode, Path()) for mode in ("trace", "profile"))
    traced.trace = {"kernels": kernels, "processes": [{"replays": steps}]}
    profile.facts = {"steps": steps, "kernels": {"add": times}}
    return traced, profile


def grid(launches: int, us: float | None, captured: int = 0) -> dict[str, Any]:
    """Return the launches over one grid as the tool's JSON has them."""
    samples = 0 if us is None else 3
    return {"launches": launches, "captured": captured, "tuning": 0, "samples": samples, "us": us}


def recorded(name: str) -> tuple[list[dict[str, str]], list[float]]:
    """Return the rows of a recorded file, and how far off the times above 10 us are."""
    root = Path(__file__).parents[2]
    with (root / "reports" / "data" / name).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return rows, [
        float(row["off"]) for row in rows if row["off"] and float(row["profiled_us"]) > 10
    ]


def test_the_documents_figures_are_those_recorded() -> None:
    """docs/trace.md says of how many kernels counts and times agree with the profiler."""
    path = Path(__file__).parents[2] / "docs" / "trace.md"
    text = " ".join(path.read_text(encoding="utf-8").split())
    rows, off = recorded("trace-h200.csv")
    equal = sum(row["counts_equal"] == "True" for row in rows)
    close = sum(abs(one) <= 0.05 for one in off)
    assert f"Launches are the profiler's for {equal} of {len(rows)} kernels" in text
    assert f"within 5% of the profiler's for {close} of the {len(off)} kernels" in text
    assert f"within {max(map(abs, off)):.0%} for all" in text
    rows, off = recorded("trace-ranks-h200.csv")
    equal = sum(row["counts_equal"] == "True" and row["rank"] == row["device"] for row in rows)
    close = sum(abs(one) <= 0.02 for one in off)
    assert f"profiler's for {equal} of {len(rows)} kernels, each process on its own GPU" in text
    assert f"Times are within 2% for {close} of them" in text
    assert f"is {max(map(abs, off)):.0%} short" in text
