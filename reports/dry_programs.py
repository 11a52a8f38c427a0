"""Runs public programs dry, and reports what each launches and whether it reached its end.

`python reports/dry_programs.py --output FOLDER` runs each of PROGRAMS, and each file named as an
argument, without a GPU for each GPU of GPUS. It writes dry-programs.csv with the launches, the
kernels, what is missing, what was assumed, and why a program stopped. The first configuration of
each launch line is compiled for the first GPU. `--program NAME` runs one of these programs itself.

For a program that calls a group of reports/foreign_kernels.py, the launches on an H200 are recorded
in reports/data/launches-h200.csv. The column `seen` counts those that the program makes dry for an
H200 too, with the same kernel, constexprs, grid and warps, and `same` those of them with the
recorded registers and shared memory. Run it with the versions of the recording.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import itertools
import os
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foreign_kernels
import torch
from record_files import DATA, read_table

from occupancy_lab.compiling import triton_version
from occupancy_lab.compiling.script import Changed, Run, Script
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.values import Failure, Resources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from occupancy_lab.compiling.notes import ScriptLaunch

GPUS = ("h100", "b200", "mi300x")
TIMEOUT = 900.0
"""Seconds that a program may take."""
RECORDED_ON = "h200"
NO = False
USUAL_STAGES = "3"
VERSIONS = {"torch": torch.__version__, "triton": triton_version()}
COLUMNS = (
    *("program", "gpu", *VERSIONS, "status", "launches", "kernels", "configurations"),
    *("failed_calls", "compiled", "refused", "reasons", "missing", "faults", "assumed", "stopped"),
    *("recorded", "seen", "same", "unseen", "seconds"),
)
LAYERS = (
    *("ABCAttention", "DeltaNet", "GatedDeltaNet", "GatedLinearAttention", "GatedSlotAttention"),
    *("HGRN2Attention", "LinearAttention", "MultiScaleRetention", "RWKV6Attention"),
    "KimiDeltaAttention",
)
"""Layers of flash-linear-attention."""


random = partial(foreign_kernels.random, dtype=torch.bfloat16)


def train(model: Any, *, scaled: bool = True) -> None:
    """Train a model of transformers for two steps, with autocast, GradScaler and AdamW."""
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=scaled)
    tokens = torch.randint(0, 1000, (2, 128), device="cuda")
    for _ in range(2):
        with torch.autocast("cuda", dtype=torch.float16 if scaled else torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    print(loss.item())


def transformer(name: str, *, liger: bool = True, compiled: bool = False, **more: int) -> None:
    """Train two layers of a model of transformers."""
    import transformers

    if liger:
        import liger_kernel.transformers

        getattr(liger_kernel.transformers, f"apply_liger_kernel_to_{name.lower()}")()
    config = getattr(transformers, f"{name}Config")(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=1000,
        **more,
    )
    model = getattr(transformers, f"{name}ForCausalLM")(config).cuda()
    train(torch.compile(model) if compiled else model, scaled=not compiled)


def linear_attention(name: str) -> None:
    """Run a layer of flash-linear-attention forward and backward."""
    import fla.layers

    layer = getattr(fla.layers, name)(hidden_size=256, num_heads=4).cuda().bfloat16()
    output = layer(random(2, 512, 256, grad=True))
    (output[0] if isinstance(output, tuple) else output).sum().backward()


def paged_attention() -> None:
    """Call conch's attention to a paged cache and over sequences of various lengths."""
    from conch.ops.activation.silu_and_mul import silu_and_mul
    from conch.ops.attention.paged_attention import paged_attention as attend
    from conch.ops.normalization.rms_norm import fused_add_rms_norm, rms_norm

    x = random(128, 1024, dtype=torch.float16)
    rms_norm(x, x[0], 1e-6)
    fused_add_rms_norm(x, x.clone(), x[0], 1e-6)
    silu_and_mul(x)
    lengths = torch.tensor([100, 31, 16, 700], dtype=torch.int32, device="cuda")
    pages = -(-lengths // 16)
    table = torch.zeros(4, int(pages.max()), dtype=torch.int32, device="cuda")
    for row, count in enumerate(pages.tolist()):
        table[row, :count] = torch.arange(count, dtype=torch.int32, device="cuda")
    cache = random(64, 16, 4, 64, dtype=torch.float16)
    attend(random(4, 8, 64, dtype=torch.float16), cache, cache, table, lengths)


def low_precision() -> None:
    """Quantize and multiply with torchao's custom_ops and triton_ops."""
    from torchao.kernel import blockwise_quantization as blocks
    from torchao.prototype.blockwise_fp8_training import kernels
    from torchao.prototype.mx_formats.kernels import triton_to_mxfp8_dim1
    from torchao.prototype.quantized_training.int8_mm import scaled_int8_mm

    x, w = random(256, 512), random(384, 512)
    quantized, scales = blocks.fp8_blockwise_act_quant(x)
    weight, weight_scales = blocks.fp8_blockwise_weight_quant(w)
    blocks.blockwise_fp8_gemm(quantized, scales, weight, weight_scales)
    left, left_scale = kernels.triton_fp8_blockwise_act_quant_lhs(x)
    right, right_scale = kernels.triton_fp8_blockwise_weight_quant_transposed_rhs(w)
    kernels.triton_fp8_gemm_1x128_128x128(left, right, left_scale, right_scale)
    with suppress(AssertionError):  # it is only for Blackwell
        triton_to_mxfp8_dim1(x)
    whole = torch.randint(-128, 127, (256, 512), device="cuda", dtype=torch.int8)
    scaled_int8_mm(whole, whole.T, random(256), random(256))


def packed_linear() -> None:
    """Multiply with a matrix packed to 4 bits, with gemlite."""
    from gemlite import DType, GemLiteLinear

    layer = GemLiteLinear(
        4, 64, 1024, 512, input_dtype=DType.FP16, output_dtype=DType.FP16, scaled_activations=False
    )
    weight = torch.randint(0, 16, (512, 1024), device="cuda", dtype=torch.uint8)
    scales = random(512, 16, dtype=torch.float16).view(-1, 1)
    layer.pack(weight, scales, scales * 8, None)
    for rows in (1, 16, 256):
        layer(random(rows, 1024, dtype=torch.float16))


def fine_tuning() -> None:
    """Call unsloth's norms, activations, loss and rotary embedding, forward and backward."""
    import unsloth  # noqa: F401 - it patches what its kernels use
    from unsloth.kernels import cross_entropy_loss, geglu, layernorm, rms_layernorm, swiglu
    from unsloth.kernels.rope_embedding import Fast_RoPE_Embedding

    half = torch.float16
    x, w = (random(*shape, dtype=half, grad=True) for shape in ((512, 2048), (2048,)))
    rms_layernorm.Fast_RMS_Layernorm.apply(x, w, 1e-6, NO).sum().backward()
    layernorm.Fast_Layernorm.apply(x, w, w, 1e-6).sum().backward()
    e, g = random(2, 256, 2048, dtype=half), random(2, 256, 2048, dtype=half)
    three = [random(512, 2048, dtype=half) for _ in range(3)]
    swiglu.swiglu_fg_kernel(e, g)
    swiglu.swiglu_DWf_DW_dfg_kernel(*three)
    for kind in ("exact", "approx"):
        getattr(geglu, f"geglu_{kind}_forward_kernel")(e, g)
        getattr(geglu, f"geglu_{kind}_backward_kernel")(*three)
    logits, labels = random(512, 32000, grad=True), torch.randint(0, 32000, (512,), device="cuda")
    cross_entropy_loss.Fast_CrossEntropyLoss.apply(logits, labels, 0, 0).sum().backward()
    angles = random(256, 64, dtype=half)
    q = random(2, 256, 16, 64, dtype=half, grad=True)
    Fast_RoPE_Embedding.apply(q, angles, angles).sum().backward()


def memory_efficient() -> None:
    """Call xformers' norms, rotary embedding and gathers."""
    import xformers.ops as operations
    from xformers.ops.fmha import attn_bias
    from xformers.ops.rmsnorm import rms_norm, rms_norm_add

    half = torch.float16
    x, w = random(512, 2048, dtype=half), random(2048, dtype=half)
    rms_norm(x, w)
    rms_norm_add(x, x.clone(), w)
    lengths = {"q_seqlen": [1] * 4, "kv_padding": 256, "kv_seqlen": [100, 31, 16, 200]}
    bias = attn_bias.BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(**lengths)
    q, k, cache = (random(1, n, h, 64, dtype=half) for n, h in ((4, 8), (4, 2), (1024, 2)))
    operations.rope_padded(q, k, k, cache, cache, bias)
    operations.index_select_cat([x], [torch.arange(0, 512, 2, device="cuda")])
    whole, some = random(64, 16, 128, dtype=half), random(8, 16, 128, dtype=half)
    scale = random(128, dtype=half)
    operations.scaled_index_add(whole, torch.arange(8, device="cuda"), some, scale, 0.5)


def fifty_operators() -> None:
    """Call the operators of torch that FlagGems has kernels for."""
    import flag_gems

    with flag_gems.use_gems():
        for name, call in _operators():
            try:
                call()
            except Exception as error:  # noqa: BLE001 - it is counted
                print(f"failed: {name}: {type(error).__name__}: {error}"[:200], file=sys.stderr)
    torch.cuda.synchronize()


def _operators() -> Iterator[tuple[str, Callable[[], Any]]]:
    from torch.nn import functional

    x, y = random(64, 512), random(64, 512)
    one = (
        *("abs", "cos", "sin", "exp", "erf", "rsqrt", "sigmoid", "tanh", "reciprocal", "neg"),
        *("relu", "isnan", "isinf", "log", "sqrt", "sum", "mean", "prod", "amax", "argmax"),
        *("any", "all", "nonzero", "triu", "tril", "var_mean", "max", "min"),
    )
    more = {name: partial(getattr(torch, name), x.abs()) for name in one}
    two = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "eq", "ge", "lt", "where")
    more |= {name: partial(getattr(torch, name), x, y) for name in two[:-1]}
    more |= {
        "where": partial(torch.where, x > 0, x, y),
        "mm": partial(torch.mm, x, y.T),
        "bmm": partial(torch.bmm, random(4, 64, 64), random(4, 64, 64)),
        "addmm": partial(torch.addmm, random(64), x, y.T),
        "softmax": partial(torch.softmax, x, -1),
        "log_softmax": partial(torch.log_softmax, x, -1),
        "layer_norm": partial(functional.layer_norm, x, (512,)),
        "gelu": partial(functional.gelu, x),
        "silu": partial(functional.silu, x),
        "cumsum": partial(torch.cumsum, x, 1),
        "sort": partial(torch.sort, x),
        "topk": partial(torch.topk, x.float(), 8),
        "unique": partial(torch.unique, torch.randint(0, 9, (512,), device="cuda")),
        "masked_fill": partial(torch.masked_fill, x, x > 0, 0.0),
        "index_select": partial(torch.index_select, x, 0, torch.arange(9, device="cuda")),
        "embedding": partial(functional.embedding, torch.arange(9, device="cuda"), x),
        "dropout": partial(functional.dropout, x, 0.5),
        "randn": partial(torch.randn, 4096, device="cuda"),
        "cat": partial(torch.cat, [x, y]),
        "outer": partial(torch.outer, x[0], y[0]),
        "flip": partial(torch.flip, x, [1]),
    }
    yield from more.items()


