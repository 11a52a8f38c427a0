"""The recording of public launches on a GPU, and what its recorder reads."""

from __future__ import annotations

import io

from elftools.elf.elffile import ELFFile
from recorded_work import recorded_launches

from occupancy_lab.arguments import Descriptor, Pointer


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


def test_counted_launches_have_all_texts() -> None:
    """The texts of what is counted or sampled are those of a compile, with the kernel's PTX."""
    counted = [one for one in recorded_launches() if one.executed is not None]
    assert len(counted) >= 110
    assert len({(one.package, one.kernel) for one in counted}) >= 95
    for one in counted:
        assert f".entry {one.kernel}(" in (one.texts.ptx or "")
