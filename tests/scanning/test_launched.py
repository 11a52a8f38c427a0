"""The launch of a cache entry, from its source or the user, and its predicted time."""

from __future__ import annotations

import ast
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from occupancy_lab import InputError, explain, find_gpu, scan
from occupancy_lab.expressions import parse
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.scanning.cache import CachedKernel, find_entries, read_entry
from occupancy_lab.scanning.launched import launch_of
from occupancy_lab.scanning.page import LAUNCH_COLUMNS
from occupancy_lab.scanning.recorded import Parameter, Recorded
from occupancy_lab.tracing.dry import dry_trace

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Cache

N = 1 << 20
GRID = "cdiv(N, BLOCK_SIZE)"


def row_of(cache: Cache, kernel: str, **asked: Any) -> dict[str, Any]:
    """Return the row of the first entry of a kernel in the cache."""
    return scan(cache.entry(kernel), **asked).rows()[0]


def inductor_function(grid_type: str = "Grid2D", sizes: str = "") -> ast.FunctionDef:
    """Return a kernel like those of torchinductor, with *sizes* in its body."""
    source = (
        f"@triton_heuristics.pointwise(inductor_meta={{'kernel': 1, 'grid_type': '{grid_type}'}})\n"
        "@triton.jit\n"
        "def kernel(x, xnumel, ynumel, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr):\n"
        f"    {sizes or 'pass'}\n"
    )
    (function,) = ast.parse(source).body
    return function


def grid_of(cache: Cache, recorded: Recorded, **described: Any) -> tuple[int, ...] | None:
    """Return the grid of an entry with this *recorded* launch."""
    (entry,) = find_entries([cache.entry("scale")]).entries
    kernel = read_entry(entry)
    assert isinstance(kernel, CachedKernel)
    calculation = calculate(kernel.resources, find_gpu("h100"))
    found = launch_of(kernel, recorded, calculation, **described)
    return None if found is None else found.record.launch.grid


@pytest.mark.parametrize("kernel", ["scale", "row_softmax", "product"])
def test_a_described_launch_has_the_numbers_of_explain(cache: Cache, kernel: str) -> None:
    """The counts and the time are those of `explain` for a launch within a program."""
    said = {"grid": "1024", "assume": "N=4096"}
    row = row_of(cache, kernel, gpu="h100", **said)
    one = cache.compiled[cache.entry(kernel).name]
    options = [f"maxnreg={one.metadata.maxnreg}"] if one.metadata.maxnreg else []
    dtype = "fp16" if kernel == "product" else "fp32"
    explained = explain(
        kernel=f"{cache.source}:{kernel}",
        signature=f"X=*{dtype},Y=*{dtype},N=4096",
        constexprs=[f"BLOCK_SIZE={row['constexprs']['BLOCK_SIZE']}", "FACTOR=2"],
        num_warps=one.metadata.num_warps,
        num_stages=one.metadata.num_stages,
        options=options,
        grid="1024",
        gpu="h100",
    )
    (record,) = explained.records
    launch = dataclasses.replace(record.launch, in_program=True)
    expected = dataclasses.replace(record, launch=launch).with_time().row()
    for name in LAUNCH_COLUMNS:
        assert row[name] == expected[name], name
    assert row["flops"] or kernel == "scale"


