"""RMS norm of the rows of a matrix, with the shortest KERNEL that there is."""

import triton
import triton.language as tl

from occupancy_lab import Kernel, tensor


@triton.jit
def rms_norm(y_ptr, x_ptr, w_ptr, n_cols, eps, BLOCK_SIZE: tl.constexpr):
    """Scale row program_id by its root mean square and by w."""
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    place = tl.program_id(0).to(tl.int64) * n_cols + cols
    x = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    y = x * tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps) * w
    tl.store(y_ptr + place, y, mask=mask)


def arguments(problem):
    """Return what a launch passes by position: y, x, w, the columns, and eps."""
    matrix = tensor((problem.rows, problem.cols), problem.dtype)
    return (matrix, matrix, tensor((problem.cols,), problem.dtype), problem.cols, 1e-5)


KERNEL = Kernel(rms_norm, arguments)
