"""What one kernel writes and the next reads is shown with what fusing them saves."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from run_trace import command
from traced_kernels import LAUNCH, traced_kernel, worked

from occupancy_lab.compiling.notes import Feed, Use
from occupancy_lab.gpus import find_gpu
from occupancy_lab.prediction import Part
from occupancy_lab.tracing.dry import dry_trace
from occupancy_lab.tracing.fusing import fusing_sentences, handover, noted_feeds
from occupancy_lab.tracing.noted import Memory, by_parameter
from occupancy_lab.tracing.trace import trace_program
from occupancy_lab.tracing.traced import GridLaunches, Handover, TracedKernel

FOOTPRINTS = {one.tensor: one for one in worked().counts.footprints}
WRITTEN = next(name for name, one in FOOTPRINTS.items() if name and one.written.low)
READ = next(name for name, one in FOOTPRINTS.items() if name and one.read.low)
HANDED = min(FOOTPRINTS[WRITTEN].written.low, FOOTPRINTS[READ].read.low)
PEAK = find_gpu("h100").bandwidth_gbs or 0.0
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


def side(
    name: str, launches: int, *, known: bool = True, us: float | None = 1e6, bound: str = ""
) -> tuple[TracedKernel, GridLaunches]:
    """Return launches of a kernel of that name, whose work is that of a recorded one.

    They were measured to take *us*, and *bound*, where it is given, is what takes longest of that.
    """
    work = worked()
    assert work.prediction is not None
    if bound:
        parts = (Part(bound, 1e3), *work.prediction.parts)
        prediction = dataclasses.replace(work.prediction, parts=parts)
        work = dataclasses.replace(work, prediction=prediction)
    grid = GridLaunches(LAUNCH.grid, launches, us=us, record=work if known else None)
    return traced_kernel(name, (grid,)), grid


def handed(before: Any, after: Any, *tensors: tuple[str, str], uses: Any = ()) -> Handover | None:
    """Return what is handed over where *after* has these *tensors* of *before*, others later."""
    later = [*uses]
    noted = tuple(Use(place, its, mine) for place, (_, its, mine) in enumerate(later, 2))
    return handover(Feed(0, 1, tensors, noted), [before, after, *(one for one, *_ in later)])


def test_what_is_written_and_read_again_is_moved_twice() -> None:
    """Moved bytes are twice the smaller of both, as often as the rarer launch."""
    found = handed(side("a", 5), side("b", 3), (WRITTEN, READ), (READ, READ))
    assert (found.tensors, found.launches) == (((WRITTEN, READ),), 3)
    assert (found.moved_bytes, found.bound, found.others) == (2 * HANDED, "", ())
    assert found.total_us == pytest.approx(3 * 2 * HANDED / PEAK / 1e3)


def test_no_more_is_saved_than_the_shorter_launch_takes() -> None:
    """Savings are at most the shorter launch's measured or predicted time."""
    found = handed(side("a", 1, us=40.0), side("b", 1, us=0.5), (WRITTEN, READ))
    assert found.us == 0.5
    untimed = [
        (kernel, dataclasses.replace(grid, record=dataclasses.replace(worked(), prediction=None)))
        for kernel, grid in (side("a", 1, us=None), side("b", 1, us=None))
    ]
    found = handed(*untimed, (WRITTEN, READ))
    assert found.us == pytest.approx(2 * HANDED / PEAK / 1e3)
    prediction = worked().prediction
    found = handed(side("a", 1), side("b", 1, us=None), (WRITTEN, READ))
    assert found.us == pytest.approx(min(2 * HANDED / PEAK / 1e3, prediction.us))


def test_reading_costs_a_kernel_no_time_that_something_else_bounds() -> None:
    """If another unit bounds the reader, only writing counts."""
    found = handed(side("a", 1), side("b", 1, bound="tensor"), (WRITTEN, READ))
    assert (found.bound, found.moved_bytes) == ("tensor", 2 * HANDED)
    assert found.us == pytest.approx(HANDED / PEAK / 1e3)
    said, _ = fusing_sentences([found], 0.0)
    assert (
        "in all, for writing alone, as b is bound by tensor cores and reads meanwhile, if" in said
    )
    for bound in ("bandwidth", "dispatch"):
        found = handed(side("a", 1), side("b", 1, bound=bound), (WRITTEN, READ))
        assert found.us == pytest.approx(2 * HANDED / PEAK / 1e3)


