"""An evaluation in words, and limits that it breaks."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest
from guesses import BASIS

from occupancy_lab.evaluating import Evaluation, evaluate
from occupancy_lab.evaluating.metrics import METRICS, broken_limits, percent

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd


@pytest.fixture
def evaluation(make_table: Callable[..., pd.DataFrame], say: Callable[..., None]) -> Evaluation:
    """Return the evaluation of four launches on two shapes, and of one that is not predicted."""
    say([10.2, 25.0, 31.0, 12.0])
    table = make_table(
        {"us": 10.0},
        {"us": 20.0, "num_warps": 8, "occupancy": 1.0},
        {"us": 31.0, "cols": 1000, "n_spills": 12},
        {"us": 10.0, "cols": 1000, "num_warps": 16, "num_stages": 2},
        {"instructions": None},
    )
    return evaluate(table, basis_of=lambda _gpu: BASIS)


def test_words(evaluation: Evaluation, check_golden: Callable[[str, str], None]) -> None:
    """Scores beside goals and rivals, errors by kind, the worst launches, and what it all is."""
    check_golden("four_launches.md", evaluation.to_markdown())


def test_notebook_shows_the_words(evaluation: Evaluation) -> None:
    """A notebook shows the markdown."""
    assert evaluation._repr_markdown_() == evaluation.to_markdown()


def test_limits_that_are_kept_say_nothing(evaluation: Evaluation) -> None:
    """Limits at the very numbers are kept."""
    score = evaluation.results[0].score
    limits = {name: metric.read(score) for name, metric in METRICS.items()}
    assert None not in limits.values()
    assert list(broken_limits(evaluation, limits)) == []


@pytest.mark.parametrize("name", METRICS)
def test_broken_limit_is_said(evaluation: Evaluation, name: str) -> None:
    """A limit a little beyond a number is broken, with one sentence that has both."""
    metric = METRICS[name]
    value = metric.read(evaluation.results[0].score)
    assert value is not None
    limit = value + (0.01 if metric.least else -0.01)
    (sentence,) = broken_limits(evaluation, {name: limit})
    assert metric.words in sentence
    assert f"is {value:.4g}" in sentence
    assert f"{limit:g} at {'least' if metric.least else 'most'}" in sentence


def test_unknown_number_keeps_no_limit(
    make_table: Callable[..., pd.DataFrame], say: Callable[..., None]
) -> None:
    """A single launch has no rank correlation, and so cannot be said to reach one."""
    say([20.0])
    evaluation = evaluate(make_table({}), basis_of=lambda _gpu: BASIS)
    (sentence,) = broken_limits(evaluation, {"rank": 0.5, "median": 0.1})
    assert sentence.endswith("the rank correlation is not known, and may be 0.5 at least")


@pytest.mark.parametrize(
    ("share", "text"), [(0.0314, "3.1%"), (0.0, "0.0%"), (15.8, "1580.0%"), (-0.5, "-50.0%")]
)
def test_percent_has_one_decimal(share: float, text: str) -> None:
    """Shares are written as percent with one decimal, large ones too."""
    assert percent(share) == text


def test_uses_of_a_file_are_text(
    make_table: Callable[..., pd.DataFrame], say: Callable[..., None]
) -> None:
    """What a file calls the use of its launches is shown as it is."""
    say([10.0])
    table = make_table({"use": "<b>*mine*|\n# x"})
    text = evaluate(table, basis_of=lambda _gpu: BASIS).to_markdown()
    assert r"\<b\>\*mine\*| \# x" in text
    assert "<b>" not in text


def test_json_is_strict(evaluation: Evaluation) -> None:
    """A number that is not finite is null, which every reader of JSON takes."""
    (result,) = evaluation.results
    strange = dataclasses.replace(result.worst[0], error=float("inf"))
    text = Evaluation((dataclasses.replace(result, worst=(strange,)),)).to_json()
    assert json.loads(text, parse_constant=pytest.fail)["results"][0]["worst"][0]["error"] is None
