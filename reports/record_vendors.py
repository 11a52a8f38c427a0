"""Records what the tutorial's kernel compiles to on GPUs of both vendors; no GPU is needed.

`python reports/record_vendors.py` writes reports/data/vendors.csv, a row per configuration and GPU,
with what was read of the binary and nothing that is worked out from it. `python
reports/amd_nvidia.py` makes the page of these rows; its predictions rest on the calibrations in
reports/data too, so make the page again when one of them changes.
"""

from __future__ import annotations

from pathlib import Path

from occupancy_lab import sweep
from occupancy_lab.table.columns import RESOURCES

DATA = Path(__file__).with_name("data") / "vendors.csv"
GPUS = ("mi300x", "mi350x", "rx7900xtx", "h100", "b200", "rtx5090")
ROWS, COLS = 4096, (781, 4096)
NUM_WARPS, NUM_STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4)
CONFIGURATION = ("gpu", "kernel", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages")
READ = tuple(name for name in RESOURCES if name != "n_spills")
"""Columns of the binary; n_spills is local_bytes in words."""


def main() -> None:
    """Compile every configuration for every GPU and write a row each, those that fail too."""
    table = sweep(COLS, rows=ROWS, gpu=GPUS, num_warps=NUM_WARPS, num_stages=NUM_STAGES)
    columns = [*CONFIGURATION, "status", "reason", *READ, "triton_version"]
    table[columns].to_csv(DATA, index=False, lineterminator="\n")
    print(f"{len(table)} rows in {DATA}")


if __name__ == "__main__":
    main()
