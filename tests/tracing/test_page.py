"""The page of a trace: no name, header or number is broken in a terminal."""

from __future__ import annotations

import contextlib
import io
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.text.printing import print_shown
from occupancy_lab.tracing.page import write_trace
from occupancy_lab.tracing.records import GridLaunches, Traced, TracedKernel
from occupancy_lab.values import Resources

if TYPE_CHECKING:
    from collections.abc import Sequence


def traced_kernel(name: str, constexprs: dict[str, str]) -> TracedKernel:
    """Return a kernel with times, a benchmark and two limiters."""
    gpu = find_gpu("h100")
    calculation = calculate(Resources(40, 8, 48 * 1024, local_bytes=12288), gpu)
    return TracedKernel(
        kernel=name,
        hash="",
        launched_by="triton",
        options={"num_warps": 8, "num_stages": 3},
        constexprs=constexprs,
        target=gpu.target,
        calculation=calculation,
        reason=None,
        gpu_source="as asked",
        grids=(GridLaunches((131072,), 21000, 1200, samples=9, us=12345.6),),
        parts=(),
    )


def printed_table(kernels: Sequence[TracedKernel], columns: int) -> str:
    """Return the table of *kernels* as a terminal of so many *columns* shows it."""
    process = SimpleNamespace(
        launches=21000, overhead_ns=0.0, seconds=1.0, samples=9, replays=0, held=0, hot_ns=None
    )
    everything: Any = SimpleNamespace(**vars(process), empty_us=2.0, ended=True, errors=())
    page = write_trace(Traced(tuple(kernels), (everything,)), None)
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
    """Each kernel's name is in one line, as are the headers and each number."""
    constexprs = {"BLOCK_SIZE": "4096", "HAS_WEIGHT": "False", "softcap": "None"}
    found = printed_table([traced_kernel(name, constexprs) for name in NAMES], 80)
    assert max(map(len, found.splitlines())) <= 80
    for name in NAMES:
        assert name in found
    for words in ("kernel  ", "launches", "share", "waves", "local B", "programs", "limiter"):
        assert words in found
    for cell in ("2 liger_cross_entropy_kernel", "21000 + 1200", "12346", "12288", "4096,"):
        assert cell in found
