"""A kernel in MLIR: operations in blocks in regions, each with a place in the source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from occupancy_lab.work.counts import Place

MOST_BITS = 128
DEEPEST = 64
"""The deepest nesting of regions, of calls and of locations."""
OPERAND = re.compile(r"%([\w$.\-]+)(?:#(\d+))?")
_BLOCK_TARGET = re.compile(r"\^([\w$.\-]+)(\((?:[^()]|\([^()]*\))*\))?")
DTYPES: Mapping[str, str] = {
    "f64": "fp64",
    "f32": "fp32",
    "tf32": "tf32",
    "f16": "fp16",
    "bf16": "bf16",
    "f8E4M3FN": "fp8e4nv",
    "f8E5M2": "fp8e5",
    "f8E4M3FNUZ": "fp8e4b8",
    "f8E5M2FNUZ": "fp8e5b16",
    "f8E4M3": "fp8e4nv",
    "f8E4M3B11FNUZ": "fp8e4b15",
    "f8E8M0FNU": "fp8e8",
    "f4E2M1FN": "fp4e2m1",
}
"""Triton's name of each floating-point type of MLIR."""
UNKNOWN_PLACE = Place("", 0)
_ALIAS = re.compile(r"^[ \t]*(#[\w$.\-]+) = loc\((.*)\)\s*$", re.MULTILINE)
_NAMED = re.compile(r'"((?:[^"\\]|\\.)*)"\((.*)\)')


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a value: a number, a pointer, a tensor of either, or a descriptor."""

    element: str
    """MLIR's name of the type (i32, f16, index), "ptr" or "desc"."""
    shape: tuple[int, ...] = ()
    pointee: Type | None = None
    """What a pointer or a descriptor points to: a number, or a tensor for a block."""

    @property
    def bits(self) -> int:
        """Bits of an element; 64 for a pointer and an index."""
        digits = re.match(r"[a-z]+(\d+)", self.element)
        return min(int(digits[1][:4]), MOST_BITS) if digits else 64

    @property
    def item_bytes(self) -> int:
        """Bytes of an element in memory."""
        return (self.bits + 7) // 8

    @property
    def is_float(self) -> bool:
        """Whether its elements are floating-point numbers."""
        return self.element in DTYPES

    @property
    def is_address(self) -> bool:
        """Whether its elements are addresses in memory."""
        return self.element in {"ptr", "desc"}

    @property
    def dtype(self) -> str:
        """Triton's name of its elements' type."""
        return DTYPES.get(self.element, "int1" if self.element == "i1" else self.element)


@dataclass(eq=False, slots=True, repr=False)
class Value:
    """A result of an operation, or an argument of a block or a function."""

    name: str
    type: Type
    operation: Operation | None = None
    """The operation that makes it; None for an argument of a block."""
    index: int = 0
    """Its index among the results or the arguments."""
    block: Block | None = None


@dataclass(eq=False, slots=True, repr=False)
class Block:
    """A sequence of operations, with arguments."""

    name: str
    region: Region
    arguments: list[Value] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


@dataclass(eq=False, slots=True, repr=False)
class Region:
    """The blocks of an operation's body."""

    blocks: list[Block]
    operation: Operation


@dataclass(eq=False, slots=True, repr=False)
class Operation:
    """One operation: `results = name operands attributes : types`."""

    name: str
    results: list[Value]
    operands: list[Value]
    text: str
    """The text after the name, without types and location, and with strings emptied."""
    types: str
    """The text after the last " : "."""
    location: str
    regions: list[Region] = field(default_factory=list)
    block: Block | None = None

    def number(self, name: str) -> int:
        """Return the integer value of the attribute *name*; 0 where it is missing."""
        found = re.search(rf"\b{name} = (-?\d+)", self.text)
        return int(found[1]) if found else 0

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return the integers of the array attribute *name*."""
        found = re.search(rf"\b{name} = (?:array<i\d+: ?([^>]*)>|\[([^\]]*)\])", self.text)
        listed = (found[1] or found[2] or "") if found else ""
        return tuple(int(one) for one in re.findall(r"-?\d+", re.sub(r":\s*i\d+", "", listed)))


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a module."""

    name: str
    is_public: bool
    operation: Operation

    @property
    def arguments(self) -> list[Value]:
        """Its parameters, with their names in the source."""
        return self.operation.regions[0].blocks[0].arguments

    @property
    def body(self) -> Region:
        """Its blocks."""
        return self.operation.regions[0]


