"""Which rows of two tables `diff` matches, and how it compares traces."""

from pathlib import Path
from typing import Any

import pytest
from compiled_rows import compiled
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.checking.changes import match_rows
from occupancy_lab.checking.diff import diff
from occupancy_lab.checking.rows import Table, make_rows
from occupancy_lab.prediction import (
    BANDWIDTH_RATIO_ERROR,
    COUNTED_RATIO_ERROR,
    NOTICEABLE,
    RATIO_ERROR,
)

SLOWER = "after_predicted_us > before_predicted_us * 1.05"


def traced(kernel: str = "softmax", us: float = 10.0, **changes: Any) -> dict[str, Any]:
    """Return a row of a dry trace: ten launches of *us* each over one grid."""
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
def test_rows_of_traces_match_with_other_settings(change: dict[str, Any], label: str) -> None:
    """A commit that changes the settings of a launch does not hide it from the gate."""
    old, new = [traced(), traced("other")], [traced(us=15.1, **change), traced("other")]
    found = diff(old, new, fail_on=SLOWER)
    (changed,) = found.changes
    assert (changed.kind, changed.label, found.unchanged) == ("slower", label, 1)
    assert (found.status, found.broken, found.removed) == (1, (label,), ())
    assert diff(old, [traced(us=10.1, **change), traced("other")], fail_on=SLOWER).status == 0


def test_rows_of_a_sweep_do_not_match_with_other_settings() -> None:
    """Another configuration of a sweep is another row."""
    old, new = [compiled(predicted_us=10.0)], [compiled(predicted_us=20.0, num_warps=16)]
    found = diff(old, new, fail_on=SLOWER)
    assert (len(found.removed), len(found.added), found.changes) == (1, 1, ())


def test_launches_of_one_kernel_match_by_written_bytes() -> None:
    """Two launches of a kernel whose settings changed match those that write as many bytes."""
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


def test_ambiguous_rows_fail_rather_than_pass() -> None:
    """Launches that nothing tells apart are compared as sets, and any pair may meet the gate."""
    old = [traced(us=us, BLOCK_SIZE=block) for us, block in ((10.0, 64), (12.0, 128))]
    new = [traced(us=us, num_warps=4, BLOCK_SIZE=block) for us, block in ((10.0, 1), (20.0, 2))]
    found = diff(old, new, fail_on=SLOWER)
    (changed,) = found.changes
    assert (changed.kind, found.status) == ("set", 1)
    assert "predicted us 10.0, 12.0 before, 10.0, 20.0 after" in changed.words


def test_another_expected_configuration_is_a_change() -> None:
    """If the fastest configuration is removed, the slower one that replaces it is compared."""
    fast, slow = traced(us=10.0), traced(us=20.0, num_warps=4)
    old, new = [fast, slow | {"expected": False}], [slow]
    found = diff(old, new, fail_on=SLOWER)
    assert (found.status, found.unchanged, found.left_out) == (1, 0, 1)
    assert "Not compared: 1 row that an autotuner is not expected to launch" in found.to_markdown()
    assert found.totals.startswith("**All kernels**: 200 us predicted instead of 100 us (+100.0%)")


def test_launches_and_totals_are_compared() -> None:
    """More launches of a kernel change its total time and that of the program."""
    old, new = traced("often"), traced("often", launches=40)
    found = diff([old, traced()], [new, traced()], fail_on="after_launches > 30")
    (changed,) = found.changes
    assert (changed.kind, found.unchanged, found.status) == ("total", 1, 1)
    assert changed.words.startswith(
        "40 launches instead of 10 and a total of 400 us predicted instead of 100 us (+300.0%):"
    )
    assert found.totals == (
        "**All kernels**: 500 us predicted instead of 200 us (+150.0%), 50 launches instead of 20."
    )
    assert found.to_markdown().splitlines()[2] == f"- {found.totals}"
    grown = diff([old], [old | {"predicted_total_us": 200.0}])
    assert grown.changes[0].words.startswith(
        "a total of 200 us predicted instead of 100 us (+100.0%)"
    )


def test_the_totals_of_a_measured_trace_are_measured() -> None:
    """Measured totals are compared if both tables have them; rows without one are counted."""
    old = [traced(us=10.0) | {"us": 12.0, "total_us": 120.0}, traced("other")]
    new = [traced(us=10.0) | {"us": 24.0, "total_us": 240.0}, traced("other")]
    assert diff(old, new).totals == (
        "**All kernels**: 240 us measured instead of 120 us (+100.0%), 20 launches (without 2 rows"
        " whose time is not measured)."
    )
    assert diff([compiled()], [compiled()]).totals == ""


def test_unchanged_rows_have_to_pass_the_gate() -> None:
    """A condition is also evaluated for rows that did not change."""
    rows = [traced(us=10.0, lost_us=90.0)]
    assert diff(rows, rows, fail_on="after_lost_us > 50").broken == ("softmax on h100",)


def test_undecided_rows_of_one_table_are_named() -> None:
    """A new kernel may meet the condition; if that is undecided, the page names it."""
    old, new = [traced()], [traced(), traced("new", us=500.0)]
    found = diff(old, new, fail_on=SLOWER)
    assert (found.status, found.undecided) == (0, ("new on h100",))
    words = "met by 0 rows. It is undecided for 1 row of only one table: new on h100."
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
    """Every row is in one match, and no kernel has both removed and added rows."""
    tables = [Table.of(make_rows(rows, "rows")) for rows in (before, after)]
    matches = [*match_rows(*tables)]
    for table, side in zip(tables, ("before", "after"), strict=True):
        found = [id(row) for one in matches for row in getattr(one, side)]
        assert sorted(found) == sorted(map(id, table.rows))
    removed = {row.kernel for one in matches if not one.after for row in one.before}
    added = {row.kernel for one in matches if not one.before for row in one.after}
    assert not removed & added


def test_docs_have_the_noticeable_shares() -> None:
    """docs/check.md has the relative differences below which the code calls times equal."""
    page = " ".join((Path(__file__).parents[2] / "docs" / "check.md").read_text("utf-8").split())
    said = (
        f"Measured times within {NOTICEABLE:.0%} of each other count as equal. Predicted times"
        f" count as equal within {RATIO_ERROR:.0%}, within {BANDWIDTH_RATIO_ERROR:.0%} if device"
        f" memory bounds the launches, and within {COUNTED_RATIO_ERROR:.0%} if a binary was not"
        " followed."
    )
    assert page.count(said) == 1
