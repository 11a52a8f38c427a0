"""What a launch executes, against Nsight Compute's counters on an H100 and closed forms."""

import dataclasses
from collections.abc import Collection
from functools import partial
from typing import Any

import pytest
from compare_work import executed_of
from first_texts import compiled_texts
from launched_kernels import divisions, layer_norm, matmul, sines
from record_rows import add_rows
from recorded_work import recorded_launches

from occupancy_lab import dry_run, tensor
from occupancy_lab.arguments import Pointer
from occupancy_lab.compiling.texts import Texts
from occupancy_lab.launch import Launch
from occupancy_lab.values import Target
from occupancy_lab.work import followed, skipping
from occupancy_lab.work.counting import doubts
from occupancy_lab.work.counts import NO_WAIT, Amount, total
from occupancy_lab.work.executed import SassRun, execute
from occupancy_lab.work.execution import Executed
from occupancy_lab.work.slices import Slice
from occupancy_lab.work.ttir import read_ttir
from occupancy_lab.work.walk import count

COUNTED = [one for one in recorded_launches() if one.is_counted]
COPIES = "smsp__inst_executed_op_ldgsts.sum"
X = Pointer("float32", 1 << 24)
ASSERTING = "triton_red_fused__log_softmax_arange_nll_loss_forward_sub_1"


def numbers(found: Executed) -> dict[str, Amount]:
    """Return the numbers that Nsight Compute counts, by the recorded counter."""
    copies = (one.executions for one in found.accesses if one.operation == "copy")
    return {
        "instructions": found.instructions,
        "load_sectors": found.load_sectors,
        "store_sectors": found.store_sectors,
        COPIES: total(copies),
    }


def test_public_launches_execute_what_nsight_compute_counts() -> None:
    """Instructions and sectors are within 1% of the counters, mostly exact, or in their range.

    Warps that wait for a copy or a lock poll an unknown number of times.
    """
    exact, known, missed = 0, 0, []
    for launch in COUNTED:
        found = executed_of(launch)
        assert found is not None
        exact += found.instructions.exact == launch.number("instructions")
        known += not found.unknowns
        for name, amount in numbers(found).items():
            counted = launch.number(name)
            if counted is None:
                continue
            waits = any(one.assumed == NO_WAIT for one in found.unknowns)
            high = counted if waits or amount.high is None else amount.high
            if not 0.99 * amount.low <= counted <= 1.01 * high:
                missed.append((launch.kernel, name, amount, counted))
    assert missed == []
    assert exact > 0.85 * len(COUNTED)
    assert known > 0.85 * len(COUNTED)


def compiled(function: Any, launch: Launch, arch: str) -> tuple[Texts, dict[str, Any]]:
    """Return the texts of a kernel, and its arguments by name."""
    arguments = dict(zip(function.arg_names, launch.arguments, strict=False))
    return compiled_texts(function, launch, Target("cuda", arch, 32)), arguments


def normed(arch: str, columns: int) -> tuple[Texts, dict[str, Any]]:
    """Return the texts of a layer norm of rows with *columns* columns, and its arguments."""
    launch = Launch((*[X] * 6, columns, columns, 1e-5), {"BLOCK_SIZE": 256, "num_warps": 4})
    return compiled(layer_norm, launch, arch)


@pytest.mark.parametrize("arch", ["75", "80", "90", "100", "120"])
def test_a_layer_norm_moves_and_repeats_what_its_source_says(arch: str) -> None:
    """Each row is loaded three times and stored once, in as many passes as blocks cover it."""
    columns, rows = 1003, 77
    texts, arguments = normed(arch, columns)
    found = execute(texts, arguments, (rows,))
    moved: dict[tuple[str, str | None], int] = {}
    for one in found.accesses:
        assert one.threads.exact is not None
        place = one.operation, one.tensor
        moved[place] = moved.get(place, 0) + one.threads.exact * one.thread_bytes
    assert moved == {
        ("load", "X"): 3 * 4 * columns * rows,
        ("load", "W"): 4 * columns * rows,
        ("load", "B"): 4 * columns * rows,
        ("store", "Y"): 4 * columns * rows,
        ("store", "Mean"): 4 * rows,
        ("store", "Rstd"): 4 * rows,
    }
    warps = 4 * rows
    assert len(found.loops) == 3
    assert {one.entered.exact for one in found.loops} == {warps}
    assert {one.trips.exact for one in found.loops} <= {warps, 2 * warps, 4 * warps}
    assert found.instructions == total(one.instructions for one in found.lines)
    assert not found.unknowns


