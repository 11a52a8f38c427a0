"""The arguments of a launch as plain values: numbers, dtypes, pointers, tensors without memory."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from occupancy_lab.errors import quoted, refuse
from occupancy_lab.values import INT64_MAX

TRITON_DTYPES: Mapping[str, str] = {
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
}
"""Triton's name for each torch dtype that a tensor of a launch may have."""
_BYTES = {"bool": 1} | {
    name: int("".join(filter(str.isdigit, triton.partition("e")[0]))) // 8
    for name, triton in TRITON_DTYPES.items()
    if name != "bool"
}
ALIGNMENT = 16
"""Triton specializes on addresses and integers that are multiples of this, bytes for addresses."""


def dtype_name(dtype: object) -> str:
    """Return torch's name for a torch or Triton dtype; InputError if no tensor may have it."""
    name = str(dtype).rpartition(".")[2].removeprefix("tl.")
    name = next((torch for torch, triton in TRITON_DTYPES.items() if name == triton), name)
    if name not in TRITON_DTYPES:
        refuse(
            f"dtype {quoted(dtype)} is not one that Triton takes; give one of"
            f" {', '.join(TRITON_DTYPES)}"
        )
    return name


@dataclass(frozen=True, slots=True)
class Pointer:
    """A tensor argument of a launch: its dtype, its storage's size, and its address's alignment."""

    dtype: str
    storage_bytes: int
    aligned: bool = True
    """Whether the address is a multiple of 16 bytes, as that of every whole tensor is."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor descriptor of a launch (TMA): triton.tools.tensor_descriptor.TensorDescriptor."""

    base: Pointer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    padding: str = "zero"
    round_f32_to_tf32: bool = False
    layout: str | None = None
    """Only in Gluon: the layout of a block in shared memory, as Python text."""


@dataclass(frozen=True, slots=True)
class Dtype:
    """A dtype of `triton.language` as the value of a constexpr."""

    triton_name: str

    def __str__(self) -> str:
        """Return the dtype as a kernel would name it: tl.fp32."""
        return f"tl.{self.triton_name}"


Scalar = Pointer | Descriptor | Dtype | bool | int | float | str | None
Plain = Scalar | tuple[Scalar | tuple[Scalar, ...], ...]
"""An argument of a launch that can be sent to another process."""


def is_plain(value: Any, depth: int = 2) -> bool:
    """Return whether *value* can be sent to another process, with tuples nested *depth* deep."""
    if type(value) is tuple:
        return depth > 0 and all(is_plain(item, depth - 1) for item in value)
    return _is_scalar(value)


def flattened(names: Sequence[str], arguments: Mapping[str, Plain]) -> list[tuple[str, Any]]:
    """Return the name and argument of each parameter of a compiled kernel.

    *names* has them in order. A descriptor has its address, its sizes and its strides, and a tuple
    its items, some of which are left out if they are None or 1. An argument is None if it is not
    known.
    """
    found: list[tuple[str, Any]] = []
    for name in dict.fromkeys(names):
        value, count = arguments.get(name), names.count(name)
        items: list[tuple[str, Any]] = [(name, value)]
        if isinstance(value, Descriptor):
            items += [(name, one) for one in (*value.shape, *value.strides)]
        elif isinstance(value, tuple):
            items = list(_items(name, value))
            if len(items) != count:
                items = [one for one in items if one[1] is not None and one[1] != 1]
        found += items if len(items) == count else [(name, None)] * count
    return found


def _items(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, tuple):
        yield name, value
        return
    for place, one in enumerate(value):
        yield from _items(f"{name}[{place}]", one)


def _is_scalar(value: Any) -> bool:
    return value is None or type(value) in {bool, int, float, str, Pointer, Descriptor, Dtype}


class DtypeName(str):
    """The name of a dtype, with the attributes that a tensor descriptor needs of a torch dtype."""

    __slots__ = ()

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return _BYTES[self]

    @property
    def is_floating_point(self) -> bool:
        """Whether the dtype is a floating-point type."""
        return "float" in self


