"""Tensors of torch on "cuda" without a GPU: each has an address and a shape, but no memory.

For every operation, torch's dispatcher gets a CUDA kernel that computes the result's shape on
torch's "meta" device. Everything else in torch works as on a GPU: autograd, autocast,
FakeTensorMode, torch.compile, and the operations that libraries register, which really run and
launch kernels.

Small tensors have values too: a storage that holds what the program itself made has a twin on the
CPU, on which each operation also runs. The values that a kernel writes are not known. Where they
decide something, they are assumed: floats that are sorted or compared are drawn from a normal
distribution, and a value that the program reads is what `assumptions` says.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from occupancy_lab.compiling.attention import attention
from occupancy_lab.compiling.gpu_presence import gpu_presence
from occupancy_lab.compiling.held import held_on_cpu
from occupancy_lab.errors import refuse

if TYPE_CHECKING:
    from occupancy_lab.compiling.assumptions import Assumptions

MOST_KNOWN = 1 << 22
"""Largest tensor of integers or bools whose values are computed, elements."""
MOST_FLOATS = 1 << 12
"""Largest tensor of floats whose values are computed: they seldom decide what is launched."""
ALIGNMENT = 512
"""Addresses are multiples of this many bytes, as those of torch's allocator are."""
DL_CUDA, DL_FLOAT = 2, 2
"""A device and a dtype as DLPack numbers them."""
OTHERS = {"aten::_to_copy", "aten::copy_", "aten::allclose", "aten::_fused_rms_norm"}
"""Operations with a kernel on a GPU that are compositions of other operations on the CPU."""
WITHOUT_TRITON = {"aten", "prims", "c10d", "_c10d_functional", "inductor", "torchvision"}
"""Namespaces of operations that launch no kernel of Triton."""
ACROSS = {"copy_", "index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"}
"""Operations that take tensors of the GPU together with tensors of the CPU."""
OVERWRITING = {"copy_", "fill_", "zero_"}
"""Operations that overwrite their first tensor without reading it."""
TRUE = {"all", "equal", "allclose"}
"""Operations whose result is assumed to be true for tensors without known values."""
CHOOSING = {"nonzero", "masked_select"}
"""Operations that are assumed to choose every element of a tensor without known values."""

PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}
"""Operations that accept a dtype for their result, for which torch has no rule on "meta"."""

_aten = torch.ops.aten
_key = torch._C.DispatchKey


