"""Reads the Resources of a compiled kernel from its files: its binary and its texts.

Sources: Triton's TritonGPU dialect (ttg.local_alloc) and NVIDIA's PTX ISA (ld, st, cp.async).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from occupancy_lab.compiling import amdgcn
from occupancy_lab.compiling.cubin import digest, read_cubin, read_elf
from occupancy_lab.errors import unreadable
from occupancy_lab.values import Resources

EM_AMDGPU = 224
WHOLE = {"ttgir": "{", "ptx": "{", "amdgcn": ".end_amdgpu_metadata"}
"""What each kind of text of a compiled kernel must contain to be whole."""

ALLOCATION = re.compile(
    r"ttg\.local_alloc\s*(?:\{[^}\n]*\}\s*)?:\s*\(\)\s*->\s*"
    r"!ttg\.memdesc<((?:\d+x)+)([a-zA-Z]\w*)"
)
BUFFER_RANK = 2
"""A pipeline buffer has a first dimension for the stages before the dimensions of the data."""

PTX_ACCESS = re.compile(r"(?<![\w.%$])(ldu?|st)((?:\.[\w:]+)+)")
PTX_COPY = re.compile(
    r"(?<![\w.%$])cp\.async\.c[ag]\.shared(?:::\w+)?\.global[\w.:]*"
    r"\s*\[[^]\n]*\]\s*,\s*\[[^]\n]*\]\s*,\s*(0x[0-9a-fA-F]+|\d+)"
)
TENSOR = re.compile(
    r"(?<![\w.%$])(wgmma|mma)\.[\w.:]*?\.m(\d+)n(\d+)k(\d+)"
    r"|(?<!\w)v_(?:mfma|smfmac|wmma|swmmac)_\w*?(\d+)x(\d+)x(\d+)"
)
WARPGROUP = 4
"""Warps that execute a wgmma together."""
PTX_VECTOR = re.compile(r"\.v(\d+)(?=\.|$)")
PTX_TYPE = re.compile(r"\.(?:[busf]|bf)(\d+)$")


def read_resources(asm: Mapping[str, Any], metadata: Any, backend: str) -> Resources:
    """Return what one program of a compiled kernel takes.

    *asm* has the kernel's files by kind, and *metadata* its name, num_warps (as launched),
    num_ctas, shared and tmem_size, both as in Triton's CompiledKernel; *backend* is "cuda" or
    "hip".

    Raises BinaryError if a file is missing, cut off or damaged.
    """
    read_files = _read_cuda if backend == "cuda" else _read_hip
    ttgir = _text(asm, "ttgir", metadata.name)
    return Resources(
        num_warps=metadata.num_warps,
        shared=metadata.shared,
        num_ctas=getattr(metadata, "num_ctas", 1),
        tensor_memory=getattr(metadata, "tmem_size", None),
        pipeline_shared=min(pipeline_shared_bytes(ttgir), metadata.shared),
        **read_files(asm, metadata.name),
    )


def _read_cuda(asm: Mapping[str, Any], name: str) -> dict[str, Any]:
    ptx = _text(asm, "ptx", name)
    return read_cubin(asm.get("cubin", b""), name) | _widest(ptx, ptx_widths)


def _read_hip(asm: Mapping[str, Any], name: str) -> dict[str, Any]:
    assembly = _text(asm, "amdgcn", name)
    read_elf(asm.get("hsaco", b""), EM_AMDGPU, "an hsaco")  # only checks that it is whole
    code = repr(amdgcn.LINE.findall(amdgcn.kernel_body(assembly, name)))
    return {
        **amdgcn.read_issued(assembly, name),
        **amdgcn.read_amdgcn(assembly, name),
        "binary": digest(code.encode()),
        **_widest(assembly, amdgcn.amdgcn_widths),
    }


def _text(asm: Mapping[str, Any], kind: str, name: str) -> str:
    """Return a text of a compiled kernel; BinaryError if it is missing or cut off."""
    text: str = asm.get(kind, "")
    if WHOLE[kind] not in text or text.count("{") != text.count("}"):
        unreadable(f"the {kind} that Triton made of {name} is missing or cut off")
    return text


def _widest(assembly: str, widths: Callable[..., Iterator[int]]) -> dict[str, Any]:
    """Return the bytes that one thread moves with its widest accesses to global memory."""
    return {
        "load_bytes": max(widths(assembly, store=False), default=None),
        "store_bytes": max(widths(assembly, store=True), default=None),
        "tensor_size": tensor_size(assembly),
    }


def tensor_size(assembly: str) -> int | None:
    """Return the mean number of multiply-adds per warp and tensor core instruction.

    Return None without such instructions, or if their text does not have the shape (tcgen05).
    """
    sizes = [
        math.prod(map(int, shape)) // (WARPGROUP if match[1] == "wgmma" else 1)
        for match in TENSOR.finditer(assembly)
        if (shape := [size for size in match.groups()[1:] if size])
    ]
    return round(sum(sizes) / len(sizes)) if sizes else None


def pipeline_shared_bytes(ttgir: str) -> int:
    """Return the bytes of all buffers that hold rows in flight.

    These are the ttg.local_alloc operations without an operand and with a dimension for the stages.
    Barriers (one 64-bit word per stage) do not hold rows. Padding between elements is not counted.
    Buffers that are never alive together share memory, so a kernel with several loops can take less
    than this sum.
    """
    total = 0
    for shape_text, element in ALLOCATION.findall(ttgir):
        shape = [int(size) for size in shape_text.rstrip("x").split("x")]
        bits = re.search(r"\d+", element)  # 32 of f32, 8 of f8E4M3FN, 1 of i1
        if bits and len(shape) >= BUFFER_RANK and (element, shape[-1]) != ("i64", 1):
            total += math.prod(shape) * -(-int(bits[0]) // 8)
    return total


def ptx_widths(assembly: str, *, store: bool) -> Iterator[int]:
    """Return the bytes that each access to global memory in PTX moves per thread.

    An asynchronous copy from global to shared memory is a load. Bulk (TMA) copies are left out,
    because they do not belong to one thread.
    """
    code = re.sub(r"//[^\n]*", "", assembly)
    for operation, modifiers in PTX_ACCESS.findall(code):
        bits = PTX_TYPE.search(modifiers)
        if (operation == "st") == store and "global" in modifiers.split(".") and bits:
            vector = PTX_VECTOR.search(modifiers)
            yield int(bits[1]) // 8 * (int(vector[1]) if vector else 1)
    if not store:
        yield from (int(size, 0) for size in PTX_COPY.findall(code))
