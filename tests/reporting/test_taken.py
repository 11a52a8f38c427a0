"""The chapter about the measurements: conditions, launches without times, and spreads."""

import pytest
from small_table import H200, row, table_of

from occupancy_lab.reporting.chapters.taken import how_taken
from occupancy_lab.reporting.source import make_source
from occupancy_lab.text.document import Commands

WRONG = {"num_warps": 16, "num_stages": 1, "n_regs": 22}


def taken(*launches: dict[str, object]) -> tuple[dict[str, str], str]:
    """Return the table of the chapter on *launches*, and its sentences."""
    table, sentences, *_ = how_taken(make_source(H200, table_of([*launches])), None).blocks
    return dict(table.rows), " ".join(sentences.sentences)


def test_every_value_of_a_condition_is_told() -> None:
    """All values of a condition are listed, clocks as integers, without unknown conditions."""
    table, _ = taken(row(date="2026-11-22", sm_mhz=1200), row(), row(driver=None))
    assert table["date"] == "2026-11-21 and 2026-11-22"
    assert table["clock after the launches, MHz"] == "1200 and 1980"
    assert "clock throttled by" not in table


@pytest.mark.parametrize(
    ("launches", "said"),
    [
        (
            (row(), row(num_stages=1, us_low=9.0, us_high=12.0)),
            "a median of 22.5%, a 90th percentile of 28.5% and a maximum of 30.0%",
        ),
        (
            (
                row(**WRONG, us=10.0),
                row(**WRONG, us=11.0, use="benchmark"),
                row(**WRONG, us=20.0, as_tutorial=True),
            ),
            "the longest time is 10.0% above the shortest",
        ),
        (
            (row(mostly_launch=True), row(cols=3)),
            "1 of 2 take less than twice the time of an empty kernel",
        ),
        (
            (row(relative_error=2e-7), row(dtype="float16", relative_error=1e-4)),
            "differences are 2.0e-07 (float32) and 1.0e-04 (float16)",
        ),
    ],
    ids=["range", "measured twice", "short", "errors"],
)
def test_what_could_mislead_is_told(launches: tuple[dict[str, object], ...], said: str) -> None:
    """Ranges, repeated measurements, short launches and inexact results have a number."""
    assert said in taken(*launches)[1]


def test_commands_repeat_it() -> None:
    """The commands that repeat the report quote any file name."""
    source = make_source(H200, table_of([row()]), file="a b`.csv")
    (commands,) = (one for one in how_taken(source, None).blocks if isinstance(one, Commands))
    assert commands.lines == ("occupancy-lab report --gpu h200 --file 'a b`.csv' --output h200.md",)
