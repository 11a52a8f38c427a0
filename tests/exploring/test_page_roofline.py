"""The roofline in a real browser: its points are Python's, and mouse and keyboard choose them."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import Page

MATMUL: dict[str, Any] = {
    "gpu": "h100",
    "kernel": "matmul",
    "num_warps": 8,
    "n_regs": 202,
    "shared": 147_456,
    "flops": 34_359_738_368,
    "intensity": 769.17,
    "predicted_us": 57.7,
    "launches": 30,
}
NORM: dict[str, Any] = {
    "gpu": "h100",
    "kernel": "layer_norm",
    "num_warps": 8,
    "n_regs": 32,
    "shared": 32,
    "flops": 58_728_448,
    "intensity": 1.748,
    "predicted_us": 17.8,
    "launches": 30,
}
OTHER = {**NORM, "gpu": "mi300x", "kernel": "on_amd"}
PRESSED = (
    "[...document.querySelectorAll('#roofline [aria-pressed=true]')].map((one) => one.dataset.row)"
)
POINT = "#roofline .point[data-row='%d']"


READ = """
(() => {
  const found = (selector, names) => [...document.querySelectorAll(`#roofline svg ${selector}`)]
    .map((one) => [one.textContent, ...names.map((name) => Number(one.getAttribute(name)))]);
  return {
    points: found("circle", ["cx", "cy"]), roofs: found("line.roof", ["x1", "y1", "x2", "y2"]),
    across: found("text.tick.middle", ["x"]), up: found("text.tick.end", ["y"]),
  };
})()
"""


def scale(ticks: list[tuple[str, float]]) -> Callable[[float], float]:
    """Return a function from a pixel to its value on the logarithmic axis of *ticks*."""
    units = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
    places = {}
    for words, pixel in ticks:
        number, _, unit = words.partition(" ")
        places[float(number) * units.get(unit, 1.0)] = pixel
    (low, first), (high, last) = min(places.items()), max(places.items())
    return lambda pixel: low * (high / low) ** ((pixel - first) / (last - first))


def test_points_and_roofs_are_where_pythons_numbers_are(
    page: Page, opened: Callable[..., Path]
) -> None:
    """By the ticks, a point is at its row's numbers and a roof at the data sheet's."""
    opened(MATMUL, NORM)
    drawn = page.value(READ)
    rates = [one for one in drawn["up"] if "FLOP/s" not in one[0]]
    across, up = scale(drawn["across"]), scale(rates)
    for (_, x, y), row in zip(drawn["points"], (MATMUL, NORM), strict=True):
        assert across(x) == pytest.approx(row["intensity"])
        assert up(y) == pytest.approx(row["flops"] / row["predicted_us"] * 1e6)
    roofs = {words.partition(",")[0]: ends for words, *ends in drawn["roofs"]}
    x1, y1, x2, y2 = roofs["bf16 and fp16 tensor cores"]
    assert up(y1) == up(y2) == pytest.approx(989.4e12)
    assert across(x1) == pytest.approx(989.4e12 / 3352.3e9)
    x1, y1, x2, y2 = roofs["device memory"]
    assert math.log(up(y1) / across(x1)) == pytest.approx(math.log(3352.3e9))
    assert math.log(up(y2) / across(x2)) == pytest.approx(math.log(3352.3e9))


def test_a_point_is_named_and_chosen_by_mouse_and_keyboard(
    page: Page, opened: Callable[..., Path]
) -> None:
    """Focus shows name and numbers; Enter or a click sets the sliders and marks the point."""
    file = opened(MATMUL, NORM)
    visible = f'getComputedStyle(document.querySelector("{POINT} text")).visibility'
    assert page.value(visible % 1) == "hidden"
    page.key("Tab", 9)
    page.value(f'document.querySelector("{POINT}").focus()' % 1)
    assert page.value(visible % 1) == "visible"
    assert page.text("#roofline-says").startswith("layer_norm (num_warps 8): 17.8 us predicted; ")
    page.key("Enter", 13, "\r")
    assert page.value(PRESSED) == ["1"]
    assert page.value("occupancyLab.state.sides[0].usage.n_regs") == 32
    assert page.value("document.activeElement.dataset.row") == "1"
    page.click(f"{POINT % 0} circle")
    assert page.value(PRESSED) == ["0"]
    assert page.value("occupancyLab.state.sides[0].usage.n_regs") == 202
    page.open(file, page.value("location.hash.slice(1)"))
    page.drawn()
    assert page.value(PRESSED) == ["0"]
    page.choose("#n_regs-0", "77", "input")
    assert page.value(PRESSED) == []


def test_of_alike_rows_the_chosen_one_is_marked(page: Page, opened: Callable[..., Path]) -> None:
    """A row of the table marks its own point even if another row has the same usage."""
    opened(NORM, {**NORM, "predicted_us": 30.0})
    page.click("#own tbody tr:last-child button")
    assert page.value(PRESSED) == ["1"]
    centre = "document.querySelector(\"%s\").getAttribute('cy')"
    last = "#roofline svg > :last-child"  # above all points
    assert page.value(centre % last) == page.value(centre % f"{POINT % 1} circle")


def test_each_kind_of_times_and_each_gpu_has_its_own_picture(
    page: Page, opened: Callable[..., Path]
) -> None:
    """Measured times come first, predicted ones on request, and the two are never mixed."""
    opened({**MATMUL, "us": 60.0}, NORM, OTHER)
    assert page.text("#roofline h3") == "The roofline: 1 row on H100 SXM by measured times"
    assert "60.0 us measured" in page.text(f"{POINT % 0} title")
    page.choose("#basis", "predicted")
    assert page.text("#roofline h3") == "The roofline: 2 rows on H100 SXM by predicted times"
    assert "measured" not in page.text("#roofline svg")
    assert page.value("document.activeElement.id") == "basis"
    page.click("#own tbody tr:last-child button")
    assert page.text("#roofline h3") == "The roofline: 1 row on MI300X by predicted times"
    assert page.value("document.querySelector('#basis')") is None


def test_rows_without_times_have_a_sentence(page: Page, opened: Callable[..., Path]) -> None:
    """Without times a sentence gives the reason; without rows there is nothing."""
    assert page.text("#roofline") == ""
    opened({**MATMUL, "predicted_us": None})
    assert page.value("document.querySelectorAll('#roofline svg').length") == 0
    assert page.text("#roofline") == (
        "No roofline: no row has FLOPs, bytes of device memory, a time and a GPU with known rates."
    )


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_at_a_roofline(
    page: Page,
    opened: Callable[..., Path],
    violations: Callable[[], Any],
    *,
    width: int,
    dark: bool,
) -> None:
    """Points have names and contrast, and the page scrolls only vertically at any width."""
    page.look(width, 900, dark=dark)
    opened({**MATMUL, "us": 60.0}, {**NORM, "us": 20.0, "kernel": "k" * 300})
    page.click(f"{POINT % 1} circle")
    page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.drawn()
    assert page.value("document.documentElement.scrollWidth") <= width
    assert violations() == []
