"""The curves have the formulas' numbers, and each has a label."""

import functools
import itertools

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy import occupancy
from occupancy_lab.occupancy.calculator import Calculation, calculate
from occupancy_lab.occupancy.rule import limits
from occupancy_lab.occupancy.tutorial import tutorial_rules
from occupancy_lab.plotting import draw_curves
from occupancy_lab.text.words import resource_word
from occupancy_lab.values import Resources

FIELDS = ("n_regs", "shared", "num_warps")
CASES = {
    "softmax on h100": ("h100", Resources(32, 8, 12320)),
    "few registers": ("h100", Resources(8, 8, 32)),
    "shared-limited": ("h100", Resources(56, 8, 57376)),
    "nothing shared": ("h100", Resources(40, 1, 0)),
    "does not fit": ("h100", Resources(255, 32, 8000)),
    "barriers": ("b200", Resources(40, 1, 2048, barriers=2)),
    "static shared": ("a100", Resources(64, 4, 9000, static_shared=4000)),
    "sgprs": ("mi300x", Resources(22, 8, 32, sgprs=100)),
    "padded": ("mi250x", Resources(200, 4, 16384, sgprs=43, allocated_vgprs=256)),
    "wgp": ("gfx1100", Resources(22, 8, 32)),
    "long title": ("rtx-pro-6000-server", Resources(128, 16, 40000)),
    "much lds": ("gfx1250", Resources(300, 8, 65536)),
}
EVERY_CASE = pytest.mark.parametrize("case", CASES)


def calculation_of(case: str) -> Calculation:
    """Return the calculation of one of CASES."""
    gpu, resources = CASES[case]
    return calculate(resources, find_gpu(gpu))


@functools.cache
def figure_of(case: str) -> Figure:
    """Return the figure of one of CASES, drawn once for all tests."""
    return draw_curves(calculation_of(case))


def panels(case: str) -> tuple[list[Axes], list[Axes]]:
    """Return the three panels with curves and the three strips below them."""
    axes = figure_of(case).axes
    return axes[:3], axes[3:]


def value_at(line: Line2D, amount: int) -> float:
    """Return the height of a step line at *amount*."""
    amounts, values = (np.asarray(data) for data in line.get_data())
    if line.get_drawstyle() == "steps-mid":
        (found,) = values[amounts == amount]
        return float(found)
    assert line.get_drawstyle() == "steps-post"
    return float(values[np.searchsorted(amounts, amount, side="right") - 1])


