"""No page contradicts itself."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import launched_kernels
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from records import record_of
from simple_times import timed
from stand_ins import CONDITIONS, dry, recorded_launch

from occupancy_lab.arguments import tensor
from occupancy_lab.errors import DoesNotFitError, InputError
from occupancy_lab.explaining.case import Case, Recorded
from occupancy_lab.explaining.explanation import write_full
from occupancy_lab.explaining.neighbours import Neighbour
from occupancy_lab.explaining.short import WORDS, write_short
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import Grid, load_kernel
from occupancy_lab.values import Config, Measurement, Problem, Resources, Target

pytestmark = pytest.mark.usefixtures("given_times")

PAIRS = (
    ("Occupancy is not the limit", "Lower use of|Occupancy is a limit"),
    ("No more programs fit", r"Program \d+ fits|Lower use of"),
    ("Every (warp|wave) slot is taken", "Lower use of|would fill the"),
    ("was noticeably faster", "The fastest of 30 launches"),
    (r"limited by named barriers\.", "has no slot for it"),
    (r"limited by program slots\.", "has no named barrier for it"),
    ("no kernel .* faster", r"[1-9]\d\d+%, both"),
    ("would fill the (SM|CU|WGP) further", "a reduction fewer (warp|wave)s to cross:"),
    (
        "No time is predicted",
        r"predicted( time)? +\| +[\d.]+ us( \()|predicted us|is predicted to",
    ),
    ("keeps the most (warps|waves)", "predicted to be fastest|predicted us"),
    ("None of the [0-9]+ changes", r"instead of [^:]*: [^.]* us \([^)]*\) predicted"),
    ("None of these", "only a measurement tells"),
    ("- The formula is right", r"With that formula, num_programs is \d+"),
)
"""Pairs of regular expressions that must not both match the page of one GPU."""

GPUS = ("h100", "h200", "b200", "a100", "rtx4090", "mi300x", "mi350x", "rx7900xtx", "sm_90")
RECORDED = ("h100", "h200")
"""The GPUs with recorded launches, whose pages have the most sentences."""
X, ROW = tensor((4096, 2048), "float16"), tensor((4096,), "float32")
NORM = (X, X, X, X, ROW, ROW, 2048, 2048, 1e-5)
SIZES = st.sampled_from([1, 64, 200, 781, 1024, 4096, 20_000])
TIMES = st.one_of(st.floats(2.0, 60.0), st.none())


@st.composite
def resources(draw: Callable[..., Any], warps: int, gpu: str, *, loops: bool) -> Resources:
    """Draw the resources of a program of *warps*."""
    amd = find_gpu(gpu).vendor == "AMD"
    copies = draw(st.sampled_from([0, 4])) if loops and not amd else 0
    return Resources(
        draw(st.integers(16, 255)),
        warps,
        draw(st.sampled_from([0, 32, 4096, 30_000])),
        local_bytes=draw(st.sampled_from([0, 0, 0, 64, 400])),
        barriers=None if amd else draw(st.sampled_from([1, 1, 2, 16])),
        sgprs=40 if amd else None,
        agprs=0 if amd else None,
        pipeline_shared=0,
        load_bytes=draw(st.sampled_from([2, 4, 16])),
        store_bytes=4,
        instructions=draw(st.integers(20, 3000)),
        loop_instructions=draw(st.integers(20, 3000)) if loops else None,
        async_copies=copies,
        binary=draw(st.integers(1, 3)),
    )


def measured(us: float | None) -> Measurement | None:
    """Return a recorded time."""
    return None if us is None else Measurement("measured", CONDITIONS, us=us)


@st.composite
def matrices(draw: Callable[..., Any]) -> str:
    """Draw a launch of a kernel of the lab, and return its pages."""
    gpu = draw(st.sampled_from([*GPUS, *RECORDED, *RECORDED, *RECORDED]))
    name = draw(st.sampled_from(["softmax", "softmax", "softmax_row", "softmax_loop"]))
    kernel, found = load_kernel(name), find_gpu(gpu)
    problem = Problem(draw(SIZES), draw(SIZES), draw(st.sampled_from(["float32", "float16"])))
    block = kernel.default_config(problem, found.architecture.max_shared).block_size
    persistent = kernel.grid is Grid.PERSISTENT
    config = Config(block, 2 ** draw(st.integers(0, 4)), draw(st.integers(1, 4)))
    drawn = resources(config.num_warps, gpu, loops=persistent)
    own, single = draw(drawn), draw(drawn).replace(async_copies=0)
    if config.num_stages == 1:
        own = single
    try:
        record = timed(record_of(kernel, problem, config, found, own, triton="3.7.1"))
    except (DoesNotFitError, InputError):
        reject()
    times = [measured(draw(TIMES)) for _ in range(4)] if gpu in RECORDED else [None] * 4
    in_one = dataclasses.replace(config, num_stages=1)
    try:
        one_stage = timed(record_of(kernel, problem, in_one, found, single, triton="3.7.1"))
    except DoesNotFitError:
        one_stage = None
    neighbours = (
        (Neighbour.of(record, {"num_stages": 1}, one_stage),)
        if one_stage is not None and config.num_stages > 1
        else ()
    )
    us = draw(TIMES)
    fastest = None if us is None else recorded_launch(us)
    recorded = Recorded(*times[:3], copy=times[3], fastest=fastest, number=30)
    case = Case(record, neighbours=neighbours, recorded=recorded)
    pages = [page.to_markdown() for page in (write_short((case,)), write_full((case,)))]
    return "\n".join([*pages, WORDS["plain copy"]])


@st.composite
def launches(draw: Callable[..., Any]) -> str:
    """Draw a launch of any kernel, in one or in several configurations, and return its page."""
    gpu, loops = draw(st.sampled_from(GPUS)), draw(st.booleans())
    made: dict[str, Resources] = {}

    def outcome(keywords: Mapping[str, Any], _target: Target) -> Resources:
        knobs = str(sorted(keywords.items()))
        warps = keywords.get("num_warps", 4)
        if knobs not in made:
            made[knobs] = draw(resources(warps, gpu, loops=loops))
        return made[knobs]

    moved = draw(st.sampled_from([{}, {"read": 2**25}, {"read": 2**25, "written": 2**24}]))
    asked: dict[str, Any] = {"grid": (draw(st.integers(1, 8192)),), **moved}
    kernel, arguments = launched_kernels.tuned_add, (ROW, ROW, 4096)
    if draw(st.booleans()):
        kernel, arguments = launched_kernels.layer_norm, NORM
        asked |= {"BLOCK_SIZE": 2048, "num_warps": 2 ** draw(st.integers(0, 4))}
    try:
        run = dry(kernel, gpu, outcome, *arguments, **asked)
    except (DoesNotFitError, InputError):
        reject()
    return run.to_markdown() + run.to_markdown(full=True)


@pytest.mark.slow
def test_no_page_contradicts_itself() -> None:
    """None of 500 random launches has a page that matches both halves of a pair.

    At least one half of each pair must match some page, so that the pairs keep up with the words.
    """
    seen: set[tuple[str, str]] = set()

    @settings(max_examples=500, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.one_of(matrices(), launches()))
    def check(page: str) -> None:
        for pair in PAIRS:
            there = [re.search(half, page) for half in pair]
            assert not all(there), (pair, [found and found.group() for found in there], page)
            if any(there):
                seen.add(pair)

    check()
    assert seen == {*PAIRS}
