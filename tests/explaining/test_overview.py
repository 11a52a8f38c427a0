"""The overview of a script: the time of each launch, and how launches of a line differ."""

import contextlib
import io
import os
from pathlib import Path
from unittest import mock

import pytest

from occupancy_lab.arguments import Pointer
from occupancy_lab.explaining.overview import KernelTime, apart, argument_classes, together
from occupancy_lab.explaining.script_runs import ScriptExplanation, explain_script
from occupancy_lab.launch import BoundLaunch, Launch
from occupancy_lab.prediction import part_cell
from occupancy_lab.text.document import Table
from occupancy_lab.text.printing import print_shown
from occupancy_lab.text.words import cell, duration, percent

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
    """Return the explanation of a line at several sizes on two GPUs."""
    return explain_script(f"{path}:sizes", gpu="h100,mi300x")


def tables(found: ScriptExplanation) -> tuple[Table, ...]:
    """Return the tables of the overview."""
    return found.to_document().sections[0].tables


def test_each_launch_has_its_time_and_what_bounds_it(sizes: ScriptExplanation) -> None:
    """Each row has the predicted time of the launch, its range, the lost time and the bound."""
    table = tables(sizes)[0]
    assert table.headers[3:] == ("us", "range", "lost us", "share", "bound")
    assert len(table.rows) == 6
    for line, row in zip(sizes.lines, table.rows, strict=True):
        found, time = line.record.prediction, line.time  # type: ignore[union-attr]
        assert row[1:4] == (line.gpu.key, "3", cell(found.us))
        assert row[4:6] == (f"{cell(found.low_us)} to {cell(found.high_us)}", cell(time.lost_us))
        assert row[7] == part_cell(found.bound)


def test_the_answer_says_which_launch_takes_most(sizes: ScriptExplanation) -> None:
    """The answer has the total time on each GPU and the share of the longest launch."""
    for place, (title, answer) in enumerate(
        zip(("H100 SXM", "MI300X"), sizes.to_document().answer, strict=False)
    ):
        times = [line.time for line in sizes.lines[3 * place : 3 * place + 3]]
        total = KernelTime.total(times)
        assert answer.startswith(f"**{title}**: {duration(total.us)} (")
        share = percent(times[2].us / total.us)  # type: ignore[union-attr]
        assert answer.endswith(
            f") are predicted for 9 launches, {share} of that for launch 3, scale."
        )


def test_launches_of_a_line_are_told_apart(sizes: ScriptExplanation) -> None:
    """Each row has the differing arguments and whether 16 divides them; the line is shown once."""
    table = tables(sizes)[-1]
    assert (table.headers, table.rows) == (
        ("", "what differs"),
        (
            ("1", "n 1000"),
            ("2", "n 1024 (multiple of 16)"),
            ("3", "n 4194304 (multiple of 16)"),
        ),
    )
    assert sizes.to_markdown().count("bench.py:1") == 1


@pytest.mark.usefixtures("alone")
def test_lines_are_shown_where_they_differ(path: Path) -> None:
    """Launches of several lines have a column with their line, and the constexprs that differ."""
    found = explain_script(f"{path}:lines", gpu="h100")
    table = tables(found)[-1]
    assert table.headers == ("", "line", "what differs")
    assert [row[1:] for row in table.rows] == [
        ("scale, bench.py:22", "BLOCK 256"),
        ("scale, bench.py:23", "BLOCK 512"),
    ]
    assert "## 2 scale, grid 8192, on H100 SXM" in found.to_markdown()


@pytest.mark.usefixtures("alone")
def test_what_differs_may_be_a_float_a_bool_or_a_dtype(path: Path) -> None:
    """Floats, bools and dtypes are shown as they are passed."""
    assert [row[1] for row in tables(explain_script(f"{path}:numbers", gpu="h100"))[-1].rows] == [
        "x float16, factor 2.5, double True",
        "x float32, factor 2.5, double True",
        "x float16, factor 0.5, double False",
        "x float32, factor 0.5, double False",
    ]


def classes(**arguments: object) -> dict[str, str]:
    """Return the classes of a launch's arguments, of which BLOCK is a constexpr."""
    return argument_classes(BoundLaunch("k", Launch((), {}), arguments, ("BLOCK",), {}))  # type: ignore[arg-type]


def test_arguments_have_the_classes_that_triton_specializes_on() -> None:
    """A tensor has its dtype and alignment; a bool, a float and a constexpr have no class."""
    x, y = Pointer("float16", 64, aligned=True), Pointer("float32", 64, aligned=False)
    assert classes(x=x, y=y, n=1000, m=1024, one=1, flag=False, eps=1e-5, BLOCK=64) == {
        "x": "float16",
        "y": "float32 unaligned",
        "n": "no multiple of 16",
        "m": "multiple of 16",
        "one": "1",
    }


def test_launches_of_one_kernel_share_a_class() -> None:
    """A kernel compiled for multiples of 16 and other numbers has the class "not 1"."""
    several = [classes(seed=seed, n=1024) for seed in (0, 2)]
    assert together(several) == {"seed": "not 1", "n": "multiple of 16"}
    assert together([*several, classes(seed=1, n=1024)])["seed"].startswith("1 or ")
    assert apart(together(several), [classes(seed=1, n=1024)]) == "seed not 1"


@pytest.mark.usefixtures("alone")
def test_what_does_not_compile_has_no_time(path: Path) -> None:
    """Its row has dashes, and the total says how many launches it covers."""
    found = explain_script(f"{path}:unknown", gpu="h100")
    assert tables(found)[0].rows[1][3:] == ("-",) * 5
    assert [row[2] for row in tables(found)[-1].rows] == ["BLOCK 256", "BLOCK 100"]
    assert " are predicted for 1 of 2 launches, 100% of that for launch 1, " in found.to_markdown()


@pytest.mark.usefixtures("alone")
def test_where_no_time_is_predicted_there_are_no_columns_of_times(path: Path) -> None:
    """The launches of an architecture, which has no number of SMs, have no columns of times."""
    found = explain_script(f"{path}:lines", gpu="sm_90")
    assert tables(found)[0].headers == ("launch", "GPU", "launches")
    assert "lost us" not in found.to_markdown()


def test_the_overview_fits_a_terminal_of_80_columns(sizes: ScriptExplanation) -> None:
    """No cell of the times is wrapped, but the name of the bound may be."""
    out = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}), contextlib.redirect_stdout(out):
        print_shown(sizes.to_document().blocks())
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    for row in tables(sizes)[0].rows:
        assert any(all(cell in line for cell in row[:-1]) for line in lines)