class Tensor:
    """A tensor of which only the shape, the dtype and the memory layout are known.

    It has what a launch line uses of a tensor (`shape`, `stride()`, `numel()`, `dtype`, ...) and
    stands for it in `dry_run`.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: object = "float32",
        *,
        strides: Sequence[int] | None = None,
        aligned: bool = True,
    ) -> None:
        """Take sizes and *strides* in elements; without *strides* it is row-major.

        *aligned* says whether its address is a multiple of 16 bytes, as a whole tensor's is.

        Raises InputError for a size or stride that is no integer, or a dtype that Triton does not
        take.
        """
        sizes = (shape,) if isinstance(shape, int) else shape
        self.shape = tuple(_whole(size, "a size") for size in sizes)
        self.dtype = dtype if hasattr(dtype, "itemsize") else DtypeName(dtype_name(dtype))
        self._name = dtype_name(dtype)
        self._strides = (
            _row_major(self.shape)
            if strides is None
            else tuple(_whole(stride, "a stride") for stride in strides)
        )
        if len(self._strides) != len(self.shape):
            refuse(f"{len(self.shape)} sizes of a tensor have {len(self._strides)} strides")
        self._aligned = aligned

    def stride(self, dim: int | None = None) -> Any:
        """Return the stride of dimension *dim* in elements, or all of them."""
        return self._strides if dim is None else self._strides[dim]

    def size(self, dim: int | None = None) -> Any:
        """Return the size of dimension *dim*, or all of them."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    def element_size(self) -> int:
        """Return the bytes of an element."""
        return _BYTES[self._name]

    def is_contiguous(self) -> bool:
        """Return whether the elements are contiguous in row-major order."""
        return self._strides == _row_major(self.shape)

    def data_ptr(self) -> int:
        """Return an address that is a multiple of 16 only if the tensor is aligned."""
        return 0 if self._aligned else 1

    def pointer(self) -> Pointer:
        """Return the Pointer that a launch gets."""
        reach = sum(
            max(size - 1, 0) * abs(stride)
            for size, stride in zip(self.shape, self._strides, strict=True)
        )
        elements = reach + 1 if all(self.shape) else 0
        return Pointer(self._name, elements * self.element_size(), self._aligned)

    def __repr__(self) -> str:
        """Return the code that creates the tensor."""
        strides = "" if self.is_contiguous() else f", strides={self._strides}"
        aligned = "" if self._aligned else ", aligned=False"
        return f"tensor({self.shape}, {self._name!r}{strides}{aligned})"


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))


def _whole(number: Any, what: str) -> int:
    found = plain_number(number)
    if type(found) is not int or found < 0:
        refuse(f"{what} of a tensor is {quoted(number)}; give a whole number, 0 or more")
    return found


def tensor(
    shape: Sequence[int],
    dtype: object = "float32",
    *,
    strides: Sequence[int] | None = None,
    aligned: bool = True,
) -> Tensor:
    """Return a stand-in for a tensor of *shape*, as Tensor takes it."""
    return Tensor(shape, dtype, strides=strides, aligned=aligned)


def plain(value: Any) -> Any:  # noqa: PLR0911 - a line for each kind of argument
    """Return an argument of a launch line as a plain value, or itself if it has none.

    A tensor (of torch on any device, a FakeTensor, `tensor(...)`), or a bare torch dtype as in
    `warmup`, becomes a Pointer; a number of numpy becomes one of Python.
    """
    if _is_scalar(value):
        return value
    kind = type(value)
    if isinstance(value, Tensor):
        return value.pointer()
    if kind.__name__ == "dtype" and kind.__module__ == "torch":
        return Pointer(dtype_name(value), ALIGNMENT)
    if kind.__name__ == "dtype" and kind.__module__.startswith("triton."):
        return Dtype(str(value))
    if kind.__name__ == "constexpr" and kind.__module__.startswith("triton."):
        return plain(value.value)
    if kind.__name__ == "TensorDescriptor":
        return _descriptor(value)
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return _pointer(value)
    if isinstance(value, tuple):
        items = [plain(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return plain_number(value)


def plain_number(value: Any) -> Any:
    """Return a number of numpy or of a similar type as Python's own."""
    if hasattr(value, "cache_key"):
        return value
    for convert in (operator.index, operator.methodcaller("item")):
        try:
            number = convert(value)
        except (TypeError, AttributeError, ValueError):
            continue
        if type(number) in {bool, int, float}:
            return number
    return value


def _descriptor(value: Any) -> Descriptor:
    sizes = (value.shape, value.strides, value.block_shape)
    shape, strides, block_shape = (tuple(map(operator.index, each)) for each in sizes)
    layout = getattr(value, "layout", None)
    return Descriptor(
        plain(value.base),
        shape,
        strides,
        block_shape,
        value.padding,
        getattr(value, "round_f32_to_tf32", False),
        None if layout is None else repr(layout),
    )


def _pointer(value: Any) -> Pointer:
    name = dtype_name(value.dtype)
    base = getattr(value, "base", value)  # a tensor that triton.reinterpret wraps
    if hasattr(base, "is_meta"):  # only torch's storages have a size for Triton
        storage = int(base.untyped_storage().nbytes())
        if type(base).__name__ == "FakeTensor" or base.is_meta:
            return Pointer(
                name, storage, base.storage_offset() * base.element_size() % ALIGNMENT == 0
            )
    else:
        storage = int(value.ptr_range()) if hasattr(value, "ptr_range") else INT64_MAX
    return Pointer(name, storage, value.data_ptr() % ALIGNMENT == 0)
