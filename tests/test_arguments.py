"""Stand-ins for arguments have the plain values of the real ones: tensors, numbers, dtypes."""

import pytest
import torch
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode

from occupancy_lab.arguments import TRITON_DTYPES, Dtype, Pointer, dtype_name, plain, tensor

DTYPES = [getattr(torch, name) for name in TRITON_DTYPES]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_without_memory_are_those_with_it(dtype: torch.dtype) -> None:
    """Meta tensors, FakeTensors and stand-ins equal real tensors."""
    for offset in (0, 1, 2, 3, 4, 8, 16, 17):
        real = plain(torch.empty(64 + offset, dtype=dtype)[offset:])
        assert plain(torch.empty(64 + offset, dtype=dtype, device="meta")[offset:]) == real
        with FakeTensorMode():
            assert plain(torch.empty(64 + offset, dtype=dtype)[offset:]) == real
        aligned = offset * dtype.itemsize % 16 == 0
        assert plain(tensor((64 + offset,), dtype, aligned=aligned)) == real


def test_numbers_of_numpy_and_torch_are_pythons() -> None:
    """A number of numpy or of a tensor's shape is Python's number."""
    np = pytest.importorskip("numpy")
    for value in (np.int32(7), np.int64(7), torch.Size([7])[0]):
        assert type(plain(value)) is int
    assert type(plain(np.float32(0.5))) is float
    assert type(plain(np.bool_(True))) is bool  # noqa: FBT003 - the value


def test_a_dtype_alone_is_an_aligned_pointer() -> None:
    """A bare torch dtype is an aligned tensor, as in Triton's warmup."""
    assert plain(torch.float16) == Pointer("float16", 16)
    assert plain(tl.float16) == Dtype("fp16")
    assert plain(tl.constexpr(16)) == 16
    assert {dtype_name(one) for one in DTYPES} == set(TRITON_DTYPES)