def test_lines_have_kinds_and_the_calls_that_lead_to_them() -> None:
    """Shuffles of a sum count on the kernel's line that calls it, and lines are sorted."""
    texts, arguments = normed("90", 1000)
    found = execute(texts, arguments, (8,))
    shuffling = [one for one in found.lines if "shuffles" in one.kinds]
    assert shuffling
    assert all(one.place.outermost.file.endswith("launched_kernels.py") for one in shuffling)
    assert found.kinds["shuffles"] == total(one.kinds["shuffles"] for one in shuffling)
    assert found.lines[0].instructions.low == max(one.instructions.low for one in found.lines)
    assert all(one.stall_cycles.low >= one.instructions.low for one in found.lines[:3])


@pytest.mark.parametrize("columns", [1003, 4096, 50_001])
def test_skipping_passes_hardly_changes_anything(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skipping passes of loops only changes L1 hits and the lookups of the L1 cache, slightly.

    A pass that stands for others may load what another loop loaded, which then counts as distinct,
    and the tag banks of its lines stand for those of the others.
    """
    texts, arguments = normed("90", columns)
    found = execute(texts, arguments, (5,))
    monkeypatch.setattr(skipping, "LEAST", 1 << 40)
    monkeypatch.setattr(followed, "MOST_BLOCKS_OF_ADDRESSES", 1 << 20)
    every = execute(texts, arguments, (5,))
    for one, other in zip(found.accesses, every.accesses, strict=True):
        names = ("cached", "merged", "distinct", "shared", "lookups")
        kept = {name: getattr(other, name) for name in names}
        assert dataclasses.replace(one, **kept) == other
        assert one.merged == pytest.approx(other.merged, abs=0.001)
        assert one.distinct >= other.distinct - 0.001
        assert one.cached == pytest.approx(other.cached, abs=0.1)
        assert one.lookups.middle == pytest.approx(other.lookups.middle, rel=0.1)
    same = {"accesses": (), "program": None}
    assert dataclasses.replace(found, **same) == dataclasses.replace(every, **same)


def test_copies_from_unknown_addresses() -> None:
    """Copies from addresses in a tensor without known values have a range of sectors."""
    launch = next(one for one in recorded_launches() if one.kernel == "grouped_matmul_kernel")
    sizes = {name: launch.values[name] for name in ("group_gemm_sizes", "g_lds")}
    found = execute(launch.texts, launch.arguments, launch.grid, values=sizes)
    copies = [one for one in found.accesses if one.operation == "copy"]
    assert any(not one.is_known and not one.sectors.is_exact for one in copies)
    assert {one.instruction for one in found.shared if one.operation == "copy"} == {
        one.instruction for one in copies
    }


def test_sectors_of_rows_at_indices_from_memory() -> None:
    """The sectors of rows at indices from memory are known within one per warp."""
    some = [one for one in recorded_launches("h200") if one.kernel == "embedding_kernel"]
    (launch,) = (one for one in some if one.row["num_ctas"] == "1")
    found, counted = executed_of(launch), launch.number("load_sectors")
    assert found is not None
    assert any(one.steers == "address" for one in found.unknowns)
    assert counted is not None
    assert found.load_sectors.low == counted
    assert found.load_sectors.high is not None
    assert found.load_sectors.high < 1.1 * counted


def test_an_assertion_that_fails_ends_the_launch() -> None:
    """Warps stop at the branch to itself behind the call of a failed assertion."""
    endless = (one for one in recorded_launches() if one.kernel.startswith(ASSERTING))
    found = map(executed_of, endless)
    assert any(one and one.instructions.exact == one.followed * 16 * 43 for one in found)


def test_many_programs_are_counted_from_some() -> None:
    """A launch of very many programs is counted from a sample."""
    texts, arguments = normed("90", 1000)
    few, many = (execute(texts, arguments, (rows,)) for rows in (100, 1_000_000))
    assert many.followed < many.programs == 1_000_000
    assert many.instructions == few.instructions * 10_000
    assert many.store_sectors.low == pytest.approx(few.store_sectors.low * 10_000, rel=0.001)


def test_programs_that_stand_for_others_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Following one program per distinct index gives the same counts as following all."""
    launch = next(
        one for one in recorded_launches() if one.kernel == "_attn_fwd" and "True" in one.trial
    )
    executed = partial(execute, launch.texts, launch.arguments, launch.grid)
    read = SassRun.axes_read
    monkeypatch.setattr(SassRun, "axes_read", followed.Run.axes_read)
    every = executed()
    asked = []

    def asking(run: SassRun, needed: Slice) -> Collection[int]:
        asked.append([*read(run, needed)])
        return asked[-1]

    monkeypatch.setattr(SassRun, "axes_read", asking)
    assert executed() == every
    assert asked == [[0]]


def multiplied(arch: str, size: int, inner: int, **options: int) -> tuple[Texts, dict[str, Any]]:
    """Return the texts of a product of square matrices in blocks of 128, and its arguments."""
    half, numbers_of = Pointer("float16", 1 << 30), (size,) * 3 + (size, 1) * 3
    block = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": inner}
    constexprs = {**block, "GROUP_SIZE_M": 8, "ACTIVATION": ""}
    launch = Launch((half, half, half, *numbers_of), {**constexprs, "num_warps": 4, **options})
    return compiled(matmul, launch, arch)


@pytest.mark.parametrize("num_ctas", [2, 4])
def test_ctas_of_a_cluster_do_what_its_source_says(num_ctas: int) -> None:
    """The CTAs of clusters together store and multiply what the source says.

    They load at least as much as the source says, because CTAs that share a block each load it.
    """
    size = 256
    texts, arguments = multiplied("90", size, 64, num_ctas=num_ctas)
    assert texts.num_ctas == num_ctas
    found = execute(texts, arguments, (4,))
    counts = count(read_ttir(texts.ttir), arguments, (4,))
    assert found.program is not None
    assert not found.unknowns
    assert not doubts(counts, found)
    moved = {"load": 0, "store": 0}
    for one in found.accesses:
        name = "load" if one.operation == "copy" else one.operation
        moved[name] += (one.threads.exact or 0) * one.thread_bytes
    assert moved["store"] == size * size * 2
    assert moved["load"] >= 2 * 2 * size * size * 2


@pytest.mark.parametrize("num_stages", [1, 3])
def test_passes_of_blackwells_products_are_skipped(
    num_stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """80 blocks are enough for 64 passes in which a warp may retry a wait."""
    monkeypatch.setattr(SassRun, "most_blocks", 80)
    texts, arguments = multiplied("100", 4096, 64, num_stages=num_stages)
    found = execute(texts, arguments, (1024,))
    loop = max(found.loops, key=lambda one: one.instructions)
    passes = 64 if num_stages == 1 else 63  # the last pass is behind the loop
    assert loop.trips.high == loop.entered.high * passes == 1024 * texts.num_warps * passes
    loaded = [one for one in found.accesses if one.operation in {"load", "copy"}]
    moved = sum((one.threads.high or 0) * one.thread_bytes for one in loaded)
    assert moved == 2 * 1024 * 64 * 128 * 64 * 2


@pytest.mark.slow
def test_arrays_for_unusual_arguments_are_not_used() -> None:
    """Arrays in local memory that sines only use for large arguments count as usually unused."""
    numbers = tensor((1 << 24,), "float32")
    run = dry_run(sines, "h100")[(1 << 14,)](numbers, numbers, 1 << 24, BLOCK=1024)
    (record,) = run.records
    executed, memory, light = record.executed, record.memory, record.speed_of_light
    assert executed is not None
    assert executed.program is not None
    assert not executed.program.has_local
    assert executed.kinds["local_loads"].low == 0 < executed.kinds["local_loads"].most
    assert memory is not None
    assert memory.l2_bytes is not None
    assert 2 * memory.l2_bytes.low < memory.l2_bytes.most
    assert record.prediction is not None
    assert light is not None
    assert record.prediction.us < 1.5 * (light.us or 0)


def test_slow_paths_of_divisions_and_roots_are_left_out() -> None:
    """Subroutines that only infinite, denormal and such numbers need leave no number open."""
    numbers = tensor((1 << 24,), "float32")
    (record,) = dry_run(divisions, "h100")[(1 << 14,)](
        numbers, numbers, 1 << 24, BLOCK=1024
    ).records
    assert record.executed is not None
    assert record.executed.unknowns == ()
    assert record.executed.instructions.exact is not None
    assert record.prediction is not None
    assert record.prediction.bound == "bandwidth"


@pytest.mark.parametrize(("sem", "fences"), [("acq_rel", 4.0), ("relaxed", 0.0)])
def test_additions_wait_for_fences_unless_they_are_relaxed(sem: str, fences: float) -> None:
    """Each warp of a program waits before its addition by Triton's default, and else never."""
    x, out = tensor((1 << 20,), "float32"), tensor((1 << 20,), "float32")
    run = dry_run(add_rows, "h200")[(16384,)](x, out, WIDTH=512, ROWS=64, SEM=sem)
    (record,) = run.records
    assert record.executed is not None
    assert record.executed.program is not None
    assert record.executed.program.fences == fences
