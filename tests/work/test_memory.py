"""Traffic of a launch to device memory."""

import dataclasses

import pytest
from hand_made import ITEM, access, executed, footprint, matmul, rows
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.gpus import bare_gpus, find_gpu
from occupancy_lab.values import Resources, Work
from occupancy_lab.work.counts import Amount, Counts, Footprint, Place, Reuse, total
from occupancy_lab.work.execution import LocalReuse
from occupancy_lab.work.memory import (
    FORGOTTEN,
    LocalMemory,
    Memory,
    capacity,
    last_cache,
    local_memory,
    memory,
    moved,
    repeated,
)
from occupancy_lab.work.speed_of_light import speed_of_light

H200, H100, MI300X = find_gpu("h200"), find_gpu("h100"), find_gpu("mi300x")
MIB = 2**20


@given(
    st.integers(6, 13),
    st.sampled_from([64, 128, 256]),
    st.integers(1, 2000),
    st.integers(20, 28),
    st.integers(1, 3),
)
def test_limits_of_bytes_from_device_memory(
    size: int, block: int, resident: int, cache: int, passes: int
) -> None:
    """Device memory delivers each byte once to as often as requested, and less with more cache."""
    edge = max(2**size, block)
    small = dataclasses.replace(H100, l2_bytes=2**cache)
    large = dataclasses.replace(H100, l2_bytes=2 ** (cache + 1))
    for counts in (matmul(edge, block, resident), rows(512, edge, resident, passes=passes)):
        few, many = (memory(counts, gpu).dram_read_bytes for gpu in (large, small))
        asked = sum(one.bytes.low for one in counts.accesses if one.reads)
        assert counts.unique_read_bytes.low <= few.low <= many.low <= asked


@pytest.mark.parametrize(("size", "most"), [(1 << 10, 64 << 10), (1 << 20, 64 * 256 * 32)])
def test_a_program_loads_a_small_table_once_at_most(size: int, most: int) -> None:
    """What it looks up at unknown places stays in the L1 cache, if the table is small enough."""
    sectors, read = Amount(64, 64 * 256), Amount(0, size)
    one = access("table", 3, 64 * 256, size, executions=64)
    load = dataclasses.replace(one, sectors=sectors, is_known=False)
    table = dataclasses.replace(footprint("table", 0, 0), read=read, read_whole=read, size=size)
    counts = Counts(64, 64, accesses=(load,), footprints=(table,))
    assert memory(counts, H200).l2_bytes == Amount(64 * 32, most)


