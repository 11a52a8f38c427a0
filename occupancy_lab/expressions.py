"""Expressions that a user writes over named values, such as 'num_warps == 8 and occupancy > 0.5'.

The grammar is a part of Python's: names, numbers, texts, True, False and None; == != < <= > >=,
`in` and `not in` a list, `is None`; and, or, not; + - * / // % ** and parentheses; min, max and
cdiv (a quotient rounded up). There are no other calls, attributes or subscripts, so an expression
can only compute a value.

An unknown value is None. Arithmetic and comparisons with it are None too, and `and`, `or` and `not`
follow SQL's three-valued logic. `us is None` and `us == None` test for it.
"""

from __future__ import annotations

import ast
import copy
import difflib
import enum
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from occupancy_lab.errors import quoted, refuse

Value: TypeAlias = float | str | None
"""A number, a text or a truth value; None means not known."""

MAX_LENGTH = 1000
"""Characters: some 30 conditions, more than anybody writes and far fewer than Python's parser
takes."""
MAX_DEPTH = 50
"""Levels of parentheses and operators: Python's own parser stops at 200 parentheses."""
MOST_LISTED = 12
"""An error lists all names if there are no more than this."""
MAX_BITS = 1024
"""The most bits of an integer power: those of the largest float."""


class Kind(enum.Enum):
    """The kind of value of a name or of a part of an expression."""

    NUMBER = "a number"
    TEXT = "text"
    CONDITION = "a condition"


def _power(base: float, exponent: float) -> Any:
    """Return a power; raises OverflowError if it has more than 1024 bits or is not real."""
    if isinstance(base, int) and isinstance(exponent, int):
        bits = base.bit_length() * exponent
        if bits > MAX_BITS:
            raise OverflowError
    found = base**exponent
    if isinstance(found, complex):
        raise OverflowError
    return found


_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "cdiv": lambda dividend, divisor: -(-dividend // divisor),
}
_COMPARISONS: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ABSENCE = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)
"""The comparisons that None allows."""
_NEGATED = (ast.NotEq, ast.IsNot, ast.NotIn)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that `parse` read."""

    text: str
    names: frozenset[str]
    """The names that it uses."""
    _body: ast.expr = field(compare=False, repr=False)

    def check(self, names: Mapping[str, Kind], kind: Kind = Kind.CONDITION) -> None:
        """Raise InputError unless the value is of *kind*, given the kinds of *names*."""
        found = _Checker(self.text, names).kind(self._body)
        if found is not kind:
            example = ", as 'num_warps == 8' is" if kind is Kind.CONDITION else ""
            words = "None" if found is None else found.value
            refuse(f"{quoted(self.text)} is {words}, and {kind.value} is expected{example}")

    def check_number(self) -> None:
        """Raise InputError unless the expression is a number if all of its names are numbers."""
        self.check(dict.fromkeys(self.names, Kind.NUMBER), Kind.NUMBER)

    def evaluate(self, values: Mapping[str, Value]) -> Value:
        """Return the expression's value, or None if it is not known, as after a division by zero.

        The expression passed `check`, and *values* has values of those kinds, or None, for its
        names.
        """
        value: Value = _evaluate(self._body, values)
        return value

    def beside(self, name: str) -> Expression:
        """Return the expression with *name* as "name.column" in each comparison with a column.

        In "us <= baseline * 1.05" the name "baseline" becomes "baseline.us". Raises InputError if
        *name* is not in a comparison, or not with exactly one column.
        """
        body = _Beside(self.text, name).visit(copy.deepcopy(self._body))
        return Expression(self.text, _names(body), body)


class _Beside(ast.NodeTransformer):
    """Replaces a name in each comparison by one that includes the comparison's column."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._column: str | None = None

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        names = _names(node)
        if self._name in names:
            others = sorted(names - {self._name})
            if len(others) != 1:
                self._refuse(f"here with {' and '.join(others) or 'none'}")
            self._column = others[0]
        found = self.generic_visit(node)
        self._column = None
        return found

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id != self._name:
            return node
        if self._column is None:
            self._refuse("here with none")
        return ast.Name(f"{self._name}.{self._column}", node.ctx)

    def _refuse(self, found: str) -> NoReturn:
        refuse(
            f"{quoted(self._text)} is not understood: {self._name} is compared with one column, as"
            f" in 'predicted_us <= {self._name} * 1.05', and {found}"
        )


