"""What a softmax kernel is compared with: PyTorch's own, the naive steps, and a plain copy."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    Operation = Callable[..., torch.Tensor]


def softmax_reference(x: torch.Tensor) -> torch.Tensor:
    """Return PyTorch's softmax of each row of *x*."""
    import torch

    return torch.softmax(x, dim=1)


def identity(x: torch.Tensor) -> torch.Tensor:
    """Return *x* itself, what a copy must equal."""
    return x


def copy(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of *x*: the time that moving the matrix alone takes, the practical limit."""
    import torch

    return torch.empty_like(x).copy_(x)


def naive(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax in five operations, each through global memory."""
    from occupancy_lab.kernel import load_kernel

    kernel = load_kernel("softmax_naive")
    result: torch.Tensor = kernel.run(x, None, 1)
    return result


@cache
def _compiled() -> Any:
    import torch

    return torch.compile(softmax_reference, dynamic=False)


def compiled(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax that torch.compile makes for this shape."""
    result: torch.Tensor = _compiled()(x)
    return result


PROVIDERS: Mapping[str, tuple[Operation, Operation]] = MappingProxyType(
    {
        "torch": (softmax_reference, softmax_reference),
        "torch.compile": (compiled, softmax_reference),
        "naive": (naive, softmax_reference),
        "copy": (copy, identity),
    }
)
"""By name: the operation that is timed, and what it must equal when run in float64."""
