"""Counts of a launch: limits add up, and bytes and FLOPs are sums over its operations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.work.counts import Access, Amount, Arithmetic, Counts, Footprint, Place, total

PLACE = Place("kernel.py", 3)
AMOUNTS = st.builds(
    lambda low, more: Amount(low, None if more is None else low + more),
    st.integers(0, 10**12),
    st.none() | st.integers(0, 10**12),
)


def access(active: Amount, *, reads: bool, writes: bool) -> Access:
    """Return an access of 4-byte elements."""
    zero = Amount.of(0)
    return Access(PLACE, "atomic", "x", 4, reads, writes, zero, active, active, zero, zero, zero)


@given(st.lists(AMOUNTS, max_size=5), st.integers(0, 100))
def test_limits_add_up(amounts: list[Amount], factor: int) -> None:
    """A sum has the sums of the limits, and no upper limit where a part has none."""
    summed = total(one * factor for one in amounts)
    assert summed.low == factor * sum(one.low for one in amounts)
    if any(one.high is None for one in amounts):
        assert summed.high is None
    else:
        assert summed.high == factor * sum(one.high or 0 for one in amounts)


def test_an_exact_count_is_one_number() -> None:
    """A count of equal limits is exact, and one between two limits is not."""
    assert Amount.of(3).exact == 3
    assert Amount(3, 4).exact is None
    assert not Amount(3, None).is_exact


def test_an_atomic_operation_reads_and_writes() -> None:
    """Its bytes count both as read and as written; those of a load are read alone."""
    counts = Counts(
        1,
        1,
        accesses=(
            access(Amount.of(10), reads=True, writes=True),
            access(Amount(5, 6), reads=True, writes=False),
        ),
    )
    assert counts.read_bytes == Amount(60, 64)
    assert counts.written_bytes == Amount.of(40)


def test_flops_of_dots_stand_apart() -> None:
    """FLOPs are summed by dtype, those of dots apart from all others."""
    one = Amount.of(1)
    counts = Counts(
        1,
        1,
        arithmetic=(
            Arithmetic(PLACE, "dot", "fp16", Amount.of(100), one, (2, 5, 5)),
            Arithmetic(PLACE, "addf", "fp32", Amount.of(7), one),
            Arithmetic(PLACE, "exp", "fp32", Amount.of(3), one),
        ),
    )
    assert counts.flops == Amount.of(110)
    assert counts.dot_flops == {"fp16": Amount.of(100)}
    assert counts.other_flops == {"fp32": Amount.of(10)}


def test_distinct_bytes_are_summed_over_tensors() -> None:
    """What the launch reads and writes at the least is that of all its tensors."""
    counts = Counts(
        1,
        1,
        footprints=(
            Footprint("x", Amount.of(8), Amount.of(0), Amount.of(32), Amount.of(0)),
            Footprint("y", Amount.of(4), Amount(2, 6), Amount.of(32), Amount(32, 64)),
        ),
    )
    assert counts.unique_read_bytes == Amount.of(12)
    assert total(one.written for one in counts.footprints) == Amount(2, 6)
