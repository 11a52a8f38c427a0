"""Ranks by predicted time the fused-MoE configurations that vLLM's users tuned.

`python reports/vllm_order.py FOLDER --output reports/data/vllm-order.csv` takes vLLM's folder
model_executor/layers/fused_moe, from a clone or a wheel (0.33.0 here). It reads the source of the
kernel `fused_moe_kernel` and the tuned configurations of SHAPES there. Without a GPU it predicts
the two launches of a layer with each configuration: the GPU's tuned ones for all sizes, and
--sample of the space that vLLM's tuner searches (benchmarks/kernels/benchmark_moe.py), on AMD only
those of it that the tuner times. Each problem is a row of the CSV.

The experts of each token are drawn uniformly from a seed, as the tuner draws them. The tuner
repeats a whole layer in a CUDA graph with the same experts and clears no cache: a launch finds
there what the layer before it has left. Of the layer, only these two launches depend on the
configuration.
"""

from __future__ import annotations

import argparse
import ast
import csv
import itertools
import json
import math
import random
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.arguments import Dtype, Pointer
from occupancy_lab.asked import Asked
from occupancy_lab.compiled_records import compile_runs, with_counts
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import load_function
from occupancy_lab.launch import Launch
from occupancy_lab.record import Record
from occupancy_lab.throughput.demand import Doing
from occupancy_lab.throughput.launch_time import predict_launch
from occupancy_lab.work.memory import repeated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DATA = Path(__file__).resolve().parent / "data" / "vllm-order.csv"
DEVICES = {
    "a100": "NVIDIA_A100-SXM4-80GB",
    "h100": "NVIDIA_H100_80GB_HBM3",
    "b200": "NVIDIA_B200",
    "mi300x": "AMD_Instinct_MI300X",
}
MIXTRAL = ((8, 7168, 4096, 2), (8, 3584, 4096, 2), (8, 1792, 4096, 2))
"""Experts, intermediate size, hidden size and experts per token of Mixtral 8x7B on 2, 4 and 8
GPUs."""
SHAPES = dict.fromkeys(DEVICES, MIXTRAL) | {
    "b200": ((16, 1024, 5120, 1), (128, 768, 2048, 8), (64, 1408, 2048, 6))
}
"""For the B200, the layers of Llama 4 Scout on 8 GPUs, Qwen3-30B-A3B and DeepSeek-V2-Lite."""
TOKENS = (1, 16, 64, 256, 1024, 4096)
NVIDIA_SPACE = (
    "BLOCK_SIZE_M=16,32,64,128,256 BLOCK_SIZE_N=32,64,128,256 BLOCK_SIZE_K=64,128,256"
    " GROUP_SIZE_M=1,16,32,64 num_warps=4,8 num_stages=2,3,4,5"
)
AMD_SPACE = (
    "BLOCK_SIZE_M=16,32,64,128,256 BLOCK_SIZE_N=16,32,64,128,256 BLOCK_SIZE_K=16,32,64,128,256"
    " GROUP_SIZE_M=1,4,8,16,32 num_warps=1,2,4,8 num_stages=2 waves_per_eu=0,1,2,4"
    " matrix_instr_nonkdim=16,32 kpack=1,2"
)
OFF = (
    *("naive_block_assignment", "use_fp8_w8a8", "use_int8_w8a8", "use_int8_w8a16"),
    *("per_channel_quant", "HAS_BIAS", "SWAP_AB"),
)
"""Constexprs of the kernel that are False without quantization."""
COLUMNS = ("gpu", "experts", "intermediate", "hidden", "top_k", "tokens")
"""The columns that identify a problem."""

SECONDS = 20.0
"""The limit of a compile: some blocks of the space take many minutes, and spill."""

LDS_BYTES = 65536
LARGE, LEAST_BLOCK, LEAST_WARPS = 2048, 64, 4
"""Rows and columns of a product from which the tuner times no smaller blocks on AMD."""

Config = dict[str, int]


def _kernel_file(folder: Path, into: Path) -> str:
    """Write vLLM's kernel without the imports of its file; return the name that loads it."""
    text = (folder / "fused_moe.py").read_text(encoding="utf-8")
    wanted = {"write_zeros_to_output", "fused_moe_kernel"}
    lines = text.splitlines()
    parts = ["import triton", "import triton.language as tl"]
    parts += [
        "\n".join(lines[node.lineno - 2 : node.end_lineno])
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name in wanted
    ]
    path = into / "vllm_kernel.py"
    path.write_text("\n\n\n".join(parts) + "\n", encoding="utf-8")
    return f"{path}:fused_moe_kernel"


