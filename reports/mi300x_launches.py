"""Compares predicted times for an MI300X with those of a trace that AMD publishes.

`python reports/mi300x_launches.py FOLDER` takes a clone of AMD's TraceLens
(github.com/AMD-AGI/TraceLens, MIT licence; 171dd74 here), whose tests contain traces of an MI300X
by torch's profiler, and writes tracelens-mi300x.csv. For kernels that torch.compile made, the
traces have the shapes of tensors, the grid, blocks, warps and stages, but no source. OPERATIONS are
reconstructed from the names and shapes of such kernels. Each is compiled by the installed torch,
without a GPU, and predicted with the configuration of the trace; it has a row if that configuration
is among those that torch.compile offers.

Both times are those of the kernel alone, as a profiler reports them.
A launch finds in the caches what the launch before it has left.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from record_files import read_table, table_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA = Path(__file__).resolve().parent / "data" / "tracelens-mi300x.csv"
GPU = "mi300x"
PREDICTED = ("predicted_us", "predicted_low_us", "predicted_high_us")
TRACES = {
    "transformer layer": "tests/traces/torch_compile_triton/trace.json.gz",
    "Stable Diffusion 3.5": "tests/traces/inference/xdit_sd_3.5/profile_trace_rank_0.json.gz",
}


def rms_norm(x: Any, weight: Any) -> Any:
    """Return rows divided by the root of their mean square, times a weight."""
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype) * weight


def modulated_norm(x: Any, scales: Any, bias: Any, y: Any, bias_of_y: Any) -> Any:
    """Return the layer norm of x and what is added to it, scaled and shifted for each sample."""
    from torch.nn.functional import layer_norm

    _, _, gate, shift, scale, _ = (scales + bias)[:, None].chunk(6, -1)
    total = x + gate * (y.view(x.shape) + bias_of_y)
    return layer_norm(total, total.shape[-1:], eps=1e-6) * (1 + scale) + shift


def activation(x: Any, bias: Any) -> Any:
    """Return GELU, by its tangent, of x with a bias."""
    from torch.nn.functional import gelu

    return gelu(x + bias, approximate="tanh")


def gated(x: Any, y: Any) -> Any:
    """Return SiLU of x times y."""
    from torch.nn.functional import silu

    return silu(x) * y.view(x.shape)


def heads(x: Any, y: Any) -> Any:
    """Return the heads of two sequences, one sequence after the other."""
    import torch

    return torch.cat([one.view(2, -1, 38, 64).transpose(1, 2) for one in (x, y)], 2)


def first_rows(x: Any, rows: int) -> Any:
    """Return the first rows of all heads, as those of one matrix."""
    return x[:, :, :rows].transpose(1, 2).reshape(2, rows, -1)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a kernel of a trace computes."""

    trace: str
    kernel: str
    """How its name begins."""
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    """Of its tensors, of bfloat16."""


IMAGE, ROWS, BOTH = (2, 4096, 2432), (8192, 2432), (2, 38, 4429, 64)
OPERATIONS = (
    Operation(
        *("transformer layer", "triton_red_fused_add_mean_mul_pow_rsqrt_0"),
        *(rms_norm, ((8, 4096, 2048), (2048,))),
    ),
    Operation(
        *("transformer layer", "triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1"),
        lambda x, y, weight: rms_norm(x + y.view(x.shape), weight),
        ((8, 4096, 2048), (32768, 2048), (2048,)),
    ),
    Operation(
        *("transformer layer", "triton_poi_fused__unsafe_view_mul_silu_2"),
        *(gated, ((8, 4096, 8192), (32768, 8192))),
    ),
    Operation(
        *("transformer layer", "triton_poi_fused__unsafe_view_add_3"),
        lambda x, y, z: x + y + z.view(x.shape),
        ((8, 4096, 2048), (8, 4096, 2048), (32768, 2048)),
    ),
    Operation(
        *("Stable Diffusion 3.5", "triton_poi_fused_addmm_gelu_view_15"),
        *(activation, ((2, 4096, 9728), (9728,))),
    ),
    Operation(
        *("Stable Diffusion 3.5", "triton_poi_fused__scaled_dot_product_flash_attention_cat"),
        *(heads, (ROWS, (666, 2432))),
    ),
    Operation(
        *("Stable Diffusion 3.5", "triton_poi_fused__unsafe_view_clone_slice_transpose_11"),
        *(lambda x: first_rows(x, 4096), (BOTH,)),
    ),
    Operation(
        "Stable Diffusion 3.5",
        "triton_red_fused__unsafe_view_add_addmm_mul_native_layer_norm_split_unsqueeze_19",
        *(modulated_norm, (IMAGE, (2, 14592), (14592,), ROWS, (2432,))),
    ),
)


