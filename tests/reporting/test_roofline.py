"""The roofline of a trace: each kernel by its own counts and time, and what has none left out."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from traced_kernels import BYTES, traced_kernel, worked

from occupancy_lab.errors import InputError
from occupancy_lab.reporting.roofline import draw_trace
from occupancy_lab.tracing.traced import GridLaunches, Traced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from occupancy_lab.tracing.traced import TracedKernel

MEASURED = GridLaunches((8,), 100, samples=5, us=150.0, work=worked())


def drawn(*kernels: TracedKernel) -> Figure:
    """Return the roofline of *kernels*."""
    return draw_trace(Traced(kernels, ()))


def test_a_kernel_lies_by_its_counts_and_its_time() -> None:
    """FLOPs over the bytes of its tensors, and over the time of a launch."""
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
    assert label.endswith("15.0 ms in all, 6.93 ms of them lost")


def test_predicted_and_measured_are_in_no_picture_together() -> None:
    """Beside timed kernels one that nobody timed has no point, and that is said."""
    untimed = traced_kernel("b", (dataclasses.replace(MEASURED, us=None),))
    figure = drawn(traced_kernel("a", (MEASURED,)), untimed)
    assert len(figure.axes[0].collections) == 1
    assert "1 kernel without FLOPs or a known time left out." in figure.get_label()
    assert drawn(untimed).get_suptitle() == "1 kernel on H100 SXM, predicted"


@pytest.mark.parametrize("changes", [{"work": None}, {"us": 0.0}])
def test_a_trace_without_numbers_has_no_roofline(changes: dict[str, float | None]) -> None:
    """It is refused in one sentence."""
    with pytest.raises(InputError, match="there is no roofline"):
        drawn(traced_kernel("a", (dataclasses.replace(MEASURED, **changes),)))  # type: ignore[arg-type]
