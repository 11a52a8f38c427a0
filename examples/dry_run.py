"""A launch line that runs dry: tensors without memory, and GPUs that need not be here."""

import torch
from layer_norm import layer_norm

from occupancy_lab import dry_run, tensor

x = torch.empty((4096, 2048), dtype=torch.float16, device="meta")
w, mean = tensor((2048,), "float16"), tensor((4096,), "float32")
lab = dry_run(layer_norm, gpu="h100,mi300x")
run = lab[(4096,)](x, x, w, w, mean, mean, x.stride(0), 2048, 1e-5, BLOCK_SIZE=2048, num_warps=8)
for record in run.records:
    resources, occupancy = record.resources, record.occupancy
    print(
        f"{record.title}: {resources.n_regs} registers per thread,"
        f" {occupancy.programs_per_multiprocessor} programs at once,"
        f" limited by {' and '.join(occupancy.limiters)}"
    )
