"""GPUs: their limits and sizes with sources, their names, and the GPUs of this machine."""

from occupancy_lab.gpus.gpu import (
    Architecture,
    CudaArchitecture,
    Gpu,
    HipArchitecture,
    Source,
    aliases,
    architectures,
    bare_gpus,
    devices,
    find_device,
    find_gpu,
    find_gpus,
    usual_gpus,
)
from occupancy_lab.gpus.present import PresentGpu, disagreements, present_gpus

__all__ = [
    "Architecture",
    "CudaArchitecture",
    "Gpu",
    "HipArchitecture",
    "PresentGpu",
    "Source",
    "aliases",
    "architectures",
    "bare_gpus",
    "devices",
    "disagreements",
    "find_device",
    "find_gpu",
    "find_gpus",
    "present_gpus",
    "usual_gpus",
]
