"""What the columns of a sweep's table may hold, for conditions over them and for files of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.expressions import Kind
from occupancy_lab.files import read_cell
from occupancy_lab.sweeping.measured import (
    MEASURED_COLUMNS,
    MEASURED_FLAGS,
    MEASURED_FLOATS,
    MEASURED_INTEGERS,
)
from occupancy_lab.sweeping.rows import COLUMNS, FLOATS, INTEGERS
from occupancy_lab.values import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = 2.0**53
"""The greatest number of a file: every whole number up to it is a float too."""
_FLAGS = {"True": True, "False": False}


@dataclass(frozen=True, slots=True)
class Column:
    """What the cells of a column hold, text if nothing else is said."""

    kind: Kind = Kind.TEXT
    words: str = "text"
    """What a cell is, in words."""
    least: float = 0.0
    most: float = MOST
    whole: bool = False
    texts: tuple[str, ...] = ()
    """The only texts; none for any."""

    def read(self, cell: str) -> float | str | None:
        """Return the value of a *cell* of a file, None for an empty cell.

        Raises ValueError where the column cannot hold it.
        """
        if not cell:
            return None
        if self.kind is Kind.NUMBER:
            number = float(cell)
            if self.least <= number <= self.most and not (self.whole and number % 1):
                return int(number) if self.whole else number
        elif self.kind is Kind.CONDITION:
            if cell in _FLAGS:
                return _FLAGS[cell]
        elif cell in self.texts or not self.texts:
            return str(read_cell(cell))
        raise ValueError(cell)


_TEXT = Column()
_FLAG = Column(Kind.CONDITION, "True or False")
_COUNT = Column(Kind.NUMBER, "a whole number, 0 or more", whole=True)
_AT_LEAST_ONE = Column(Kind.NUMBER, "a whole number, 1 or more", least=1.0, whole=True)
_AMOUNT = Column(Kind.NUMBER, "a number, 0 or more")
_ERROR = Column(Kind.NUMBER, "a number, 0 or more", most=math.inf)
_TIME = Column(Kind.NUMBER, "a number above 0", least=math.ulp(0.0))
_SHARE = Column(Kind.NUMBER, "a number from 0 to 1", most=1.0)
_DTYPE = Column(words=f"one of {', '.join(ITEM_BYTES)}", texts=tuple(ITEM_BYTES))

SCHEMA: Mapping[str, Column] = {
    **dict.fromkeys((*COLUMNS, *MEASURED_COLUMNS, "use"), _TEXT),
    **dict.fromkeys((*INTEGERS, *MEASURED_INTEGERS), _COUNT),
    **dict.fromkeys((*FLOATS, *MEASURED_FLOATS), _AMOUNT),
    **dict.fromkeys(MEASURED_FLAGS, _FLAG),
    **dict.fromkeys(("rows", "cols", "BLOCK_SIZE", "num_warps", "num_stages"), _AT_LEAST_ONE),
    **dict.fromkeys(("launched", "runs"), _AT_LEAST_ONE),
    **dict.fromkeys(("us", "us_low", "us_high", "predicted_us"), _TIME),
    "relative_error": _ERROR,
    "occupancy": _SHARE,
    "dtype": _DTYPE,
}
"""Every column of a sweep, of its measurements and of what was recorded."""
