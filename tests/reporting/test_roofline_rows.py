"""The roofline of a file's rows has the numbers of `trace --plot`."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traced_kernels import traced_kernel, worked

from occupancy_lab.gpus.gpu import devices
from occupancy_lab.reporting.roofline import draw_trace, rooflines
from occupancy_lab.tracing.traced import GridLaunches, Traced

MEASURED = GridLaunches((8,), 100, samples=5, us=150.0, record=worked())
PREDICTED = dataclasses.replace(MEASURED, us=None)
ROW: dict[str, Any] = {
    "gpu": "h100",
    "kernel": "mine",
    "num_warps": 4,
    "flops": 2_000_000,
    "dram_read_bytes": 600_000,
    "dram_written_bytes": 400_000,
    "predicted_us": 10.0,
}


def known(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without its unknown values, as in the page."""
    return {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize("launched", [MEASURED, PREDICTED])
def test_rows_of_a_trace_lie_where_its_plot_has_them(launched: GridLaunches) -> None:
    """Place, size and kind of time are those of `trace --plot` for the same launches."""
    kernels = (
        traced_kernel("a", (launched,)),
        traced_kernel("b", (dataclasses.replace(launched, launches=700),)),
    )
    (picture, *_) = rooflines([known(one.row()) for one in kernels])
    axes = draw_trace(Traced(kernels, ())).axes[0]
    drawn = {str(one.get_label()).partition(":")[0]: one for one in axes.collections}
    assert [one["name"] for one in picture["points"]] == ["b", "a"]
    for point in picture["points"]:
        other = drawn[point["name"]]
        assert list(point["place"]) == pytest.approx(other.get_offsets().tolist()[0])
        points = (2 * point["radius"] * 72 / 96) ** 2  # an inch has 96 pixels of CSS, 72 points
        assert points == pytest.approx(other.get_sizes()[0])
    assert picture["basis"] == ("measured" if launched.us else "predicted")
    assert f"{picture['basis']};" in picture["points"][0]["words"]


def test_roofs_are_the_rates_of_the_data_sheet() -> None:
    """Each rate of the table is one roof, which starts where the bandwidth reaches it."""
    for gpu in devices().values():
        (picture,) = rooflines([{**ROW, "gpu": gpu.key}])
        memory, *others = picture["lines"]
        assert memory["end"][1] / memory["end"][0] == pytest.approx(gpu.bandwidth_gbs * 1e9)
        rates = [line["end"][1] / 1e12 for line in others]
        named = [name for name in dir(gpu) if name.endswith("_tflops")]
        given_rates = {rate for name in named if (rate := getattr(gpu, name)) is not None}
        given_rates.add(2 * (gpu.fp32_tflops or 0))  # of fp16, two at a time
        assert rates == pytest.approx(sorted(given_rates, reverse=True))
        for line in others:
            assert line["start"][1] / line["start"][0] == pytest.approx(gpu.bandwidth_gbs * 1e9)


def test_predicted_and_measured_are_in_no_picture_together() -> None:
    """Rows without a measurement are counted under the measured ones, and drawn separately."""
    measured, predicted = rooflines([{**ROW, "us": 20.0}, {**ROW, "intensity": 4.0}])
    assert [point["row"] for point in measured["points"]] == [0]
    assert measured["points"][0]["place"] == (2.0, 1e11)
    assert "1 row without FLOPs, bytes or a measured time left out." in measured["caption"]
    assert [point["place"] for point in predicted["points"]] == [(2.0, 2e11), (4.0, 2e11)]
    assert "left out" not in predicted["caption"]


@pytest.mark.parametrize(
    "changes",
    [
        {"predicted_us": None},
        {"flops": 0},
        {"flops": None},
        {"dram_read_bytes": None},
        {"dram_read_bytes": 0, "dram_written_bytes": 0},
        {"gpu": "sm_90"},
        {"predicted_us": 5e-324},
        {"intensity": 5e-324},
        {"predicted_us": None, "us": 3.0, "grids": 2, "lost_of": "measured"},
        {"predicted_us": None, "us": 3.0, "grids": 1},
    ],
)
def test_a_row_without_numbers_has_no_place(changes: dict[str, Any]) -> None:
    """A row without FLOPs, bytes, rates, or the time of its launch on its GPU is not drawn."""
    row = known({**ROW, **changes})
    assert rooflines([row]) == []
    assert all(len(one["points"]) == 1 for one in rooflines([row, ROW]))


def test_a_configuration_that_is_not_launched_takes_no_time() -> None:
    """A configuration that is not launched is the smallest point and has no share of the time."""
    row = {**ROW, "launches": 10, "expected": True}
    (alone,) = rooflines([row])
    (both,) = rooflines([row, {**row, "expected": False, "predicted_us": 90.0}])
    first, other = both["points"]
    assert first["radius"] == alone["points"][0]["radius"] > other["radius"]
    assert "0 for a configuration that is not launched" in both["caption"]


numbers = st.integers(0, 2**53)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"flops": numbers, "dram_read_bytes": numbers, "dram_written_bytes": numbers},
            optional={
                "predicted_us": st.floats(5e-324, 2.0**53),
                "us": st.floats(5e-324, 2.0**53),
                "intensity": st.floats(0, 2.0**53),
                "launches": numbers,
                "total_us": st.floats(0, 2.0**53),
            },
        ),
        max_size=4,
    )
)
def test_any_rows_are_inside_their_frame(rows: list[dict[str, Any]]) -> None:
    """Any values of the columns give points inside the axes that JSON can hold."""
    for picture in rooflines(
        [{"gpu": "h100", "kernel": "k", "num_warps": 1, **row} for row in rows]
    ):
        assert json.dumps(picture, allow_nan=False)
        frame = picture["frame"]
        for point in picture["points"]:
            across, up = point["place"]
            assert frame["left"] < across < frame["right"]
            assert frame["bottom"] < up < frame["top"]
            assert 0 < point["radius"] < 30
        assert all(len(ticks) <= 6 for ticks in picture["ticks"])
