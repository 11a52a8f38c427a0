"""Compile the recorded binaries anew: python tests/compiling/recorded/remake.py (README.md)."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import sample  # noqa: E402

CONFIGURATIONS: dict[str, tuple[str, int, int, int, dict[str, int]]] = {
    "sm_75": ("75", 1024, 4, 2, {}),
    "sm_80": ("80", 1024, 8, 4, {}),
    "sm_86": ("86", 1024, 4, 1, {}),
    "sm_90": ("90", 1024, 8, 4, {}),
    "sm_90_one_warp": ("90", 256, 1, 1, {}),
    "sm_90_spilling": ("90", 4096, 4, 2, {"maxnreg": 32}),
    "sm_100": ("100", 1024, 8, 2, {}),
    "sm_120": ("120", 1024, 8, 2, {}),
    "gfx908": ("gfx908", 1024, 8, 2, {}),
    "gfx90a": ("gfx90a", 1024, 8, 2, {}),
    "gfx942": ("gfx942", 1024, 8, 2, {}),
    "gfx942_padded": ("gfx942", 1024, 8, 2, {"waves_per_eu": 2}),
    "gfx942_agprs": ("gfx942", 16384, 4, 4, {}),
    "gfx950": ("gfx950", 1024, 8, 2, {}),
    "gfx1030_spilling": ("gfx1030", 16384, 4, 2, {}),
    "gfx1100": ("gfx1100", 1024, 8, 2, {}),
    "gfx1201": ("gfx1201", 1024, 8, 2, {}),
    "gfx1250": ("gfx1250", 1024, 8, 2, {}),
}
"""Of each recording of row_softmax: arch, block_size, num_warps, num_stages, options."""

TEXTS = ("sm_90", "gfx942", "gfx1030_spilling")
"""The recordings whose TTGIR and PTX are kept too; AMD assembly is always kept."""


def write(name: str, content: bytes) -> None:
    """Write a file, compressed, with the same bytes for the same content."""
    (HERE / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))


def without_locations(text: str) -> str:
    """Drop from MLIR, PTX or assembly everything that names the source file's path."""
    text = re.sub(r"^#loc.*\n", "", text, flags=re.MULTILINE)
    return re.sub(r" loc\((?:[^()]|\([^()]*\))*\)", "", text)


def record(name: str, said: dict[str, Any], folder: Path) -> None:
    """Compile a recording of row_softmax, and add what the oracles print for it to *said*."""
    arch, block_size, num_warps, num_stages, options = CONFIGURATIONS[name]
    asm = sample.compile_sample(arch, block_size, num_warps, num_stages, **options).asm
    if "cubin" in asm:
        write(f"{name}.cubin", asm["cubin"])
        target = re.search(r"\.target sm_(\w+)", asm["ptx"])[1]
        barriers = sample.assemble_ptx(asm["ptx"], target, folder)[1]
        resources = sample.cuobjdump_resources(asm["cubin"], folder)["row_softmax"]
        said[f"{name}.cubin"] = {"row_softmax": resources | {"barriers": barriers}}
    else:
        write(f"{name}.hsaco", asm["hsaco"])
    forms = {"ttgir", "ptx", "amdgcn"} if name in TEXTS else {"amdgcn"}
    for form in forms & set(asm):
        write(f"{name}.{form}", without_locations(asm[form]).encode())


def main() -> None:
    """Write every recording and oracles.json."""
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
    said: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["TRITON_CACHE_DIR"] = str(folder)
        for name in CONFIGURATIONS:
            record(name, said, folder)
        cubin, _ = sample.assemble_ptx(sample.TWO_KERNELS_PTX, "90", folder)
        write("two_kernels.cubin", cubin)
        said["two_kernels.cubin"] = sample.cuobjdump_resources(cubin, folder)
        hsaco, assembly = sample.assemble_llvm(sample.TWO_KERNELS_LLVM, "gfx942")
        write("two_kernels.hsaco", hsaco)
        write("two_kernels.amdgcn", assembly.encode())
    text = json.dumps(said, indent=1, sort_keys=True)
    (HERE / "oracles.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
