"""The page of any launch: golden files, and properties of every page."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import launched_kernels
import pytest
from dry_lines import COUNTED, NORM, ROWS, X, matmul, norm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stand_ins import dry

from occupancy_lab import dry_run, tensor
from occupancy_lab.explaining.duration import part_sentence
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.neighbours import predicted_us
from occupancy_lab.explaining.variants import write_variants
from occupancy_lab.prediction import CHOSEN
from occupancy_lab.text.words import microseconds, prediction_words
from occupancy_lab.values import Resources, Target


def spilling_resources(keywords: Mapping[str, Any], _target: Target) -> Resources:
    """Return resources that spill less with more warps, of which fewer are resident."""
    warps = keywords.get("num_warps", 4)
    registers, spilled = {2: (255, 640), 4: (168, 208), 8: (255, 0), 16: (128, 0)}[warps]
    limited = keywords.get("maxnreg", registers)
    spilled += 4 * (registers - limited)
    stages = keywords.get("num_stages", 3)
    return Resources(
        limited, warps, 1024, binary=1000 * limited + warps + 10 * stages, **COUNTED
    ).replace(local_bytes=spilled, loop_instructions=70)


def tuned_resources(keywords: Mapping[str, Any], target: Target) -> Resources | str:
    """Return the resources of tuned_add; one configuration fails to compile for AMD."""
    if target.backend == "hip" and keywords["BLOCK"] == 1024:
        return "tuned_add takes longer than 2 s to compile for gfx942"
    return Resources(12, keywords["num_warps"], 0, binary=1, **COUNTED)


def plain_resources(keywords: Mapping[str, Any], target: Target) -> Resources:
    """Return the resources of a kernel without a loop, which num_stages does not change."""
    warps = keywords.get("num_warps", 4)
    found = Resources(32, warps, 2048, binary=warps, global_accesses=8, **COUNTED)
    return found if target.backend == "cuda" else found.replace(sgprs=20, agprs=0)


def transpose(gpus: str, **asked: Any) -> Explanation:
    """Return the dry run of a kernel without a loop over a grid of two dimensions."""
    asked = {"grid": (64, 32), **asked}
    arguments = (X, X, 4096, 2048)
    return dry(launched_kernels.transpose, gpus, plain_resources, *arguments, BLOCK=64, **asked)


def spilling(gpus: str, **asked: Any) -> Explanation:
    """Return the dry run of a launch that spills."""
    launched = {"BLOCK_SIZE": 16384, "grid": (4096,), **asked}
    return dry(launched_kernels.layer_norm, gpus, spilling_resources, *NORM, **launched)


def tuned(gpus: str, **asked: Any) -> Explanation:
    """Return the dry run of an autotuned kernel."""
    grid = lambda named: (-(-named["n"] // named["BLOCK"]),)  # noqa: E731 - a launch line's
    arguments = (ROWS, ROWS, 100_000)
    return dry(launched_kernels.tuned_add, gpus, tuned_resources, *arguments, grid=grid, **asked)


MIB = 2**20
PAGES: dict[str, Callable[[], Explanation]] = {
    "layer_norm_h100_mi300x": lambda: norm("h100,mi300x"),
    "layer_norm_mi300x_or_more": lambda: norm("mi300x", read=16 * MIB, written=16 * MIB),
    "layer_norm_no_grid": lambda: norm("sm_90", grid=None),
    "matmul_h200_mi300x": lambda: matmul(
        "h200,mi300x", grid=(512,), read=64 * MIB, written=32 * MIB
    ),
    "transpose_h100": lambda: transpose("h100", read=16 * MIB, written=16 * MIB),
    "transpose_h200_mi300x": lambda: transpose("h200,mi300x", read=16 * MIB, written=16 * MIB),
    "spills_h100": lambda: spilling("h100"),
    "tuned_h100_mi300x": lambda: tuned("h100,mi300x"),
    "tuned_h100_bytes": lambda: tuned("h100", read=800_000, written=400_000),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_of_a_launch(name: str, check_golden: Callable[[str, str], None]) -> None:
    """The golden file has the short page, and the explanation can be written as JSON."""
    found = PAGES[name]()
    check_golden(f"launch_{name}.md", found.to_markdown())
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_full_page_has_the_arithmetic(check_golden: Callable[[str, str], None]) -> None:
    """The golden file has the full page of a launch."""
    found = matmul("h200", grid=(512,)).to_markdown(full=True)
    check_golden("launch_matmul_h200_full.md", found)


@pytest.mark.usefixtures("given_times")
def test_a_configuration_without_a_time_does_not_rank_the_others_by_occupancy() -> None:
    """The fastest with a time is named, with the number of configurations without one."""
    one, other = tuned("h100", read=800_000, written=400_000).records
    page = write_variants([one, dataclasses.replace(other, prediction=None)]).to_markdown()
    assert "BLOCK 256, num_warps 4 is predicted to be fastest" in page
    assert "; no time is predicted for 1 other." in page
    assert "resident" not in page


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "its kernel's TTIR is not at hand"),
        ({"read": 8 * MIB}, "its kernel's TTIR is not at hand"),
        ({"read": 8 * MIB, "written": 8 * MIB, "grid": None}, "no `--grid` is given"),
        ({"grid": None}, "no `--grid` is given"),
    ],
)
def test_why_no_time_is_predicted(given: dict[str, Any], words: str) -> None:
    """If it is not known what a launch does, the page says why no time is predicted."""
    found = transpose("h100", **given)
    (record,) = found.records
    page = found.to_markdown()
    assert record.prediction is None
    assert words in page
    assert (
        ("us at peak (memory)" in page)
        == (record.least_us is not None)
        == any(given.get(name) for name in ("read", "written"))
    )


@pytest.mark.usefixtures("given_times")
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.integers(16, 255), st.integers(20, 4000)), min_size=2, max_size=2),
    st.sampled_from(["h100", "h200", "mi300x"]),
)
def test_where_times_are_known_the_fastest_comes_first(
    drawn: list[tuple[int, int]], gpu: str
) -> None:
    """The configuration with the shortest predicted time is named, whatever its occupancy."""

    def outcome(keywords: Mapping[str, Any], _target: Target) -> Resources:
        registers, instructions = drawn[keywords["BLOCK"] == 1024]
        counted = {**COUNTED, "instructions": instructions}
        return Resources(registers, keywords["num_warps"], 0, binary=1, **counted)

    grid = lambda named: (-(-named["n"] // named["BLOCK"]),)  # noqa: E731 - a launch line's
    moved = {"read": 8_000_000, "written": 4_000_000}
    arguments = (ROWS, ROWS, 1_000_000)
    found = dry(launched_kernels.tuned_add, gpu, outcome, *arguments, grid=grid, **moved)
    first = min(found.records, key=predicted_us)
    page = found.to_markdown()
    block, warps = first.arguments["BLOCK"], first.options["num_warps"]
    time = microseconds(predicted_us(first))
    assert f"BLOCK {block}, num_warps {warps} is predicted to be fastest, {time}" in page
    assert "resident" not in page.partition("## What to try")[0]


@pytest.mark.slow
def test_a_tuned_launch_has_what_to_try_beyond_its_configurations() -> None:
    """The fastest configuration is named first with its wider range, then its neighbours."""
    lab, added = dry_run(launched_kernels.tuned_add, "h100"), tensor((1 << 22,), "float32")
    grid = lambda named: (-(-(1 << 22) // named["BLOCK"]),)  # noqa: E731 - a launch line's
    found = lab[grid](added, added, 1 << 22)
    page = found.to_document()
    first = min(found.records, key=predicted_us)
    raw = min(run.prediction.high_us for run in found.runs if run.prediction is not None)
    assert first.prediction.high_us == pytest.approx(raw * CHOSEN)
    words = prediction_words(first.prediction)
    assert f"is predicted to be fastest, {words}" in page.answer[0]
    assert words in str(page.sections[0].tables)
    assert " tried" in page.answer[1] or "instead of" in page.answer[1]
    (case,) = found.chosen
    assert page.sections[-1].title == "What to try"
    settings = [run.settings for run in found.runs]
    assert case.neighbours
    assert all(one.record is None or one.record.settings not in settings for one in case.neighbours)


@pytest.mark.slow
def test_the_full_page_explains_the_fastest_configuration_as_it_does_a_plain_launch() -> None:
    """It has the launch, its work, its limits and the arithmetic of each part of its time."""
    added = tensor((1 << 22,), "float32")
    grid = lambda named: (-(-(1 << 22) // named["BLOCK"]),)  # noqa: E731 - a launch line's
    found = dry_run(launched_kernels.tuned_add, "h100")[grid](added, added, 1 << 22)
    first = min(found.records, key=predicted_us)
    plain = dry_run(launched_kernels.tuned_add.fn, "h100")[grid](
        added, added, 1 << 22, BLOCK=first.arguments["BLOCK"], **first.options
    )
    sections = {one.title: one for one in found.to_document(full=True).sections}
    own = {one.title: one for one in plain.to_document(full=True).sections}
    assert sections["The fastest"].tables[0].headers == ("the launch", "H100 SXM")
    for title in ("What it does", "The limits", "The next step", "How long it takes"):
        assert sections[title].tables == own[title].tables
    assert part_sentence(first.prediction) in found.to_document().sections[0].sentences