def own_operations() -> None:
    """Call kernels in a custom_op and a triton_op, as torch's tutorials write them."""
    import triton

    add = foreign_kernels.tutorial("01").add_kernel

    def launch(x: torch.Tensor, kernel: Any) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 128),)](x, x, out, x.numel(), BLOCK_SIZE=128)
        return out

    @torch.library.custom_op("dry_programs::custom", mutates_args=())
    def custom(x: torch.Tensor) -> torch.Tensor:
        return launch(x, add)

    @torch.library.triton_op("dry_programs::triton", mutates_args={})
    def traced(x: torch.Tensor) -> torch.Tensor:
        return launch(x, torch.library.wrap_triton(add))

    for one in (custom, traced):
        one.register_fake(torch.empty_like)
        one(random(1000))
        torch.compile(lambda x, one=one: one(x).sin())(random(1000))


def group(name: str) -> None:
    """Call all of a group of foreign_kernels.py."""
    for trial, why in foreign_kernels.call_all(name):
        if why:
            print(f"failed: {trial}: {why}", file=sys.stderr)


PROGRAMS: dict[str, Callable[[], None]] = {
    "a custom_op and a triton_op": own_operations,
    "torchao: blockwise fp8, int8, mxfp8": low_precision,
    "gemlite: 4 bits": packed_linear,
    "conch: paged attention, norms": paged_attention,
    "unsloth: norms, activations, loss, rope": fine_tuning,
    "xformers: norms, rope, gathers": memory_efficient,
    "FlagGems: 59 operators": fifty_operators,
    "transformers: Llama with Liger": partial(transformer, "Llama"),
    "transformers: Mixtral with Liger": partial(transformer, "Mixtral", num_local_experts=4),
    "transformers: Qwen2 with Liger": partial(transformer, "Qwen2"),
    "torch.compile: Llama": partial(transformer, "Llama", liger=False, compiled=True),
    **{f"fla.layers: {name}": partial(linear_attention, name) for name in LAYERS},
}
"""The programs by their names in the table."""
KINDS = {
    "tutorials/": "Triton's tutorials",
    "gluon/": "Gluon's tutorials",
    "triton: ": "kernels of Triton's tutorials, launched in many ways",
    "liger: ": "Liger's operations, forward and backward",
    "transformers: ": "transformers with Liger, autocast, GradScaler and AdamW",
    "torch.compile: ": "the same under torch.compile",
    "inductor: ": "torch.compile of operations and of a transformer",
    "fla.layers: ": "layers of flash-linear-attention, forward and backward",
    "fla: ": "operations of flash-linear-attention, forward and backward",
    "helion/": "Helion's examples",
    "FlagGems: ": "FlagGems, 59 operators",
    "torchao: ": "torchao, blockwise fp8, int8 and mxfp8",
    "gemlite: ": "gemlite, 4-bit",
    "conch: ": "conch, with paged attention",
    "unsloth: ": "unsloth, forward and backward",
    "xformers: ": "xformers, without its attention",
    "a custom_op": "a custom_op and a triton_op, under torch.compile too",
}
"""The names of programs in the table of docs/trace.md, by the beginning of their own names."""


