"""The full explanation: golden files, properties of every page, and `explain` from Python."""

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launched_kernels
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import H100, H100_SINGLE, MI300X, MI300X_SINGLE
from stand_ins import CONDITIONS, MEASURED, GivenCompiler, Launches, put_here

import occupancy_lab
from occupancy_lab import dry_run, tensor
from occupancy_lab.errors import DoesNotFitError, InputError
from occupancy_lab.explaining.case import Case, Recorded
from occupancy_lab.explaining.explanation import write_full
from occupancy_lab.explaining.limits import TERM_WORDS
from occupancy_lab.gpus import bare_gpus, devices
from occupancy_lab.occupancy.tutorial import CUDA_TERMS, HIP_TERMS
from occupancy_lab.values import Config, Measurement, Problem, Resources

COUNTED = {"instructions": 90, "loop_instructions": 172, "async_copies": 4}
COUNTED_SINGLE = {"instructions": 40, "loop_instructions": 135, "async_copies": 0}
THROTTLED = dataclasses.replace(CONDITIONS, driver=None, throttled="the power limit", sm_mhz=None)


def test_golden_side_by_side(
    make_case: Callable[..., Case], check_golden: Callable[[str, str], None]
) -> None:
    """An NVIDIA and an AMD GPU are explained side by side, each with its own numbers."""
    cases = (
        make_case(
            "h100",
            H100.replace(**COUNTED),
            H100_SINGLE.replace(**COUNTED_SINGLE),
            recorded=Recorded(MEASURED, dataclasses.replace(MEASURED, us=12.9)),
        ),
        make_case(
            "mi300x",
            MI300X.replace(**COUNTED_SINGLE),
            MI300X_SINGLE.replace(**COUNTED_SINGLE),
        ),
    )
    check_golden("h100_and_mi300x_781.md", write_full(cases).to_markdown())


def test_golden_shared_limit(
    make_case: Callable[..., Case], check_golden: Callable[[str, str], None]
) -> None:
    """Shared memory limits, and the tutorial's formula misses the driver's reserve."""
    resources = H100.replace(
        n_regs=56, shared=57376, pipeline_shared=57344, load_bytes=16, **COUNTED
    )
    single = resources.replace(shared=32, pipeline_shared=0)
    case = make_case(
        "h100",
        resources,
        single,
        problem=Problem(4096, 7168),
        config=Config(8192, 8, 3),
        measurement=dataclasses.replace(
            MEASURED, us=81.0, us_low=80.4, us_high=84.2, conditions=THROTTLED, mostly_launch=True
        ),
        recorded=Recorded(
            dataclasses.replace(MEASURED, us=79.0, us_low=None),
            tutorial=dataclasses.replace(MEASURED, us=88.0),
        ),
    )
    check_golden("h100_shared_limit.md", write_full((case,)).to_markdown())


def test_golden_spills_and_padding(
    make_case: Callable[..., Case], check_golden: Callable[[str, str], None]
) -> None:
    """The page mentions local memory, spilled registers and a padded allocation."""
    resources = MI300X.replace(
        n_regs=128,
        num_warps=16,
        sgprs=106,
        allocated_vgprs=176,
        local_bytes=276,
        vgpr_spills=68,
        sgpr_spills=129,
    )
    case = make_case(
        "mi300x",
        resources.replace(num_warps=4),
        MI300X,
        problem=Problem(64, 32768, "float16"),
        config=Config(32768, 4, 2),
        measurement=Measurement("launch failed", CONDITIONS, "RuntimeError: no luck"),
    )
    check_golden("mi300x_spills.md", write_full((case,)).to_markdown())


def test_golden_vector_add(
    make_case: Callable[..., Case], check_golden: Callable[[str, str], None]
) -> None:
    """A launch on a bare architecture has neither a number of programs nor a time."""
    resources = Resources(16, 4, 0, local_bytes=0, barriers=0, pipeline_shared=0, load_bytes=4)
    case = make_case(
        "sm_90",
        resources,
        kernel="vector_add",
        problem=Problem(1, 10),
        config=Config(4, 4, 1),
    )
    check_golden("sm_90_vector_add.md", write_full((case,)).to_markdown())


