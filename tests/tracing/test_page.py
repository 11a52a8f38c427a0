"""The page of a trace begins with the lost time, and fits a terminal."""

import contextlib
import dataclasses
import io
import os
from collections.abc import Sequence
from unittest import mock

import pytest
from traced_kernels import PROCESS, traced_kernel, worked

from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.text.document import Document
from occupancy_lab.text.printing import print_shown
from occupancy_lab.text.words import duration, percent
from occupancy_lab.tracing.page import write_trace
from occupancy_lab.tracing.traced import GridLaunches, Traced, TracedKernel
from occupancy_lab.values import Resources


def written(*kernels: TracedKernel, seconds: float | None = None) -> Document:
    """Return the page of *kernels* that were launched within *seconds*."""
    process = dataclasses.replace(PROCESS, launching_seconds=seconds)
    return write_trace(Traced(kernels, (process,)), None)


def printed_table(kernels: Sequence[TracedKernel], columns: int) -> str:
    """Return the table of *kernels* as a terminal of *columns* shows it."""
    page = written(*kernels)
    out = io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": str(columns)}),
        contextlib.redirect_stdout(out),
    ):
        print_shown(page.blocks())
    return out.getvalue()


NAMES = (
    *("add", "liger_cross_entropy_kernel", "_layer_norm_fwd_1pass", "rms_norm_kernel"),
    "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
    "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_native_layer_norm_7",
)


def test_no_name_is_broken_in_a_terminal_of_80_columns() -> None:
    """Each name, header and number is on one line."""
    constexprs = {"BLOCK_SIZE": "4096", "HAS_WEIGHT": "False", "softcap": "None"}
    grid = GridLaunches((131072,), 21000, 1200, samples=9, us=12345.6)
    resources = Resources(40, 8, 48 * 1024, local_bytes=12288)
    two_limiters = calculate(resources, find_gpu("h100"))
    kernels = [traced_kernel(name, (grid,), constexprs) for name in NAMES]
    found = printed_table(
        [dataclasses.replace(one, calculation=two_limiters) for one in kernels], 80
    )
    assert max(map(len, found.splitlines())) <= 80
    for name in NAMES:
        assert name in found
    for words in (
        "kernel  ",
        "lost us",
        "bound",
        "launches",
        "share",
        "waves",
        "local B",
        "programs",
        "limiter",
    ):
        assert words in found
    for cell in ("2 liger_cross_entropy_kernel", "21000 + 1200", "12346", "12288", "4096,"):
        assert cell in found


def test_the_first_sentence_has_the_time_what_is_lost_and_where() -> None:
    """Measured and predicted times are not mixed on a page."""
    work, least = worked(), worked().speed_of_light.us
    big = GridLaunches((8,), 100, samples=5, us=least + 30, record=work)
    small = dataclasses.replace(big, launches=50, us=least + 10)
    untimed = dataclasses.replace(big, us=None)
    kernels = [traced_kernel(name, (grid,)) for name, grid in (("a", big), ("b", small))]
    total = (150 * least + 3500) / 1000
    page = written(*kernels, traced_kernel("c", (untimed,)), seconds=0.09)
    assert page.answer[0] == (
        f"{total:.1f} ms of the 90.0 ms from the first launch to the last are in Triton's kernels;"
        " 3.50 ms of them are lost, 3.00 ms of these in a."
    )
    assert "No time is known for launches of c: no sum includes them." in page.sections[0].sentences
    alone = written(*(dataclasses.replace(one, kernel="a") for one in kernels))
    assert alone.answer[0].endswith("3.50 ms of them are lost.")
    faster = dataclasses.replace(big, us=least - 1)
    below = "A launch can take less than its least, which counts all bytes that it writes"
    for grid, said in ((big, False), (faster, True)):
        sentences = written(traced_kernel("a", (grid,))).sections[0].sentences
        assert any(one.startswith(below) for one in sentences) is said
    first = page.sections[0].tables[0].rows
    assert [row[0] for row in first] == ["1 a", "2 b", "3 c"]
    assert first[0][2:] == (
        f"{least + 30:.0f}",
        f"{least:.1f}",
        "3000",
        percent(0.1 * (least + 30) / total),
    )
    assert first[2][2:] == ("-",) * 4
    page = written(traced_kernel("c", (untimed,)))
    us, low, high = (
        duration(100 * (number or 0))
        for number in (work.prediction.us, work.prediction.low_us, work.prediction.high_us)
    )
    lost = duration(100 * (work.prediction.us - least))
    assert page.answer[0] == (
        f"{us} are predicted in Triton's kernels ({low} to {high}); {lost} of them are"
        " predicted to be lost."
    )


def test_a_page_says_which_grid_describes_a_kernel() -> None:
    """The grid with most time is described, with its share."""
    often = GridLaunches((8,), 300, samples=5, us=1.0, record=worked())
    long = GridLaunches((64, 512), 100, samples=5, us=9.0, record=worked())
    page = written(traced_kernel("scale", (often, long)))
    assert page.sections[0].tables[2].rows[0][1] == "32768"
    assert any("described by the launches that take most" in x for x in page.sections[0].sentences)
    assert "described by" not in str(written(traced_kernel("scale", (long,))))
    table = page.sections[0].tables[3]
    assert table.headers == ("", "grid", "launches", "us")
    assert table.rows == (("1", "64 x 512", "100", "9.00"), ("1", "8", "300", "1.00"))
    seeds = [dataclasses.replace(long, sizes=("n 4096", f"seed {seed}")) for seed in (2, 3)]
    of_seeds = written(traced_kernel("scale", tuple(seeds))).sections[0].tables[3]
    assert [row[2] for row in of_seeds.rows] == ["seed 2", "seed 3"]


@pytest.mark.parametrize(
    ("factor", "why"), [(3.0, "other clocks"), (0.3, "in the L2 cache"), (1.0, "")]
)
def test_a_measured_time_outside_the_predicted_range_is_a_finding(factor: float, why: str) -> None:
    """It is named with the range and possible reasons."""
    prediction = worked().prediction
    us = factor * prediction.us
    kernel = traced_kernel("a", (GridLaunches((8,), 100, samples=5, us=us, record=worked()),))
    sentences = " ".join(written(kernel).sections[0].sentences)
    assert ("outside the predicted" in sentences) == (why != "")
    assert why in sentences
    assert ("; right after the same launch" in sentences) == (factor < 1)
    elsewhere = dataclasses.replace(kernel, elsewhere=True)
    assert "outside" not in " ".join(written(elsewhere).sections[0].sentences)
