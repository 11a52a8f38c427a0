"""What a warp requests of small tables, and of scalars, at unknown places."""

import counted_kernels
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab import dry_run, tensor
from occupancy_lab.work.execution import GlobalAccess
from occupancy_lab.work.gathers import met

PROGRAMS, BLOCK = 1024, 1024


def decoded(levels: int) -> GlobalAccess:
    """Return the load of a table of so many floats by codes that are not known."""
    given = tensor(PROGRAMS * BLOCK, "int32"), tensor(levels), tensor(PROGRAMS * BLOCK)
    run = dry_run(counted_kernels.decode, "h200")[(PROGRAMS,)](*given, BLOCK=BLOCK)
    (record,) = run.records
    assert record.executed is not None
    return next(one for one in record.executed.accesses if not one.is_known)


@pytest.mark.parametrize(
    ("levels", "lines", "passes"), [(16, 1, 1), (256, 8, 3.5), (4096, 28, 3.5)]
)
def test_a_warp_requests_no_more_of_a_table_than_there_is(
    levels: int, lines: float, passes: float
) -> None:
    """With 32 random codes it requests so many lines of a small table in so many passes.

    Nearly all of them hit in the L1 cache, as soon as the table has been loaded.
    """
    access = decoded(levels)
    times = access.executions.low
    assert (access.lines.high or 0) / times == pytest.approx(lines, abs=0.5)
    assert (access.passes.high or 0) / times == pytest.approx(passes, abs=0.1)
    assert access.cached + access.common == pytest.approx(1.0)
    assert access.turns < 1.0


def test_nothing_is_known_of_lookups_in_a_large_table() -> None:
    """Each thread may then request another line, which no cache has."""
    access = decoded(1 << 20)
    assert (access.lines.high or 0) == access.threads.high
    assert access.cached == access.common == 0.0


def test_threads_share_a_scalar_at_an_unknown_place() -> None:
    """A program that follows indices requests one sector per warp each time."""
    given = (tensor(1 << 20, "int32"), tensor(1 << 20), tensor(PROGRAMS))
    run = dry_run(counted_kernels.chase, "h200")[(PROGRAMS,)](*given, 100)
    (record,) = run.records
    assert record.executed is not None
    loads = [one for one in record.executed.accesses if one.operation == "load"]
    assert len(loads) > 1
    assert all(one.sectors.high == one.executions.high for one in loads)


@given(st.integers(1, 10_000), st.floats(1.0, 1e6))
def test_no_more_places_are_met_than_there_are_or_are_asked_for(
    places: int, requests: float
) -> None:
    """More requests at random meet more places, but no more than there are, nor than requests."""
    found = met(places, requests)
    assert 1.0 - 1e-9 <= found <= min(places, requests) * (1 + 1e-9)
    assert found <= met(places, requests + 1.0)
