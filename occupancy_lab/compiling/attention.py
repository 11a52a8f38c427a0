"""scaled_dot_product_attention as torch runs it on a GPU, for a machine without that GPU.

The choice of the kernels, and what is done first to a mask and to the sizes of heads, follow torch
2.13 (https://github.com/pytorch/pytorch, aten/src/ATen/native/transformers: attention.cpp,
sdp_utils_cpp.h and cuda/sdp_utils.cpp), built with CUDA 13, whose first choice on compute
capabilities 9 and 10 is cuDNN, or with ROCm, whose kernels are AOTriton's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend
from torch.nn.functional import pad

USUAL_ORDER = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
    SDPBackend.CUDNN_ATTENTION,
]
"""The order in which torch tries the backends unless the program sets another."""
PREFER_CUDNN = {9, 10}
"""Major compute capabilities on which cuDNN is tried first."""
LITTLE_SHARED = {(8, 6), (8, 7), (8, 9), (12, 0), (12, 1)}
"""Compute capabilities with too little shared memory for every backward of flash attention."""
AOTRITON = {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"}
"""AMD's architectures that have fused attention (torch/testing/_internal/common_cuda.py)."""
HALVES = {torch.float16, torch.bfloat16}
ALIGNMENT = 8
"""Elements that flash attention pads heads to a multiple of, and efficient attention masks."""

_aten = torch.ops.aten
_enabled: Any = torch.backends.cuda


