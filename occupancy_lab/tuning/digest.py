"""Which kernel this is: a digest of all source that Triton would compile it from.

Triton's own `cache_key` has the line at which a function starts and the source of Triton's library
too. Neither says that a kernel is another one, so that a file made with one Triton, or before a
line was added above the kernel, would be of no use: both are left out.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import textwrap
from types import ModuleType
from typing import TYPE_CHECKING, Any

from occupancy_lab.kernel import innermost

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN = (bool, int, float, str)
"""The types of globals that a kernel may use as constants."""


def source_digest(kernel: Any) -> str:
    """Return a digest of the source of *kernel*, with or without autotune and heuristics.

    The functions of Triton that it calls, and theirs, are part of it, and so are the constants of
    modules and of functions around it that any of them uses. Comments count, as in Triton's key.
    """
    hasher = hashlib.sha256()
    for text in _texts(innermost(kernel), set()):
        hasher.update(f"{len(text)} {text}".encode())
    return hasher.hexdigest()


def _texts(function: Any, seen: set[int]) -> Iterator[str]:
    """Return the source of *function* and of what it uses, in the order in which it names them."""
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


def source_of(function: Any) -> str:
    """Return the text of a function of Triton from `def` on, which interpreted ones do not keep."""
    source = getattr(function, "src", None)
    if source is None:
        lines = textwrap.dedent(inspect.getsource(function.fn))
        first = re.search(r"^def\s", lines, re.MULTILINE)
        source = lines[first.start() if first else 0 :]
    return str(source)


def _is_function(value: Any) -> bool:
    """Tell whether it is a function of the user's that Triton compiles or evaluates."""
    function = getattr(value, "fn", None)
    return inspect.isfunction(function) and not str(function.__module__).startswith("triton.")


def _used(tree: ast.AST, scope: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return what *tree* finds outside of itself, by the names under which it does, each once."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in own and node.id in scope:
            yield node.id, scope[node.id]
        elif isinstance(node, ast.Attribute) and (parts := _dotted(node)) and parts[0] not in own:
            value = scope.get(parts[0])
            for part in parts[1:]:
                value = getattr(value, part, None) if isinstance(value, ModuleType | type) else None
            yield ".".join(parts), value


def _dotted(node: ast.Attribute) -> list[str]:
    """Return the names of a.b.c; none of them where it starts with anything but a name."""
    inner = node.value
    if isinstance(inner, ast.Name):
        return [inner.id, node.attr]
    if isinstance(inner, ast.Attribute) and (before := _dotted(inner)):
        return [*before, node.attr]
    return []
