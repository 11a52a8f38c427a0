"""What NVIDIA's driver reports of a loaded kernel, and NVML of the GPU's clock."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

from occupancy_lab.arguments import Pointer
from occupancy_lab.compiling import kernel_launch, load_compiled
from occupancy_lab.errors import DriverError, refuse
from occupancy_lab.kernel import Kernel
from occupancy_lab.values import Config, Problem, Target

# CUfunction_attribute of cuda.h
SHARED_SIZE_BYTES, LOCAL_SIZE_BYTES, NUM_REGS = 1, 3, 4


@dataclass(frozen=True, slots=True)
class DriverKernel:
    """A loaded kernel as the driver describes it."""

    n_regs: int
    """Registers per thread."""
    local_bytes: int
    """Local memory per thread, bytes."""
    static_shared: int
    """Static shared memory per program, bytes, without the driver's reserve."""
    programs_per_multiprocessor: int
    """cuOccupancyMaxActiveBlocksPerMultiprocessor for Triton's threads and shared memory."""


def ask_driver(kernel: Kernel, problem: Problem, config: Config, target: Target) -> DriverKernel:
    """Load *kernel* on this machine's NVIDIA GPU and return its driver's description.

    Raises DriverError if the driver fails, CompileError if Triton does.
    """
    compiled = load_compiled(
        kernel.function, kernel_launch(kernel, problem, config, target), target
    )
    threads = config.num_warps * target.warp_size
    return ask_function(compiled.function, threads, compiled.metadata.shared)


def ask_function(loaded: int, threads: int, shared: int) -> DriverKernel:
    """Return the driver's description of a CUfunction launched with *shared* bytes per program.

    Raises DriverError if the driver fails.
    """
    driver, function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(loaded)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        _check(driver.cuFuncGetAttribute(ctypes.byref(value), number, function))
        return value.value

    programs = ctypes.c_int()
    _check(
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(programs), function, threads, ctypes.c_size_t(shared)
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
        refuse(f"the CUDA driver answers with error {error}", DriverError)


def accepts_cooperative_launch(
    kernel: Kernel, problem: Problem, config: Config, num_programs: int
) -> bool:
    """Return whether this machine's GPU runs *num_programs* programs of *kernel* at once.

    A cooperative launch guarantees that all programs are resident at once, so the driver refuses
    more programs than fit.
    """
    import torch

    launch = kernel.launch(problem, config)
    arguments: list[Any] = list(launch.arguments)
    for place, argument in enumerate(arguments):
        if isinstance(argument, Pointer):
            dtype = getattr(torch, argument.dtype)
            elements = argument.storage_bytes // dtype.itemsize
            arguments[place] = torch.zeros(elements, dtype=dtype, device="cuda")
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


REASONS: Mapping[int, str] = MappingProxyType(
    {
        0x004: "software power cap",
        0x008: "hardware slowdown",
        0x010: "sync boost",
        0x020: "software thermal slowdown",
        0x040: "hardware thermal slowdown",
        0x080: "power brake",
        0x100: "display clock setting",
        0x200: "board limit",
        0x400: "reliability",
    }
)
"""nvmlClocksEventReason of nvml.h, without an idle GPU (1) and a clock that was set (2)."""


def read_clock() -> tuple[int | None, str | None]:
    """Return the clock of torch's first device in MHz, and in words what throttles it.

    A value is None if it is not known: nvidia-ml-py (the extra `nvidia`) is not installed, or NVML
    does not start, does not know the device or does not report it. The words are also None if
    nothing throttles the clock.
    """
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None, None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None, None

    def ask(function: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, function)(*arguments)
        except (AttributeError, nvml.NVMLError):
            return None

    try:
        handle = _handle(ask)
        if handle is None:
            return None, None
        reasons = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:  # drivers before 535 have the older name alone
            reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        sm_mhz = ask("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM)
        return sm_mhz, throttle_words(reasons or 0)
    finally:
        nvml.nvmlShutdown()


def _handle(ask: Callable[..., Any]) -> Any:
    """Return NVML's handle of torch's first device, or None if NVML does not know it.

    CUDA_VISIBLE_DEVICES renumbers torch's devices but not NVML's. A part of a GPU (MIG) has its own
    UUID; its place on the PCI bus is that of the whole GPU.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    device: Any = torch.cuda.get_device_properties(0)
    found = ask("nvmlDeviceGetHandleByUUID", f"GPU-{device.uuid}")
    if found is None:
        numbers = device.pci_domain_id, device.pci_bus_id, device.pci_device_id
        found = ask("nvmlDeviceGetHandleByPciBusId", "{:08X}:{:02X}:{:02X}.0".format(*numbers))
    return found


def throttle_words(reasons: int) -> str | None:
    """Return NVML's bits *reasons* in words, lowest bit first; None if no bit has words."""
    return ", ".join(word for bit, word in REASONS.items() if reasons & bit) or None
