"""Caches of Triton: every kernel in them as a row, and its possible gain."""
