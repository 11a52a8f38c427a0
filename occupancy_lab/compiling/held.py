"""What small tensors of whole numbers hold that a launch is given and only reads."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.written import written_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from occupancy_lab.kernel import Variant

MOST_TOLD = 1 << 13
"""Whole numbers of a tensor that are told of a launch."""
TENSORS = {"Tensor", "Parameter", "Buffer"}
"""The classes of torch's tensors that have values: those of others may have none."""


def with_values(
    found: Iterable[Variant],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    read: Callable[[Any], tuple[int, ...] | None],
) -> list[Variant]:
    """Return the variants of a launch with what is in the tensors that it is given.

    *read* tells what is in an argument, or None. What the kernel may write to is left out.
    """
    variants = list(found)
    values: dict[str, tuple[int, ...]] = {}
    if variants:
        function = variants[0].function
        written = written_parameters(function)
        named = {**dict(zip(function.arg_names, arguments, strict=False)), **keywords}
        told = {name: read(value) for name, value in named.items() if name not in written}
        values = {name: held for name, held in told.items() if held is not None}
    return [
        dataclasses.replace(one, launch=dataclasses.replace(one.launch, values=values))
        for one in variants
    ]


def held_on_cpu(argument: Any) -> tuple[int, ...] | None:
    """Return the whole numbers or bools from a tensor's address to the end of its storage.

    None of what is no tensor of torch on the CPU, of floats, and of more than MOST_TOLD numbers.
    """
    if not getattr(argument, "is_cpu", False) or type(argument).__name__ not in TENSORS:
        return None
    if argument.is_floating_point() or argument.is_complex():
        return None
    places = argument.untyped_storage().nbytes() // argument.element_size()
    told = places - argument.storage_offset()
    if not 0 < told <= MOST_TOLD:
        return None
    return tuple(map(int, argument.detach().as_strided((told,), (1,)).tolist()))
