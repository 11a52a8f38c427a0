"""What NVIDIA's driver says of a loaded kernel, and what it accepts to launch."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import Launch, load_compiled
from occupancy_lab.errors import DriverError
from occupancy_lab.kernel import Pointer

if TYPE_CHECKING:
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.values import Config, Problem, Target

# CUfunction_attribute of cuda.h
SHARED_SIZE_BYTES, LOCAL_SIZE_BYTES, NUM_REGS = 1, 3, 4


@dataclass(frozen=True, slots=True)
class DriverKernel:
    """One loaded kernel as the driver describes it."""

    n_regs: int
    """Registers a thread."""
    local_bytes: int
    """Local memory a thread, bytes."""
    static_shared: int
    """Static shared memory a program, bytes, without the driver's reserve."""
    programs_per_multiprocessor: int
    """cuOccupancyMaxActiveBlocksPerMultiprocessor for Triton's threads and shared memory."""


def ask_driver(kernel: Kernel, problem: Problem, config: Config, target: Target) -> DriverKernel:
    """Load *kernel* on the NVIDIA GPU at hand and give what its driver says of it.

    Raises DriverError where the driver refuses, CompileError where Triton does.
    """
    compiled = load_compiled(kernel, Launch.of(kernel, problem, config), target)
    driver = ctypes.CDLL("libcuda.so.1")
    function = ctypes.c_void_p(compiled.function)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        _check(driver.cuFuncGetAttribute(ctypes.byref(value), number, function))
        return value.value

    programs = ctypes.c_int()
    _check(
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(programs),
            function,
            config.num_warps * target.warp_size,
            ctypes.c_size_t(compiled.metadata.shared),
        )
    )
    return DriverKernel(
        n_regs=attribute(NUM_REGS),
        local_bytes=attribute(LOCAL_SIZE_BYTES),
        static_shared=attribute(SHARED_SIZE_BYTES),
        programs_per_multiprocessor=programs.value,
    )


def _check(error: int) -> None:
    if error:
        msg = f"the CUDA driver answers with error {error}"
        raise DriverError(msg)


def accepts_cooperative_launch(
    kernel: Kernel, problem: Problem, config: Config, num_programs: int
) -> bool:
    """Tell whether the GPU at hand takes *num_programs* programs of *kernel* at the same time.

    A cooperative launch promises that all programs are resident at once, so the driver refuses one
    program more than fit.
    """
    import torch

    launch = Launch.of(kernel, problem, config)
    arguments = [_tensor(argument) for argument in launch.arguments]
    try:
        kernel.function[(num_programs,)](  # type: ignore[index] # it is a JITFunction or fails
            *arguments, **launch.keywords, launch_cooperative_grid=True
        )
        torch.cuda.synchronize()
    except RuntimeError as error:
        if "cooperative" in str(error):
            return False
        raise
    return True


def _tensor(argument: Pointer | int) -> Any:
    import torch

    if not isinstance(argument, Pointer):
        return argument
    dtype = getattr(torch, argument.dtype)
    return torch.zeros(argument.storage_bytes // dtype.itemsize, dtype=dtype, device="cuda")
