"""What the GPU at hand says and does: the only package that runs kernels."""
