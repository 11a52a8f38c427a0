"""The values of small integer tensors that a launch only reads, and what it may write to."""
# ruff: noqa: ANN001, ANN201, D103, N803, PLR0913, PLR0917 - kernels

import pytest
import torch
import triton
import triton.language as tl
from counted_kernels import gather, offsets
from torch._subclasses.fake_tensor import FakeTensorMode

from occupancy_lab.arguments import tensor as stand_in
from occupancy_lab.compiling.held import (
    MOST_TOLD,
    held_on_cpu,
    with_values,
    written_parameters,
)
from occupancy_lab.explaining.dry_run import dry_run
from occupancy_lab.kernel import Variant
from occupancy_lab.launch import Launch

NUMBERS = torch.tensor([[3, 1], [4, 1]], dtype=torch.int32)


@pytest.mark.parametrize(
    ("tensor", "held"),
    [
        (NUMBERS, (3, 1, 4, 1)),
        (NUMBERS[1], (4, 1)),
        (NUMBERS.T, (3, 1, 4, 1)),
        (NUMBERS > 1, (1, 0, 1, 0)),
        (torch.nn.Parameter(NUMBERS.clone(), requires_grad=False), (3, 1, 4, 1)),
        (NUMBERS.float(), None),
        (NUMBERS.to("meta"), None),
        (torch.zeros(MOST_TOLD + 1, dtype=torch.int64), None),
        (torch.zeros(0, dtype=torch.int64), None),
        (stand_in((4,), "int32"), None),
        (4, None),
    ],
)
def test_whole_numbers_are_read_from_the_address_on(
    tensor: object, held: tuple[int, ...] | None
) -> None:
    """Values are read in memory order, whatever the strides."""
    assert held_on_cpu(tensor) == held


def test_a_fake_tensor_holds_nothing() -> None:
    """A fake tensor claims to be on the CPU, but has no values."""
    with FakeTensorMode():
        assert held_on_cpu(torch.zeros(4, dtype=torch.int64)) is None


def test_what_a_kernel_writes_is_not_told() -> None:
    """Tensors that the kernel may write to have no values."""
    launch = Launch((), {}, (1,))
    asked = (NUMBERS, NUMBERS, NUMBERS)
    (found,) = with_values([Variant(gather, launch)], asked, {"n": 4, "B": 16}, held_on_cpu)
    assert dict(found.launch.values) == dict.fromkeys(("x", "index"), (3, 1, 4, 1))
    assert found.launch == launch
    assert with_values([], asked, {}, held_on_cpu) == []


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


def test_a_type_or_a_comparison_of_an_address_is_no_address() -> None:
    """A kernel that stores at an offset which depends on them does not write to that tensor."""
    assert written_parameters(offsets) & {"out", "ends", "order"} == {"out"}


@pytest.mark.slow
def test_a_launch_line_is_steered_by_its_tensors() -> None:
    """A gather reads only the rows that its indices name."""
    x, out = stand_in((4096, 100), "float16"), stand_in((64,), "float16")
    for index, rows in ((torch.arange(64), 64), (torch.full((64,), 7), 1)):
        (record,) = dry_run(gather, gpu="h100")[1,](x, index, out, 64, B=64).records
        assert not record.counts.unknowns
        assert record.counts.unique_read_bytes.exact == 64 * 8 + rows * 2
