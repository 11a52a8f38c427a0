"""Whether a kernel computes what it should: compared with torch in float64, output poisoned."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

ROWS_AT_ONCE_BYTES = 2**30
"""The float64 reference is made of as many rows as take this, so that it never takes the GPU."""


def operands(rows: int, cols: int, dtype: str, count: int) -> tuple[torch.Tensor, ...]:
    """Return *count* matrices of random normal numbers on the current GPU, the same every time."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(0)
    shape = (rows, cols)
    kind = getattr(torch, dtype)
    return tuple(
        torch.empty(shape, dtype=kind, device="cuda").normal_(generator=generator)
        for _ in range(count)
    )


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Have torch fill what it allocates with NaN, so that an unwritten element shows.

    That is what torch.utils.deterministic.fill_uninitialized_memory, on by default, asks for.
    """
    import torch

    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=before)


def relative_error(
    output: torch.Tensor, reference: Callable[..., Any], inputs: Sequence[torch.Tensor]
) -> float:
    """Return |output - reference| / |reference| (2-norms) with *reference* run in float64.

    NaN where an element of *output* is NaN, as one that was never written is.
    """
    rows, cols = output.shape
    step = max(ROWS_AT_ONCE_BYTES // (8 * cols), 1)
    wrong = total = 0.0
    for first in range(0, rows, step):
        part = slice(first, first + step)
        expected = reference(*(tensor[part].double() for tensor in inputs))
        wrong += float((output[part].double() - expected).square().sum())
        total += float(expected.square().sum())
    return float("inf") if total == 0.0 and wrong > 0.0 else (wrong / (total or 1.0)) ** 0.5


def tolerance(dtype: str) -> float:
    """Return the relative error that rounding explains: two units of *dtype*, 1e-5 at the least."""
    import torch

    return max(2 * torch.finfo(getattr(torch, dtype)).eps, 1e-5)
