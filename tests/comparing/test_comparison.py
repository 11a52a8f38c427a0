"""`compare`: from arguments to records and words, with real compilers."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from occupancy_lab.comparing.comparison import compare
from occupancy_lab.compiling import triton_version
from occupancy_lab.compiling.environment import Environment
from occupancy_lab.compiling.process import CompileProcess
from occupancy_lab.errors import CompileError, InputError
from occupancy_lab.kernel import load_kernel
from occupancy_lab.prediction import CHOSEN_WORDS
from occupancy_lab.text.words import prediction_words
from occupancy_lab.tracing.explain import explain

OTHER_PYTHON = os.environ.get("OCCUPANCY_LAB_OTHER_PYTHON")


def test_two_gpus_are_compared() -> None:
    """Two GPUs give two records and one document, in markdown, JSON and a notebook."""
    comparison = compare(cols=781, gpu="h100,mi300x")
    assert [record.gpu.key for record in comparison.records] == ["h100", "mi300x"]
    values = json.loads(comparison.to_json())
    assert [record["n_regs"] for record in values["records"]] == [
        record.resources.n_regs for record in comparison.records
    ]
    assert [record["launch"] for record in values["recorded"]] == [None, None]
    assert comparison._repr_markdown_() == comparison.to_markdown()
    assert comparison.to_markdown().startswith("# softmax, 4096 x 781 float32: H100 SXM and MI300X")


def test_compare_has_the_sections_of_explain() -> None:
    """GPUs have the columns that `explain` gives them; other entries have columns of their own."""
    found = compare(cols=781, gpu="h100,h200").to_document(full=True).sections
    assert found[0] == explain(781, gpu="h100,h200").to_document().sections[0]
    assert [one.title for one in found[1:]] == [
        "The limits: programs that run, of those that each limit allows, per SM"
    ]
    *_, limits, last = (
        compare(cols=781, gpu="sm_90", num_stages=[1, 2]).to_document(full=True).sections
    )
    assert limits.tables[0].headers == ("limit", "num_stages 1", "num_stages 2")
    assert last.title == "What differs and why"
    assert last.sentences


def test_the_fastest_has_the_range_of_what_is_chosen() -> None:
    """The fastest of several kernels has the wider range, in the table and in the sentences."""
    kernels = ("softmax", "softmax_row")
    alone = [explain(781, gpu="h100", kernel=name).records[0].prediction for name in kernels]
    found = compare(781, gpu="h100", kernel=kernels)
    both = [record.prediction for record in found.records]
    slower, faster = sorted(filter(None, alone), key=lambda one: -one.us)
    assert slower in both
    assert faster.as_chosen in both
    assert found.to_markdown().count(prediction_words(faster.as_chosen)) == len(both)
    assert prediction_words(faster) not in found.to_markdown()


def test_several_values_of_each_setting_are_compared() -> None:
    """Each combination of num_warps and BLOCK_SIZE is an entry, for a matrix as for a function."""
    found = compare(781, gpu="h100", num_warps="4,8", block_size=[1024, 2048])
    settings = [(one.config.block_size, one.config.num_warps) for one in found.records]
    assert settings == [(1024, 4), (1024, 8), (2048, 4), (2048, 8)]
    assert CHOSEN_WORDS in found.to_document().sections[0].sentences
    assert CHOSEN_WORDS not in compare(781, gpu="h100,mi300x").to_document().sections[0].sentences


def test_matrices_are_compared() -> None:
    """Several cols, rows or dtypes are compared as matrices."""
    comparison = compare("781,784", gpu="h100")
    markdown = comparison.to_markdown()
    assert markdown.startswith("# softmax, on H100 SXM: 4096 x 781 float32 and 4096 x 784 float32")
    assert [record.problem.cols for record in comparison.records] == [781, 784]
    assert "**4096 x 784 float32** against 4096 x 781 float32: 31 registers per thread" in markdown
    both = compare([781, 2049], dtype=["float16"], gpu="h100", kernel="softmax,softmax_row")
    title = "on H100 SXM: softmax and softmax_row; 4096 x 781 float16 and 4096 x 2049 float16"
    assert both.to_document(full=True).title == title
    assert both.to_document(full=True).sections[0].tables[0].rows[0][1] == "1024"


def test_kernels_of_one_name_are_told_apart_by_their_files(tmp_path: Path) -> None:
    """Two files whose kernels have the same name are named by their paths."""
    source = Path(sys.modules[load_kernel("softmax").run.__module__].__file__ or "")
    copy = tmp_path / "mine.py"
    copy.write_text(source.read_text())
    comparison = compare(781, gpu="sm_90", kernel=["softmax", str(copy)])
    assert comparison.to_document(full=True).sections[0].tables[0].headers[1:] == (
        "softmax",
        str(copy),
    )


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"gpu": "h100"}, "give two or more GPUs, Triton versions, kernels, cols"),
        ({"gpu": "h100", "kernel": "softmax,softmax"}, "give two or more"),
        ({"gpu": "h100", "num_stages": [2, 2]}, "give two or more"),
        ({"gpu": "h100,a100", "num_stages": [1, 2, 3, 4]}, "8 combinations .* at most 6"),
        ({"gpu": "h100,a100", "kernel": "softmax_naive"}, "torch operations"),
        ({"gpu": "h100,a100", "block_size": 512}, "BLOCK_SIZE is 512"),
        ({"gpu": "h100,a100", "rows": 0}, "rows is 0"),
        ({"gpu": "h100,a100", "triton": "newest"}, "'?newest'? is neither a Triton version"),
        ({"gpu": "h100", "num_stages": []}, "give two or more"),
        ({"gpu": "h100", "rows": [7, 7], "dtype": "float32,float32"}, "give two or more"),
        ({"gpu": "h100", "rows": [7, 0]}, "rows is 0"),
    ],
)
def test_invalid_arguments_are_refused(
    asked: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invalid arguments are refused before anything is compiled."""
    monkeypatch.setattr(CompileProcess, "compile", None)
    with pytest.raises(InputError, match=reason):
        compare(781, **asked)


