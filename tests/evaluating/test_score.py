"""Errors, losses and rank correlations, computed by hand and by other libraries."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.evaluating.score import score, time_errors

US = st.floats(0.5, 1e5)
LAUNCHES = st.lists(st.tuples(st.integers(0, 3), US, US), min_size=1, max_size=30)
"""Each launch has a shape, a measured time and a predicted time."""
TABLE = pd.DataFrame(
    {
        "shape": [0, 0, 0, 1, 1, 1],
        "us": [10.0, 20.0, 40.0, 30.0, 20.0, 25.0],
        "cost": [11.0, 18.0, 44.0, 20.0, 30.0, 22.0],
    }
)


def table(launches: list[tuple[int, float, float]]) -> pd.DataFrame:
    """Return the launches as rows."""
    return pd.DataFrame(launches, columns=["shape", "us", "cost"])


def test_errors_by_hand() -> None:
    """Errors are 10, 10, 10, 33, 50 and 12%, three of them too long."""
    found = time_errors(TABLE["cost"], TABLE["us"])
    assert found.launches == 6
    assert found.median == pytest.approx(0.11)
    assert found.mean == pytest.approx((0.1 + 0.1 + 0.1 + 1 / 3 + 0.5 + 0.12) / 6)
    assert found.p90 == pytest.approx((1 / 3 + 0.5) / 2)
    assert found.bias == pytest.approx((-0.1 + 0.1) / 2)


def test_score_by_hand() -> None:
    """One shape is ranked right, one in reverse with 50% lost."""
    found = score("some", TABLE, TABLE["cost"])
    assert found.name == "some"
    assert found.errors == time_errors(TABLE["cost"], TABLE["us"])
    assert (found.mean_loss, found.worst_loss) == pytest.approx((0.25, 0.5))
    assert found.rank_correlation == pytest.approx(0.0)


def test_ties_are_settled_by_the_grid() -> None:
    """The first of equal rows is chosen; all equal rows are not ranked."""
    found = score("some", TABLE, TABLE["cost"] * 0 + 5)
    assert (found.mean_loss, found.worst_loss) == pytest.approx((0.25, 0.5))
    assert found.rank_correlation is None
    backwards = TABLE.iloc[::-1]
    found = score("some", backwards, backwards["cost"] * 0 + 5)
    assert (found.mean_loss, found.worst_loss) == pytest.approx(((3 + 0.25) / 2, 3))


@given(LAUNCHES)
def test_losses_are_those_of_a_plain_loop(launches: list[tuple[int, float, float]]) -> None:
    """Losses equal those of a loop over the shapes."""
    rows = table(launches)
    losses = []
    for shape in {one for one, _, _ in launches}:
        some = [(claim, us) for one, us, claim in launches if one == shape]
        chosen = min(some, key=lambda one: one[0])[1]
        losses.append(chosen / min(us for _, us in some) - 1)
    found = score("some", rows, rows["cost"])
    assert found.mean_loss == pytest.approx(sum(losses) / len(losses))
    assert found.worst_loss == pytest.approx(max(losses))


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=20))
def test_rank_correlation_is_scipys(pairs: list[tuple[int, int]]) -> None:
    """Within a shape the correlation equals SciPy's, with ties."""
    rows = table([(0, us, claim) for us, claim in pairs])
    found = score("some", rows, rows["cost"]).rank_correlation
    if 1 in {len({us for us, _ in pairs}), len({claim for _, claim in pairs})}:
        assert found is None
        return
    from scipy.stats import spearmanr  # here, as its import takes each process of a run 3 s

    expected = float(spearmanr(rows["us"], rows["cost"]).statistic)
    assert found is not None
    assert math.isclose(found, expected, abs_tol=1e-9)