class _Capsule(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


@cache
def _first() -> tuple[torch.Tensor, Any]:
    """Return a tensor of 16 floats on "cuda", from which all others are made, and its memory."""
    sizes = (ctypes.c_int64 * 2)(16, 1)
    at = ctypes.addressof(sizes)
    capsule = _Capsule(1 << 30, (DL_CUDA, 0), 1, (DL_FLOAT, 32, 1, 0), at, at + 8, 0, None, None)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    tensor = torch._C._from_dlpack(new(ctypes.addressof(capsule), b"dltensor", None))
    return tensor, (sizes, capsule)


@cache
def _of_dtype(dtype: torch.dtype) -> torch.Tensor:
    return _by_cpu_kernel(_aten.view.dtype, _first()[0], dtype)  # type: ignore[no-any-return]


def _by_cpu_kernel(op: Any, *args: Any) -> Any:
    """Call the CPU's kernel of a view or a change of storage, which works for any device."""
    return op.redispatch(torch._C.DispatchKeySet(_key.CPU), *args)


def _place(tensor: torch.Tensor, storage: Any, like: torch.Tensor) -> torch.Tensor:
    """Give *tensor* the place in *storage* that *like* has in its own storage."""
    where = like.storage_offset(), like.shape, like.stride()
    op = _aten.set_.source_Storage_storage_offset
    return _by_cpu_kernel(op, tensor, storage, *where)  # type: ignore[no-any-return]


def _tensor_in(storage: Any, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor on "cuda" with the place in *storage* that *like* has in its own."""
    made = _by_cpu_kernel(_aten.as_strided.default, _of_dtype(like.dtype), [0], [1], 0)
    return _place(made, storage, like)


def _stand_in(tensor: torch.Tensor, storage: Any) -> torch.Tensor:
    """Return a tensor in *storage*, of another device, placed there as *tensor* is in its own."""
    made = torch.empty(0, dtype=tensor.dtype, device=storage.device)
    where = tensor.storage_offset(), tensor.shape, tensor.stride()
    return made.set_(storage, *where)


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    return _stand_in(tensor, _bytes(tensor.untyped_storage().nbytes(), "meta"))


def _bytes(number: int, device: str = "cpu") -> Any:
    return torch.zeros(number, dtype=torch.uint8, device=device).untyped_storage()


def _twin(tensor: torch.Tensor) -> Any:
    """Return the storage on the CPU with the values of *tensor*, or None if they are not known."""
    return getattr(tensor.untyped_storage(), "twin", None)


def _is_assumed(tensor: torch.Tensor) -> bool:
    return getattr(tensor.untyped_storage(), "assumed", False)


def _know(tensor: torch.Tensor, twin: Any, *, assumed: bool) -> None:
    storage: Any = tensor.untyped_storage()
    storage.twin = twin
    storage.assumed = assumed


def forget(argument: Any) -> None:
    """Mark the values of all tensors in *argument* as not known."""
    if isinstance(argument, tuple | list):
        for one in argument:
            forget(one)
        return
    # `base` is that of a descriptor, or of what triton.reinterpret wraps.
    tensor = getattr(argument, "base", argument)
    storage = getattr(tensor, "untyped_storage", lambda: None)()  # libraries have tensors too
    if isinstance(storage, torch.UntypedStorage) and storage.device.type == "cuda":
        _know(tensor, None, assumed=False)


def values_of(argument: Any) -> tuple[int, ...] | None:
    """Return `held_on_cpu` for a tensor on "cuda", or None if its values are not known."""
    if not isinstance(argument, torch.Tensor) or not argument.is_cuda:
        return None
    twin = _twin(argument)
    if twin is None or _is_assumed(argument):
        return None
    return held_on_cpu(_stand_in(argument, twin))


def _is_small(tensor: torch.Tensor) -> bool:
    return tensor.numel() <= (MOST_FLOATS if _is_float(tensor) else MOST_KNOWN)


def _is_float(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _kind(tensor: torch.Tensor) -> str:
    return "float" if _is_float(tensor) else "bool" if tensor.dtype == torch.bool else "int"


def _tensors(values: Any) -> list[torch.Tensor]:
    return [one for one in tree_leaves(values) if isinstance(one, torch.Tensor)]


@dataclass(frozen=True, slots=True)
class _Done:
    result: Any
    stand_ins: dict[int, torch.Tensor]
    """The stand-in of each tensor on "cuda", by the tensor's id."""


@dataclass(frozen=True)
class _Call:
    """A call of an operation of torch."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def full_name(self) -> str:
        """The operation's namespace and name: "aten::copy_"."""
        return str(self.op._schema.name)

    @property
    def name(self) -> str:
        return self.full_name.partition("::")[2]

    @cached_property
    def gpu(self) -> list[torch.Tensor]:
        """The tensors on "cuda" among the arguments."""
        return [one for one in _tensors((self.args, self.kwargs)) if one.is_cuda]

    @cached_property
    def written(self) -> list[torch.Tensor]:
        """Those that the operation writes to."""
        found = []
        for place, argument in enumerate(self.op._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = place < len(self.args)
                value = self.args[place] if given else self.kwargs.get(argument.name)
                found += [one for one in _tensors(value) if one.is_cuda]
        return found

    def done(self, stand_in: Callable[[torch.Tensor], torch.Tensor], device: str) -> _Done:
        """Do the operation on *device*, with a *stand_in* for each tensor on "cuda"."""
        made: dict[int, torch.Tensor] = {}

        def moved(value: Any) -> Any:
            if isinstance(value, torch.device):
                return torch.device(device) if value.type == "cuda" else value
            if not isinstance(value, torch.Tensor):
                return value
            if value.is_cuda:
                if id(value) not in made:
                    made[id(value)] = stand_in(value)
                return made[id(value)]
            return value if device == "cpu" or not value.dim() else value.to(device)

        kept = {name: value for name, value in self.kwargs.items() if name != "pin_memory"}
        if device == "meta" and "generator" in kept:
            kept["generator"] = None
        args, kwargs = tree_map(moved, (self.args, kept))
        # Torch passes numbers on where the operation takes tensors.
        kinds = (str(argument.type) for argument in self.op._schema.arguments)
        has_numbers = any(
            kind == "Tensor" and isinstance(one, int | float | complex)
            for kind, one in zip(kinds, self.args, strict=False)
        )
        return _Done((self.op._overloadpacket if has_numbers else self.op)(*args, **kwargs), made)

    def shaped(self) -> _Done | None:
        """Do it on tensors without values; None if the result's shape depends on values."""
        try:
            return self.done(_on_meta, "meta")
        except (RuntimeError, NotImplementedError) as error:
            if "meta" not in str(error).lower():
                raise
            if not self.op._schema.returns:  # it only changes its arguments
                return _Done(None, {id(one): _on_meta(one) for one in self.gpu})
            if sum(one.numel() for one in self.gpu) > 1 << 26:
                refuse(
                    f"{self.full_name} needs the values of a tensor, but a dry run computes none"
                )
            return None


class GpuTensors:
    """The kernels of torch's operations on a GPU that is not here."""

    def __init__(self, assumptions: Assumptions, unseen: Callable[[str], None]) -> None:
        """Assume values that the program reads and that are not known.

        *unseen* is called with the name of each library operation that cannot run here.
        """
        self._assumptions = assumptions
        self._unseen = unseen
        self._address = 1 << 40
        self._special: dict[str, Callable[..., Any]] = {
            "_local_scalar_dense": self._item,
            "_to_copy": self._to_copy,
            "copy_": self._copy,
            "equal": partial(self._compared, torch.equal),
            "allclose": partial(self._compared, torch.allclose),
            "_amp_foreach_non_finite_check_and_unscale_": lambda scaled, *_: forget(scaled),
        }

    def _storage(self, nbytes: int) -> Any:
        address = self._address
        self._address += -(-nbytes // ALIGNMENT) * ALIGNMENT + ALIGNMENT
        device = torch.device("cuda", 0)
        return torch._C._construct_storage_from_data_pointer(address, device, nbytes)

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        """Do *op* as a CUDA kernel would."""
        namespace, _, name = op._schema.name.partition("::")
        if namespace not in WITHOUT_TRITON:
            self._unseen(op._schema.name)
        elif name in self._special:
            return self._special[name](*args, **kwargs)
        elif name in PRODUCTS and "dtype" in op._overloadname:
            return self._product(op, *args, **kwargs)
        return self._do(_Call(op, args, kwargs))

    def _do(self, call: _Call) -> Any:
        if call.name in ACROSS:
            call = replace(call, args=_without_masks(call.args))
        elif len({one.device.type for one in _tensors((call.args, call.kwargs)) if one.dim()}) > 1:
            msg = (  # as torch says it
                "Expected all tensors to be on the same device, but found at least two devices,"
                f" cuda:0 and cpu! (in {call.name.strip('_')})"
            )
            raise RuntimeError(msg)
        shaped = call.shaped()
        if call.op.is_view and shaped is not None:
            storage = call.gpu[0].untyped_storage()
            return tree_map(partial(_tensor_in, storage), shaped.result)
        if call.name in OVERWRITING or "out" in call.kwargs:
            for one in call.written:
                _let_be_known(one)
        return self._settled(call, shaped, self._computed(call, shaped))

    def _computed(self, call: _Call, shaped: _Done | None) -> _Done | None:
        """Return *call* done on values, drawn where they are not known; None if it is not done."""
        unknown = [one for one in call.gpu if _twin(one) is None]
        if not call.full_name.startswith(("aten::", "prims::")):
            return None
        if shaped is not None:
            written = (shaped.stand_ins[id(one)] for one in call.written)
            results = [*_tensors(shaped.result), *written]
            if unknown:
                results = [one for one in results if not _is_float(one)]
            if not all(map(_is_small, results)) or (unknown and not results):
                return None
            on_cpu = torch._C._dispatch_has_computed_kernel_for_dispatch_key(call.op.name(), "CPU")
            if any(one.numel() > MOST_KNOWN for one in unknown) or not on_cpu:
                return None
        try:
            return call.done(partial(self._with_values, call.name), "cpu")
        except (RuntimeError, IndexError, ValueError):
            if shaped is None:
                raise
            return None

    def _with_values(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return *tensor* on the CPU, with drawn values if its values are not known."""
        twin = _twin(tensor)
        if twin is not None:
            return _stand_in(tensor, twin)
        if not _is_float(tensor):
            value = name in CHOOSING or self._assumptions.usual(_kind(tensor))
            return torch.full(tensor.shape, value, dtype=tensor.dtype)
        seeded = torch.Generator().manual_seed(tensor.data_ptr() % (1 << 32))
        return torch.randn(tensor.shape, generator=seeded).to(tensor.dtype)

    def _settled(self, call: _Call, shaped: _Done | None, real: _Done | None) -> Any:
        """Return the result of *call* as tensors on "cuda", with values where they are known."""
        assumed = any(_twin(one) is None or _is_assumed(one) for one in call.gpu)
        if shaped is None and assumed:
            self._assumptions.take(call.name, "as drawn")
        first = shaped or real
        assert first is not None  # noqa: S101 - `_computed` raises otherwise
        own = {id(first.stand_ins[id(one)]): one for one in call.written}
        for one in call.written:
            stand_in = first.stand_ins[id(one)]
            if (one.shape, one.stride()) != (stand_in.shape, stand_in.stride()):
                _place(one, self._storage(stand_in.untyped_storage().nbytes()), stand_in)
                if real is not None:
                    _know(one, real.stand_ins[id(one)].untyped_storage(), assumed=assumed)
            elif real is None:
                forget(one)
            elif _twin(one) is not None:
                _know(one, _twin(one), assumed=assumed)
        values = iter(_tensors(real.result) if real is not None else ())

        def made(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            value = next(values, None)
            if id(leaf) in own:
                return own[id(leaf)]
            return self._made(call, leaf, value, assumed=assumed)

        return tree_map(made, first.result)

    def _made(
        self, call: _Call, leaf: torch.Tensor, value: torch.Tensor | None, *, assumed: bool
    ) -> torch.Tensor:
        tensor = _tensor_in(self._storage(leaf.untyped_storage().nbytes()), leaf)
        unknown = any(_twin(one) is None for one in call.gpu)
        if value is None and unknown and not _is_float(leaf) and _is_small(leaf):
            value = self._filled(call, leaf)
        if value is None or not _is_small(leaf) or (unknown and _is_float(leaf)):
            return tensor
        twin = _bytes(leaf.untyped_storage().nbytes())
        if not call.full_name.startswith("aten::empty"):
            _stand_in(tensor, twin).copy_(value)
        _know(tensor, twin, assumed=assumed)
        return tensor

    def _filled(self, call: _Call, leaf: torch.Tensor) -> torch.Tensor:
        """Return the assumed values of a small result that was computed from unknown values."""
        value = self._assumptions.usual(_kind(leaf))
        if call.name in TRUE:
            value = True
        elif call.name in {"sum", "count_nonzero"} and call.gpu[0].dtype == torch.bool:
            value = call.gpu[0].numel() // max(leaf.numel(), 1)
        return torch.full(leaf.shape, value, dtype=leaf.dtype)

    def _item(self, tensor: torch.Tensor) -> Any:
        twin = _twin(tensor)
        if twin is None:
            return self._assumptions.take("a value", self._assumptions.usual(_kind(tensor)))
        value = _stand_in(tensor, twin).item()
        return self._assumptions.take("a value", value) if _is_assumed(tensor) else value

    def _copy(self, to: torch.Tensor, source: torch.Tensor, *others: Any, **kwargs: Any) -> Any:
        if to.is_cuda:
            return self._do(_Call(_aten.copy_.default, (to, source, *others), kwargs))
        twin = _twin(source)
        if twin is None or _is_assumed(source):
            usual = self._assumptions.usual(_kind(source))
            self._assumptions.take("a copy to the CPU", usual if twin is None else "as drawn")
        return to.copy_(_stand_in(source, twin)) if twin is not None else to.fill_(usual)

    @staticmethod
    def _to_copy(tensor: torch.Tensor, **how: Any) -> torch.Tensor:
        kept = {name: how[name] for name in ("dtype", "device", "memory_format") if how.get(name)}
        return torch.empty_like(tensor, **kept).copy_(tensor)

    @staticmethod
    def _product(op: Any, *args: Any, out: Any = None, **kwargs: Any) -> torch.Tensor:
        *factors, dtype = args
        found: torch.Tensor = op._overloadpacket(*(one.to(dtype) for one in factors), **kwargs)
        return found if out is None else out.copy_(found)

    @staticmethod
    def _compared(
        compare: Callable[..., bool],
        one: torch.Tensor,
        other: torch.Tensor,
        *how: Any,
        **kwargs: Any,
    ) -> bool:
        if _twin(one) is None or _twin(other) is None:
            return True
        return compare(_stand_in(one, _twin(one)), _stand_in(other, _twin(other)), *how, **kwargs)


def _let_be_known(tensor: torch.Tensor) -> None:
    """Give *tensor* a twin again if it fills its whole storage."""
    nbytes = tensor.untyped_storage().nbytes()
    whole = tensor.is_contiguous() and tensor.numel() * tensor.element_size() == nbytes
    if tensor.is_cuda and _twin(tensor) is None and whole and _is_small(tensor):
        _know(tensor, _bytes(nbytes), assumed=False)


def _without_masks(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of an indexing, with each mask replaced by the indices it selects."""
    if len(args) == 1 or not isinstance(args[1], list | tuple):
        return args
    indices: list[Any] = []
    for one in args[1]:
        is_mask = isinstance(one, torch.Tensor) and one.dtype in {torch.bool, torch.uint8}
        indices += one.nonzero().unbind(1) if is_mask else [one]
    return (args[0], indices, *args[2:])


@contextlib.contextmanager
def gpu_tensors(assumptions: Assumptions, unseen: Callable[[str], None]) -> Iterator[None]:
    """Make torch create tensors on "cuda" in the block without a GPU, as GpuTensors does."""
    import warnings
    from unittest import mock

    kernels = GpuTensors(assumptions, unseen)
    overload: Any = torch._ops.OpOverload
    redispatch = overload.redispatch

    def redispatch_here(op: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the copy's own kernel here instead of the generic one, which would look for CUDA."""
        if op is _aten.copy_.default and keys.has(_key.CompositeExplicitAutograd):
            return kernels.call(op, *args, **kwargs)
        return redispatch(op, keys, *args, **kwargs)

    library: Any = torch.library.Library
    named, others = library("aten", "IMPL"), library("_", "IMPL")
    try:
        with warnings.catch_warnings(action="ignore"):  # torch warns of each replaced kernel
            for name in _names():
                named.impl(name, partial(_call, kernels, name), "CUDA", allow_override=True)
            for key in ("CUDA", "AutogradCUDA"):
                named.impl("scaled_dot_product_attention", attention, key, allow_override=True)
            others.fallback(kernels.call, "CUDA")
        with gpu_presence(), mock.patch.object(overload, "redispatch", redispatch_here):
            yield
    finally:
        named._destroy()
        others._destroy()


def _names() -> Iterator[str]:
    """Return the operations of torch that have a kernel for the CPU or for a GPU."""
    names = set(OTHERS)
    for key in ("CPU", "CUDA"):
        names |= set(torch._C._dispatch_get_registrations_for_dispatch_key(key))
    names.discard("aten::scaled_dot_product_attention")
    return (name for name in sorted(names) if name.startswith("aten::"))


def _call(kernels: GpuTensors, name: str, *args: Any, **kwargs: Any) -> Any:
    return kernels.call(_operation(name), *args, **kwargs)


@cache
def _operation(name: str) -> Any:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(_aten, packet), overload or "default")
