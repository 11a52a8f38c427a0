"""Triton and torch for a GPU that is not here.

`offline` gives Triton a driver that it compiles with. `offline_torch` makes torch answer too:

A tensor on "cuda" is made on torch's "meta" device, where each operation gives the shape, strides
and dtype of what it would compute, and nothing is computed; what asks where the tensor is hears
"cuda". Comparisons (torch.allclose, torch.equal, torch.testing.assert_close) find what they compare
equal, times are nan, and what needs a value raises InputError.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from occupancy_lab.errors import InputError, TargetError, refuse
from occupancy_lab.values import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

_device_numbers: dict[str, int] = {}
_next_number = itertools.count(1_000_000)


def gpu_target(target: Target) -> Any:
    """Return *target* as Triton's GPUTarget."""
    from triton.backends.compiler import GPUTarget

    arch = int(target.arch) if target.backend == "cuda" else target.arch
    return GPUTarget(target.backend, arch, target.warp_size)


@cache
def default_options(target: Target) -> Mapping[str, Any]:
    """Return every option of Triton's compiler for *target* and the value that it has unasked.

    Raises TargetError where the installed Triton has no compiler for *target*.
    """
    from triton.compiler.compiler import make_backend

    try:
        with warnings.catch_warnings(action="ignore"):  # 3.9 warns of a default that will change
            found: Mapping[str, Any] = vars(make_backend(gpu_target(target)).parse_options({}))
    except Exception as error:
        msg = f"the installed Triton has no compiler for {target.name}"
        raise TargetError(msg) from error
    return found


OTHERS = {"cuda": Target("hip", "gfx942", 64), "hip": Target("cuda", "90", 32)}
"""A target of the other vendor, by a target's backend."""


def foreign_options(names: Collection[str], target: Target) -> set[str]:
    """Return those of *names* that are options of the other vendor's compiler alone."""
    if not names:
        return set()
    try:
        own, other = default_options(target), default_options(OTHERS[target.backend])
    except TargetError:
        return set()
    return {name for name in names if name in other and name not in own}


class OfflineDriver:
    """Triton's driver for a GPU that is not here: the answers that `JITFunction.warmup` needs."""

    def __init__(self, target: Target) -> None:
        self._target = target
        # JITFunction keeps its compiled kernels by device number, so each target has its own.
        self._device = _device_numbers.setdefault(str(target), next(_next_number))

    def get_current_target(self) -> Any:
        """Return the target as Triton's GPUTarget."""
        return gpu_target(self._target)

    def get_current_device(self) -> int:
        """Return a device number that no other target has."""
        return self._device

    def get_current_stream(self, _device: int | None = None) -> int:
        """Return the default stream."""
        return 0


@contextlib.contextmanager
def offline(target: Target) -> Iterator[None]:
    """Make Triton compile for *target* inside the block, whatever GPU is or is not here.

    What it leaves in Triton's cache is as `whole_entries` has it.
    """
    from triton.runtime import driver

    # `reset_active` would look for a GPU at once, and fail where there is none.
    before = driver._active  # noqa: SLF001
    driver.set_active(OfflineDriver(target))
    try:
        with whole_entries():
            yield
    finally:
        driver.set_active(before)


HELD_BACK = (".source", ".ttir", ".ttgir", ".llir", ".ptx", ".amdgcn", ".cubin", ".hsaco")
"""How the names of a kernel's files end that Triton writes before its metadata."""


@contextlib.contextmanager
def whole_entries() -> Iterator[None]:
    """Have compiles of the block leave in Triton's cache whole entries or none.

    Triton writes each file as soon as it is made, and those stay where a later step fails, hangs or
    crashes: here all are written with the last. A class of the user's own keeps its own way.
    """
    from triton import knobs

    if knobs.cache.manager_class is not None or knobs.compilation.use_ir_loc:  # which reads them
        yield
        return
    folders: list[str] = []
    knobs.cache.manager_class = _holding_back(folders)
    try:
        yield
    finally:
        knobs.cache.manager_class = None
        for folder in folders:
            with contextlib.suppress(OSError):  # it has a kernel
                Path(folder).rmdir()