GPUS = sorted({*devices(), *bare_gpus()})


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    gpu=st.sampled_from(GPUS),
    kernel=st.sampled_from(["softmax", "softmax_row", "vector_add"]),
    rows=st.integers(1, 10**6),
    cols=st.integers(1, 65536),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    n_regs=st.integers(16, 255),
    shared=st.integers(0, 100_000),
    share=st.integers(0, 100),
    warps=st.integers(0, 4),
    stages=st.integers(1, 5),
    local_bytes=st.sampled_from([None, 0, 4, 5400]),
    sgprs=st.sampled_from([None, 40, 106]),
    load_bytes=st.sampled_from([None, 2, 4, 8, 16]),
    instructions=st.sampled_from([None, 24, 10_000]),
    loop_instructions=st.sampled_from([None, 85, 10_000]),
    async_copies=st.sampled_from([None, 0, 4]),
    measured=st.sampled_from(
        [None, MEASURED, Measurement("device lost", None), Measurement("wrong result", CONDITIONS)]
    ),
)
def test_any_kernel_can_be_explained(
    make_case: Callable[..., Case], measured: Measurement | None, **drawn: object
) -> None:
    """For any resources every section has content, and no None, nan or placeholder appears."""
    given_ = {name: value for name, value in drawn.items() if isinstance(value, int)}
    block_size = 1 << (given_["cols"] - 1).bit_length()
    config = Config(block_size, 2 ** given_["warps"], given_["stages"])
    resources = Resources(
        n_regs=given_["n_regs"],
        num_warps=config.num_warps,
        shared=given_["shared"],
        pipeline_shared=given_["shared"] * given_["share"] // 100,
        local_bytes=given_.get("local_bytes"),
        sgprs=given_.get("sgprs"),
        load_bytes=given_.get("load_bytes"),
        instructions=given_.get("instructions"),
        loop_instructions=given_.get("loop_instructions"),
        async_copies=given_.get("async_copies"),
    )
    try:
        case = make_case(
            drawn["gpu"],
            resources,
            resources.replace(shared=0, pipeline_shared=0),
            kernel=drawn["kernel"],
            problem=Problem(given_["rows"], given_["cols"], str(drawn["dtype"])),
            config=config,
            measurement=measured,
            recorded=Recorded(*[measured if measured is MEASURED else None] * 3),
        )
    except DoesNotFitError:
        return
    text = write_full((case,)).to_markdown()
    assert not re.search(r"\b(None|nan)\b|(?<!-)\binf\b|[{}]", text)
    assert len(re.findall(r"^## ", text, re.MULTILINE)) >= 3
    assert not re.search(r"^## .*\n+(## |\Z)", text, re.MULTILINE)


def test_explain_from_python() -> None:
    """`occupancy_lab.explain` gives records, markdown and JSON that agree."""
    explanation = occupancy_lab.explain(cols=781, gpu="h100")
    (record,) = explanation.records
    assert record.gpu.target.name == "sm_90"
    assert record.resources.shared == 32 + 3 * 4096
    values = json.loads(explanation.to_json())
    assert values["records"][0]["n_regs"] == record.resources.n_regs
    assert values["document"]["title"] in explanation.to_markdown()
    assert explanation._repr_markdown_() == explanation.to_markdown()


