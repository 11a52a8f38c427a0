"""The report of a trace: the lost time, then an explanation of each kernel that loses most."""

import dataclasses
from pathlib import Path

import pytest
from run_trace import command, run
from traced_kernels import LAUNCH, PROCESS, traced_kernel, worked

from occupancy_lab.reporting.trace_files import make_trace_report, to_html
from occupancy_lab.text.document import to_markdown
from occupancy_lab.tracing.page import Outcome
from occupancy_lab.tracing.trace import Trace
from occupancy_lab.tracing.traced import GridLaunches, Traced

MEASURED = GridLaunches(LAUNCH.grid, 100, samples=5, us=150.0, record=worked())


def trace(*names: str, grid: GridLaunches = MEASURED) -> Trace:
    """Return a trace of the kernels *names*, in descending order of their lost time."""
    kernels = [
        traced_kernel(name, (dataclasses.replace(grid, launches=100 - place),))
        for place, name in enumerate(names)
    ]
    ended = Outcome(("python", "train.py"), 0, started=True)
    return Trace(Traced(tuple(kernels), (PROCESS,)), ended)


def text(found: Trace) -> str:
    """Return the report in markdown."""
    return to_markdown(make_trace_report(found).blocks(None))


def test_the_kernels_that_lose_most_are_explained() -> None:
    """At most ten kernels are explained, in the table's order, and the page states how many."""
    names = [f"kernel_{chr(97 + place)}" for place in range(12)]
    chapters = [one.title for one in make_trace_report(trace(*names)).chapters]
    assert chapters[:2] == ["In short", "Under the roofs of the GPU"]
    assert chapters[2:12] == [f"{place} {name}" for place, name in enumerate(names[:10], 1)]
    assert chapters[12:] == ["What the numbers are"]
    assert "- Of 12 kernels, the 10 that lose most are explained." in text(trace(*names))


def test_a_kernel_is_explained_by_what_its_launch_does() -> None:
    """The explanation has time, loss, bytes, limits, and the lines with the matrices' bytes."""
    page = text(trace("swiglu_kernel"))
    assert "15.0 ms of the 1.00 s from the first launch to the last are in Triton's kernels" in page
    assert (
        "- 100 launches take 15.0 ms, measured: 100% of the total time of all kernels; 150 us each."
        in page
    )
    assert "- **6.93 ms of that are lost**:" in page
    assert "| reads, writes, L2 cache | 180 MB, 90.2 MB, 270 MB" in page
    assert "(Triton 3.6.0)" in page
    lines = page.partition("### The lines that cost most")[2]
    assert lines.partition("###")[0].count("90.2 MB") == 2  # both loads
    assert "### How long it takes" in page
    assert "### The limits" in page


def test_what_was_not_asked_for_is_tritons_default() -> None:
    """Settings that no launch passes, or that equal Triton's default, are not shown."""
    asked = dataclasses.replace(worked(), options={"num_warps": 4})
    found = trace("swiglu_kernel", grid=dataclasses.replace(MEASURED, record=asked))
    assert "| num_warps               | 4, Triton's default" in text(found)
    usual = dataclasses.replace(asked, usual_options={"num_warps": 4, "num_stages": 3})
    (kernel,) = trace("swiglu_kernel", grid=dataclasses.replace(MEASURED, record=usual)).kernels
    dry = dataclasses.replace(kernel, lines=(None,))  # type: ignore[arg-type]
    page = text(Trace(Traced((dry,), found.found.processes)))
    assert "| num_warps               | 4, asked" in page
    assert "| num_stages              | 3, Triton's default" in page


def test_what_is_not_known_is_no_number() -> None:
    """A kernel whose work is unknown is explained by its limits alone."""
    unknown = dataclasses.replace(MEASURED, us=None, record=None)
    page = text(trace("swiglu_kernel", grid=unknown))
    assert "- No time is known for its 100 launches." in page
    assert "### The limits" in page
    assert "lost" not in page
    assert "- There is no roofline: no kernel has a known time, FLOPs and bytes." in page


def test_html_names_a_kernel_on_hover_and_runs_nothing() -> None:
    """The page contains the picture with titles; a kernel's name with HTML is shown as text."""
    page = to_html(make_trace_report(trace("<script>alert(1)</script>")))
    assert "<img" not in page
    assert "<script" not in page
    assert "<title>&lt;script&gt;alert(1)&lt;/script&gt;: 150 us measured" in page
    assert page.count("<svg ") == 1


@pytest.mark.slow
def test_a_program_that_launches_has_a_report(tmp_path: Path) -> None:
    """The report of a real trace has measured times and the kernel's source."""
    path = tmp_path / "page.html"
    done = run(command("timed"), ["--report", str(path)])
    assert done.returncode == 0
    assert b"cannot be told" not in done.stderr
    page = path.read_text("utf-8")
    assert "200 launches take 8.00 ms, measured" in page
    assert "total = tl.load(x_ptr + offsets" in page
