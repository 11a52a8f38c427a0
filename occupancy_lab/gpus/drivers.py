"""The GPUs of this machine as their drivers report them, without torch, CUDA or ROCm."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class DriverReport:
    """A GPU as its driver reports it."""

    index: int
    """Its place among the vendor's GPUs, in the driver's order."""
    name: str | None
    """The driver's name for it; None where the driver gives none (AMD's kernel driver)."""
    target_name: str
    """The architecture: sm_90, gfx942."""
    numbers: Mapping[str, int]
    """What was reported, by name; a number that the driver would not give is left out."""
    uuid: str | None = None
    """What tells this very device from others of its kind; None where the driver does not say."""


ATTRIBUTES: Mapping[str, int] = MappingProxyType(
    {
        "warp_size": 10,
        "clock_khz": 13,
        "multiprocessors": 16,
        "integrated": 18,
        "memory_clock_khz": 36,
        "bus_bits": 37,
        "l2_bytes": 38,
        "max_threads": 39,
        "compute_capability_major": 75,
        "compute_capability_minor": 76,
        "shared_per_multiprocessor": 81,
        "registers": 82,
        "cooperative_launch": 95,
        "max_shared": 97,
        "max_programs": 106,
        "reserved_shared": 111,
    }
)
"""CUdevice_attribute of cuda.h, by the name of the Gpu's field where it has one."""

_NAME_BYTES = 256
_UUID_BYTES = 16
_INT_POINTER = ctypes.POINTER(ctypes.c_int)
_SIGNATURES = {
    "cuInit": [ctypes.c_uint],
    "cuDeviceGetCount": [_INT_POINTER],
    "cuDeviceGet": [_INT_POINTER, ctypes.c_int],
    "cuDeviceGetName": [ctypes.c_char_p, ctypes.c_int, ctypes.c_int],
    "cuDeviceGetAttribute": [_INT_POINTER, ctypes.c_int, ctypes.c_int],
}


def read_libcuda(library: ctypes.CDLL | None = None) -> tuple[DriverReport, ...]:
    """Return the GPUs of *library* (default: the driver's libcuda.so.1); none where it refuses.

    The driver obeys CUDA_VISIBLE_DEVICES. The driver is initialised in this process,
    so a child made by fork can no longer use CUDA: start workers with spawn.
    """
    try:
        library = library or ctypes.CDLL("libcuda.so.1")
        for name, argument_types in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = argument_types
            function.restype = ctypes.c_int
    except (OSError, AttributeError):
        return ()
    count = ctypes.c_int()
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    reports = (_report(library, index) for index in range(count.value))
    return tuple(report for report in reports if report is not None)


def _report(library: ctypes.CDLL, index: int) -> DriverReport | None:
    device = ctypes.c_int()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    if library.cuDeviceGet(ctypes.byref(device), index):
        return None
    if library.cuDeviceGetName(name, _NAME_BYTES, device):
        return None
    numbers = _attributes(library, device)
    major = numbers.get("compute_capability_major")
    minor = numbers.get("compute_capability_minor")
    if major is None or minor is None:
        return None
    text = name.value.decode(errors="replace")
    target = f"sm_{major}{minor}"
    return DriverReport(index, text, target, MappingProxyType(numbers), _uuid(library, device))


def _uuid(library: ctypes.CDLL, device: ctypes.c_int) -> str | None:
    """Return the device's UUID as hexadecimal digits; None from drivers before CUDA 11.4."""
    function = getattr(library, "cuDeviceGetUuid_v2", None)
    if function is None:
        return None
    uuid = ctypes.create_string_buffer(_UUID_BYTES)
    function.argtypes = [ctypes.c_char_p, ctypes.c_int]
    function.restype = ctypes.c_int
    return None if function(uuid, device) else uuid.raw.hex()


def _attributes(library: ctypes.CDLL, device: ctypes.c_int) -> dict[str, int]:
    numbers = {}
    for name, attribute in ATTRIBUTES.items():
        value = ctypes.c_int()
        if library.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0:
            numbers[name] = value.value
    return numbers


TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")


def read_kfd(nodes: Path = TOPOLOGY) -> tuple[DriverReport, ...]:
    """Return the GPUs of KFD, AMD's kernel driver, that this process may read; none without it.

    Each node has a file `properties` of lines "key value"; a node without SIMDs is a CPU. These
    are the GPUs of the machine: HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES are not obeyed.
    """
    try:
        folders = sorted(
            (folder for folder in nodes.iterdir() if folder.name.isdecimal()),
            key=lambda folder: int(folder.name),
        )
    except OSError:
        return ()
    gpus = [numbers for numbers in map(_properties, folders) if numbers.get("simd_count")]
    return tuple(
        DriverReport(
            index,
            None,
            target_name(numbers["gfx_target_version"]),
            MappingProxyType(numbers),
            f"{numbers['unique_id']:016x}" if numbers.get("unique_id") else None,
        )
        for index, numbers in enumerate(gpus)
        if "gfx_target_version" in numbers
    )


def target_name(version: int) -> str:
    """Return the compiler's name for KFD's gfx_target_version: 90402 is gfx942, 90010 is gfx90a."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _properties(folder: Path) -> dict[str, int]:
    try:
        lines = (folder / "properties").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition(" ") for line in lines)
    return {key: int(value) for key, _, value in pairs if value.isdecimal()}
