"""What values of a kernel derive from: which steer it, and which combine all data of a program."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from occupancy_lab.work.module import (
    Block,
    Module,
    Operation,
    Region,
    Value,
    operations_of,
    targets,
)

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

Origins = Mapping[Value, Sequence[Value]]
"""What each value is made of, or is another name for."""


def needed_values(module: Module) -> set[Value]:
    """Return the values of the kernel that an address, a mask, a loop or a branch depends on."""
    steering = [one for each in operations_of(module.kernel.body) for one in _steering(each)]
    return {*_sources(steering, _origins(module))}


def outlining_values(module: Module, *, masks: bool) -> set[Value]:
    """Return the values that a loop or a branch depends on and, if wanted, a mask."""
    steering = []
    for operation in operations_of(module.kernel.body):
        if operation.name in STEERS:
            steering += _steering(operation)
        elif masks and operation.name in MASKS:
            steering += operation.operands[MASKS[operation.name] :]
    return {*_sources(steering, _origins(module))}


def reduced_tensors(module: Module, names: Mapping[Value, str]) -> tuple[str, ...]:
    """Return the tensors to which a program stores a result that combines all of its data.

    Such results are a sum, a mean or a maximum that a loop carries from pass to pass or that an
    operation outside of loops makes: they differ where a program has another share of the data.
    Additions to memory that all programs share do not count. *names* has the kernel's parameters.
    """
    origins = _origins(module)
    found: dict[str, None] = {}
    for operation in operations_of(module.kernel.body):
        if operation.name not in STORED or operation.name in ADDS:
            continue
        stored = operation.operands[STORED[operation.name]]
        if any(_is_reduced(one) for one in _sources([stored], origins, _is_loaded)):
            addresses = _sources(operation.operands[:1], origins)
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
    origins = _origins(module)
    return any(
        one.operation and one.operation.name in AXIS_WISE and _is_in_loop(one.operation.block)
        for operation in operations_of(module.kernel.body)
        if operation.name in STORED and operation.name not in ADDS and _is_in_loop(operation.block)
        for one in _sources([operation.operands[STORED[operation.name]]], origins, _is_given)
    )


def _is_loaded(value: Value) -> bool:
    return value.operation is not None and value.operation.name in LOADS


def _is_given(value: Value) -> bool:
    """Tell whether a value is loaded, or carried by a loop."""
    return value.operation is None or value.operation.name in LOOPS | LOADS


def _is_reduced(value: Value) -> bool:
    """Tell whether all passes of a loop make a value, or a reduction outside of loops does."""
    made = value.operation
    if made is not None:
        is_one = made.name in REDUCES or (made.name in LOOPS and value.type.pointee is None)
        return is_one and not _is_in_loop(made.block)
    owner = None if value.block is None else value.block.region.operation
    if owner is None or owner.name not in LOOPS or value.type.pointee is not None:
        return False
    is_variable = owner.name == "scf.for" and not value.index
    return not is_variable and not _is_in_loop(owner.block)


def _is_in_loop(block: Block | None) -> bool:
    while block is not None:
        owner = block.region.operation
        if owner.name in LOOPS:
            return True
        block = owner.block
    return False


def _origins(module: Module) -> Origins:
    found: dict[Value, list[Value]] = defaultdict(list)
    for operation in operations_of(module.kernel.body):
        operands, results = operation.operands, operation.results
        starts = [region.blocks[0].arguments for region in operation.regions]
        ends = [[*_ends(region)] for region in operation.regions]
        flows: list[tuple[Sequence[Value], Sequence[Value]]] = []
        match operation.name:
            case "scf.for":
                carried = starts[0][1:]
                flows = [(one, carried) for one in (operands[3:], *ends[0], results)]
                flows += [(operands[3:], results), (carried, results)]
            case "scf.while":
                flows = [(one, starts[0]) for one in (operands, *ends[1])]
                flows += [(one[1:], to) for one in ends[0] for to in (starts[1], results)]
            case "scf.if" | "tt.call":
                flows = [(one, results) for some in ends for one in some]
                flows += [(operands[:1] * len(results), results)]
                flows += [(operands, one) for one in starts if operation.name == "tt.call"]
            case "cf.br" | "cf.cond_br" if operation.block:
                blocks = {one.name: one.arguments for one in operation.block.region.blocks}
                flows = [(operands[one:end], blocks[to]) for to, one, end in targets(operation)]
            case _:
                flows = [([one] * len(results), results) for one in operands]
        for given, taken in flows:
            for one, other in zip(given, taken, strict=False):
                found[other].append(one)
    return found


def _ends(region: Region) -> Iterator[Sequence[Value]]:
    """Yield what each block that leaves a region passes on."""
    for block in region.blocks:
        if block.operations and not block.operations[-1].name.startswith("cf."):
            yield block.operations[-1].operands


def _sources(
    values: Sequence[Value], origins: Origins, is_end: Callable[[Value], bool] = lambda _: False
) -> Iterator[Value]:
    """Yield *values* and all that they derive from, back to those that are an end.

    A load derives from its address.
    """
    todo, found = [*values], set[Value]()
    while todo:
        value = todo.pop()
        if value in found:
            continue
        found.add(value)
        yield value
        if not is_end(value):
            todo += origins.get(value, ())


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
