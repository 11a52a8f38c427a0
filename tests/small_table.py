"""A small table of invented measured launches, for tests of reports."""

import dataclasses
from typing import Any

import pandas as pd
import pytest
from records import plan_of
from stand_ins import CONDITIONS

from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.occupancy import occupancy, tutorial_occupancy
from occupancy_lab.reporting import source
from occupancy_lab.table.columns import MEASURED_COLUMNS
from occupancy_lab.values import Config, Problem, Resources

H100, H200, GH200 = map(find_gpu, ("h100", "h200", "gh200"))
FROM_BINARY = (
    *("n_regs", "shared", "programs_per_multiprocessor", "occupancy", "num_programs"),
    *("tutorial_num_programs", "launched", "measured", "us"),
)
"""The columns that a configuration lacks if it cannot be compiled."""


def row(  # noqa: PLR0913 - what a row is made of
    kernel: str = "softmax",
    cols: int = 781,
    num_warps: int = 8,
    num_stages: int = 4,
    *,
    us: float = 10.0,
    predicted_us: float | None = None,
    n_regs: int = 40,
    shared: int | None = None,
    as_tutorial: bool = False,
    **changes: Any,
) -> dict[str, Any]:
    """Return a measured row like in a sweep of an H200; its plans follow from its resources."""
    problem = Problem(changes.pop("rows", 4096), cols, changes.pop("dtype", "float32"))
    config = Config(1 << (cols - 1).bit_length(), num_warps, num_stages)
    shared = (num_stages - 1) * config.block_size * 4 + 4 * num_warps if shared is None else shared
    resources = Resources(n_regs, num_warps, shared)
    held = occupancy(resources, H200.architecture)
    said = tutorial_occupancy(resources, H200.architecture).programs_per_multiprocessor
    found = load_kernel(kernel)

    def num_programs(programs: int | None) -> int | None:
        return plan_of(found, problem, config, programs, H200.multiprocessors).num_programs

    planned, tutorial = num_programs(held.programs_per_multiprocessor), num_programs(said)
    loops = kernel == "softmax"
    return {
        "gpu": "h200",
        "target": "sm_90",
        "kernel": kernel,
        "rows": problem.rows,
        "cols": cols,
        "dtype": problem.dtype,
        "BLOCK_SIZE": config.block_size,
        "num_warps": num_warps,
        "num_stages": num_stages,
        "status": "ok",
        "reason": None,
        "n_regs": n_regs,
        "n_spills": 0,
        "shared": shared,
        "pipeline_shared": (num_stages - 1) * config.block_size * 4,
        "static_shared": 0,
        "instructions": 90,
        "loop_instructions": 20 * num_warps if loops else None,
        "barrier_waits": 6,
        "async_copies": 4 if num_stages > 1 else 0,
        "programs_per_multiprocessor": held.programs_per_multiprocessor,
        "occupancy": held.occupancy,
        "num_programs": planned,
        "tutorial_num_programs": tutorial,
        "triton_version": "3.6.0",
        "launched": tutorial if as_tutorial else planned,
        "measured": "measured",
        "why_not": None,
        "us": us,
        "us_low": us * 0.95,
        "us_high": us * 1.1,
        "runs": 30,
        "relative_error": 1e-7,
        "mostly_launch": False,
        **dataclasses.asdict(CONDITIONS),
        "use": "tuning",
        "predicted_us": us if predicted_us is None else predicted_us,
        "bound": "issue",
        **changes,
    }


def table_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return rows as a table read from a file."""
    table = pd.DataFrame(rows)
    assert set(MEASURED_COLUMNS) <= set(table)
    return table


def rows() -> list[dict[str, Any]]:
    """Return launches of every use: a benchmark of three widths, an example, held-out shapes."""
    # With 28 registers per thread 8 programs of 8 warps fit, and the tutorial's formula says 9.
    benchmark = [
        launch | {"use": "benchmark"}
        for cols, times in {256: (12, 9, 8), 512: (13, 11, 9), 1024: (20, 16, 15.5)}.items()
        for launch in (
            row(cols=cols, us=times[0], predicted_us=15.0, n_regs=28, as_tutorial=True),
            row(cols=cols, us=times[0] - 1.0, n_regs=28, predicted_us=14.0),
            row(cols=cols, num_warps=4, num_stages=1, us=times[1], predicted_us=8.0),
            row("softmax_row", cols, 4, 1, us=times[2], predicted_us=9.0 - cols / 300, n_regs=24),
        )
    ]
    # With 22 registers per thread 4 programs of 16 warps fit, and the tutorial's formula says 5.
    example = [
        row(us=14.0, predicted_us=15.0),
        row(us=13.5, predicted_us=13.0, num_stages=2, n_regs=38),
        row(us=12.5, predicted_us=12.0, num_stages=1, n_regs=29),
        row(us=13.0, num_warps=4),
        row(us=11.5, predicted_us=11.0, num_warps=4, num_stages=1, n_regs=32),
        row(us=18.0, num_warps=16, num_stages=1, n_regs=22),
        row(us=21.6, num_warps=16, num_stages=1, n_regs=22, as_tutorial=True),
        row("softmax_row", us=11.0, predicted_us=10.0, num_warps=4, num_stages=1, n_regs=29),
        row(num_warps=32) | dict.fromkeys(FROM_BINARY) | {"status": "timed out"},
    ]
    held_out = [
        row(cols=3000, rows=512, us=20.0, predicted_us=22.0, use="held out"),
        row(cols=3000, rows=512, us=10.0, predicted_us=10.5, num_stages=1, use="held out"),
    ]
    return [*benchmark, *example, *held_out]


def predicted_of(table: pd.DataFrame, origin: source.Source | None = None) -> source.Source:
    """Return what is predicted on a GH200, which has the plans of an H200, of the rows of *table*.

    Their column predicted_us has the times; with the tutorial's num_programs, where that is
    another, it is a tenth more.
    """
    planned = table["launched"].isna() | (table["launched"] == table["num_programs"])
    table = table[planned].reset_index(drop=True)
    us, tutorial = table["predicted_us"].astype(float), table["tutorial_num_programs"]
    longer = us.where(tutorial == table["num_programs"], 1.1 * us).where(tutorial.notna())
    fresh = table.assign(
        **dict.fromkeys(MEASURED_COLUMNS, pd.NA),
        gpu="gh200",
        predicted_us=us.where(table["num_programs"].notna()),
        tutorial_us=longer,
    )
    fresh = fresh.assign(launched=fresh["num_programs"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "fresh_table", lambda _gpu: fresh)
        return dataclasses.replace(source.make_fresh(GH200), origin=origin)


def providers() -> pd.DataFrame:
    """Return other timed providers: torch twice at one width, and a copy that failed once."""
    conditions = dataclasses.asdict(CONDITIONS)
    usual = conditions | {"rows": 4096, "dtype": "float32", "measured": "measured", "runs": 30}
    usual |= dict.fromkeys(("why_not", "us_low", "us_high", "relative_error", "mostly_launch"))
    return pd.DataFrame(
        [
            usual | {"cols": 256, "provider": "torch", "us": 99.0},
            usual | {"cols": 256, "provider": "torch", "us": 10.0},
            usual | {"cols": 512, "provider": "torch", "us": 18.0},
            usual | {"cols": 256, "provider": "copy", "us": 7.0},
            usual | {"cols": 512, "provider": "copy", "us": None, "measured": "device lost"},
            usual | {"cols": 781, "provider": "copy", "us": 10.5},
            usual | {"cols": 512, "rows": 8, "provider": "naive", "us": 3.0},
        ]
    )
