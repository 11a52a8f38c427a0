"""What device memory serves of a launch, and the least time that bytes and FLOPs allow."""

from __future__ import annotations

import dataclasses

import pytest
from hand_made import ITEM, access, footprint, matmul, rows
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.gpus import bare_gpus, devices, find_gpu
from occupancy_lab.values import Work
from occupancy_lab.work.counts import Amount, Arithmetic, Counts, Place
from occupancy_lab.work.memory import (
    Memory,
    capacity,
    dot_tflops,
    intensity,
    memory,
    moved,
    other_tflops,
    speed_of_light,
)

H200, H100, MI300X = find_gpu("h200"), find_gpu("h100"), find_gpu("mi300x")
MIB = 2**20


def test_what_fits_the_cache_is_read_once() -> None:
    """A product whose matrices fit the L2 cache reads each byte of them once."""
    counts = matmul(1024, 128, 64)
    moved = memory(counts, H100, 64)
    assert moved.dram_read_bytes == Amount.of(2 * 1024 * 1024 * 2)
    assert moved.dram_written_bytes == Amount.of(1024 * 1024 * 2)
    assert moved.l2_bytes == Amount.of((2 * 1024 * 1024 * 8 + 1024 * 1024) * 2)


def test_waves_that_find_nothing_read_again() -> None:
    """Once a wave of programs touches more than the cache keeps, each wave reads its own again.

    Nsight Compute says 241 MB of a product of 4096 cubed in blocks of 64 on an H200, whose
    matrices have 67 MB and whose programs ask for 4.2 GB.
    """
    counts = matmul(4096, 64, 528)
    moved = memory(counts, H200, 528)
    assert (moved.l2_bytes.exact or 0) / 1e9 == pytest.approx(4.3, abs=0.1)
    assert 190e6 < (moved.dram_read_bytes.exact or 0) < 320e6


@given(
    st.integers(6, 13),
    st.sampled_from([64, 128, 256]),
    st.integers(1, 2000),
    st.integers(20, 28),
    st.integers(1, 3),
)
def test_memory_serves_between_each_byte_once_and_all_that_is_asked(
    size: int, block: int, resident: int, cache: int, passes: int
) -> None:
    """Device memory gives each byte once at least, no more than is asked, less with more cache."""
    edge = max(2**size, block)
    small = dataclasses.replace(H100, l2_bytes=2**cache)
    large = dataclasses.replace(H100, l2_bytes=2 ** (cache + 1))
    for counts in (matmul(edge, block, resident), rows(512, edge, resident, passes=passes)):
        few, many = (memory(counts, gpu, resident).dram_read_bytes for gpu in (large, small))
        asked = sum(one.bytes.low for one in counts.accesses if one.reads)
        assert counts.unique_read_bytes.low <= few.low <= many.low <= asked


def test_passes_over_rows_that_the_cache_loses_are_read_again() -> None:
    """A row that is read three times is read from memory three times where the rows do not fit."""
    large, small = rows(1024, 65536, 1024, passes=3), rows(1024, 65536, 16, passes=3)
    matrix = 1024 * 65536 * 2
    assert memory(large, H100, 1024).dram_read_bytes == Amount.of(3 * matrix)
    assert memory(small, H100, 16).dram_read_bytes == Amount.of(matrix)


def test_the_speed_of_light_moves_each_byte_once() -> None:
    """What a cache loses makes no speed of light longer: a better order of programs may keep it."""
    counts = rows(1024, 65536, 1024, passes=3)
    found = memory(counts, H100, 1024)
    light = speed_of_light(counts, found, H100)
    once = counts.unique_read_bytes + counts.unique_written_bytes
    assert found.dram_read_bytes == counts.unique_read_bytes * 3
    assert light.part_us("memory") == pytest.approx(once.low / (H100.bandwidth_gbs or 0) / 1e3)


