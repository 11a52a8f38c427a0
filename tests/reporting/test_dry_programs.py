"""The table of programs that ran dry in docs/trace.md is that of the recorded rows."""

from __future__ import annotations

import csv
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "reports" / "data" / "dry-programs.csv"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return reports/dry_programs.py as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "reports"))
    spec = importlib.util.spec_from_file_location("dry_programs", ROOT / "reports/dry_programs.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "dry_programs", module)
    spec.loader.exec_module(module)
    return module


def test_the_documents_table_is_the_recorded_one(script: Any) -> None:
    """Each program is of a kind that the table has, and its numbers are those of the rows."""
    with RECORDED.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert script.table(rows) in (ROOT / "docs" / "trace.md").read_text("utf-8")
    assert all(any(row["program"].startswith(kind) for kind in script.KINDS) for row in rows)


def test_no_recorded_program_lacks_launches_without_a_word() -> None:
    """A program whose launches are missing, or that was stopped, did not end with status 0."""
    with RECORDED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            assert int(row["status"]) or not (row["missing"] or row["stopped"]), row["program"]
            assert int(row["recorded"] or 0) >= int(row["seen"] or 0) >= int(row["same"] or 0)
