"""AMD's GPUs as the Linux kernel driver (KFD) lists them in sysfs, without ROCm."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from occupancy_lab.gpus.reports import DriverReport

TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")


def read_kfd(nodes: Path = TOPOLOGY) -> tuple[DriverReport, ...]:
    """Return the GPUs whose topology this process may read; none without the kernel driver.

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
    gpus = [numbers for numbers in map(_numbers, folders) if numbers.get("simd_count")]
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


def _numbers(folder: Path) -> dict[str, int]:
    try:
        lines = (folder / "properties").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition(" ") for line in lines)
    return {key: int(value) for key, _, value in pairs if value.isdecimal()}
