"""What a kernel's machine code reads as constants: the launch's arguments and sizes.

NVIDIA's kernels read their parameters from bank 0 of the constants, at offsets that the binary
gives (the attributes EIATTR_KPARAM_INFO and EIATTR_PARAM_CBANK, as `cuobjdump -elf` names them).
AMD's read them from memory, at offsets in the metadata of their assembly.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from occupancy_lab.arguments import Plain, Pointer, flattened
from occupancy_lab.assumed import RandomNumbers, elements
from occupancy_lab.compiling.amdgcn import kernel_arguments
from occupancy_lab.compiling.cubin import Elf, attributes, unpack
from occupancy_lab.work.module import closing, first_name, locations_of, split, without_location
from occupancy_lab.work.operations import BLACKWELL

PARAMETER, PARAMETERS = 0x17, 0x0A
"""EIATTR_KPARAM_INFO and EIATTR_PARAM_CBANK."""
SIZES, SIZES_OF_BLACKWELL = (0x0, 0xC, 0x150, 0x15C), (0x360, 0x370, 0x2B0, 0x2C0)
"""Offsets in bank 0 of the threads of a program (%ntid) and of the programs of the grid (%nctaid),
and for clusters of the reciprocal of the CTAs per cluster and of the number of clusters (as for
%clusterid and %nclusterid), three numbers each, as ptxas compiles them."""
TENSOR_BITS = 40
"""The spacing of tensors, as a power of two: no address computed from one is in another."""
MIDDLE = 1 << TENSOR_BITS - 1
"""Where a tensor begins in its part of the address space, so that addresses before it still count
as its own."""
SCRATCH = 1 << 16
"""The first number of the address of scratch memory, which Triton passes as last parameters."""
WORD_BYTES = 4
HIDDEN = "hidden_"
"""The prefix of the kinds of arguments that AMD's runtime adds."""


