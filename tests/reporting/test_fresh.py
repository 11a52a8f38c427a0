"""The benchmark compiled for a GPU without recorded launches, and its page."""

import pytest

from occupancy_lab.gpus import find_gpu
from occupancy_lab.reporting.contents import write_page
from occupancy_lab.reporting.source import PROBLEM, WIDTHS, fresh_table, make_fresh
from occupancy_lab.table.columns import MEASURED_COLUMNS
from occupancy_lab.text.document import to_markdown

FEW = (PROBLEM, *WIDTHS[:2])
STAGES = (1, 2)
"""The tutorial's num_stages on either GPU, and one."""
FEW_KNOBS = {"kernels": {"softmax": STAGES, "softmax_row": (1,)}, "num_warps": (4, 8)}


def test_every_configuration_is_a_row_of_which_nothing_was_measured() -> None:
    """Each problem has both kernels with all warps and stages, planned and without times."""
    calls: list[tuple[int, int]] = []
    table = fresh_table(
        find_gpu("a100"), problems=FEW, progress=lambda *done: calls.append(done), **FEW_KNOBS
    )
    assert len(table) == 3 * 2 * (2 + 1)
    assert set(table["status"]) == {"ok"}
    assert table[[name for name in MEASURED_COLUMNS if name != "launched"]].isna().all().all()
    assert (table["launched"] == table["num_programs"]).all()
    assert dict(table["use"].value_counts()) == {"benchmark": 12, "example": 6}
    assert calls[-1][0] == calls[-1][1] > 0


@pytest.mark.parametrize("key", ["a100", "mi300x"])
def test_page_of_a_gpu_that_nobody_recorded(key: str) -> None:
    """The page states that nothing was launched, and works out the example."""
    page = write_page(make_fresh(find_gpu(key), problems=FEW, **FEW_KNOBS))
    text = to_markdown(page.blocks(None))
    title = find_gpu(key).title
    assert text.startswith(f"# Fused softmax on {title}, predicted")
    assert "The kernels were compiled for this page." in text
    assert "2 widths of 4096 rows, float32." in text
    assert f"; no {title} was measured." in text
    assert ("num_stages 2 takes" in text) == (key == "a100")
