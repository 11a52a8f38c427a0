"""A reader of TTIR, the text that Triton's front end makes of a kernel.

TTIR has no layouts on threads yet. It consists of MLIR's `arith`, `math`, `scf` and `cf` dialects
and Triton's `tt`, as printed by Triton 3.6 to 3.9, with an operation on each line. Unknown
operations are read like any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from occupancy_lab.errors import TtirError, quoted
from occupancy_lab.work import module as mlir
from occupancy_lab.work.module import Block, Function, Module, Operation, Region, Type, Value

MOST_CHARACTERS = 32 * 2**20
MOST_OPERATIONS = 100_000


def read_ttir(text: str) -> Module:
    """Return the module in *text*.

    Raises TtirError where it is no TTIR, or where it is too large or too deep.
    """
    if len(text) > MOST_CHARACTERS:
        _refuse(f"the TTIR has {len(text):,} characters, and {MOST_CHARACTERS:,} are read at most")
    if "ttg.num-warps" in text[:10_000] or "#ttg." in text[:10_000]:
        _refuse("the text is TTGIR, in which layouts are chosen already; give the kernel's TTIR")
    module = _Reader(text).module()
    kernels = [one for one in module.functions.values() if one.is_public]
    if len(kernels) != 1:
        _refuse(f"the TTIR has {len(kernels)} public functions, and a kernel's has one")
    _Calls(module.functions).expand(kernels[0].body, ())
    return module


def _refuse(sentence: str) -> NoReturn:
    raise TtirError(sentence)


_RESULTS = re.compile(r"%([\w$.\-]+)(?::(\d+))?")
_LINE = re.compile(r'(?:(%[^=]*?) = )?(?:"([\w.$]+)"|([\w.$]+))(.*)')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_LABEL = re.compile(r"\^([\w$.\-]+)(?:\((.*)\))?:")
_BOUNDS = re.compile(r"(?: unsigned)? %([\w$.\-]+) = (%\S+) to (%\S+) step (%\S+?)(?: |$)")
_CARRIED = re.compile(r"%([\w$.\-]+) = %([\w$.\-]+)(?:#(\d+))?")


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._number = 0
        self._count = 0
        self._names: dict[str, list[Value]] = {}
        self._open: list[Operation] = []
        self._functions: dict[str, Function] = {}
        self._locations = mlir.locations_of(text)

    def module(self) -> Module:
        for number, raw in enumerate(self._lines, 1):
            self._number = number
            line = raw.strip()
            if not line or line.startswith(("//", "#")):
                continue
            if line.startswith("}"):
                self._close(line)
            elif line.startswith("^"):
                self._label(line)
            elif not (line.startswith("module") and line.endswith("{")):
                self._operation(line)
        if self._open:
            _refuse(f"the TTIR ends within {quoted(self._open[-1].name)}; give the whole text")
        return Module(self._functions, self._locations)

    def _bad(self, what: str) -> NoReturn:
        _refuse(f"line {self._number} of the TTIR {what}")

    def _operation(self, line: str) -> None:
        line, location = mlir.without_location(line)
        opens = line.endswith("{")
        if opens:
            line = line[:-1].rstrip().removesuffix("(").rstrip()
        match = _LINE.fullmatch(line)
        if match is None:
            self._bad(f"is no operation: {quoted(line)}")
        self._count += 1
        if self._count > MOST_OPERATIONS:
            self._bad(f"is operation {self._count:,}; no more are read")
        name = match[2] or match[3]
        if name == "tt.func":
            self._function(match[4], location, opens=opens)
            return
        if not self._open:
            self._bad(f"is outside of a function: {quoted(line)}")
        head, types = _without_types(_STRING.sub('""', match[4]))
        operation = Operation(name, [], [], head, types, location)
        operation.block = self._block
        carried = self._carried(operation) if opens and name in {"scf.for", "scf.while"} else None
        if carried is None:
            operation.operands = [self._value(*one) for one in mlir.OPERAND.findall(head)]
        names = [(one, int(count or 1)) for one, count in _RESULTS.findall(match[1] or "")]
        self._block.operations.append(operation)
        if opens:
            self._enter(operation, carried or [])
        self._define(operation, names)

    def _define(self, operation: Operation, names: Sequence[tuple[str, int]]) -> None:
        """Give *operation* its results, whose types may only follow its regions."""
        wanted = sum(count for _, count in names)
        if not wanted:
            return
        types = mlir.result_types(operation.name, operation.types, operation.text)
        if len(types) < wanted:
            types = (*types, *[types[-1] if types else Type("none")] * (wanted - len(types)))
        results = [
            Value(names[0][0], one, operation, place) for place, one in enumerate(types[:wanted])
        ]
        operation.results = results
        start = 0
        for name, count in names:
            self._names[name] = results[start : start + count]
            start += count

    def _carried(self, operation: Operation) -> list[Value]:
        """Set what a loop is given, and return the arguments of its body."""
        pairs, given, arguments = _CARRIED.findall(operation.text), list[Value](), list[Value]()
        if operation.name == "scf.for":
            match = _BOUNDS.match(operation.text)
            if match is None:
                self._bad("is a loop without bounds")
            given = [self._value(*mlir.OPERAND.findall(match[place])[0]) for place in (2, 3, 4)]
            arguments, pairs = [Value(match[1], given[0].type)], pairs[1:]
        inits = [self._value(*one[1:]) for one in pairs]
        operation.operands = [*given, *inits]
        named = zip(pairs, inits, strict=True)
        return [*arguments, *(Value(one[0], value.type) for one, value in named)]

    def _function(self, text: str, location: str, *, opens: bool) -> None:
        match = re.match(r'\s+(public|private)?\s*@("[^"]*"|[\w$.\-]+)\(', text)
        if match is None or self._open:
            self._bad("is no function of a module")
        end = mlir.closing(text, match.end() - 1)
        self._names = {}
        arguments = [self._parameter(one) for one in mlir.split(text[match.end() : end])]
        name = match[2].strip('"')
        operation = Operation("tt.func", [], [], text, "", location)
        if not opens:  # a declaration
            return
        self._enter(operation, arguments)
        self._functions[name] = Function(name, match[1] != "private", operation)

    def _parameter(self, text: str) -> Value:
        match = re.match(r"%([\w$.\-]+): (.*)", text)
        if match is None:
            self._bad(f"has a parameter without a name: {quoted(text)}")
        rest, location = mlir.without_location(match[2])
        kind = mlir.parse_type(rest.partition(" {")[0])
        name = match[1]
        value = Value(mlir.first_name(location, self._locations) or name, kind)
        self._names[name] = [value]
        return value

    def _enter(self, operation: Operation, arguments: Sequence[Value]) -> None:
        if len(self._open) >= mlir.DEEPEST:
            self._bad(f"nests more than {mlir.DEEPEST} regions")
        operation.regions.append(Region([], operation))
        self._open.append(operation)
        self._start("", arguments)

    def _start(self, name: str, arguments: Sequence[Value]) -> None:
        """Start a block, in addition to an implicit first one."""
        region = self._open[-1].regions[-1]
        block = Block(name, region, list(arguments))
        for place, value in enumerate(block.arguments):
            value.block, value.index = block, place
            if name or region.operation.name != "tt.func":
                self._names[value.name] = [value]
        region.blocks.append(block)

    @property
    def _block(self) -> Block:
        return self._open[-1].regions[-1].blocks[-1]

    def _label(self, line: str) -> None:
        match = _LABEL.match(line)
        if match is None or not self._open:
            self._bad(f"is no block: {quoted(line)}")
        arguments = [
            self._argument(one) for one in mlir.split(match[2] or "") if one.startswith("%")
        ]
        first = self._block
        if not first.name and not first.operations and not first.arguments:
            self._open[-1].regions[-1].blocks.pop()
        elif not first.name:
            first.name = "bb0"
        self._start(match[1], arguments)

    def _argument(self, text: str) -> Value:
        name, _, rest = text.partition(": ")
        return Value(name.removeprefix("%"), mlir.parse_type(mlir.without_location(rest)[0]))

    def _close(self, line: str) -> None:
        if not self._open:  # it closes the module
            return
        line, location = mlir.without_location(line)
        operation = self._open.pop()
        if line.endswith("{"):  # } else {, } do {, }, {
            self._enter(operation, [])
            return
        operation.location = location or operation.location
        operation.text += f" {line.removeprefix('}').removeprefix(')').partition(' : ')[0]}"
        if line.startswith("})"):
            operation.types = line.partition(" : ")[2]
            types = mlir.result_types(operation.name, operation.types, "")
            for value, one in zip(operation.results, types, strict=False):
                value.type = one

    def _value(self, name: str, place: str = "") -> Value:
        found = self._names.get(name, ())
        number = int(place or 0)
        if number >= len(found):
            self._bad(f"uses {quoted(name)}, which nothing defines")
        return found[number]


def _without_types(text: str) -> tuple[str, str]:
    for match in mlir.outside_brackets(" : ", text):
        return text[: match.start()], text[match.end() :]
    head, colon, types = text.rpartition("  : ")  # a loop's variable
    return (head, types) if colon else (text, "")


class _Calls:
    """Replaces calls with copies of the called functions."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self._count = 0

    def expand(self, region: Region, inside: tuple[str, ...]) -> None:
        for operation in mlir.operations_of(region):
            if operation.name != "tt.call":
                continue
            match = re.search(r'@("[^"]*"|[\w$.\-]+)', operation.text)
            called = self._functions.get(match[1].strip('"')) if match else None
            if called is None or called.name in inside or len(inside) > mlir.DEEPEST // 2:
                continue
            copied = self._copied(called.body, operation, operation.location, {})
            if copied is not None:
                operation.regions = [copied]
                self.expand(copied, (*inside, called.name))

    def _copied(
        self, region: Region, owner: Operation, caller: str, values: dict[Value, Value]
    ) -> Region | None:
        copy = Region([], owner)
        for block in region.blocks:
            made = Block(block.name, copy)
            made.arguments = [replace(one, block=made, operation=None) for one in block.arguments]
            values.update(zip(block.arguments, made.arguments, strict=True))
            copy.blocks.append(made)
        for block, made in zip(region.blocks, copy.blocks, strict=True):
            for operation in block.operations:
                self._count += 1
                if self._count > MOST_OPERATIONS:
                    return None
                other = replace(
                    operation,
                    operands=[values.get(one, one) for one in operation.operands],
                    results=[],
                    regions=[],
                    block=made,
                    location=f"callsite({operation.location} at {caller})",
                )
                other.results = [replace(one, operation=other) for one in operation.results]
                values.update(zip(operation.results, other.results, strict=True))
                for inner in operation.regions:
                    copied = self._copied(inner, other, caller, values)
                    if copied is None:
                        return None
                    other.regions.append(copied)
                made.operations.append(other)
        return copy