def test_what_another_kernel_reads_is_still_written() -> None:
    """Later readers are named until a kernel overwrites the tensor."""
    one, two = side("a", 1), side("b", 1)
    reads, writes = ((side(name, 1), WRITTEN, its) for name, its in (("c", READ), ("d", WRITTEN)))
    found = handed(one, two, (WRITTEN, READ), uses=[reads, writes])
    assert (found.moved_bytes, found.others) == (HANDED, ("c",))
    assert found.us == pytest.approx(HANDED / PEAK / 1e3)
    said, _ = fusing_sentences([found], 0.0)
    assert said.endswith("; the part that c also reads is still written.")
    found = handed(one, two, (WRITTEN, READ), uses=[writes, reads])
    assert (found.moved_bytes, found.others) == (2 * HANDED, ())
    again = handed(one, two, (WRITTEN, READ), uses=[(two, WRITTEN, READ)])
    assert again is not None
    said, _ = fusing_sentences([again], 0.0)
    assert said.endswith("; the part that another launch of b also reads is still written.")
    bound = side("b", 1, bound="tensor")
    assert handed(one, bound, (WRITTEN, READ), uses=[reads]) is None


def test_nothing_is_handed_over_where_nothing_is_written_or_known() -> None:
    """Two readers of a tensor, or unknown work, hand nothing over."""
    assert handed(side("a", 5), side("b", 3), (READ, READ)) is None
    assert handed(side("a", 5, known=False), side("b", 3), (WRITTEN, READ)) is None
    assert handed(side("a", 5), side("b", 3, known=False), (WRITTEN, READ)) is None


def test_only_what_is_worth_it_is_told() -> None:
    """Pairs that save less than 1% are left out, and three at most are shown."""
    pairs = [Handover("a", f"b{n}", (("y", "x"),), 10, 1 << 20, 10.0 - n) for n in range(5)]
    small = Handover("a", "little", (("x", "x"),), 1, 4, 0.01)
    found = [*fusing_sentences([*pairs, small], 1000.0)]
    *pairs_of, last = (sentence.partition(" ")[0] for sentence in found)
    assert pairs_of == ["b0", "b1", "b2"]
    assert last == "What"
    assert "leaves out those that the L2 cache still has at its end" in found[-1]
    assert found[0] == (
        "b0 reads x, which a has written right before as y: one kernel for both moves 1.05 MB less,"
        " which saves up to 10.0 us, 100 us in all, if nothing else reads that."
    )
    assert [*fusing_sentences([small], 1000.0)] == []


def test_memory_that_is_gone_is_not_the_same() -> None:
    """Memory reused after a tensor is gone is another tensor."""
    x, y, memory = torch.ones(4), torch.ones(4), Memory()
    assert memory.numbers({"x": x, "y": y, "n": 3}) == {"x": 1, "y": 2}
    assert memory.numbers({"x": y[:2], "y": x, "n": 3}) == {"x": 2, "y": 1}
    place = y.numpy()
    del y
    assert memory.numbers({"z": torch.from_numpy(place)}) == {"z": 3}
    assert by_parameter(["x", "y", "n"], (7, x, 3)) is None
    assert memory.numbers({"n": 3}) == {}


def test_a_process_notes_who_has_a_tensor_later() -> None:
    """Only adjacent launches feed one another; later uses are noted."""
    first = {"kernel": 0, "grid": [8], "memory": {"x": 1, "y": 2}}
    second = {"kernel": 1, "grid": [8], "memory": {"a": 2, "b": 3}, "after": [0, [8]]}
    third = {"kernel": 2, "grid": [4], "memory": {"p": 2, "q": 1}}
    (found,) = noted_feeds([first, second, third])
    assert found == Feed(0, 1, (("y", "a"),), (Use(2, "y", "p"),))


@pytest.mark.slow
def test_a_dry_run_tells_what_one_kernel_would_not_move(tmp_path: Path) -> None:
    """A dry run finds the adjacent writer and reader."""
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
def test_a_dry_run_looks_up_who_reads_it_later(tmp_path: Path) -> None:
    """Later readers count until the writer writes the tensor anew."""
    path = tmp_path / "step.py"
    again = (
        "    more[(n // 1024,)](z, x, n, BLOCK=1024)\n    more[(n // 1024,)](y, z, n, BLOCK=512)\n"
    )
    path.write_text(STEP.replace("    del y, z\n", again))
    found = dry_trace([sys.executable, str(path)], gpu="h100").found.handovers
    assert {(one.writer, one.tensors, one.others) for one in found} == {
        ("twice", (("y", "a"),), ("more",)),
        ("more", (("b", "a"),), ()),
    }


@pytest.mark.slow
def test_a_traced_program_tells_it_too() -> None:
    """A traced program's first launches give the same handover."""
    found = trace_program(command("chained"))
    (one,) = found.found.handovers
    assert (one.tensors, one.launches) == ((("x_ptr", "y_ptr"),), 2)
    assert one.moved_bytes == 2 * 4 * 4096
    assert one.writer == one.reader == "add"
