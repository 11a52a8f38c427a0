"""What the GPU at hand says and does: the only package that runs kernels."""

from occupancy_lab.measuring.driver import DriverKernel, accepts_cooperative_launch, ask_driver

__all__ = ["DriverKernel", "accepts_cooperative_launch", "ask_driver"]
