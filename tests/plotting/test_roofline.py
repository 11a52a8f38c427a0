"""Points and roofs are at their numbers, and an SVG names each point on hover."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from occupancy_lab.errors import InputError
from occupancy_lab.plotting import draw_roofline, save
from occupancy_lab.plotting.roofline import Point, Roof

ROOFS = (Roof("fp16 tensor cores", 989e12), Roof("fp32", 66.9e12))
SVG = "{http://www.w3.org/2000/svg}"


def drawn(*points: Point) -> Figure:
    """Return the roofline of *points* on a GPU of 3350 GB/s."""
    return draw_roofline(points, ROOFS, 3350e9, title="a title", caption="a caption")


def test_points_lie_where_their_numbers_are() -> None:
    """The intensity is on the x axis and the rate on the y axis; the area is the time."""
    figure = drawn(Point("a", 2.0, 3e12, 10.0, ""), Point("b", 500.0, 4e14, 20.0, ""))
    found = {one.get_gid(): one for one in figure.axes[0].collections}
    assert found["kernel-1"].get_offsets().tolist() == [[2.0, 3e12]]
    assert found["kernel-2"].get_offsets().tolist() == [[500.0, 4e14]]
    assert found["kernel-1"].get_sizes()[0] < found["kernel-2"].get_sizes()[0]


def test_roofs_meet_where_memory_gives_as_much_as_is_computed() -> None:
    """Below the ridge the roof is the bandwidth times the intensity, above it the rate."""
    memory, *rates = drawn(Point("a", 2.0, 3e12, 10.0, "")).axes[0].lines
    xs, ys = memory.get_data()
    assert list(ys) == pytest.approx([3350e9 * x for x in xs])
    assert max(xs) == pytest.approx(989e12 / 3350e9)
    for line, roof in zip(rates, ROOFS, strict=True):
        assert list(line.get_ydata()) == [roof.rate] * 2
        assert min(line.get_xdata()) == pytest.approx(roof.rate / 3350e9)


def test_an_svg_names_each_kernel_where_the_mouse_is_over_it(tmp_path: Path) -> None:
    """The first element of a point's group is its title, with any characters."""
    words = ["_rms_norm<T> & co: 32.6 us", "b"]
    points = [Point(one, 2.0 + place, 3e12, 10.0, one) for place, one in enumerate(words)]
    save(drawn(*points), tmp_path / "a.svg")
    groups = ET.parse(tmp_path / "a.svg").getroot().iter(f"{SVG}g")  # noqa: S314 - our own
    titles = {
        one.get("id"): one[0].text for one in groups if one.get("id", "").startswith("kernel")
    }
    assert titles == {"kernel-1": words[0], "kernel-2": words[1]}


@settings(max_examples=8)
@given(
    st.lists(
        st.builds(
            Point,
            name=st.text("abc_01", max_size=60),
            intensity=st.floats(1e-6, 1e6),
            rate=st.floats(1.0, 1e16),
            us=st.floats(0.0, 1e9),
            words=st.just("x"),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_kernels_can_be_drawn(points: list[Point]) -> None:
    """Tiny, huge, equal and zero-time kernels are all drawn inside the axes."""
    axes = drawn(*points).axes[0]
    for point in points:
        assert axes.get_xlim()[0] <= point.intensity <= axes.get_xlim()[1]
        assert axes.get_ylim()[0] <= point.rate <= axes.get_ylim()[1]


def test_a_roofline_of_nothing_is_refused() -> None:
    """Without kernels there is an InputError and no picture."""
    with pytest.raises(InputError, match="needs kernels"):
        drawn()
