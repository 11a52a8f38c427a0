"""The formulas as data: every rule, run once on symbols, is a tree that any language can work out.

A rule of `occupancy` works on ints and arrays alike, so it works on symbols too: what it does to
them is noted as nodes, each number once. A node is a number, the name of a field ("u.n_regs" of the
usage, "a.warp_size" of the architecture), or a list: an operation and the places of its operands.
All numbers are whole, and `//` rounds down.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from typing import TYPE_CHECKING, Any, TypeAlias

from occupancy_lab.gpus import CudaArchitecture
from occupancy_lab.occupancy.exact import exact_rules, option_for, stepped_amounts
from occupancy_lab.occupancy.rule import UNLIMITED
from occupancy_lab.occupancy.tutorial import Rocm, divides_by_zero, terms_of, tutorial_rules
from occupancy_lab.values import Resources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from occupancy_lab.gpus import Architecture
    from occupancy_lab.occupancy.rule import Rule
    from occupancy_lab.occupancy.tutorial import Term

Node: TypeAlias = "int | str | tuple[str | int, ...]"

USAGE = ("n_regs", "num_warps", "shared", "static_shared")
"""The fields of Resources that every usage has."""
OPTIONAL = ("barriers", "tensor_memory", "sgprs", "allocated_vgprs")
"""Those that may be None, which a rule asks."""


class Nodes:
    """The nodes of an architecture's formulas, each once."""

    def __init__(self) -> None:
        self.list: list[Node] = []
        self._places: dict[Node, int] = {}

    def place(self, node: Node) -> int:
        """Return the place of *node*, which is added where it is new."""
        if node not in self._places:
            self._places[node] = len(self.list)
            self.list.append(node)
        return self._places[node]

    def of(self, number: Any) -> int:
        """Return the place of a symbol or of a number."""
        return number.place if isinstance(number, Symbol) else self.place(int(number))


def _node(sign: str, known: Callable[..., Any], *, reflected: bool = False) -> Any:
    def method(self: Symbol, other: Any) -> Symbol:
        operands = (other, self) if reflected else (self, other)
        return self.made(sign, known, *operands)

    return method


_reflected = functools.partial(_node, reflected=True)


class Symbol:
    """A number that is not known yet: what is done to it is a node.

    One that an architecture alone decides has its *value*, by which a rule may choose its way.
    """

    __hash__ = None  # type: ignore[assignment] # it is equal to nothing yet

    def __init__(self, nodes: Nodes, node: Node, value: int | None = None) -> None:
        self.nodes = nodes
        self.place = nodes.place(node)
        self.value = value

    def made(self, sign: str, known: Callable[..., Any], *operands: Any) -> Symbol:
        """Return the symbol of an operation on *operands*, symbols or numbers."""
        values = [one.value if isinstance(one, Symbol) else one for one in operands]
        value = None if None in values else known(*values)
        return Symbol(self.nodes, (sign, *map(self.nodes.of, operands)), value)

    __add__, __radd__ = _node("+", operator.add), _reflected("+", operator.add)
    __sub__, __rsub__ = _node("-", operator.sub), _reflected("-", operator.sub)
    __mul__, __rmul__ = _node("*", operator.mul), _reflected("*", operator.mul)
    __floordiv__ = _node("//", operator.floordiv)
    __rfloordiv__ = _reflected("//", operator.floordiv)
    __lt__, __le__ = _node("<", operator.lt), _node("<=", operator.le)
    __gt__, __ge__ = _reflected("<", operator.lt), _reflected("<=", operator.le)
    __eq__ = _node("==", operator.eq)
    __or__ = _node("|", operator.or_)

    def __neg__(self) -> Symbol:
        return self.made("-", operator.sub, 0, self)

    def __bool__(self) -> bool:
        if self.value is None:
            msg = f"{self.nodes.list[self.place]} is not known; use `where`"
            raise TypeError(msg)
        return bool(self.value)

    def __format__(self, _form: str) -> str:
        return f"{{{self.place}}}"


def _where(condition: Any, yes: Any, no: Any) -> Any:
    symbol = next((one for one in (condition, yes, no) if isinstance(one, Symbol)), None)
    if symbol is None:
        return yes if condition else no
    return symbol.made("?", lambda what, first, other: first if what else other, condition, yes, no)


