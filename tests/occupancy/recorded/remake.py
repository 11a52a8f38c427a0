"""Record anew what LLVM says of softmax kernels: python tests/occupancy/recorded/remake.py.

Writes llvm_occupancy.csv beside this file; it takes some minutes and no GPU.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy_lab.compiling import triton_version
from occupancy_lab.compiling.amdgcn import read_amdgcn
from occupancy_lab.compiling.offline import offline
from occupancy_lab.gpus import HipArchitecture, architectures
from occupancy_lab.kernel import load_kernel
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = Path(__file__).with_name("llvm_occupancy.csv")
ROWS = 1823
UNALIGNED = 13
"""By so many columns a row is shorter than a block: the stride is odd, elements load singly."""
MOST_ELEMENTS = 32
"""The most elements per lane: with more, compiles take seconds."""


def launches() -> Iterator[tuple[str, int, Config, int]]:
    """Return each launch to record: architecture, columns, configuration and waves_per_eu."""
    for name, mp in architectures().items():
        if not isinstance(mp, HipArchitecture):
            continue
        shapes = itertools.product((256, 1024, 4096, 8192), (1, 2, 4, 8, 16), (1, 2, 4))
        for block_size, num_warps, num_stages in shapes:
            if block_size > MOST_ELEMENTS * num_warps * mp.warp_size:
                continue
            config = Config(block_size, num_warps, num_stages)
            yield name, block_size, config, 0
            yield name, block_size - UNALIGNED, config, 0
        for waves_per_eu in (2, 4, 8):
            yield name, 1024 - UNALIGNED, Config(1024, 8, 2), waves_per_eu


def compile_row(name: str, cols: int, config: Config, waves_per_eu: int) -> dict[str, str | int]:
    """Compile softmax for the architecture *name*; return its row of the file."""
    kernel = load_kernel("softmax")
    target = architectures()[name].target
    launch = kernel.launch(Problem(ROWS, cols), config)
    with offline(target):
        compiled = launch.warm_up(kernel.function, waves_per_eu=waves_per_eu)
    found = read_amdgcn(compiled.asm["amdgcn"], compiled.metadata.name)
    (occupancy,) = re.findall(r"; Occupancy: (\d+)", compiled.asm["amdgcn"])
    return {
        "arch": name,
        "cols": cols,
        "block_size": config.block_size,
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "waves_per_eu": waves_per_eu,
        "vgprs": found["n_regs"],
        "agprs": found["agprs"] or 0,
        "sgprs": found["sgprs"],
        "allocated_vgprs": found["allocated_vgprs"] or 0,
        "llvm_occupancy": int(occupancy),
        "triton": triton_version(),
    }


def main() -> None:
    """Write llvm_occupancy.csv."""
    with tempfile.TemporaryDirectory() as cache, FILE.open("w", encoding="utf-8") as file:
        os.environ["TRITON_CACHE_DIR"] = cache
        rows = (compile_row(*launch) for launch in launches())
        first = next(rows)
        writer = csv.DictWriter(file, first, lineterminator="\n")
        writer.writeheader()
        writer.writerows((first, *rows))


if __name__ == "__main__":
    main()
