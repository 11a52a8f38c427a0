"""Which configurations there are besides those that are given: tiles, warps and stages.

A tile is changed only where the configurations given have several sizes of it: that is the author's
word that the kernel is right with any. That a launch with another one still reads and writes the
same is checked where it is counted.
"""

from __future__ import annotations

import ast
import builtins
import copy
import itertools
from typing import TYPE_CHECKING, Any

from occupancy_lab.kernel import innermost, triton_class
from occupancy_lab.tuning.autotuner import early_config_prune
from occupancy_lab.tuning.digest import source_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from occupancy_lab.tuning.tuned_file import Size

    Settings = Mapping[str, Any]

SHAPED = frozenset(
    {
        *("arange", "zeros", "full", "make_block_ptr", "make_tensor_descriptor"),
        *("broadcast_to", "reshape", "view"),
    }
)
"""The functions of `triton.language` whose arguments have the size of a tile, or go by it."""
TILES = (16, 2**16)
WARPS = (1, 16)
STAGES = (1, 7)
"""The least and the most of each that are tried."""


def autotuner_of(kernel: Any) -> Any | None:
    """Return the autotuner of *kernel*, which heuristics may be around; None where it has none."""
    while triton_class(kernel) == "Heuristics":
        kernel = kernel.fn
    return kernel if triton_class(kernel) == "Autotuner" else None


def as_compared(kernel: Any) -> Any:
    """Return *kernel* as its own author has it configured: without `tuned`, and nothing ranked.

    What the package's own hooks drop and rank is by the GPU at hand; an early_config_prune of the
    author's says what is right.
    """
    kernel = getattr(kernel, "untuned", kernel)
    if triton_class(kernel) not in {"Autotuner", "Heuristics"}:
        return kernel
    copied = copy.copy(kernel)
    copied.fn = as_compared(kernel.fn)
    if triton_class(kernel) == "Autotuner":
        copied.perf_model = None
        if kernel.early_config_prune is early_config_prune:
            copied.early_config_prune = None
    return copied


def without_autotuner(kernel: Any) -> Any:
    """Return *kernel* with its heuristics alone, for launches whose configuration is given."""
    if triton_class(kernel) == "Autotuner":
        return without_autotuner(kernel.fn)
    if triton_class(kernel) != "Heuristics":
        return kernel
    copied = copy.copy(kernel)
    copied.fn = without_autotuner(kernel.fn)
    return copied


def tile_names(kernel: Any) -> frozenset[str]:
    """Return the constexprs of *kernel* that are sizes of tiles, or are handed to another function.

    These are arguments of tl.arange, tl.zeros and the like, and of what is no function of Triton's.
    """
    function = innermost(kernel)
    tree = ast.parse(source_of(function))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_shaped(node.func):
            inside = [*node.args, *(one.value for one in node.keywords)]
            found |= {
                part.id for one in inside for part in ast.walk(one) if isinstance(part, ast.Name)
            }
    constexprs = {one.name for one in getattr(function, "params", ()) if one.is_constexpr}
    return frozenset(found & constexprs)


def _is_shaped(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr in SHAPED
    return isinstance(function, ast.Name) and function.id not in vars(builtins)


def free_tiles(kernel: Any, configs: Sequence[Settings]) -> list[str]:
    """Return the tiles of *kernel* that have several sizes among *configs*, all powers of two."""
    found = []
    for name in sorted(tile_names(kernel)):
        sizes = {one.get(name) for one in configs}
        if len(sizes) > 1 and all(type(one) is int and one & (one - 1) == 0 for one in sizes):
            found.append(name)
    return found


def neighbours(config: Settings, tiles: Sequence[str]) -> Iterator[Settings]:
    """Return the configurations that differ from *config* in one step, or in two that go together.

    A step doubles or halves a tile or the warps, or is a stage more or less; together go a tile and
    the warps, and a tile and another one the other way round. *config* has num_warps and
    num_stages.
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
    """Return *config* with twice *name* or half of it; None where that is not tried."""
    least, most = WARPS if name == "num_warps" else TILES
    value = config[name] * 2 if up else config[name] // 2
    return {**config, name: value} if least <= value <= most else None


def larger(size: Size, configs: Sequence[Settings], tiles: Sequence[str]) -> Size | None:
    """Return a size of which no tile of *configs* holds a half; None where *size* is one.

    Its numbers are odd multiples, so that they divide by 16 where those of *size* do, for which
    Triton compiles the same.
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