def words_of(name: str) -> list[str]:
    """Return the file of the program *name* and its arguments."""
    return name.split() if ".py" in name else [__file__, "--program", name]


def row_of(name: str, gpu: str) -> dict[str, Any]:
    """Run a program dry and return its row."""
    file, *arguments = words_of(name)
    row: dict[str, Any] = {"program": name, "gpu": gpu, **VERSIONS}
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as printed, printed_to(printed):
        try:
            run = Run(file, find_gpu(gpu), arguments=tuple(arguments), seconds=TIMEOUT)
            script = Script(run)
        except InputError as error:
            return {**row, "status": "refused", "stopped": str(error)}
        with script:
            row |= counts_of(script)
            if gpu == GPUS[0]:
                row |= compiles_of(script)
            if name in foreign_kernels.GROUPS and gpu == RECORDED_ON:
                row |= agreement_of(script, recorded(name))
        printed.seek(0)
        row["failed_calls"] = sum(line.startswith("failed: ") for line in printed)
    return {**row, "seconds": round(time.monotonic() - began)}


@contextlib.contextmanager
def printed_to(file: Any) -> Iterator[None]:
    """Write the standard error of this process to *file*."""
    saved = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def counts_of(script: Script) -> dict[str, Any]:
    """Return the columns that describe what a program launched, and how it ended."""
    lines, ran = {one.call: one.times for one in script.launches}, script.ran
    return {
        "status": ran.status or int(bool(ran.missing)),
        "launches": sum(lines.values()),
        "kernels": len({one.bound.kernel for one in script.launches}),
        "configurations": len(script.launches),
        "missing": "; ".join(ran.missing),
        "faults": "; ".join(ran.faults),
        "assumed": len(ran.assumed),
        "stopped": ran.failure or "",
    }