def amounts_to_try(line: Line2D) -> list[int]:
    """Return the amounts on both sides of every step of *line*, and some between."""
    drawn = [int(amount) for amount in line.get_xdata()]
    if line.get_drawstyle() == "steps-mid":
        return drawn
    spread = range(drawn[0], drawn[-1] + 1, max(1, drawn[-1] // 60))
    return sorted({*drawn, *(amount - 1 for amount in drawn if amount > drawn[0]), *spread})


def with_amount(calculation: Calculation, field: str, amount: int) -> Resources:
    """Return the kernel's resources with another *amount* of *field*."""
    resources = calculation.resources
    if field == "n_regs":
        resources = resources.replace(allocated_vgprs=None)
    return resources.replace(**{field: amount})


def tutorial(resources: Resources, calculation: Calculation) -> int:
    """Return the tutorial's programs by the scalar formula."""
    found = limits(tutorial_rules(calculation.architecture), resources, calculation.architecture)
    return min(limit.programs for limit in found if limit.programs is not None)


@EVERY_CASE
def test_exact_curve_is_the_scalar_formula(case: str) -> None:
    """The solid line has occupancy()'s programs on both sides of each step and in between."""
    calculation = calculation_of(case)
    for axes, field in zip(panels(case)[0], FIELDS, strict=True):
        line = axes.lines[0]
        for amount in amounts_to_try(line):
            resources = with_amount(calculation, field, amount)
            expected = occupancy(resources, calculation.architecture)
            assert value_at(line, amount) == expected.programs_per_multiprocessor, (field, amount)


@EVERY_CASE
def test_tutorial_curve_is_the_scalar_formula(case: str) -> None:
    """The dashed line has the tutorial's programs, except where its formula divides by zero."""
    calculation = calculation_of(case)
    for axes, field in zip(panels(case)[0], FIELDS, strict=True):
        lines = [line for line in axes.lines if line.is_dashed()]
        assert len(lines) == (calculation.resources.shared > 0 or field == "shared")
        for line in lines:
            for amount in amounts_to_try(line):
                resources = with_amount(calculation, field, amount)
                assert value_at(line, amount) == tutorial(resources, calculation), (field, amount)


@EVERY_CASE
def test_curves_span_what_a_program_may_take(case: str) -> None:
    """The solid lines range from the least to the largest amount of a program."""
    calculation = calculation_of(case)
    architecture = calculation.architecture
    ends = [
        (int(axes.lines[0].get_xdata()[0]), int(axes.lines[0].get_xdata()[-1]))
        for axes in panels(case)[0]
    ]
    most_registers = getattr(architecture, "max_registers_per_thread", None)
    assert ends == [
        (0, most_registers or architecture.max_vgprs),
        (0, architecture.max_shared),
        (1, architecture.max_warps_per_program),
    ]


@EVERY_CASE
def test_mark_is_at_the_kernel(case: str) -> None:
    """The point is at the kernel's own amounts and programs, and its label has both."""
    calculation = calculation_of(case)
    resources, held = calculation.resources, calculation.occupancy.programs_per_multiprocessor
    n_regs = resources.allocated_vgprs or resources.n_regs
    expected = (n_regs, resources.shared, resources.num_warps)
    for axes, amount in zip(panels(case)[0], expected, strict=True):
        mark = axes.lines[-1]
        assert (list(mark.get_xdata()), list(mark.get_ydata())) == ([amount], [held])
        (label,) = (text.get_text() for text in axes.texts if "this kernel" in text.get_text())
        assert str(amount) in label
        assert f": {held} program" in label


@EVERY_CASE
def test_bars_are_the_limiters(case: str) -> None:
    """Each resource's bar covers exactly the amounts at which occupancy() names it a limiter."""
    calculation = calculation_of(case)
    strips = panels(case)[1]
    names = [text.get_text() for text in strips[0].get_yticklabels()]
    for strip, field in zip(strips, FIELDS, strict=True):
        powers = field == "num_warps"
        tried = (
            (1, 2, 4, 8, 16)
            if powers
            else range(1, int(strip.get_xlim()[1]), 1 + int(strip.get_xlim()[1]) // 60)
        )
        for amount in tried:
            resources = with_amount(calculation, field, amount)
            limiters = occupancy(resources, calculation.architecture).limiters
            expected = [resource_word(calculation.gpu.vendor, resource) for resource in limiters]
            bars = zip(names, strip.collections, strict=True)
            assert [name for name, bar in bars if covers(bar, amount)] == expected, (field, amount)


def covers(bar: Collection, amount: int) -> bool:
    """Return whether a part of *bar* covers *amount*."""
    spans = (path.get_extents() for path in bar.get_paths())
    return any(span.x0 <= amount < span.x1 for span in spans)


@EVERY_CASE
def test_labels_are_apart(case: str) -> None:
    """Labels do not overlap or leave their panel, and each panel names its curves."""
    figure = figure_of(case)
    figure.draw_without_rendering()
    for axes in figure.axes[:3]:
        words = " ".join(text.get_text() for text in axes.texts)
        assert "both formulas" in words or ("what fits" in words and "tutorial" in words)
        boxes = [text.get_window_extent() for text in axes.texts]
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
        for box in boxes:
            assert axes.bbox.x0 <= box.x0 < box.x1 <= axes.bbox.x1
            assert axes.bbox.y0 <= box.y0 < box.y1 <= axes.bbox.y1


def test_division_by_zero_is_said() -> None:
    """Without shared memory the tutorial's formula has no curve, and the panel gives the reason."""
    registers, _, warps = panels("nothing shared")[0]
    for axes in (registers, warps):
        assert any("divides by zero" in text.get_text() for text in axes.texts)
