"""A dry run uses the attention kernel that torch would use on the GPU."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from occupancy_lab.compiling.attention import _Attention
from occupancy_lab.compiling.script import Run, Script
from occupancy_lab.gpus import find_gpu

CUDNN, FLASH = SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION
EFFICIENT, MATH = SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH
H100, A100, L4, T4 = ((None, capability) for capability in ((9, 0), (8, 0), (8, 9), (7, 5)))
MI300X, STRIX_HALO = ("gfx942", (9, 4)), ("gfx1151", (11, 5))


def call(
    gpu: tuple[str | None, tuple[int, int]],
    dtype: torch.dtype = torch.bfloat16,
    head: int = 64,
    keys: int = 128,
    **asked: Any,
) -> _Attention:
    """Return a call with 8 heads on a GPU, with gradients and with the options *asked*."""
    mask, groups = asked.get("mask"), asked.get("groups", 8)
    query = torch.empty(2, 8, 128, head, dtype=dtype, device="meta", requires_grad=True)
    key = torch.empty(2, groups, keys, head, dtype=dtype, device="meta")
    kind = {"float": dtype, "bool": torch.bool}.get(str(mask))
    whole = None if kind is None else torch.empty(128, keys, dtype=kind, device="meta")
    how = asked.get("dropout", 0.0), asked.get("causal", False), groups != 8
    return _Attention(query, key, key, whole, *how, *gpu)


@pytest.mark.parametrize(
    ("gpu", "asked", "expected"),
    [
        (H100, {}, CUDNN),
        (H100, {"mask": "bool"}, CUDNN),
        (H100, {"head": 256}, FLASH),
        (H100, {"head": 60}, FLASH),
        (H100, {"head": 512}, EFFICIENT),
        (H100, {"dtype": torch.float32}, EFFICIENT),
        (H100, {"dtype": torch.float32, "head": 62}, MATH),
        (H100, {"dtype": torch.float64}, MATH),
        (A100, {}, FLASH),
        (A100, {"causal": True}, FLASH),
        (A100, {"causal": True, "keys": 256}, EFFICIENT),
        (A100, {"mask": "float"}, EFFICIENT),
        (A100, {"groups": 2}, FLASH),
        (A100, {"groups": 2, "mask": "bool"}, MATH),
        (A100, {"head": 256}, FLASH),
        (L4, {"head": 192}, FLASH),
        (L4, {"head": 208}, EFFICIENT),
        (L4, {"head": 256, "dropout": 0.1}, EFFICIENT),
        (T4, {"dtype": torch.float16}, EFFICIENT),
        (T4, {"dtype": torch.float32, "head": 62}, EFFICIENT),
        (T4, {}, MATH),
        (MI300X, {"causal": True}, FLASH),
        (MI300X, {"head": 512}, FLASH),
        (MI300X, {"mask": "bool"}, EFFICIENT),
        (STRIX_HALO, {}, MATH),
    ],
)
def test_attention_is_chosen_as_torch_chooses(
    gpu: tuple[str | None, tuple[int, int]], asked: dict[str, Any], expected: SDPBackend
) -> None:
    """The choice depends on the GPU, dtype, mask and sizes as in torch."""
    assert call(gpu, **asked).choice() == expected


@pytest.mark.parametrize("one", [CUDNN, FLASH, EFFICIENT, MATH])
def test_a_program_chooses_attention_itself(one: SDPBackend) -> None:
    """sdpa_kernel leaves one backend; if that does not fit, torch's error is raised."""
    with sdpa_kernel(one):
        assert call(A100).choice() == one
    with sdpa_kernel(FLASH), pytest.raises(RuntimeError, match="No available kernel"):
        call(A100, torch.float32).choice()


SIZES = """
import itertools
import torch

attend = torch.nn.functional.scaled_dot_product_attention
kinds, masks, heads = (torch.float16, torch.float32), (None, torch.bool, "own"), (64, 60, 256, 512)
for dtype, mask, head, groups in itertools.product(kinds, masks, heads, (8, 2)):
    query = torch.randn(2, 100, 8, head, device="cuda", dtype=dtype, requires_grad=True)
    key = torch.randn(2, 100, groups, head, device="cuda", dtype=dtype, requires_grad=True)
    if mask is not None:
        mask = torch.ones(2, 1, 100, 100, device="cuda", dtype=dtype if mask == "own" else mask)
    places = (one.transpose(1, 2) for one in (query, key, key))
    out = attend(*places, mask, enable_gqa=groups != 8)
    assert (out.shape, out.dtype) == ((2, 8, 100, head), dtype)
    out.sum().backward()
    assert (query.grad.shape, key.grad.shape) == (query.shape, key.shape)
"""

COMPILED = """
import torch

functional = torch.nn.functional


@torch.compile
def layer(x, matrix, weight):
    rows = functional.rms_norm(x, (256,), weight) @ matrix
    query, key, value = (one.view(2, 64, 4, 64).transpose(1, 2) for one in rows.chunk(3, -1))
    mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    return x + mixed.transpose(1, 2).reshape(2, 64, 256)


matrix, weight = (
    torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    for shape in ((256, 768), (256,))
)
layer(torch.randn(2, 64, 256, device="cuda", dtype=torch.bfloat16), matrix, weight).sum().backward()
"""


def kernels(folder: Path, source: str, gpu: str) -> list[str]:
    """Return the kernels that a program launches in a dry run."""
    path = folder / "program.py"
    path.write_text(source, encoding="utf-8")
    with Script(Run(str(path), find_gpu(gpu), arguments=())) as script:
        assert script.ran.failure is None, script.ran.failure
        return [one.bound.kernel for one in script.launches]


@pytest.mark.slow
def test_results_and_gradients_have_their_sizes(tmp_path: Path) -> None:
    """Padded heads, grouped heads and masks do not change the sizes of results."""
    assert kernels(tmp_path, SIZES, "h100") == []


@pytest.mark.slow
def test_a_compiled_attention_is_no_kernel_of_triton(tmp_path: Path) -> None:
    """Attention launches no Triton kernel, and a norm is fused as on a GPU."""
    found = kernels(tmp_path, COMPILED, "h100")
    assert not [name for name in found if "softmax" in name]
    assert any("fused_rms_norm_backward" in name for name in found)
