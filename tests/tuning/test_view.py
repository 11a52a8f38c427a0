"""A tuning in words."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from occupancy_lab.gpus import find_gpu
from occupancy_lab.throughput.calibrations import Basis
from occupancy_lab.tuning import Choice, Tuning
from occupancy_lab.tuning.choice import cost_of
from occupancy_lab.tuning.view import tuning_document
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

CALIBRATED = "calibrated on NVIDIA H200, 2026-11-20, Triton 3.6.0"
BEST = Choice("softmax", Config(1024, 4, 2), 2112, 9.81, "bandwidth")
DEFAULT = Choice("softmax", Config(1024, 8, 4), 1056, 10.2, "issue")


def tuning(gpu: str, *, us: tuple[float | None, float | None] | None = None) -> Tuning:
    """Return a tuning of two configurations, measured where *us* has their times."""
    rows = [
        {
            "kernel": one.kernel,
            "BLOCK_SIZE": one.config.block_size,
            "num_warps": one.config.num_warps,
            "num_stages": one.config.num_stages,
            "num_programs": one.num_programs,
            "predicted_us": one.predicted_us,
            "bound": one.bound,
        }
        for one in (BEST, DEFAULT)
    ]
    table = pd.DataFrame(rows)
    best = BEST
    if us is not None:
        table["us"] = pd.array(us, dtype="Float64")
        best = dataclasses.replace(BEST, us=us[0])
    mine = gpu == "h200"
    words = CALIBRATED if mine else "the data sheet"
    return Tuning(
        gpu=find_gpu(gpu),
        problem=Problem(4096, 781),
        best=best,
        best_predicted=best,
        compared={"default of softmax": DEFAULT, "tutorial": DEFAULT},
        exhaustive=cost_of([BEST.predicted_us, DEFAULT.predicted_us], 30),
        spent=cost_of([] if us is None else [BEST.predicted_us, DEFAULT.predicted_us], 30),
        basis=Basis(None, words, calibrated=mine),  # type: ignore[arg-type] # no constants are shown
        table=table,
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [("predicted.md", tuning("mi300x")), ("measured.md", tuning("h200", us=(9.72, None)))],
)
def test_words_of_a_tuning(
    check_golden: Callable[[str, str], None], name: str, found: Tuning
) -> None:
    """The golden files hold the choice, why, what is next and what it costs."""
    check_golden(name, tuning_document(found, 5).to_markdown())


def test_top_rows_are_shown() -> None:
    """As many of the best predicted are shown as are asked for."""
    sections = tuning_document(tuning("h200"), 1).sections
    assert len(sections[0].tables[0].rows) == 1


def test_tuning_is_shown_with_five_rows() -> None:
    """A tuning's own markdown, which a notebook shows, is its document."""
    found = tuning("h200", us=(9.72, None))
    assert found.to_markdown() == tuning_document(found, 5).to_markdown()
    assert found.to_markdown(1) == tuning_document(found, 1).to_markdown()


def test_amd_is_said_to_be_unconfirmed() -> None:
    """A prediction for an AMD GPU says that no AMD GPU has confirmed it; NVIDIA's own does not."""
    assert "no AMD GPU has confirmed them" in tuning_document(tuning("mi300x"), 5).to_markdown()
    assert "confirmed" not in tuning_document(tuning("h200"), 5).to_markdown()