@dataclass(frozen=True, slots=True)
class _Attention:
    """A call of scaled_dot_product_attention, and the GPU on which it is made."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout: float
    causal: bool
    grouped: bool
    amd: str | None
    """AMD's architecture; None for a GPU of NVIDIA."""
    capability: tuple[int, int]

    @property
    def is_trained(self) -> bool:
        inputs = self.query, self.key, self.value
        return torch.is_grad_enabled() and any(one.requires_grad for one in inputs)

    def choice(self) -> SDPBackend:
        """Return the backend that torch would take; RuntimeError if all that fit are disabled."""
        own = torch._C._get_sdp_priority_order()
        order = [SDPBackend(one) for one in own if one != SDPBackend.OVERRIDEABLE.value]
        if order == USUAL_ORDER and self.amd is None and self.capability[0] in PREFER_CUDNN:
            order = [SDPBackend.CUDNN_ATTENTION, *USUAL_ORDER[:-1]]
        fits = {
            SDPBackend.CUDNN_ATTENTION: self._fits_cudnn,
            SDPBackend.FLASH_ATTENTION: self._fits_flash,
            SDPBackend.EFFICIENT_ATTENTION: self._fits_efficient,
            SDPBackend.MATH: _enabled.math_sdp_enabled,
        }
        for one in order:
            if fits[one]():
                return one
        msg = "No available kernel. Aborting execution."
        raise RuntimeError(msg)

    def _fits_cudnn(self) -> bool:
        heads = self.query.shape[-1], self.value.shape[-1]
        deterministic = torch.are_deterministic_algorithms_enabled()
        return (
            _enabled.cudnn_sdp_enabled()
            and self.amd is None
            and self.capability >= (8, 0)
            and self.query.dtype in HALVES
            and (not deterministic or torch.is_deterministic_algorithms_warn_only_enabled())
            and (self.dropout * 16).is_integer()
            and self._fits_fused(grouped=True)
            and self._mask_fits_cudnn()
            and all(one % 8 == 0 and one <= 128 for one in heads)
            and self.key.shape[2] != 1
            and (self.dropout == 0 or self.query.shape[2] != 1)
        )

    def _mask_fits_cudnn(self) -> bool:
        if self.mask is None:
            return True
        whole = *self.query.shape[:3], self.key.shape[2]
        sizes = zip(reversed(self.mask.shape), reversed(whole), strict=False)
        fits = all(size in {1, of_all} for size, of_all in sizes)
        return fits and self.mask.dim() in {2, 4} and not self.mask.requires_grad

    def _fits_flash(self) -> bool:
        head = self.query.shape[-1]
        fits_backward = head <= 192 or (self.dropout == 0 and head > 224)
        has_little = self.amd is None and self.capability in LITTLE_SHARED
        return (
            _enabled.flash_sdp_enabled()
            and (self.capability >= (8, 0) if self.amd is None else self.amd in AOTRITON)
            and self.query.dtype in HALVES
            and self.mask is None
            and self._fits_fused(grouped=True)
            and head == self.key.shape[-1] == self.value.shape[-1]
            and head <= self._largest_head
            and (not self.causal or self.query.shape[2] == self.key.shape[2])
            and (fits_backward or not has_little or not self.is_trained)
        )

    @property
    def _largest_head(self) -> int:
        return 256 if self.amd is None or self.amd.startswith("gfx11") else 512

    def _fits_efficient(self) -> bool:
        head, of_value = self.query.shape[-1], self.value.shape[-1]
        is_half = self.query.dtype in HALVES
        alignment = 8 if is_half else 4
        if self.amd is None:
            fits = is_half or self.query.dtype == torch.float32
            if self.capability < (8, 0):
                alignment = alignment if is_half else 1
                fits = self.query.dtype in {torch.float16, torch.float32}
        else:
            masks = {None, torch.bool, self.query.dtype}
            fits = (is_half or self.query.dtype == torch.float32) and self.amd in AOTRITON
            fits &= (None if self.mask is None else self.mask.dtype) in masks
            fits &= head == of_value <= self._largest_head
        return (
            _enabled.mem_efficient_sdp_enabled()
            and fits
            and self._fits_fused(grouped=False)
            and head == self.key.shape[-1]
            and head > 0 < of_value
            and head % alignment == of_value % alignment == 0
        )

    def _fits_fused(self, *, grouped: bool) -> bool:
        """Return whether the sizes fit what all fused kernels require."""
        inputs = self.query, self.key, self.value
        if any(one.dim() != 4 or one.dtype != self.query.dtype for one in inputs):
            return False
        of_query, of_key, of_value = (one.shape[1] for one in inputs)
        if grouped and self.grouped:
            fits = of_key == of_value and of_query % of_key == 0
        else:
            fits = of_query == of_key == of_value
        dense = all(one.stride(-1) == 1 for one in (*inputs, self.mask) if one is not None)
        batches = {one.shape[0] for one in inputs}
        return fits and dense and len(batches) == 1 and all(one.shape[2] for one in inputs)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *others: Any,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return the attention of tensors on "cuda", by the kernels that torch takes on the GPU.

    *others* are a mask, the dropout probability, and whether the attention is causal.
    """
    usual: tuple[Any, ...] = (None, 0.0, False)
    mask, dropout, causal = (*others, *usual[len(others) :])
    amd = torch.cuda.get_device_properties().gcnArchName if torch.version.hip else None
    gpu = amd, torch.cuda.get_device_capability()
    call = _Attention(query, key, value, mask, dropout, causal, enable_gqa, *gpu)
    choice = call.choice()
    if mask is not None and mask.dtype == torch.bool:
        none = torch.scalar_tensor(-math.inf, dtype=query.dtype, device=mask.device)
        mask = torch.where(mask, 0.0, none)
    inputs: tuple[Any, ...] = query, key, value
    if choice == SDPBackend.CUDNN_ATTENTION:
        rest = mask, call.is_trained, dropout, causal
        found = _aten._scaled_dot_product_cudnn_attention(*inputs, *rest, scale=scale)
    elif choice == SDPBackend.EFFICIENT_ATTENTION:
        rest = _aligned(mask, query, key), call.is_trained, dropout, causal
        found = _aten._scaled_dot_product_efficient_attention(*inputs, *rest, scale=scale)
    elif choice == SDPBackend.FLASH_ATTENTION:
        head = query.shape[-1]
        scale = 1 / math.sqrt(head) if scale is None else scale
        padded = tuple(map(_padded, inputs)) if head % ALIGNMENT else inputs
        found = _aten._scaled_dot_product_flash_attention(*padded, dropout, causal, scale=scale)
        found = [found[0][..., :head] if head % ALIGNMENT else found[0]]
    else:
        how: dict[str, Any] = {"scale": scale, "enable_gqa": enable_gqa}
        found = _aten._scaled_dot_product_attention_math(*inputs, mask, dropout, causal, **how)
    result: torch.Tensor = found[0]
    return result


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    return pad(tensor, (0, ALIGNMENT - tensor.shape[-1] % ALIGNMENT))


def _aligned(
    mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor
) -> torch.Tensor | None:
    """Return a mask as efficient attention takes it: for all heads, with aligned rows."""
    if mask is None:
        return None
    if mask.stride(-1) != 1 or any(stride % ALIGNMENT for stride in mask.stride()[:-1]):
        mask = _padded(mask)[..., : mask.shape[-1]]
    return mask.expand(*query.shape[:3], key.shape[2])
