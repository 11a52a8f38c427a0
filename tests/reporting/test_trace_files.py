"""The files of a trace are refused before a program runs, or exist when it has ended."""

import dataclasses
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from in_process import refused, run
from run_trace import command
from run_trace import run as run_trace
from traced_kernels import LAUNCH, traced_kernel, worked

from occupancy_lab.exploring.page import read_rows
from occupancy_lab.reporting.trace_files import timeline
from occupancy_lab.tracing.trace import Trace
from occupancy_lab.tracing.traced import GridLaunches, Launched, Traced

STEP = Path(__file__).parents[2] / "examples" / "step.py"


@pytest.mark.slow
def test_a_dry_run_writes_its_files(tmp_path: Path) -> None:
    """Each file is written beside the page, which stays the same.

    In the timeline an autotuned kernel has the configuration that is predicted to be the fastest.
    """
    words = ("trace", "--dry-run", "--gpu", "h100")
    program = ("--", sys.executable, str(STEP), "3")
    plain = run(*words, *program)
    files = {"--plot": "roofline.svg", "--report": "page.md", "--timeline": "step.json"}
    named = [word for option, name in files.items() for word in (option, str(tmp_path / name))]
    done = run(*words, *named, *program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    picture = (tmp_path / "roofline.svg").read_text("utf-8")
    assert "<title>matmul: 52.1 us predicted" in picture
    assert "<title>layer_norm: 11.2 us predicted" in picture
    page = (tmp_path / "page.md").read_text("utf-8")
    assert "## 1 matmul" in page
    assert "total = tl.dot(a, b, total)" in page
    assert "](page/roofline.svg)" in page
    assert (tmp_path / "page" / "roofline.svg").read_text("utf-8") == picture
    found = json.loads((tmp_path / "step.json").read_text("utf-8"))
    launches = [one for one in found["traceEvents"] if one["ph"] == "X"]
    assert [one["name"] for one in launches] == ["layer_norm", "matmul"] * 3
    assert launches[1]["dur"] == pytest.approx(52.1, abs=0.05)
    check_one_after_another(drawn(found))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--plot", "{in}/a.jpeg"), "does not end in .svg or .png"),
        (("--report", "{in}/a.txt"), "a.txt does not end in .md or .html, the two kinds of page"),
        (("--plot", "{in}/none/a.svg"), "there is no directory"),
        (("--plot", "{in}/a.svg", "--output", "{in}/a.svg"), "--output and --plot both name"),
        (("--report", "{in}/a.md", "--plot", "{in}/a/b.svg"), "there is no directory"),
        (("--report", "{in}/a.html", "--gpu", "h100,a100"), "--report takes one GPU"),
        (("--plot", "{in}/a.svg", "--gpu", "h100,a100"), "--plot takes one GPU"),
    ],
)
def test_what_cannot_be_written_is_refused_first(
    tmp_path: Path, given: tuple[str, ...], why: str
) -> None:
    """The program does not run if a file cannot be written."""
    words = [word.replace("{in}", str(tmp_path)) for word in given]
    assert why in refused("trace", "--dry-run", *words, "--", sys.executable, "none.py")
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_a_picture_of_nothing_is_refused(tmp_path: Path) -> None:
    """A program without kernels gives one sentence, no file and no page."""
    script = tmp_path / "none.py"
    script.write_text("", encoding="utf-8")
    plot = tmp_path / "a.svg"
    program = (sys.executable, str(script))
    said = refused("trace", "--dry-run", "--gpu", "h100", "--plot", str(plot), *program)
    assert "there is no roofline" in said
    assert not plot.exists()


def told() -> Trace:
    """Return a trace of two kernels that was not recorded."""
    grid = GridLaunches(LAUNCH.grid, 100, record=worked())
    fewer = dataclasses.replace(grid, launches=50)
    return Trace(Traced((traced_kernel("a", (grid,)), traced_kernel("b", (fewer,))), ()))


