"""The smallest kernel there is: what cannot compile this cannot compile anything."""

import triton


@triton.jit  # type: ignore[untyped-decorator] # Triton has no types
def probe_kernel() -> None:
    """Do nothing."""
