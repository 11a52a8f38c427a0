"""A GPU that is not here, as torch and Triton describe it to programs: limits, streams, graphs.

`gpu_tensors` makes the tensors on it. Times are nan, and nothing waits.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from occupancy_lab.compiling.offline import OfflineDriver
from occupancy_lab.errors import refuse

if TYPE_CHECKING:
    from occupancy_lab.compiling.assumptions import Assumptions
    from occupancy_lab.gpus import Gpu

NAN = float("nan")
"""A dry run's answer where a program asks for a time: nan passes through arithmetic, 0 may not."""
VERSIONS = {"cuda": "12.8", "hip": "6.4"}
"""The versions in torch.version if torch is built without CUDA or HIP: programs check whether it
is None, and torchvision compares it with its own."""
SHARED_WITHOUT_ASKING = 48 << 10
"""Bytes of shared memory that a CUDA block may have without opting in to more."""

SEED = 0
"""The seed of a program's random numbers unless the program sets one."""


def seed() -> None:
    """Have random, NumPy and torch draw the same numbers in every run and for every GPU."""
    import torch

    random.seed(SEED)
    torch.default_generator.manual_seed(SEED)
    with contextlib.suppress(ImportError):
        import numpy as np

        np.random.seed(SEED)  # noqa: NPY002 - programs without a generator draw from it


def capability(gpu: Gpu) -> tuple[int, int]:
    """Return what torch.cuda.get_device_capability does: (9, 0) for sm_90, (9, 4) for gfx942."""
    digits = gpu.target.arch.removeprefix("gfx").split("-")[0]
    size = 2 if gpu.target.backend == "hip" else 1
    return int(digits[:-size]), int(digits[-size], 16)


def memory_bytes(gpu: Gpu) -> int | None:
    """Return the device memory, or None if the data sheet is not known."""
    return None if gpu.memory_gib is None else gpu.memory_gib << 30


def torch_properties(gpu: Gpu) -> Properties:
    """Return the result of torch.cuda.get_device_properties."""
    limits, (major, minor) = gpu.architecture, capability(gpu)
    values = {
        "name": gpu.title,
        "major": major,
        "minor": minor,
        "multi_processor_count": gpu.multiprocessors,
        "max_threads_per_multi_processor": limits.max_threads,
        "max_threads_per_block": 1024,
        "regs_per_multiprocessor": limits.registers,
        "shared_memory_per_block": min(SHARED_WITHOUT_ASKING, limits.max_shared),
        "shared_memory_per_block_optin": limits.max_shared,
        "shared_memory_per_multiprocessor": limits.shared_per_multiprocessor,
        "L2_cache_size": gpu.l2_bytes,
        "clock_rate": None if gpu.boost_mhz is None else 1000 * gpu.boost_mhz,
        "total_memory": memory_bytes(gpu),
        "warp_size": gpu.target.warp_size,
        "gcnArchName": gpu.target.arch,
        "is_integrated": 0,
        "is_multi_gpu_board": 0,
    }
    return Properties(values, gpu.title)


def triton_properties(gpu: Gpu) -> Properties:
    """Return what `get_device_properties` of Triton's driver does."""
    limits = gpu.architecture
    values = {
        "max_shared_mem": limits.max_shared,
        "max_num_regs": limits.registers,
        "multiprocessor_count": gpu.multiprocessors,
        "sm_clock_rate": None if gpu.boost_mhz is None else 1000 * gpu.boost_mhz,
        "warpSize": gpu.target.warp_size,
        "max_threads_per_sm": limits.max_threads,
        "arch": gpu.target.arch,
    }
    return Properties(values, gpu.title)


def nvsmi(gpu: Gpu, attributes: Sequence[str]) -> list[int | None]:
    """Return the result of triton.testing.nvsmi: the clocks of the SMs, MHz."""
    clocks = {f"clocks.{one}.sm": gpu.boost_mhz for one in ("max", "current")}
    known = Properties(clocks, gpu.title)
    return [getattr(known, name) for name in attributes]


class Properties(dict[str, Any]):
    """Values as items or attributes; InputError for those that an architecture leaves open."""

    def __init__(self, values: dict[str, Any], title: str) -> None:
        super().__init__(values)
        self._title = title

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if value is None:
            refuse(f"{name} of {self._title} is not known; name a GPU, not an architecture")
        return value

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            msg = f"a dry run does not know {name} of {self._title}"
            raise AttributeError(msg)
        return self[name]


class DryDriver(OfflineDriver):
    """Triton's driver as a script sees it: an OfflineDriver that also knows the GPU."""

    def __init__(self, gpu: Gpu) -> None:
        import torch

        super().__init__(gpu.target)
        self.gpu = gpu
        """For the package's own hooks and `tuned`."""
        self.utils = self
        """What Triton asks for `get_device_properties`."""
        self.get_device_properties = _answer(triton_properties(gpu))
        self.get_device_capability = _answer(capability(gpu))
        self.get_active_torch_device = _answer(torch.device("cuda", 0))
        self.get_device_interface = _answer(torch.cuda)
        self.get_benchmarker = _answer(do_bench)
        self.get_empty_cache_for_benchmark = _answer()
        self.clear_cache = self.set_current_device = _answer()


