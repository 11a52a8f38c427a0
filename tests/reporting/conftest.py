"""The small table as a source, its predictions columns of it, and what is predicted of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_table import H100, claimed, providers, rows, table_of

from occupancy_lab.reporting.source import make_predicted

if TYPE_CHECKING:
    from occupancy_lab.reporting.source import Source


@pytest.fixture(scope="session")
def small() -> Source:
    """Return the source of the small table, whose predictions are its own."""
    return claimed(table_of(rows()), providers())


@pytest.fixture(scope="session")
def predicted(small: Source) -> Source:
    """Return what is predicted of the small table on an H100."""
    return make_predicted(H100, small)
