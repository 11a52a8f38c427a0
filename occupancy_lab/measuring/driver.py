"""What NVIDIA's driver says: of a loaded kernel, and of the GPU's clock (NVML)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import load_compiled
from occupancy_lab.errors import DriverError
from occupancy_lab.launch import Pointer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.kernel import Kernel
    from occupancy_lab.values import Config, Problem, Target

# CUfunction_attribute of cuda.h
SHARED_SIZE_BYTES, LOCAL_SIZE_BYTES, NUM_REGS = 1, 3, 4


@dataclass(frozen=True, slots=True)
class DriverKernel:
    """One loaded kernel as the driver describes it."""

    n_regs: int
    """Registers per thread."""
    local_bytes: int
    """Local memory per thread, bytes."""
    static_shared: int
    """Static shared memory per program, bytes, without the driver's reserve."""
    programs_per_multiprocessor: int
    """cuOccupancyMaxActiveBlocksPerMultiprocessor for Triton's threads and shared memory."""


def ask_driver(kernel: Kernel, problem: Problem, config: Config, target: Target) -> DriverKernel:
    """Load *kernel* on the NVIDIA GPU at hand and give what its driver says of it.

    Raises DriverError where the driver refuses, CompileError where Triton does.
    """
    compiled = load_compiled(kernel.function, kernel.launch(problem, config), target)
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
    """Return whether the GPU at hand takes *num_programs* programs of *kernel* at the same time.

    A cooperative launch promises that all programs are resident at once, so the driver refuses one
    program more than fit.
    """
    import torch

    launch = kernel.launch(problem, config)
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


def _tensor(argument: Any) -> Any:
    import torch

    if not isinstance(argument, Pointer):
        return argument
    dtype = getattr(torch, argument.dtype)
    return torch.zeros(argument.storage_bytes // dtype.itemsize, dtype=dtype, device="cuda")


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
"""nvmlClocksEventReason of nvml.h, but for an idle GPU (1) and a clock that was set (2)."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """One reading of a GPU; None is what its driver does not tell."""

    sm_mhz: int | None
    """The clock of the multiprocessors."""
    throttle_reasons: tuple[str, ...] | None
    """Why the clock is below what it could be; empty where nothing holds it back."""


class _Nvml:
    """NVML between its start and its end; what it refuses to tell is None."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def ask(self, function: str, *arguments: Any) -> Any:
        """Return what *function* gives, None where NVML has none or refuses."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except (AttributeError, self._nvml.NVMLError):
            return None

    def handle(self, index: int) -> Any:
        """Return the handle of torch's device *index*, None where NVML does not know it.

        CUDA_VISIBLE_DEVICES numbers torch's devices anew, not NVML's, and a part of a GPU (MIG)
        has a UUID of its own: the place on the PCI bus is then the whole GPU's.
        """
        import torch

        if not torch.cuda.is_available():
            return None
        device: Any = torch.cuda.get_device_properties(index)
        found = self.ask("nvmlDeviceGetHandleByUUID", f"GPU-{getattr(device, 'uuid', None)}")
        if found is None and hasattr(device, "pci_bus_id"):
            place = f"{device.pci_domain_id:08X}:{device.pci_bus_id:02X}"
            place += f":{device.pci_device_id:02X}.0"
            found = self.ask("nvmlDeviceGetHandleByPciBusId", place)
        return found

    def clocks(self, handle: Any) -> Clocks:
        """Return the reading of the GPU behind *handle*."""
        nvml = self._nvml
        reasons = self.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:  # drivers before 535 have the older name alone
            reasons = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return Clocks(
            sm_mhz=self.ask("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
            throttle_reasons=None if reasons is None else throttle_words(reasons),
        )


def throttle_words(reasons: int) -> tuple[str, ...]:
    """Return the words of NVML's bits *reasons*, lowest bit first; unnamed bits are left out."""
    return tuple(word for bit, word in REASONS.items() if reasons & bit)


def read_clocks(index: int = 0) -> Clocks | None:
    """Return a reading of torch's device *index*.

    None where nvidia-ml-py (the extra `nvidia`) is not installed, where NVML does not start, and
    where it does not know the device.
    """
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        reader = _Nvml(nvml)
        handle = reader.handle(index)
        return None if handle is None else reader.clocks(handle)
    finally:
        nvml.nvmlShutdown()
