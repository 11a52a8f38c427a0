"""What else may be tried besides the configurations of a kernel that are given.

A tile is changed only if the given configurations have several sizes of it: with them the author
vouches that the kernel is right with any size. That a launch with another size still reads and
writes the same is checked where it is counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from occupancy_lab.tuning.tuned_file import Size

Settings = Mapping[str, Any]

TILES = (16, 2**16)
WARPS = (1, 16)
STAGES = (1, 7)
"""The least and the most of each setting that are tried."""


def free_tiles(tiles: Collection[str], configs: Sequence[Settings]) -> list[str]:
    """Return those of *tiles* that have several sizes in *configs*, all powers of two."""
    found = []
    for name in sorted(tiles):
        sizes = {one.get(name) for one in configs}
        if len(sizes) > 1 and all(type(one) is int and one & (one - 1) == 0 for one in sizes):
            found.append(name)
    return found


def neighbours(config: Settings, tiles: Sequence[str]) -> Iterator[Settings]:
    """Return the configurations that differ from *config* in one step, or in two combined steps.

    A step doubles or halves a tile or the warps, or adds or removes a stage. Two steps are combined
    for a tile and the warps in the same direction, and for two tiles in opposite directions.
    *config* has num_warps and num_stages.
    """
    for stages in (config["num_stages"] - 1, config["num_stages"] + 1):
        if STAGES[0] <= stages <= STAGES[1]:
            yield {**config, "num_stages": stages}
    scaled = [*tiles, "num_warps"]
    for place, up in itertools.product(range(len(scaled)), (True, False)):
        if (step := _scaled(config, scaled[place], up=up)) is None:
            continue
        yield step
        for other in scaled[place + 1 :]:
            second = _scaled(step, other, up=up if other == "num_warps" else not up)
            if second is not None:
                yield second


def _scaled(config: Settings, name: str, *, up: bool) -> Settings | None:
    """Return *config* with *name* doubled or halved, or None if that is not tried."""
    least, most = WARPS if name == "num_warps" else TILES
    value = config[name] * 2 if up else config[name] // 2
    return {**config, name: value} if least <= value <= most else None


def larger(size: Size, configs: Sequence[Settings], tiles: Sequence[str]) -> Size | None:
    """Return a size with at least twice any tile of *configs*; None if *size* already has.

    Its numbers are odd multiples of those of *size*, so that 16 divides the same ones, and Triton
    compiles the same binary.
    """
    numbers = [value for value in size.values() if type(value) is int and value > 0]
    largest = max((one[name] for one in configs for name in tiles), default=0)
    if not numbers or min(numbers) >= 2 * largest:
        return None
    factor = -(-2 * largest // min(numbers)) | 1
    return {
        name: value * factor if type(value) is int and value > 0 else value
        for name, value in size.items()
    }
