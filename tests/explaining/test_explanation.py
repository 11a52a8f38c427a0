"""The words: golden files, and what must hold of any words."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import H100, H100_SINGLE, MI300X, MI300X_SINGLE

import occupancy_lab
from occupancy_lab.errors import DoesNotFitError
from occupancy_lab.explaining import write_document
from occupancy_lab.explaining.formula import TERM_WORDS
from occupancy_lab.gpus import bare_gpus, devices
from occupancy_lab.occupancy.terms import CUDA_TERMS, HIP_TERMS
from occupancy_lab.values import Config, Problem, Resources

if TYPE_CHECKING:
    from collections.abc import Callable

    from occupancy_lab.explaining.case import Case


def test_golden_side_by_side(
    make_case: Callable[..., Case], check_golden: Callable[[str, str], None]
) -> None:
    """An NVIDIA and an AMD GPU are explained side by side, each with its own numbers."""
    cases = (
        make_case("h100", H100, H100_SINGLE),
        make_case("mi300x", MI300X, MI300X_SINGLE),
    )
    check_golden("h100_and_mi300x_781.md", write_document(cases).to_markdown())


def test_golden_shared_limit(
    make_case: Callable[..., Case], check_golden: Callable[[str, str], None]
) -> None:
    """Where shared memory limits, stages are the advice and the driver's reserve is missing."""
    resources = H100.replace(n_regs=56, shared=57376, pipeline_shared=57344, load_bytes=16)
    single = resources.replace(shared=32, pipeline_shared=0)
    case = make_case(
        "h100",
        resources,
        single,
        problem=Problem(4096, 7168),
        config=Config(8192, 8, 3),
    )
    check_golden("h100_shared_limit.md", write_document((case,)).to_markdown())


def test_golden_spills_and_padding(
    make_case: Callable[..., Case], check_golden: Callable[[str, str], None]
) -> None:
    """Local memory, spilled registers and a padded allocation are each told."""
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
    )
    check_golden("mi300x_spills.md", write_document((case,)).to_markdown())


def test_golden_vector_add(
    make_case: Callable[..., Case], check_golden: Callable[[str, str], None]
) -> None:
    """A small vector addition shows pid, block_start, offsets and mask, on a bare architecture."""
    resources = Resources(16, 4, 0, local_bytes=0, barriers=0, pipeline_shared=0, load_bytes=4)
    case = make_case(
        "sm_90",
        resources,
        kernel="vector_add",
        problem=Problem(1, 10),
        config=Config(4, 4, 1),
    )
    check_golden("sm_90_vector_add.md", write_document((case,)).to_markdown())


GPUS = sorted({*devices(), *bare_gpus()})


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
)
def test_any_kernel_can_be_told(make_case: Callable[..., Case], **drawn: object) -> None:
    """Whatever a kernel takes, it is explained without a hole, and not known is never 0 or None."""
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
    )
    try:
        case = make_case(
            drawn["gpu"],
            resources,
            resources.replace(shared=0, pipeline_shared=0),
            kernel=drawn["kernel"],
            problem=Problem(given_["rows"], given_["cols"], str(drawn["dtype"])),
            config=config,
        )
    except DoesNotFitError:
        return
    text = write_document((case,)).to_markdown()
    assert not re.search(r"\b(None|nan)\b|(?<!-)\binf\b|[{}]", text)
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == 8


def test_limiter_of_table_is_limiter_of_sentence(make_case: Callable[..., Case]) -> None:
    """The limits table marks exactly the resources that the record calls limiters."""
    case = make_case("h100", H100, H100_SINGLE)
    table = write_document((case,)).sections[2].tables[0]
    marked = {row[0] for row in table.rows if "limiter" in row[1]}
    assert marked == set(case.record.occupancy.limiters)


@pytest.mark.parametrize("gpu", ["h100", "sm_90", "cuda:90", "cuda:90:32"])
def test_explain_from_python(gpu: str) -> None:
    """`occupancy_lab.explain` compiles, and gives records, markdown and JSON of one source."""
    explanation = occupancy_lab.explain(cols=781, gpu=gpu)
    (record,) = explanation.records
    assert record.gpu.target.name == "sm_90"
    assert record.resources.shared == 32 + 3 * 4096
    values = json.loads(explanation.to_json())
    assert values["records"][0]["n_regs"] == record.resources.n_regs
    assert values["document"]["title"] in explanation.to_markdown()
    assert explanation._repr_markdown_() == explanation.to_markdown()


def test_explain_takes_the_tutorials_choice() -> None:
    """Stages follow the GPU's shared memory: 4 on an H100, 2 on an MI300X and an RTX 4090."""
    explanation = occupancy_lab.explain(cols=781, gpu=["h100", "mi300x", "rtx4090"])
    configs = [dataclasses.astuple(record.config) for record in explanation.records]
    assert configs == [(1024, 8, 4), (1024, 8, 2), (1024, 8, 2)]


def test_explain_without_names_takes_both_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no GPU at hand and none asked for, an NVIDIA and an AMD GPU are explained."""
    monkeypatch.setattr("occupancy_lab.choosing.present_gpus", tuple)
    explanation = occupancy_lab.explain(cols=781)
    assert [record.gpu.vendor for record in explanation.records] == ["NVIDIA", "AMD"]


@pytest.mark.gpu
def test_explain_takes_the_gpu_at_hand() -> None:
    """With a GPU at hand and none asked for, that one is explained, with its own size."""
    import torch

    (record,) = occupancy_lab.explain(cols=781).records
    properties = torch.cuda.get_device_properties(0)
    assert record.gpu.multiprocessors == properties.multi_processor_count


def test_every_missing_term_has_words() -> None:
    """Whatever term the tutorial misses, there is a reason to give for it."""
    names = {term.name for term in (*CUDA_TERMS, *HIP_TERMS)}
    assert names == set(TERM_WORDS)
