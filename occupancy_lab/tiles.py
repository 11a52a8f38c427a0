"""Finds in a kernel's source which constexprs set the size of its tiles."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

SHAPED = frozenset(
    {
        *("arange", "zeros", "full", "make_block_ptr", "make_tensor_descriptor"),
        *("broadcast_to", "reshape", "view"),
    }
)
"""The functions of `triton.language` whose arguments are tile sizes, or depend on them."""


def source_of(function: Any) -> str:
    """Return a Triton function's source from `def` on, which interpreted ones do not keep."""
    source = getattr(function, "src", None)
    if source is None:
        lines = textwrap.dedent(inspect.getsource(function.fn))
        first = re.search(r"^def\s", lines, re.MULTILINE)
        source = lines[first.start() if first else 0 :]
    return str(source)


def tile_names(function: Any) -> frozenset[str]:
    """Return the constexprs of a JITFunction that are sizes of tiles; none without its source.

    These are arguments of tl.arange, tl.zeros and the like. An argument passed to another function
    of Triton counts if it is a tile size there; one passed to any other function that is not built
    in always counts.
    """
    return _tiles(function, ())


def _tiles(function: Any, around: tuple[Any, ...]) -> frozenset[str]:
    """Return the tiles of *function*, which is called by those *around* it."""
    try:
        calls = _calls(source_of(function))
        scope = {**function.fn.__globals__, **inspect.getclosurevars(function.fn).nonlocals}
    except (AttributeError, OSError, SyntaxError, TypeError, ValueError):
        return frozenset()
    found = {
        part.id
        for call in calls
        for one in _sizes(call, scope, (*around, function))
        for part in ast.walk(one)
        if isinstance(part, ast.Name)
    }
    return frozenset(found & {one.name for one in function.params if one.is_constexpr})


@functools.lru_cache(maxsize=256)
def _calls(source: str) -> tuple[ast.Call, ...]:
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))


def _sizes(call: ast.Call, scope: Mapping[str, Any], around: tuple[Any, ...]) -> Iterator[ast.expr]:
    """Return the arguments of *call* that are tile sizes."""
    named = {one.arg: one.value for one in call.keywords}
    called = call.func
    if isinstance(called, ast.Attribute) and called.attr in SHAPED:
        yield from (*call.args, *named.values())
    if not isinstance(called, ast.Name) or called.id in vars(builtins):
        return
    other: Any = scope.get(called.id)
    if not hasattr(other, "params"):
        yield from (*call.args, *named.values())
    elif other not in around:
        passed = {**dict(zip((one.name for one in other.params), call.args, strict=False)), **named}
        tiles = _tiles(other, around)
        yield from (value for name, value in passed.items() if name in tiles)
