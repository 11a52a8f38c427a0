"""The least time that bytes and FLOPs allow."""

import dataclasses

import pytest
from hand_made import rows

from occupancy_lab.gpus import devices, find_gpu
from occupancy_lab.work.counts import Amount, Arithmetic, Place, total
from occupancy_lab.work.memory import memory
from occupancy_lab.work.speed_of_light import dot_tflops, other_tflops, speed_of_light

H100 = find_gpu("h100")


def test_the_speed_of_light_moves_each_byte_once() -> None:
    """Cache evictions do not change the speed of light: another order might avoid them."""
    counts = rows(1024, 65536, 1024, passes=3)
    found = memory(counts, H100)
    light = speed_of_light(counts, found, H100)
    once = counts.unique_read_bytes + total(one.written for one in counts.footprints)
    assert found.once_read_bytes == counts.unique_read_bytes
    assert (found.dram_read_bytes.exact or 0) > 2 * counts.unique_read_bytes.low
    assert light.part_us("memory") == pytest.approx(once.low / (H100.bandwidth_gbs or 0) / 1e3)


def test_unknown_values_give_a_least_and_a_most_time() -> None:
    """The least time ignores FLOPs that unknown values may skip, and the most includes them."""
    counts = rows(64, 64, 8)
    exact = speed_of_light(counts, memory(counts, H100), H100)
    assert exact.most_us == exact.us
    for high, most in ((10**12, pytest.approx(1011, rel=0.01)), (None, None)):
        dots = Arithmetic(Place("k.py", 1), "dot", "fp16", Amount(0, high), Amount.of(1))
        steered = dataclasses.replace(counts, arithmetic=(dots,))
        light = speed_of_light(steered, memory(steered, H100), H100)
        assert light.us == exact.us
        assert light.most_us == most


def test_a_rate_that_is_not_known_is_named() -> None:
    """FP8 on an A100, which has no such instruction, is listed as unknown; bytes still count."""
    dots = Arithmetic(Place("k.py", 1), "dot", "fp8e4nv", Amount.of(10**12), Amount.of(1))
    counts = dataclasses.replace(rows(64, 64, 8), arithmetic=(dots,))
    for name, us in (("a100", True), ("sm_80", False)):
        gpu = find_gpu(name)
        light = speed_of_light(counts, memory(counts, gpu), gpu)
        assert "fp8e4nv tensor cores" in light.unknown
        assert (light.us is not None) == us
        assert (light.binds == "memory") == us


@pytest.mark.parametrize(
    ("dtype", "gpu", "name", "us"),
    [
        ("fp32", "h100", "fp32", 4e12 / 66.9e6),
        ("fp32", "mi300x", "fp32 tensor cores", 2e12 / 163.4e6),
        ("tf32", "h100", "tf32 tensor cores", 2e12 / 494.7e6),
        ("tf32x3", "h100", "tf32x3 tensor cores", 6e12 / 494.7e6),
        ("bf16x6", "h100", "bf16x6 tensor cores", 12e12 / 989.4e6),
    ],
)
def test_products_of_fp32_are_made_where_their_precision_lets_them(
    dtype: str, gpu: str, name: str, us: float
) -> None:
    """Exact FP32 products share the FP32 units of an H100; tf32x3 takes three products in tf32."""
    flops, once, place = Amount.of(2 * 10**12), Amount.of(1), Place("k.py", 1)
    both = (
        Arithmetic(place, "dot", dtype, flops, once),
        Arithmetic(place, "addf", "fp32", flops, once),
    )
    counts = dataclasses.replace(rows(64, 64, 8), arithmetic=both)
    light = speed_of_light(counts, memory(counts, find_gpu(gpu)), find_gpu(gpu))
    assert light.part_us(name) == pytest.approx(us, rel=1e-3)


def test_products_of_two_dtypes_take_turns() -> None:
    """The same tensor cores multiply int8 and fp16, so both times count."""
    flops, once, place = Amount.of(10**12), Amount.of(1), Place("k.py", 1)
    both = tuple(Arithmetic(place, "dot", dtype, flops, once) for dtype in ("i8", "fp16"))
    counts = dataclasses.replace(rows(64, 64, 8), arithmetic=both)
    light = speed_of_light(counts, memory(counts, H100), H100)
    assert light.binds == "i8 and fp16 tensor cores"
    assert light.us == light.most_us == pytest.approx(1e12 / 1978.9e6 + 1e12 / 989.4e6, rel=1e-3)


def test_every_gpu_multiplies_fp16() -> None:
    """Every GPU has rates for fp16 products, above that of FP32, and for other operations."""
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
