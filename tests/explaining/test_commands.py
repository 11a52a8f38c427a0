"""The `tune` commands that a page suggests for a launch described on the command line."""

import dataclasses
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hand_made import matmul
from in_process import run
from stand_ins import GivenCompiler

from occupancy_lab.explaining import commands, dry_run
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.commands import further_blocks, grid_by, tune_blocks
from occupancy_lab.explaining.dry_run import explain_launch
from occupancy_lab.explaining.neighbours import Neighbour
from occupancy_lab.prediction import Part, Prediction
from occupancy_lab.values import Resources

FILE = f"{__file__.rpartition('explaining')[0]}launched_kernels.py"


def case_of(monkeypatch: pytest.MonkeyPatch, kernel: str = "transpose", **asked: Any) -> Case:
    """Return a launch on an H100 that a command line describes."""
    compiler = GivenCompiler(lambda *_: Resources(32, 8, 16, local_bytes=0))
    monkeypatch.setattr(dry_run, "Compiler", lambda *_, **__: compiler)
    given = {"kernel": f"{FILE}:{kernel}", "signature": "*fp16,*fp16,M=4096,N=2048", **asked}
    (case,) = explain_launch(**given, gpu="h100").cases
    return case


def seen_with(case: Case, *grids: tuple[int, ...], **blocks: int) -> Case:
    """Return *case* with neighbours that have these blocks, one for each grid."""
    launch, own = case.record.launch, {**case.record.arguments, **blocks}
    made = [
        dataclasses.replace(
            case.record, arguments=own, launch=dataclasses.replace(launch, grid=grid)
        )
        for grid in grids
    ]
    neighbours = tuple(Neighbour(blocks, one) for one in made)
    return dataclasses.replace(case, neighbours=neighbours)


def test_the_command_has_all_that_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command has every option of the launch, the sizes of the block and the grid."""
    typed = {"constexprs": ("BLOCK=64",), "options": ["maxnreg=64"], "num_warps": [8]}
    case = case_of(monkeypatch, **typed, grid="64x32", bytes_read="2 * M")
    assert case.typed is not None
    assert tune_blocks(case, case.typed, "BLOCK=64,128", "cdiv(M, BLOCK), 32") == (
        f"occupancy-lab tune {shlex.quote(f'{FILE}:transpose')} --gpu h100"
        " --signature '*fp16,*fp16,M=4096,N=2048' --constexpr BLOCK=64,128 --option maxnreg=64"
        " --grid 'cdiv(M, BLOCK), 32' --num-warps 8 --bytes-read '2 * M'"
    )


def test_a_grid_is_inferred_from_the_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dimension that changes with the block is an argument divided by it, or nothing fits."""
    case = case_of(monkeypatch, constexprs="BLOCK=64", grid="64x32")
    assert grid_by(case, "BLOCK") is None
    assert grid_by(seen_with(case, (32, 16), BLOCK=128), "BLOCK") == (
        "cdiv(M, BLOCK), cdiv(N, BLOCK)"
    )
    assert grid_by(seen_with(case, (32, 32), BLOCK=128), "BLOCK") == "cdiv(M, BLOCK), 32"
    assert grid_by(seen_with(case, (33, 16), BLOCK=128), "BLOCK") is None
    assert grid_by(seen_with(case, (64, 32), BLOCK=128), "BLOCK") is None


