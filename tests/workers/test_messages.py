"""Values as lines of JSON come back unchanged, and other lines are refused."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.measuring.process import Batch
from occupancy_lab.values import Failure, Measurement, Problem, Resources
from occupancy_lab.workers.messages import from_line, to_line

FIELDS = [field.name for field in dataclasses.fields(Resources)]
MEASURED = st.lists(st.from_type(Measurement), max_size=4).map(tuple)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner),
    max_leaves=20,
)


@dataclass(frozen=True)
class Nested:
    """A dataclass that contains others."""

    problems: tuple[Problem, ...]
    share: float


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Resources | Failure, st.from_type(Resources) | st.from_type(Failure)),
        (Batch, st.from_type(Batch)),
        (tuple[Measurement, ...], MEASURED),
    ],
)
@given(data=st.data())
def test_values_survive_their_line(
    kind: Any, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    """A value read from its ASCII line is equal, including NaN."""
    value = data.draw(values)
    line = to_line(value)
    assert len(line.splitlines()) == 1
    assert line.isascii()
    assert repr(from_line(kind, line)) == repr(value)


def test_values_within_values_survive() -> None:
    """Tuples of dataclasses survive, and integers become floats where needed."""
    nested = Nested((Problem(1, 2), Problem(3, 4, "float16")), 2.0)
    assert from_line(Nested, to_line(nested)) == nested
    assert from_line(Nested, to_line(nested).replace("2.0", "2")) == nested
    assert from_line(Nested | None, "null") is None


@given(JSON.map(json.dumps) | st.text())
def test_other_lines_are_refused(line: str) -> None:
    """Lines that are no JSON, or of another shape, raise ValueError."""
    with pytest.raises(ValueError, match=r".") as caught:
        from_line(Resources | Failure | tuple[Problem, ...], f"[{line}, 0]")
    assert str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        '{"rows": 1, "cols": 2}',
        '{"rows": 1, "cols": 2, "dtype": "float32", "more": 1}',
        '{"rows": true, "cols": 2, "dtype": "float32"}',
        '{"rows": 1.0, "cols": 2, "dtype": "float32"}',
        '{"rows": 1, "cols": 2, "dtype": null}',
        "[" * 100_000,
        "7",
    ],
)
def test_the_shape_is_checked(line: str) -> None:
    """Every field must have its type, and no other field is allowed."""
    with pytest.raises(ValueError, match=r"is no |has the fields|too deep"):
        from_line(Problem, line)
