"""What TTIR operations compute of known numbers, masks and pointers.

Values from memory are unknown, unless the contents of their tensor are given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from occupancy_lab.assumed import Assumption, elements
from occupancy_lab.work import floats, tiles, tilewise
from occupancy_lab.work.counts import VALUES_OF
from occupancy_lab.work.integers import EXACT, LINEAR, OPERATIONS, SHAPES
from occupancy_lab.work.module import Module, Operation, Type
from occupancy_lab.work.tiles import Known, Mask, Number, Root


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address or a tile of addresses: a kernel parameter and offsets in bytes."""

    tensor: str | None
    offset: Number


@dataclass(frozen=True, slots=True)
class Block:
    """A tensor descriptor or a block pointer."""

    base: Pointer
    shape: tuple[Number, ...]
    strides: tuple[Number, ...]
    """Strides in elements."""
    offsets: tuple[Number, ...] = ()
    """The position of a block pointer; a descriptor has none."""


Made = Known | Pointer | Block
EITHER = " or "
"""Joins the names of tensors where a pointer is into one of several."""
APART = 1 << 40
"""The distance of such tensors in bytes: they are counted as if they were one tensor."""


def numbers_of(value: Made) -> tuple[Known, ...]:
    """Return the parts of *value* that an operation or an iteration may change."""
    if isinstance(value, Pointer):
        return (value.offset,)
    if isinstance(value, Block):
        return (value.base.offset, *value.offsets)
    return (value,)


def with_numbers(value: Made, parts: Sequence[Any]) -> Made:
    """Return *value* with the parts of `numbers_of` replaced."""
    if isinstance(value, Pointer):
        return replace(value, offset=parts[0])
    if isinstance(value, Block):
        base = replace(value.base, offset=parts[0])
        return replace(value, base=base, offsets=tuple(parts[1:]))
    return parts[0]  # type: ignore[no-any-return]


