"""What processes noted of their launches is read, whatever else lies there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hostile_files import HOSTILE, put, within

from occupancy_lab.gpus import find_gpu
from occupancy_lab.tracing.records import read_records

if TYPE_CHECKING:
    from pathlib import Path


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
