"""`explain --measure` of any kernel: what is launched, and how the page says what was measured."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import run
from stand_ins import CONDITIONS, Launches

from occupancy_lab import explain
from occupancy_lab.errors import InputError
from occupancy_lab.explaining import measured as module
from occupancy_lab.gpus import find_gpu
from occupancy_lab.measuring import journal, process
from occupancy_lab.measuring.launches import LaunchBatch
from occupancy_lab.values import Measurement

EXAMPLES = Path(__file__).parents[2] / "examples"
LAYER_NORM = {
    "kernel": f"{EXAMPLES / 'layer_norm.py'}:layer_norm",
    "signature": "*fp16,*fp16,*fp16,*fp16,*fp32,*fp32,2048,2048,1e-5",
    "constexprs": "BLOCK_SIZE=2048",
    "num_warps": 8,
    "gpu": "h200",
}


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[LaunchBatch]:
    """Let an H200 be here, on which each launch of a batch takes 1 us longer than the last."""
    found: list[LaunchBatch] = []

    def time_launches(batch: LaunchBatch) -> list[Measurement]:
        found.append(batch)
        return [
            Measurement("measured", CONDITIONS, us=10.0 + place, us_low=9.0, us_high=20.0, runs=30)
            for place, _ in enumerate(batch.launches)
        ]

    here: Callable[[Any], Any] = lambda _gpus: find_gpu("h200")  # noqa: E731 - in two places
    monkeypatch.setattr(module, "time_launches", time_launches)
    monkeypatch.setattr(process, "gpu_to_measure", here)
    monkeypatch.setattr(module, "gpu_to_measure", here)
    return found


def test_each_launch_of_a_script_is_measured(timed: list[LaunchBatch]) -> None:
    """Each configuration of an autotuner and each other launch is measured, and shown so."""
    found = explain(kernel=f"{EXAMPLES / 'step.py'}:main", gpu="h200", measure=True)
    (batch,) = timed
    assert [one.launch.kernel for one in batch.launches][:5] == ["layer_norm", *["matmul"] * 4]
    us = [record.measurement.us for line in found.lines for record in line.run.records]
    assert us == [10.0, 11.0, 12.0, 13.0, 14.0]
    norm, matmul = (line.run.to_document().to_markdown() for line in found.lines)
    assert "10.0 us measured, " in norm
    assert "11.0 us measured, " in matmul
    assert "14.0 us" in matmul
    page = found.to_document().to_markdown()
    assert "What was measured was launched afterwards, on the GPU here." in page
    assert "predicted time of a launch, between CUDA events" in page
    assert [row["us"] for row in found.to_dict()["lines"][0]["rows"]] == [10.0]


def test_the_best_change_is_measured_too(timed: list[LaunchBatch]) -> None:
    """The change that the first sentence names is launched, and the page says what it took."""
    asked = {**LAYER_NORM, "num_warps": 16, "grid": 4096}
    found = explain(**asked, measure=True)
    ((case,), (batch,)) = found.cases, timed
    assert case.best is not None
    assert len(batch.launches) == 2
    assert batch.launches[1].launch.options["num_warps"] == case.best.changes["num_warps"]
    page = found.to_document().to_markdown()
    assert f"; 11.0 us measured with {case.best.words} (+10.0%)." in page


def test_a_sweep_and_a_tune_measure_any_kernel(timed: list[LaunchBatch]) -> None:
    """A sweep measures each launch of a described kernel, and a tune the best predicted."""
    options = (
        f"{LAYER_NORM['kernel']} --signature {LAYER_NORM['signature']} --constexpr BLOCK_SIZE=2048"
        " --num-warps 2,4,8 --gpu h200 --grid 4096 --measure --runs 7"
    ).split()
    rows = json.loads(run("sweep", *options, "--json").stdout)
    assert sorted(row["us"] for row in rows) == [10.0, 11.0, 12.0]
    assert {row["measured"] for row in rows} == {"measured"}
    page = run("tune", *options, "--top", "2").stdout
    assert "Fastest measured: layer_norm, " in page
    assert [(len(batch.launches), batch.runs) for batch in timed] == [(3, 7), (2, 7)]


def test_choices_at_several_sizes_are_measured(timed: list[LaunchBatch], tmp_path: Path) -> None:
    """At each size the best predicted are launched, and the one that took least is chosen."""
    sizes = tmp_path / "sizes.csv"
    sizes.write_text("N,BLOCK_SIZE\n2048,2048\n4096,4096\n")
    options = (
        f"{LAYER_NORM['kernel']} --signature *fp16,*fp16,*fp16,*fp16,*fp32,*fp32,N,N,1e-5"
        f" --sizes {sizes} --num-warps 2,4,8 --gpu h200 --gpu h100 --grid 4096 --measure --top 2"
    ).replace("--gpu h200 --gpu h100", "--gpu h200,h100")
    found = json.loads(run("tune", *options.split(), "--json").stdout)["gpus"]
    (batch,) = timed
    warps = [one.launch.options["num_warps"] for one in batch.launches]
    assert len(batch.launches) == 4
    assert [one["us"] for one in found["h200"]] == [10.0, 12.0]
    assert [one["config"]["num_warps"] for one in found["h200"]] == [warps[0], warps[2]]
    assert [one["us"] for one in found["h100"]] == [None, None]
    page = run("tune", *options.split()).stdout
    assert "were launched on H200 SXM" in " ".join(page.split())
    assert "us measured" in page


def test_choices_of_a_program_are_measured(timed: list[LaunchBatch]) -> None:
    """A kernel that a program launches is timed with the program's own tensors."""
    page = run("tune", f"{EXAMPLES / 'step.py'}:main", "--gpu", "h200", "--measure").stdout
    (batch,) = timed
    assert {one.launch.kernel for one in batch.launches} == {"matmul"}
    assert not any(one.sizes for one in batch.launches)
    assert "us measured" in page


