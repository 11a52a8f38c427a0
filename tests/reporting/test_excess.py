"""Launches with the tutorial's num_programs where that is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_table import CLAIMED, H100, H200, row, rows, table_of

from occupancy_lab.reporting.chapters.miscount import (
    Excesses,
    make_excesses,
    make_miscounts,
    the_excesses,
    the_miscounts,
)
from occupancy_lab.reporting.page import Picture
from occupancy_lab.reporting.source import make_predicted, make_source
from occupancy_lab.text.document import Table

if TYPE_CHECKING:
    from occupancy_lab.reporting.source import Source


def excesses_of(*rows: dict[str, object]) -> Excesses:
    """Return the launches of *rows* that differ in num_programs alone."""
    found = make_excesses(make_source(H200, table_of(list(rows))))
    assert found is not None
    return found


def test_both_launches_of_one_configuration_are_set_side_by_side(small: Source) -> None:
    """Of the example's 16 warps 4 programs fit and the formula says 5: it takes 20% longer."""
    found = make_excesses(small)
    assert found is not None
    assert found.lost.count == 4
    (of_example,) = (launch for launch in found.launches if launch.problem.cols == 781)
    assert (of_example.tutorial_programs, of_example.programs) == (5 * 132, 4 * 132)
    assert (of_example.tutorial_us, of_example.us) == (21.6, 18.0)
    assert of_example.lost == pytest.approx(0.2)
    assert of_example.missing == "warp slots"
    assert of_example.rows_per_program == pytest.approx(4096 / 528)


def test_the_worst_comes_first(small: Source) -> None:
    """Launches are ordered by what they lose."""
    found = make_excesses(small)
    assert found is not None
    lost = [launch.lost for launch in found.launches]
    assert lost == sorted(lost, reverse=True)
    assert found.lost.most == lost[0]


def test_right_and_failing_configurations_are_counted(small: Source) -> None:
    """One warp has no shared memory to divide by; 40 registers are no mistake of the formula."""
    wrong = {"num_warps": 16, "num_stages": 1, "n_regs": 22}
    found = excesses_of(
        row(**wrong),
        row(**wrong, as_tutorial=True),
        row(),
        row(num_warps=1, num_stages=1, shared=0),
        row("softmax_row", num_stages=1),
    )
    assert (found.right, found.failing, found.lost.count) == (1, 1, 1)
    assert make_excesses(small) is not None


def test_a_launch_is_paired_within_its_use() -> None:
    """What was measured in another part of the run is compared with nothing here."""
    wrong = {"num_warps": 16, "num_stages": 1, "n_regs": 22}
    found = excesses_of(
        row(**wrong, us=10.0),
        row(**wrong, us=12.0, as_tutorial=True),
        row(**wrong, us=20.0, use="benchmark"),
        row(**wrong, us=22.0, use="benchmark", as_tutorial=True),
    )
    assert [launch.lost for launch in found.launches] == [
        pytest.approx(0.2),
        pytest.approx(0.1),
    ]


def test_what_is_lost_is_predicted_too(small: Source) -> None:
    """Beside the 20% that the example lost stands what the model says of both launches."""
    found = make_excesses(small)
    assert found is not None
    (of_example,) = (launch for launch in found.launches if launch.problem.cols == 781)
    said, planned = of_example.tutorial_prediction, of_example.prediction
    assert said is not None
    assert planned is not None
    assert said.us > planned.us
    assert of_example.predicted_lost == pytest.approx(said.us / planned.us - 1)
    assert of_example.off == pytest.approx(abs(said.us / 21.6 - 1))
    assert found.predicted_lost is not None
    assert found.off is not None
    assert (found.predicted_lost.count, found.off.count) == (4, 4)


def test_what_is_not_predicted_is_not_said() -> None:
    """Of binaries too little known for a prediction the chapter tells what was measured alone."""
    uncounted = table_of([one | {"instructions": None} for one in rows()])
    found = make_excesses(make_source(H200, uncounted, model=CLAIMED))
    assert found is not None
    assert (found.predicted_lost, found.off) == (None, None)
    words, picture, terms, worst, _ = the_excesses(found).blocks
    assert "predicted" not in str(words)
    assert isinstance(picture, Picture)
    assert "predicted" not in picture.words
    assert len(picture.draw().axes) == 1
    for table in (terms, worst):
        assert isinstance(table, Table)
        (column,) = (place for place, name in enumerate(table.headers) if "predicted" in name)
        assert {row[column] for row in table.rows} == {"-"}


def test_terms_are_counted_by_what_is_missing(small: Source) -> None:
    """Each launch is in the list of what its formula misses, the commonest first."""
    found = make_excesses(small)
    assert found is not None
    terms = found.by_term()
    assert sum(map(len, terms.values())) == found.lost.count
    sizes = list(map(len, terms.values()))
    assert sizes == sorted(sizes, reverse=True)


def test_nothing_launched_wrongly_is_none() -> None:
    """A sweep launches as many programs as fit, and has nothing to compare."""
    assert make_excesses(make_source(H200, table_of([row(), row(num_stages=1)]))) is None


def test_miscounts_need_no_launch(predicted: Source, small: Source) -> None:
    """What was launched both ways on one GPU is what the formula miscounts on its sibling."""
    counts, excesses = make_miscounts(predicted), make_excesses(small)
    assert counts is not None
    assert excesses is not None
    assert (counts.right, counts.failing) == (excesses.right, excesses.failing)
    assert {(one.problem, one.config, one.missing) for one in counts.launches} == {
        (one.problem, one.config, one.missing) for one in excesses.launches
    }
    assert max(one.surplus for one in counts.launches) == pytest.approx(660 / 528 - 1)


def test_miscounts_that_lose_the_most_come_first(predicted: Source) -> None:
    """They come in the order of what the model says they lose; three are the tutorial's own."""
    counts = make_miscounts(predicted)
    assert counts is not None
    lost = [one.predicted_lost or 0.0 for one in counts.launches]
    assert lost == sorted(lost, reverse=True)
    assert lost[-1] > 0
    assert sum(one.is_tutorials_own for one in counts.launches) == 3


def test_no_miscount_is_said() -> None:
    """Where the formula is right, or fails, there is nothing to tell of it."""
    right = [row(gpu="h100"), row(gpu="h100", num_warps=1, num_stages=1, shared=0)]
    counts = make_miscounts(make_predicted(H100, make_source(H100, table_of(right))))
    assert counts is None
    assert str(the_miscounts(counts, H200).blocks[0]).startswith("Left out: ")