def parse(text: str, example: str = "num_warps == 8 and shared > 0") -> Expression:
    """Return the expression in *text*; errors show *example*.

    Raises InputError if it is no expression, longer than 1000 characters or nested deeper than 50.
    """
    if len(text) > MAX_LENGTH:
        refuse(f"{quoted(text)} has {len(text)} characters; an expression has at most {MAX_LENGTH}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = getattr(error, "msg", None) or str(error) or "it is nested too deeply"
        refuse(f"{quoted(text)} is no expression ({reason}); one is {example!r}")
    nodes: list[ast.AST] = [body]
    for _ in range(MAX_DEPTH):
        nodes = [child for node in nodes for child in ast.iter_child_nodes(node) if child._fields]
    if nodes:
        refuse(f"{quoted(text)} is nested more than {MAX_DEPTH} deep")
    return Expression(text, _names(body), body)


def _names(body: ast.AST) -> frozenset[str]:
    """Return the names that an expression uses as values, without those of functions."""
    nodes = list(ast.walk(body))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return frozenset(
        node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """Return in words which of *known* is most similar to *name*, or which names there are.

    If there are more than 12, such as a table's columns, it is the three most similar ones.
    """
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"the nearest is {close[0]}"
    if len(known) <= MOST_LISTED:
        return f"there are {', '.join(known)}"
    first, second, third = difflib.get_close_matches(name, known, n=3, cutoff=0.0)
    return (
        f"of {len(known)} the nearest are {first}, {second} and {third}; a row of --json has them"
        " all"
    )


class _Checker:
    """Finds the kind of each part of an expression, and rejects what is not in the grammar."""

    def __init__(self, text: str, names: Mapping[str, Kind]) -> None:
        self._text = text
        self._names = names

    def kind(self, node: ast.expr) -> Kind | None:  # noqa: C901, PLR0911 - one for each kind of node
        """Return the kind of *node*, or None for None; InputError if it has none."""
        match node:
            case ast.Name(name):
                if name not in self._names:
                    self._refuse(f"{quoted(name)} is not known; {nearest(name, self._names)}")
                return self._names[name]
            case ast.Constant(value):
                return self._constant(node, value)
            case ast.BoolOp(_, parts):
                return self._all(Kind.CONDITION, *parts)
            case ast.UnaryOp(ast.Not(), part):
                return self._all(Kind.CONDITION, part)
            case ast.UnaryOp(ast.USub() | ast.UAdd(), part):
                return self._all(Kind.NUMBER, part)
            case ast.BinOp(left, sign, right) if type(sign) in _ARITHMETIC:
                return self._all(Kind.NUMBER, left, right)
            case ast.Call(ast.Name(name), [_, _, *_] as parts, []) if name in _FUNCTIONS:
                if name == "cdiv" and len(parts) > 2:  # noqa: PLR2004 - what a division takes
                    self._refuse("cdiv takes two numbers")
                return self._all(Kind.NUMBER, *parts)
            case ast.Compare(left, signs, parts):
                for one, compared, other in zip([left, *parts[:-1]], signs, parts, strict=True):
                    self._comparison(one, compared, other)
                return Kind.CONDITION
        return self._refuse(
            f"{self._words(node)} has no place in it; there are names, numbers, texts, comparisons,"
            " and, or, not, in [...], + - * / // % **, parentheses, min, max and cdiv"
        )

    def _refuse(self, why: str) -> NoReturn:
        refuse(f"{quoted(self._text)} is not understood: {why}")

    @staticmethod
    def _words(node: ast.expr) -> str:
        return quoted(ast.unparse(node))

    def _constant(self, node: ast.expr, value: Any) -> Kind | None:
        match value:
            case None:
                return None
            case bool():
                return Kind.CONDITION
            case str():
                return Kind.TEXT
            case int():
                return Kind.NUMBER
            case float() if math.isfinite(value):
                return Kind.NUMBER
        return self._refuse(f"{self._words(node)} is no number and no text")

    def _all(self, kind: Kind, *parts: ast.expr) -> Kind:
        for part in parts:
            if self.kind(part) is not kind:
                self._refuse(f"{self._words(part)} is not {kind.value}")
        return kind

    def _comparison(self, one: ast.expr, sign: ast.cmpop, other: ast.expr) -> None:
        left = self.kind(one)
        if isinstance(sign, ast.In | ast.NotIn):
            if left is None or not isinstance(other, ast.List | ast.Tuple):
                self._refuse("in takes a value on its left and a list on its right, as in [1, 2]")
            for part in other.elts:
                self._alike(one, left, part, self.kind(part))
            return
        right = self.kind(other)
        if left is None or right is None:
            if not isinstance(sign, _ABSENCE):
                self._refuse("None is compared by ==, !=, is and is not")
        elif isinstance(sign, ast.Is | ast.IsNot):
            self._refuse("is compares with None; write == instead")
        else:
            self._alike(one, left, other, right)

    def _alike(self, one: ast.expr, left: Kind | None, other: ast.expr, right: Kind | None) -> None:
        if left is not right:
            kinds = ["None" if kind is None else kind.value for kind in (left, right)]
            self._refuse(
                f"{self._words(one)} is {kinds[0]} and {self._words(other)} is {kinds[1]}, which"
                " cannot be compared"
            )


def _evaluate(  # noqa: C901, PLR0911 - one for each kind of node
    node: ast.expr, values: Mapping[str, Value]
) -> Any:
    match node:
        case ast.Name(name):
            return values[name]
        case ast.Constant(value):
            return value
        case ast.UnaryOp(ast.Not(), part):
            return _not(_evaluate(part, values))
        case ast.UnaryOp(ast.USub(), part):
            return _calculate(operator.sub, 0, _evaluate(part, values))
        case ast.UnaryOp(_, part):
            return _evaluate(part, values)
        case ast.BinOp(left, sign, right):
            operation = _ARITHMETIC[type(sign)]
            return _calculate(operation, _evaluate(left, values), _evaluate(right, values))
        case ast.Call(ast.Name(name), parts):
            return _calculate(_FUNCTIONS[name], *(_evaluate(part, values) for part in parts))
        case ast.BoolOp(ast.And(), parts):
            return _and([_evaluate(part, values) for part in parts])
        case ast.BoolOp(_, parts):
            return _or([_evaluate(part, values) for part in parts])
        case ast.Compare(left, signs, parts):
            steps = zip([left, *parts[:-1]], signs, parts, strict=True)
            return _and([_compare(one, sign, other, values) for one, sign, other in steps])
    raise AssertionError(node)


def _compare(
    one: ast.expr, sign: ast.cmpop, other: ast.expr, values: Mapping[str, Value]
) -> bool | None:
    left = _evaluate(one, values)
    if isinstance(other, ast.List | ast.Tuple):
        found = _or([_known(operator.eq, left, _evaluate(part, values)) for part in other.elts])
    elif _is_none(one) or _is_none(other):
        found = left is None and _evaluate(other, values) is None
    else:
        return _known(_COMPARISONS[type(sign)], left, _evaluate(other, values))
    return _not(found) if isinstance(sign, _NEGATED) else found


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _known(compare: Callable[[Any, Any], bool], left: Value, right: Value) -> bool | None:
    return None if left is None or right is None else compare(left, right)


def _calculate(calculate: Callable[..., Any], *numbers: Any) -> Any:
    """Return a number, or None if it has no finite value or one of *numbers* is None."""
    if None in numbers:
        return None
    try:
        found = calculate(*numbers)
    except (ZeroDivisionError, OverflowError):
        return None
    return None if isinstance(found, float) and not math.isfinite(found) else found


def _not(part: bool | None) -> bool | None:  # noqa: FBT001 - a value of the logic, not an option
    return None if part is None else not part


def _and(parts: list[bool | None]) -> bool | None:
    return False if False in parts else None if None in parts else True


def _or(parts: list[bool | None]) -> bool | None:
    return True if True in parts else None if None in parts else False
