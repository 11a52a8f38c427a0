"""The launch of a file's row in waves, in a real browser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import Page

ROW: dict[str, Any] = {
    "gpu": "h100",
    "kernel": "matmul",
    "num_warps": 8,
    "n_regs": 202,
    "shared": 147_456,
    "num_programs": 300,
    "predicted_us": 60.0,
}
CHOOSE = "#own tbody tr:nth-child(%d) button"


@pytest.mark.parametrize(
    ("changes", "said", "waves"),
    [
        ({}, "2 full waves, then a tail: 36 of 132 places (27.3%) have a program", 3),
        ({"num_programs": 264}, "Every wave is full, and there is no tail.", 2),
        ({"num_programs": 16}, "16 of 132 places (12.1%) are taken.", 1),
        ({"us": 58.0}, "It took 58.0 us; its waves are drawn equally long.", 3),
        ({"grids": 2}, "Widths are waves, not time", 3),
    ],
)
def test_programs_run_in_waves(
    page: Page, opened: Callable[..., Path], changes: dict[str, Any], said: str, waves: int
) -> None:
    """The sentence, the table and the picture have the waves of the row's programs."""
    opened({**ROW, **changes})
    page.click(CHOOSE % 1)
    text = page.text("#time-says")
    assert text.startswith("H100 SXM: matmul. ")
    assert said in text
    assert page.value("document.querySelectorAll('#passes tbody tr').length") == waves
    assert page.value("document.querySelectorAll('#timeline rect').length") == 2 * waves


def test_a_row_of_too_many_waves_is_not_drawn(page: Page, opened: Callable[..., Path]) -> None:
    """A launch with too many waves has a sentence in place of the picture."""
    opened({**ROW, "num_programs": 1 << 30})
    page.click(CHOOSE % 1)
    assert "more than 400 waves" in page.text("#time-says")
    assert page.value("document.querySelectorAll('#timeline rect').length") == 0


def test_sliders_that_leave_a_row_show_the_compiled_launch_again(
    page: Page, opened: Callable[..., Path]
) -> None:
    """The launch of a row is shown only while the sliders are set to the row."""
    opened(ROW, {key: ROW[key] for key in ROW if key != "num_programs"})
    page.click(CHOOSE % 1)
    assert "matmul" in page.text("#time-says")
    page.click(CHOOSE % 2)
    assert "rows." in page.text("#time-says")
