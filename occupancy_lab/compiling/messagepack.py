"""A decoder of MessagePack, the form of an AMD code object's metadata.

Format: https://github.com/msgpack/msgpack/blob/master/spec.md. Extension types, which the metadata
does not use, are refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from occupancy_lab.compiling.elf import cut
from occupancy_lab.errors import BinaryError

DEEPEST = 32
"""Levels of nesting that are followed; metadata has about six."""

CONSTANTS = {
    **{first: first for first in range(0x80)},
    **{first: first - 0x100 for first in range(0xE0, 0x100)},
    0xC0: None,
    0xC2: False,
    0xC3: True,
}
FLOATS = {0xCA: ">f", 0xCB: ">d"}
INTEGERS = {
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
SHORT = {
    **{0x80 + length: ("map", length) for length in range(16)},
    **{0x90 + length: ("array", length) for length in range(16)},
    **{0xA0 + length: ("text", length) for length in range(32)},
}
LONG = {
    0xC4: ("bytes", ">B"),
    0xC5: ("bytes", ">H"),
    0xC6: ("bytes", ">I"),
    0xD9: ("text", ">B"),
    0xDA: ("text", ">H"),
    0xDB: ("text", ">I"),
    0xDC: ("array", ">H"),
    0xDD: ("array", ">I"),
    0xDE: ("map", ">H"),
    0xDF: ("map", ">I"),
}


def decode(data: memoryview) -> object:
    """Return the value that *data* holds; bytes behind it are not looked at.

    Raises:
        BinaryError: it is cut off, nested too deeply, or not MessagePack.
    """
    return Decoder(data).value(0)


@dataclass(slots=True)
class Decoder:
    """A place in *data*; each method reads what is there and moves on."""

    data: memoryview
    offset: int = 0

    def value(self, depth: int) -> object:
        """Read one value, *depth* levels down."""
        if depth > DEEPEST:
            message = f"The MessagePack data is damaged: it is nested deeper than {DEEPEST} levels."
            raise BinaryError(message)
        first = self.number(">B")
        if first in CONSTANTS:
            return CONSTANTS[first]
        if first in INTEGERS:
            return self.number(INTEGERS[first])
        if first in FLOATS:
            return self.number(FLOATS[first])
        if first in SHORT:
            return self.filled(*SHORT[first], depth)
        if first in LONG:
            kind, layout = LONG[first]
            return self.filled(kind, self.number(layout), depth)
        message = f"The MessagePack data is damaged: no value starts with the byte 0x{first:02x}."
        raise BinaryError(message)

    def filled(self, kind: str, length: int, depth: int) -> object:
        """Read the *length* bytes or members that follow."""
        if kind == "array":
            return [self.value(depth + 1) for _ in range(length)]
        if kind == "map":
            return dict(self.pair(depth + 1) for _ in range(length))
        content = bytes(self.take(length))
        return content if kind == "bytes" else content.decode(errors="backslashreplace")

    def pair(self, depth: int) -> tuple[str | int, object]:
        """Read a member of a map; its key is a string or a number."""
        key = self.value(depth)
        if not isinstance(key, str | int):
            message = "The MessagePack data is damaged: a key is neither a string nor a number."
            raise BinaryError(message)
        return key, self.value(depth)

    def number(self, layout: str) -> int:
        """Read one number of *layout* (of module struct)."""
        number: int = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return number

    def take(self, size: int) -> memoryview:
        """Read *size* bytes."""
        taken = cut(self.data, self.offset, size)
        self.offset += size
        return taken
