"""`softmax`: torch's softmax with the kernel and configuration that are predicted to be fastest.

A repeated call with a tensor of the same shape, strides and dtype finds its launch by one
dictionary lookup. torch.compile and FakeTensor see the custom operator `occupancy_lab::softmax`,
which does the same; torch.func and forward-mode derivatives use torch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from occupancy_lab.errors import refuse
from occupancy_lab.inputs import whole_number
from occupancy_lab.kernel import workspace_of
from occupancy_lab.operators.planning import MOST_PLANS, Launcher, Rows, launcher
from occupancy_lab.values import ITEM_BYTES, Problem

if TYPE_CHECKING:
    from torch import Tensor

FORWARD = ("softmax_pieces", "softmax_tile", "softmax_cooperative", "softmax_loop")
"""The kernels that are as accurate as torch's. `tl.exp`, which the tutorial's use, gives 1.2 times
the error in float32, averaged over 221 matrices (H200)."""
BACKWARD = ("softmax_backward",)
DTYPES = {getattr(torch, name): name for name in ITEM_BYTES}
ALIGNMENT_MASK = 15
"""The bits of an address that are 0 if it is a multiple of 16."""


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Return the softmax of *x* along *dim*, as torch.softmax does, on the GPU that has *x*.

    The first call with a number of columns compiles what `tune` compiles of the kernels in FORWARD,
    in other processes, for some seconds; the store keeps the results for the next process. Nothing
    is launched to choose, and later calls take some microseconds of the host's time. Gradients,
    torch.compile and CUDA graphs work as with torch.softmax; each shape must be called once before
    a graph is captured.

    Args:
        x: A tensor of float32, float16 or bfloat16, of any shape and strides.
        dim: The dimension along which elements add up to 1. A dimension other than the last is
            copied to be the last, and back.

    Returns:
        A new contiguous tensor of the shape and dtype of *x*.

    Raises:
        InputError: *x* is no such tensor, or is on no GPU for which times can be predicted; there
            is no *dim*; or the shape is new while a CUDA graph is captured.
    """
    found: Tensor
    if torch.compiler.is_compiling():
        found = _operator(x, dim)
        return found
    if _is_transformed():
        _check(x)
        return torch.softmax(x, dim)
    if _is_watched(x):
        _check(x)
        found = _operator(x, _checked_dim(x, dim))
        return found
    if x.requires_grad and torch.is_grad_enabled():
        found = _Softmax.apply(x, dim)  # type: ignore[no-untyped-call]
        return found
    return _launched(FORWARD, dim, x)


def _is_transformed() -> bool:
    """Return whether torch.func or forward-mode derivatives are active, which see no operator."""
    return (
        torch._C._are_functorch_transforms_active()  # noqa: SLF001 - as autograd.Function does
        or forward_ad._current_level >= 0  # noqa: SLF001 - torch has no public name for it
    )


def _is_watched(x: Any) -> bool:
    """Return whether a subclass or a mode, besides autograd, must see the operator."""
    return (
        type(x) is not torch.Tensor and type(x) is not torch.nn.Parameter
    ) or torch._C._len_torch_dispatch_stack() > 0  # noqa: SLF001 - as torch.utils does


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        y = _launched(FORWARD, dim, x)
        ctx.save_for_backward(y)
        ctx.dim = dim
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        y = ctx.saved_tensors[0]
        if torch.is_grad_enabled() and (y.requires_grad or dy.requires_grad):
            # Torch's own operations can be differentiated again.
            return y * (dy - (dy * y).sum(ctx.dim, keepdim=True)), None
        if torch.compiler.is_compiling() or _is_watched(y) or _is_watched(dy):
            return _backward_operator(y, dy, ctx.dim), None
        return _launched(BACKWARD, ctx.dim, y, dy), None


def _launched(kernels: tuple[str, ...], dim: int, *tensors: Tensor) -> Tensor:
    """Return the result of the best of *kernels* on *tensors*, which have one shape and dtype."""
    first = tensors[0]
    device = first.get_device()
    try:
        pointers = [one.data_ptr() for one in tensors]
    except RuntimeError:  # a sparse tensor has no address
        _check(first)
        raise
    layouts = [(one.stride(), one.data_ptr() & ALIGNMENT_MASK) for one in tensors]
    try:
        found = _launcher(kernels, dim, device, first.dtype, first.shape, *layouts)
    except TypeError:  # a list cannot be the key of a cache
        _checked_dim(first, dim)
        raise
    if found is None:
        return _rearranged(kernels, dim, tensors)
    if device != torch._C._cuda_getDevice():  # noqa: SLF001 - a quarter of torch.cuda.current_device
        with torch.cuda.device(device):
            return _launched(kernels, dim, *tensors)
    output = torch.empty_like(first, memory_format=torch.contiguous_format)
    stream = torch._C._cuda_getCurrentRawStream(device)  # noqa: SLF001 - as Triton does
    if found.workspace:
        kept = workspace_of(device, stream, found.workspace)
        pointers.append(kept.data_ptr())
    found.launch(stream, output.data_ptr(), *pointers)
    return output


