"""By how much predicted times must differ, depending on what bounds a launch; names of parts."""

import re

import pytest

from occupancy_lab.prediction import NOT_FOLLOWED, PARTS, Part, Prediction, part_cell


@pytest.mark.parametrize(
    ("bound", "basis", "share"),
    [
        ("bandwidth", "launches", 0.05),
        ("latency", "launches", 0.1),
        ("bandwidth", f"{NOT_FOLLOWED} and launches", 0.2),
    ],
)
def test_times_are_told_apart_as_they_have_been(bound: str, basis: str, share: float) -> None:
    """The difference is least if memory bounds a launch, and most if its binary is not followed."""
    parts = (Part("launch", 3.0), Part(bound, 9.0))
    found = Prediction(12.0, 1.0, None, parts, basis, calibrated=True, low_us=11.0, high_us=14.0)
    assert found.bound == bound
    assert found.noticeable == share
    assert found.share_of_copy is None


def test_names_in_tables_are_words_of_the_longer_names() -> None:
    """A table names a part with words of its longer name, in 24 characters at most."""
    for name, words in PARTS.items():
        assert {*part_cell(name).split()} <= {*re.sub("[:,]", "", words).split(), "the"}
        assert len(part_cell(name)) <= 24
