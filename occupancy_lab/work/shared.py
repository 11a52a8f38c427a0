"""What threads of the programs that are followed write to shared memory, and read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

WORD = 4
MOST_BYTES = 1 << 25
"""Bytes of shared memory of all programs together, 64 of each thread at least."""


class SharedMemory:
    """The bytes of each program's shared memory, as far as they are known."""

    def __init__(self, programs: int, size: int) -> None:
        """Take the number of programs, and the bytes of each."""
        self._content = np.zeros((programs, size), np.uint8)
        self._known = np.zeros((programs, size), bool)

    def forget(self) -> None:
        """Take all of it for unknown."""
        self._known[:] = False

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
        programs, threads, offset = self._chosen(address, mask)
        shape = (len(self._content), mask.shape[1])
        known: Any = True
        if unknown is not None:
            known = ~np.broadcast_to(unknown, shape)[programs, threads]
        for one in range(size):
            value = values[one // WORD]
            self._known[programs, offset + one] = known if value is not None else False
            if value is not None:
                chosen = np.broadcast_to(value, shape)[programs, threads]
                self._content[programs, offset + one] = chosen >> np.uint32(8 * (one % WORD))

    def load(
        self, address: Any, size: int, mask: Any, *, signed: bool
    ) -> tuple[Sequence[Any], Any]:
        """Return what the threads of *mask* read at *address*, by register.

        And the threads for which it is not known; None is no one, a value of None is not known at
        all.
        """
        registers = max(size // WORD, 1)
        if address is None:
            return [None] * registers, None
        programs, threads, offset = self._chosen(address, mask)
        shape = (len(self._content), mask.shape[1])
        found: list[Any] = [np.zeros(shape, np.uint32) for _ in range(registers)]
        known = np.ones(len(offset), bool)
        for one in range(size):
            known &= self._known[programs, offset + one]
            byte = self._content[programs, offset + one].astype(np.uint32)
            found[one // WORD][programs, threads] |= byte << np.uint32(8 * (one % WORD))
        if signed:
            shift = 32 - 8 * size
            found = [((found[0] << np.uint32(shift)).view(np.int32) >> shift).view(np.uint32)]
        if known.all():
            return found, None
        if not known.any():
            return [None] * registers, None
        unknown = np.zeros(shape, bool)
        unknown[programs, threads] = ~known
        return found, unknown

    def _chosen(self, address: Any, mask: Any) -> tuple[Any, Any, Any]:
        """Return the programs and threads of *mask*, and where each asks for."""
        shape = (len(self._content), mask.shape[1])
        programs, threads = np.nonzero(np.broadcast_to(mask, shape))
        offset = np.broadcast_to(address, shape)[programs, threads]
        return programs, threads, np.clip(offset, 0, self._content.shape[1] - 2 * 16)