class Evaluator:
    """Evaluates operations whose operands are known."""

    def __init__(
        self,
        module: Module,
        grid: tuple[int, ...],
        programs: Sequence[Sequence[int]],
        values: Mapping[str, Sequence[int]],
        assume: Mapping[str, Assumption],
    ) -> None:
        self.module, self.grid = module, grid
        self.programs = programs
        self.values = {name: np.asarray(one, "int64") for name, one in values.items()}
        self.assume = assume
        self.assumed: dict[Root, Assumption] = {}

    def results(self, operation: Operation, operands: Sequence[Made]) -> list[Made]:
        """Return the values of the results of *operation* for *operands*."""
        if operation.name == "tt.split":
            return [_part(operands[0], place) for place in range(2)]
        others = range(1, len(operation.results))
        rest = [self.unknown(operation, operands, place) for place in others]
        return [self._result(operation, operands), *rest]

    def _result(self, operation: Operation, operands: Sequence[Made]) -> Made:
        kind, name = operation.results[0].type, operation.name
        if (made := self._position(operation, operands)) is not None:
            return made
        if change := SHAPES.get(name):
            return _reshaped(change(operation), operands[0], kind)
        if all(isinstance(one, Number | Mask) for one in operands):
            found = _computed(operation, operands)  # type: ignore[arg-type] # checked above
            return self.unknown(operation, operands) if found is None else found
        if name == "tt.bitcast":
            return operands[0]
        if name == "arith.select" and isinstance(operands[0], Mask):
            return chosen(operands[0], operands[1], operands[2], operation.results[0])
        return self.unknown(operation, operands)

    def _position(  # noqa: PLR0911 - a return for each operation
        self, operation: Operation, operands: Sequence[Made]
    ) -> Made | None:
        """Return a program's number, a position in memory or what is there; None for all else."""
        match operation.name, operands:
            case "tt.get_program_id", _:
                axis = _axis(operation)
                programs = np.array(self.programs[axis], "int64")
                return tiles.of_outer(programs[tiles.along(axis, len(programs))])
            case "tt.get_num_programs", _:
                return tiles.number(self.grid[_axis(operation)])
            case "tt.addptr", [Pointer() as pointer, Number() as by]:
                pointee = operation.results[0].type.pointee
                by = tiles.scaled(by, pointee.item_bytes if pointee else 1)
                return replace(pointer, offset=tiles.add(pointer.offset, by))
            case "tt.advance", [Block() as block, *steps]:
                moved: Any = map(tiles.add, block.offsets, steps)  # type: ignore[arg-type] # numbers
                return replace(block, offsets=tuple(moved))
            case "tt.make_tensor_ptr" | "tt.make_tensor_descriptor", [Pointer() as base, *others]:
                if all(isinstance(one, Number) for one in others):
                    numbers: Any = iter(others)
                    groups = re.findall(r"\[([^\]]*)\]", operation.text)[:3]
                    parts = [tuple(islice(numbers, one.count("%"))) for one in groups]
                    return Block(base, *parts)
            case "tt.load", [pointer, *rest]:
                mask = rest[0] if rest and isinstance(rest[0], Mask) else None
                return self.loaded(operation, pointer, mask, rest[1] if len(rest) > 1 else None)
        return None

    def unknown(
        self, operation: Operation, operands: Sequence[Made] = (), index: int = 0, name: str = ""
    ) -> Made:
        """Return an unknown value, which depends on the operands."""
        result = operation.results[index]
        flat = [one for each in operands for one in numbers_of(each)]
        roots: list[Root] = []
        if name or not any(one.hidden for one in flat):
            roots = [Root(name or name_of(operation), self.module.place(operation))]
        hidden = tiles.hidden(result, roots, flat)
        if operation.name not in ELEMENTWISE:
            every = frozenset(place for place, size in enumerate(result.type.shape) if size > 1)
            hidden = tuple(replace(one, dims=every) for one in hidden)
        return of_type(hidden, result.type)

    def argument(self, name: str, kind: Type, given: Any) -> Made:
        """Return a kernel parameter: a number, a tensor or a descriptor."""
        base = Pointer(name, tiles.number(0))
        if kind.element == "ptr":
            return base
        if kind.element == "desc":
            whole, strides = (getattr(given, one, ()) for one in ("shape", "strides"))
            return Block(base, tuple(map(tiles.number, whole)), tuple(map(tiles.number, strides)))
        given = self.assume.get(name, given)
        if kind.element in floats.KNOWN and isinstance(given, int | float):
            return floats.number(given, kind)
        if kind.is_float or not isinstance(given, int):
            return of_type(tiles.hidden(name, [Root(name)]), kind)
        if kind.element == "i1":
            return Mask() if given else tiles.false()
        return tilewise.wrapped(tiles.number(given), kind.bits)

    def loaded(
        self, operation: Operation, pointer: Made, mask: Mask | None, other: Made | None
    ) -> Made:
        """Return what a load gives, which is known where the contents of its tensor are."""
        if not isinstance(pointer, Pointer):
            return self.unknown(operation, [pointer])
        kind = operation.results[0].type
        name = f"{VALUES_OF}{pointer.tensor}" if pointer.tensor else "values loaded from memory"
        assumed = self.assume.get(pointer.tensor or "")
        if assumed is not None:
            self.assumed[Root(name, self.module.place(operation))] = assumed
        if isinstance(assumed, int):
            known = kind.element in floats.KNOWN
            held = floats.number(assumed, kind) if known else tiles.number(assumed, kind.shape)
            if mask is None or not isinstance(other, Number):
                return held
            return tilewise.chosen(mask, held, other, operation.results[0])
        given = self.values.get(pointer.tensor or "") if assumed is None else assumed
        mask = mask or Mask()
        inputs: list[Known] = [pointer.offset, mask]
        if isinstance(other, Number):
            inputs.append(other)
        if given is None or kind.is_float or any(one.hidden for one in inputs) or not len(given):
            return self.unknown(operation, [pointer, mask], name=name)
        size = kind.item_bytes

        def look_up(offset: Any, active: Any, otherwise: Any = 0) -> Any:
            index = offset // size
            there = active & (index >= 0) & (index < len(given))
            return np.where(there, elements(given, index), otherwise)

        found = tilewise.elementwise(look_up, inputs)
        return (
            tilewise.as_mask(found) if kind.element == "i1" else tilewise.wrapped(found, kind.bits)
        )


def of_type(hidden: tuple[tiles.Hidden, ...], kind: Type) -> Made:
    """Return an unknown value of a type."""
    if kind.element == "ptr" and kind.pointee is not None and kind.pointee.shape:
        kind = kind.pointee
    if kind.element == "ptr":
        return Pointer(None, Number(hidden=hidden, shape=kind.shape))
    if kind.element == "desc":
        return Block(Pointer(None, Number(hidden=hidden)), (), ())
    if kind.element == "i1":
        return Mask(hidden=hidden, shape=kind.shape)
    return Number(hidden=hidden, shape=kind.shape)


def _computed(operation: Operation, operands: Sequence[Known]) -> Known | None:
    """Return what arithmetic gives; None where that is not known."""
    kind, name = operation.results[0].type, operation.name
    types = [one for one in (kind, *(x.type for x in operation.operands)) if one.is_float]
    keeps_hidden, evaluators = name in LINEAR, OPERATIONS
    if types:
        if any(one.element not in floats.KNOWN for one in types):
            return None
        keeps_hidden, evaluators = name == "arith.select", floats.OPERATIONS
    function = evaluators.get(name)
    if function is None or (not keeps_hidden and any(one.hidden for one in operands)):
        return None
    found: Known | None = function(operation, operands)
    if found is None:
        return None
    if isinstance(found, Number) and not kind.is_float and name not in EXACT:
        found = tilewise.wrapped(found, kind.bits)
    return replace(found, shape=kind.shape)


