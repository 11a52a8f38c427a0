"""What is recorded of a trace beside the profiler: which counts are held against which."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from record_trace import PROGRAMS, Run, cost_rows, rank_rows, rows_of


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


@pytest.mark.parametrize(("profiled", "equal"), [(20, True), (19, False)])
def test_launches_of_unprofiled_steps_are_taken_off(profiled: int, *, equal: bool) -> None:
    """Of 11 steps of 2 launches each the profiler saw 10; times are means over configurations."""
    assert PROGRAMS["liger"].unprofiled == 1
    found = [kernel(11, 20.0), kernel(11, 40.0), kernel(0, None, tuning_launches=9)]
    (row,) = rows_of("liger", *runs("liger", found, [25.0] * profiled, 10))
    assert (row["expected"], row["profiled"], row["counts_equal"]) == (20, profiled, equal)
    assert (row["configurations"], row["tuning"], row["timed"]) == (3, 9, 21)
    assert row["us"] == pytest.approx(30)
    assert row["off"] == pytest.approx(0.2)


def test_launches_of_a_graph_are_those_of_its_replays() -> None:
    """2 captured launches that are replayed 10 times are 20 for the profiler."""
    found = [kernel(4, None, captured_launches=2)]
    (row,) = rows_of("graph", *runs("graph", found, [30.0] * 20, 10))
    assert (row["expected"], row["counts_equal"], row["off"]) == (20, True, None)


def grid(launches: int, us: float | None, captured: int = 0) -> dict[str, Any]:
    """Return the launches over one grid as the tool's JSON has them."""
    samples = 0 if us is None else 3
    return {"launches": launches, "captured": captured, "tuning": 0, "samples": samples, "us": us}


def test_processes_of_torchrun_are_apart() -> None:
    """The launches of each rank are beside what the profiler saw in that rank, not their sum."""
    parts = [
        {"pid": 7, "device": 1, "grids": [grid(22, 20.0), grid(11, 50.0), grid(11, None)]},
        {"pid": 5, "device": 0, "grids": [grid(11, 20.0)]},
    ]
    traced, profile = runs("torchrun", [{**kernel(55, 0), "parts": parts}], [], 10)
    traced.trace["processes"] = [
        {"pid": pid, "rank": rank, "replays": 0} for pid, rank in ((3, None), (7, "1"), (5, "0"))
    ]
    profile.facts["ranks"] = [
        {"steps": 10, "kernels": {"add": [20.0] * times}} for times in (10, 41)
    ]
    rows = rank_rows("torchrun", traced, profile)
    names = ("rank", "device", "expected", "profiled", "counts_equal", "us")
    assert sorted(tuple(row[name] for name in names) for row in rows) == [
        ("0", "0", 10, 10, True, 20),
        ("1", "1", 40, 41, False, 30),
    ]


def test_a_program_that_was_not_profiled_agrees_with_nothing() -> None:
    """That no launch was seen where the profiler did not run is no agreement."""
    traced, profile = runs("liger", [kernel(0, None)], [], 10)
    profile.facts = {}
    assert [row["counts_equal"] for row in rows_of("liger", traced, profile)] == [False]


@pytest.mark.slow
def test_torchrun_is_recorded_process_by_process(tmp_path: Path) -> None:
    """Two processes that torchrun starts, each on its device, launch what the profiler sees."""
    script, root = Path(__file__).with_name("ranks_program.py"), Path(__file__).parents[2]
    command = [sys.executable, str(script), "--output", str(tmp_path), "--only", "torchrun"]
    path = os.pathsep.join([str(root / "tests" / "tracing"), str(root / "reports")])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "trace-ranks-h200.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = ("rank", "device", "kernel", "launches", "profiled", "counts_equal")
    assert sorted(tuple(row[name] for name in names) for row in rows) == [
        (rank, rank, name, "10", "9", "True")
        for rank in ("0", "1")
        for name in ("layer_norm", "matmul")
    ], done.stdout


def test_costs_are_of_blocks_and_of_whole_programs() -> None:
    """Blocks come as they were timed, and programs with the seconds of their own steps."""
    blocks, plain, traced = (Run("compiled", mode, Path()) for mode in ("costs", "plain", "trace"))
    blocks.facts = {"rows": [{"run": 0, "traced": True, "seconds_per_step": 0.2}]}
    plain.facts, traced.facts = {"seconds_per_step": 0.1}, {"seconds_per_step": 0.3}
    rows = cost_rows([blocks, plain, traced, Run("liger", "trace", Path())])
    assert [(one["how"], one["traced"], one["seconds_per_step"]) for one in rows] == [
        ("blocks", True, 0.2),
        ("program", False, 0.1),
        ("program", True, 0.3),
    ]


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
