"""What tuning learns from a kernel's source: the kernel's identity, and what else may be tried.

The identity is a digest of all source from which Triton would compile the kernel. Triton's own
`cache_key` also covers the line at which a function starts and the source of Triton's library.
Neither makes another kernel, but with them a file would be useless under another Triton, or once a
line is added above the kernel. The digest leaves both out.

A tile is changed only if the given configurations have several sizes of it: with them the author
vouches that the kernel is right with any size. That a launch with another size still reads and
writes the same is checked where it is counted.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import inspect
import itertools
from types import ModuleType
from typing import TYPE_CHECKING, Any

from occupancy_lab.kernel import innermost, triton_class
from occupancy_lab.tiles import source_of, tile_names
from occupancy_lab.tuning.autotuner import early_config_prune

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from occupancy_lab.tuning.tuned_file import Size

    Settings = Mapping[str, Any]

PLAIN = (bool, int, float, str)
"""The types of globals that a kernel may use as constants."""


def source_digest(kernel: Any) -> str:
    """Return a digest of the source of *kernel*, with or without autotune and heuristics.

    It covers the Triton functions that the kernel calls, directly or not, and the constants of
    modules and of enclosing functions that any of them uses. Comments count, as in Triton's key.
    """
    hasher = hashlib.sha256()
    for text in _texts(innermost(kernel), set()):
        hasher.update(f"{len(text)} {text}".encode())
    return hasher.hexdigest()


def _texts(function: Any, seen: set[int]) -> Iterator[str]:
    """Return the source of *function* and of everything it uses, in the order of the names."""
    seen.add(id(function))
    source = source_of(function)
    yield source
    yield f"noinline {bool(getattr(function, 'noinline', False))}"
    closure = inspect.getclosurevars(function.fn)
    scope = {**function.fn.__globals__, **closure.nonlocals}
    for name, value in _used(ast.parse(source), scope):
        if _is_function(value):
            if id(value) not in seen:
                yield from _texts(value, seen)
        elif isinstance(value, PLAIN) or type(value).__name__ == "constexpr":
            yield f"{name} = {getattr(value, 'value', value)!r}"


def _is_function(value: Any) -> bool:
    """Return whether *value* is a user's function that Triton compiles or evaluates."""
    function = getattr(value, "fn", None)
    return inspect.isfunction(function) and not str(function.__module__).startswith("triton.")


def _used(tree: ast.AST, scope: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the outside objects that *tree* uses, each with its name."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in own and node.id in scope:
            yield node.id, scope[node.id]
        elif isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            first, *parts = dotted.split(".")
            if first in own or not all(map(str.isidentifier, (first, *parts))):
                continue
            value = scope.get(first)
            for part in parts:
                value = getattr(value, part, None) if isinstance(value, ModuleType | type) else None
            yield dotted, value


TILES = (16, 2**16)
WARPS = (1, 16)
STAGES = (1, 7)
"""The least and the most of each setting that are tried."""


def autotuner_of(kernel: Any) -> Any | None:
    """Return the autotuner of *kernel*, which heuristics may enclose; None if it has none."""
    while triton_class(kernel) == "Heuristics":
        kernel = kernel.fn
    return kernel if triton_class(kernel) == "Autotuner" else None


def as_compared(kernel: Any) -> Any:
    """Return *kernel* as its author configured it: without `tuned` and without ranking.

    The package's own hooks drop and rank for this machine's GPU; an author's early_config_prune
    stays, because it says what is right.
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
    """Return *kernel* with only its heuristics, for launches whose configuration is given."""
    if triton_class(kernel) == "Autotuner":
        return without_autotuner(kernel.fn)
    if triton_class(kernel) != "Heuristics":
        return kernel
    copied = copy.copy(kernel)
    copied.fn = without_autotuner(kernel.fn)
    return copied


def free_tiles(kernel: Any, configs: Sequence[Settings]) -> list[str]:
    """Return the tiles of *kernel* that have several sizes in *configs*, all powers of two."""
    found = []
    for name in sorted(tile_names(innermost(kernel))):
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
