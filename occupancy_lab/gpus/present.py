"""The GPUs of this machine, as their drivers report them, without torch, triton, CUDA or ROCm."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from occupancy_lab.gpus.gpu import (
    Architecture,
    Gpu,
    Source,
    bare_gpus,
    devices,
    find_device,
    pci_ids,
)


@dataclass(frozen=True, slots=True)
class DriverReport:
    """A GPU as its driver reports it."""

    index: int
    """Its index among the vendor's GPUs, in the driver's order."""
    name: str | None
    """The driver's name for it; None if the driver gives none (AMD's kernel driver)."""
    target_name: str
    """The architecture: sm_90, gfx942."""
    numbers: Mapping[str, int]
    """The reported numbers by name, without those that the driver did not give."""
    uuid: str | None = None
    """Identifies this device among others of its kind; None if the driver does not report it."""


ATTRIBUTES: Mapping[str, int] = {
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
"""CUdevice_attribute of cuda.h, by the name of the Gpu's field if it has one."""

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
    """Return the GPUs of *library* (default: the driver's libcuda.so.1); none if it fails.

    The driver obeys CUDA_VISIBLE_DEVICES. It is initialised in this process, so a forked child can
    no longer use CUDA: start workers with spawn.
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
    numbers, value = {}, ctypes.c_int()
    for attribute, number in ATTRIBUTES.items():
        if library.cuDeviceGetAttribute(ctypes.byref(value), number, device) == 0:
            numbers[attribute] = value.value
    major = numbers.get("compute_capability_major")
    minor = numbers.get("compute_capability_minor")
    if major is None or minor is None:
        return None
    text = name.value.decode(errors="replace")
    target = f"sm_{major}{minor}"
    return DriverReport(index, text, target, MappingProxyType(numbers), _uuid(library, device))


def _uuid(library: ctypes.CDLL, device: ctypes.c_int) -> str | None:
    """Return the device's UUID as hexadecimal digits; None with drivers before CUDA 11.4."""
    function = getattr(library, "cuDeviceGetUuid_v2", None)
    if function is None:
        return None
    uuid = ctypes.create_string_buffer(_UUID_BYTES)
    function.argtypes = [ctypes.c_char_p, ctypes.c_int]
    function.restype = ctypes.c_int
    return None if function(uuid, device) else uuid.raw.hex()


TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")


def read_kfd(nodes: Path = TOPOLOGY) -> tuple[DriverReport, ...]:
    """Return the GPUs of KFD, AMD's kernel driver, that this process may read; none without it.

    Each node has a file `properties` with lines "key value"; a node without SIMDs is a CPU. These
    are all GPUs of the machine: HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES are ignored.
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


_DRIVER = Source("the driver")
_BANDWIDTH_TOLERANCE = 0.01

# The table's limits are for its wave size, while KFD counts waves that HIP never launches (gfx908).
_KEPT = frozenset({"warp_size", "max_waves_per_simd"})

# Tegra (8.7) reports the GPU's clock as the memory's; GB10 (12.1) reports the data rate.
_MISREPORTED_CLOCKS = frozenset({"sm_87", "sm_121"})

# For all other numbers a driver's 0 means that it does not know.
_MAY_BE_ZERO = frozenset(
    {"compute_capability_minor", "cooperative_launch", "integrated", "reserved_shared"}
)


@dataclass(frozen=True, slots=True)
class PresentGpu:
    """A GPU of this machine: the table's data, with the driver's numbers where they are known."""

    gpu: Gpu
    """Its key is a device's if the table has the device in this size, else the architecture's."""
    name: str
    """The driver's name for it, or the table's title if the driver gives none."""
    driver: Mapping[str, int]
    """The driver's report, with the names of the Gpu's fields where it has them."""
    index: int
    """Its index among the vendor's GPUs, in the driver's order."""
    table: Gpu
    """The table's entry: the device of this name whatever its size, else the architecture."""
    uuid: str | None = None
    """Identifies this device among others of its kind; None if the driver does not report it."""


def present_gpus(
    library: ctypes.CDLL | None = None, nodes: Path = TOPOLOGY
) -> tuple[PresentGpu, ...]:
    """Return the GPUs of this machine, NVIDIA's before AMD's; none, without an error, if no driver.

    A GPU of an architecture that the table lacks is left out. *library* replaces libcuda and
    *nodes* KFD's topology. `read_libcuda` describes what initialising the driver means for a
    process.
    """
    reports = (*read_libcuda(library), *read_kfd(nodes))
    return tuple(_present(report) for report in reports if report.target_name in bare_gpus())