def test_a_typed_grid_with_the_block_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typed expression is passed on unchanged if it contains the block."""
    given = {"constexprs": "BLOCK=64", "grid": "cdiv(M, BLOCK) * 32"}
    case = seen_with(case_of(monkeypatch, **given), (1024,), BLOCK=128)
    assert grid_by(case, "BLOCK") == "cdiv(M, BLOCK) * 32"
    other = seen_with(case_of(monkeypatch, **{**given, "grid": "M * 1"}), (2048,), BLOCK=128)
    assert grid_by(other, "BLOCK") is None


def test_the_divided_argument_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of equal arguments, the block's name decides; strides are never sizes."""
    case = case_of(
        monkeypatch,
        "tiles",
        signature="*fp16,*fp16,M=4096,N=4096",
        constexprs=("BLOCK_M=64", "BLOCK_N=64"),
        grid="64x64",
    )
    seen = seen_with(case, (32, 64), BLOCK_M=128)
    assert grid_by(seen, "BLOCK_M") == "cdiv(M, BLOCK_M), 64"
    assert grid_by(seen, "BLOCK_N") is None
    record = case.record
    for names, said in ((("rows", "row_stride"), "cdiv(rows, BLOCK_M), 64"), (("a", "b"), None)):
        arguments = {**dict.fromkeys(names, 4096), "BLOCK_M": 64, "BLOCK_N": 64}
        renamed = dataclasses.replace(record, arguments=arguments)
        seen = seen_with(dataclasses.replace(case, record=renamed), (32, 64), BLOCK_M=128)
        assert grid_by(seen, "BLOCK_M") == said


