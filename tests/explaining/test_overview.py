"""The overview of a script says what each launch takes, and what sets launches of a line apart."""

import contextlib
import io
import os
from pathlib import Path
from unittest import mock

import pytest

from occupancy_lab.explaining.overview import KernelTime
from occupancy_lab.explaining.script_runs import ScriptExplanation, explain_script
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
    """Return what is explained of a line at several sizes on two GPUs."""
    return explain_script(f"{path}:sizes", gpu="h100,mi300x")


def tables(found: ScriptExplanation) -> tuple[Table, ...]:
    """Return the tables of the overview."""
    return found.to_document().sections[0].tables


def test_each_launch_has_its_time_and_what_bounds_it(sizes: ScriptExplanation) -> None:
    """On each GPU it is the time of a page of the launch, with the range and what all lose."""
    table = tables(sizes)[0]
    assert table.headers[3:] == ("us", "range", "lost us", "share", "bound")
    assert len(table.rows) == 6
    for line, row in zip(sizes.lines, table.rows, strict=True):
        found, time = line.record.prediction, line.time  # type: ignore[union-attr]
        assert row[1:4] == (line.gpu.key, "3", cell(found.us))
        assert row[4:6] == (f"{cell(found.low_us)} to {cell(found.high_us)}", cell(time.lost_us))
        assert row[7] == found.bound


def test_the_answer_says_which_launch_takes_most(sizes: ScriptExplanation) -> None:
    """It has the time of all launches on each GPU, and the share of the one with most."""
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
    """Each has the numbers that differ and whether 16 divides them; their line is said once."""
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


def test_lines_are_shown_where_they_differ(path: Path) -> None:
    """Launches of several lines have theirs, and the constexprs that are not the same."""
    found = explain_script(f"{path}:lines", gpu="h100")
    table = tables(found)[-1]
    assert table.headers == ("", "line", "what differs")
    assert [row[1:] for row in table.rows] == [
        ("scale, bench.py:22", "BLOCK 256"),
        ("scale, bench.py:23", "BLOCK 512"),
    ]
    assert "## 2 scale, grid 8192, on H100 SXM" in found.to_markdown()


def test_what_differs_may_be_a_float_a_bool_or_a_dtype(path: Path) -> None:
    """Each is said as it is passed."""
    assert [row[1] for row in tables(explain_script(f"{path}:numbers", gpu="h100"))[-1].rows] == [
        "x float16, factor 2.5, double True",
        "x float32, factor 2.5, double True",
        "x float16, factor 0.5, double False",
        "x float32, factor 0.5, double False",
    ]


def test_what_does_not_compile_has_no_time(path: Path) -> None:
    """Its row is one of dashes, and the sum says of how many launches it is."""
    found = explain_script(f"{path}:unknown", gpu="h100")
    assert tables(found)[0].rows[1][3:] == ("-",) * 5
    assert [row[2] for row in tables(found)[-1].rows] == ["BLOCK 256", "BLOCK 100"]
    assert " are predicted for 1 of 2 launches, 100% of that for launch 1, " in found.to_markdown()


def test_where_no_time_is_predicted_there_are_no_columns_of_times(path: Path) -> None:
    """An architecture has no number of SMs, and its launches no time."""
    found = explain_script(f"{path}:lines", gpu="sm_90")
    assert tables(found)[0].headers == ("launch", "GPU", "launches")
    assert "lost us" not in found.to_markdown()


def test_the_overview_fits_a_terminal_of_80_columns(sizes: ScriptExplanation) -> None:
    """No cell of the times is broken."""
    out = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}), contextlib.redirect_stdout(out):
        print_shown(sizes.to_document().blocks())
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    for row in tables(sizes)[0].rows:
        assert any(all(cell in line for cell in row) for line in lines)
