"""Counts of a launch: limits add up, and bytes and FLOPs are sums over its operations."""

from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.work.counts import Access, Amount, Counts, Place, total

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
