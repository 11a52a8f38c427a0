"""Gates for CI: conditions that compiled kernels have to meet, and what a commit changed."""
