"""Counts of a launch from a sample of its programs."""

import pytest

from occupancy_lab.work.counts import Access, Amount, Counts, Footprint, Place
from occupancy_lab.work.samples import sampled

PROGRAMS = 1_000_000


def stored(size: int, item_bytes: int = 4) -> Counts:
    """Return the counts of a launch whose programs store an item each in a tensor of *size*."""

    def walk(programs: object) -> Counts:
        walked = len(programs[0])  # type: ignore[index] # along the first axis of the grid
        each = Amount.of(walked)
        access = Access(
            place=Place("kernel.py", 7),
            operation="store",
            tensor="y",
            item_bytes=item_bytes,
            reads=False,
            writes=True,
            executions=each,
            elements=each,
            active=each,
            sectors=each,
            lines=each,
            unique_bytes=each * item_bytes,
            piece_bytes=64.0,
        )
        footprint = Footprint(
            "y",
            *(Amount.of(0), each * item_bytes, Amount.of(0), each * 32),
            size=size,
            written_lines=128 * walked,
        )
        return Counts(PROGRAMS, walked, accesses=(access,), footprints=(footprint,))

    found = sampled(walk, (PROGRAMS, 1, 1))
    assert found is not None
    assert found.walked < found.programs == PROGRAMS
    return found


def test_consecutive_programs_fill_sectors_and_lines() -> None:
    """Items that lie side by side fill sectors, though no two neighbours are in the sample."""
    (tensor,) = stored(4 * PROGRAMS).footprints
    assert tensor.written == tensor.written_whole
    assert tensor.written.low == pytest.approx(4 * PROGRAMS, rel=0.001)
    assert tensor.written_lines == pytest.approx(4 * PROGRAMS, abs=128)
    assert stored(4 * PROGRAMS).accesses[0].piece_bytes == 256


def test_items_with_gaps_take_a_sector_each() -> None:
    """Items that are far apart take as many sectors and lines as in the sample, in proportion."""
    (tensor,) = stored(64 * PROGRAMS).footprints
    assert tensor.written_whole.low == pytest.approx(32 * PROGRAMS, rel=0.001)
    assert tensor.written_lines == pytest.approx(128 * PROGRAMS, rel=0.001)
    assert stored(64 * PROGRAMS).accesses[0].piece_bytes == 64


def test_longer_pieces_stay_what_they_are() -> None:
    """A program that stores more than two lines writes pieces as it does alone."""
    assert stored(512 * PROGRAMS, 512).accesses[0].piece_bytes == 64