@pytest.mark.parametrize(
    ("columns", "blocks"),
    [(2048, [64, 128, 256, 512]), (512, [64, 128, 256, 512]), (256, []), (64, [])],
)
def test_no_block_is_larger_than_what_it_divides(
    columns: int, blocks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest block covers the whole dimension; if all were tried already, none is named."""
    asked = {"signature": f"*fp16,*fp16,M=64,N={columns}", "grid": f"1x{columns // 64}"}
    case = case_of(monkeypatch, constexprs="BLOCK=64", **asked)
    seen = seen_with(case, (1, -(-columns // 128)), BLOCK=128)
    assert further_blocks(seen, "BLOCK") == blocks


def test_blocks_go_on_in_the_direction_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """If half of a block is faster than twice the block, the blocks named are smaller ones."""
    asked = {"signature": "*fp16,*fp16,M=64,N=2048", "grid": "1x32"}
    case = case_of(monkeypatch, constexprs="BLOCK=64", **asked)

    def neighbour(block: int, us: float) -> Neighbour:
        (one,) = seen_with(case, (1, 2048 // block), BLOCK=block).neighbours
        assert one.record is not None
        part = (Part("issue", us),)
        time = Prediction(us, None, None, part, "", calibrated=True, low_us=us, high_us=us)
        return dataclasses.replace(one, record=dataclasses.replace(one.record, prediction=time))

    for half, double, blocks in ((8.0, 9.0, [64, 32, 16, 8]), (9.0, 8.0, [64, 128, 256, 512])):
        both = (neighbour(32, half), neighbour(128, double))
        seen = dataclasses.replace(case, neighbours=both)
        assert further_blocks(seen, "BLOCK") == blocks
    small = dataclasses.replace(case.record, arguments={**case.record.arguments, "BLOCK": 4})
    with_dots = dataclasses.replace(small, counts=matmul(64, 4, 1))
    faster = (neighbour(2, 8.0), neighbour(8, 9.0))
    seen = dataclasses.replace(case, record=with_dots, neighbours=faster)
    assert further_blocks(seen, "BLOCK") == []  # a product needs 16


@pytest.mark.parametrize(("changed", "said"), [({}, True), ({"is_tuned": True}, False), (8, False)])
def test_blocks_that_spill_or_are_tuned_have_no_command(
    changed: Any, *, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No larger blocks are suggested for a launch that spills or whose blocks are autotuned."""
    case = seen_with(case_of(monkeypatch, constexprs="BLOCK=64", grid="64x32"), (32, 16), BLOCK=128)
    if isinstance(changed, int):
        own = case.record.calculation
        spilling = dataclasses.replace(own, resources=own.resources.replace(local_bytes=changed))
        record = dataclasses.replace(case.record, calculation=spilling)
        case = dataclasses.replace(case, record=record)
    else:
        case = dataclasses.replace(case, **changed)
    assert any(commands.further_away(case)) is said


def test_the_command_starts_from_a_faster_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """If another block with other warps is faster, the command ranks larger ones than that."""
    typed = {"constexprs": ("BLOCK=64",), "num_warps": [4], "grid": "64x32"}
    case = seen_with(case_of(monkeypatch, **typed), (32, 16), BLOCK=128)
    times = [
        Prediction(us, None, None, (Part("issue", us),), "", calibrated=True, low_us=us, high_us=us)
        for us in (9.0, 5.0)
    ]
    (one,) = case.neighbours
    assert one.record is not None
    warps = {"BLOCK": 128, "num_warps": 8}
    faster = dataclasses.replace(
        one, changes=warps, record=dataclasses.replace(one.record, prediction=times[1])
    )
    own = dataclasses.replace(case.record, prediction=times[0])
    (said,) = commands.further_away(dataclasses.replace(case, record=own, neighbours=(faster,)))
    assert "--constexpr BLOCK=128,256,512,1024 --grid" in said
    assert "'cdiv(M, BLOCK), cdiv(N, BLOCK)' --num-warps 8`" in said


MAIN = """
import sys
import torch
sys.path.insert(0, {folder!r})
from launched_kernels import double, transpose

def main():
    x = torch.empty(4096, 2048, dtype=torch.float16, device="cuda")
    transpose[64, 32](x, torch.empty_like(x), 4096, 2048, BLOCK=64)

def follows():
    x = torch.empty(4096, 2048, dtype=torch.float16, device="cuda")
    grid = lambda named: (4096 // named["BLOCK"], 2048 // named["BLOCK"])
    transpose[grid](x, torch.empty_like(x), 4096, 2048, BLOCK=64)

def two():
    follows()
    x = torch.empty(4096, device="cuda")
    double[4](x, x, 4096, BLOCK_SIZE=1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_script", [False, True])
def test_the_command_of_a_page_ranks_blocks(
    tmp_path: Path, only: Callable[..., None], *, is_script: bool
) -> None:
    """The `tune` command that a page prints runs unchanged, of a launch that a script made too."""
    only("BLOCK", "grid")
    if is_script:
        (tmp_path / "main.py").write_text(MAIN.format(folder=str(Path(FILE).parent)))
        launch = (f"{tmp_path / 'main.py'}:main",)
    else:
        signature = ("--signature", "*fp16,*fp16,M=4096,N=2048")
        launch = (f"{FILE}:transpose", *signature, "--constexpr", "BLOCK=64", "--grid", "64x32")
    page = run("explain", *launch, "--gpu", "h100", "--format", "markdown").stdout
    (found,) = re.findall(r"`occupancy-lab (tune .*)` ranks blocks further away", page)
    ranked = run(*shlex.split(found))
    assert ranked.returncode == 0
    assert "These are 4" not in ranked.stdout
    assert "cdiv(M, BLOCK), cdiv(N, BLOCK)" in found
    assert "does not do the whole work" not in ranked.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "option"), [("follows", ""), ("two", " --kernel transpose")])
def test_the_command_of_a_program_is_the_program(
    tmp_path: Path, entry: str, option: str, only: Callable[..., None]
) -> None:
    """If the program's grid follows the block, `tune` finds signature and grid in the program.

    The kernel is named if the program launches several.
    """
    only("BLOCK", "num_warps")
    (tmp_path / "main.py").write_text(MAIN.format(folder=str(Path(FILE).parent)))
    asked = (f"{tmp_path / 'main.py'}:{entry}", "--gpu", "h100", "--num-warps", "8")
    page = run("explain", *asked, "--format", "markdown").stdout
    found, *_ = re.findall(r"`occupancy-lab (tune .*)` ranks blocks further away", page)
    assert found.startswith(f"tune {asked[0]} --gpu h100{option} --constexpr BLOCK=")
    assert re.search(r" --num-warps \d+$", found)
    ranked = run(*shlex.split(found))
    assert ranked.returncode == 0, ranked.stderr
    assert "transpose: 1 size on H100 SXM" in ranked.stdout