def test_a_size_that_cannot_be_launched_has_no_choice(
    timed: list[LaunchBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If none of the best predicted can be launched, the command says why."""

    def fail(batch: LaunchBatch) -> list[Measurement]:
        return [Measurement("launch failed", None, "out of memory")] * len(batch.launches)

    monkeypatch.setattr(module, "time_launches", fail)
    found = run("tune", f"{EXAMPLES / 'step.py'}:main", "--gpu", "h200", "--measure", "--top", "1")
    assert found.returncode == 2
    assert "could be launched; the first: out of memory" in found.stderr
    assert not timed


def test_configurations_of_a_matrix_are_measured(
    timed: list[LaunchBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each configuration of a matrix's kernel is measured, and the best change of the fastest."""
    made = Launches()
    monkeypatch.setattr(journal, "measure_launches", made)
    found = explain(781, num_warps=[8, 16], gpu="h200", measure=True)
    assert [record.measurement.us for record in found.records] == [10.0, 10.0]
    (case,) = found.chosen
    best = case.best
    assert best is not None
    assert [launch.config for _, launch in made.asked[:2]] == [one.config for one in found.records]
    assert [launch.config for _, launch in made.asked[2:]] == [best.record.config]
    assert f"; 10.0 us measured with {best.words} (0.0%)." in found.to_document().to_markdown()
    assert not timed


def test_tensors_have_the_bytes_that_the_launch_touches(timed: list[LaunchBatch]) -> None:
    """A described kernel gets tensors of as many bytes as it was counted to touch."""
    explain(**LAYER_NORM, grid=4096, measure=True)
    sizes = timed[0].launches[0].sizes
    rows, mean = 4096 * 2048 * 2, 4096 * 4
    assert sizes == {"X": rows, "Y": rows, "W": 4096, "B": 4096, "Mean": mean, "Rstd": mean}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "cannot make up tensors for layer_norm: .*grid.*; name a function"),
        ({"grid": 4096, "warm": True}, "with an empty L2 cache; leave out --warm"),
    ],
)
@pytest.mark.usefixtures("timed")
def test_what_cannot_be_measured_is_refused(asked: dict[str, Any], why: str) -> None:
    """Without a grid no tensor can be made up, and a warm launch is not what is timed."""
    with pytest.raises(InputError, match=why):
        explain(**LAYER_NORM, **asked, measure=True)


def test_values_that_steer_a_launch_are_not_made_up(
    timed: list[LaunchBatch], tmp_path: Path
) -> None:
    """A launch whose addresses depend on values in memory is refused by the tensor's name."""
    file = tmp_path / "lookup.py"
    file.write_text(
        "import triton\nimport triton.language as tl\n\n\n"
        "@triton.jit\ndef look_up(rows, table, out, WIDTH: tl.constexpr):\n"
        "    row, at = tl.load(rows + tl.program_id(0)), tl.arange(0, WIDTH)\n"
        "    value = tl.load(table + row * WIDTH + at)\n"
        "    tl.store(out + tl.program_id(0) * WIDTH + at, value)\n"
    )
    with pytest.raises(InputError, match="what it does depends on values of rows; name a function"):
        explain(
            kernel=f"{file}:look_up",
            signature="rows=*i32,table=*fp16,out=*fp16",
            constexprs="WIDTH=128",
            grid=64,
            gpu="h200",
            measure=True,
        )
    assert not timed


def test_a_launch_without_a_time_says_why(
    monkeypatch: pytest.MonkeyPatch, timed: list[LaunchBatch]
) -> None:
    """The page of a launch that failed on the GPU says why."""
    failed = Measurement("launch failed", CONDITIONS, "the script made no such launch")
    monkeypatch.setattr(module, "time_launches", lambda batch: [failed] * len(batch.launches))
    found = explain(**LAYER_NORM, grid=4096, measure=True)
    said = "**Not measured** on NVIDIA H200, launch failed: the script made no such launch."
    assert said in found.to_document().to_markdown()
    assert not timed
