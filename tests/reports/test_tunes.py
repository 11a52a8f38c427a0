"""The tunes recorded by reports/record_tunes.py."""

from collections.abc import Iterable

import record_tunes

from occupancy_lab.prediction import RATIO_ERROR


def test_advice_is_right_as_often_as_is_said() -> None:
    """The first choice of 16-bit tunes loses little, and nearly all advised changes are faster."""
    tunes: dict[tuple[str, str], list[dict[str, float]]] = {}
    followed = []
    for gpu in ("h100", "h200"):
        for row in record_tunes.rows_of(record_tunes.DATA / f"tunes-{gpu}.csv"):
            if "float16" in row["group"] or row["group"].startswith("attention"):
                tunes.setdefault((gpu + row["group"], row["tune"]), []).append(row)
        followed += record_tunes.rows_of(record_tunes.DATA / f"followed-{gpu}.csv")
    losses = [found for rows in tunes.values() if (found := record_tunes.lost(rows))]
    assert len(losses) == 180
    assert sum(first for first, *_ in losses) / len(losses) < 0.015
    assert max(best for *_, best in losses) < 0.05
    assert sum(row["us"] < row["before_us"] for row in followed) > 0.9 * len(followed) > 30


def test_a_step_to_a_neighbour_that_is_predicted_to_be_faster_is_faster() -> None:
    """From nearly any recorded 16-bit configuration the best predicted neighbour is a gain.

    Neighbours differ in one setting, or in num_warps besides: this is explain's first advice.
    """
    tunes: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for row in record_tunes.rows_of(record_tunes.DATA / "tunes-h100.csv"):
        if "float16" in row["group"] and row["predicted_us"]:
            times = row["predicted_us"], row["us"]
            tunes.setdefault((row["group"], row["tune"]), {})[row["config"]] = times
    steps = []
    for known in tunes.values():
        for one, (predicted, us) in known.items():
            best = min(near(one, known), key=lambda other, known=known: known[other][0])
            if known[best][0] <= (1 - RATIO_ERROR) * predicted:
                steps.append(known[best][1] / us)
    assert len(steps) > 500
    assert sum(step < 1 for step in steps) > 0.97 * len(steps)


def near(one: str, known: Iterable[str]) -> list[str]:
    """Return the configurations of *known* that differ in one setting, or in num_warps besides."""
    mine = {*one.split(", ")}
    differing = {other: mine - {*other.split(", ")} for other in known}
    return [
        other
        for other, settings in differing.items()
        if sum(not setting.startswith("num_warps ") for setting in settings) <= 1
    ]
