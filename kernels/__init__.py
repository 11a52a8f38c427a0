"""The kernels under study: one plain Triton file each, which ends in its `KERNEL`."""
