"""Which rows of two tables `diff` takes for the same launch, and what it says of two traces."""

from pathlib import Path
from typing import Any

import pytest
from compiled_rows import compiled
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.checking import diff
from occupancy_lab.checking.changes import match_rows
from occupancy_lab.checking.rows import Table, make_rows
from occupancy_lab.prediction import (
    BANDWIDTH_RATIO_ERROR,
    COUNTED_RATIO_ERROR,
    NOTICEABLE,
    RATIO_ERROR,
)

SLOWER = "after_predicted_us > before_predicted_us * 1.05"


def traced(kernel: str = "softmax", us: float = 10.0, **changes: Any) -> dict[str, Any]:
    """Return a row as a trace of a dry run has it, of ten launches of *us* over one grid."""
    row = compiled(kernel, n_regs=32, predicted_us=us, launches=10, grids=1, expected=True)
    row |= {"dram_written_bytes": 4096, **changes}
    return {"predicted_total_us": row["launches"] * row["predicted_us"], **row}


@pytest.mark.parametrize(
    ("change", "label"),
    [
        ({"num_warps": 16}, "softmax on h100, num_warps 8 → 16"),
        ({"BLOCK_SIZE": 512}, "softmax on h100, BLOCK_SIZE 1024 → 512"),
    ],
)
def test_a_kernel_of_a_trace_with_other_settings_is_the_same(
    change: dict[str, Any], label: str
) -> None:
    """What a commit does to a launch does not hide it from the gate."""
    old, new = [traced(), traced("other")], [traced(us=15.1, **change), traced("other")]
    found = diff(old, new, fail_on=SLOWER)
    (changed,) = found.changes
    assert (changed.kind, changed.label, found.unchanged) == ("slower", label, 1)
    assert (found.status, found.broken, found.removed) == (1, (label,), ())
    assert diff(old, [traced(us=10.1, **change), traced("other")], fail_on=SLOWER).status == 0


def test_settings_of_a_sweep_are_not_mixed() -> None:
    """Another configuration of a sweep is another row."""
    old, new = [compiled(predicted_us=10.0)], [compiled(predicted_us=20.0, num_warps=16)]
    found = diff(old, new, fail_on=SLOWER)
    assert (len(found.removed), len(found.added), found.changes) == (1, 1, ())


def test_launches_of_one_kernel_are_told_apart_by_what_they_write() -> None:
    """Of two launches of a kernel, both with other settings, each meets the one of its size."""
    old = [traced(us=10.0), traced(us=20.0, BLOCK_SIZE=2048, dram_written_bytes=8192)]
    new = [
        traced(us=20.0, num_warps=4, BLOCK_SIZE=4096, dram_written_bytes=8192),
        traced(us=10.0, num_warps=4, BLOCK_SIZE=512),
    ]
    found = diff(old, new, fail_on=SLOWER)
    assert found.status == 0
    assert {one.before[0].values["predicted_us"] for one in found.changes} == {10.0, 20.0}
    new[0] |= {"predicted_us": 30.0}
    assert diff(old, new, fail_on=SLOWER).broken == (
        "softmax on h100, BLOCK_SIZE 2048 → 4096, num_warps 8 → 4",
    )


def test_what_stays_ambiguous_fails_rather_than_passes() -> None:
    """Launches that nothing tells apart are compared as sets, and any pair may meet the gate."""
    old = [traced(us=us, BLOCK_SIZE=block) for us, block in ((10.0, 64), (12.0, 128))]
    new = [traced(us=us, num_warps=4, BLOCK_SIZE=block) for us, block in ((10.0, 1), (20.0, 2))]
    found = diff(old, new, fail_on=SLOWER)
    (changed,) = found.changes
    assert (changed.kind, found.status) == ("set", 1)
    assert "predicted us 10.0, 12.0 before, 10.0, 20.0 after" in changed.words


def test_a_configuration_that_takes_the_place_of_another_is_compared() -> None:
    """A slower configuration that is expected once the fastest is gone is no unchanged row."""
    fast, slow = traced(us=10.0), traced(us=20.0, num_warps=4)
    old, new = [fast, slow | {"expected": False}], [slow]
    found = diff(old, new, fail_on=SLOWER)
    assert (found.status, found.unchanged, found.left_out) == (1, 0, 1)
    assert "Not compared: 1 row that an autotuner is not expected to launch" in found.to_markdown()
    assert found.totals.startswith("**All kernels**: 200 us predicted instead of 100 us (+100.0%)")


