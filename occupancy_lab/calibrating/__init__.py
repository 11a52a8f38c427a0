"""Measuring what the units of the GPU at hand do."""
