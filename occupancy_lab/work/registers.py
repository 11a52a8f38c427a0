"""The registers of followed threads, and the threads for which they are not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from occupancy_lab.work.arithmetic import WORD
from occupancy_lab.work.operations import (
    FIRST_PLACE,
    NEVER_WRITTEN,
    NOT_KNOWN,
    PREDICATES,
    TRUE,
    UNIFORM_TRUE,
)


class Registers:
    """The value of each register: an array over programs and threads, or None where unknown."""

    def __init__(self, more: int) -> None:
        """Take the number of registers beyond those of `operations`; all start as 0 or false."""
        zero: Any = np.zeros((1, 1), np.uint32)
        true = np.ones((1, 1), bool)
        self.values: list[Any] = [zero] * PREDICATES + [~true] * (FIRST_PLACE - PREDICATES)
        self.values[TRUE] = self.values[UNIFORM_TRUE] = true
        self.values[NOT_KNOWN] = None
        self.values += [zero] * more
        self.unknown: dict[int, Any] = {}
        """The threads for which a partly known register is not known."""

    def read(self, register: int, mask: Any) -> Any:
        """Return a value; None where it is not known for all threads of *mask*."""
        unknown = self.unknown.get(register)
        if unknown is not None and (unknown & mask).any():
            return None
        return self.values[register]

    def unknown_of(self, registers: Sequence[int], mask: Any) -> Any:
        """Return the threads of *mask* without known *registers*; None where there are none."""
        found: Any = None
        for register in registers if self.unknown else ():
            if (lanes := self.unknown.get(register)) is not None and (lanes & mask).any():
                found = lanes & mask if found is None else found | lanes & mask
        return found

    def write(self, register: int, value: Any, unknown: Any, where: Any) -> None:
        """Write a value, which is unknown if None, or for the threads of *unknown*.

        It is written for the threads of *where*; None means for all.
        """
        if NEVER_WRITTEN >> register & 1:
            return
        before, lanes = self.values[register], self.unknown.get(register)
        is_part = where is not None and not where.all()
        are_known = value is not None and before is not None
        if is_part and are_known and (before.dtype == bool) != (value.dtype == bool):
            before, value = _masks(before, value)
        if not is_part:
            self.values[register] = value
            lanes = unknown
        elif value is None:
            if before is not None:
                lanes = where if lanes is None else lanes | where
        elif before is None:
            self.values[register] = np.broadcast_to(
                value, np.broadcast_shapes(value.shape, where.shape)
            )
            lanes = ~where if unknown is None else ~where | unknown
        else:
            self.values[register] = _chosen(where, value, before)
            if lanes is not None or unknown is not None:
                none = np.zeros((1, 1), bool)
                lanes = _chosen(
                    where, none if unknown is None else unknown, none if lanes is None else lanes
                )
        if lanes is not None and self.values[register] is not None and lanes.any():
            self.unknown[register] = lanes
        else:
            self.unknown.pop(register, None)


def _chosen(where: Any, value: Any, before: Any) -> Any:
    """Return np.where(where, value, before), which takes ten times as long for masks."""
    if value.dtype == before.dtype == bool:
        return before ^ (before ^ value) & where
    return np.where(where, value, before)


def _masks(before: Any, value: Any) -> tuple[Any, Any]:
    """Return a lane mask and a word as two masks; None for the first where the word is no mask.

    A scalar register of an AMD GPU has either of them, depending on the path of the wave.
    """
    masks = [
        one if one.dtype == bool else one != 0 if np.isin(one, (0, WORD)).all() else None
        for one in (before, value)
    ]
    return (None, value) if any(one is None for one in masks) else (masks[0], masks[1])
