"""Units of a GPU: kernels do what they time, and times become rates."""

import ctypes
import dataclasses
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from disassembled import INSTRUCTION, nvdisasm

from occupancy_lab.arguments import Pointer
from occupancy_lab.calibrating import unit_kernels as kernels
from occupancy_lab.calibrating import units
from occupancy_lab.calibrating.units import (
    MEASURES,
    Bench,
    Product,
    Ticks,
    Units,
    measure_units,
    ring,
)
from occupancy_lab.compiling.offline import offline
from occupancy_lab.gpus import find_gpu
from occupancy_lab.launch import Launch

H100, MI300X = find_gpu("h100").target, find_gpu("mi300x").target
MEANT = {
    "l1": ("LDG.E.64.STRONG.SM", 1),
    "l2": ("LDG.E.64.STRONG.GPU", 1),
    "shared": ("LDS", 1),
    "atomic": ("ATOMG.E.ADD.STRONG.GPU", 1),
    "atomic same": ("REDG.E.ADD.F32.FTZ.RN.STRONG.GPU", 1),
    "atomic apart": ("REDG.E.ADD.F32.FTZ.RN.STRONG.GPU", 1),
    "l2 loads": ("LDG.E.STRONG.GPU", 4),
    "l2 stores": ("STG.E", 4),
    "shared bytes": ("LDS.128", 4),
    "local bytes": ("LDL.128", 2),
    "fma": ("FFMA", 8),
    "integer": ("LOP3.LUT", 8),
    "special": ("MUFU.EX2", 8),
    "code": ("FFMA", 4),
}
"""The instructions that a probe's step must have on an H100, and how many, by nvdisasm."""
PRODUCTS = {
    "float16": ("float32", "HGMMA.64x128x16.F32"),
    "bfloat16": ("float32", "HGMMA.64x128x16.F32.BF16"),
    "float32": ("float32", "HGMMA.64x128x8.F32.TF32"),
    "float8_e4m3fn": ("float32", "QGMMA.64x128x32.F32.E4M3.E4M3"),
    "int8": ("int32", "IGMMA.64x128x32.S8.S8"),
}


def pointer(dtype: str) -> Pointer:
    """Return a tensor of 1 MiB."""
    return Pointer(dtype, 1 << 20)


def timed(function: Any, *arguments: Any, **keywords: Any) -> list[str]:
    """Return the operations between the first and last clock reading on an H100."""
    with offline(H100):
        cubin = Launch(arguments, keywords).warm_up(function).asm["cubin"]
    text = nvdisasm(cubin, "--print-instruction-encoding")
    found = [re.sub(r"^@!?U?P\w+\s+", "", said) for _, said, _, _ in INSTRUCTION.findall(text)]
    clocks = [place for place, said in enumerate(found) if "SR_CLOCKLO" in said]
    return [said.split()[0] for said in found[clocks[0] + 1 : clocks[-1]]]


