"""What a launch writes and the next one reads is told, as far as one kernel for both saves."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from traced_kernels import LAUNCH, traced_kernel, worked

from occupancy_lab.gpus import find_gpu
from occupancy_lab.tracing.dry import dry_trace
from occupancy_lab.tracing.fusing import fusing_sentences, handover
from occupancy_lab.tracing.noted import by_parameter, same_memory, tensors
from occupancy_lab.tracing.trace import trace_program
from occupancy_lab.tracing.traced import GridLaunches, Handover, TracedKernel

PROGRAM = Path(__file__).with_name("traced_program.py")
FOOTPRINTS = {one.tensor: one for one in worked().counts.footprints}
WRITTEN = next(name for name, one in FOOTPRINTS.items() if name and one.written.low)
READ = next(name for name, one in FOOTPRINTS.items() if name and one.read.low)
STEP = """
import torch, triton, triton.language as tl

@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + where, 2 * tl.load(x + where, mask=where < n), mask=where < n)

@triton.jit
def more(a, b, n, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(b + where, 1 + tl.load(a + where, mask=where < n), mask=where < n)

n = 1 << 22
x = torch.rand(n, device="cuda")
for _ in range(3):
    y, z = torch.empty_like(x), torch.empty_like(x)
    twice[(n // 1024,)](x, y, n, BLOCK=1024)
    more[(n // 1024,)](y, z, n, BLOCK=1024)
    del y, z
"""


def side(name: str, launches: int, *, known: bool = True) -> tuple[TracedKernel, GridLaunches]:
    """Return launches of a kernel of that name, whose work is that of a recorded one."""
    grid = GridLaunches(LAUNCH.grid, launches, work=worked() if known else None)
    return traced_kernel(name, (grid,)), grid


def test_what_is_written_and_read_again_is_moved_twice() -> None:
    """It is the less of both, and as often as the one launched less."""
    found = handover(side("a", 5), side("b", 3), [(WRITTEN, READ), (READ, READ)])
    assert found is not None
    moved = 2 * min(FOOTPRINTS[WRITTEN].written.low, FOOTPRINTS[READ].read.low)
    assert (found.tensors, found.launches, found.moved_bytes) == (((WRITTEN, READ),), 3, moved)
    peak = find_gpu("h100").bandwidth_gbs
    assert peak is not None
    assert found.total_us == pytest.approx(3 * moved / peak / 1e3)


def test_nothing_is_handed_over_where_nothing_is_written_or_known() -> None:
    """Two kernels that read the same hand nothing over; without work nobody can tell."""
    assert handover(side("a", 5), side("b", 3), [(READ, READ)]) is None
    assert handover(side("a", 5, known=False), side("b", 3), [(WRITTEN, READ)]) is None
    assert handover(side("a", 5), side("b", 3, known=False), [(WRITTEN, READ)]) is None


def test_only_what_is_worth_it_is_told() -> None:
    """A pair that saves less than a hundredth of all is left out, and at most three are told."""
    pairs = [Handover("a", f"b{n}", (("y", "x"),), 10, 1 << 20, 10.0 - n) for n in range(5)]
    small = Handover("a", "little", (("x", "x"),), 1, 4, 0.01)
    found = [*fusing_sentences([*pairs, small], 1000.0)]
    assert [sentence.partition(" ")[0] for sentence in found] == ["b0", "b1", "b2"]
    assert found[0] == (
        "b0 reads x, which a has written right before as y: one kernel for both moves 1.05 MB less,"
        " up to 10.0 us at the data sheet's rate and 100 us in all, if nothing else reads that."
    )
    assert [*fusing_sentences([small], 1000.0)] == []


def test_memory_that_is_gone_is_not_the_same() -> None:
    """What lies where a tensor lay that nobody has any more is another tensor."""
    x, y = torch.ones(4), torch.ones(4)
    first = tensors({"x": x, "y": y, "n": 3})
    assert sorted(same_memory(first, tensors({"x": y[:2], "y": x, "n": 3}))) == [
        ("x", "y"),
        ("y", "x"),
    ]
    second: Any = {"a": first["y"]}
    del y
    assert same_memory(first, second) == []
    assert by_parameter(["x", "y", "n"], (7, x, 3)) is None
    assert tensors({"n": 3}) == {}


@pytest.mark.slow
def test_a_dry_run_tells_what_one_kernel_would_not_move(tmp_path: Path) -> None:
    """The one writes what the other reads; the next step's first kernel reads nothing of it."""
    path = tmp_path / "step.py"
    path.write_text(STEP)
    found = dry_trace([sys.executable, str(path)], gpu="h100")
    (one,) = found.found.handovers
    assert (one.writer, one.reader, one.tensors) == ("twice", "more", (("y", "a"),))
    assert (one.launches, one.moved_bytes) == (3, 2 * 4 * (1 << 22))
    assert "more reads a, which twice has written right before as y" in " ".join(str(found).split())
    plain = json.loads(found.to_json())["handovers"]
    assert plain == [json.loads(json.dumps(dataclasses.asdict(one)))]


@pytest.mark.slow
def test_a_traced_program_tells_it_too() -> None:
    """Noted of first launches, one right after the other."""
    found = trace_program([sys.executable, str(PROGRAM), "chained"])
    (one,) = found.found.handovers
    assert (one.tensors, one.launches) == ((("x_ptr", "y_ptr"),), 2)
    assert one.moved_bytes == 2 * 4 * 4096
    assert one.writer == one.reader == "add"