def run(number: int) -> None:
    """Launch one of OPERATIONS, as a program that is run dry."""
    import torch

    one = OPERATIONS[number]
    tensors = [torch.zeros(shape, dtype=torch.bfloat16, device="cuda") for shape in one.shapes]
    torch.compile(one.function)(*tensors)


def predicted(number: int) -> list[dict[str, Any]]:
    """Return the kernels of one of OPERATIONS in all configurations that torch.compile offers."""
    program = (sys.executable, __file__, "--run", str(number))
    command = ("trace", "--dry-run", "--gpu", GPU, "--json", "--", *program)
    found = subprocess.run(  # noqa: S603 - this file, by this Python
        (sys.executable, "-m", "occupancy_lab", *command), stdout=subprocess.PIPE, check=True
    )
    kernels: list[dict[str, Any]] = json.loads(found.stdout)["kernels"]
    return kernels


def launches(path: Path, kernel: str) -> list[tuple[dict[str, Any], float]]:
    """Return what torch noted of each launch of a kernel in a trace, and its time in us."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    us = {
        event["args"].get("External id"): event["dur"]
        for event in events
        if event.get("cat") == "kernel" and event["name"].startswith(kernel)
    }
    calls = [one["args"] for one in events if one.get("args", {}).get("kernel_backend")]
    return [(one, us[one["External id"]]) for one in calls if one.get("External id") in us]


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Give the row of each of OPERATIONS whose configuration torch.compile offers here too."""
    for number, one in enumerate(OPERATIONS):
        timed = launches(folder / TRACES[one.trace], one.kernel)
        call, times = timed[0][0], [us for _, us in timed]
        knobs = dict(each.split("=") for each in call["kernel_kwargs"].split(","))
        asked = {"num_warps": call["num_warps"], "num_stages": call["num_stages"], **knobs}
        for kernel in predicted(number):
            own = {**kernel["constexprs"], **kernel["options"]}
            if all(str(own.get(name)) == str(value) for name, value in asked.items()):
                yield {
                    "trace": one.trace,
                    "kernel": call["kernel_name"],
                    "config": " ".join(f"{name}={value}" for name, value in asked.items()),
                    "programs": kernel["num_programs"],
                    "launches": len(times),
                    "least_us": round(min(times), 1),
                    "us": round(statistics.median(times), 1),
                    **{name: round(kernel[name], 1) for name in PREDICTED},
                    "bound": kernel["bound"],
                }


def table() -> Iterator[str]:
    """Give the lines of the table of the recorded rows."""
    yield "| kernel | launches | us | predicted | off by |"
    yield "| --- | --: | --: | --: | --: |"
    for row in read_table(DATA):
        us, found, low, high = (float(row[name]) for name in ("us", *PREDICTED))
        kernel = row["kernel"].removeprefix("triton_")
        limits = f"{found:.0f} ({low:.0f} to {high:.0f})"
        yield f"| {kernel} | {row['launches']} | {us:.0f} | {limits} | {found / us - 1:+.0%} |"


def main() -> None:
    """Read the traces, predict, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="a clone of AMD-AGI/TraceLens")
    parser.add_argument("--output", type=Path, default=DATA)
    parser.add_argument("--run", type=int, metavar="NUMBER")
    asked = parser.parse_args()
    if asked.run is not None:
        run(asked.run)
    else:
        found = list(rows(asked.folder))
        asked.output.write_bytes(table_bytes(found[0], found))


if __name__ == "__main__":
    main()