class _Given(Symbol):
    """An amount that a kernel uses, which a rule may ask for: it is more than none."""

    def __bool__(self) -> bool:
        return True


def _symbolic_usage(nodes: Nodes, given: Iterable[str]) -> Resources:
    fields: dict[str, Any] = {name: Symbol(nodes, f"u.{name}") for name in USAGE}
    fields |= {name: _Given(nodes, f"u.{name}") for name in given}
    return Resources(**fields)


def optional_of(architecture: Architecture) -> tuple[str, ...]:
    """Return the fields of a usage that may be None on this architecture, and that a rule asks."""
    if isinstance(architecture, CudaArchitecture):
        names = {"barriers": architecture.max_barriers, "tensor_memory": architecture.tensor_memory}
    else:
        names = {"sgprs": architecture.sgprs_per_simd, "allocated_vgprs": architecture.max_vgprs}
    return tuple(name for name, has in names.items() if has is not None)


def formulas(architecture: Architecture) -> dict[str, Any]:
    """Return every formula of *architecture* as data: limits, cliffs, and the tutorial's.

    Architectures that differ in numbers alone have the same.
    """
    nodes = Nodes()
    changes: dict[str, Any] = {
        field.name: Symbol(nodes, f"a.{field.name}", getattr(architecture, field.name))
        for field in dataclasses.fields(architecture)
        if isinstance(getattr(architecture, field.name), int)
    }
    symbolic = dataclasses.replace(architecture, **changes)
    ways = {
        "+".join(given): _symbolic_usage(nodes, given)
        for count in range(len(optional_of(architecture)) + 1)
        for given in itertools.combinations(optional_of(architecture), count)
    }
    (plain, *_) = ways.values()
    return {
        "optional": optional_of(architecture),
        "rules": _rules(exact_rules(architecture), ways, symbolic, nodes),
        "amounts": {
            way: {
                name: [nodes.of(one) for one in pair]
                for name, pair in stepped_amounts(usage, symbolic, _where).items()
            }
            for way, usage in ways.items()
        },
        "option": option_for(symbolic, "registers", Symbol(nodes, "u.n_regs"), _where),  # type: ignore[arg-type]
        "tutorial": _rules(
            tutorial_rules(architecture, Rocm.CURRENT), {"": plain}, symbolic, nodes
        ),
        "tutorial_fails": divides_by_zero(plain).place,
        "terms": [_term(term, symbolic, ways, nodes) for term in terms_of(architecture)],
        "nodes": nodes.list,
        "unlimited": UNLIMITED,
    }


def _rules(
    rules: Iterable[Rule], ways: Mapping[str, Resources], symbolic: Any, nodes: Nodes
) -> list[dict[str, Any]]:
    return [
        {
            "resource": rule.resource,
            "steps": rule.steps,
            "work": {way: _work(rule, usage, symbolic, nodes) for way, usage in ways.items()},
        }
        for rule in rules
    ]


def _work(rule: Rule, usage: Resources, symbolic: Any, nodes: Nodes) -> dict[str, Any] | None:
    """Return the place of each number of a rule, or its text; None where it does not apply."""
    work = rule.work(usage, symbolic, _where)
    if work is None:
        return None
    return {
        name: value if isinstance(value, str) else nodes.of(value) for name, value in work.items()
    }


def _term(term: Term, symbolic: Any, ways: Mapping[str, Resources], nodes: Nodes) -> dict[str, Any]:
    """Return what a formula that misses *term* takes for the architecture's and usage's fields."""
    usage = [*ways.values()][-1]
    blind, blind_usage = term.hide(symbolic, usage, Rocm.CURRENT)

    def changes(before: Any, after: Any) -> dict[str, int | None]:
        names = [field.name for field in dataclasses.fields(before)]
        return {
            name: None if value is None else nodes.of(value)
            for name in names
            if (value := getattr(after, name)) is not getattr(before, name)
        }

    return {
        "name": term.name,
        "architecture": changes(symbolic, blind),
        "usage": changes(usage, blind_usage),
    }
