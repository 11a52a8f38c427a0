"""Small kernels of Triton's language, drawn at random, each with a launch.

Whatever is loaded reaches a store, and floating-point operations of addresses have numbers that no
other place or iteration has, so that the compiler leaves out nothing that the interpreter does; and
each statement that moves something has a line of its own.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drawn_numbers import INDICES, LARGEST_INDEX, Number, Numbers
from hypothesis import strategies as st
from interpreted import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOST_STATEMENTS = 9
MOST_TRIPS = 60
"""The most iterations of an innermost loop in one program."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A kernel, named `kernel` in the source, with one launch."""

    source: str
    arguments: Mapping[str, Any]
    """By name, a Tensor for each tensor; those in capitals are constexpr."""
    grid: tuple[int, ...]
    resident: int
    kinds: frozenset[str]
    """What it has: loop, mask, branch ..."""

    def __repr__(self) -> str:
        """Return it as a reader would type it."""
        return f"{self.source}\n# {dict(self.arguments)}, grid {self.grid}"


HELPERS = {
    "part": """def part(x, off, n):
    v = tl.load(x + off, mask=off < n, other=0.0)
    return v.to(tl.float32) * 2.0
""",
    "place": """def place(p, n):
    return p // n, p % n
""",
    "both": """def both(x, off, n):
    v = part(x, off, n) + 1.0
    return v + part(x, off + 7, n + 3)
""",
    "strip": """def strip(x, start, n):
    total = tl.full((32,), start, tl.float32)
    for k in range(0, n, 32):
        at = k + tl.arange(0, 32)
        total += tl.load(x + start + at, mask=at < n, other=0.0).to(tl.float32)
    return total
""",
    "put": """def put(y, off, v, n):
    if n > 5:
        tl.store(y + off, v, mask=off < n)
    else:
        tl.store(y + off + 1, v)
""",
    "far": """def far(x, at, n):
    v = 0.0
    for k in range(n):
        v += tl.load(x + at + k * 2).to(tl.float32)
    return v
""",
    "pick": """def pick(x, off, n):
    if n % 2 == 0:
        v = tl.load(x + off).to(tl.float32)
    else:
        v = tl.load(x + off * 2, mask=off > 1, other=1.0).to(tl.float32)
    return v
""",
}
"""Functions that kernels call, each after the functions that it calls."""
NOT_INLINED = "far"


