"""Gates for CI: conditions that compiled kernels have to meet, and what a commit changed."""

from occupancy_lab.checking.check import Checked, check
from occupancy_lab.checking.conditions import Check, read_checks
from occupancy_lab.checking.diff import Diff, diff, diff_tritons

__all__ = ["Check", "Checked", "Diff", "check", "diff", "diff_tritons", "read_checks"]
