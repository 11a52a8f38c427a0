"""The steps of limits in words use the singular for one."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from occupancy_lab import calculate_occupancy

ONE_OF_MANY = re.compile(r"(?<![\d.])1 (?!KiB|us|B\b)[A-Za-z]+s\b(?! a )")


@given(
    gpu=st.sampled_from(["h100", "b200", "mi300x", "mi250x", "rx7900xtx", "t4"]),
    n_regs=st.integers(1, 255),
    num_warps=st.sampled_from([1, 2, 8]),
    shared=st.integers(0, 65536),
    num_ctas=st.sampled_from([1, 1, 2, 8]),
)
@example(gpu="h100", n_regs=255, num_warps=1, shared=65000, num_ctas=1)
@example(gpu="mi300x", n_regs=255, num_warps=1, shared=65000, num_ctas=1)
@example(gpu="h100", n_regs=32, num_warps=8, shared=60000, num_ctas=8)
def test_one_of_a_thing_is_singular(
    gpu: str, n_regs: int, num_warps: int, shared: int, num_ctas: int
) -> None:
    """A word that is counted once is singular."""
    clusters = num_ctas if gpu in {"h100", "b200"} else 1
    page = str(
        calculate_occupancy(
            gpu, n_regs=n_regs, shared=shared, num_warps=num_warps, num_ctas=clusters
        )
    )
    assert not ONE_OF_MANY.search(page), ONE_OF_MANY.search(page)