def _holding_back(folders: list[str]) -> type[Any]:
    """Return a manager of cache entries that writes all files of one at once.

    It appends the *folders* of its entries.
    """
    from triton.runtime.cache import FileCacheManager

    class Manager(FileCacheManager):  # type: ignore[misc] # Triton has no types
        """Keeps the files of an entry in memory until its metadata come."""

        def __init__(self, key: str, **which: bool) -> None:
            super().__init__(key, **which)
            self._held: dict[str, str | bytes] | None = None if any(which.values()) else {}
            if self._held is not None:
                folders.append(self.cache_dir)

        def put(self, data: Any, filename: str, binary: bool = True) -> str:  # noqa: FBT001, FBT002
            path: str = self._make_path(filename)
            if self._held is None or not filename.endswith((*HELD_BACK, ".json")):
                return str(super().put(data, filename, binary))
            # A module of MLIR is another one after the next step.
            self._held[filename] = data if isinstance(data, bytes) else str(data)
            if filename.endswith(".json"):
                for name, content in self._held.items():
                    super().put(content, name)
                self._held.clear()
            return path

    return Manager


NAN = float("nan")
"""What a dry run answers where a time is asked for: it passes through arithmetic, and 0 may not."""
_MIXED = re.compile(r"meta .*expected device|expected device meta|device type, .*meta")
"""What torch says where tensors of "meta" and of the CPU meet."""
VERSIONS = {"cuda": "12.8", "hip": "6.4"}
"""What torch.version answers: scripts only ask whether it is None."""


@dataclass(frozen=True, slots=True)
class Device:
    """What a script can ask of a GPU, as plain values; None is not known."""

    title: str
    target: Target
    multiprocessors: int | None
    max_threads: int
    """Resident threads per multiprocessor."""
    registers: int
    """32-bit registers per multiprocessor."""
    max_shared: int
    """Shared memory that one program may use, bytes."""
    shared_per_multiprocessor: int
    """Shared memory per multiprocessor, bytes."""
    l2_bytes: int | None

    @property
    def capability(self) -> tuple[int, int]:
        """What torch.cuda.get_device_capability answers: (9, 0) for sm_90, (9, 4) for gfx942."""
        digits = self.target.arch.removeprefix("gfx").split("-")[0]
        size = 2 if self.target.backend == "hip" else 1
        return int(digits[:-size]), int(digits[-size], 16)

    def torch_properties(self) -> Properties:
        """Return what torch.cuda.get_device_properties answers."""
        major, minor = self.capability
        return self._properties(
            name=self.title,
            major=major,
            minor=minor,
            multi_processor_count=self.multiprocessors,
            max_threads_per_multi_processor=self.max_threads,
            regs_per_multiprocessor=self.registers,
            shared_memory_per_block_optin=self.max_shared,
            shared_memory_per_multiprocessor=self.shared_per_multiprocessor,
            L2_cache_size=self.l2_bytes,
            warp_size=self.target.warp_size,
            gcnArchName=self.target.arch,
        )

    def triton_properties(self) -> Properties:
        """Return what the driver's utils.get_device_properties answers."""
        return self._properties(
            max_shared_mem=self.max_shared,
            max_num_regs=self.registers,
            multiprocessor_count=self.multiprocessors,
            warpSize=self.target.warp_size,
            max_threads_per_sm=self.max_threads,
            arch=self.target.arch,
        )

    def _properties(self, **values: Any) -> Properties:
        return Properties(values, self.title)


class Properties(dict[str, Any]):
    """Answers by name, as items or as attributes; InputError for what the GPU table lacks."""

    def __init__(self, values: dict[str, Any], title: str) -> None:
        super().__init__(values)
        self._title = title

    def __missing__(self, name: str) -> Any:
        refuse(f"{name} of {self._title} is not known in a dry run")

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if value is None:
            refuse(f"{name} of {self._title} is not known; name a GPU, not an architecture")
        return value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


class DryDriver(OfflineDriver):
    """Triton's driver as a script asks it: an OfflineDriver that knows the GPU too."""

    def __init__(self, device: Device) -> None:
        super().__init__(device.target)
        self._gpu = device

    @property
    def utils(self) -> DryDriver:
        """Return what has `get_device_properties`."""
        return self

    def get_device_properties(self, _device: object = 0) -> Properties:
        """Return the GPU's limits under Triton's names."""
        return self._gpu.triton_properties()

    def get_device_capability(self, _device: object = 0) -> tuple[int, int]:
        """Return the compute capability, or its like on AMD."""
        return self._gpu.capability

    def get_active_torch_device(self) -> Any:
        """Return "cuda:0", which AMD's GPUs are to torch too."""
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """Return torch.cuda, as it is patched."""
        import torch

        return torch.cuda

    def get_benchmarker(self) -> Any:
        """Return what autotuners time with."""
        return do_bench

    def get_empty_cache_for_benchmark(self) -> None:
        """Return nothing: no cache is cleared."""

    def clear_cache(self, _cache: object) -> None:
        """Do nothing."""

    def set_current_device(self, _device: object) -> None:
        """Do nothing: there is one device."""


