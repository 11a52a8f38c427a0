"""How long a wave of an AMD GPU waits at each instruction, according to AMD's documents."""

import pytest

from occupancy_lab.gpus import HipArchitecture, architectures
from occupancy_lab.work.executed_gcn import (
    ISSUE_CYCLES,
    LDS_CYCLES,
    gcn_events,
    issue_cycles,
    product_cycles,
    wave_flops,
)
from occupancy_lab.work.gcn import read_gcn
from occupancy_lab.work.waits import MEMORY_CYCLES, waits

LOAD, READ = "global_load_dword v1, v0, s[0:1]", "ds_read_b32 v2, v0"
PRODUCT = "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]"


def architecture(name: str) -> HipArchitecture:
    """Return an architecture of AMD."""
    found = architectures()[name]
    assert isinstance(found, HipArchitecture)
    return found


def waited(*lines: str, waves: int = 4) -> list[float]:
    """Return the waits of a wave at some instructions, on an MI300X."""
    code = read_gcn("\nkernel:\n\t" + "\n\t".join((*lines, "s_endpgm")) + "\n", "kernel")
    cycles = [issue_cycles(one) for one in code.instructions]
    events = gcn_events(code.instructions, waves, architecture("gfx942"))
    found = waits(code.blocks, cycles, {0: 1.0}, events)
    return [found.get(number, 0.0) for number in range(len(lines))]


def test_a_wait_lasts_until_few_enough_are_left() -> None:
    """A wait lasts until few enough accesses are pending, with a separate counter for LDS."""
    first, second = (f"s_waitcnt vmcnt({left})" for left in (1, 0))
    assert waited(LOAD, LOAD, first, second) == [0, 0, MEMORY_CYCLES - 2 * ISSUE_CYCLES, 0]
    both = "s_waitcnt vmcnt(1) lgkmcnt(0)"
    assert waited(LOAD, READ, both) == [0, 0, LDS_CYCLES - ISSUE_CYCLES]
    assert waited(LOAD, "s_nop 15", second)[-1] == MEMORY_CYCLES - 17 * ISSUE_CYCLES


@pytest.mark.parametrize(("waves", "others"), [(1, 1), (4, 1), (8, 2)])
def test_a_product_waits_for_the_one_before(waves: int, others: int) -> None:
    """A product takes its SIMD's matrix core for 32 cycles per wave of the SIMD."""
    assert waited(PRODUCT, PRODUCT, waves=waves) == [0, 32 * others - ISSUE_CYCLES]


@pytest.mark.parametrize(
    ("name", "gfx90a", "gfx942"),
    [
        ("v_mfma_f32_32x32x8f16", 64, 32),
        ("v_mfma_f32_16x16x16_bf16", 32, 16),
        ("v_mfma_f32_32x32x2_f32", 64, 64),
        ("v_mfma_f64_16x16x4_f64", 32, 32),
        ("v_mfma_f32_32x32x4_xf32", None, 32),
        ("v_mfma_f32_32x32x16_fp8_fp8", None, 32),
        ("v_mfma_i32_16x16x32_i8", None, 16),
    ],
)
def test_products_take_the_passes_of_amds_guides(
    name: str, gfx90a: int | None, gfx942: int
) -> None:
    """Products take the passes of 4 cycles in AMD's guides for CDNA 2 and 3."""
    code = read_gcn(f"\nkernel:\n\t{name} v[0:15], v[0:1], v[2:3], 0\n\ts_endpgm\n", "kernel")
    flops = wave_flops(code.instructions[0]) or 0
    assert product_cycles(name, flops, architecture("gfx942")) == gfx942
    if gfx90a is not None:
        assert product_cycles(name, flops, architecture("gfx90a")) == gfx90a
