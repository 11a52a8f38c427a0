"""What threads of followed programs write to shared memory and read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from occupancy_lab.work.operations import WORD

MOST_BYTES = 1 << 25
"""The most bytes of shared memory of all programs together, at least 64 per thread."""
MOST_OF_THREAD = 16
"""The most bytes that a thread moves at once, to an address that is a multiple of the size."""


class SharedMemory:
    """The known bytes of each program's shared memory, in one row as long as all have the same."""

    def __init__(self, size: int) -> None:
        """Take the bytes of a program."""
        shape = 1, -(-size // MOST_OF_THREAD) * MOST_OF_THREAD
        self._content = np.zeros(shape, np.uint8)
        self._known = np.zeros(shape, np.uint8)
        """1 for each byte that is known."""
        self._is_blank = True
        """Whether no byte is known."""

    def forget(self) -> None:
        """Treat all of it as unknown."""
        self._known[:] = 0
        self._is_blank = True

    def store(
        self, address: Any, values: Sequence[Any], size: int, mask: Any, unknown: Any
    ) -> None:
        """Write *size* bytes per thread of *mask* to *address*, from registers.

        With an address of None anything may be written anywhere. A value of None is not known, nor
        is any value of the threads of *unknown*.
        """
        if address is None:
            self.forget()
            return
        if self._is_blank and all(value is None for value in values):
            return
        self._is_blank = False
        self._widen(address, mask, unknown, *values)
        programs, threads, places = self._chosen(address, mask, size)
        shape = (len(self._content), mask.shape[1])
        content, known, ones = self._units(size)
        are_known = ones
        if unknown is not None:
            are_known = np.where(np.broadcast_to(unknown, shape)[programs, threads], 0, ones)
        for one in range(max(size // WORD, 1)):
            value = values[one]
            known[programs, places + one] = are_known if value is not None else 0
            if value is not None:
                content[programs, places + one] = np.broadcast_to(value, shape)[programs, threads]

    def load(
        self, address: Any, size: int, mask: Any, *, signed: bool
    ) -> tuple[Sequence[Any], Any]:
        """Return what the threads of *mask* read at *address*, and who reads unknown bytes.

        The first result is a list of values by register, each None where nothing is known. The
        second is the threads for which the values are not known, or None if there are none.
        """
        registers = max(size // WORD, 1)
        if address is None or self._is_blank:
            return [None] * registers, None
        self._widen(address, mask)
        programs, threads, places = self._chosen(address, mask, size)
        shape = (len(self._content), mask.shape[1])
        content, known, ones = self._units(size)
        found: list[Any] = [np.zeros(shape, np.uint32) for _ in range(registers)]
        are_known: Any = np.ones(1, bool)
        for one in range(registers):
            are_known = are_known & (known[programs, places + one] == ones)
            found[one][programs, threads] = content[programs, places + one]
        if signed:
            shift = 32 - 8 * size
            found = [((found[0] << np.uint32(shift)).view(np.int32) >> shift).view(np.uint32)]
        if are_known.all():
            return found, None
        if not are_known.any():
            return [None] * registers, None
        unknown = np.zeros(shape, bool)
        unknown[programs, threads] = ~are_known
        return found, unknown

    def _widen(self, *arrays: Any) -> None:
        """Give each program a row of its own if any of *arrays* that is not None has several."""
        rows = max(len(one) for one in arrays if one is not None)
        if rows > len(self._content):
            self._content, self._known = (
                np.repeat(one, rows, axis=0) for one in (self._content, self._known)
            )

    def _units(self, size: int) -> tuple[Any, Any, Any]:
        """Return the contents and the known bytes as arrays of units, and a unit that is all known.

        A unit is a word, or the *size* that is moved where it is less.
        """
        unit: Any = {1: np.uint8, 2: np.uint16}.get(size, np.uint32)
        return (
            self._content.view(unit),
            self._known.view(unit),
            np.ones(WORD, np.uint8).view(unit)[0],
        )

    def _chosen(self, address: Any, mask: Any, size: int) -> tuple[Any, Any, Any]:
        """Return the programs and threads of *mask*, and the unit that each accesses.

        The programs are a slice of all where they access the same units.
        """
        shape = (max(len(address), len(mask)), mask.shape[1])
        programs, threads = np.nonzero(np.broadcast_to(mask, shape))
        offset = np.broadcast_to(address, shape)[programs, threads]
        places = np.clip(offset, 0, self._content.shape[1] - MOST_OF_THREAD) // min(size, WORD)
        return programs if shape[0] > 1 else slice(None), threads, places