class Passed:
    """The arguments of a launch as its machine code reads them."""

    def __init__(  # noqa: PLR0913, PLR0917 - a kernel's arguments
        self,
        parameters: Sequence[str],
        arguments: Mapping[str, Plain],
        values: Mapping[str, Sequence[int]],
        places: Mapping[int, tuple[int, int]],
        start: int = 0,
        banks: Mapping[int, memoryview] = MappingProxyType({}),
    ) -> None:
        """Take the arguments by name, and the names of the kernel's *parameters* in order.

        A descriptor or a tuple is several parameters of the same name. *values* has the known
        contents of integer tensors. *places* has the offset and the bytes of each parameter by its
        number, relative to *start* in bank 0. *banks* has the contents of other banks of constants
        from the binary.
        """
        self.tensors: dict[int, str] = {}
        """The tensors, by the upper bits of their addresses."""
        self._constants: dict[tuple[int, int], int] = {}
        self._banks = banks
        self._values: dict[int, tuple[Any, int]] = {}
        """The known elements of tensors, as `elements` takes them, and the bytes of one."""
        given = flattened(parameters, arguments)
        flat = [self._bits(name, value) for name, value in given]
        for number, (offset, size) in places.items():
            value = (
                flat[number] if number < len(flat) else (SCRATCH + number << TENSOR_BITS) + MIDDLE
            )
            for one in range(0, size if value is not None else 0, WORD_BYTES):
                self._constants[0, start + offset + one] = (value or 0) >> 8 * one & 0xFFFFFFFF
        for number, tensor in self.tensors.items():
            if tensor in values:
                dtype = np.dtype(next(value.dtype for name, value in given if name == tensor))
                held: Any = values[tensor]
                if not isinstance(held, range | RandomNumbers):
                    held = np.array(held).astype(dtype).view(f"i{dtype.itemsize}")
                self._values[number] = held, dtype.itemsize

    @classmethod
    def of_cubin(
        cls,
        elf: Elf,
        name: str,
        parameters: Sequence[str],
        arguments: Mapping[str, Plain],
        values: Mapping[str, Sequence[int]],
    ) -> Passed:
        """Return the arguments of the kernel *name* in a cubin."""
        banks = {
            bank: section.content
            for bank in (2, 3)
            if (section := elf.section(f".nv.constant{bank}.{name}")) is not None
        }
        start, places = _places(elf, name)
        return cls(parameters, arguments, values, places, start, banks)

    @classmethod
    def of_amdgcn(  # noqa: PLR0913, PLR0917 - a kernel's arguments
        cls,
        assembly: str,
        name: str,
        parameters: Sequence[str],
        arguments: Mapping[str, Plain],
        values: Mapping[str, Sequence[int]],
        grid: Sequence[int],
        threads: int,
    ) -> Passed:
        """Return the arguments of the kernel *name* in AMD assembly, which start at address 0.

        The runtime's own arguments include the sizes of the *grid* and the *threads* of a program
        (LLVM's "User Guide for AMDGPU Backend", Code Object V5 Metadata).
        """
        listed = kernel_arguments(assembly, name)
        own = [(offset, size) for offset, size, kind in listed if not kind.startswith(HIDDEN)]
        found = cls(parameters, arguments, values, dict(enumerate(own)))
        sizes = {}
        for axis, programs, size in zip("xyz", grid, (threads, 1, 1), strict=True):
            sizes[f"{HIDDEN}block_count_{axis}"] = programs
            sizes[f"{HIDDEN}group_size_{axis}"] = size
            sizes[f"{HIDDEN}remainder_{axis}"] = 0
        for offset, _, kind in listed:
            if kind in sizes:  # two of them, of 2 bytes, may be in one word
                place = offset % WORD_BYTES
                before = found._constants.get((0, offset - place), 0)
                found._constants[0, offset - place] = before | sizes[kind] << 8 * place
        return found

    def set_sizes(self, arch: int, threads: int, grid: Sequence[int], ctas: int = 1) -> None:
        """Set the *threads* of a CTA and the *grid* of CTAs, of which a program has *ctas*."""
        offsets = SIZES_OF_BLACKWELL if arch >= BLACKWELL else SIZES
        for place, whole in enumerate(grid):
            size = ctas if place == 0 else 1
            sizes = [threads if place == 0 else 1, whole]
            if ctas > 1:  # before Hopper the offsets of clusters hold arguments
                sizes += [_bits_of(1 / size), whole // size]
            for offset, number in zip(offsets, sizes, strict=False):
                self._constants[0, offset + WORD_BYTES * place] = number

    @property
    def has_values(self) -> bool:
        """Whether the contents of any tensor are known."""
        return bool(self._values)

    def forget(self, tensor: str) -> None:
        """Treat the contents of a tensor as unknown, because the launch writes to it."""
        for number, name in self.tensors.items():
            if name == tensor:
                self._values.pop(number, None)

    @property
    def tables(self) -> bytes:
        """The constants that may contain jump targets."""
        return b"".join(self._banks.values())

    def constant(self, bank: int, offset: int) -> Any:
        """Return a constant as an array of one element; None where it is not known."""
        value = self._constants.get((bank, offset))
        content = self._banks.get(bank)
        if value is None and content is not None and 0 <= offset <= len(content) - WORD_BYTES:
            (value,) = struct.unpack_from("<I", content, offset)
        return None if value is None else np.full((1, 1), value, np.uint32)

    def loaded(
        self, address: Any, mask: Any, size: int, registers: int, *, signed: bool
    ) -> Sequence[Any]:
        """Return what a load of *size* bytes finds, by register; None where it is not known.

        All threads of *mask* load from one tensor; other threads' addresses may be anything. A
        number of fewer than 4 bytes fills a register, sign-extended where it is *signed*.
        """
        number = first_active(address, mask) >> TENSOR_BITS
        numbers, width = self._values.get(number, ((), 1))
        if not len(numbers):
            return [None] * registers
        offset = (address - (number << TENSOR_BITS) - MIDDLE).astype(np.int64)
        found = [
            _word(numbers, width, offset + WORD_BYTES * one, min(size, WORD_BYTES))
            for one in range(registers)
        ]
        if signed and size < WORD_BYTES:
            bits = 8 * (WORD_BYTES - size)
            found = [(one.view(np.int32) << bits >> bits).view(np.uint32) for one in found]
        return found

    def tensor_at(self, address: int) -> str | None:
        """Return the tensor that contains *address*; None where none does."""
        return self.tensors.get(address >> TENSOR_BITS)

    def _bits(self, name: str, value: Any) -> int | None:
        if isinstance(value, Pointer):
            number = len(self.tensors) + 1
            self.tensors[number] = name
            return (number << TENSOR_BITS) + MIDDLE
        if isinstance(value, float):
            return _bits_of(value)
        return value & 0xFFFFFFFFFFFFFFFF if isinstance(value, int) else None


def _bits_of(value: float) -> int:
    """Return a number as FP32."""
    return int.from_bytes(struct.pack("<f", value), "little")


def first_active(values: Any, mask: Any) -> int:
    """Return the value of the first thread of *mask*; programs or threads may share values."""
    program, thread = np.unravel_index(mask.argmax(), mask.shape)
    return int(values[min(program, len(values) - 1), min(thread, values.shape[1] - 1)])


def parameters_of(ttir: str, name: str) -> list[str]:
    """Return the names of the parameters of the kernel *name* that remain in its *ttir*."""
    match = re.search(rf"tt\.func public @\"?{re.escape(name)}\"?(\(.*)", ttir)
    if match is None:
        return []
    locations, own = locations_of(ttir), r"%([\w$.\-]+): "
    return [
        first_name(without_location(one)[1], locations) or found[1]
        for one in split(match[1][1 : closing(match[1], 0)])
        if (found := re.match(own, one))
    ]


def _places(elf: Elf, name: str) -> tuple[int, dict[int, tuple[int, int]]]:
    """Return the offset of the parameters, and each one's offset and bytes by its number."""
    start, places = 0, {}
    for attribute, content in attributes(elf.section(f".nv.info.{name}")):
        if attribute == PARAMETER:
            _, number, offset, traits = unpack("<IHHI", content, 0)
            places[number] = (offset, traits >> 18)
        elif attribute == PARAMETERS:
            _, start, _ = unpack("<IHH", content, 0)
    return start, places


def _word(numbers: Any, width: int, offset: Any, size: int) -> Any:
    """Return the *size* bytes at an offset in elements of *width* bytes."""
    word = np.zeros_like(offset)
    for place in range(0, size, min(width, size)):
        there = offset + place
        element = elements(numbers, there // width) >> 8 * (there % width)
        word |= (element & (1 << 8 * min(width, size)) - 1) << 8 * place
    return word.astype(np.uint32)
