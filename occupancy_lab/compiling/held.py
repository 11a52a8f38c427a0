"""Finds the values of small integer tensors that a launch only reads."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from occupancy_lab.kernel import Variant

MOST_TOLD = 1 << 18
"""The largest number of values that a launch keeps of a tensor."""
TENSORS = {"Tensor", "Parameter", "Buffer"}
"""The classes of torch's tensors that have values; tensors of other classes may have none."""


def with_values(
    found: Iterable[Variant],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    read: Callable[[Any], tuple[int, ...] | None],
) -> list[Variant]:
    """Return the variants of a launch together with the values of its tensors.

    *read* returns the values of an argument, or None. Tensors that the kernel may write to are left
    out.
    """
    variants = list(found)
    if not variants:
        return []
    function = variants[0].function
    written = written_parameters(function)
    named = {**dict(zip(function.arg_names, arguments, strict=False)), **keywords}
    read_values = {name: read(value) for name, value in named.items() if name not in written}
    values = {name: known for name, known in read_values.items() if known is not None}
    return [
        dataclasses.replace(one, launch=dataclasses.replace(one.launch, values=values))
        for one in variants
    ]


def held_on_cpu(argument: Any) -> tuple[int, ...] | None:
    """Return the whole numbers or bools from a tensor's address to the end of its storage.

    None for anything but a torch tensor on the CPU, for floats, and for more than MOST_TOLD values.
    """
    if not getattr(argument, "is_cpu", False) or type(argument).__name__ not in TENSORS:
        return None
    if argument.is_floating_point() or argument.is_complex():
        return None
    places = argument.untyped_storage().nbytes() // argument.element_size()
    count = places - argument.storage_offset()
    if not 0 < count <= MOST_TOLD:
        return None
    return tuple(argument.detach().as_strided((count,), (1,)).long().tolist())


WRITES = re.compile("store|atomic|to_global|asm|scatter")
"""Matches the names of Triton's functions that write to their arguments."""
READS = re.compile("load|gather")
"""Matches the names of Triton's functions that return what they read, never an address."""

TYPES = {"dtype", "type", "shape"}
"""Attributes of an address that are no address."""


def written_parameters(function: Any) -> frozenset[str]:
    """Return the parameters of a JITFunction through which it may write."""
    return _read(function, ())[0]


@cache
def _read(function: Any, callers: tuple[Any, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the parameters that *function* may write to, and those whose address it returns."""
    every = frozenset(getattr(function, "arg_names", ()))
    try:
        body = ast.parse(function.src)
    except (AttributeError, SyntaxError, TypeError):
        return every, every
    if function in callers:
        return every, every
    reader = _Reader(function, callers)
    for _ in range(len(every)):  # until no name stands for another address
        before = sum(map(len, reader.roots.values()))
        reader.visit(body)
        if sum(map(len, reader.roots.values())) == before:
            break
    return reader.written & every, reader.returned & every


class _Reader(ast.NodeVisitor):
    """Finds which parameters' addresses each name may stand for, and which are written to."""

    def __init__(self, function: Any, callers: tuple[Any, ...]) -> None:
        self._function = function
        self._callers = (*callers, function)
        self.roots: dict[str, set[str]] = {name: {name} for name in function.arg_names}
        self.written: frozenset[str] = frozenset()
        self.returned: frozenset[str] = frozenset()

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._assign(target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        self._assign(node.target, node.value)

    def visit_For(self, node: ast.For) -> None:
        self._assign(node.target, node.iter)
        self.generic_visit(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        for part in ast.walk(target):
            if isinstance(part, ast.Name):
                self.roots.setdefault(part.id, set()).update(self._of(value))

    def visit_Return(self, node: ast.Return) -> None:
        self.generic_visit(node)
        self.returned |= self._of(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        called, name = self._called(node), _dotted(node.func)[-1:]
        if called is not None:
            given = self._given(node, called, _read(called, self._callers)[0])
        elif name and WRITES.search(name[0]):
            given = list(ast.iter_child_nodes(node))
        else:
            return
        for one in given:
            self.written |= self._of(one)

    @staticmethod
    def _given(node: ast.Call, called: Any, names: frozenset[str]) -> list[ast.AST]:
        """Return the arguments of a call for the parameters *names* of the function *called*."""
        given = dict(zip(called.arg_names, node.args, strict=False))
        given |= {one.arg: one.value for one in node.keywords}
        return [value for name, value in given.items() if name in names]

    def _called(self, node: ast.Call) -> Any:
        """Return the JITFunction that is called, or None for a function of Triton's language."""
        found: Any = getattr(self._function, "__globals__", {})
        for name in _dotted(node.func):
            found = found.get(name) if isinstance(found, dict) else getattr(found, name, None)
        return found if hasattr(found, "arg_names") and hasattr(found, "src") else None

    def _of(self, node: ast.AST) -> frozenset[str]:
        if isinstance(node, ast.Name):
            return frozenset(self.roots.get(node.id, ()))
        if isinstance(node, ast.Compare) or (
            isinstance(node, ast.Attribute) and node.attr in TYPES
        ):
            return frozenset()
        parts = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.Call):
            called, name = self._called(node), _dotted(node.func)[-1:]
            if called is not None:
                parts = self._given(node, called, _read(called, self._callers)[1])
            elif name and READS.search(name[0]):
                parts = []
        return frozenset(root for part in parts for root in self._of(part))


def _dotted(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [*_dotted(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else []