def do_bench(call: Callable[[], object], *_: object, **keywords: Any) -> float | list[float]:
    """Run *call* once, and return nan where triton.testing.do_bench returns a time."""
    call()
    quantiles = keywords.get("quantiles")
    if quantiles is not None and len(quantiles) > 1:
        return [NAN] * len(quantiles)
    return [NAN] if keywords.get("return_mode") == "all" else NAN


class _Idle:
    """A stream, an event, a graph, or their context manager: all its methods do nothing."""

    cuda_stream = stream_id = device_index = 0
    device_type = 1

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, function: Any) -> Any:
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _answer()

    @property
    def device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def query(self) -> bool:
        return True

    def elapsed_time(self, _other: object) -> float:
        return NAN

    def record_event(self, event: Any = None) -> Any:
        import torch

        made: Any = torch.cuda.Event
        return event or made()


def _idle(name: str) -> type[_Idle]:
    """Return a class with the methods of a class of torch.cuda, which subclasses may call."""
    import torch

    names = {one for one in dir(getattr(torch.cuda, name, None)) if not one.startswith("_")}
    return type(name, (_Idle,), {one: _answer() for one in names - {*dir(_Idle)}})


class _Products(_Idle):
    """NVIDIA's library that Triton's tutorials call; nobody knows the values that it computes."""

    def __getattr__(self, name: str) -> Any:
        from occupancy_lab.compiling.gpu_tensors import forget

        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: forget(arguments)


def _answer(value: Any = None) -> Callable[..., Any]:
    """Return a new function that answers *value*: torch tells functions apart by identity."""
    return lambda *_, **__: value


def _answers(names: Sequence[str], value: Any = None) -> dict[str, Callable[..., Any]]:
    return {name: _answer(value) for name in names}


IDLE = (
    *("synchronize", "set_device", "empty_cache", "ipc_collect", "init"),
    *("_lazy_init", "_lazy_call"),
    *("manual_seed", "manual_seed_all", "seed", "seed_all", "set_stream"),
    *("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_accumulated_memory_stats"),
    *("set_per_process_memory_fraction", "_set_stream_by_id", "_sleep", "check_error"),
)
"""Functions of torch.cuda that return nothing."""
ZERO = (
    *("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"),
    *("current_device", "_exchange_device", "_maybe_exchange_device", "initial_seed"),
)
TRUE = ("is_available", "is_initialized", "is_bf16_supported", "is_tf32_supported")
CLASSES = (
    *("Event", "Stream", "ExternalStream", "stream", "StreamContext"),
    *("CUDAGraph", "graph", "MemPool", "use_mem_pool"),
)
"""Classes of torch.cuda whose objects do nothing."""


def _torch_cuda(gpu: Gpu, generator: Any) -> dict[str, Any]:
    """Return the replacements for torch.cuda, whose random numbers *generator* draws."""
    classes = {name: _idle(name) for name in CLASSES}
    memory = memory_bytes(gpu) or 0
    return {
        **_answers(IDLE),
        **_answers(ZERO, 0),
        **_answers(TRUE, value=True),
        **classes,
        "current_stream": _answer(classes["Stream"]()),
        "default_stream": _answer(classes["Stream"]()),
        "is_current_stream_capturing": _answer(value=False),
        "device_count": _answer(1),
        "memory_stats": _answer({}),
        "mem_get_info": _answer((memory, memory)),
        "get_arch_list": _answer([gpu.target.name]),
        "get_device_name": _answer(gpu.title),
        "get_device_capability": _answer(capability(gpu)),
        "get_device_properties": _answer(torch_properties(gpu)),
        "get_rng_state": lambda *_: generator.get_state(),
        "set_rng_state": lambda state, *_: generator.set_state(state),
        "default_generators": (generator,),
        "graph_pool_handle": _answer((0, 0)),
        "make_graphed_callables": lambda callables, *_, **__: callables,
    }


class _Pinned:
    """Keeps the addresses of pinned memory of the CPU, which a kernel may be given."""

    def __init__(self) -> None:
        import torch
        from torch.utils._device import _device_constructors

        self._addresses: set[int] = set()
        keep: Callable[[], object] = _device_constructors
        keep()  # caches torch's own functions, which the functions made here call
        names = ("empty", "zeros", "ones", "full", "rand", "randn", "tensor", "empty_like")
        self.makers = {name: self._making(getattr(torch, name)) for name in names}
        self.methods = {
            "pin_memory": lambda own, *_: self._pin(own.clone()),
            "is_pinned": lambda own, *_: (
                own.is_cpu and own.untyped_storage().data_ptr() in self._addresses
            ),
        }

    def _pin(self, made: Any) -> Any:
        if made.is_cpu:
            self._addresses.add(made.untyped_storage().data_ptr())
        return made

    def _making(self, make: Any) -> Any:
        @functools.wraps(make)
        def making(*args: Any, **kwargs: Any) -> Any:
            pinned = kwargs.pop("pin_memory", False)
            made = make(*args, **kwargs)
            return self._pin(made) if pinned else made

        return making


