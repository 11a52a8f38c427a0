"""Larger grids for launches that do not fill the GPU, and whether they do the same work."""

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import launched_kernels
import pytest
from hand_made import matmul

from occupancy_lab import dry_run, tensor
from occupancy_lab.comparing.comparison import compare, compare_launches
from occupancy_lab.explaining import advice
from occupancy_lab.explaining.advice import change_if
from occupancy_lab.explaining.dry_run import explain_launch
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.grids import (
    doing_less,
    grid_changes,
    grids_of_blocks,
    has_idle_programs,
    moved_bytes,
    multiplies_otherwise,
    same_work,
)
from occupancy_lab.explaining.neighbours import (
    Neighbour,
    changed,
    fastest_grids,
    first_of,
    predicted_us,
)
from occupancy_lab.sweeping.run import run
from occupancy_lab.table.rows import Exports, View
from occupancy_lab.text.document import Table
from occupancy_lab.tuning.search import tune_launches
from occupancy_lab.work.counts import NOTHING, Amount, Counts, Loop, Place

ROWS, COLS = 8192, 2048
X = tensor((ROWS, COLS), "bfloat16")
PARTS = tensor((132, COLS), "float32")


def summed(programs: int = 132, rows: int | None = None) -> Explanation:
    """Return the dry run of a sum in parts over this many programs."""
    lab = dry_run(launched_kernels.sum_in_parts, "h100")
    share = -(-ROWS // programs) if rows is None else rows
    return lab[(programs,)](X, PARTS, ROWS, COLS, share, BLOCK=2048, num_warps=8)


def scaled(kernel: Any, programs: int, *numbers: int) -> Explanation:
    """Return the dry run of a kernel that doubles rows over this many programs."""
    return dry_run(kernel, "h100")[(programs,)](X, X, *numbers, BLOCK=2048, num_warps=8)


def larger(run: Explanation) -> list[Neighbour]:
    """Return the neighbours with a larger grid that do the same work."""
    (case,) = run.cases
    return [one for one in case.neighbours if "grid" in one.changes]


@pytest.mark.slow
def test_the_share_of_a_program_shrinks_as_the_grid_grows(only: Callable[..., None]) -> None:
    """The rows per program are divided anew, and the page names the tensor that grows."""
    only("grid", "rows_per_program")
    run = summed()
    found = {one.words: one for one in larger(run)}
    (record,) = run.records
    most = record.calculation.resident_programs or 0
    shares = [-(-ROWS // programs) for programs in (264, 528, most)]
    words = [f"grid {-(-ROWS // share)} and rows_per_program {share}" for share in shares]
    assert [*found] == words
    for one in found.values():
        assert one.record.plan.num_programs == one.changes["grid"][0] <= most
    first = run.to_document().answer[0]
    assert " instead of 63 (if" in first
    assert "(if its results stay right, and parts_ptr grows with the grid): " in first
    assert "as 132 programs take" in first


@pytest.mark.slow
@pytest.mark.parametrize(("adds", "split"), [(True, 4), (False, 1)])
def test_a_sum_is_split_among_more_programs(
    split: int, only: Callable[..., None], *, adds: bool
) -> None:
    """A sum over few programs is split further; a tensor that is then added to must be zeroed."""
    only("SPLIT_K")
    a, b, c = (tensor(one, "float16") for one in ((64, 8192), (8192, 2048), (64, 2048)))
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
    lab = dry_run(launched_kernels.split_k, "h100")
    grid = lambda named: (32, named["SPLIT_K"])  # noqa: E731 - as a launch line has it
    run = lab[grid](a, b, c, 2048, 8192, **blocks, SPLIT_K=split, ADDS=adds)
    (case,) = run.cases
    splits = [one for one in case.neighbours if [*one.changes] == ["SPLIT_K"]]
    found = {one.changes["SPLIT_K"]: one for one in splits}
    assert {split * 2, split * 4} <= found.keys()
    for parts, one in found.items():
        assert one.record.launch.grid == (32, parts)
    first = run.to_document().answer[0]
    zero = "" if adds else ", and c_ptr is zeroed before the launch"
    assert f"SPLIT_K 16 instead of {split} (if its results stay right{zero}): " in first
    assert f"as {32 * split} programs take" in first


def test_a_split_over_an_unchanged_grid_is_other_work(only: Callable[..., None]) -> None:
    """A larger split over the same grid leaves parts of the sum out, so it is no neighbour."""
    only("SPLIT_K")
    described = {"signature": "*fp16,*fp16,*fp16,2048,8192", "grid": "32,3", "gpu": "h100"}
    constexprs = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "SPLIT_K": 2, "ADDS": True}
    run = explain_launch(launched_kernels.split_k, constexprs=constexprs, **described)
    assert not any("SPLIT_K" in one.changes for one in run.cases[0].neighbours)


def test_a_larger_grid_has_no_idle_programs() -> None:
    """576 programs would fit, but 4096 rows in shares of 8 need only 512."""
    shape = {"arguments": {"n_rows": 4096, "rows": 64}, "tiles": ()}
    plan = SimpleNamespace(grid=(64,), resident_programs=592)
    known = SimpleNamespace(low_us=1.0, unknowns=())
    record: Any = SimpleNamespace(**shape, matrix=None, plan=plan, prediction=known, counts=known)
    found = [(one["grid"], one["rows"]) for one in grid_changes(record)]
    assert found == [((128,), 32), ((256,), 16), ((512,), 8)]


def test_a_grid_is_divided_anew_by_a_product_of_two_numbers() -> None:
    """A plane of 56 x 56 points takes 25 programs with a block of 128, and 13 with 256."""
    plan = SimpleNamespace(grid=(8192, 25))
    record: Any = SimpleNamespace(arguments={"H": 56, "W": 56, "BLOCK": 128}, plan=plan)
    assert (8192, 13) in [one["grid"] for one in grids_of_blocks(record, {"BLOCK": 256})]
    one_less: Any = SimpleNamespace(arguments={"H": 56, "BLOCK": 128}, plan=plan)
    assert [*grids_of_blocks(one_less, {"BLOCK": 256})] == []


def test_growing_tensors_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One or several tensors that grow with the grid are named; options have no condition."""
    record: Any = SimpleNamespace(
        launch=SimpleNamespace(grid=(64,)), num_warps=4, options={}, arguments={}
    )
    for grown, words in (([], ""), (["DW"], ", and DW grows with the grid")):
        monkeypatch.setattr(advice, "grown_tensors", lambda *_, grown=grown: grown)
        monkeypatch.setattr(advice, "added_tensors", lambda *_: [])
        found = change_if(Neighbour({"grid": (512,)}, record), record)
        assert found == f"grid 512 instead of 64 (if its results stay right{words})"
    monkeypatch.setattr(advice, "grown_tensors", lambda *_: ["DW", "DB"])
    assert "and DW and DB grow with the grid)" in change_if(
        Neighbour({"grid": (512,)}, record), record
    )
    assert change_if(Neighbour({"num_warps": 8}, record), record) == "num_warps 8 instead of 4"


@pytest.mark.slow
def test_a_kernel_that_reads_its_number_of_programs_gets_more(only: Callable[..., None]) -> None:
    """For such a kernel only the grid changes, and no tensor grows."""
    only("grid", "BLOCK")
    run = scaled(launched_kernels.scale_in_turns, 132, ROWS, COLS)
    found = larger(run)
    assert found
    alone = [one.changes.keys() for one in found if "BLOCK" not in one.changes]
    assert alone[0] == {"grid"}
    assert all(one <= {"grid", "num_warps"} for one in alone)
    assert "grows with the grid" not in run.to_document().answer[0]


@pytest.mark.slow
@pytest.mark.parametrize("programs", [64, 4096])
def test_other_work_is_no_larger_grid(programs: int, only: Callable[..., None]) -> None:
    """More programs of a kernel with a row each would do more rows; a full GPU has no places."""
    only("grid")
    assert larger(scaled(launched_kernels.scale_a_row, programs, COLS)) == []


@pytest.mark.slow
def test_smaller_groups_are_other_work(only: Callable[..., None]) -> None:
    """The mean of half a group is other work, although bytes and FLOPs are the same."""
    only("grid", "rows_per_group")
    lab = dry_run(launched_kernels.center_groups, "h100")
    run = lab[(128,)](X, X, ROWS, COLS, rows_per_group=64, BLOCK=COLS, num_warps=8)
    (record,) = run.records
    assert {"grid": (256,), "rows_per_group": 32} in [*grid_changes(record)]
    assert larger(run) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sum_up_chunks", "sum_up_chunks_in_turns"])
def test_chunks_of_another_size_are_other_work(name: str, only: Callable[..., None]) -> None:
    """A running sum over a longer chunk is other work, although the bytes are the same."""
    only("BLOCK", "num_stages")
    numbers = 1 << 24
    x = tensor((numbers,), "float32")
    lab = dry_run(getattr(launched_kernels, name), "h100")
    grid = (lambda named: (numbers // named["BLOCK"],)) if name == "sum_up_chunks" else (528,)
    (case,) = lab[grid](x, x, numbers, BLOCK=128).cases
    assert case.neighbours
    assert not any("BLOCK" in one.changes for one in case.neighbours)


@pytest.mark.slow
def test_blocks_whose_scale_is_stored_keep_their_size(only: Callable[..., None]) -> None:
    """The scale of half a block, or of two, is other work, even if idle programs hide it.

    A row that half a tile holds may have a tile of half the size.
    """
    only("BLOCK", "num_stages")
    numbers = 1 << 24
    x, scales = tensor((numbers,), "bfloat16"), tensor((numbers // 64,), "float32")
    lab = dry_run(launched_kernels.quantize, "h200")
    for programs in (numbers // 256, numbers // 128):  # half of these have no work
        (case,) = lab[(programs,)](x, x, scales, numbers, numbers // 64, BLOCK=64).cases
        assert case.neighbours
        assert not any("BLOCK" in one.changes for one in case.neighbours)
    rows, sums = tensor((65536, 1000), "float32"), tensor((65536,), "float32")
    lab = dry_run(launched_kernels.sum_a_row, "h200")
    (case,) = lab[(65536,)](rows, sums, 1000, BLOCK=4096).cases
    blocks = {one.changes["BLOCK"] for one in case.neighbours if "BLOCK" in one.changes}
    assert 2048 in blocks
    assert 8192 not in blocks


@pytest.mark.slow
def test_a_longer_tile_of_a_loop_is_the_same_work(only: Callable[..., None]) -> None:
    """The mean of a row is the same work with more columns at once."""
    only("BLOCK_SIZE")
    wide, row = tensor((256, 65536), "float16"), tensor((65536,), "float16")
    mean = tensor((256,), "float32")
    arguments = (wide, wide, row, row, mean, mean, 65536, 65536, 1e-5)
    (case,) = dry_run(launched_kernels.layer_norm, "h100")[(256,)](*arguments, BLOCK_SIZE=256).cases
    assert any("BLOCK_SIZE" in one.changes for one in case.neighbours)


@pytest.mark.slow
def test_a_share_that_does_not_match_the_grid_stays(only: Callable[..., None]) -> None:
    """If the rows per program are not the rows over the grid, only the grid may change."""
    only("grid")
    run = summed(rows=70)
    (record,) = run.records
    assert {*map(frozenset, grid_changes(record))} == {frozenset({"grid"})}
    assert all(one.record is not None for one in larger(run))
    faster = [one.record.prediction for one in larger(run) if one.record is not None]
    own = record.prediction
    assert own is not None
    assert all(one is None or one.us > own.us * (1 - own.noticeable) for one in faster)


@pytest.mark.slow
def test_a_block_that_leaves_work_undone_is_not_ranked() -> None:
    """A block that does not cover the row is faster, but is never ranked first.

    An explanation, a tuning and a comparison say so in the same sentence, and a sweep has it last.
    """
    asked: dict[str, Any] = {
        "kernel": launched_kernels.scale_a_row,
        "signature": "*fp32,*fp32,4096",
        "constexprs": "BLOCK=1024,2048,4096,8192",
        "grid": "4096",
        "gpu": "h100",
    }
    said = (
        "BLOCK 1024 and BLOCK 2048 do not do the whole work over the same grid, as they read or"
        " write less than BLOCK 4096: they are not ranked."
    )
    explained, (tuned,) = explain_launch(**asked), tune_launches(**asked)
    times = [predicted_us(one) for one in explained.records]
    assert times[0] < min(times[2:])
    assert said in explained.to_markdown()
    assert explained.less_work == [said]
    assert first_of(explained.records).arguments["BLOCK"] in {4096, 8192}
    page = tuned.to_markdown()
    assert said in page
    assert dict(tuned.best.settings)["BLOCK"] in {4096, 8192}
    (best,) = tuned.to_document().sections[0].tables
    assert {row[1] for row in best.rows} == {"4096", "8192"}
    assert "with more stages" not in page
    assert "Measuring all 2 configurations" in page
    asked_by_name = asked | {"kernel": f"{launched_kernels.__file__}:scale_a_row"}
    swept = run(View(), Exports(), launches=explain_launch, form=None, quiet=True, **asked_by_name)
    (rows,) = (one.rows for one in swept.shown if isinstance(one, Table))
    assert [{rows[0][0], rows[1][0]}, {rows[2][0], rows[3][0]}] == [
        {"4096", "8192"},
        {"1024", "2048"},
    ]
    assert ["=" in " ".join(row) for row in rows] == [True, True, False, False]
    compared = compare_launches(**asked).to_document().answer
    assert "BLOCK 4096" in compared[0].partition(" is ")[0] + compared[0].partition(" are ")[0]
    assert compared[1] == said


@pytest.mark.slow
def test_programs_that_write_parts_of_a_sum_leave_nothing_undone() -> None:
    """Fewer programs write fewer parts of the same sum, which is the same work."""
    runs = [*summed(132).records, *summed(264).records]
    written = [moved_bytes(one.counts)["parts_ptr"][1] for one in runs if one.counts]
    assert written[0] < written[1]
    assert doing_less(runs) == {}


@pytest.mark.slow
def test_launches_with_other_arguments_are_not_compared() -> None:
    """A narrower matrix or another kernel does less work without leaving any undone."""
    for cols, kernels in ("781,784", "softmax"), ("781", "softmax,softmax_row"):
        found = compare(cols, gpu="h100", kernel=kernels)
        assert doing_less(found.records) == {}
        assert "the whole work" not in found.to_markdown()


def test_an_argument_that_is_not_passed_cannot_change() -> None:
    """A change of an argument that the launch leaves to its default gives no launch."""
    asked = summed().asked[0]
    assert changed(asked, {"grid": (264,), "another": 3}) is None
    other = changed(asked, {"grid": (264,), "rows_per_program": 32})
    assert other.launch.grid == (264,)
    assert other.launch == dataclasses.replace(
        asked.launch, grid=(264,), arguments=(*asked.launch.arguments[:4], 32)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("grid", "given"),
    [((128, 64), True), (lambda named: (8192 // named["BLOCK"], 4096 // named["BLOCK"]), False)],
)
def test_another_block_has_the_grid_that_covers_as_much(
    grid: Any, only: Callable[..., None], *, given: bool
) -> None:
    """A fixed grid is recalculated for another block; a grid function is left to calculate it."""
    only("BLOCK", "grid")
    x = tensor((8192, 4096), "float16")
    lab = dry_run(launched_kernels.transpose, "h100")
    (case,) = lab[grid](x, x, 8192, 4096, BLOCK=64).cases
    found = [one.changes for one in case.neighbours if "BLOCK" in one.changes]
    assert found
    for one in found:
        covering = (8192 // one["BLOCK"], 4096 // one["BLOCK"])
        assert one.get("grid") == (covering if given else None)


def given(programs: int, *most: int | None, us: float = 9.0) -> Any:
    """Return a launch of this many programs; *most* has the maximum trips of each loop."""
    places = [Place("kernel.py", line) for line, _ in enumerate(most, start=1)]
    loops = [
        Loop(place, 0, NOTHING, NOTHING, 0, times)
        for place, times in zip(places, most, strict=True)
    ]
    counts = Counts(programs, programs, loops=(*loops,))
    return SimpleNamespace(counts=counts, prediction=SimpleNamespace(us=us))


@pytest.mark.parametrize(
    ("larger", "smaller", "idle"),
    [
        (given(8), given(4), True),
        (given(8, 16), given(4, 16), True),
        (given(8, 16), given(4, 32), False),
        (given(8, 16), given(4, None), False),
        (given(4), given(8), False),
        (given(8), given(8), False),
    ],
)
def test_superfluous_programs_are_idle(larger: Any, smaller: Any, *, idle: bool) -> None:
    """Programs are idle if fewer programs do the same work without more trips of a loop."""
    assert has_idle_programs(larger, smaller) is idle


def test_no_grid_with_idle_programs_is_chosen() -> None:
    """A grid with idle programs is left out even if it is predicted to be faster."""
    wide = Neighbour({"BLOCK": 256, "grid": (8, 16), "num_warps": 8}, given(128, us=12.6))
    fitting = Neighbour({"BLOCK": 256, "num_warps": 8, "grid": (4, 16)}, given(64, us=13.3))
    assert [*fastest_grids([wide, fitting])] == [fitting]


@pytest.mark.slow
def test_neighbours_are_distinct_launches(only: Callable[..., None]) -> None:
    """Further changes of blocks have the grid of these blocks, and no launch appears twice."""
    only("BLOCK_M", "BLOCK_N", "grid")
    x = tensor((4096, 4096), "float16")
    lab = dry_run(launched_kernels.tiles, "h100")
    for grid in (
        (1024, 256),
        lambda named: (4096 // named["BLOCK_M"], 4096 // named["BLOCK_N"]),
    ):
        (case,) = lab[grid](x, x, 4096, 4096, BLOCK_M=4, BLOCK_N=16).cases
        records = [one.record for one in case.neighbours if one.record is not None]
        launches = [
            (one.launch.grid, one.num_warps, one.num_stages, repr(one.settings)) for one in records
        ]
        assert len({*launches}) == len(launches)
        for one in records:
            blocks = one.arguments["BLOCK_M"], one.arguments["BLOCK_N"]
            assert one.launch.grid == tuple(4096 // block for block in blocks)


def with_dots(k: int, executions: int) -> Counts:
    """Return a product of matrices whose dots have this k and are executed this often."""
    counts = matmul(1024, 128, 132)
    dot = dataclasses.replace(
        counts.arithmetic[0], shape=(128, 128, k), executions=Amount.of(executions)
    )
    return dataclasses.replace(counts, arithmetic=(dot,))


@pytest.mark.parametrize(
    ("k", "executions", "expected"),
    [(64, 512, False), (128, 512, False), (128, 1024, True), (32, 2048, False), (64, 1024, False)],
)
def test_sums_of_products_have_the_same_length(k: int, executions: int, *, expected: bool) -> None:
    """A loop over K may take other steps, and blocks of rows and columns may change."""
    assert multiplies_otherwise(with_dots(64, 1024), with_dots(k, executions)) is expected


@pytest.mark.slow
def test_the_layout_of_data_is_not_tuned() -> None:
    """Half the page length touches the same bytes, but stores them elsewhere."""
    kernel = dry_run(launched_kernels.store_pages, "h100")
    slots = tensor(range(4096), "int64")
    first, second, third = (
        kernel[(4096 // block,)](X, slots, X, HEAD=128, PAGE=page, BLOCK=block).records[0]
        for page, block in ((16, 64), (8, 64), (16, 32))
    )
    assert not same_work(first, second)
    assert same_work(first, third)


@pytest.mark.slow
@pytest.mark.parametrize(("block", "idle"), [(64, True), (16, False)])
def test_few_programs_in_a_long_loop_are_to_share_it(block: int, *, idle: bool) -> None:
    """A page suggests to divide a long loop if at least half of the multiprocessors are idle."""
    kernel = dry_run(launched_kernels.sum_columns, "h100")
    page = kernel[(COLS // block,)](X, PARTS, ROWS, COLS, BLOCK=block).to_markdown()
    found = (
        "100 of 132 SMs have no program, while each program makes 8192 passes of the loop" in page
    )
    assert found is idle


@pytest.mark.slow
def test_a_larger_grid_that_was_tried_is_no_second_advice(only: Callable[..., None]) -> None:
    """A page that begins with a larger grid does not suggest to divide the loop as well."""
    only("grid", "rows_per_program")
    page = summed(16).to_markdown()
    assert "grid 1024 instead of 16" in page
    assert "Divide these passes" not in page
