"""The grid: every configuration on every GPU, one row each."""
