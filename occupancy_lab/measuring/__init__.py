"""Measurements on this machine's GPU; the only package that runs kernels."""