def test_the_last_cache_evicts_by_reuse_distance() -> None:
    """Reuse hits where the cache holds everything, and misses where it holds less than half.

    Half of it hits where the cache holds three quarters, as Nsight Compute counts.
    """
    strip, across = 128 * 512 * ITEM, 1024
    whole = across * strip
    again = (across - 1) * whole
    counts = Counts(
        across * across,
        24,
        accesses=(access("b", 9, across * whole // ITEM, whole),),
        footprints=(footprint("b", whole, 0, (whole, again)),),
    )

    def read(cache: float) -> int | None:
        gpu = dataclasses.replace(H100, l2_bytes=round(2 * cache * whole))
        found = memory(counts, gpu).dram_read_bytes
        return None if found is None else found.exact

    assert read(1.0) == whole
    assert read(1 / 1.3) == pytest.approx(whole + again / 2)
    assert read(0.5) == pytest.approx(whole + again, rel=0.01)
    assert read(0.1) == whole + again


def test_the_last_cache_writes_back_by_reuse_distance() -> None:
    """What is written again after it has left the cache is written to device memory twice."""
    whole = 4 * MIB
    one = dataclasses.replace(
        footprint("y", 0, whole), again=(), rewritten=(Reuse(2 * whole, 7 * whole),)
    )
    store = access("y", 9, 2 * whole, whole, writes=True, sectors=8 * whole // 32)
    counts = Counts(64, 64, accesses=(store,), footprints=(one,))
    for cache, written in ((64 * MIB, whole), (MIB, 8 * whole)):
        found = memory(counts, dataclasses.replace(H100, l2_bytes=cache))
        assert found.dram_written_bytes == Amount.of(written)
        assert found.once_written_bytes == Amount.of(whole)


def test_sectors_written_in_part_are_completed_within_the_launch() -> None:
    """They are read and written before its end, but for a share of the cache; then others store."""
    whole = 256 * MIB
    tensor = dataclasses.replace(footprint("y", 0, whole // 4), written_whole=Amount.of(whole))
    tensor = dataclasses.replace(tensor, again=(), written_lines=whole)
    store = access("y", 9, whole // 4, whole // 4, writes=True, sectors=2 * whole // 32)
    found = memory(Counts(64, 64, accesses=(store,), footprints=(tensor,)), H200)
    left = (H200.l2_bytes or 0) / 8
    assert found.dram_read_bytes is not None
    assert found.dram_read_bytes.exact == pytest.approx(whole - left, rel=0.01)
    assert found.written_within_bytes is not None
    assert found.written_within_bytes.low == pytest.approx(whole - left, rel=0.01)
    assert found.returned == pytest.approx(0.5)
    assert found.early == pytest.approx(2 * (whole - left))


@given(size=st.floats(0.1, 4), in_place=st.booleans())
def test_a_repeated_launch_hits_in_the_last_cache(size: float, *, in_place: bool) -> None:
    """A repeated launch finds everything that fits the cache, and nothing at twice its size.

    A tensor that is written in place takes its size once.
    """
    cached = capacity(H100) or 0
    whole = round(size * cached / (1 if in_place else 2))
    tensors = (("x", whole, whole),) if in_place else (("x", whole, 0), ("y", 0, whole))
    counts = Counts(1, 4, footprints=tuple(footprint(*one) for one in tensors))
    cold = memory(counts, H100)
    found = repeated(cold, counts, H100)
    kept = min(max(FORGOTTEN - size, 0), 1)
    assert (cold.kept, found.kept) == (None, pytest.approx(kept, abs=1e-6))
    for name in ("dram_read_bytes", "dram_written_bytes", "once_read_bytes", "once_written_bytes"):
        left = getattr(found, name).exact
        assert left == pytest.approx((1 - kept) * getattr(cold, name).exact, abs=10)
    assert found.l2_bytes == cold.l2_bytes


def test_launches_in_between_evict() -> None:
    """Other launches in between evict what would be found again."""
    cached = capacity(H100) or 0
    counts = Counts(1, 4, footprints=(footprint("x", cached // 2, 0),))
    cold = memory(counts, H100)
    kept = [repeated(cold, counts, H100, cached * more // 4).kept for more in (0, 2, 4, 6, 8)]
    assert kept == pytest.approx([1.0, 1.0, 0.5, 0.0, 0.0], abs=1e-6)


def test_spills_go_to_device_memory_where_they_do_not_fit() -> None:
    """Local memory of resident threads stays in the cache if it fits, and otherwise goes out.

    Nsight Compute counted 729 MB written and 645 MB read by a group norm of 67 MB with 1538 spilled
    registers, and 101 MB written by an attention whose frames of 15 MB are used 100 times.
    """
    counts = rows(16, 1024 * 1024, 16)
    spilled = Resources(255, 4, 0, local_bytes=6152)
    warps = {"local_loads": Amount.of(5_136_384), "local_stores": Amount.of(4_960_256)}
    ran = dataclasses.replace(executed([Place("k.py", 1)], 2048), kinds=warps)
    line = dataclasses.replace(ran.lines[0], local_bytes=Amount.of(1_463_500_000))
    ran = dataclasses.replace(ran, lines=(line,))
    local = local_memory(ran, spilled, 512, 2112, lanes=32)
    assert local is not None
    assert local.bytes == 512 * 128 * 6152
    found, bare = memory(counts, H100, local), memory(counts, H100)
    more = found.dram_read_bytes.low - bare.dram_read_bytes.low
    assert more / 1e6 == pytest.approx(645 - 67, rel=0.2)
    assert (found.written_within_bytes.low - bare.written_within_bytes.low) / 1e6 > 600
    assert found.local_lost == pytest.approx(more / local.loaded.low)
    assert found.l2_bytes == bare.l2_bytes + local.loaded + local.stored
    assert found.once_bytes == bare.once_bytes
    few = dataclasses.replace(local, threads=2000)
    kept = memory(counts, H100, few)
    assert kept.dram_read_bytes.low == pytest.approx(bare.dram_read_bytes.low, rel=0.01)
    assert kept.dram_written_bytes == bare.dram_written_bytes + Amount.of(2000 * 6152)
    reuse = dataclasses.replace(local.reuse, narrow=0.25)
    narrow = memory(counts, H100, dataclasses.replace(local, reuse=reuse))
    rest = narrow.dram_read_bytes.low - found.dram_read_bytes.low
    assert rest == pytest.approx(local.stored.low * found.local_lost / 4, rel=0.01)
    assert memory(counts, bare_gpus()["sm_90"], local).dram_read_bytes.high is not None
    assert local_memory(None, spilled, 512, 2112, lanes=32) is None
    assert local_memory(ran, Resources(255, 4, 0, local_bytes=0), 512, 2112, lanes=32) is None


@pytest.mark.parametrize("key", ["h200", "rtx4090", "mi300x"])
def test_half_of_local_memory_is_lost_where_it_fills_the_cache(key: str) -> None:
    """Local memory may take the whole last cache, whether or not it has two partitions."""
    gpu = find_gpu(key)
    cache = last_cache(gpu) or 0
    reuse = LocalReuse(*((1024.0,),) * 3)
    local = LocalMemory(Amount.of(10**9), Amount.of(10**9), cache // 1024, 1024, reuse)
    counts = rows(16, 1024, 16)
    more = memory(counts, gpu, local).dram_read_bytes.low - memory(counts, gpu).dram_read_bytes.low
    assert more == pytest.approx(10**9 / 2, rel=0.02)


def test_unknown_reuse_gives_limits() -> None:
    """Without the number of resident programs, bytes range from distinct to requested ones."""
    counts = rows(1024, 65536, 1024, passes=3)
    unknown = dataclasses.replace(
        counts,
        footprints=tuple(dataclasses.replace(one, again=None) for one in counts.footprints),
    )
    matrix = 1024 * 65536 * 2
    assert memory(unknown, H100).dram_read_bytes == Amount(matrix, 3 * matrix)
    gather = dataclasses.replace(
        access("x", 3, 100, 64), sectors=Amount(2, 100), unique_bytes=Amount(64, None)
    )
    ranged = Counts(
        1,
        1,
        (gather,),
        (Footprint("x", *(Amount(64, None), Amount.of(0)) * 2),),
    )
    assert memory(ranged, H100).dram_read_bytes == Amount(64, 100 * 32)


def test_common_data_takes_double_room_in_a_partitioned_cache() -> None:
    """Data that all programs load takes double room on an H100, but not on an L4 or MI300X."""
    assert capacity(H100) == 25 * MIB
    assert capacity(find_gpu("l4")) == 48 * MIB
    assert capacity(MI300X) == 256 * MIB
    assert capacity(bare_gpus()["sm_90"]) is None


def test_own_data_takes_less_room_than_shared_data() -> None:
    """Rows that their own program reads again are evicted later than shared data.

    At a distance of 34 MB, on an H100 with 50 MiB, half of shared data misses, and a quarter of own
    data.
    """
    own = rows(1024, 8192, 1024, passes=3)
    shared = dataclasses.replace(
        own,
        accesses=tuple(
            dataclasses.replace(one, sectors=one.sectors * 2) if one.reads else one
            for one in own.accesses
        ),
    )
    once = own.unique_read_bytes.low
    again = 34 * 10**6
    for counts, share in ((own, 0.25), (shared, 0.5)):
        footprints = tuple(
            dataclasses.replace(one, again=(Reuse(again, once),)) if one.read.low else one
            for one in counts.footprints
        )
        found = memory(dataclasses.replace(counts, footprints=footprints), H100)
        assert found.dram_read_bytes.low / once - 1 == pytest.approx(share, abs=0.06)


def test_bytes_given_by_the_user_replace_counts() -> None:
    """Bytes given by the user replace the counted ones, for reads and writes separately."""
    counts = rows(4096, 4096, 132)
    both = moved(counts, Work(7, None), H100)
    assert both is not None
    assert both.given
    assert both.dram_read_bytes == Amount.of(7)
    assert both.dram_written_bytes == total(one.written for one in counts.footprints)
    alone = moved(None, Work(None, 3352), H100)
    assert alone == Memory(None, None, Amount.of(3352), None, None, Amount.of(3352), given=True)
    assert alone.dram_bytes is None
    light = speed_of_light(None, alone, H100)
    assert (light.us, light.binds) == (pytest.approx(1e-3, rel=1e-3), "memory")
    assert moved(None, Work(), H100) is None
    assert moved(counts, Work(), H100) == memory(counts, H100)
