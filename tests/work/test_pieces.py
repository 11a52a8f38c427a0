"""Short pieces of device memory: their lengths, and what they cost."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from hand_made import access, footprint
from hypothesis import given
from hypothesis import strategies as st
from record_pieces import PIECES

from occupancy_lab import explain
from occupancy_lab.work.counts import NOTHING, Access, Amount, Footprint, Reuse
from occupancy_lab.work.pieces import NOT_EARLY, Early, early, read_cost, turnover, written_cost

SIZES = st.floats(1, 1e12)


def transpose(height: int, width: int, along: int) -> dict[str, str]:
    """Return a launch that transposes a matrix of FP32 in tiles."""
    sides = f"m=4096 n=4096 HEIGHT={height} WIDTH={width} ALONG={along}"
    row = {"kernel": "transpose", "dtype": "float32", "arguments": sides, "programs": "0"}
    return row | dict.fromkeys("xy", str(1 << 24)) | {"index": "0"}


def test_pieces_are_merged_with_those_of_the_next_programs() -> None:
    """Rows of tiles lie apart, unless the next program continues them."""
    rows = [transpose(16, 64, 1), transpose(16, 64, 0), transpose(64, 16, 0)]
    gather = {"kernel": "gather", "dtype": "float32", "x": str(1 << 26), "index": str(1 << 20)}
    gather |= {"y": str(1 << 25), "arguments": "WIDTH=32 ROWS=16", "programs": "65536"}
    found = [
        [(one.operation, one.is_known, one.piece_bytes) for one in record.counts.accesses]
        for record in PIECES.predict([*rows, gather], "h200")
    ]
    assert found == [
        [("load", True, 1024.0), ("store", True, 64.0)],
        [("load", True, 256.0), ("store", True, 256.0)],
        [("load", True, 64.0), ("store", True, 1024.0)],
        [("load", True, 512.0), ("load", False, 128.0), ("store", True, 8192.0)],
    ]


def test_parts_of_a_row_that_a_program_loads_one_after_the_other_are_one_piece() -> None:
    """A tile of rows in two halves touches whole rows at a time, and costs no more than others."""
    found = explain(kernel="softmax_tile", rows=70120, cols=128, dtype="bfloat16", gpu="h200")
    (record,) = found.records
    assert len(record.counts.accesses) == 4
    assert all((one.piece_bytes or 0) >= 8 * 256 for one in record.counts.accesses)
    assert record.memory.read_cost == record.memory.written_cost == 1.0


def test_long_pieces_cost_nothing_more() -> None:
    """Only loads of less than a cache line and stores of little more take longer."""
    one, tensor = access("x", 1, 4096, 8192), footprint("x", 8192, 0)
    for size, reads in ((None, 1.0), (64.0, 106 / 64), (128.0, 1.0), (8192.0, 1.0)):
        assert read_cost([dataclasses.replace(one, piece_bytes=size)]) == pytest.approx(reads)
    store = dataclasses.replace(one, reads=False, writes=True)
    tensor = dataclasses.replace(footprint("x", 0, 8192), written_lines=8192)
    for size, writes in ((None, 1.0), (64.0, 150 / 128), (128.0, 150 / 128), (256.0, 1.0)):
        piece = dataclasses.replace(store, piece_bytes=size)
        assert written_cost([piece], tensor) == pytest.approx(writes)
    apart = dataclasses.replace(tensor, written_lines=4 * 8192)
    piece = dataclasses.replace(store, piece_bytes=64.0)
    assert written_cost([piece], apart) == pytest.approx(150 / 32)


def test_stores_that_may_never_happen_cost_nothing() -> None:
    """A store in a loop whose trips are not known may store nothing at all."""
    store = dataclasses.replace(access("y", 1, 0, 0, writes=True), piece_bytes=4.0, is_known=False)
    assert written_cost([store], footprint("y", 0, 64)) == 1.0


def filled(stores: Sequence[Access], tensor: Footprint, room: float | None = None) -> Early:
    """Return what is read and written early where the L2 cache loses all that is touched again."""
    return early(stores, tensor, NOT_EARLY, room, lambda again, _: sum(one.bytes for one in again))


def test_parts_of_sectors_are_completed() -> None:
    """Device memory delivers the rest of each sector, unless the launch reads the sector anyway."""
    store = dataclasses.replace(access("y", 1, 256, 512, writes=True), piece_bytes=64.0)
    tensor = footprint("y", 0, 512)
    assert filled([store], tensor) == NOT_EARLY
    tensor = dataclasses.replace(tensor, written_whole=Amount.of(4096), written_lines=4096)
    assert filled([store], tensor).filled == Amount.of(4096)
    assert filled([store], tensor, 1024.0).filled == Amount.of(3072)
    assert filled([store], tensor, 8192.0).filled == NOTHING
    rows = dataclasses.replace(tensor, written=Amount.of(4000))
    assert filled([store], rows).filled == Amount.of(2 * 96)
    moving = dataclasses.replace(store, is_known=False, sectors=Amount(16, 256))
    assert filled([moving], footprint("y", 0, 512)).filled == Amount(0, 8192)
    read = dataclasses.replace(tensor, read_whole=Amount.of(4096))
    assert filled([store], read) == NOT_EARLY


@pytest.mark.parametrize(
    ("lines", "adjoins", "slow"), [(128, False, 106 / 32), (128, True, 53 / 32), (32, True, 1.0)]
)
def test_sectors_apart_are_completed_slowly(*, lines: int, adjoins: bool, slow: float) -> None:
    """The rest of a sector costs a piece, half of one in neighbouring lines, less in one line."""
    store = access("y", 1, 512, 4096, writes=True, sectors=128)
    store = dataclasses.replace(store, lines=Amount.of(lines), adjoins=adjoins)
    tensor = dataclasses.replace(footprint("y", 0, 512), written_whole=Amount.of(4096))
    found = filled([store], tensor)
    assert found.filled == Amount.of(4096)
    assert found.slow == pytest.approx(4096 * slow)


def test_sectors_that_are_completed_late_are_read() -> None:
    """Sectors completed late are read, and again each time that they were written back."""
    part = access("y", 1, 2048, 4096, writes=True, sectors=2048)
    store = dataclasses.replace(part, piece_bytes=64.0, lines=Amount.of(2048))
    tensor = dataclasses.replace(footprint("y", 0, 4096), written_lines=4096)
    late = dataclasses.replace(tensor, late=(Reuse(1 << 20, 3072),))
    assert filled([store], late, 1.0).filled == Amount.of(3072)
    often = dataclasses.replace(tensor, late=(Reuse(1 << 20, 1 << 20),))
    assert filled([store], often, 1.0).filled == Amount.of(4096)
    again = early([store], tensor, Early(twice=8192), None, lambda *_: 0.0)
    assert again.filled == Amount.of(8192)


def test_lines_that_are_resumed_are_written_in_pieces() -> None:
    """A line that is written back before it is complete takes the time of a piece each time."""
    part = access("y", 1, 2048, 4096, writes=True)
    store = dataclasses.replace(part, piece_bytes=64.0)
    tensor = dataclasses.replace(footprint("y", 0, 4096), written_lines=4096)
    costs = [written_cost([store], tensor, Early(resumed=one)) for one in (0, 4096, 12288)]
    assert costs == pytest.approx([150 / 128, 150 / 64, 150 / 32])
    early_ones = Early(filled=Amount.of(2048))
    apart = dataclasses.replace(store, lines=Amount.of(128))
    assert written_cost([apart], tensor, early_ones) == pytest.approx((150 / 128 + 150 / 32) / 2)
    beside = dataclasses.replace(store, adjoins=True)
    assert written_cost([beside], tensor, Early(resumed=12288)) == pytest.approx(4 * 0.93)


@given(SIZES, SIZES, st.floats(0, 1e12), SIZES, SIZES)
def test_places_stay_longer_in_a_larger_cache(
    asked: float, size: float, others: float, room: float, more: float
) -> None:
    """Places stay to the end of the launch at most, and to its end if all of its bytes fit."""
    small, large = (turnover(asked, size, others, one) for one in (room, room + more))
    assert 0 <= small <= large <= asked / size
    if size + others <= room:
        assert small == asked / size


LOOPS = """
import triton
import triton.language as tl


@triton.jit
def numbers(x, BLOCK: tl.constexpr):
    for i in range(64):
        for j in range(64):
            tl.store(x + (tl.program_id(0) * 64 + i) * 64 + j, i)
"""


def test_stores_in_loops_are_merged_for_few_iterations(tmp_path: Path) -> None:
    """Narrow stores of many iterations are counted for all programs, with pieces of a few."""
    path = tmp_path / "numbers.py"
    path.write_text(LOOPS, encoding="utf-8")
    found = explain(
        kernel=f"{path}:numbers", signature="*i32", constexprs="BLOCK=1", grid=512, gpu="h100"
    )
    (record,) = found.records
    assert record.counts.walked == 512
    (store,) = record.counts.accesses
    assert store.piece_bytes == 64
