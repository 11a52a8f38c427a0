"""What differs between GPUs, Triton versions, kernels and num_stages, and why."""
