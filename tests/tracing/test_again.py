"""A traced kernel compiles again from its first text, to what its source would compile to."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import launched_kernels
import pytest
from traced_kernels import traced_kernel

from occupancy_lab import dry_run
from occupancy_lab.compiling.offline import offline
from occupancy_lab.gpus import find_gpu
from occupancy_lab.launch import Pointer, launch_of, tensor
from occupancy_lab.text.words import microseconds
from occupancy_lab.tracing.actions import Effort
from occupancy_lab.tracing.again import _warm_up, without_timed
from occupancy_lab.tracing.trace import trace_program
from occupancy_lab.tracing.traced import GridLaunches

PROGRAM = Path(__file__).with_name("traced_program.py")
H100, N = find_gpu("h100"), 1 << 20
X = tensor((N,), "float32")


def from_source(n: int, **options: Any) -> Any:
    """Return what Triton compiles of the kernel's source."""
    function = launched_kernels.tuned_add.fn.fn
    keywords = {"EVEN": False, "BLOCK": 512, **options}
    with offline(H100.target):
        return launch_of(function, (X, X, n), keywords, (1,)).warm_up(function)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"num_warps": 8}, {"num_stages": 1}, {"maxnreg": 32}])
def test_other_options_give_the_binary_of_the_source(options: dict[str, int]) -> None:
    """The cubin is the same to the byte."""
    ttir = from_source(N - 8).asm["ttir"]
    with offline(H100.target):
        again = _warm_up(ttir, {}, grid=(1,), **options)
    assert again.asm["cubin"] == from_source(N - 8, **options).asm["cubin"]


@pytest.mark.slow
def test_a_number_that_16_divides_gives_the_binary_of_the_source() -> None:
    """It is marked in the text as Triton marks it, and nothing else is."""
    before, after = from_source(N - 8), from_source(N)
    noted = {"x_ptr": Pointer("float32", 4 * N), "y_ptr": Pointer("float32", 4 * N), "n": N - 8}
    with offline(H100.target):
        again = _warm_up(before.asm["ttir"], noted, grid=(1,), **{**noted, "n": N})
    assert again.asm["cubin"] == after.asm["cubin"] != before.asm["cubin"]


@pytest.mark.slow
def test_a_measured_trace_says_what_brings_most() -> None:
    """A launch with too many warps has fewer, with the time that a dry run of it has."""
    found = trace_program([sys.executable, str(PROGRAM), "wasteful"], effort=Effort(600))
    (kernel,) = found.kernels
    assert kernel.action is not None
    assert kernel.action.change == "num_warps 8 instead of 16"
    us = microseconds(kernel.action.us)
    assert us in kernel.action.sentence
    assert kernel.saved_us == pytest.approx(kernel.action.now_us - kernel.action.us)
    assert "a --dry-run of the program tries those too" in str(found)
    tried = json.loads(found.to_json())["kernels"][0]["tried"]
    assert tried["now_us"] == pytest.approx(kernel.prediction.us if kernel.prediction else 0)


@pytest.mark.slow
def test_what_an_autotuner_timed_is_not_proposed() -> None:
    """It measured that configuration and took another; of another kernel that says nothing."""
    x = tensor((8192, 4096), "float16")
    lab = dry_run(launched_kernels.transpose, "h100")
    (case,) = lab[(128, 64)](x, x, 8192, 4096, BLOCK=64).cases
    kernel = traced_kernel("transpose", (), {"BLOCK": "64"})
    timed = GridLaunches((128, 64), 0, tuning=5)
    other = dataclasses.replace(kernel, options={"num_warps": 8, "num_stages": 3}, grids=(timed,))
    left = without_timed(case, kernel, [kernel, other])
    assert {one.words for one in case.neighbours} - {one.words for one in left.neighbours} == {
        "num_warps 8"
    }
    another = dataclasses.replace(other, kernel="another")
    assert without_timed(case, kernel, [kernel, another]).neighbours == case.neighbours


@pytest.mark.slow
def test_a_number_that_16_no_longer_divides_gives_the_binary_of_the_source() -> None:
    """The mark in the text is taken away."""
    before, after = from_source(N), from_source(N - 8)
    noted = {"x_ptr": Pointer("float32", 4 * N), "y_ptr": Pointer("float32", 4 * N), "n": N}
    with offline(H100.target):
        again = _warm_up(before.asm["ttir"], noted, grid=(1,), **{**noted, "n": N - 8})
    assert again.asm["cubin"] == after.asm["cubin"] != before.asm["cubin"]