def test_launches_and_totals_are_compared() -> None:
    """A program that launches a kernel more often has another total, and so has the row."""
    old, new = traced("often"), traced("often", launches=40)
    found = diff([old, traced()], [new, traced()], fail_on="after_launches > 30")
    (changed,) = found.changes
    assert (changed.kind, found.unchanged, found.status) == ("total", 1, 1)
    assert changed.words.startswith(
        "40 launches instead of 10 and in all 400 us predicted instead of 100 us (+300.0%): still"
    )
    assert found.totals == (
        "**All kernels**: 500 us predicted instead of 200 us (+150.0%), 50 launches instead of 20."
    )
    assert found.to_markdown().splitlines()[2] == f"- {found.totals}"
    grown = diff([old], [old | {"predicted_total_us": 200.0}])
    assert grown.changes[0].words.startswith("in all 200 us predicted instead of 100 us (+100.0%)")


def test_the_totals_of_a_measured_trace_are_measured() -> None:
    """Where both tables have measured totals these are compared, and what has none is said."""
    old = [traced(us=10.0) | {"us": 12.0, "total_us": 120.0}, traced("other")]
    new = [traced(us=10.0) | {"us": 24.0, "total_us": 240.0}, traced("other")]
    assert diff(old, new).totals == (
        "**All kernels**: 240 us measured instead of 120 us (+100.0%), 20 launches (without 2 rows"
        " whose time is not measured)."
    )
    assert diff([compiled()], [compiled()]).totals == ""


def test_every_matched_row_is_held_to_the_gate() -> None:
    """A condition is evaluated for rows that did not change too."""
    rows = [traced(us=10.0, lost_us=90.0)]
    assert diff(rows, rows, fail_on="after_lost_us > 50").broken == ("softmax on h100",)


def test_what_only_one_table_has_and_is_not_known_to_pass_is_named() -> None:
    """A new kernel can meet the gate; where the condition leaves it open it is named there."""
    old, new = [traced()], [traced(), traced("new", us=500.0)]
    found = diff(old, new, fail_on=SLOWER)
    assert (found.status, found.undecided) == (0, ("new on h100",))
    words = "met by 0 rows. It is not known of 1 row that only one table has: new on h100."
    assert words in found.to_markdown()
    assert diff(old, new, fail_on="before_kernel is None").broken == ("new on h100",)


ROWS = st.lists(
    st.builds(
        traced,
        st.sampled_from(["softmax", "matmul"]),
        st.sampled_from([10.0, 10.5, 20.0]),
        num_warps=st.sampled_from([4, 8]),
        BLOCK_SIZE=st.sampled_from([512, 1024]),
        launches=st.sampled_from([1, 10]),
        dram_written_bytes=st.sampled_from([4096, 8192, None]),
    ),
    max_size=6,
)


@given(before=ROWS, after=ROWS)
def test_every_row_of_a_trace_is_matched_once(before: list[Any], after: list[Any]) -> None:
    """No row is lost or matched twice, and no kernel has rows that only one table has in both."""
    tables = [Table.of(make_rows(rows, "rows")) for rows in (before, after)]
    matches = [*match_rows(*tables)]
    for table, side in zip(tables, ("before", "after"), strict=True):
        found = [id(row) for one in matches for row in getattr(one, side)]
        assert sorted(found) == sorted(map(id, table.rows))
    removed = {row.kernel for one in matches if not one.after for row in one.before}
    added = {row.kernel for one in matches if not one.before for row in one.after}
    assert not removed & added


def test_the_page_has_the_shares_by_which_times_differ() -> None:
    """docs/check.md says once what the code takes for the same time."""
    page = " ".join((Path(__file__).parents[2] / "docs" / "check.md").read_text("utf-8").split())
    said = (
        f"Measured times within {NOTICEABLE:.0%} of each other count as equal. Predicted times"
        f" count as equal within {RATIO_ERROR:.0%}, within {BANDWIDTH_RATIO_ERROR:.0%} if device"
        f" memory bounds the launches, and within {COUNTED_RATIO_ERROR:.0%} if a binary was not"
        " followed."
    )
    assert page.count(said) == 1