def compiles_of(script: Script) -> dict[str, Any]:
    """Count the kernels whose first configuration compiles; give the reasons of the others."""
    first: dict[str, int] = {}
    for index, one in enumerate(script.launches):
        first.setdefault(one.bound.kernel, index)
    outcomes = script.outcomes([Changed(index, {}) for index in first.values()])
    failures = [one for one in outcomes if isinstance(one, Failure)]
    reasons = collections.Counter(one.reason[:120] for one in failures)
    return {
        "compiled": len(outcomes) - len(failures),
        "refused": len(failures),
        "reasons": "; ".join(f"{number} x {reason}" for reason, number in reasons.items()),
    }


def recorded(name: str) -> list[dict[str, str]]:
    """Return the recorded launches of a group on the H200."""
    rows = [row for row in read_table(DATA / "launches-h200.csv") if row["group"] == name]
    return [row for row in rows if row["launched_by"] != "nobody"]


def agreement_of(script: Script, rows: list[dict[str, str]]) -> dict[str, Any]:
    """Compare the dry launches of *script* with the recorded ones; return the counts."""
    found: dict[tuple[str, ...], list[int]] = collections.defaultdict(list)
    for index, one in enumerate(script.launches):
        found[_identity(one)].append(index)
    keys = [
        (
            *(row["kernel"], row["constexprs"], row["grid"], row["num_warps"], row["num_ctas"]),
            row["options"].partition("num_stages=")[2].partition(",")[0] or USUAL_STAGES,
        )
        for row in rows
    ]
    wanted = sorted({index for key in keys for index in found.get(key, ())})
    made = dict(zip(wanted, script.outcomes([Changed(one, {}) for one in wanted]), strict=True))
    same = 0
    for key, row in zip(keys, rows, strict=True):
        taken = [made[index] for index in found.get(key, ())]
        sizes = {(str(one.n_regs), str(one.shared)) for one in taken if isinstance(one, Resources)}
        same += (row["n_regs"], row["shared"]) in sizes
    seen = sum(key in found for key in keys)
    unseen = dict.fromkeys(
        row["kernel"] for key, row in zip(keys, rows, strict=True) if key not in found
    )
    return {"recorded": len(rows), "seen": seen, "same": same, "unseen": ", ".join(unseen)}