def test_the_same_version_twice_is_refused() -> None:
    """Two environments with the same version of Triton are refused."""
    version = triton_version()
    with pytest.raises(InputError, match=f"are both Triton {re.escape(version)}"):
        compare(781, gpu="h100", triton=[version, sys.executable])


@pytest.fixture
def as_other(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes "other" mean the Python at a path, with the Triton 0.0."""

    def use(python: str) -> None:
        def find(wanted: str | None) -> Environment:
            if wanted == "other":
                return Environment(python, "0.0")
            return Environment(sys.executable, triton_version())

        monkeypatch.setattr("occupancy_lab.compiling.compiler.find_environment", find)

    return use


@pytest.mark.parametrize("gpu", ["h100", "mi300x"])
def test_another_process_compiles_the_same(
    as_other: Callable[[str], None], gpu: str, tmp_path: Path
) -> None:
    """The same Triton in another process compiles to the same resources."""
    link = tmp_path / "python"
    link.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    link.chmod(0o755)
    as_other(str(link))
    for cache in (True, False):
        here, there = compare(781, gpu=gpu, triton="here,other", cache=cache).records
        assert here.resources == there.resources
        assert (here.triton_version, there.triton_version) == (triton_version(), "0.0")


def test_a_compiler_that_dies_is_an_error(as_other: Callable[[str], None]) -> None:
    """An interpreter that cannot compile raises CompileError."""
    as_other("/bin/false")
    with pytest.raises(CompileError, match="died"):
        compare(781, gpu="h100", triton="here,other")


@pytest.mark.skipif(
    OTHER_PYTHON is None, reason="OCCUPANCY_LAB_OTHER_PYTHON names no Python with another Triton"
)
@pytest.mark.parametrize("gpu", ["h100", "mi300x"])
def test_two_versions_of_triton(gpu: str) -> None:
    """With two real Tritons, each record has its own version and registers."""
    comparison = compare(4095, gpu=gpu, triton=[sys.executable, str(OTHER_PYTHON)])
    here, there = comparison.records
    assert here.triton_version == triton_version()
    assert there.triton_version != here.triton_version
    assert here.gpu == there.gpu
    assert here.resources.shared == there.resources.shared
    (sentence, *_) = comparison.to_document(full=True).sections[2].sentences
    assert sentence.startswith(f"**Triton {there.triton_version}** ")
    assert f"{there.resources.n_regs} " in sentence