def test_a_grid_is_calculated_from_known_names(cache: Cache) -> None:
    """The grid of each kernel uses its constexprs and the assumed numbers."""
    rows = scan(cache.folder, grid=GRID, assume={"N": N}).rows()
    known = [row for row in rows if "BLOCK_SIZE" in row["constexprs"]]
    assert known
    for row in known:
        assert row["grid"] == str(-(-N // row["constexprs"]["BLOCK_SIZE"]))
        assert (row["predicted_us"] is None) == bool(row["why_not_counted"])
    assert all(row["grid"] == "" for row in scan(cache.folder, grid=GRID).rows())
    assert row_of(cache, "scale", grid="32x8")["num_programs"] == 256


def test_times_can_be_left_out(cache: Cache) -> None:
    """Without `times` the columns of a launch are empty."""
    row = row_of(cache, "scale", grid="1", assume="N=16", times=False)
    assert row["predicted_us"] is row["flops"] is None


def test_a_number_must_be_divisible_as_compiled(cache: Cache) -> None:
    """An entry that was compiled for multiples of 16 is not launched with 17."""
    assert row_of(cache, "scale", grid="1", assume="N=32")["predicted_us"]
    assert row_of(cache, "scale", grid="1", assume="N=17")["predicted_us"] is None


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"assume": "M=3"}, "no parameter"),
        ({"grid": "cdiv(N"}, "cdiv"),
        ({"grid": "N == 4"}, "N == 4"),
    ],
)
def test_invalid_arguments_are_refused(cache: Cache, asked: dict[str, Any], words: str) -> None:
    """An invalid grid or assumption raises one sentence that names it."""
    with pytest.raises(InputError, match=words):
        scan(cache.folder, **asked)


@pytest.mark.parametrize(
    ("grid_type", "sizes", "expected"),
    [
        ("Grid1D", "xnumel = 1000", (8,)),
        ("Grid2D", "xnumel = 1000; ynumel = 64", (8, 4)),
        ("Grid2DWithYZOverflow", "xnumel = 1000; ynumel = 64", (8, 4)),
        ("Grid2DWithYZOverflow", "xnumel = 128; ynumel = 3 << 20; ynumel = 2097152", (1, 43691, 3)),
        ("Grid2D", "xnumel = 1000", None),
        ("Grid1D", "x = 1000", None),
        ("CooperativeReductionGrid", "xnumel = 1000", None),
    ],
)
def test_grids_of_torchinductor(
    cache: Cache, grid_type: str, sizes: str, expected: tuple[int, ...] | None
) -> None:
    """Sizes are divided by blocks as in torchinductor's GridExpr; other grids are not known."""
    function = inductor_function(grid_type, sizes)
    recorded = Recorded({"XBLOCK": 128, "YBLOCK": 16}, (), function=function)
    assert grid_of(cache, recorded) == expected


def test_a_grid_needs_a_known_block(cache: Cache) -> None:
    """A block that is set in the function is known; a parameter without a record is not."""
    sizes = "xnumel = 1000"
    assert grid_of(cache, Recorded({}, function=inductor_function("Grid1D", sizes))) is None
    within = inductor_function("Grid1D", f"{sizes}; XBLOCK: tl.constexpr = 8")
    assert grid_of(cache, Recorded({}, function=within)) == (125,)


def test_torchinductors_sizes_win_over_assumptions(cache: Cache) -> None:
    """A torchinductor kernel keeps the size in its source, whatever is assumed for the name."""
    function = inductor_function("Grid1D", "xnumel = 1000")
    recorded = Recorded({"XBLOCK": 128}, (Parameter("xnumel", "i32"),), function=function)
    assert grid_of(cache, recorded, grid=(parse("7"),), assume={"xnumel": 5}) == (8,)


COMPILED = """
import torch

@torch.compile
def step(x, weight):
    x = torch.nn.functional.layer_norm(x, (x.shape[-1],), weight)
    return torch.softmax(x.transpose(0, 1) * 2, -1).sum(0), x.t().contiguous()

step(torch.randn(2048, 768, device="cuda"), torch.ones(768, device="cuda"))
"""


def test_launches_of_torch_compile_are_as_a_dry_run_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each traced launch is an entry with the same bytes and time, without further arguments."""
    program = tmp_path / "program.py"
    program.write_text(COMPILED, encoding="utf-8")
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    traced = dry_trace(["python", str(program)], gpu="h100").rows()
    rows = scan(tmp_path / "store" / "triton-cache", gpu="h100").rows()
    assert len(traced) > 1
    for kernel in traced:
        names = ("kernel", "num_warps", "n_regs", "dram_read_bytes", "predicted_us")
        assert [kernel[name] for name in names] in [[row[name] for name in names] for row in rows]