def block_addresses(
    block: Block, offsets: Sequence[Known], shape: tuple[int, ...], item: int, checked: Any
) -> tuple[Pointer, Mask]:
    """Return the addresses of a block's elements, and the mask of those inside the tensor.

    Bounds are checked along the dimensions *checked*.
    """
    rank = len(shape)
    if max(shape, default=0) > tiles.MOST_CELLS:
        raise tiles.TooLargeError
    if len(block.strides) != rank or len(offsets) != rank:
        hidden = block.base.offset.hidden or tiles.hidden(block, [Root("a descriptor's tensor")])
        every = tuple(replace(one, dims=frozenset(range(rank))) for one in hidden)
        return Pointer(block.base.tensor, Number(hidden=every, shape=shape)), Mask(shape=shape)
    address = replace(block.base.offset, shape=shape)
    mask = Mask(shape=shape)
    for dim, size in enumerate(shape):
        row = np.arange(size).reshape(1, *(size if d == dim else 1 for d in range(rank)))
        offset = replace(tilewise.as_number(offsets[dim]), shape=shape)
        index = tiles.add(tiles.of_table(row, None, shape), offset)
        stride = tiles.scaled(block.strides[dim], item)
        if not (index.hidden and not stride.is_constant) and not stride.hidden:
            part = tilewise.multiplied(index, stride)
        else:
            part = Number(hidden=tiles.hidden((block, dim), [], [index, stride]), shape=shape)
        address = tiles.add(address, part)
        if dim in checked:
            mask = tilewise.both(mask, _inside(index, block.shape[dim]))
    return Pointer(block.base.tensor, address), mask


def _inside(index: Number, size: Number) -> Mask:
    if index.hidden or size.hidden:
        return Mask(hidden=tiles.hidden((index, size), [], [index, size]), shape=index.shape)
    above = tilewise.compared("sge", index, tiles.number(0))
    return tilewise.both(above, tilewise.compared("slt", index, size))


def chosen(condition: Mask, one: Made, other: Made, key: object) -> Made:
    """Return *one* where *condition* is true, else *other*."""
    certain = condition.constant
    if certain is not None:
        return one if certain else other
    if isinstance(one, Pointer) and isinstance(other, Pointer) and one.tensor != other.tensor:
        return _one_of(condition, one, other, key)
    pairs = zip(numbers_of(one), numbers_of(other), strict=False)
    return with_numbers(one, [tilewise.chosen(condition, *pair, key) for pair in pairs])


def _one_of(condition: Mask, one: Pointer, other: Pointer, key: object) -> Pointer:
    """Return a pointer into either of two tensors, joined as one if the choice is known."""
    names = [x.tensor.split(EITHER) for x in (one, other) if x.tensor is not None]
    if len(names) < 2 or {*names[0]} & {*names[1]}:  # noqa: PLR2004 - both
        return _unknown_tensor([one.offset, other.offset], key)
    apart = tiles.number(APART * len(names[0]))
    found = tilewise.chosen(condition, one.offset, tiles.add(other.offset, apart), key)
    if found.hidden or not isinstance(found, Number):
        return _unknown_tensor([found], key)
    return Pointer(EITHER.join([*names[0], *names[1]]), found)


def _unknown_tensor(parts: Sequence[Known], key: object) -> Pointer:
    hidden = tiles.hidden((key, "tensor"), [Root("which tensor is chosen")], parts)
    return Pointer(None, Number(hidden=hidden, shape=parts[0].shape))


def _part(value: Made, place: int) -> Made:
    """Return one of the two results of a split."""

    def change(table: Any) -> Any:
        return table[..., place if table.shape[-1] > 1 else 0]

    (known,) = numbers_of(value)
    last = len(known.shape) - 1
    found = tilewise.reshaped(known, known.shape[:-1], change, lambda dims: dims - {last})
    return with_numbers(value, [tilewise.settled(found)])


def _reshaped(
    change: tuple[Callable[..., Any], Callable[..., Any]], value: Made, kind: Type
) -> Made:
    parts = [tilewise.reshaped(one, kind.shape, *change) for one in numbers_of(value)]
    return with_numbers(value, [parts[0] if kind.shape else tilewise.settled(parts[0])])


def _axis(operation: Operation) -> int:
    """Return the axis of the grid that an operation is about."""
    return "xyz".index(operation.text.strip()[:1] or "x")


def name_of(operation: Operation) -> str:
    """Return the name of an operation's unknown result."""
    if operation.name == "tt.elementwise_inline_asm":
        return "inline assembly"
    if not operation.results:
        return operation.name
    if operation.name.startswith("tt.atomic"):
        how = operation.text.split(",")[0].strip() if operation.name.endswith("rmw") else "cas"
        return f"the result of atomic_{how}"
    if operation.results[0].type.is_float or operation.name == "arith.cmpf":
        return "floating-point numbers"
    return f"the result of {operation.name}"


ELEMENTWISE = frozenset(
    {*OPERATIONS, *SHAPES, "tt.get_program_id", "tt.get_num_programs", "tt.addptr", "tt.advance"}
    | {"tt.make_tensor_ptr", "tt.make_tensor_descriptor"}
) - {"tt.reduce", "tt.scan"}
"""Operations whose result depends, element by element, on the same elements of the operands."""