@dataclass(frozen=True, slots=True)
class Module:
    """A kernel and the functions that it calls."""

    functions: Mapping[str, Function]
    locations: Mapping[str, str]
    _places: dict[str, Place | None] = field(default_factory=dict)

    @property
    def kernel(self) -> Function:
        """The function that is launched."""
        return next(one for one in self.functions.values() if one.is_public)

    def place(self, operation: Operation) -> Place:
        """Return the place of *operation* in the source; UNKNOWN_PLACE where there is none."""
        return self._place(operation.location) or UNKNOWN_PLACE

    def _place(self, location: str, depth: int = 0) -> Place | None:
        if location not in self._places:
            self._places[location] = self._read_place(location, depth) if depth < DEEPEST else None
        return self._places[location]

    def _read_place(self, location: str, depth: int) -> Place | None:  # noqa: PLR0911 - one a form
        if location.startswith("#"):
            found = self.locations.get(location, "unknown")
            return self._place(found, depth + 1)
        if match := re.fullmatch(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)(?: to .*)?', location):
            return Place(match[1], int(match[2]), int(match[3]))
        if match := _NAMED.fullmatch(location):
            return self._place(match[2], depth + 1)
        if location.startswith("callsite("):
            callee, _, caller = location[len("callsite(") : -1].partition(" at ")
            inner, outer = self._place(callee, depth + 1), self._place(caller, depth + 1)
            if inner is None or outer is None:
                return inner or outer
            calls = (*inner.called_from, replace(outer, called_from=()), *outer.called_from)
            return replace(inner, called_from=calls)
        if match := re.match(r"fused(?:<.*?>)?\[(.*)\]$", location):
            places = [self._place(one, depth + 1) for one in split(match[1])]
            return next((one for one in places if one is not None), None)
        return None


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """Return the type that *text* names; for an unknown type the text is the element."""
    text = text.strip()
    if match := re.fullmatch(r"tensor<((?:\d+x)*)(.*)>", text):
        inner = parse_type(match[2].partition(", #")[0])
        sizes = tuple(int(one) for one in match[1].split("x") if one)
        return Type(inner.element, sizes, inner.pointee)
    if match := re.fullmatch(r"!tt\.ptr<(.*?)(?:, \d+)?>", text):
        return Type("ptr", (), parse_type(match[1]) if "!tt.ptr<!tt.ptr<!tt" not in text else None)
    if match := re.fullmatch(r"!tt\.tensordesc<(.*)>", text):
        inside = match[1] if match[1].startswith("tensor<") else f"tensor<{match[1]}>"
        return Type("desc", (), parse_type(inside))
    return Type(text[:100])


@lru_cache(maxsize=4096)
def types_in(text: str) -> tuple[Type, ...]:
    """Return the types in *text*, a list separated by commas."""
    return tuple(map(parse_type, split(text)))


@lru_cache(maxsize=4096)
def result_types(  # noqa: C901, PLR0911 - a return for each way that types are written
    name: str, types: str, text: str
) -> tuple[Type, ...]:
    """Return the types of the results of operation *name*, which is written with *types*.

    These have the form "A", "A, B", "A -> B", "A to B" or "(A, B) -> (C, D)". Those of an operation
    with a region may be in its *text*.
    """
    for source in (types, text):
        if "->" in source:
            after = source.rpartition("-> ")[2] if "-> (" not in source else ""
            after = after or source.rpartition("-> (")[2].rpartition(")")[0]
            return types_in(after)
    if name in {"arith.cmpi", "arith.cmpf"}:
        return tuple(Type("i1", one.shape) for one in types_in(types))
    if name == "tt.load":
        (kind, *_) = types_in(types) or (Type("none"),)
        return (_loaded(kind),)
    if name == "tt.make_tensor_descriptor":
        inside = re.search(r"<(tensor<.*>)>\s*$|<([^<>]*)>\s*$", types)
        block = parse_type((inside[1] or f"tensor<{inside[2]}>") if inside else "none")
        return (Type("desc", (), block),)
    if name == "tt.make_tensor_ptr":
        found = types_in(types)
        kind = found[0] if found else Type("none")
        return (kind if kind.element == "ptr" else Type("ptr", (), kind),)
    if name == "arith.constant":
        if types:
            return types_in(types)
        return (Type("i1"),) if re.search(r"\b(true|false)\b", text) else (Type("none"),)
    if " to " in types:
        return (parse_type(types.rpartition(" to ")[2]),)
    found = types_in(types)
    if name == "arith.select":
        return found[-1:]
    return found[:1]