def test_a_failure_on_one_gpu_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a launch does not fit one GPU, the page of the other says why."""
    given = GivenCompiler(lambda keywords, _: MI300X.replace(num_warps=keywords["num_warps"]))
    monkeypatch.setattr("occupancy_lab.explaining.matrix.Compiler", lambda *_, **__: given)
    found = occupancy_lab.explain(50257, rows=512, gpu="h100,mi300x")
    assert [record.gpu.key for record in found.records] == ["mi300x"]
    assert [failed.gpu.key for failed in found.failures] == ["h100"]
    for full in (False, True):
        page = found.to_markdown(full=full)
        assert "**MI300X**: 4 programs per CU" in page
        assert "**H100 SXM**: H100 SXM gives a program at most 232448 B of shared memory" in page


def test_explain_without_names_takes_both_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no GPU at hand and none asked for, an NVIDIA and an AMD GPU are explained."""
    monkeypatch.setattr("occupancy_lab.inputs.present_gpus", tuple)
    explanation = occupancy_lab.explain(cols=781)
    assert [record.gpu.vendor for record in explanation.records] == ["NVIDIA", "AMD"]


@pytest.mark.usefixtures("alone")
def test_explain_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """`measure` times the launch and its best change on the GPU at hand, and on no other."""
    put_here(monkeypatch, "h200")
    monkeypatch.setattr("occupancy_lab.compiling.compile._has_active_driver", lambda: False)
    launches = Launches()
    monkeypatch.setattr("occupancy_lab.measuring.journal.measure_launches", launches)
    explanation = occupancy_lab.explain(cols=781, gpu="h200,mi300x", num_warps=4, measure=True)
    here, elsewhere = explanation.records
    (problem, launch), (_, changed) = launches.asked
    assert (problem, launch.config, launch.kernel) == (here.problem, here.config, "softmax")
    best = explanation.cases[0].best
    assert best is not None
    assert changed.config == best.record.config
    assert launch.num_programs == here.plan.num_programs
    assert here.measurement is not None
    assert here.row()["us"] == 10.0
    assert elsewhere.measurement is None
    assert "Measured now on NVIDIA H200" in explanation.to_markdown(full=True)


