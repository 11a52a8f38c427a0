"""What a cache entry shows of its kernel's launch: constexprs, argument types, source line.

Triton's cache does not keep the values of constexprs. Those that are certain are taken from

- the compiler's first text: if it has a range of 1024 at a place where the source file has
  `tl.arange(0, NAME)`, NAME is 1024;
- torchinductor's *.best_config files, which name the entry of their configuration.

Others are left out, and a file that changed after the compile is not used.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from occupancy_lab.files import read_bytes

FIRST_PLACE = re.compile(r'#loc = loc\("((?:[^"\\]|\\.)*)":(\d+):(\d+)')
"""The place of the function: its column is the number of the first, 0 or, from Triton 3.8 on, 1."""
PLACE = re.compile(r'loc\("((?:[^"\\]|\\.)*)":(\d+):(\d+)')
NAMED = re.compile(r'loc\("(?:[^"\\]|\\.)*"\((#loc\d*)\)\)')
RANGE = re.compile(r"tt\.make_range \{end = (\d+) : i32, start = 0 : i32\}[^\n]* loc\((#loc\d*)\)")
ARGUMENT = re.compile(r"%(\w+): ((?:!tt\.\w+<(?:[^<>]|<[^<>]*>)*>|\w+))((?: \{[^}]*\})?)")
DIVISIBLE = re.compile(r"tt\.divisibility = (\d+)")
DESCRIPTOR = re.compile(r"tensor<((?:\d+x)+)(\w+)")
MOST_LINKS = 8
"""How many named locations are followed to a place of the source."""
LONGEST_FILE = 4 << 20
TYPES = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "f8E4M3FN": "fp8e4nv", "f8E5M2": "fp8e5"}
"""MLIR types whose name in a Triton signature is another."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a launch, as the kernel was compiled for it."""

    name: str
    type: str
    """The type as in a signature: "*fp32", "i32"."""
    divisible: int | None = None
    """A known divisor of its value or address; None if there is none."""

    def __str__(self) -> str:
        """Return the type with its divisibility: "*fp32:16"."""
        return self.type if self.divisible is None else f"{self.type}:{self.divisible}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is known of a kernel's launch; unknown fields are empty."""

    constexprs: Mapping[str, Any]
    parameters: tuple[Parameter, ...] = ()
    """The arguments that the compiled kernel takes: not constexprs, None or integers that are 1."""
    source: str = ""
    """The file and line of its function: "softmax.py:24"."""
    program: str = ""
    """A digest of the compiler's first text."""
    function: ast.FunctionDef | None = None
    """The source of its function, if unchanged since the compile."""

    @property
    def arguments(self) -> str:
        """The types of the arguments with their divisibility: "*fp32:16, i32"."""
        return ", ".join(map(str, self.parameters))

    @property
    def grid_type(self) -> str:
        """The grid type in the `inductor_meta` of torchinductor's decorator; "" for others."""
        decorators = () if self.function is None else self.function.decorator_list
        for decorator in decorators:
            for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
                if keyword.arg == "inductor_meta" and isinstance(keyword.value, ast.Dict):
                    for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                        match key, value:
                            case ast.Constant("grid_type"), ast.Constant(str(name)):
                                return name
        return ""


def read_recorded(text: str, compiled: float, tuned: Mapping[str, Any]) -> Recorded:
    """Return what the compiler's first *text* and the *tuned* constexprs show of a kernel.

    *compiled* is the time of the compile in seconds, as in `os.stat`.
    """
    place = FIRST_PLACE.search(text)
    program = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16] if text else ""
    if place is None:
        return Recorded(dict(tuned), (*_parameters(text),), program=program)
    file, line = place[1], int(place[2])
    changed, functions = _functions(file)
    function = functions.get(line) if changed <= compiled else None
    names = {} if function is None else _ranges(function)
    found = dict(_constexprs(text, file, names, int(place[3]))) if names else {}
    where = f"{file}:{line}"
    return Recorded(found | dict(tuned), (*_parameters(text),), where, program, function)


