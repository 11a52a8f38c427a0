"""Caches of Triton: every kernel in them as a row, and what there is to win."""
