"""Rooflines of kernels: points are at their counts and times; kernels without them are left out."""

import dataclasses
from pathlib import Path

import launched_kernels
import pytest
from in_process import refused
from matplotlib.figure import Figure
from traced_kernels import BYTES, traced_kernel, worked

from occupancy_lab import dry_run, tensor
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.reporting.roofline import draw_explanation, draw_trace, roofs_of
from occupancy_lab.tracing.traced import GridLaunches, Traced, TracedKernel

MEASURED = GridLaunches((8,), 100, samples=5, us=150.0, record=worked())


def drawn(*kernels: TracedKernel) -> Figure:
    """Return the roofline of *kernels*."""
    return draw_trace(Traced(kernels, ()))


def test_a_kernel_lies_by_its_counts_and_its_time() -> None:
    """A point is at the FLOPs over its tensors' bytes, and the FLOPs over the time of a launch."""
    flops = worked().counts.flops.exact
    assert flops
    figure = drawn(traced_kernel("swiglu", (MEASURED,)))
    (point,) = figure.axes[0].collections
    ((intensity, rate),) = point.get_offsets().tolist()
    assert intensity == pytest.approx(flops / BYTES)
    assert rate == pytest.approx(flops / 150e-6)
    assert figure.get_suptitle() == "1 kernel on H100 SXM, measured"
    label = str(point.get_label())
    assert label.startswith("swiglu: 150 us measured, least 80.7 us; ")
    assert label.endswith("15.0 ms in total, 6.93 ms of them lost")


@pytest.mark.parametrize("changes", [{"record": None}, {"us": 0.0}])
def test_a_trace_without_numbers_has_no_roofline(changes: dict[str, float | None]) -> None:
    """A trace without the needed numbers is refused in one sentence."""
    with pytest.raises(InputError, match="there is no roofline"):
        drawn(traced_kernel("a", (dataclasses.replace(MEASURED, **changes),)))  # type: ignore[arg-type]


def test_dtypes_of_one_rate_share_a_roof() -> None:
    """A roof names all dtypes with its rate, on tensor cores and outside them."""
    roofs = roofs_of(find_gpu("h100"), ("fp16", "bf16", "fp64", "fp4"), ("fp32", "fp64"))
    assert [(roof.name, roof.rate) for roof in roofs] == [
        ("bf16 and fp16 tensor cores", pytest.approx(989.4e12)),
        ("fp64 tensor cores and fp32", pytest.approx(66.9e12)),
        ("fp64", pytest.approx(33.5e12)),
    ]


ADDED = tensor((1 << 22,), "float32")


@pytest.mark.slow
def test_an_explanation_has_a_point_for_the_launch_and_each_near_it() -> None:
    """The launch comes first, then its neighbours by predicted time, each at its own counts."""
    grid = lambda named: (-(-(1 << 22) // named["BLOCK"]),)  # noqa: E731 - as a launch line has it
    lab = dry_run(launched_kernels.tuned_add.fn.fn, "h100")
    found = lab[grid](ADDED, ADDED, 1 << 22, EVEN=True, BLOCK=64)
    figure = draw_explanation(found)
    points = figure.axes[0].collections
    names = [str(one.get_label()).partition(":")[0] for one in points]
    (case,) = found.cases
    assert names[0] == "as launched"
    assert {"num_warps 2", "BLOCK 128"} <= {*names}
    ((intensity, rate),) = points[0].get_offsets().tolist()
    flops, prediction = 1 << 22, case.record.prediction
    assert intensity == pytest.approx(flops / (3 * 4 * flops))  # two are read, one is written
    assert rate == pytest.approx(flops / prediction.us * 1e6)


@pytest.mark.slow
def test_configurations_are_named_by_what_they_differ_in() -> None:
    """The caption names the settings that the names of the points consist of."""
    lab = dry_run(launched_kernels.tuned_add, "h100")
    figure = draw_explanation(lab[(1 << 12,)](ADDED, ADDED, 1 << 22))
    labels = [str(one.get_label()).partition(":")[0] for one in figure.axes[0].collections]
    assert len(labels) == len({*labels}) > 1
    assert "named by BLOCK, num_warps; roofs" in " ".join(figure.get_label().split())
    assert "1024, 8" in labels


def test_the_command_refuses_several_gpus_before_it_explains(tmp_path: Path) -> None:
    """Several GPUs are refused before anything is explained."""
    path = tmp_path / "roofline.svg"
    said = refused("explain", "--cols", "781", "--gpu", "h100,b200", "--plot", str(path))
    assert "these are h100 and b200: name one with --gpu" in said
    assert not path.exists()