class Writer(Numbers):
    """Writes one kernel from what *draw* returns."""

    def __init__(self, draw: Any) -> None:
        super().__init__(draw)
        self._left = self.whole(1, MOST_STATEMENTS)
        self.arguments["zero"] = 0
        self._trips = 1
        self._sums: dict[tuple[int, ...], str] = {}
        self._helpers: set[str] = set()

    def drawn(self) -> Drawn:
        """Return the kernel with its launch."""
        if self.often(1):
            self.kinds.add("return")
            self.line(f"if {self.condition()}:")
            self.line("    return")
        while self._left > 0:
            self.statements(3)
        for shape, total in self._sums.items():
            self.line(f"tl.store(out + {self.offsets(shape).text}, {total})")
        if self._sums:
            self.arguments["out"] = Tensor("float32")
        names = sorted(self.arguments, key=lambda name: (name.isupper(), name))
        parameters = ", ".join(f"{one}: tl.constexpr" if one[0] == "C" else one for one in names)
        source = [
            "import triton",
            "import triton.language as tl\n",
            *(
                f"@triton.jit{'(noinline=True)' * (name == NOT_INLINED)}\n{text}\n"
                for name, text in HELPERS.items()
                if name in self._helpers
            ),
            "@triton.jit",
            f"def kernel({parameters}):",
            *(f"    p{axis} = tl.program_id({axis})" for axis in range(len(self.grid))),
            *(
                f"    {total} = "
                + (f"tl.full({shape}, p0, tl.float32)" if shape else "p0.to(tl.float32)")
                for shape, total in self._sums.items()
            ),
            *self._lines,
            "",
        ]
        return Drawn(
            "\n".join(source),
            {name: self.arguments[name] for name in names},
            self.grid,
            self.whole(1, math.prod(self.grid)),
            frozenset(self.kinds),
        )

    def statements(self, depth: int) -> None:
        """Write at least one statement of a body."""
        simple = (self.move, self.move, self.name, self.call, self.dot, self.indirect, self.fill)
        simple += (self.describe,)
        nested = (self.carry, self.count, self.count, self.branch, self.repeat, self.unroll)
        nested += (self.advance, self.advance_block)
        for _ in range(self.whole(1, 3)):
            if self._left <= 0:
                break
            self._left -= 1
            statement = self.one_of(simple + nested if depth else simple)
            if statement in nested:
                statement(depth - 1)
            else:
                statement()

    # Uses of a value

    def keep(self, value: str, shape: tuple[int, ...]) -> None:
        """Write code that lets *value* reach a store."""
        how = self.one_of(("sum", "store", "sum", "reduce", "atomic", "put"))
        if how == "sum" or (how in {"reduce", "put"} and shape == ()):
            self.line(f"{self.total(shape)} += {self.changed(value, shape)}")
        elif how == "reduce":
            self.kinds.add("reduction")
            axis = self.whole(0, len(shape) - 1)
            name, fold = self.fresh("r"), self.one_of(("sum", "max", "min"))
            self.line(f"{name} = tl.{fold}({value}.to(tl.float32), axis={axis})")
            self.keep(name, (*shape[:axis], *shape[axis + 1 :]))
        elif how == "put":
            at, limit = self.offsets(shape).text, self.number(1).text
            put, y = self.helper("put"), self.tensor("y")
            self.line(f"{put}({y}, {at}, {value}.to(tl.float32), {limit})")
        elif how == "atomic":
            self.kinds.add("atomic")
            tile, z = self.offsets(shape), self.tensor("z")
            mask = self.mask(tile)
            self.line(f"tl.atomic_add({z} + {tile.text}, {value}.to(tl.float32){mask})")
        else:
            self.store(value, shape)

    def total(self, shape: tuple[int, ...]) -> str:
        """Return the name of a sum of tiles, which is stored at the end."""
        return self._sums.setdefault(shape, f"sum{len(self._sums)}")

    def changed(self, value: str, shape: tuple[int, ...]) -> str:
        """Return arithmetic on *value* as text."""
        value = f"{value}.to(tl.float32)"
        if self.often(5):
            return value
        if len(shape) == 1 and self.often(5):
            self.kinds.add("scan")
            return self.one_of((f"tl.cumsum({value}, 0)", f"tl.sort({value})"))
        if len(shape) == 2 and shape[0] == shape[1]:
            return f"tl.trans({value})"
        return self.one_of(
            (f"tl.exp({value})", f"{value} * 0.5", f"tl.where({value} > 0, {value}, 0.1)")
        )

    def store(self, value: str, shape: tuple[int, ...]) -> None:
        """Write a store of a tile."""
        tile, y = self.offsets(shape), self.tensor("y")
        mask = self.mask(tile)
        self.line(f"tl.store({y} + {tile.text}, {value}{mask})")

    # Statements that move data

    def load(self, shape: tuple[int, ...], more: str = "") -> str:
        """Write a load of a tile, *more* elements further, and return its name."""
        tile, x = self.offsets(shape), self.tensor("x")
        masked = self.mask(tile)
        if masked and self.often(7):
            masked += f", other={self.count_up() % 90}.0"
        if self.often(1):
            masked += self.one_of((', eviction_policy="evict_last"', ', cache_modifier=".cg"'))
        name = self.fresh("v")
        self.line(f"{name} = tl.load({x} + {tile.text}{more}{masked})")
        return name

    def move(self, more: str = "") -> None:
        """Write a load, and a use of its value."""
        shape = self.shape()
        self.keep(self.load(shape, more), shape)

    def fill(self) -> None:
        """Write a store of a constant."""
        self.store(str(self.count_up() % 90), self.shape())

    def name(self) -> None:
        """Name a number, or two that swizzle programs."""
        number, name = self.number(), self.fresh("k")
        if self.often(3) and self.grid[0] > 1:
            self.kinds.add("swizzle")
            width = self.constant()
            self.line(f"{name}, {name}r = {self.helper('place')}(p0, {width.text} + 1)")
            self._named.append(Number(f"{name}r", 0, width.high))
            number = Number("", 0, self.grid[0])
        elif self.often(3):
            self.kinds.add("reduced index")
            fold, over = self.one_of(("sum", "max", "min")), self.argument().text
            self.line(f"{name} = tl.{fold}((tl.arange(0, 16) ^ p0) % ({over} + 2), axis=0)")
            number = Number("", 0, 1000)
        else:
            self.line(f"{name} = p0 * 0 + {number.text}")
        self._named.append(Number(name, number.low, number.high))
        self.move()

    def indirect(self) -> None:
        """Load a whole number for addresses, masks, loops and branches."""
        name, number = self.fresh("j"), self.number().natural
        at = f"({number} + {self.count_up()}) % {INDICES}"
        self.line(f"{name} = tl.load({self.indices()} + {at}).to(tl.int32)")
        self._named.append(Number(name, 0, LARGEST_INDEX))
        self.move(f" + {name}")

    def helper(self, name: str) -> str:
        """Return a function to call, which is written too."""
        self.kinds.add("helper")
        self._helpers |= {name, "part"} if name == "both" else {name}
        return name

    def call(self) -> None:
        """Write a call of a function that loads."""
        name = self.helper(self.one_of(("part", "both", "strip", "pick", NOT_INLINED)))
        x, limit, value = self.tensor("x"), self.number(1).text, self.fresh("v")
        shape: tuple[int, ...]
        if name == "strip":
            shape, limit = (32,), f"min({limit}, 90) + zero"
        elif name == NOT_INLINED:
            self.kinds.add("noinline")
            shape, limit = (), f"min({limit}, 3)"
        else:
            shape = self.one_of(((16,), (64,)))
        at = self.offsets(() if name == "strip" else shape).text
        self.line(f"{value} = {name}({x}, {at}, {limit})")
        self.keep(value, shape)

    def dot(self) -> None:
        """Write a product of two loaded tiles."""
        self.kinds.add("dot")
        m, n, k = (self.one_of((16, 32)) for _ in range(3))
        dtype = self.one_of(("float16", "float32"))
        a, b = (f"{self.load(shape)}.to(tl.{dtype})" for shape in ((m, k), (k, n)))
        total = self.total((m, n))
        if self.often(5):
            self.line(f"{total} = tl.dot({a}, {b}, {total})")
        else:
            self.line(f"{total} += tl.dot({a}, {b}) * 0.5")  # otherwise one operation does both

    def describe(self) -> None:
        """Write a descriptor, and a load or a store of a block with it."""
        self.kinds.add("descriptor")
        loads = self.often(5)
        tensor = self.tensor("x" if loads else "y")
        name, value = self.fresh("d"), self.fresh("v")
        shape: tuple[int, ...] = self.one_of(((16, 16), (8, 32)))
        self.line(
            f"{name} = tl.make_tensor_descriptor({tensor}, shape=[{self.argument().text} + 1,"
            f" {self.argument().text} + 8], strides=[{self.one_of((64, 96))}, 1],"
            f" block_shape={list(shape)})"
        )
        at = f"[{self.number(1).text}, {self.number(1).text} * 16]"
        if loads:
            self.line(f"{value} = {name}.load({at})")
            self.keep(value, shape)
        else:
            dtype = self.arguments[tensor].dtype
            self.line(f"{name}.store({at}, tl.full({list(shape)}, 3, tl.{dtype}))")

    # Loops and branches

    @contextmanager
    def loop(self, variable: str, header: str, trips: int) -> Iterator[None]:
        """Write a loop that runs at most *trips* times, with another *variable* each time."""
        self.kinds.add("nested loop" if self._trips > 1 else "loop")
        self.line(f"{header}:")
        self._trips *= trips
        self._turns.append(variable)
        with self.body():
            yield
        self._turns.pop()
        self._trips //= trips

    def bounds(self) -> tuple[str, int, int]:
        """Return the bounds of a loop, the limit of its variable and how often it runs at most.

        The compiler does not know that a loop never runs: it would leave out what such a loop
        needs.
        """
        how = self.one_of(("count", "tiles", "persistent", "down", "between", "tl", "constant"))
        step = self.whole(1, 4)
        low, number = self.number(1).text, self.number(1)
        if how == "tiles":
            until = self.argument()
            found = f"range(0, {until.text}, {self.one_of((16, 32))})", until.high, 5
        elif how == "persistent":
            axis = self.whole(0, len(self.grid) - 1)
            until = self.whole(0, 4 * self.grid[axis])
            found = f"range(p{axis}, {until}, tl.num_programs({axis}))", until, 4
        elif how == "down":
            bounds = f"range(min({number.text}, 7) + zero, {self.whole(0, 2)}, -{step})"
            found = bounds, max(number.high, 1), 7
        elif how == "between":
            bounds = f"range({low} + zero, min({number.text}, {low} + {4 * step}), {step})"
            found = bounds, max(number.high, 1), 4
        elif how == "tl":
            stages = self.one_of(("", ", num_stages=2"))
            found = f"tl.range(0, min({number.text}, 5) + zero{stages})", 5, 5
        elif how == "constant":
            found = f"range(1, {self.whole(2, 5)})", 4, 4
        else:
            found = f"range(min({number.text}, 5) + zero)", 5, 5
        return found if self._trips * found[-1] <= MOST_TRIPS else ("range(0, 2)", 2, 2)

    def count(self, depth: int, first: str = "") -> None:
        """Write a loop over a range, whose body may begin with a given line."""
        bounds, high, trips = self.bounds()
        name = self.fresh("t")
        with self.loop(name, f"for {name} in {bounds}", trips):
            if first:
                self.line(first)
            self._named.append(Number(name, -LARGEST_INDEX, high))
            self.move()
            self.statements(depth)

    def carry(self, depth: int) -> None:
        """Name a number that a loop changes."""
        self.kinds.add("carried")
        name = self.fresh("c")
        self.line(f"{name} = {self.constant().text} + p0")
        self.count(depth, f"{name} += {self.whole(0, 3)}")
        self._named.append(Number(name, 0, 100))
        self.move()

    def repeat(self, depth: int) -> None:
        """Write a while loop."""
        self.kinds.add("while")
        name, high = self.fresh("w"), self.number(1)
        start, condition, step, trips = self.one_of(
            (
                ("0", f"{name} < min({high.text}, 5)", f"{name} += 1", 5),
                (f"p0 + {high.text}", f"({name} > 0) & ({name} != 3)", f"{name} //= 2", 10),
                ("1", f"{name} * {name} <= {high.text}", f"{name} *= 3", 10),
                (f"{high.natural} % 9", f"{name} > 0", f"{name} -= 2", 5),
            )
        )
        if self._trips * trips > MOST_TRIPS:
            self.move()
            return
        self.line(f"{name} = {start}")
        with self.loop(name, f"while {condition}", trips):
            self._named.append(Number(name, -2, 2 * max(high.high, 0) + 12))
            self.move()
            self.statements(depth)
            self.line(step)

    def branch(self, depth: int) -> None:
        """Write branches that set a number for later statements.

        A store in each, and after them, keeps the compiler from merging any.
        """
        self.kinds.add("branch")
        name, numbers = self.fresh("g"), [self.number(1)]
        self.line(f"{name} = p0 * 0 + {numbers[0].text}")
        headers = [f"if {self.condition()}"]
        if self.often(4):
            headers += [f"elif {self.condition()}"] * self.often(3) + ["else"]
        for header in headers:
            self.line(f"{header}:")
            with self.body():
                self.fill()
                self.statements(depth)
                numbers.append(self.number(1))
                self.line(f"{name} = p0 * 0 + {numbers[-1].text}")
        ends = [end for one in numbers for end in (one.low, one.high)]
        self._named.append(Number(name, min(ends), max(ends)))
        self.fill()

    def unroll(self, depth: int) -> None:
        """Write a loop whose body the compiler repeats."""
        self.kinds.add("unrolled")
        name, times = self.fresh("u"), self.whole(1, 3)
        if self._trips * times > MOST_TRIPS:
            self.move()
            return
        with self.loop(name, f"for {name} in tl.static_range({times})", times):
            self.move(f" + {name} * 3")
            self._named.append(Number(name, 0, times))
            if depth and self.often(2):
                self.count(depth - 1)

    def advance(self, _depth: int) -> None:
        """Write a loop that advances a pointer."""
        self.kinds.add("carried pointer")
        shape = self.shape()
        tile, x = self.offsets(shape), self.tensor("x")
        pointer, value, step = self.fresh("q"), self.fresh("v"), self.stride()
        bounds, _, trips = self.bounds()
        self.line(f"{pointer} = {x} + {tile.text}")
        mask = self.mask(tile)
        turn = self.fresh("t")
        with self.loop(turn, f"for {turn} in {bounds}", trips):
            self.line(f"{value} = tl.load({pointer}{mask})")
            self.keep(value, shape)
            self.line(f"{pointer} += {step}{self.one_of(('', ' * 2', ' - 1'))}")

    def advance_block(self, _depth: int) -> None:
        """Write a block pointer, and a loop that advances it."""
        self.kinds.add("block pointer")
        x, pointer, value = self.tensor("x"), self.fresh("b"), self.fresh("v")
        shape: tuple[int, ...] = self.one_of(((16, 16), (8, 32)))
        self.line(
            f"{pointer} = tl.make_block_ptr({x}, shape=({self.argument().text} + 1,"
            f" {self.argument().text} + 8), strides=({self.stride()}, 1),"
            f" offsets=({self.number(1).text}, p0 * 8), block_shape={shape}, order=(1, 0))"
        )
        bounds, _, trips = self.bounds()
        checked = self.one_of(("(0, 1)", "(0,)", "(1,)"))
        turn = self.fresh("t")
        with self.loop(turn, f"for {turn} in {bounds}", trips):
            self.line(f"{value} = tl.load({pointer}, boundary_check={checked})")
            self.keep(value, shape)
            self.line(f"{pointer} = tl.advance({pointer}, ({self.whole(0, 3)}, 8))")


@st.composite
def kernels(draw: Any) -> Drawn:
    """Draw a kernel and a launch."""
    return Writer(draw).drawn()
