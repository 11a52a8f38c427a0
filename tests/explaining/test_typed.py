"""Commands that go on from a launch as a command line described it."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from in_process import run
from stand_ins import GivenCompiler

from occupancy_lab.explaining import dry_run
from occupancy_lab.explaining.dry_run import explain_launch
from occupancy_lab.explaining.tried import grid_by, tune_blocks
from occupancy_lab.values import Resources

FILE = f"{__file__.rpartition('explaining')[0]}launched_kernels.py"


def command(**asked: Any) -> str:
    """Return the command that ranks blocks of a launch on an H100, without its beginning."""
    given = {"kernel": f"{FILE}:transpose", "signature": "*fp16,*fp16,M=4096,N=2048", **asked}
    (case,) = explain_launch(**given, gpu="h100").cases
    assert case.typed is not None
    beginning = f"occupancy-lab tune {shlex.quote(f'{FILE}:transpose')} --gpu h100 "
    found = tune_blocks(case, case.typed, "BLOCK", "BLOCK=64,128")
    assert found.startswith(beginning)
    return found.removeprefix(beginning)


def test_the_command_has_all_that_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option of the launch is there, the block with its sizes and a grid that goes by it."""
    given = GivenCompiler(lambda *_: Resources(32, 8, 16, local_bytes=0))
    monkeypatch.setattr(dry_run, "Compiler", lambda *_, **__: given)
    signature = "--signature '*fp16,*fp16,M=4096,N=2048' --constexpr BLOCK=64,128"
    typed = {"constexprs": ("BLOCK=64",), "options": ["maxnreg=64"], "num_warps": [8]}
    assert command(**typed, grid="64x32", bytes_read="2 * M") == (
        f"{signature} --option maxnreg=64 --grid 'cdiv(M, BLOCK), cdiv(N, BLOCK)' --num-warps 8"
        " --bytes-read '2 * M'"
    )
    assert command(constexprs={"BLOCK": 64}, grid="cdiv(M, BLOCK) * 32") == (
        f"{signature} --grid 'cdiv(M, BLOCK) * 32'"
    )
    assert command(constexprs="BLOCK=64", grid=(7, 1)) == f"{signature} --grid '7, 1'"


@pytest.mark.slow
def test_the_command_of_a_page_ranks_blocks() -> None:
    """What a page says to run of a launch that was typed can be run as it stands."""
    signature = ("--signature", "*fp16,*fp16,M=4096,N=2048", "--gpu", "h100")
    launch = ("--constexpr", "BLOCK=64", "--grid", "64x32", "--format", "markdown")
    page = run("explain", f"{FILE}:transpose", *signature, *launch).stdout
    (found,) = re.findall(r"`occupancy-lab (tune .*)` ranks blocks further away", page)
    ranked = run(*shlex.split(found))
    assert ranked.returncode == 0
    assert "These are 4" not in ranked.stdout
    assert "cdiv(M, BLOCK), cdiv(N, BLOCK)" in found
    assert "does not do the whole work" not in ranked.stdout


@pytest.mark.parametrize("columns", [2048, 4096])
def test_each_dimension_goes_by_the_block_of_its_name(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of blocks of one size that which ends with a number's name covers that number, once."""
    given = GivenCompiler(lambda *_: Resources(32, 8, 16, local_bytes=0))
    monkeypatch.setattr(dry_run, "Compiler", lambda *_, **__: given)
    (case,) = explain_launch(
        kernel=f"{FILE}:tiles",
        signature=f"*fp16,*fp16,M=4096,N={columns}",
        constexprs=("BLOCK_M=64", "BLOCK_N=64"),
        grid=f"64x{columns // 64}",
        gpu="h100",
    ).cases
    expected = "cdiv(M, BLOCK_M), cdiv(N, BLOCK_N)"
    assert grid_by(case.record, None, "BLOCK_M") == expected
    assert grid_by(case.record, None, "BLOCK_N") == expected
