"""From kernel source to the resources of its binary, for any GPU or none."""

from occupancy_lab.compiling.compile import (
    compile_launch,
    kernel_launch,
    load_compiled,
    resource_key,
    triton_version,
)
from occupancy_lab.compiling.store import Store, store_directory

__all__ = [
    "Store",
    "compile_launch",
    "kernel_launch",
    "load_compiled",
    "resource_key",
    "store_directory",
    "triton_version",
]
