"""The recording of public launches on a GPU, and what its recorder reads."""

from __future__ import annotations

import hashlib
import io
import math
from collections import Counter

import torch
import work_capture
import work_ncu
from elftools.elf.elffile import ELFFile
from recorded_work import recorded_launches

from occupancy_lab.arguments import Descriptor, Pointer

PRINTED = """==PROF== Profiling "add_kernel" - 0: 0%....50%....100% - 9 passes
"ID","Kernel Name","Grid Size","launch__sm_count","sm__x.sum","sm__x.min","sm__x.avg","sm__x.max"
"","","","","inst","inst","inst","inst"
"0","add_kernel","(16,384, 1, 1)","132","67,108,864","1","508,400","508,401"
"1","add_kernel","(32, 2, 1)","132","1,024.5","0","8","16"
"2","foreign","(3, 1, 1)","132","5","0","1","1"
"3","add_kernel","(1000, 1, 1)","132","131","0","0.99","1"
"4","mul_kernel","(3, 1, 1)","132","n/a","0","0","0"
"""
"""What Nsight Compute prints: numbers may have commas."""


def test_counts_are_matched_with_launches() -> None:
    """Kernels that nobody asked for, and launches that were not counted, confuse nothing.

    A counter that lacks one multiprocessor is left out.
    """
    launches = [("a", 16384), ("lost", 5), ("b", 64), ("c", 1000), ("d", 3)]
    order = [
        {"id": name, "kernel": "mul_kernel" if name == "d" else "add_kernel", "programs": programs}
        for name, programs in launches
    ]
    found = work_ncu.matched(order, work_ncu.read_counts(PRINTED))
    sums = {name: counts.get("sm__x.sum") for name, counts in found.items()}
    assert sums == {"a": 67108864, "b": 1024.5, "c": None, "d": None}


def test_arguments_are_noted_in_full() -> None:
    """Of a tensor its dtype, storage, alignment, shape and strides are noted; tuples are too."""
    given = (torch.zeros(4, 6)[:, 1:], 3, True, 0.5, None, (torch.zeros(2), 1))
    first = {
        "pointer": "float32",
        "storage_bytes": 96,
        "aligned": False,
        "shape": [4, 5],
        "strides": [6, 1],
    }
    members = {"tuple": [work_capture.told(torch.zeros(2)), 1]}
    assert [work_capture.told(one) for one in given] == [first, 3, True, 0.5, None, members]


def test_every_launch_has_its_texts_and_arguments() -> None:
    """Each launch has readable texts of its kernel, its grid, and a value for every parameter."""
    launches = recorded_launches()
    assert len(launches) >= 800
    assert len({(one.package, one.kernel) for one in launches}) >= 240
    assert len({one.id for one in launches}) == len(launches)
    for one in launches:
        assert f"@{one.kernel}" in one.ttir
        assert "ttg." in one.ttgir
        assert len(one.grid) == 3
        tensors = [value for value in one.arguments.values() if isinstance(value, Pointer)]
        descriptors = [value for value in one.arguments.values() if isinstance(value, Descriptor)]
        assert tensors or descriptors
        assert set(one.constexprs) <= set(one.arguments)
    for one in launches[::40]:
        file = ELFFile(io.BytesIO(one.cubin))
        assert any(section.name.startswith(".text.") for section in file.iter_sections())


def test_two_counters_count_alike() -> None:
    """The instructions of a sampled launch sum up to what was counted of it in another process."""
    both = 0
    sampled = [one for one in recorded_launches() if one.instructions]
    assert len(sampled) >= 30
    for one in sampled:
        executed = sum(each.executed for each in one.instructions)
        assert executed > 0
        assert sum(sum(each.stalls.values()) for each in one.instructions) == sum(
            each.samples for each in one.instructions
        )
        if one.is_counted:
            both += 1
            assert executed == one.number("instructions"), one.kernel
    assert both >= 10


def test_times_are_in_order() -> None:
    """A launch with an empty cache takes at least as long as its memory traffic and its counting.

    The tenths lie around the median.
    """
    timed = [one for one in recorded_launches() if one.number("cold_us") is not None]
    assert len(timed) >= 700
    for one in timed:
        low, median, high = (one.number(f"cold_us{tenth}") for tenth in ("_low", "", "_high"))
        assert low is not None
        assert median is not None
        assert high is not None
        assert low <= median <= high
        moved = (one.number("dram_read_bytes") or 0) + (one.number("dram_written_bytes") or 0)
        assert moved / 3350e3 < median, one  # the data sheet's 3350 GB/s


def test_kernels_are_divided_by_their_names() -> None:
    """The use of a kernel follows from its name alone, by the digest of its package and name."""
    uses: Counter[str] = Counter()
    for one in recorded_launches():
        text = f"{one.package.split(maxsplit=1)[0]}:{one.kernel}"
        tenth = int(hashlib.sha256(text.encode()).hexdigest(), 16) % 10
        assert one.use == ("tuning" if tenth < 5 else "held out" if tenth < 8 else "fresh")
        uses[one.use] += 1
    assert min(uses.values()) > 100
    assert math.isclose(sum(uses.values()), len(recorded_launches()))


def test_counted_launches_have_all_texts() -> None:
    """The texts of what is counted or sampled are those of a compile, with the kernel's PTX."""
    counted = [one for one in recorded_launches() if one.executed is not None]
    assert len(counted) >= 110
    assert len({(one.package, one.kernel) for one in counted}) >= 95
    for one in counted:
        assert f".entry {one.kernel}(" in (one.texts.ptx or "")
