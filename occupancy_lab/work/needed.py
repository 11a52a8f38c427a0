"""Which values of a kernel steer it: addresses, masks, loops and branches depend on them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from occupancy_lab.work.module import Operation, Value, operations_of, targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.work.module import Block, Module

STORED = {
    "tt.store": 1,
    "tt.atomic_rmw": 1,
    "tt.descriptor_store": -1,
    "tt.descriptor_reduce": -1,
    "tt.descriptor_scatter": -1,
}
"""Which operand is what is stored."""


def needed_values(module: Module) -> set[Value]:
    """Return the values of the kernel that an address, a mask, a loop or a branch depends on."""
    incoming: dict[str, list[tuple[Operation, int]]] = defaultdict(list)
    todo: list[Value] = []
    for operation in operations_of(module.kernel.body):
        todo += _steering(operation)
        if operation.name in {"cf.br", "cf.cond_br"}:
            for name, start, _ in targets(operation):
                incoming[name].append((operation, start))
    needed: set[Value] = set()
    while todo:
        value = todo.pop()
        if value not in needed:
            needed.add(value)
            todo += _made_of(value) if value.operation else _given(value, incoming)
    return needed


def _steering(operation: Operation) -> list[Value]:
    match operation.name:
        case "tt.load" | "tt.descriptor_load" | "tt.descriptor_gather":
            return operation.operands[:2] if operation.name == "tt.load" else operation.operands
        case "tt.atomic_cas":
            return operation.operands[:1]
        case name if name in STORED:
            stored = STORED[name] % len(operation.operands)
            return [one for place, one in enumerate(operation.operands) if place != stored]
        case "scf.for":
            return operation.operands[:3]
        case "scf.if" | "scf.condition" | "cf.cond_br":
            return operation.operands[:1]
    return []


def _ends(operation: Operation, region: int = 0) -> Iterator[Operation]:
    """Yield the operations that hand on what a region gives."""
    for block in operation.regions[region].blocks:
        if block.operations and not block.operations[-1].name.startswith("cf."):
            yield block.operations[-1]


def _made_of(value: Value) -> list[Value]:
    """Return what the result of an operation is made of."""
    operation, place = value.operation, value.index
    assert operation is not None  # noqa: S101
    match operation.name:
        case "scf.for":
            return [operation.operands[3 + place], _argument(operation, 0, place + 1)]
        case "scf.while":
            return [one.operands[place + 1] for one in _ends(operation)]
        case "scf.if" | "tt.call":
            return [
                end.operands[place]
                for region in range(len(operation.regions))
                for end in _ends(operation, region)
                if place < len(end.operands)
            ] + operation.operands[:1]
    return operation.operands


def _argument(operation: Operation, region: int, place: int) -> Value:
    return operation.regions[region].blocks[0].arguments[place]


def _given(  # noqa: PLR0911 - a line for each kind of region
    value: Value, incoming: dict[str, list[tuple[Operation, int]]]
) -> list[Value]:
    """Return what the argument of a block is given."""
    block = value.block
    if block is None or block.region is None or block.region.operation is None:
        return []
    operation, place = block.region.operation, value.index
    if block is not block.region.blocks[0]:
        return _passed(block, place, incoming)
    match operation.name:
        case "scf.for" if place:
            found = [operation.operands[2 + place]]
            found += [one.operands[place - 1] for one in _ends(operation)]
            if operation.results:
                found.append(operation.results[place - 1])
            return found
        case "scf.while":
            if block.region is operation.regions[0]:
                return [
                    operation.operands[place],
                    *(one.operands[place] for one in _ends(operation, 1)),
                ]
            return [one.operands[place + 1] for one in _ends(operation)]
        case "tt.call":
            return [operation.operands[place]]
    return []


def _passed(
    block: Block, place: int, incoming: dict[str, list[tuple[Operation, int]]]
) -> list[Value]:
    return [
        operation.operands[start + place]
        for operation, start in incoming[block.name]
        if operation.block is not None and operation.block.region is block.region
    ]
