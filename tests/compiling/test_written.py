"""The parameters that a kernel may write to, found in its source."""
# ruff: noqa: ANN001, ANN201, D103, N803, PLR0913, PLR0917 - kernels

import triton
import triton.language as tl

from occupancy_lab.compiling.held import written_parameters


@triton.jit
def put(pointer, value):  # type: ignore[no-untyped-def]
    tl.store(pointer + 1, value)


@triton.jit
def get(pointer):  # type: ignore[no-untyped-def]
    return tl.load(pointer)


@triton.jit
def moved(pointer, by):  # type: ignore[no-untyped-def]
    return pointer + by


@triton.jit
def routed(data, indices, offsets, out, counts, n, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.load(indices + tl.program_id(0))
    begin = offsets + tl.program_id(0)
    place = moved(out, row) + tl.load(begin) + get(offsets + 1)
    for step in range(n):
        place += step
        put(place, tl.load(data + row).to(DTYPE))
    tl.atomic_add(counts + row, 1)


@triton.jit
def described(tensor, out):  # type: ignore[no-untyped-def]
    out.store([0], tensor.load([0]))


def test_parameters_that_are_stored_through_are_written() -> None:
    """Stores are followed through names, loops and calls; loads are not writes."""
    written = written_parameters(routed)
    assert written & {"data", "indices", "offsets", "out", "counts"} == {"out", "counts"}
    assert written_parameters(described) == {"out"}


def test_a_function_whose_source_is_not_there_may_write_to_all() -> None:
    """Without source, every parameter may be written."""

    class Kernel:
        arg_names = ("x", "y")
        src = None

    assert written_parameters(Kernel()) == {"x", "y"}