@contextlib.contextmanager
def offline_torch(
    gpu: Gpu, assumptions: Assumptions, unseen: Callable[[str], None]
) -> Iterator[None]:
    """Make torch and Triton behave in the block as if *gpu* were here.

    *unseen* is called with each library operation that cannot run here, whose launches are missing.
    """
    from unittest import mock

    import torch
    import triton
    from triton._C.libtriton import nvidia

    from occupancy_lab.compiling.gpu_tensors import gpu_tensors

    autograd: Any = torch.autograd
    run_backward = autograd._engine_run_backward  # noqa: SLF001 - backward calls it
    as_text: Any = torch._tensor_str._tensor_str  # noqa: SLF001 - print calls it for a tensor

    def run_here(*args: Any, **kwargs: Any) -> Any:
        with torch.autograd.set_multithreading_enabled(False):  # there is no thread for this GPU
            return run_backward(*args, **kwargs)

    driver = triton.runtime.driver
    before = driver._active  # noqa: SLF001 - as in offline
    backend = gpu.target.backend
    pinned, generators = _Pinned(), _generators()
    stand_ins: dict[Any, dict[str, Any]] = {
        torch.cuda: _torch_cuda(gpu, generators("cuda")),
        torch.cuda.nvtx: _answers(("range_push", "range_pop", "mark")),
        torch.version: {
            name: (getattr(torch.version, name) or usual) if name == backend else None
            for name, usual in VERSIONS.items()
        },
        torch: {"Generator": generators, **pinned.makers},
        torch.Tensor: pinned.methods,
        torch.testing: {"assert_close": _answer()},
        triton.testing: {
            "assert_close": _answer(),
            "do_bench": do_bench,
            "do_bench_cudagraph": do_bench,
            "nvsmi": functools.partial(nvsmi, gpu),
        },
        torch.autograd: {"_engine_run_backward": run_here},
        torch._tensor_str: {  # noqa: SLF001
            "_tensor_str": lambda own, indent: "..." if own.is_cuda else as_text(own, indent)
        },
        torch._C: {  # noqa: SLF001
            **_answers(("_cuda_getCurrentRawStream", "_cuda_getDevice"), 0),
            **_answers(("_cuda_setDevice", "_cuda_synchronize", "_cuda_init")),
            "_cuda_getDeviceCount": _answer(1),
        },
        torch.accelerator: {
            "current_accelerator": _answer(torch.device("cuda")),
            "is_available": _answer(value=True),
            "device_count": _answer(1),
            **_answers(("current_device_index",), 0),
            **_answers(("synchronize", "set_device_index", "empty_cache", "set_stream")),
        },
        torch.backends.cuda: {"is_built": _answer(value=True)},
        nvidia.cublas: {"CublasLt": _Products},
    }
    with contextlib.ExitStack() as stack:
        for place, names in stand_ins.items():
            for name, value in names.items():
                stack.enter_context(mock.patch.object(place, name, value, create=True))
        stack.callback(driver.set_active, before)
        driver.set_active(DryDriver(gpu))
        stack.enter_context(gpu_tensors(assumptions, unseen))
        yield


def _generators() -> Any:
    """Return a class of torch's generators; those of a GPU have a state like the real ones."""
    import torch

    class Generator(torch.Generator):
        """A generator of the CPU, whatever the device; that of a GPU has an offset too."""

        of_gpu: bool
        offset: int

        def __new__(cls, device: Any = "cpu") -> Any:
            made: Any = super().__new__(cls)
            made.of_gpu, made.offset = torch.device(device).type != "cpu", 0
            return made

        @property
        def device(self) -> Any:  # type: ignore[override] # torch's own is an attribute
            return torch.device("cuda", 0) if self.of_gpu else super().device

        def get_offset(self) -> int:
            return self.offset

        def set_offset(self, offset: int) -> Any:
            self.offset = offset
            return self

        def get_state(self) -> torch.Tensor:
            if not self.of_gpu:
                return super().get_state()
            numbers = [self.initial_seed() % (1 << 63), self.offset]
            return torch.tensor(numbers, dtype=torch.int64, device="cpu").view(torch.uint8)

        def set_state(self, state: torch.Tensor) -> Any:
            if not self.of_gpu:
                return super().set_state(state)
            seed, self.offset = state.cpu().view(torch.int64).tolist()
            return self.manual_seed(seed)

    return Generator
