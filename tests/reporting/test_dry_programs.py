"""The recorded dry programs."""

from pathlib import Path

import dry_programs
from record_files import read_table

RECORDED = Path(__file__).parents[2] / "reports" / "data" / "dry-programs.csv"


def test_each_program_is_of_a_kind() -> None:
    """Each program belongs to a kind in the table of docs/trace.md."""
    rows = read_table(RECORDED)
    assert all(any(row["program"].startswith(kind) for kind in dry_programs.KINDS) for row in rows)


def test_no_recorded_program_lacks_launches_without_a_word() -> None:
    """A program without launches, or one that was stopped, has no status 0."""
    for row in read_table(RECORDED):
        assert int(row["status"]) or not (row["missing"] or row["stopped"]), row["program"]
        assert int(row["recorded"] or 0) >= int(row["seen"] or 0) >= int(row["same"] or 0)
