"""The dry runs of a script's launch lines, whose neighbours the script's process compiles."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from in_process import run

from occupancy_lab.compiling.script import Run, Script
from occupancy_lab.errors import InputError
from occupancy_lab.explaining.script_lines import script_lines
from occupancy_lab.gpus import find_gpu
from occupancy_lab.record import Record
from occupancy_lab.tracing.script_runs import explain_script

SCRIPT = """
import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": size}, num_warps=2) for size in (64, 128)], key=["n"])
@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + where, tl.load(x + where, mask=where < n) * 2, mask=where < n)


def main():
    x = torch.rand(1000, device="cuda")
    double[lambda named: (triton.cdiv(1000, named["BLOCK"]),)](x, 1000)
    double.fn[(4,)](x, 1000, BLOCK=256)
"""
UNTUNED = SCRIPT.replace("    double[lambda", "    lambda x, n: double[lambda")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the script."""
    return tmp_path / "bench.py"


def test_a_neighbour_has_the_grid_that_the_script_would_give_it(path: Path) -> None:
    """The script's own grid function calculates the grid of other blocks.

    With a fixed grid, larger blocks keep the grid, and smaller blocks get a larger one.
    """
    text = SCRIPT.replace("1000", "10000000").replace("(4,)", "(78125,)").replace("256", "128")
    grid = 'lambda named: (triton.cdiv(10000000, named["BLOCK"]),)'
    text = text.replace(f"double[{grid}](x, 10000000)", f"double.fn[{grid}](x, 10000000, BLOCK=64)")
    path.write_text(text, encoding="utf-8")
    with Script(Run(f"{path}:main", find_gpu("h100"))) as script:
        found = [(one.run.cases[0], one.run.to_markdown()) for one in script_lines(script)]
    (free, page), (fixed, _) = found
    grids = {
        one.changes["BLOCK"]: one.record.launch.grid
        for one in free.neighbours
        if "BLOCK" in one.changes
    }
    assert {32, 128, 256} <= grids.keys()
    assert grids == {size: (-(-10000000 // size),) for size in grids}
    assert re.search(r"- \*\*H100 SXM\*\*: BLOCK (256|512|1024|2048|4096) ", page)
    assert re.search(r"- Starting 156250 programs takes .* us of .* us by itself; what ", page)
    assert all(
        one.changes.get("BLOCK", 128) >= 128 or one.changes["grid"] == (10000000 // 64,)
        for one in fixed.neighbours
    )


@pytest.mark.usefixtures("alone")
def test_a_script_fails_if_nothing_compiles(path: Path) -> None:
    """`explain` exits with 1 if no launch compiles, and with 0 if one does."""
    path.write_text(SCRIPT.replace("BLOCK=256", "BLOCK=250"), encoding="utf-8")
    assert run("explain", f"{path}:main", "--gpu", "h100").returncode == 0
    path.write_text(path.read_text().replace("(64, 128)", "(60,)"), encoding="utf-8")
    done = run("explain", f"{path}:main", "--gpu", "h100")
    assert done.returncode == 1
    assert "cannot compile double" in " ".join(done.stdout.split())


@pytest.mark.usefixtures("alone")
def test_what_did_not_compile_is_compiled_again(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing import that was added mends a launch at once; `--retry-failed` is for the rest."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "store"))
    uses = UNTUNED.replace("* 2", "* twice(2)") + "\n\n@triton.jit\ndef once(x):\n    return x\n"

    def reasons(text: str, *more: str) -> list[str]:
        path.write_text(text, encoding="utf-8")
        done = run("explain", f"{path}:main", "--gpu", "h100", "--json", *more)
        return [one["reason"] for one in json.loads(done.stdout)["lines"]]

    (missing,) = reasons(uses)
    assert "twice is not defined" in missing
    assert "remembered" not in missing
    assert reasons(uses.replace("def once", "def twice")) == [None]
    wrong = UNTUNED.replace("BLOCK=256", "BLOCK=250")
    assert "remembered" in reasons(wrong)[0]
    (failure,) = tmp_path.glob("store/failures/*/*.json")
    before = failure.stat().st_mtime_ns
    assert "remembered" in reasons(wrong, "--retry-failed")[0]
    assert failure.stat().st_mtime_ns > before


@pytest.mark.usefixtures("alone")
def test_a_script_on_several_gpus_is_counted_once(path: Path) -> None:
    """A launch line counts once whatever the GPUs, and has a row for each GPU, failed or not."""
    wide = SCRIPT.replace("BLOCK=256", "BLOCK=256, num_ctas=2")
    path.write_text(wide, encoding="utf-8")
    found = explain_script(f"{path}:main", gpu="h100,mi300x")
    page = found.to_markdown()
    assert "for h100 and mi300x" in page.splitlines()[0]
    assert [row[:2] for row in found.to_document().sections[0].tables[0].rows] == [
        ("h100", "2 of 2"),
        ("mi300x", "1 of 2"),
    ]
    lines = found.to_dict()["lines"]
    assert [line["gpu"] for line in lines] == ["h100", "h100", "mi300x", "mi300x"]
    assert "num_ctas" in lines[3]["reason"]
    assert re.search(r"MI300X: double, .*num_ctas 2", page)


def test_values_choose_configurations_and_replace_what_other_launches_pass(path: Path) -> None:
    """Each of several values is a launch, whose grid the script's own function calculates.

    An autotuner is asked for its configurations with the values; a kernel without it gets them.
    """
    grid = '[lambda named: (triton.cdiv(1000, named["BLOCK"]),)]'
    path.write_text(SCRIPT.replace("[(4,)]", grid), encoding="utf-8")
    found = explain_script(f"{path}:main", gpu="h100", constexprs="BLOCK=64,512", compared=False)
    sizes = [
        [(one.arguments["BLOCK"], one.launch.grid) for one in run.records] for run in found.runs
    ]
    assert sizes == [[(64, (16,))], [(64, (16,)), (512, (2,))]]


def test_heuristics_follow_a_replaced_value(path: Path) -> None:
    """What heuristics set is calculated from the value that replaces the script's."""
    decorator = '@triton.heuristics({"TWICE": lambda named: named["BLOCK"] * 2})\n@triton.jit'
    text = SCRIPT.replace("@triton.jit", decorator).replace("n, BLOCK:", "n, TWICE, BLOCK:")
    path.write_text(text.replace("TWICE,", "TWICE: tl.constexpr,"), encoding="utf-8")
    found = explain_script(f"{path}:main", gpu="h100", constexprs="BLOCK=64", compared=False)
    values = [
        [(one.arguments["BLOCK"], one.arguments["TWICE"]) for one in run.records]
        for run in found.runs
    ]
    assert values == [[(64, 128)], [(64, 128)]]


def test_a_neighbour_of_a_replaced_value_keeps_it(path: Path) -> None:
    """What the page proposes are changes of what was asked for, not of what the script has."""
    grid = '[lambda named: (triton.cdiv(10000000, named["BLOCK"]),)]'
    text = UNTUNED.replace("1000", "10000000").replace("[(4,)]", grid)
    path.write_text(text, encoding="utf-8")
    with Script(Run(f"{path}:main", find_gpu("h100"))) as script:
        (line,) = script_lines(script, {"num_warps": (8,)})
        first, run = line.first, line.run
        (case,) = run.cases
    assert case.record.num_warps == 8
    assert first.tuned == {"num_warps": 8}
    assert run.tried == run.to_dict()["changes"]
    assert len(run.tried) == len(case.neighbours)
    assert sum(one["is_best"] for one in run.tried) <= 1
    others = [one.record for one in case.neighbours if {*one.changes} == {"BLOCK"}]
    assert {one.num_warps for one in others if one is not None} == {8}


TABLE = """
import torch
import triton
import triton.language as tl


@triton.jit
def total(x, ends, y, BLOCK: tl.constexpr):
    sums = tl.zeros([BLOCK], tl.float32)
    for at in range(tl.load(ends + tl.program_id(0))):
        sums += tl.load(x + at * BLOCK + tl.arange(0, BLOCK))
    tl.store(y + tl.arange(0, BLOCK), sums)


def main():
    x, y = torch.rand(1 << 20, device="cuda"), torch.rand(1024, device="cuda")
    total[(64,)](x, torch.full((64,), 40, device="cuda"), y, BLOCK=256)
"""


def test_a_replaced_value_leaves_those_of_tensors(path: Path) -> None:
    """A launch with another block still knows the numbers in small tensors of the script."""
    path.write_text(TABLE, encoding="utf-8")
    ((small,), (large,)) = (
        explain_script(f"{path}:main", gpu="h100", constexprs=f"BLOCK={size}", compared=False).runs
        for size in (128, 512)
    )
    loads = [one.records[0].counts.accesses[-2].bytes for one in (small, large)]
    assert [one.typical for one in loads] == [64 * 40 * 4 * size for size in (128, 512)]


def test_an_option_of_one_vendor_is_passed_to_that_vendor_only(path: Path) -> None:
    """`maxnreg` caps registers on an H100 and is left out for an MI300X."""
    path.write_text(SCRIPT, encoding="utf-8")
    found = explain_script(f"{path}:main", gpu="h100,mi300x", options="maxnreg=24", compared=False)
    options = {line.gpu.key: line.record.options for line in found.lines if line.record is not None}
    assert options["h100"]["maxnreg"] == 24
    assert "maxnreg" not in options["mi300x"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"num_warps": 8}, "no configuration with 'num_warps=8'; there are num_warps=2"),
        ({"num_stages": 0}, "num_stages is '0'; give a whole number"),
        ({"constexprs": "N=1"}, "no kernel that .* has the constexpr N; what they have is BLOCK"),
        ({"options": "registers=64"}, "--option registers is no option of Triton's compiler"),
    ],
)
def test_values_that_no_launch_takes_are_refused(
    path: Path, asked: dict[str, Any], said: str
) -> None:
    """The message names the value and what can be given."""
    path.write_text(SCRIPT, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        explain_script(f"{path}:main", gpu="h100", **asked)


def test_a_constexpr_is_no_option(path: Path) -> None:
    """`--option` of a constexpr that no autotuner sets names the option for it."""
    path.write_text(UNTUNED, encoding="utf-8")
    with pytest.raises(InputError, match=r"BLOCK is a constexpr of .*; give it by --constexpr"):
        explain_script(f"{path}:main", gpu="h100", options="BLOCK=64")


ASKING = """


def asking():
    if torch.rand(1 << 20, device="cuda").max().item() > 3:
        main()
"""


@pytest.mark.usefixtures("alone")
def test_an_assumed_value_that_prevents_a_launch_is_named(path: Path) -> None:
    """The message has the assumed value and its line, and --assume can set it."""
    path.write_text(SCRIPT + ASKING, encoding="utf-8")
    done = run("explain", f"{path}:asking", "--gpu", "h100")
    line = SCRIPT.count("\n") + ASKING.partition("if")[0].count("\n") + 1
    said = f"launches no Triton kernel; assumed: nan for a value at {path}:{line}, which --assume"
    assert done.returncode == 2
    assert said in done.stderr
    given = ["float=5", "x=64", "int=64", "bench.py:1=3"]
    page = explain_script(f"{path}:asking", gpu="h100", assume=given).to_markdown()
    assert "Assumed: 5 for a value at" in page
    unused = re.findall(r"Nothing asked for a value that `--assume (.*)` gives", page)
    assert unused == ["int=64", "bench.py:1=3"]
    assert len(explain_script(f"{path}:asking", gpu="h100", assume={"float": 5}).lines) == 2


HALVING = """
@triton.jit
def halve(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    numbers = tl.load(x + at)
    while tl.max(numbers) > 1:
        numbers = numbers // 2
    tl.store(y + at, numbers)


def halving():
    x = torch.empty(1 << 20, dtype=torch.int32, device="cuda")
    halve[(1024,)](x, torch.empty_like(x), BLOCK=1024)
"""


def test_trips_are_assumed_of_the_loops_of_a_script(path: Path) -> None:
    """A launch of a script takes the trips of a loop, and a line without one is refused."""
    path.write_text(SCRIPT + HALVING, encoding="utf-8")
    line = SCRIPT.count("\n") + HALVING.partition("while")[0].count("\n") + 1

    def launched(*assume: str) -> Record:
        name = f"{path}:halving"
        (one,) = explain_script(name, gpu="h100", assume=assume, compared=False).lines
        (record,) = one.run.records
        return record

    assert launched().prediction is None
    record = launched(f"trips@{line}=9", "int=64")
    assert record.prediction is not None
    assert [one.trips.exact for one in record.counts.loops] == [9 * 1024]
    with pytest.raises(
        InputError, match=rf"trips@{line + 1} is of a line without a loop.*: {line}$"
    ):
        launched(f"trips@{line + 1}=9")
