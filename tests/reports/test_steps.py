"""The training steps recorded by reports/record_steps.py, dry and on a GPU."""

from pathlib import Path

import pytest
import record_actions
import record_steps
import record_tunes

DATA = Path(__file__).parents[2] / "reports" / "data"
GPUS = ("h100", "h200")


def test_the_launches_of_actions_are_faster() -> None:
    """Each recorded action is faster, most as predicted."""
    rows = [line.split(" | ") for line in record_actions.table(DATA, GPUS).splitlines()[2:]]
    assert all(float(row[5]) < float(row[4]) for row in rows)
    assert sum(row[6] == "yes |" for row in rows) >= 5


@pytest.mark.parametrize("gpu", GPUS)
def test_the_busiest_unit_is_near_what_nsight_compute_counts(gpu: str) -> None:
    """The busiest unit's share is within 5 points of the counted Speed Of Light at the median."""
    rows = record_tunes.rows_of(DATA / f"steps-{gpu}.csv")
    assert sum(bool(row["ncu_speed_of_light"]) for row in rows) >= 46
    assert float(record_steps.points_off(rows, "busiest_us")) < 5
    same, of = map(int, record_steps.units_alike(rows).split(" of "))
    assert same / of > 0.8


@pytest.mark.parametrize("gpu", GPUS)
def test_a_dry_run_has_the_launches_and_the_time_of_a_training_step(gpu: str) -> None:
    """Every launch is in the dry run, the sum is within 8%, and the longest come first."""
    rows = record_tunes.rows_of(DATA / f"steps-{gpu}.csv")
    assert all(row["launches"] == row["dry_launches"] for row in rows)
    for program in {row["program"] for row in rows} - {"autotuned"}:
        times = [
            (float(row["measured_us"]), float(row["predicted_us"]))
            for row in rows
            if row["program"] == program and row["measured_us"]
        ]
        measured, predicted = map(sum, zip(*times, strict=True))
        assert predicted == pytest.approx(measured, rel=0.08)
        first, expected = (set(sorted(times, key=lambda one, n=n: -one[n])[:5]) for n in (0, 1))
        assert len(first & expected) >= 4
