"""The identity of a kernel: a digest of all source from which Triton would compile it.

Triton's own `cache_key` also covers the line at which a function starts and the source of Triton's
library. Neither makes another kernel, but with them a file of tuned configurations would be useless
under another Triton, or once a line is added above the kernel. The digest leaves both out.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from occupancy_lab.kernel import innermost
from occupancy_lab.tiles import source_of

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
