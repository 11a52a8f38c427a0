"""What was run, and what could not be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from small_table import H200, row, table_of

from occupancy_lab.reporting.chapters.taken import make_taken, what_was_run
from occupancy_lab.reporting.page import Commands
from occupancy_lab.reporting.source import make_source

if TYPE_CHECKING:
    from occupancy_lab.reporting.source import Source


def test_launches_are_counted_by_use(small: Source) -> None:
    """Every row with a time counts, those with the tutorial's num_programs too."""
    taken = make_taken(small)
    assert taken.measured == {"benchmark": 12, "tuning": 8, "held out": 2}
    assert taken.untimed == {"compile timed out": 1}
    assert taken.providers == {"torch": 3, "copy": 2, "naive": 1}
    assert [kernel.name for kernel in taken.kernels] == ["softmax", "softmax_row"]


def test_every_value_of_a_condition_is_told() -> None:
    """Rows of two days say both; a clock has no fraction, and what nobody knows is left out."""
    table = table_of([row(date="2026-11-22", sm_mhz=1200), row(), row(driver=None)])
    taken = make_taken(make_source(H200, table))
    assert taken.conditions["date"] == ("2026-11-21", "2026-11-22")
    assert taken.conditions["sm_mhz"] == ("1200", "1980")
    assert taken.conditions["throttled"] == ()
    table = what_was_run(taken).blocks[0]
    assert ("date", "2026-11-21 and 2026-11-22") in table.rows
    assert "clock held down by" not in {cells[0] for cells in table.rows}


def test_launches_without_a_time_say_why() -> None:
    """A launch that failed is counted, with the first reason."""
    failed = row(num_warps=4) | {"measured": "launch failed", "us": None, "why_not": "no <luck>"}
    taken = make_taken(make_source(H200, table_of([row(), failed, row(gpu="h100", cols=3)])))
    assert (taken.untimed, taken.reasons) == (
        {"launch failed": 1},
        {"launch failed": r"no \<luck\>"},
    )
    words = [block for block in what_was_run(taken).blocks if isinstance(block, str)]
    assert "Configurations without a time: 1 (launch failed)." in words
    assert r"The first of those that ended as *launch failed*: no \<luck\>" in words


def test_the_first_reason_is_told_of_several() -> None:
    """Of launches that ended alike the first one's reason is told, where the first has one."""
    failed = row() | {"measured": "launch failed", "us": None}
    reasons = (None, "the first", "the last")
    rows = [failed | {"cols": 64 * n, "why_not": why} for n, why in enumerate(reasons, start=1)]
    taken = make_taken(make_source(H200, table_of([row(), *rows])))
    assert taken.reasons == {"launch failed": "the first"}


def test_commands_repeat_it() -> None:
    """A file, whatever its name, is read again."""
    found = make_source(H200, table_of([row()]), file="a b`.csv")
    (commands,) = (one for one in what_was_run(make_taken(found)).blocks if is_command(one))
    assert commands.lines == ("occupancy-lab report --gpu h200 --file 'a b`.csv' --output h200.md",)


def is_command(block: object) -> bool:
    """Whether *block* is lines for a shell."""
    return isinstance(block, Commands)