@lru_cache(MOST_PLANS)
def _launcher(
    kernels: tuple[str, ...],
    dim: int,
    device: int,
    dtype: torch.dtype,
    shape: torch.Size,
    *layouts: tuple[tuple[int, ...], int],
) -> Launcher | None:
    """Return how to launch, or None if tensors are empty or must be rearranged into rows.

    *layouts* has the strides of each, and the last bits of its address.
    """
    if device < 0 or dtype not in DTYPES or not shape or 0 in shape:
        return None
    if dim not in {-1, len(shape) - 1}:
        return None
    inputs = []
    for strides, bits in layouts:
        stride = _row_stride(shape, strides)
        if stride is None:
            return None
        inputs.append(Rows(stride, not bits))
    cols = shape[-1]
    problem = Problem(shape.numel() // cols, cols, DTYPES[dtype])
    return launcher(kernels, device, problem, (Rows(cols), *inputs))


def _row_stride(shape: torch.Size, strides: Sequence[int]) -> int | None:
    """Return the distance of rows with contiguous elements, or None for another layout."""
    cols = shape[-1]
    try:
        rows = torch.empty_strided(shape, strides, device="meta").view(-1, cols)
    except RuntimeError:  # torch raises it if there is no such view
        return None
    if cols > 1 and rows.stride(1) != 1:
        return None
    return cols if len(rows) == 1 else rows.stride(0)


def _rearranged(kernels: tuple[str, ...], dim: int, tensors: Sequence[Tensor]) -> Tensor:
    """Return the result of `_launched` for tensors that are empty or not laid out as rows."""
    for one in tensors:
        _check(one)
    first = tensors[0]
    dim = _checked_dim(first, dim)
    if first.numel() == 0:
        return torch.empty_like(first, memory_format=torch.contiguous_format)
    if first.dim() == 0:
        return _launched(kernels, -1, *(one.reshape(1) for one in tensors)).reshape(())
    moved = [one.movedim(dim, -1) for one in tensors]
    cols = first.shape[dim]
    rows = [one.reshape(-1, cols) for one in moved]
    dense = [one if cols == 1 or one.stride(1) == 1 else one.contiguous() for one in rows]
    result = _launched(kernels, -1, *dense)
    # Reshaped through one dimension: a dimension of size 1 would keep the stride of its old place.
    return result.view(moved[0].shape).movedim(-1, dim).reshape(-1).view(first.shape)


def _checked_dim(x: Tensor, dim: int) -> int:
    dims = max(x.dim(), 1)
    found = whole_number("dim", dim)
    if not -dims <= found < dims:
        refuse(
            f"dim is {found}, and x has {x.dim()} dimensions; give one from {-dims} to {dims - 1}"
        )
    return found


def _check(x: Any) -> None:
    if not isinstance(x, torch.Tensor):
        refuse(f"x is a {type(x).__name__}; give a tensor of torch on a GPU")
    if x.dtype not in DTYPES:
        names = ", ".join(DTYPES.values())
        refuse(f"x is of {str(x.dtype).removeprefix('torch.')}; give one of {names}")
    if x.layout is not torch.strided:
        refuse(f"x is laid out as {x.layout}; give a dense tensor")
    if not x.is_cuda:
        refuse(f"x is on {x.device}; give a tensor on a GPU, or use torch.softmax")


def _like(x: Tensor) -> Tensor:
    _check(x)
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op(
    "occupancy_lab::softmax", mutates_args=(), schema="(Tensor x, int dim) -> Tensor"
)
def _operator(x: Tensor, dim: int) -> Tensor:
    return _launched(FORWARD, dim, x)


@torch.library.custom_op(
    "occupancy_lab::softmax_backward",
    mutates_args=(),
    schema="(Tensor y, Tensor dy, int dim) -> Tensor",
)
def _backward_operator(y: Tensor, dy: Tensor, dim: int) -> Tensor:
    return _launched(BACKWARD, dim, y, dy)


@_operator.register_fake
def _fake_softmax(x: Tensor, dim: int) -> Tensor:
    _checked_dim(x, dim)
    return _like(x)


@_backward_operator.register_fake
def _fake_backward(y: Tensor, _dy: Tensor, _dim: int) -> Tensor:
    return _like(y)


def _keep_result(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.dim = inputs[1]


_operator.register_autograd(_Softmax.backward, setup_context=_keep_result)
