"""What threads of the programs that are followed write to shared memory, and read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

WORD = 4
MOST_BYTES = 1 << 25
"""Bytes of shared memory of all programs together, 64 of each thread at least."""
MOST_OF_THREAD = 16
"""Bytes that a thread moves at once, at an address that is a multiple of their number."""


class SharedMemory:
    """The bytes of each program's shared memory, as far as they are known."""

    def __init__(self, programs: int, size: int) -> None:
        """Take the number of programs, and the bytes of each."""
        shape = programs, -(-size // MOST_OF_THREAD) * MOST_OF_THREAD
        self._content = np.zeros(shape, np.uint8)
        self._known = np.zeros(shape, np.uint8)
        """1 of each byte that is known."""
        self._is_blank = True
        """Whether none is."""

    def forget(self) -> None:
        """Take all of it for unknown."""
        self._known[:] = 0
        self._is_blank = True

    def store(
        self, address: Any, values: Sequence[Any], size: int, mask: Any, unknown: Any
    ) -> None:
        """Write *size* bytes a thread at *address*, from registers, by the threads of *mask*.

        Where the address is None anything may be written anywhere. A value of None is not known,
        and none is of the threads of *unknown*, if that is not None.
        """
        if address is None:
            self.forget()
            return
        if self._is_blank and all(value is None for value in values):
            return
        self._is_blank = False
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
        """Return what the threads of *mask* read at *address*, by register.

        And the threads for which it is not known; None is no one, a value of None is not known at
        all.
        """
        registers = max(size // WORD, 1)
        if address is None or self._is_blank:
            return [None] * registers, None
        programs, threads, places = self._chosen(address, mask, size)
        shape = (len(self._content), mask.shape[1])
        content, known, ones = self._units(size)
        found: list[Any] = [np.zeros(shape, np.uint32) for _ in range(registers)]
        are_known = np.ones(len(places), bool)
        for one in range(registers):
            are_known &= known[programs, places + one] == ones
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

    def _units(self, size: int) -> tuple[Any, Any, Any]:
        """Return content, and what is known of it, by words, or what is moved if that is less.

        And what stands for a unit of which all bytes are known.
        """
        unit: Any = {1: np.uint8, 2: np.uint16}.get(size, np.uint32)
        return (
            self._content.view(unit),
            self._known.view(unit),
            np.ones(WORD, np.uint8).view(unit)[0],
        )

    def _chosen(self, address: Any, mask: Any, size: int) -> tuple[Any, Any, Any]:
        """Return the programs and threads of *mask*, and at which unit each asks."""
        shape = (len(self._content), mask.shape[1])
        programs, threads = np.nonzero(np.broadcast_to(mask, shape))
        offset = np.broadcast_to(address, shape)[programs, threads]
        most = self._content.shape[1] - MOST_OF_THREAD
        return programs, threads, np.clip(offset, 0, most) // min(size, WORD)
