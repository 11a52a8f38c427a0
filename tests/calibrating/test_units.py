"""Units of a GPU: kernels do what they time, and times become rates."""

import ctypes
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from disassembled import INSTRUCTION, nvdisasm

from occupancy_lab.arguments import Pointer
from occupancy_lab.calibrating import unit_kernels as kernels
from occupancy_lab.calibrating import units
from occupancy_lab.calibrating.units import Bench, measure_units, ring
from occupancy_lab.compiling.offline import offline
from occupancy_lab.gpus import find_gpu
from occupancy_lab.launch import Launch

H100, MI300X = find_gpu("h100").target, find_gpu("mi300x").target
MEANT = {
    "l2": ("LDG.E.64.STRONG.GPU", 1),
    "atomic same": ("REDG.E.ADD.F32.FTZ.RN.STRONG.GPU", 1),
    "atomic apart": ("REDG.E.ADD.F32.FTZ.RN.STRONG.GPU", 1),
    "l2 loads": ("LDG.E.STRONG.GPU", 4),
    "l2 stores": ("STG.E", 4),
    "local bytes": ("LDL.128", 2),
    "code": ("FFMA", 4),
}
"""The instructions that a probe's step must have on an H100, and how many, by nvdisasm."""


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


def test_a_sweep_reads_past_the_l1_cache() -> None:
    """Each pass loads its block from the L2 cache, 16 bytes per thread and load."""
    arguments = (pointer("int64"), pointer("float32"), 256, 100)
    counts = Counter(timed(kernels.sweep_kernel, *arguments, BLOCK=1 << 14, num_warps=32))
    assert counts["LDG.E.128.STRONG.GPU"] >= 4


@pytest.mark.parametrize("reads", [True, False])
def test_what_needs_no_clock_compiles_for_amd(*, reads: bool) -> None:
    """Moves compile for an MI300X."""
    moving = {"BLOCK": 2048, "READS": reads, "WRITES": True, "num_warps": 4}
    launch = Launch((pointer("float32"), pointer("float32")), moving)
    with offline(MI300X):
        moved = launch.warm_up(kernels.move_kernel).asm["amdgcn"]
    assert ("buffer_load_dwordx4" in moved or "global_load_dwordx4" in moved) is reads


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


def test_cycles_are_those_of_the_median_program(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs take the cycles from their first to their last; an outlier is ignored."""
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda size, dtype, **_: zeros(size, dtype=dtype))
    bench.reads_clock = True
    rows = torch.tensor([[7, 3_400_007, 0], [7, 3_400_007, 0], [0, 9_000_000, 0]])
    assert bench.cycles(lambda noted: noted.copy_(rows), 3) == 3_400_000


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
    assert bench.empty_us[0] == found["launch_us"] == pytest.approx(3.0)
    assert found["dispatch_us"] == pytest.approx(0.001)


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
    assert found["read_gbs"] == found["copy_gbs"] == pytest.approx(2000)


def test_one_that_fails_leaves_the_others(bench: Bench) -> None:
    """A unit that cannot be measured is left out."""
    bench.empty_us = (3.0, 60.0)
    bench.reads_clock = False
    found = measure_units(["launch_us", "l2_cycles", "l2_loads"])
    assert found == {"launch_us": 3.0}
