"""The launch lines of a program: its kernels, how launches differ, and what is explained."""

from pathlib import Path

import pytest

from occupancy_lab.explaining.kernel_time import KernelTime
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import cell, duration
from occupancy_lab.tracing.actions import Effort
from occupancy_lab.tracing.dry import LONGEST_LINE, PROFILED, dry_traces
from occupancy_lab.tracing.script_runs import ScriptExplanation, explain_script

SCRIPT = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + where, tl.load(x + where, mask=where < n) * 2, mask=where < n)


def sizes():
    for n in (1000, 1024, 1 << 22):
        x = torch.empty(n, device="cuda")
        for _ in range(3):
            scale[(triton.cdiv(n, 256),)](x, n, BLOCK=256)


def lines():
    x = torch.empty(1 << 22, device="cuda")
    scale[(1 << 14,)](x, 1 << 22, BLOCK=256)
    scale[(1 << 13,)](x, 1 << 22, BLOCK=512)


def unknown():
    x = torch.empty(1 << 22, device="cuda")
    scale[(1 << 14,)](x, 1 << 22, BLOCK=256)
    scale[(4,)](x, 1 << 22, BLOCK=100)


@triton.jit
def power(x, factor, double, BLOCK: tl.constexpr):
    where = tl.arange(0, BLOCK)
    tl.store(x + where, tl.load(x + where) * factor * tl.where(double, 2, 1))


def numbers():
    for factor, double in ((2.5, True), (0.5, False)):
        for dtype in (torch.half, torch.float):
            power[(1,)](torch.empty(256, dtype=dtype, device="cuda"), factor, double, BLOCK=256)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a script."""
    path = tmp_path_factory.mktemp("script") / "bench.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def sizes(path: Path) -> ScriptExplanation:
    """Return the explanation of a line at several sizes."""
    return explain_script(f"{path}:sizes", gpu="h100")


def tables(found: ScriptExplanation) -> tuple[Table, ...]:
    """Return the tables of all kernels and launches."""
    return found.to_document().sections[0].tables


def test_each_kernel_has_its_time_its_range_and_its_share(sizes: ScriptExplanation) -> None:
    """The time of all launches of a kernel is the sum over the lines that launch it."""
    table = tables(sizes)[0]
    assert table.headers == ("kernel", "launches", "us", "range", "lost us", "share")
    (one,) = sizes.traces
    total = KernelTime.total(line.time for line in sizes.lines)
    assert total is not None
    assert sizes.to_document().answer[0].startswith(f"{duration(total.us)} are predicted")
    for kernel, row in zip(one.shown, table.rows, strict=True):
        time = kernel.time
        assert time is not None
        low, high = (cell(each / time.launches) for each in (time.low_us, time.high_us))
        assert row[2:5] == (cell(time.us / time.launches), f"{low} to {high}", cell(time.lost_us))


def test_launches_of_a_line_are_told_apart(sizes: ScriptExplanation) -> None:
    """Each launch has a row with its line, its grid, the numbers that differ, and its time."""
    table = next(one for one in tables(sizes) if "launched by" in one.headers)
    assert table.headers == ("", "launched by", "grid", "passes", "launches", "us")
    assert sorted(row[2] for row in table.rows) == ["16384", "4", "4"]
    times = {str(line.first.bound.arguments["n"]): line.time for line in sizes.lines}
    for row in table.rows:
        assert row[1].startswith("bench.py:1")
        if row[3] != "-":
            time = times[row[3].removeprefix("n ")]
            assert time is not None
            assert row[5] == cell(time.us / 3)


def test_of_many_lines_the_longest_is_explained(sizes: ScriptExplanation) -> None:
    """Of three launches the page explains the one that takes longest, and with full each."""
    (title,) = (one.title for one in sizes.to_document().sections if "scale" in one.title)
    assert title.endswith(" scale, grid 16384, on H100 SXM")
    assert LONGEST_LINE in sizes.to_markdown()
    assert LONGEST_LINE not in sizes.to_document(full=True).to_markdown()
    full = [one.title for one in sizes.to_document(full=True).sections]
    assert len([one for one in full if "scale, grid" in one]) == 3


@pytest.mark.usefixtures("alone")
def test_the_lines_of_few_launches_are_shown_and_explained(path: Path) -> None:
    """Two launches of a kernel are two kernels if their constexprs differ, each explained."""
    found = explain_script(f"{path}:lines", gpu="h100")
    table = next(one for one in tables(found) if "launched by" in one.headers)
    assert [row[1] for row in table.rows] in (
        ["bench.py:22", "bench.py:23"],
        ["bench.py:23", "bench.py:22"],
    )
    assert "scale, grid 8192, on H100 SXM" in found.to_markdown()
    assert "scale, grid 16384, on H100 SXM" in found.to_markdown()


PROGRAM = """

if __name__ == "__main__":
    sizes()
"""


def test_a_program_and_its_function_have_the_same_page(
    sizes: ScriptExplanation, tmp_path: Path
) -> None:
    """`trace --dry-run FILE.py` says what `explain FILE.py:main` says, with the same rows."""
    path = tmp_path / "bench.py"
    path.write_text(SCRIPT + PROGRAM, encoding="utf-8")
    found = dry_traces(("python", str(path)), gpu="h100", effort=Effort(600, 9, -1.0))
    assert found.to_document().answer == sizes.to_document().answer
    parts = [one.to_document().sections for one in (found, sizes)]
    assert [(one.title, one.tables) for one in parts[0]] == [
        (one.title, one.tables) for one in parts[1]
    ]
    assert parts[0][0].sentences == parts[1][0].sentences
    assert found.to_dict()["rows"] == sizes.to_dict()["rows"]


@pytest.mark.usefixtures("alone")
def test_what_differs_may_be_a_number_or_a_dtype(path: Path) -> None:
    """Launches are told apart by the dtypes that they pass; floats and bools tell none apart."""
    found = explain_script(f"{path}:numbers", gpu="h100", compared=False)
    table = next(one for one in found.to_document().sections[0].tables if "passes" in one.headers)
    assert sorted(row[table.headers.index("passes")] for row in table.rows) == [
        "x float16",
        "x float32",
    ]


@pytest.mark.usefixtures("alone")
def test_what_does_not_compile_has_no_time(path: Path) -> None:
    """Its row has dashes, and the page says why."""
    found = explain_script(f"{path}:unknown", gpu="h100")
    assert tables(found)[0].rows[1][2:] == ("-",) * 4
    assert "BLOCK 100: Triton" in found.to_markdown()
    assert [line.why_not is None for line in found.lines] == [True, False]


@pytest.mark.usefixtures("alone")
def test_where_no_time_is_predicted_there_are_no_columns_of_times(path: Path) -> None:
    """The launches of an architecture, which has no number of SMs, have no columns of times."""
    found = explain_script(f"{path}:lines", gpu="sm_90")
    assert "us" not in tables(found)[0].headers
    assert "lost us" not in found.to_markdown()
    (section, *_) = found.to_document().sections
    assert any(said.startswith("scale: No time is predicted, as ") for said in section.sentences)
    assert PROFILED not in found.to_markdown()
