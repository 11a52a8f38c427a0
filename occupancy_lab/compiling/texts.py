"""The texts of a compiled kernel, from which the work of a launch is counted."""

from __future__ import annotations

import base64
import contextlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_lab.files import read_bytes
from occupancy_lab.values import Resources
from occupancy_lab.workers.messages import from_line, to_line

MOST_BYTES = 64 << 20
"""The most bytes of a kernel's unpacked texts; a matmul has some 300 KB."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts that Triton and the vendor's compiler made of a kernel; None if they made none."""

    name: str
    """The name of the kernel in its binary."""
    backend: str
    """cuda or hip."""
    num_warps: int
    """Warps as launched: with warp specialization more than the num_warps asked for."""
    num_ctas: int
    shared: int
    """Dynamic shared memory (LDS), bytes per program."""
    ttir: str
    """Triton's first text, in which the kernel still works on blocks."""
    ttgir: str | None = None
    """The same with a layout for each block, which says which thread has which elements."""
    ptx: str | None = None
    cubin: bytes | None = None
    amdgcn: str | None = None

    def pack(self) -> str:
        """Return the texts compressed as ASCII, for `unpack`."""
        return base64.b64encode(zlib.compress(to_line(self).encode())).decode()


@dataclass(frozen=True, slots=True)
class Compiled:
    """The result of a compile: the resources of a program, and the packed texts."""

    resources: Resources
    texts: str


def texts_of(asm: Mapping[str, Any], metadata: Any, backend: str) -> Texts | None:
    """Return the texts of a compiled kernel, or None if it has no TTIR.

    *asm* and *metadata* are as in `read_resources`.
    """
    ttir = asm.get("ttir")
    if ttir is None:
        return None
    return Texts(
        name=metadata.name,
        backend=backend,
        num_warps=metadata.num_warps,
        num_ctas=getattr(metadata, "num_ctas", 1),
        shared=metadata.shared,
        ttir=str(ttir),
        ttgir=asm.get("ttgir"),
        ptx=asm.get("ptx"),
        cubin=asm.get("cubin"),
        amdgcn=asm.get("amdgcn"),
    )


TEXTS = ("source", "ttir", "ttgir", "llir", "ptx", "amdgcn")
BINARIES = {"cuda": "cubin", "hip": "hsaco"}
"""The suffixes of a kernel's files: of its texts, and of its binary by Triton's backend."""


def kept_files(folder: Path) -> dict[str, Any]:
    """Return the binary and the texts of the kernel in *folder*, by the suffixes of their files."""
    found: dict[str, Any] = {}
    for path in folder.glob("*"):
        kind = path.suffix[1:]
        if kind in {*BINARIES.values(), *TEXTS}:
            with contextlib.suppress(OSError):  # the cache may have anything in a file's place
                content = read_bytes(path)
                found[kind] = content if kind not in TEXTS else content.decode(errors="replace")
    return found


def unpack(packed: str) -> Texts | None:
    """Return the texts that `Texts.pack` packed.

    Return None if *packed* is anything else, or unpacks to more than MOST_BYTES.
    """
    try:
        stream = zlib.decompressobj()
        content = stream.decompress(base64.b64decode(packed, validate=True), MOST_BYTES)
        texts: Texts = from_line(Texts, content.decode())
    except (ValueError, zlib.error):
        return None
    whole = stream.eof and min(texts.num_warps, texts.num_ctas, texts.shared) >= 0
    return texts if whole else None