def test_what_fits_a_wave_is_read_again_where_much_lies_between() -> None:
    """Columns that each row of the grid goes over anew come from the cache only if all of them fit.

    Here 132 programs touch 17 MB at once, and a row of 1024 programs all 134 MB of the columns.
    """
    strip, across = 128 * 512 * ITEM, 1024
    columns = footprint("b", across * strip, 0, strip, 132 * strip)
    counts = Counts(
        across * across,
        24,
        accesses=(access("b", 9, across * across * strip // ITEM, across * strip),),
        footprints=(columns,),
    )
    found = memory(counts, H100, 132).dram_read_bytes.exact
    assert found == pytest.approx(across * across * strip, rel=0.01)
    large = dataclasses.replace(H100, l2_bytes=3 * across * strip)
    assert memory(counts, large, 132).dram_read_bytes == Amount.of(across * strip)


def test_what_is_not_known_leaves_limits() -> None:
    """Without the programs that run at once, the bytes lie between each once and all asked."""
    counts = rows(1024, 65536, 1024, passes=3)
    unknown = dataclasses.replace(
        counts,
        footprints=tuple(
            dataclasses.replace(one, resident=None, a_program=None) for one in counts.footprints
        ),
    )
    matrix = 1024 * 65536 * 2
    assert memory(unknown, H100, None).dram_read_bytes == Amount(matrix, 3 * matrix)
    gather = dataclasses.replace(
        access("x", 3, 100, 64), sectors=Amount(2, 100), unique_bytes=Amount(64, None)
    )
    ranged = Counts(
        1,
        1,
        (gather,),
        (dataclasses.replace(footprint("x", 64, 0, 64, 64), read=Amount(64, None)),),
    )
    assert memory(ranged, H100, 1).dram_read_bytes == Amount(64, 100 * 32)


def test_a_bare_architecture_has_limits_too() -> None:
    """Where the size of a cache is not known, the bytes of device memory are limits."""
    moved = memory(rows(64, 64, 8, passes=2), bare_gpus()["sm_90"], 8)
    assert moved.dram_read_bytes == Amount(64 * 64 * 2, 2 * 64 * 64 * 2)


def test_half_of_a_cache_in_two_parts_keeps_what_all_load() -> None:
    """An H100's L2 cache keeps what all load twice; an L4's is one; a MI300X has another cache."""
    assert capacity(H100) == 25 * MIB
    assert capacity(find_gpu("l4")) == 48 * MIB
    assert capacity(MI300X) == 256 * MIB
    assert capacity(bare_gpus()["sm_90"]) is None


def test_a_large_product_is_bound_by_tensor_cores() -> None:
    """137 GFLOP of fp16 take an H100 139 us at least, whatever the bytes."""
    counts = matmul(4096, 128, 132)
    light = speed_of_light(counts, memory(counts, H100, 132), H100)
    assert light.binds == "fp16 tensor cores"
    assert light.us == pytest.approx(138.9, abs=0.1)
    assert {part.name for part in light.parts} == {"memory", "fp16 tensor cores", "fp32"}


def test_rows_are_bound_by_memory() -> None:
    """A kernel that reads and writes 64 MiB takes an H100 as long as that takes at its peak."""
    counts = rows(4096, 4096, 132)
    light = speed_of_light(counts, memory(counts, H100, 132), H100)
    assert light.binds == "memory"
    assert light.us == pytest.approx(2 * 32 * MIB / 3352.3e9 * 1e6)


def test_a_rate_that_is_not_known_is_named() -> None:
    """FP8 on an A100, which has no such instruction, is named, and the bytes still count."""
    dots = Arithmetic(Place("k.py", 1), "dot", "fp8e4nv", Amount.of(10**12), Amount.of(1))
    counts = dataclasses.replace(rows(64, 64, 8), arithmetic=(dots,))
    for name, us in (("a100", True), ("sm_80", False)):
        gpu = find_gpu(name)
        light = speed_of_light(counts, memory(counts, gpu, 8), gpu)
        assert "fp8e4nv tensor cores" in light.unknown
        assert (light.us is not None) == us
        assert (light.binds == "memory") == us


def test_every_gpu_multiplies_fp16() -> None:
    """Each GPU of the table has a rate for products of fp16 above that of FP32, and of the rest."""
    for gpu in devices().values():
        dots, others = dot_tflops(gpu, "fp16"), other_tflops(gpu, "fp32")
        assert dots is not None
        assert others is not None
        assert dots > others
        assert other_tflops(gpu, "bf16") == 2 * others
    assert dot_tflops(H100, "tf32") == 494.7
    assert dot_tflops(H100, "fp32") == 66.9
    assert dot_tflops(H100, "fp4e2m1") is None
    assert other_tflops(H100, "fp64") == 33.5


def test_intensity_is_flops_per_byte_of_device_memory() -> None:
    """A product of n cubed whose matrices are moved once has n / 3 FLOP a byte, and one an item."""
    counts = matmul(1024, 128, 64)
    found = intensity(counts, memory(counts, H100, 64))
    assert found == pytest.approx((2 * 1024**3 + 1024**2) / (3 * 1024**2 * 2))
    nothing = Counts(1, 1)
    assert intensity(nothing, memory(nothing, H100, 1)) is None
    assert speed_of_light(nothing, memory(nothing, H100, 1), H100).us is None


def test_what_the_user_said_of_bytes_counts() -> None:
    """Bytes that are given stand in place of those counted, each kind by itself, and say so."""
    counts = rows(4096, 4096, 132)
    both = moved(counts, Work(7, None), H100, 132)
    assert both is not None
    assert both.given
    assert both.dram_read_bytes == Amount.of(7)
    assert both.dram_written_bytes == counts.unique_written_bytes
    alone = moved(None, Work(None, 3352), H100, 132)
    assert alone == Memory(None, None, Amount.of(3352), None, given=True)
    assert alone.dram_bytes is None
    light = speed_of_light(None, alone, H100)
    assert (light.us, light.binds) == (pytest.approx(1e-3, rel=1e-3), "memory")
    assert moved(None, Work(), H100, 132) is None
    assert moved(counts, Work(), H100, 132) == memory(counts, H100, 132)


def test_sectors_are_of_loads_and_of_stores() -> None:
    """A row that is read twice and written once has twice as many sectors to load as to store."""
    counts = rows(64, 1024, 8, passes=2)
    assert counts.store_sectors == Amount.of(64 * 1024 * ITEM // 32)
    assert counts.load_sectors == counts.store_sectors * 2