def do_bench(call: Callable[[], object], *_: object, **keywords: Any) -> float | list[float]:
    """Call what is to be timed once, and return nan where triton.testing.do_bench has a time."""
    call()
    quantiles = keywords.get("quantiles")
    if quantiles is not None and len(quantiles) > 1:
        return [NAN] * len(quantiles)
    return [NAN] if keywords.get("return_mode") == "all" else NAN


class _Idle:
    """A stream, an event or a guard of one: whatever is called on it does nothing."""

    cuda_stream = 0
    device_index = 0

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, function: Any) -> Any:
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _answer()

    def query(self) -> bool:
        return True

    def elapsed_time(self, _other: object) -> float:
        return NAN


def _answer(value: Any = None) -> Callable[..., Any]:
    """Return a function of its own, as torch tells functions apart, that answers *value*."""
    return lambda *_, **__: value


def _answers(names: Sequence[str], value: Any = None) -> dict[str, Callable[..., Any]]:
    return {name: _answer(value) for name in names}


def _refusing(what: str) -> Callable[..., Any]:
    def refusing(*_: object, **__: object) -> Any:
        refuse(f"{what} has no dry run; call what launches the kernel without it")

    return refusing


def _compile(model: Any = None, **_: Any) -> Any:
    """Stand for torch.compile, as a function or a decorator: what it returns cannot be called."""
    refusing = _refusing("torch.compile")
    return _answer(refusing) if model is None else refusing


def _torch_cuda(device: Device) -> dict[str, Any]:
    """Return what stands in torch.cuda."""
    idle: tuple[str, ...] = (
        "synchronize",
        "set_device",
        "empty_cache",
        "manual_seed",
        "manual_seed_all",
        "seed",
    )
    idle += (
        "init",
        "_lazy_init",
        "set_stream",
        "reset_peak_memory_stats",
        "reset_max_memory_allocated",
    )
    memory = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    return {
        **_answers(idle),
        **_answers(memory, 0),
        **dict.fromkeys(
            ("Event", "Stream", "device", "device_of", "stream", "StreamContext"), _Idle
        ),
        **{name: _refusing("a CUDA graph") for name in ("CUDAGraph", "graph", "graph_pool_handle")},
        "current_stream": _Idle,
        "default_stream": _Idle,
        "is_available": _answer(value=True),
        "is_initialized": _answer(value=True),
        "is_bf16_supported": _answer(value=True),
        "device_count": _answer(1),
        "current_device": _answer(0),
        "get_device_name": _answer(device.title),
        "get_device_capability": _answer(device.capability),
        "get_device_properties": _answer(device.torch_properties()),
        "make_graphed_callables": _refusing("a CUDA graph"),
    }


def _mode() -> Any:
    """Return the mode under which "cuda" tensors are made on "meta"."""
    import torch
    from torch.overrides import TorchFunctionMode

    tensor: Any = torch.Tensor
    here = torch.device("cuda", 0)
    pinned: set[int] = set()

    def pin(made: Any) -> Any:
        if isinstance(made, tensor) and made.is_cpu:
            pinned.add(made.untyped_storage().data_ptr())
        return made

    moves: dict[Any, Callable[[Any], Any]] = {
        tensor.cuda: lambda own: own.to("meta"),
        tensor.pin_memory: lambda own: pin(own.clone()),
        tensor.is_pinned: lambda own: own.is_cpu and own.untyped_storage().data_ptr() in pinned,
    }
    answers: dict[Any, Callable[..., Any]] = {
        tensor.device.__get__: _answer(here),
        tensor.is_cuda.__get__: _answer(value=True),
        tensor.get_device: _answer(0),
        tensor.data_ptr: lambda own: own.storage_offset() * own.element_size(),
        tensor.record_stream: _answer(),
        tensor.__format__: lambda own, _spec: repr(own) if own.dim() else "...",
        **dict.fromkeys(
            (torch.allclose, tensor.allclose, torch.equal, tensor.equal), _answer(value=True)
        ),
    }

    class Mode(TorchFunctionMode):
        """Takes each call of torch."""

        def __torch_function__(
            self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            del types
            if function == torch.device:
                return function(*args, **(kwargs or {}))
            kwargs = {name: _moved(value, name) for name, value in (kwargs or {}).items()}
            first = args[0] if args else None
            if function in moves and isinstance(first, tensor):
                return moves[function](first)
            absent = [one for one in args if isinstance(one, tensor) and one.is_meta]
            if absent and function in answers:
                return answers[function](*args, **kwargs)
            args = tuple(_moved(one, "to" if function == tensor.to else "") for one in args)
            if str(kwargs.get("device")) == "meta":
                kwargs.pop("generator", None)
            pins = kwargs.pop("pin_memory", None)
            try:
                made = function(*args, **kwargs)
            except (NotImplementedError, RuntimeError, TypeError) as error:
                name = getattr(function, "__name__", "this").strip("_")
                meant = _meant(error, name, absent=bool(absent))
                if meant is None:
                    raise
                raise meant from error
            return pin(made) if pins else made

    return Mode()


def _meant(error: Exception, name: str, *, absent: bool) -> Exception | None:
    """Return the error that a function of torch called *name* raises instead; None for this one.

    *absent* is whether a tensor without values was among its arguments.
    """
    if _MIXED.search(str(error)):
        return RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0"
            f" and cpu! (in {name})"
        )
    if absent and "meta" in str(error):
        return InputError(f"{name} needs the values of a tensor, and a dry run computes none")
    return None