def _identity(one: ScriptLaunch) -> tuple[str, ...]:
    bound = one.bound
    grid = bound.launch.grid or ()
    options = {"num_warps": 4, "num_ctas": 1, **bound.options}
    return (
        bound.kernel,
        ", ".join(f"{name}={bound.arguments[name]}" for name in bound.constexprs),
        " x ".join(map(str, grid)),
        str(options["num_warps"]),
        str(options["num_ctas"]),
        str(bound.options.get("num_stages", USUAL_STAGES)),
    )


def table(rows: list[dict[str, str]]) -> str:
    """Return the table of docs/trace.md, with a line for each kind of program over all GPUs."""
    kinds: dict[str, list[dict[str, str]]] = collections.defaultdict(list)
    for row in rows:
        kinds[next((KINDS[part] for part in KINDS if row["program"].startswith(part)), "")].append(
            row
        )
    lines = ["| programs | runs | finished | launches | kernels | compiled |"]
    lines += ["|---|--:|--:|--:|--:|--:|"]
    for kind in filter(kinds.__contains__, dict.fromkeys(KINDS.values())):
        found = kinds[kind]
        whole = [row for row in found if not row["stopped"]]
        tried = [row for row in found if row["compiled"]]
        numbers = (
            len(found),
            len(whole),
            _sum(found, "launches"),
            _sum(found, "kernels"),
            f"{_sum(tried, 'compiled')} of {_sum(tried, 'kernels')}" if tried else "-",
        )
        lines.append(f"| {kind} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def _sum(rows: list[dict[str, str]], name: str) -> int:
    return sum(int(row[name] or 0) for row in rows)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="the folder of dry-programs.csv")
    parser.add_argument("--program", help="run this one of PROGRAMS, or group, and nothing else")
    parser.add_argument("--only", default="", help="programs whose names have one of these, by ,")
    parser.add_argument("--gpus", default=",".join(GPUS))
    parser.add_argument("files", nargs="*", help="files of programs, with arguments as one word")
    asked = parser.parse_args()
    if asked.program is not None:
        PROGRAMS.get(asked.program, partial(group, asked.program))()
        return
    names = [*PROGRAMS, *foreign_kernels.GROUPS] if asked.only or not asked.files else []
    names = [name for name in names if any(part in name for part in asked.only.split(","))]
    path = asked.output / "dry-programs.csv"
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        for name, gpu in itertools.product([*asked.files, *names], asked.gpus.split(",")):
            row = row_of(name, gpu)
            writer.writerow(row)
            file.flush()
            print({key: value for key, value in row.items() if value != ""}, flush=True)


if __name__ == "__main__":
    main()