def disagreements(present: PresentGpu) -> tuple[str, ...]:
    """Return a sentence for each number in the table that the driver contradicts."""
    reported: dict[str, float] = dict(present.driver)
    bandwidth, peak = _bandwidth(present.driver, present.table), present.table.bandwidth_gbs
    if bandwidth and peak and abs(bandwidth / peak - 1) > _BANDWIDTH_TOLERANCE:
        reported["bandwidth_gbs"] = bandwidth
    return tuple(
        f"{present.name}: the driver's {name} is {value}, the table's {expected}."
        for name, value in reported.items()
        if (expected := _table_number(present.table, name)) not in {None, value}
    )


def _present(report: DriverReport) -> PresentGpu:
    bare = bare_gpus()[report.target_name]
    driver = _driver_numbers(report, bare)
    table = _device(report) or bare
    same_size = table.multiprocessors == driver.get("multiprocessors")
    name = report.name or table.title
    gpu = _merged(table if same_size else dataclasses.replace(bare, title=name), driver)
    return PresentGpu(gpu, name, MappingProxyType(driver), report.index, table, report.uuid)


def _device(report: DriverReport) -> Gpu | None:
    if report.name is None:
        device = devices().get(pci_ids().get(report.numbers.get("device_id", 0), ""))
    else:
        device = find_device(report.name)
    return device if device and device.target.name == report.target_name else None


def _driver_numbers(report: DriverReport, bare: Gpu) -> dict[str, int]:
    derived = _hip_numbers(report, bare) if report.name is None else _cuda_numbers(report)
    return {
        name: value
        for name, value in {**report.numbers, **derived}.items()
        if value or name in _MAY_BE_ZERO
    }


def _cuda_numbers(report: DriverReport) -> dict[str, int]:
    numbers = report.numbers
    derived = {}
    if "clock_khz" in numbers:
        derived["boost_mhz"] = round(numbers["clock_khz"] / 1000)
    if "max_threads" in numbers and numbers.get("warp_size"):
        derived["max_warps"] = numbers["max_threads"] // numbers["warp_size"]
    return derived


def _hip_numbers(report: DriverReport, bare: Gpu) -> dict[str, int]:
    numbers = report.numbers
    compute_units = 2 if bare.architecture.multiprocessor_word == "WGP" else 1
    derived = {
        "warp_size": numbers.get("wave_front_size", 0),
        "boost_mhz": numbers.get("max_engine_clk_fcompute", 0),
        "max_shared": numbers.get("lds_size_in_kb", 0) * 1024,
        "shared_per_multiprocessor": numbers.get("lds_size_in_kb", 0) * 1024 * compute_units,
    }
    if simds := numbers.get("simd_per_cu", 0) * compute_units:
        derived |= {"simds": simds, "multiprocessors": numbers["simd_count"] // simds}
    return derived


def _merged(base: Gpu, driver: Mapping[str, int]) -> Gpu:
    size = _shared_fields(base, driver)
    limits = _shared_fields(base.architecture, driver)
    sources = {**base.sources, **dict.fromkeys([*limits, *size], _DRIVER)}
    if base.bandwidth_gbs is None and (bandwidth := _bandwidth(driver, base)):
        size["bandwidth_gbs"] = bandwidth
        sources["bandwidth_gbs"] = Source("the driver: memory clock x 2 x bus width")
    return dataclasses.replace(
        base,
        architecture=dataclasses.replace(base.architecture, **limits),
        sources=MappingProxyType(sources),
        **size,
    )


def _shared_fields(value: Gpu | Architecture, driver: Mapping[str, int]) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(value)]
    return {name: driver[name] for name in names if name in driver and name not in _KEPT}


def _table_number(table: Gpu, name: str) -> float | None:
    number: float | None = getattr(table, name, None)
    return getattr(table.architecture, name, None) if number is None else number


def _bandwidth(driver: Mapping[str, int], table: Gpu) -> float | None:
    """Return the peak from the driver's memory clock and bus width, GB/s, at two bits per clock."""
    clock, bits = driver.get("memory_clock_khz"), driver.get("bus_bits")
    if not clock or not bits or table.target.name in _MISREPORTED_CLOCKS:
        return None
    return round(2 * clock * 1000 * (bits / 8) / 1e9, 1)