def _routed(experts: int, slots: int, top_k: int, block: int) -> dict[str, tuple[int, ...]]:
    """Return moe_align_block_size's result for *slots*, each a pair of a token and an expert."""
    draw, of_expert = random.Random(0), [list[int]() for _ in range(experts)]  # noqa: S311
    for token in range(slots // top_k):
        for place, expert in enumerate(draw.sample(range(experts), top_k)):
            of_expert[expert].append(token * top_k + place)
    ids, owners = list[int](), list[int]()
    for expert, own in enumerate(of_expert):
        blocks = -(-len(own) // block)
        ids += own + [slots] * (blocks * block - len(own))
        owners += [expert] * blocks
    room = slots + experts * (block - 1)
    return {
        "sorted_token_ids_ptr": (*ids, *[slots] * (room - len(ids))),
        "expert_ids_ptr": (*owners, *[0] * (-(-room // block) - len(owners))),
        "num_tokens_post_padded_ptr": (len(ids),),
    }


def _launches(shape: tuple[int, ...], tokens: int, config: Config, dtype: str) -> Iterator[Launch]:
    """Return the two launches of a layer: up and gate of each token, and down of each slot."""
    experts, intermediate, hidden, top_k = shape
    slots, block = tokens * top_k, config["BLOCK_SIZE_M"]
    values = _routed(experts, slots, top_k, block)
    room = len(values["sorted_token_ids_ptr"])
    for rows_of_a, n, k, weighted in (
        (tokens, 2 * intermediate, hidden, False),
        (slots, hidden, intermediate, True),
    ):
        em = min(room, slots * block) if rows_of_a < block else room
        sizes = (rows_of_a * k, experts * n * k, slots * n)
        pointers: list[Any] = [Pointer(dtype, 2 * size) for size in sizes]
        pointers += [None, None, None, Pointer("float32", 4 * slots)]
        pointers += [Pointer("int32", 4 * len(held)) for held in values.values()]
        strides = (k, 1, n * k, 1, k, n, 1, *[0] * 7)
        yield Launch(
            (*pointers, n, k, em, slots, *strides),
            {
                **dict.fromkeys(OFF, False),
                **config,
                "group_n": 0,
                "group_k": 0,
                "SPLIT_K": 1,
                "MUL_ROUTED_WEIGHT": weighted,
                "top_k": 1 if weighted else top_k,
                "compute_type": Dtype("bf16" if dtype == "bfloat16" else "fp16"),
            },
            (-(-em // block) * -(-n // config["BLOCK_SIZE_N"]),),
            values=values,
        )


def _tuned(folder: Path, key: str, shape: Sequence[int]) -> Mapping[int, Config]:
    name = f"E={shape[0]},N={shape[1]},device_name={DEVICES[key]}.json"
    found = json.loads((folder / "configs" / name).read_text(encoding="utf-8"))
    return {int(size): config for size, config in found.items() if size.isdigit()}


def is_searched(shape: Sequence[int], tokens: int, config: Config) -> bool:
    """Tell whether the tuner times a configuration on AMD: prune_rocm_configs for either launch."""
    _, intermediate, hidden, top_k = shape
    return any(
        _is_kept(tokens * top_k, columns, depth, config)
        for columns, depth in ((2 * intermediate, hidden), (hidden, intermediate))
    )


def _is_kept(rows: int, columns: int, depth: int, config: Config) -> bool:
    tall, wide, deep = (config[f"BLOCK_SIZE_{side}"] for side in "MNK")
    side, group = config["matrix_instr_nonkdim"], config["GROUP_SIZE_M"]
    sides = ((rows, tall), (columns, wide))
    is_large = min(rows, columns) >= LARGE
    return (
        side <= min(tall, wide, 16 if min(rows, columns) < 32 else 32)  # noqa: PLR2004
        and all(side < size or side == block for size, block in sides)
        and all(block <= 2 * size or block == 16 for size, block in sides)  # noqa: PLR2004
        and depth % deep == 0
        and (group == 1 or group * tall <= rows)
        and 2 * deep * (tall + wide) <= LDS_BYTES
        and (
            not is_large
            or (min(tall, wide, deep) >= LEAST_BLOCK and config["num_warps"] >= LEAST_WARPS)
        )
    )


def configurations(
    key: str,
    tuned: Mapping[tuple[int, ...], Mapping[int, Config]],
    shape: tuple[int, ...],
    tokens: int,
    sample: int,
) -> dict[str, Config]:
    """Return the *tuned* configurations of a GPU and a *sample* of the others, by their texts.

    Only configurations that the tuner times for *tokens* of a layer of *shape* are returned.
    """
    space = AMD_SPACE if key == "mi300x" else NVIDIA_SPACE
    ranges = [(name, of.split(",")) for name, of in (one.split("=") for one in space.split())]
    each = [[(name, int(value)) for value in values] for name, values in ranges]
    every = [dict(one) for one in itertools.product(*each)]
    known = [tuned[one][size] for one in tuned for size in TOKENS]
    if key == "mi300x":
        every, known = (
            [one for one in some if is_searched(shape, tokens, one)] for some in (every, known)
        )
    drawn = random.Random(1).sample(every, sample)  # noqa: S311
    return {" ".join(f"{k}={v}" for k, v in one.items()): one for one in (*known, *drawn)}


def order(
    folder: Path, key: str, sizes: Sequence[int], sample: int, cache: Path
) -> Iterator[dict[str, Any]]:
    """Predict the layers of a GPU for *sizes* of tokens and yield a row for each."""
    name = _kernel_file(folder, cache)
    function, _ = load_function(name)
    gpu = find_gpu(key)
    dtype = "float16" if key == "mi300x" else "bfloat16"  # as in the tuner
    tuned = {shape: _tuned(folder, key, shape) for shape in SHAPES[key]}
    for shape, tokens in itertools.product(tuned, sizes):
        named = configurations(key, tuned, shape, tokens, sample)
        configs = [*named.values()]
        pairs = (_launches(shape, tokens, one, dtype) for one in configs)
        asked = [Asked(function, one, gpu, name) for pair in pairs for one in pair]
        compiler = Compiler(cache, timeout=SECONDS)
        runs = with_counts(compile_runs(asked, compiler), asked, compiler)
        us = [_us(runs[2 * place : 2 * place + 2]) for place in range(len(configs))]
        own = configs.index(tuned[shape][tokens])
        yield {
            **dict(zip(COLUMNS, (key, *shape, tokens), strict=True)),
            "configs": len(configs),
            "timed": sum(one < math.inf for one in us),
            "rank": 1 + sum(one < us[own] for one in us),
            "tuned_us": round(us[own], 2),
            "best_us": round(min(us), 2),
            "median_us": round(statistics.median(one for one in us if one < math.inf), 2),
            "tuned": [*named][own],
            "best": [*named][us.index(min(us))],
        }


def _us(runs: Sequence[object]) -> float:
    """Return the time of a layer's launches right after the same layer; infinite if not known."""
    known = [one for one in runs if isinstance(one, Record)]
    if len(known) < len(runs):
        return math.inf
    return sum(_after(one, [other for other in known if other is not one]) for one in known)


def _after(run: Record, others: Sequence[Record]) -> float:
    """Return the time of a launch after itself and *others*; infinite if it is not known."""
    if run.counts is None or run.memory is None:
        return math.inf
    between = sum(one.memory.once_bytes.high or 0 for one in others if one.memory)
    found = predict_launch(
        Doing(
            *(run.counts, run.executed, repeated(run.memory, run.counts, run.gpu, between)),
            *(run.resources, run.occupancy.programs_per_multiprocessor, run.gpu),
            num_stages=run.num_stages,
        )
    )
    return math.inf if found is None else found.us


def main() -> None:
    """Predict, and write each row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="vLLM's model_executor/layers/fused_moe")
    parser.add_argument("--gpu", nargs="+", default=[*DEVICES])
    parser.add_argument("--tokens", nargs="+", type=int, default=TOKENS)
    parser.add_argument("--sample", type=int, default=16, help="configurations of the space")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir(), "vllm-order"))
    parser.add_argument("--output", type=Path, default=DATA)
    asked = parser.parse_args()
    asked.cache.mkdir(parents=True, exist_ok=True)
    with asked.output.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for key in asked.gpu:
            for row in order(asked.folder, key, asked.tokens, asked.sample, asked.cache):
                if not file.tell():
                    writer.writerow(row)
                writer.writerow(row.values())
                file.flush()


if __name__ == "__main__":
    main()
