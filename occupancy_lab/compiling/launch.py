"""A launch without tensors and without a GPU: what a kernel is compiled and specialised for."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError
from occupancy_lab.kernel import OPTIONS, Pointer
from occupancy_lab.values import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.kernel import Kernel
    from occupancy_lab.values import Config, Problem, Target

TRITON_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
INT64_MAX = 2**63 - 1

_device_numbers: dict[str, int] = {}
_next_number = itertools.count(1_000_000)


class _Tensor:
    """Stands for a tensor in `warmup`: aligned as torch allocates, with a real storage size."""

    def __init__(self, pointer: Pointer) -> None:
        self.dtype = TRITON_DTYPES[pointer.dtype]
        self._storage_bytes = pointer.storage_bytes

    @staticmethod
    def data_ptr() -> int:
        """Return an address that is a multiple of 16, as every torch allocation's is."""
        return 0

    def ptr_range(self) -> int:
        """Return the bytes behind the pointer: AMD compiles other loads above 2 GiB."""
        return self._storage_bytes


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch's arguments, and what of them the compiler can see."""

    arguments: tuple[Pointer | int, ...]
    keywords: dict[str, Any]

    @classmethod
    def of(cls, kernel: Kernel, problem: Problem, config: Config) -> Launch:
        """Return the launch of *kernel* on *problem* as *config* sets it.

        num_warps and num_stages always reach the compiler, and so do the kernel's `options`; where
        the kernel has a constexpr parameter of such a name, it gets the value too. Raises
        InputError for a number that does not fit 64 bits.
        """
        arguments = kernel.arguments(problem)
        for argument in arguments:
            if not isinstance(argument, Pointer) and not -INT64_MAX - 1 <= argument <= INT64_MAX:
                msg = f"{kernel.name} is given a number of 2**63 or more, and Triton takes 64 bits"
                raise InputError(msg)
        knobs = {"num_warps": config.num_warps, "num_stages": config.num_stages}
        constexprs = kernel.constexprs(problem, config)
        return cls(arguments, {**OPTIONS, **kernel.options, **knobs, **constexprs})

    def stand_ins(self) -> list[Any]:
        """Return the positional arguments for `warmup`."""
        return [_Tensor(arg) if isinstance(arg, Pointer) else arg for arg in self.arguments]

    def specialization(self, target: Target) -> list[str]:
        """Return what Triton specialises each argument on, so that equal lists compile alike.

        A pointer counts by its dtype and, on AMD, by whether 32-bit offsets reach all of it; a
        whole number by its width, by being 1 and by being a multiple of 16.
        """
        return [self._specialize(argument, target) for argument in self.arguments]

    @staticmethod
    def _specialize(argument: Pointer | int, target: Target) -> str:
        if isinstance(argument, Pointer):
            near = target.backend == "hip" and argument.storage_bytes <= INT32_MAX
            return f"*{TRITON_DTYPES[argument.dtype]}{' 32-bit range' if near else ''}"
        width = "i32" if -INT32_MAX - 1 <= argument <= INT32_MAX else "i64"
        if argument == 1:
            return f"{width} = 1"
        return f"{width} % 16 = 0" if argument % 16 == 0 else width


class OfflineDriver:
    """Triton's driver for a GPU that is not here: the answers that `JITFunction.warmup` needs."""

    def __init__(self, target: Target) -> None:
        self._target = target
        # JITFunction keeps its compiled kernels by device number, so each target has its own.
        self._device = _device_numbers.setdefault(str(target), next(_next_number))

    def get_current_target(self) -> Any:
        """Return the target as Triton's GPUTarget."""
        from triton.backends.compiler import GPUTarget

        target = self._target
        arch = int(target.arch) if target.backend == "cuda" else target.arch
        return GPUTarget(target.backend, arch, target.warp_size)

    def get_current_device(self) -> int:
        """Return a device number that no other target has."""
        return self._device

    def get_current_stream(self, _device: int | None = None) -> int:
        """Return the default stream."""
        return 0


@contextlib.contextmanager
def offline(target: Target) -> Iterator[None]:
    """Make Triton compile for *target* inside the block, whatever GPU is or is not here."""
    from triton.runtime import driver

    # `reset_active` would look for a GPU at once, and fail where there is none.
    before = driver._active  # noqa: SLF001
    driver.set_active(OfflineDriver(target))
    try:
        yield
    finally:
        driver.set_active(before)
