"""Control flow of warps, in instructions as ptxas writes them for Triton's kernels."""

import numpy as np
import pytest

from occupancy_lab.work.slices import read_code, slice_of
from occupancy_lab.work.threads import Launched
from occupancy_lab.work.warps import Warps

THREAD = 0x000EA20000002100_0000000000007919
"""S2R R0, SR_TID.X"""
ABOVE = 0x000FE20003F04270_0000000F0000780C
"""ISETP.GT.AND P0, PT, R0, 0xf, PT"""
SKIPS_NEXT = 0x002FEA0003800000_0000000000040947
"""@P0 BRA, past the next instruction"""
OF_ALL = 1 << 32
"""The bit that makes it @P0 BRA.U."""
MEETS = 0x000FEA0003800000_0000000000007941
"""BSYNC B0"""
EXIT = 0x000FEA0003800000_000000000000794D


@pytest.mark.parametrize(("jump", "warps"), [(SKIPS_NEXT | OF_ALL, 2), (SKIPS_NEXT, 3)])
def test_a_warp_takes_a_uniform_jump_as_a_whole(jump: int, warps: int) -> None:
    """BRA.U does not split a warp of which only half could jump.

    A warp that is split executes the code at the reconvergence point twice.
    """
    words = (THREAD, ABOVE, jump, MEETS, EXIT)
    code = read_code(b"".join(one.to_bytes(16, "little") for one in words), 90)
    places = [np.zeros((1, 1), np.uint32)] * 3
    launched = Launched(places, 64, 1024, lambda *_: None, lambda *_, **__: ())
    found = Warps(code, slice_of(code, frozenset()), launched).follow(100)
    assert found.is_whole
    assert {start: int(np.sum(one)) for start, one in found.executions.items()}[4] == warps