def probed(name: str) -> list[str]:
    """Return the timed operations of a probe."""
    probe = kernels.PROBES[name]
    return timed(
        kernels.probe_kernel,
        *(pointer("int64"), pointer("float32"), 100),
        PTX=probe.ptx,
        THREADS=probe.threads,
        num_warps=max(probe.threads // kernels.WARP, 1),
    )


@pytest.mark.parametrize("name", list(kernels.PROBES))
def test_a_probe_repeats_what_it_is_to_time(name: str) -> None:
    """Between its clock readings is a loop with each step, and little else."""
    meant, each = MEANT[name]
    found = probed(name)
    counts = Counter(found)
    assert counts["BRA"]
    assert counts[meant] >= each * kernels.PROBES[name].repeats
    moves = {one for one in counts if one.startswith(("LD", "ST", "RED", "ATOM"))}
    assert moves <= {meant, "STL.128", "LDC", "LDC.64"}


@pytest.mark.parametrize("dtype", list(PRODUCTS))
def test_products_stay_in_shared_memory(dtype: str) -> None:
    """The loop uses the dtype's tensor core instructions, and moves no data."""
    sums, meant = PRODUCTS[dtype]
    pointers = [pointer(one) for one in ("int64", sums, dtype, dtype)]
    depth = {"float16": 64, "bfloat16": 64, "float32": 32}.get(dtype, 128)
    sizes = {"M": 128, "N": 128, "K": depth, "TICKS": True, "num_warps": 8}
    counts = Counter(timed(kernels.dot_kernel, *pointers, 100, **sizes))
    assert counts[meant] >= 4
    assert not [one for one in counts if one.startswith(("LDG", "LDS", "STS", "LDL", "STL"))]


def test_a_sweep_reads_past_the_l1_cache() -> None:
    """Each pass loads its block from the L2 cache, 16 bytes per thread and load."""
    arguments = (pointer("int64"), pointer("float32"), 256, 100)
    counts = Counter(timed(kernels.sweep_kernel, *arguments, BLOCK=1 << 14, num_warps=32))
    assert counts["LDG.E.128.STRONG.GPU"] >= 4


@pytest.mark.parametrize("reads", [True, False])
def test_what_needs_no_clock_compiles_for_amd(*, reads: bool) -> None:
    """Moves and products compile for an MI300X, with its matrix cores."""
    with offline(MI300X):
        moving = {"BLOCK": 2048, "READS": reads, "WRITES": True, "num_warps": 4}
        arguments = (pointer("float32"), pointer("float32"))
        moved = Launch(arguments, moving).warm_up(kernels.move_kernel).asm["amdgcn"]
        pointers = [pointer(one) for one in ("int64", "float32", "float16", "float16")]
        sizes = {"M": 128, "N": 128, "K": 64, "TICKS": False, "num_warps": 4}
        multiplied = Launch((*pointers, 100), sizes).warm_up(kernels.dot_kernel).asm["amdgcn"]
    assert ("buffer_load_dwordx4" in moved or "global_load_dwordx4" in moved) is reads
    assert "v_mfma_f32" in multiplied


def test_every_unit_has_a_measure() -> None:
    """Each field of `Units` has a measurement, a unit and a meaning."""
    fields = dataclasses.fields(Units)
    assert [field.name for field in fields] == list(MEASURES)
    assert all(field.metadata["unit"] and field.metadata["meaning"] for field in fields)


def test_cycles_and_clock_are_of_the_median_program() -> None:
    """Programs of 2 ms in 3.4e6 cycles ran at 1700 MHz; an outlier is ignored."""
    rows = [[7, 3_400_007, 50, 2_000_050, 0]] * 2 + [[0, 9_000_000, 0, 2_000_000, 0]]
    assert Ticks(rows).cycles == 3_400_000
    assert Ticks(rows).mhz == 1700


def test_a_short_time_tells_no_clock() -> None:
    """Times of few nanoseconds give no clock, since a GPU may count in thousands."""
    assert Ticks([[0, 3000, 0, 2000, 0]]).mhz is None


def test_a_ring_leads_through_all_lines() -> None:
    """Each line has the next one's address, the last the first one's."""
    lines = ring(1 << 14, "cpu")
    place, seen = lines.data_ptr(), set()
    while place not in seen:
        seen.add(place)
        place = ctypes.c_int64.from_address(place).value
    assert place == lines.data_ptr()
    assert seen == {place + line * 128 for line in range(128)}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return a GPU of one multiprocessor whose calls take the times in `found_us`."""

    def timed_us(made: Bench, *calls: Callable[[], object]) -> list[float]:
        return [made.found_us(call) for call in calls]  # type: ignore[attr-defined]

    made = object.__new__(Bench)
    made.size = 1
    monkeypatch.setattr(Bench, "timed_us", timed_us)
    monkeypatch.setattr(units, "Bench", lambda: made)
    return made


def test_times_of_launches_become_units(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch's time, and the cost of each further program."""
    launched: list[int] = []
    monkeypatch.setattr(Bench, "empty", lambda _bench, programs=1: launched.append(programs))

    def found_us(_bench: Bench, call: Callable[[], object]) -> float:
        launched.clear()
        call()
        return 2.0 + len(launched) + 0.001 * (sum(launched) - len(launched))

    monkeypatch.setattr(Bench, "found_us", found_us, raising=False)
    found = measure_units(["launch_us", "dispatch_us"])
    assert bench.empty_us[0] == found.launch_us == pytest.approx(3.0)
    assert found.dispatch_us == pytest.approx(0.001)


def test_times_of_copies_become_rates(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch's time is subtracted."""
    bench.empty_us = (3.0, 60.0)
    monkeypatch.setattr(
        Bench,
        "move",
        lambda _bench, size, *, reads=True, writes=True: size * (reads + writes),
    )

    def found_us(_bench: Bench, moved: int) -> float:
        return 3.0 + moved / 2e6

    monkeypatch.setattr(Bench, "found_us", found_us, raising=False)
    found = measure_units(["read_gbs", "copy_gbs"])
    assert found.read_gbs == found.copy_gbs == pytest.approx(2000)


def test_units_are_shown_with_what_they_mean() -> None:
    """Measured units have a line, products a table, others are left out."""
    slow = Product("float16", 64, 128, 4, None, None)
    fast = Product("int8", 64, 128, 8, 1234.5, 1700.2)
    shown = Units(l1_cycles=34.2, products=(slow, fast)).to_section()
    first, second = shown.tables
    assert first.rows == (
        ("l1_cycles", "34.2", "cycles", "until a load is there from the L1 cache"),
    )
    assert second.rows == (
        ("float16", "64 x 128", "4", "-", "-"),
        ("int8", "64 x 128", "8", "1234", "1700"),
    )
    assert len(Units(l1_cycles=34.2).to_section().tables) == 1


def test_one_that_fails_leaves_the_others(bench: Bench) -> None:
    """A unit that cannot be measured is None."""
    bench.empty_us = (3.0, 60.0)
    bench.reads_clock = False
    found = measure_units(["launch_us", "l1_cycles", "special_results"])
    assert found == Units(launch_us=3.0)