def _loaded(pointer: Type) -> Type:
    inside = pointer.pointee
    if inside is None:
        return Type("none", pointer.shape)
    return Type(inside.element, pointer.shape or inside.shape, inside.pointee)


def locations_of(text: str) -> dict[str, str]:
    """Return the named locations in *text*, such as #loc1."""
    return dict(_ALIAS.findall(text))


def first_name(location: str, locations: Mapping[str, str]) -> str | None:
    """Return the first name of a value; None where *location* has no name.

    Each variable of the source that is set to the value wraps another name around its location.
    """
    name = None
    for _ in range(DEEPEST):
        match = _NAMED.fullmatch(locations.get(location, location))
        if match is None:
            break
        name, location = match[1], match[2]
    return name


def split(text: str) -> list[str]:
    """Return the parts of *text* between commas outside of brackets and strings."""
    parts, start = [], 0
    for match in outside_brackets(",", text):
        parts.append(text[start : match.start()].strip())
        start = match.end()
    return [one for one in (*parts, text[start:].strip()) if one]


def outside_brackets(wanted: str, text: str) -> Iterator[re.Match[str]]:
    """Yield the occurrences of *wanted* in *text* outside of brackets and strings."""
    depth, inside = 0, False
    for match in re.finditer(rf'["<({{\[]|(?<!-)[>)}}\]]|\\.|{wanted}', text):
        what = match[0]
        if what == '"':
            inside = not inside
        elif inside or what.startswith("\\"):
            continue
        elif what != wanted:
            depth += 1 if what in "<({[" else -1
        elif not depth:
            yield match


def without_location(line: str) -> tuple[str, str]:
    """Return *line* without the location at its end, and the location."""
    start = line.rfind(" loc(")
    while start > 0 and closing(line, start + 4) != len(line) - 1:
        start = line.rfind(" loc(", 0, start)
    if start <= 0:
        return line, ""
    return line[:start].rstrip(), line[start + 5 : -1]


def closing(text: str, start: int) -> int:
    """Return where the bracket that opens at *start* closes; -1 where it does not."""
    depth = 0
    inside = False
    for match in re.finditer(r'["()]|\\.', text[start:]):
        if match[0] == '"':
            inside = not inside
        elif not inside and match[0] in "()":
            depth += 1 if match[0] == "(" else -1
            if not depth:
                return start + match.start()
    return -1


def operations_of(region: Region) -> Iterator[Operation]:
    """Yield the operations of *region* and of all regions inside it."""
    stack = [iter(one.operations) for one in reversed(region.blocks)]
    while stack:
        for operation in stack[-1]:
            yield operation
            if operation.regions:
                blocks = [block for each in operation.regions for block in each.blocks]
                stack += [iter(one.operations) for one in reversed(blocks)]
                break
        else:
            stack.pop()


def targets(operation: Operation) -> list[tuple[str, int, int]]:
    """Return the name of each block that a branch goes to, and the range of operands it passes.

    The condition of a `cf.cond_br` is operand 0.
    """
    found, place = [], int(operation.name == "cf.cond_br")
    for name, passed in _BLOCK_TARGET.findall(operation.text):
        count = len(OPERAND.findall(passed.partition(" : ")[0]))
        found.append((name, place, place + count))
        place += count
    return found