def test_the_json_of_a_trace_has_a_report_and_rows_to_explore(tmp_path: Path) -> None:
    """The exported JSON makes a report with sentences and tables, and a page with each kernel."""
    found, path = told(), tmp_path / "step.json"
    path.write_text(found.to_json(), encoding="utf-8")
    done = run("report", "--file", str(path), "--format", "markdown")
    assert done.returncode == 0, done.stderr
    page = found.to_document()
    for sentence in (*page.answer, *page.sections[0].sentences):
        assert f"- {sentence}" in done.stdout
    for table in page.sections[0].tables:
        assert all(cell in done.stdout for row in table.rows for cell in row)
    rows = read_rows(path)
    assert [(one["kernel"], one["gpu"], one["num_warps"]) for one in rows] == [
        ("a", "h100", 4),
        ("b", "h100", 4),
    ]
    assert rows[0]["predicted_us"] == worked().prediction.us  # type: ignore[union-attr]


def test_a_damaged_trace_has_no_report(tmp_path: Path) -> None:
    """A damaged trace is refused in one sentence that names the file."""
    path = tmp_path / "step.json"
    path.write_text(json.dumps({"command": [], "document": {"title": 1}}), encoding="utf-8")
    assert "step.json is damaged" in refused("report", "--file", str(path))


SLOW = GridLaunches((8,), 3, samples=3, us=150.0, record=worked())
FAST = GridLaunches((4,), 2, samples=2, us=100.0, record=worked())
UNTIMED = GridLaunches((2,), 1, record=worked())
KERNEL = traced_kernel("swiglu", (SLOW, FAST, UNTIMED))


def launched(*launches: GridLaunches, pid: int = 1) -> list[Launched]:
    """Return launches of the kernels in that order."""
    return [Launched(KERNEL, one, pid) for one in launches]


def drawn(found: dict[str, Any]) -> list[tuple[float, float]]:
    """Return the begin and the end of each launch."""
    return [(one["ts"], one["ts"] + one["dur"]) for one in found["traceEvents"] if one["ph"] == "X"]


def check_one_after_another(spans: Sequence[tuple[float, float]]) -> None:
    """Check that each launch begins where the one before it ends."""
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert start == pytest.approx(end)


def test_launches_are_in_their_order_and_last_as_long_as_measured() -> None:
    """Each process has its own line from 0, with its launches in order and as long as measured."""
    recent = [*launched(SLOW, FAST, SLOW), *launched(FAST, pid=2)]
    found = timeline(Trace(Traced((KERNEL,), (), tuple(recent))))
    assert drawn(found) == [(0, 150), (150, 250), (250, 400), (0, 100)]
    assert [one["pid"] for one in found["traceEvents"] if one["ph"] == "X"] == [1, 1, 1, 2]
    assert {one["cat"] for one in found["traceEvents"] if one["ph"] == "X"} == {"measured"}
    assert found["otherData"]["order"] == "as launched"


def test_a_launch_that_was_not_timed_is_a_mark_beside_measured_ones() -> None:
    """Beside measured launches one without a time is a mark, and has no predicted time."""
    found = timeline(Trace(Traced((KERNEL,), (), tuple(launched(SLOW, UNTIMED, FAST)))))
    assert drawn(found) == [(0, 150), (150, 250)]
    (mark,) = [one for one in found["traceEvents"] if one["ph"] == "i"]
    assert (mark["ts"], mark["name"]) == (150, "swiglu: no time is known")
    found = timeline(Trace(Traced((KERNEL,), (), tuple(launched(UNTIMED, UNTIMED)))))
    us = worked().prediction.us
    assert drawn(found) == [(0, pytest.approx(us)), (pytest.approx(us), pytest.approx(2 * us))]
    assert found["otherData"]["times"].startswith("predicted")


def test_where_nobody_noted_the_order_it_says_so() -> None:
    """The launches of a killed process are grouped by kernel, and the timeline states that."""
    timed = dataclasses.replace(KERNEL, grids=(SLOW, FAST))
    found = timeline(Trace(Traced((timed,), ())))
    assert [end - start for start, end in drawn(found)] == [150, 150, 150, 100, 100]
    assert found["otherData"]["order"] == "not known: kernel after kernel"


@pytest.mark.slow
def test_a_program_that_launches_has_a_timeline(tmp_path: Path) -> None:
    """The timeline of a program that launches has all its launches in order, over their grids."""
    path = tmp_path / "step.json"
    done = run_trace(command("some"), ["--timeline", str(path)])
    assert done.returncode == 0
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    grids = [one["args"]["grid"] for one in events if one["ph"] == "X"]
    assert grids == ["528"] * 5 + ["4"] * 2 + ["1"]
