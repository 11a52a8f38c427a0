"""What processes noted of their launches: summed, and read whatever else lies there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hostile_files import HOSTILE, put, within
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.gpus import find_gpu
from occupancy_lab.tracing.records import GridLaunches, merged, read_records

if TYPE_CHECKING:
    from pathlib import Path


@given(
    st.lists(
        st.builds(
            GridLaunches,
            grid=st.sampled_from([(1,), (2, 3), None]),
            launches=st.integers(0, 100),
            tuning=st.integers(0, 100),
            samples=st.integers(1, 9),
            us=st.floats(0, 1e6),
        )
    )
)
def test_grids_of_processes_are_summed(found: list[GridLaunches]) -> None:
    """Nothing is lost, each grid is there once, and its mean lies between those of its parts.

    The time of all launches is the sum over the processes that launched any.
    """
    together = merged(found)
    launched = [one for one in found if one.launches >= one.samples]
    assert sum(one.total_us or 0.0 for one in merged(launched)) == pytest.approx(
        sum(one.total_us or 0.0 for one in launched)
    )
    assert len({one.grid for one in together}) == len(together)
    for name in ("launches", "tuning", "samples"):
        assert sum(getattr(one, name) for one in together) == sum(
            getattr(one, name) for one in found
        )
    for one in together:
        parts = [other.us or 0.0 for other in found if other.grid == one.grid]
        assert one.us is not None
        assert min(parts) * 0.999999 <= one.us <= max(parts) * 1.000001


@pytest.mark.parametrize("what", HOSTILE)
def test_files_of_a_kernel_that_are_none_leave_what_its_process_told(
    tmp_path: Path, what: str
) -> None:
    """A pipe, a device or a file of 2 GB in place of a kernel's binary is never read."""
    kernel = {"kernel": 0, "name": "add", "hash": "1", "kept": "k", "n_regs": 32, "n_spills": 0}
    kernel["metadata"] = {"num_warps": 4, "shared": 0}
    place, files = tmp_path / "1-1", tmp_path / "files" / "k"
    place.mkdir()
    files.mkdir(parents=True)
    lines = "".join(json.dumps(line) + "\n" for line in ({"pid": 1}, kernel))
    (place / "kernels.jsonl").write_text(lines, encoding="utf-8")
    for name in ("add.cubin", "add.ttgir", "add.json"):
        put(what, files / name)
    with within(10):
        (found,) = read_records(tmp_path, find_gpu("h100")).kernels
    assert found.calculation is not None
    assert found.calculation.resources.n_regs == 32