def _parameters(text: str) -> Iterator[Parameter]:
    start = text.find("tt.func public @")
    header = text[start : text.find("\n", start)] if start >= 0 else ""
    parts = ""
    for name, kind, attributes in ARGUMENT.findall(header):
        if parts and re.fullmatch(rf"{re.escape(parts)}_\d+", name):
            continue  # the sizes and strides of a descriptor
        parts = name if kind.startswith("!tt.tensordesc") else ""
        divisible = DIVISIBLE.search(attributes)
        yield Parameter(name, _type(kind), int(divisible[1]) if divisible else None)


def _type(kind: str) -> str:
    if kind.startswith("!tt.ptr<"):
        return f"*{_element(kind.removeprefix('!tt.ptr<').rstrip('>').partition(',')[0])}"
    descriptor = DESCRIPTOR.search(kind)
    if descriptor:
        shape = descriptor[1].rstrip("x").replace("x", ", ")
        return f"tensordesc<{_element(descriptor[2])}[{shape}]>"
    return _element(kind)


def _element(name: str) -> str:
    return TYPES.get(name, name)


def _constexprs(
    text: str, file: str, names: Mapping[tuple[int, int], str], first_column: int
) -> Iterator[tuple[str, int]]:
    """Return the constexprs that are lengths of ranges, except those with two lengths."""
    found: dict[str, set[int]] = {}
    for end, place in set(RANGE.findall(text)):
        where = _resolved(text, place)
        if where is None or where[0] != file:
            continue
        name = names.get((where[1], where[2] - first_column))
        if name is not None:
            found.setdefault(name, set()).add(int(end))
    for name in sorted(found):
        if len(found[name]) == 1:
            yield name, found[name].pop()


def _resolved(text: str, place: str) -> tuple[str, int, int] | None:
    for _ in range(MOST_LINKS):
        start = text.find(f"\n{place} = ") + 1
        if not start:
            return None
        line = text[start : text.find("\n", start)].partition(" = ")[2]
        if exact := PLACE.fullmatch(line.rstrip(")")):
            return exact[1], int(exact[2]), int(exact[3])
        named = NAMED.fullmatch(line)
        if named is None:
            return None
        place = named[1]
    return None


def forget_sources() -> None:
    """Read sources again from now on, because they may have changed."""
    _ranges.cache_clear()
    _functions.cache_clear()


@cache
def _functions(file: str) -> tuple[float, Mapping[int, ast.FunctionDef]]:
    """Return the time of *file*'s last change, and its functions by line.

    There are none if the file is missing or not Python.
    """
    try:
        changed = Path(file).stat().st_mtime
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(read_bytes(file, LONGEST_FILE))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return 0.0, {}
    functions = {}
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        left += getattr(node, "body", ()) if isinstance(node, ast.stmt | ast.Module) else ()
        if isinstance(node, ast.FunctionDef):
            functions[node.lineno] = node
    return changed, functions


@cache
def _ranges(function: ast.FunctionDef) -> Mapping[tuple[int, int], str]:
    """Return the NAME of each `arange(0, NAME)` in *function* whose NAME is a constexpr.

    The keys are the line and column of the call, and of NAME; Triton's texts have one of them.
    """
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    constexprs = {
        one.arg
        for one in arguments
        if one.annotation is not None and ast.unparse(one.annotation).endswith("constexpr")
    }
    assigned = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    found = {}
    for node in ast.walk(function):
        match node:
            case ast.Call(
                ast.Attribute(_, "arange"), [ast.Constant(0), ast.Name(name) as last], []
            ) if name in constexprs - assigned:
                found[node.lineno, node.col_offset] = name
                found[last.lineno, last.col_offset] = name
    return found


def read_tuned(files: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the blocks in torchinductor's files of best configurations, by cache entry.

    Only the names of blocks are in capitals (XBLOCK, R0_BLOCK) in such a file.
    """
    found: dict[str, dict[str, int]] = {}
    for file in files:
        try:
            best = json.loads(read_bytes(file, LONGEST_FILE))
        except (OSError, ValueError, RecursionError):
            continue
        entry = best.get("triton_cache_hash") if isinstance(best, dict) else None
        if isinstance(entry, str):
            found[entry] = {
                name: value for name, value in best.items() if name.isupper() and type(value) is int
            }
    return found
