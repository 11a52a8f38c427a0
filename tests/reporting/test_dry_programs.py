"""The table of dry programs in docs/trace.md equals the recorded rows."""

from pathlib import Path

import dry_programs
from record_files import read_table

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "reports" / "data" / "dry-programs.csv"


def test_the_documents_table_is_the_recorded_one() -> None:
    """Each program belongs to a kind in the table, and its numbers are those of the rows."""
    rows = read_table(RECORDED)
    assert dry_programs.table(rows) in (ROOT / "docs" / "trace.md").read_text("utf-8")
    assert all(any(row["program"].startswith(kind) for kind in dry_programs.KINDS) for row in rows)


def test_no_recorded_program_lacks_launches_without_a_word() -> None:
    """A program without launches, or one that was stopped, has no status 0."""
    for row in read_table(RECORDED):
        assert int(row["status"]) or not (row["missing"] or row["stopped"]), row["program"]
        assert int(row["recorded"] or 0) >= int(row["seen"] or 0) >= int(row["same"] or 0)
