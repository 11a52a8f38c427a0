"""Scalars, tiles of whole numbers and masks of kernels drawn at random."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from interpreted import Tensor

DTYPES = ("float16", "float32", "int8", "float64")
INDICES = 24
"""The elements of a tensor whose values matter."""
LARGEST_INDEX = 50
LARGEST = 2_000
"""The largest absolute value of a scalar, so that addresses stay within a tensor."""
OPERATIONS = ("+", "*", "//", "%", "cdiv", "min", "max", "-", "&", "^", ">>", "where")


@dataclass(frozen=True, slots=True)
class Number:
    """A scalar of a kernel: its text and the limits of its value."""

    text: str
    low: int
    high: int

    @property
    def natural(self) -> str:
        """The text as a number that is not negative."""
        return self.text if self.low >= 0 else f"max({self.text}, 0)"


@dataclass(frozen=True, slots=True)
class Tile:
    """The whole numbers of a tile: their text and shape."""

    text: str
    shape: tuple[int, ...]


class Numbers:
    """Draws the numbers of one kernel, and writes the lines that they need."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0
        self._named: list[Number] = []
        self._turns = ["p0"]
        """The variables of the loops around what is written."""
        self.arguments: dict[str, Any] = {}
        self.kinds: set[str] = set()
        most: tuple[int, ...] = self.one_of(((8,), (8,), (8,), (8, 3), (4, 3, 2)))
        self.grid = tuple(self.whole(1, one) for one in most)

    def whole(self, low: int, high: int) -> int:
        """Draw a whole number."""
        return self._draw(st.integers(low, high))

    def one_of(self, values: Sequence[Any]) -> Any:
        """Draw one of *values*."""
        return self._draw(st.sampled_from(values))

    def often(self, tenths: int) -> bool:
        """Draw a bool that is true in so many cases of ten."""
        return self.whole(0, 9) >= 10 - tenths

    def line(self, text: str) -> None:
        """Write a line of the kernel."""
        self._lines.append("    " * self._depth + text)

    def count_up(self) -> int:
        """Return a number that occurs nowhere else in the kernel."""
        self._count += 1
        return self._count

    def fresh(self, letter: str) -> str:
        """Return an unused name."""
        return f"{letter}{self.count_up()}"

    @contextmanager
    def body(self) -> Iterator[None]:
        """Write the body of a loop or a branch: its names are known only there."""
        before = [*self._named]
        self._depth += 1
        yield
        self._depth -= 1
        self._named = before

    # Arguments

    def tensor(self, use: str) -> str:
        """Return a tensor that is read (x), written (y) or updated atomically (z)."""
        name = f"{use}{self.whole(0, 1)}"
        if name not in self.arguments:
            self.arguments[name] = Tensor("float32" if use == "z" else self.one_of(DTYPES))
        return name

    def indices(self) -> str:
        """Return a tensor of whole numbers whose values matter."""
        name = f"i{self.whole(0, 1)}"
        if name not in self.arguments:
            numbers = st.integers(0, LARGEST_INDEX)
            values = self._draw(st.lists(numbers, min_size=INDICES, max_size=INDICES))
            self.arguments[name] = Tensor(self.one_of(("int32", "int64")), tuple(values))
        self.kinds.add("index")
        return name

    def argument(self) -> Number:
        """Return a whole number that is an argument of the launch."""
        name = f"n{self.whole(0, 3)}"
        if name not in self.arguments:
            edges = (1, 0, 16, 17, 32, 40)
            self.arguments[name] = self.one_of(edges) if self.often(5) else self.whole(0, 70)
        return Number(name, self.arguments[name], self.arguments[name])

    def stride(self) -> str:
        """Return a stride that is an argument of the launch."""
        name = f"s{self.whole(0, 2)}"
        if name not in self.arguments:
            self.arguments[name] = self.one_of((1, 16, 32)) if self.often(5) else self.whole(1, 40)
        return name

    def constant(self) -> Number:
        """Return a constexpr, or a number."""
        if self.often(3):
            name = f"C{self.whole(0, 1)}"
            self.arguments.setdefault(name, self.whole(1, 9))
            return Number(name, self.arguments[name], self.arguments[name])
        number = self.whole(0, 9)
        return Number(str(number), number, number)

    def program(self) -> Number:
        """Return a program's number."""
        axis = self.whole(0, len(self.grid) - 1)
        return Number(f"p{axis}", 0, self.grid[axis] - 1)

    # Scalars

    def number(self, depth: int = 2) -> Number:
        """Return a scalar."""
        how = self.one_of(("program", "named", "argument", "constant", *OPERATIONS))
        if how in OPERATIONS and depth:
            self.kinds.add("scalar arithmetic")
            found = self._operation(how, depth)
            if max(abs(found.low), abs(found.high)) > LARGEST:
                return Number(f"({found.text} % 37)", -36, 36)
            return found
        if how == "argument":
            return self.argument()
        if how == "constant":
            return self.constant()
        if how != "program" and self._named:
            return self.one_of(self._named)
        return self.program()

    def _operation(self, how: str, depth: int) -> Number:
        one = self.number(depth - 1)
        if how in {"//", "%", "cdiv"}:
            return self._divided(how, one)
        other = self.constant() if how in {"&", "^", ">>"} else self.number(depth - 1)
        text = f"({one.text} {how} {other.text})"
        ends = [one.low, one.high, other.low, other.high]
        if how == "where":
            text = f"tl.where({self.condition()}, {one.text}, {other.text})"
        elif how in {"min", "max"}:
            text = f"{how}({one.text}, {other.text})"
        elif how in {"&", "^", ">>"}:
            most = 1 << max(map(abs, ends)).bit_length()
            ends = [-most if one.low < 0 else 0, most]
        elif how == "*":
            ends = [left * right for left in ends[:2] for right in ends[2:]]
        elif how == "-":
            ends = [one.low - other.high, one.high - other.low]
        else:
            ends = [one.low + other.low, one.high + other.high]
        return Number(text, min(ends), max(ends))

    def _divided(self, how: str, one: Number) -> Number:
        """Return a quotient or a remainder.

        Python rounds the quotient of two constants down, Triton others towards 0.
        """
        other = self.constant() if self.often(7) else self.argument()
        over = other.text if other.low > 0 else f"({other.text} + 1)"
        text = one.text if one.low >= 0 else f"({one.text} + p0)"
        most = max(abs(one.low), abs(one.high)) + self.grid[0]
        low = 0 if one.low >= 0 else -most
        if how == "cdiv":
            return Number(f"tl.cdiv({text}, {over})", low, most)
        return Number(f"({text} {how} {over})", low, most)

    def condition(self, depth: int = 1) -> str:
        """Return a condition on scalars, whose value the compiler does not know."""
        if depth and self.often(3):
            first, second = self.condition(0), self.condition(0)
            return f"({first} {self.one_of(('and', 'or', '&', '|'))} {second})"
        compare = self.one_of(("<", ">", "<=", ">=", "==", "!="))
        one = self.program() if self.often(7) else self.number(1)
        return f"({one.text} + zero {compare} {self.number(1).text})"

    # Tiles of whole numbers, and masks

    def shape(self) -> tuple[int, ...]:
        """Draw the shape of a tile."""
        shape: tuple[int, ...] = self.one_of(
            ((16,), (32,), (64,), (), (8, 16), (16, 4), (32, 16), (4, 2, 8), (1, 32))
        )
        if len(shape) > 1:
            self.kinds.add(f"{len(shape)}-D tile")
        return shape

    def axis(self, shape: tuple[int, ...], axis: int) -> str:
        """Return the places along one axis of a tile, as a tile that can be broadcast."""
        text = f"tl.arange(0, {shape[axis]})"
        if self.often(3) and shape[axis] > 2:
            self.kinds.add("mapped index")
            half = f"tl.arange(0, {shape[axis] // 2})"
            own = (
                f"({text} + {self._turns[-1]} + {3 * self.count_up()})"  # of no other turn or copy
            )
            text = self.one_of(
                (
                    f"({shape[axis] - 1} - {text})",
                    f"({text} ^ {min(3, shape[axis] - 1)})",
                    f"({text} // 2)",
                    f"({text} % 5)",
                    f"tl.where({text} < 3, {text} * 2, {text})",
                    f"tl.minimum({text}, {self.argument().text})",
                    f"({text} * {text})",
                    f"{text}.to(tl.int64)",
                    f"tl.load({self.indices()} + ({text} + {self.count_up()}) % {INDICES})",
                    f"tl.load({self.indices()} + {text}, mask={text} < 9, other={self.count_up()})",
                    f"tl.cumsum({text} % 3, 0)",
                    f"tl.flip({text}, 0)",
                    f"tl.interleave({half} * 2, {half} + 5)",
                    f"tl.floor(({own} + 0.5) * 0.75 - 0.5).to(tl.int32)",
                    f"tl.maximum(({own}.to(tl.float32) + p0) / 3.0, 1.5).to(tl.int32)",
                    f"tl.where({own} * 0.25 < 9.0, {text}, tl.ceil({own} * 1.7).to(tl.int32))",
                )
            )
        if self.often(4):
            text = f"({self.number(1).text} + {text})"
        if self.often(1):
            text = f"({text} % ({self.argument().text} + 1))"
        if len(shape) > 1:
            places = ", ".join(":" if one == axis else "None" for one in range(len(shape)))
            name = self.fresh("a")
            self.line(f"{name} = {text}")
            text = f"{name}[{places}]"
        return text

    def offsets(self, shape: tuple[int, ...]) -> Tile:
        """Write the places of a tile's elements, which no other tile has, and return them."""
        how = self.whole(0, 9) if len(shape) == 2 else 0
        if shape == ():
            text = f"{self.number().text} * {self.stride()} + p0"
        elif how == 9:
            self.kinds.add("reshape")
            whole = self.offsets((math.prod(shape),)).text
            text = f"tl.reshape({whole}, ({shape[0]}, {shape[1]}))"
        elif how == 8:
            self.kinds.add("trans")
            text = f"tl.trans({self.offsets(shape[::-1]).text})"
        else:
            parts = []
            for axis in range(len(shape)):
                text = self.axis(shape, axis)
                parts.append(f"{text} * {self.stride()}" if self.often(6) else text)
            text = " + ".join(parts)
            if self.often(6):
                text = f"{self.number().text} * {self.one_of((1, 16, self.stride()))} + {text}"
        name = self.fresh("o")
        self.line(f"{name} = {text} + {self.count_up()}")
        return Tile(name, shape)

    def mask(self, tile: Tile) -> str:
        """Return the mask of a tile as an argument, or nothing."""
        if self.often(3):
            return ""
        self.kinds.add("mask")
        limit = f"({self.number(1).text} * {self.stride()})"
        first = f"({tile.text} {self.one_of(('<', '>=', '<=', '!='))} {limit})"
        if self.often(5):
            return f", mask={first}"
        if len(tile.shape) < 2 or self.often(2):
            second = self.one_of(
                (
                    f"({tile.text} % 3 == 1)",
                    self.condition(0),
                    f"({tile.text} > 5)",
                    f"(({tile.text} & 4) == 0)",
                )
            )
        else:
            axis = self.whole(0, len(tile.shape) - 1)
            second = f"({self.axis(tile.shape, axis)} < {self.number(1).text} + zero)"
        return f", mask=({first} {self.one_of(('&', '|'))} {second})"