def _moved(value: Any, name: str) -> Any:
    """Return "meta" where *value*, an argument called *name*, is a GPU's device."""
    import torch

    if isinstance(value, torch.device):
        return torch.device("meta") if value.type in VERSIONS else value
    if isinstance(value, str):
        return "meta" if value.partition(":")[0] in VERSIONS else value
    number = type(value) is int and name in {"device", "to"}
    return "meta" if number else value


@contextlib.contextmanager
def offline_torch(device: Device) -> Iterator[None]:
    """Make torch and Triton answer in the block as if *device* were here."""
    from unittest import mock

    import torch
    import triton
    from torch.amp import autocast_mode
    from torch.utils._device import DeviceContext

    autocast, context, generator = autocast_mode.autocast, DeviceContext.__init__, torch.Generator

    def enter(self: Any) -> Any:
        if self.device in VERSIONS and self._enabled:
            _refusing("torch.autocast")()
        return entered(self)

    def move(self: Any, place: Any) -> None:
        context(self, _moved(torch.device(place), "device"))

    def bootstrap(thread: Any) -> None:
        with mode:  # torch has it for one thread
            bootstrapped(thread)

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        with mode:  # torch leaves it while it runs Tensor.backward
            return ran_backward(*args, **kwargs)

    mode = _mode()
    entered: Any = autocast.__enter__
    bootstrapped: Any = threading.Thread._bootstrap_inner  # type: ignore[attr-defined] # noqa: SLF001
    ran_backward = torch.autograd._engine_run_backward  # type: ignore[attr-defined] # noqa: SLF001
    driver = triton.runtime.driver
    before = driver._active  # noqa: SLF001 - as in offline
    backend = device.target.backend
    stand_ins: dict[Any, dict[str, Any]] = {
        torch.cuda: _torch_cuda(device),
        torch.cuda.nvtx: _answers(("range_push", "range_pop", "mark")),
        torch.version: {name: VERSIONS[name] if name == backend else None for name in VERSIONS},
        torch: {"compile": _compile, "Generator": _answer_with(generator)},
        torch.testing: {"assert_close": _answer()},
        triton.testing: {
            "assert_close": _answer(),
            "do_bench": do_bench,
            "do_bench_cudagraph": do_bench,
        },
        torch.autograd: {"_engine_run_backward": run_backward},
        autocast: {"__enter__": enter},
        DeviceContext: {"__init__": move},
        threading.Thread: {"_bootstrap_inner": bootstrap},
    }
    with contextlib.ExitStack() as stack:
        for place, names in stand_ins.items():
            for name, value in names.items():
                stack.enter_context(mock.patch.object(place, name, value, create=True))
        stack.callback(driver.set_active, before)
        driver.set_active(DryDriver(device))
        stack.enter_context(mode)
        yield


def _answer_with(generator: Any) -> Any:
    """Return a class whose objects are torch's generators of the CPU, whatever device is asked."""

    class Generator(generator):  # type: ignore[misc] # only known at run time
        """A generator of random numbers."""

        def __new__(cls, device: Any = None) -> Any:
            del device
            return super().__new__(cls)

    return Generator