@pytest.mark.parametrize(
    ("here", "asked", "part"),
    [
        ((), "h200", "--measure needs a GPU"),
        (("a100",), "h200,mi300x", "asked for is H200 SXM and MI300X"),
        (("h200",), "sm_90", "--measure needs the GPU here, which is H200 SXM"),
    ],
)
def test_measuring_needs_the_gpu(
    here: tuple[str, ...], asked: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measuring on a GPU that is not at hand is refused before anything is compiled."""
    put_here(monkeypatch, *here)
    monkeypatch.setattr("occupancy_lab.compiling.process.CompileProcess.compile", None)
    with pytest.raises(InputError, match=part):
        occupancy_lab.explain(cols=781, gpu=asked, measure=True)


@pytest.mark.usefixtures("alone")
def test_recorded_launches_are_those_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings are looked up for the launch, one program per row, and the tutorial's programs."""
    asked = []
    monkeypatch.setattr(
        "occupancy_lab.sweeping.recorded.recorded_measurement", lambda *key: asked.append(key)
    )
    options = {"rows": 32768, "gpu": "h200", "num_warps": 4}
    explanation = occupancy_lab.explain(cols=4096, num_stages=3, **options)
    (record,), _ = explanation.records, explanation.recorded
    kinds = {(kernel, config.num_stages, programs) for _, kernel, _, config, programs in asked}
    assert kinds == {
        ("softmax", 3, record.plan.num_programs),
        ("softmax_row", 1, None),
        ("softmax", 3, record.tutorial_plan.num_programs),
    }
    assert {(key[0], key[2]) for key in asked} == {("h200", record.problem)}


def test_a_kernel_of_the_same_name_was_not_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A user's kernel named softmax does not get the recorded times of the lab's softmax."""
    monkeypatch.setattr("occupancy_lab.sweeping.recorded.recorded_measurement", lambda *_: MEASURED)
    file = tmp_path / "mine.py"
    file.write_text("from occupancy_lab.kernels.softmax import KERNEL\n")
    recorded = "Recorded on NVIDIA H200, 2026-11-21"
    assert recorded in occupancy_lab.explain(cols=781, gpu="h200").to_markdown(full=True)
    mine = occupancy_lab.explain(cols=781, gpu="h200", kernel=str(file))
    assert recorded not in mine.to_markdown(full=True)


@pytest.mark.gpu
def test_explain_measures_the_gpu_at_hand() -> None:
    """With a GPU at hand and none asked for, that one is explained, and timed plausibly."""
    import torch

    (record,) = occupancy_lab.explain(cols=4096, rows=8192, measure=True).records
    properties = torch.cuda.get_device_properties(0)
    assert record.gpu.multiprocessors == properties.multi_processor_count
    measurement = record.measurement
    assert measurement.status == "measured"
    assert measurement.us_low <= measurement.us <= measurement.us_high
    least = record.to_dict()["least_us"]
    assert least is None or measurement.us > least / 2


def test_every_missing_term_has_words() -> None:
    """Every term that the tutorial may miss has words."""
    names = {term.name for term in (*CUDA_TERMS, *HIP_TERMS)}
    assert names == set(TERM_WORDS)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"cols": 781, "signature": "x=*fp16"}, "signature describes a launch"),
        ({"kernel": "softmax", "rows": 4}, "rows describes a matrix; give its cols too"),
        ({"gpu": "h100"}, "give --cols, or a Triton function as FILE.py:FUNCTION"),
        ({"kernel": print}, "is no function that triton.jit made"),
        ({"kernel": "missing.py:double"}, "missing.py"),
    ],
)
def test_arguments_that_do_not_fit_together(asked: dict[str, Any], words: str) -> None:
    """Arguments that mix a matrix with a launch, or describe neither, raise one sentence."""
    with pytest.raises(InputError) as raised:
        occupancy_lab.explain(**asked)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_unknown_argument() -> None:
    """A misspelt argument raises TypeError."""
    with pytest.raises(TypeError, match="no argument 'colls'"):
        occupancy_lab.explain(colls=781)


def test_a_script_has_no_use_for_a_signature(tmp_path: Path) -> None:
    """Options that describe a launch are refused for a script, which makes its own launches."""
    path = tmp_path / "bench.py"
    path.write_text("def main():\n    pass\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"^--grid has no use for .*bench\.py:main"):
        occupancy_lab.explain(kernel=f"{path}:main", grid="4")


def test_a_script_runs_in_the_python_of_another_triton(tmp_path: Path) -> None:
    """The launches of a script are those that the chosen Python makes."""
    path = tmp_path / "bench.py"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nOTHER=here exec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    path.write_text(
        'import os\n\n\ndef main():\n    raise ValueError(os.environ["OTHER"])\n', encoding="utf-8"
    )
    with pytest.raises(InputError, match=r"bench\.py:5: ValueError: here"):
        occupancy_lab.explain(kernel=f"{path}:main", triton=str(python))


def test_several_settings_of_a_matrix_are_configurations() -> None:
    """They are ranked in one table, as those of any launch."""
    asked = {"gpu": "h100", "num_warps": "4,8", "num_stages": [1, 2]}
    found = occupancy_lab.explain(781, **asked)
    configs = [(one.config.num_warps, one.config.num_stages) for one in found.records]
    assert configs == [(4, 1), (4, 2), (8, 1), (8, 2)]
    assert found.to_document().tables[0].headers[0] == "num_warps, num_stages"
    assert "4 of 4 configurations compile and fit." in found.to_markdown()


def test_nearby_launches_that_take_too_long_to_count_have_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a minute changes that have an effect get no time, and a sentence says why."""
    monkeypatch.setattr("occupancy_lab.explaining.explanation.SEARCH_SECONDS", 0.0)
    x = tensor((2048, 2048), "float16")
    run = dry_run(launched_kernels.transpose, "h100")[(1024,)](x, x, 64, 64, BLOCK=64)
    (case,) = run.cases
    others = [one for one in case.neighbours if one.record is not None and not one.reason]
    assert case.record.prediction is not None
    assert others
    assert {one.prediction for one in others} == {None}
    assert "no time, as counting what nearby launches do took too long" in run.to_markdown()
