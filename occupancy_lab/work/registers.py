"""The registers of the threads that are followed, and of which threads they are not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from collections.abc import Sequence


class Registers:
    """A value of each register, an array over programs and threads; None is not known at all."""

    def __init__(self, more: int) -> None:
        """Take how many there are behind those of `operations`; all are 0 or false at first."""
        zero: Any = np.zeros((1, 1), np.uint32)
        true = np.ones((1, 1), bool)
        self.values: list[Any] = [zero] * PREDICATES + [~true] * (FIRST_PLACE - PREDICATES)
        self.values[TRUE] = self.values[UNIFORM_TRUE] = true
        self.values[NOT_KNOWN] = None
        self.values += [zero] * more
        self.unknown: dict[int, Any] = {}
        """The threads of which a register's value is not known, where it is of others."""

    def read(self, register: int, mask: Any) -> Any:
        """Return a value; None where it is not known of all threads of *mask*."""
        unknown = self.unknown.get(register)
        if unknown is not None and (unknown & mask).any():
            return None
        return self.values[register]

    def unknown_of(self, registers: Sequence[int], mask: Any) -> Any:
        """Return the threads of *mask* of which one of *registers* is not known; None is no one."""
        found: Any = None
        for register in registers if self.unknown else ():
            if (lanes := self.unknown.get(register)) is not None and (lanes & mask).any():
                found = lanes & mask if found is None else found | lanes & mask
        return found

    def write(self, register: int, value: Any, unknown: Any, where: Any) -> None:
        """Set a value, None where it is not known, or not of the threads of *unknown*.

        It is set for the threads of *where*; None is all of them.
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
            self.values[register] = np.where(where, value, before)
            if lanes is not None or unknown is not None:
                none = np.zeros((1, 1), bool)
                lanes = np.where(
                    where, none if unknown is None else unknown, none if lanes is None else lanes
                )
        if lanes is not None and self.values[register] is not None and lanes.any():
            self.unknown[register] = lanes
        else:
            self.unknown.pop(register, None)


def _masks(before: Any, value: Any) -> tuple[Any, Any]:
    """Return a mask of lanes and a word as two masks; no first one where the word is none.

    A scalar register of an AMD GPU has the one or the other, by the way that a wave came.
    """
    masks = [
        one if one.dtype == bool else one != 0 if np.isin(one, (0, WORD)).all() else None
        for one in (before, value)
    ]
    return (None, value) if any(one is None for one in masks) else (masks[0], masks[1])
