"""What values of a kernel derive from: which steer it, and which combine all data of a program."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from occupancy_lab.work.module import Block, Module, Operation, Value, operations_of, targets

STORED = {
    "tt.store": 1,
    "tt.atomic_rmw": 1,
    "tt.descriptor_store": -1,
    "tt.descriptor_reduce": -1,
    "tt.descriptor_scatter": -1,
}
"""The operand that is stored, by operation."""
ACCESSES = {
    "tt.load": ("load", True, False),
    "tt.store": ("store", False, True),
    "tt.atomic_rmw": ("atomic", True, True),
    "tt.atomic_cas": ("atomic", True, True),
    "tt.descriptor_load": ("descriptor load", True, False),
    "tt.descriptor_gather": ("descriptor gather", True, False),
    "tt.descriptor_store": ("descriptor store", False, True),
    "tt.descriptor_scatter": ("descriptor scatter", False, True),
    "tt.descriptor_reduce": ("descriptor reduce", True, True),
}
"""The name of each operation that accesses memory, and whether it reads and writes."""
MASKS = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2}
"""The operand that is the mask, if there is one, by operation."""
MOVES_NOTHING = re.compile(
    r"(scf|cf|arith|ub)\..*|tt\.(addptr|advance|make_tensor_\w+|splat|unsplat|broadcast|expand_dims"
    r"|trans|reshape|cat|join|split|gather|bitcast|ptr_to_int|int_to_ptr|print|return"
    r"|elementwise_inline_asm)"
)
"""Operations that take addresses without accessing memory, or whose machine code says what they
access."""
LOADS = {"tt.load", "tt.descriptor_load", "tt.descriptor_gather", "tt.atomic_rmw", "tt.atomic_cas"}
ADDS = {"tt.atomic_rmw", "tt.descriptor_reduce"}
"""Stores that add to what is in memory."""
AXIS_WISE = {"tt.reduce", "tt.scan"}
REDUCES = AXIS_WISE | {"tt.dot", "tt.dot_scaled"}
LOOPS = {"scf.for", "scf.while"}
STEERS = {"scf.for", "scf.if", "scf.condition", "cf.cond_br"}
"""Operations on whose first operands it depends how often others are executed."""
DIVIDES = {f"arith.{one}{kind}" for one in ("div", "rem") for kind in ("si", "ui")}
CONSTANT = re.compile(r"(?:dense<)?(-?\d+)>?")
SHAPES = re.compile(r"arith\.(ext[su]i|trunci)|tt\.(splat|broadcast|expand_dims|reshape)")
"""Operations that change the width or the shape of values."""

Branches = Mapping[str, list[tuple[Operation, int]]]
"""For each block, the branches to it and the index of the first operand that each passes to it."""


def needed_values(module: Module) -> set[Value]:
    """Return the values of the kernel that an address, a mask, a loop or a branch depends on."""
    steering = [one for each in operations_of(module.kernel.body) for one in _steering(each)]
    return {*_sources(steering, _branches(module))}


def outlining_values(module: Module, *, masks: bool) -> set[Value]:
    """Return the values that a loop or a branch depends on and, if wanted, a mask."""
    steering = []
    for operation in operations_of(module.kernel.body):
        if operation.name in STEERS:
            steering += _steering(operation)
        elif masks and operation.name in MASKS:
            steering += operation.operands[MASKS[operation.name] :]
    return {*_sources(steering, _branches(module))}


def reduced_tensors(module: Module, names: Mapping[Value, str]) -> tuple[str, ...]:
    """Return the tensors to which a program stores a result that combines all of its data.

    Such results are a sum, a mean or a maximum that a loop carries from pass to pass or that an
    operation outside of loops makes: they differ where a program has another share of the data.
    Additions to memory that all programs share do not count. *names* has the kernel's parameters.
    """
    branches = _branches(module)
    found: dict[str, None] = {}
    for operation in operations_of(module.kernel.body):
        if operation.name not in STORED or operation.name in ADDS:
            continue
        stored = operation.operands[STORED[operation.name]]
        if any(_is_reduced(one) for one in _sources([stored], branches, through_loads=False)):
            addresses = _sources(operation.operands[:1], branches)
            pointers = (one for one in addresses if one in names and one.type.pointee)
            found.update((names[one], None) for one in pointers)
    return tuple(found)


def reduced_lengths(module: Module) -> tuple[int, ...]:
    """Return the number of elements that each reduction and scan combines, in source order."""
    return tuple(
        shape[axis] if axis < len(shape) else 1
        for operation in operations_of(module.kernel.body)
        if operation.name in AXIS_WISE
        for shape, axis in ((operation.operands[0].type.shape, operation.number("axis")),)
    )


def divisors(module: Module) -> tuple[int, ...]:
    """Return the constants by which values from memory are divided, in ascending order.

    They are part of how data is laid out, as the length of a page that a slot is in. Values that
    are rounded up first do not count: that is how blocks are counted.
    """
    found = set()
    for operation in operations_of(module.kernel.body):
        if operation.name in DIVIDES:
            value, by = (_unshaped(one).operation for one in operation.operands)
            number = by and by.name == "arith.constant" and CONSTANT.fullmatch(by.text.strip())
            if number and value is not None and value.name in LOADS:
                found.add(int(number[1]))
    return tuple(sorted(found))


def _unshaped(value: Value) -> Value:
    """Return the value of which *value* is another width or shape."""
    while value.operation is not None and SHAPES.fullmatch(value.operation.name):
        value = value.operation.operands[0]
    return value


def stores_each_pass(module: Module) -> bool:
    """Tell whether a loop stores the result of a reduction or a scan in the pass that makes it.

    With other block sizes it has other passes, and then stores other numbers.
    """
    return any(
        one.name in AXIS_WISE and _is_in_loop(one.block)
        for operation in operations_of(module.kernel.body)
        if operation.name in STORED and operation.name not in ADDS and _is_in_loop(operation.block)
        for one in _of_pass(operation.operands[STORED[operation.name]])
    )


def _of_pass(value: Value) -> Iterator[Operation]:
    """Yield the operations that make a value, back to loads and to what loops carry."""
    todo, found = [value], set[Value]()
    while todo:
        one = todo.pop()
        made = one.operation
        if one in found or made is None or made.name in LOOPS | LOADS:
            continue
        found.add(one)
        yield made
        todo += _made_of(one)


def _is_reduced(value: Value) -> bool:
    """Tell whether all passes of a loop make a value, or a reduction outside of loops does."""
    made = value.operation
    if made is not None:
        is_one = made.name in REDUCES or (made.name in LOOPS and value.type.pointee is None)
        return is_one and not _is_in_loop(made.block)
    block = value.block
    owner = None if block is None or block.region is None else block.region.operation
    if owner is None or owner.name not in LOOPS or value.type.pointee is not None:
        return False
    is_variable = owner.name == "scf.for" and not value.index
    return not is_variable and not _is_in_loop(owner.block)


def _is_in_loop(block: Block | None) -> bool:
    while block is not None and block.region is not None:
        owner = block.region.operation
        if owner is None or owner.name in LOOPS:
            return owner is not None
        block = owner.block
    return False


def _branches(module: Module) -> Branches:
    incoming: dict[str, list[tuple[Operation, int]]] = defaultdict(list)
    for operation in operations_of(module.kernel.body):
        if operation.name in {"cf.br", "cf.cond_br"}:
            for name, start, _ in targets(operation):
                incoming[name].append((operation, start))
    return incoming


def _sources(
    values: Sequence[Value], branches: Branches, *, through_loads: bool = True
) -> Iterator[Value]:
    """Yield *values* and all that they derive from; a load derives from its address."""
    todo, found = [*values], set[Value]()
    while todo:
        value = todo.pop()
        if value in found:
            continue
        found.add(value)
        yield value
        if value.operation is None:
            todo += _given(value, branches)
        elif through_loads or value.operation.name not in LOADS:
            todo += _made_of(value)


def touched_unknown(operation: Operation) -> list[Value]:
    """Return the addresses that are passed to an operation with unknown memory accesses.

    Inline assembly is not included, because its machine code says what it accesses.
    """
    name, given = operation.name, [one for one in operation.operands if one.type.is_address]
    if not given or operation.regions or name in ACCESSES or MOVES_NOTHING.fullmatch(name):
        return []
    return given


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
    return touched_unknown(operation)


def _ends(operation: Operation, region: int = 0) -> Iterator[Operation]:
    for block in operation.regions[region].blocks:
        if block.operations and not block.operations[-1].name.startswith("cf."):
            yield block.operations[-1]


def _made_of(value: Value) -> list[Value]:
    operation, place = value.operation, value.index
    assert operation is not None  # noqa: S101
    match operation.name:
        case "scf.for":
            body = operation.regions[0].blocks[0]
            return [operation.operands[3 + place], body.arguments[place + 1]]
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


def _given(  # noqa: PLR0911 - a return for each kind of region
    value: Value, branches: Branches
) -> list[Value]:
    block = value.block
    if block is None or block.region is None or block.region.operation is None:
        return []
    operation, place = block.region.operation, value.index
    if block is not block.region.blocks[0]:
        return [
            branch.operands[start + place]
            for branch, start in branches.get(block.name, ())
            if branch.block is not None and branch.block.region is block.region
        ]
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
