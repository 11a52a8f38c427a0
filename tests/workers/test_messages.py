"""Values as lines of JSON: each comes back as it was, and what is no such value is refused."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.values import Failure, Problem, Resources, Status
from occupancy_lab.workers.child import from_line, to_line

COUNTS = st.none() | st.integers(0, 2**40)
FIELDS = [field.name for field in dataclasses.fields(Resources)]
NEEDED = ("num_ctas", "n_regs", "num_warps", "shared", "static_shared")
RESOURCES = st.fixed_dictionaries(
    {name: st.integers(0, 2**40) if name in NEEDED else COUNTS for name in FIELDS}
).map(lambda fields: Resources(**fields))
FAILURES = st.builds(
    Failure,
    status=st.sampled_from(Status),
    reason=st.text(),
    seconds=st.none() | st.floats(0, allow_nan=False),
    lasting=st.booleans(),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner),
    max_leaves=20,
)


@dataclass(frozen=True)
class Nested:
    """Values within values."""

    problems: tuple[Problem, ...]
    share: float


@given(RESOURCES | FAILURES)
def test_values_survive_their_line(value: Resources | Failure) -> None:
    """A value read back from its line, which is one line, is the same value."""
    line = to_line(value)
    assert len(line.splitlines()) == 1
    assert from_line(Resources | Failure, line) == value


def test_values_within_values_survive() -> None:
    """Tuples of dataclasses come back as such, and a whole number where a float is asked for."""
    nested = Nested((Problem(1, 2), Problem(3, 4, "float16")), 2.0)
    assert from_line(Nested, to_line(nested)) == nested
    assert from_line(Nested, to_line(nested).replace("2.0", "2")) == nested
    assert from_line(Nested | None, "null") is None


@given(JSON.map(json.dumps) | st.text())
def test_other_lines_are_refused(line: str) -> None:
    """What is no JSON, or of another shape, is a ValueError and nothing else."""
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
    """Every field has to be there with its own type, and no other."""
    with pytest.raises(ValueError, match=r"is no |has the fields|too deep"):
        from_line(Problem, line)
