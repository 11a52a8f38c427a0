"""Dry runs of a layer norm's and a matmul's launch lines, with given resources and work."""

from collections.abc import Mapping
from typing import Any

import launched_kernels
from hand_made import matmul as matmul_counts
from hand_made import rows
from stand_ins import dry

from occupancy_lab.arguments import tensor
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.values import Resources, Target

X = tensor((4096, 2048), "float16")
ROWS = tensor((4096,), "float32")
NORM = (X, X, X, X, ROWS, ROWS, 2048, 2048, 1e-5)
MATMUL = (X, X, X, 4096, 4096, 4096, 4096, 1, 4096, 1, 4096, 1)
BLOCKS = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8}
COUNTED = {"local_bytes": 0, "load_bytes": 16, "store_bytes": 16, "instructions": 400}


def norm_resources(keywords: Mapping[str, Any], target: Target) -> Resources:
    """Return the resources of layer_norm in Triton 3.7.1: num_stages changes nothing."""
    warps = keywords.get("num_warps", 4)
    found = Resources(
        {4: 40, 8: 32}.get(warps, 32), warps, 4 * warps, binary=warps, **COUNTED
    ).replace(loop_instructions=90)
    if target.backend == "cuda":
        return found.replace(barriers=1)
    return found.replace(n_regs=found.n_regs - 11, sgprs=43, agprs=0, load_bytes=8, store_bytes=8)


NORM_COUNTS = rows(4096, 2048, 1056, passes=3)
MATMUL_COUNTS = matmul_counts(4096, 128, 132)


def matmul_resources(keywords: Mapping[str, Any], target: Target) -> Resources | str:
    """Return the resources of matmul in clusters of 2, which AMD does not have."""
    if target.backend == "hip":
        return "Triton 3.7.1 cannot compile matmul for gfx942: num_ctas > 1 is not supported"
    warps, stages = keywords.get("num_warps", 4), keywords.get("num_stages", 3)
    shared = 32768 * stages
    return Resources(
        {4: 217, 8: 123, 16: 64}[warps],
        warps,
        shared,
        num_ctas=2,
        pipeline_shared=shared,
        tensor_instructions=4,
        loop_instructions=60,
        binary=warps * 100 + stages,
        **COUNTED,
    )


def norm(gpus: str, **asked: Any) -> Explanation:
    """Return the dry run of layer_norm, with its work counted if it has a grid."""
    launched = {"BLOCK_SIZE": 2048, "num_warps": 8, "grid": (4096,), "counts": NORM_COUNTS}
    if "grid" in asked:
        del launched["counts"]
    return dry(launched_kernels.layer_norm, gpus, norm_resources, *NORM, **{**launched, **asked})


def matmul(gpus: str, **asked: Any) -> Explanation:
    """Return the dry run of a matmul in clusters."""
    launched = {**BLOCKS, "ACTIVATION": "", "num_warps": 8, "num_stages": 3, "num_ctas": 2}
    launched = {**launched, "counts": MATMUL_COUNTS, **asked}
    return dry(launched_kernels.matmul, gpus, matmul_resources, *MATMUL, **launched)
