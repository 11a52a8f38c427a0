"""What the text forms of a compiled kernel tell: pipeline buffers, and widths of memory access.

Sources: Triton's TritonGPU dialect (ttg.local_alloc), NVIDIA's PTX ISA (ld, st, cp.async), and
LLVM's AMDGPU instruction syntax (global_, flat_ and buffer_ instructions).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["ptx", "amdgcn"]

ALLOCATION = re.compile(
    r"ttg\.local_alloc\s*(?:\{[^}\n]*\}\s*)?:\s*\(\)\s*->\s*"
    r"!ttg\.memdesc<((?:\d+x)+)([a-zA-Z]\w*)"
)
BUFFER_RANK = 2
"""A pipeline buffer has its stages as a first dimension before those of the data."""

PTX_ACCESS = re.compile(r"(?<![\w.%$])(ldu?|st)((?:\.[\w:]+)+)")
PTX_COPY = re.compile(
    r"(?<![\w.%$])cp\.async\.c[ag]\.shared(?:::\w+)?\.global[\w.:]*"
    r"\s*\[[^]\n]*\]\s*,\s*\[[^]\n]*\]\s*,\s*(0x[0-9a-fA-F]+|\d+)"
)
PTX_VECTOR = re.compile(r"\.v(\d+)(?=\.|$)")
PTX_TYPE = re.compile(r"\.(?:[busf]|bf)(\d+)$")

AMDGCN_ACCESS = re.compile(
    r"^[ \t]*(global|flat|buffer|scratch)_(load|store)_(\w+)[ \t]+([^\n;]*)", re.MULTILINE
)
TO_LDS = r"\blds\b"
"""The operand with which a load writes to LDS, where its name does not say so."""
AMDGCN_WIDTHS = (
    (re.compile(r"(?:^|_)dword(?:x(\d+))?$"), 4),
    (re.compile(r"(?:^|_)[us]?short(?:_d16)?(?:_hi)?$"), 2),
    (re.compile(r"(?:^|_)[us]?byte(?:_d16)?(?:_hi)?$"), 1),
)
AMDGCN_BITS = re.compile(r"(?:^|_)[bui](8|16|32|64|96|128)$")


def pipeline_shared_bytes(ttgir: str) -> int:
    """Return the bytes of the buffers that hold rows in flight, summed over all of them.

    These are the ttg.local_alloc operations without an operand and with a dimension of stages.
    Barriers (one 64-bit word a stage) are not rows. Padding between elements is not counted, and
    buffers that never live together share their memory, so that a kernel with several loops can
    take less than this sum.
    """
    total = 0
    for shape_text, element in ALLOCATION.findall(ttgir):
        shape = [int(size) for size in shape_text.rstrip("x").split("x")]
        if len(shape) >= BUFFER_RANK and (element, shape[-1]) != ("i64", 1):
            total += math.prod(shape) * element_bytes(element)
    return total


def element_bytes(element: str) -> int:
    """Return the bytes of one element of an MLIR type: 4 of f32, 1 of f8E4M3FN, 1 of i1."""
    bits = re.search(r"\d+", element)
    return -(-int(bits[0]) // 8) if bits else 0


def widest_load_bytes(assembly: str, kind: Kind) -> int | None:
    """Return the bytes that one thread moves by its widest load from global memory.

    An asynchronous copy from global to shared memory is a load. A bulk (TMA) copy is not one
    thread's, and is left out. None when the kernel has no load.
    """
    return max(widths(assembly, kind, store=False), default=None)


def widest_store_bytes(assembly: str, kind: Kind) -> int | None:
    """Return the bytes that one thread moves by its widest store to global memory, None: none."""
    return max(widths(assembly, kind, store=True), default=None)


def widths(assembly: str, kind: Kind, *, store: bool) -> Iterator[int]:
    """Return the bytes of each access to global memory."""
    read = ptx_widths if kind == "ptx" else amdgcn_widths
    return read(assembly, store=store)


def ptx_widths(assembly: str, *, store: bool) -> Iterator[int]:
    """Return the bytes of each access to global memory in PTX."""
    code = re.sub(r"//[^\n]*", "", assembly)
    for operation, modifiers in PTX_ACCESS.findall(code):
        bits = PTX_TYPE.search(modifiers)
        if (operation == "st") == store and "global" in modifiers.split(".") and bits:
            vector = PTX_VECTOR.search(modifiers)
            yield int(bits[1]) // 8 * (int(vector[1]) if vector else 1)
    if not store:
        yield from (int(size, 0) for size in PTX_COPY.findall(code))


def amdgcn_widths(assembly: str, *, store: bool) -> Iterator[int]:
    """Return the bytes of each access to global memory in AMD assembly."""
    for space, operation, form, operands in AMDGCN_ACCESS.findall(assembly):
        width = amdgcn_width(form)
        if (operation == "store") == store and width and not is_scratch(space, operands):
            yield width


def amdgcn_scratch_width(instruction: str) -> int | None:
    """Return the bytes a lane that *instruction* moves to or from scratch; None: none."""
    access = AMDGCN_ACCESS.match(instruction)
    return amdgcn_width(access[3]) if access and is_scratch(access[1], access[4]) else None


def is_scratch(space: str, operands: str) -> bool:
    """Tell whether an access is to scratch.

    A buffer instruction whose address is `off` has none that differs between lanes: it is the
    scratch of targets without scratch instructions (gfx908, gfx90a, gfx10.3), unless it loads to
    LDS, which nothing does from scratch.
    """
    off = re.search(r"(^|,)\s*off\s*,", operands) and not re.search(TO_LDS, operands)
    return space == "scratch" or (space == "buffer" and bool(off))


def amdgcn_width(form: str) -> int | None:
    """Return the bytes a lane of an opcode's last part: 16 of dwordx4 or b128, 2 of d16_b16."""
    bits = AMDGCN_BITS.search(form)
    if bits:
        return int(bits[1]) // 8
    for pattern, size in AMDGCN_WIDTHS:
        found = pattern.search(form)
        if found:
            return size * int(found[1] or 1) if pattern.groups else size
    return None
