"""Short pieces of device memory: their lengths, and what they cost."""

import dataclasses
from pathlib import Path

import pytest
from hand_made import access, footprint
from hypothesis import given
from hypothesis import strategies as st
from record_pieces import predict

from occupancy_lab import explain
from occupancy_lab.work.counts import NOTHING, Amount
from occupancy_lab.work.pieces import completed, read_cost, torn_bytes, turnover, written_cost

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
        for record in predict([*rows, gather], "h200")
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


def test_parts_of_sectors_are_completed() -> None:
    """Device memory delivers the rest of each sector, unless the launch reads the sector anyway."""
    store = dataclasses.replace(access("y", 1, 256, 512, writes=True), piece_bytes=64.0)
    tensor = footprint("y", 0, 512)
    assert completed([store], tensor) == (NOTHING, 0.0)
    tensor = dataclasses.replace(tensor, written_whole=Amount.of(4096), written_lines=4096)
    assert completed([store], tensor)[0] == Amount.of(4096)
    rows = dataclasses.replace(tensor, written=Amount.of(4000))
    assert completed([store], rows)[0] == Amount.of(2 * 96)
    moving = dataclasses.replace(store, is_known=False, sectors=Amount(16, 256))
    assert completed([moving], footprint("y", 0, 512))[0] == Amount(0, 8192)
    read = dataclasses.replace(tensor, read_whole=Amount.of(4096))
    assert completed([store], read) == (NOTHING, 0.0)


def test_sectors_that_are_written_back_too_early_are_torn() -> None:
    """Of sectors written in part, all that are written back twice are read, and cost a piece."""
    part = access("y", 1, 2048, 4096, writes=True, sectors=2048)
    store = dataclasses.replace(part, piece_bytes=64.0, lines=Amount.of(2048))
    tensor = dataclasses.replace(footprint("y", 0, 4096), written_lines=4096)
    assert [torn_bytes([store], tensor, twice) for twice in (0, 1024, 8192)] == [0, 2048, 12288]
    assert torn_bytes([access("y", 1, 2048, 4096, writes=True)], tensor, 8192) == 0
    costs = [written_cost([store], tensor, twice=twice) for twice in (0, 1024, 8192)]
    assert costs == pytest.approx([150 / 128, 150 / 128 * 0.6 + 150 / 32 * 0.4, 150 / 32])
    read = dataclasses.replace(tensor, read_whole=Amount.of(4096))
    assert torn_bytes([store], read, 8192) == 0


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
