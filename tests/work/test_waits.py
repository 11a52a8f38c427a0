"""How long a warp waits at each instruction."""

import re
import struct
from itertools import pairwise

import pytest
from recorded_work import recorded_launches

from occupancy_lab.compiling.cubin import EM_CUDA, kernel_text, read_elf
from occupancy_lab.compiling.sass import BYTES
from occupancy_lab.work import operations
from occupancy_lab.work.slices import Block
from occupancy_lab.work.waits import (
    COPIES_LEFT_BIT,
    DEPBAR,
    GROUP_BIT,
    LDGDEPBAR,
    MEMORY_CYCLES,
    NO_GROUP,
    PRODUCTS_LEFT_BIT,
    RESULT_BIT,
    WAITED_BIT,
    WAITS_BIT,
    WARPGROUP,
    sass_events,
    waits,
)

ADD = 0x021
STALL = 4
NOTHING = 0x3F << RESULT_BIT
"""Control bits that set no scoreboard."""


def setting(opcode: int, scoreboard: int) -> int:
    """Return an instruction that sets a scoreboard until its result is there."""
    return opcode | (0x38 | scoreboard) << RESULT_BIT


def waiting(*scoreboards: int) -> int:
    """Return an addition that waits for scoreboards."""
    return ADD | NOTHING | operations.bits(scoreboards) << WAITED_BIT


def waited(words: list[int], loop: int | None = None, threads: int = 128) -> list[float]:
    """Return the waits at *words*, where those from *loop* on are a loop."""
    starts = {0, len(words)} if loop is None else {0, loop, len(words)}
    borders = sorted(starts)
    blocks = {
        start: Block(start, stop, None, [stop] if stop < len(words) else [])
        for start, stop in pairwise(borders)
    }
    if loop is not None:
        blocks[loop].successors.append(loop)
    often = {start: 1.0 if start != loop else 100.0 for start in blocks}
    found = waits(blocks, [STALL] * len(words), often, sass_events(words, threads))
    return [found.get(number, 0.0) for number in range(len(words))]


def test_the_first_use_of_a_load_waits() -> None:
    """Only the first instruction that waits for a load's scoreboard waits."""
    words = [setting(operations.LDG, 2), ADD | NOTHING, waiting(2), waiting(2)]
    assert waited(words) == [0, 0, MEMORY_CYCLES - 2 * STALL, 0]


def test_a_loop_waits_for_the_loads_of_the_pass_before() -> None:
    """A load at the end of a pass is waited for at the beginning of the next pass."""
    words = [ADD | NOTHING, waiting(3), setting(operations.LDG, 3)]
    assert waited(words, loop=1) == [0, MEMORY_CYCLES - STALL, 0]


@pytest.mark.parametrize(("left", "expected"), [(0, MEMORY_CYCLES - 2 * STALL), (1, 0.0)])
def test_groups_of_copies_may_go_on(left: int, expected: float) -> None:
    """DEPBAR waits for all groups of copies but those that may stay pending."""
    wait = DEPBAR | NOTHING | left << COPIES_LEFT_BIT
    words = [operations.LDGSTS | NOTHING, LDGDEPBAR | NOTHING, wait]
    assert waited(words) == [0, 0, expected]


def test_products_of_warp_groups_share_the_tensor_cores() -> None:
    """64 x 256 results take 128 cycles of each of two warp groups, one product after the other."""
    product = 0x1F0 | NOTHING | 31 << 53
    wait = WARPGROUP | NOTHING | 1 << WAITS_BIT
    words = [product | NO_GROUP << GROUP_BIT, product, wait]
    assert waited(words, threads=256) == [0, 0, 4 * 128 - 2 * STALL]


@pytest.mark.slow
def test_groups_are_read_as_nvdisasm_reads_them() -> None:
    """The number of pending groups and the ends of groups of products are as in nvdisasm."""
    seen = set()
    for launch in recorded_launches():
        if not launch.instructions:
            continue
        content = kernel_text(read_elf(launch.cubin, EM_CUDA, "a cubin"), launch.kernel).content
        for one in launch.instructions:
            low, high = struct.unpack_from("<2Q", content, one.offset // BYTES * BYTES)
            word = high << 64 | low
            if found := re.search(r"(\w+\.)?DEPBAR\.LE \w+, 0x(\w+)", one.sass):
                is_copies = found[1] is None
                assert word & 0x1FF == (DEPBAR if is_copies else WARPGROUP)
                left = word >> (COPIES_LEFT_BIT if is_copies else PRODUCTS_LEFT_BIT) & 63
                assert left == int(found[2], 16)
                assert is_copies or word >> WAITS_BIT & 1
                seen.add((is_copies, left))
            if re.search(r"\b[HIQ]GMMA\.", one.sass):
                assert (word >> GROUP_BIT & 7 == NO_GROUP) == ("gsb" not in one.sass)
    assert {(True, 0), (False, 0), (False, 1)} <= seen
