"""Counts of small random kernels equal what Triton's interpreter does on the CPU.

`OCCUPANCY_LAB_DRAWN_KERNELS=2000 pytest tests/work/test_drawn_kernels.py` generates more of them.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drawn_kernels import Drawn, kernels
from drawn_numbers import LARGEST_INDEX
from first_texts import first_text
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from interpreted import Interpreter, OutsideError, Ran, Tensor

from occupancy_lab.arguments import Pointer
from occupancy_lab.work.counts import Amount, Counts, Place
from occupancy_lab.work.ttir import read_ttir
from occupancy_lab.work.walk import count

ARITHMETIC = ("dot", "addf", "mulf", "exp", "reduce", "scan")
EXAMPLES = int(os.environ.get("OCCUPANCY_LAB_DRAWN_KERNELS", "20"))

Numbers = dict[Any, dict[str, Amount]]
"""Numbers by name for each place: a kind with the lines of the place and of the calls to it."""


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    """Return Triton's interpreter, which is started once."""
    with Interpreter() as running:
        yield running


# Counts of a launch


def counted(drawn: Drawn, path: Path, **more: Any) -> Counts:
    """Return the counts of a launch of a file's `kernel`; *more* is passed to `count`."""
    arguments = {name: plain(value) for name, value in drawn.arguments.items()}
    module = read_ttir(first_text(kernel_of(path), arguments))
    return count(module, arguments, drawn.grid, resident=drawn.resident, **more)


def plain(value: Any) -> Any:
    """Return an argument as a launch takes it."""
    return Pointer(value.dtype, 1 << 24) if isinstance(value, Tensor) else value


def kernel_of(path: Path) -> Any:
    """Return the function `kernel` of a file."""
    module: dict[str, Any] = {"__name__": "drawn"}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), module)  # noqa: S102
    return module["kernel"]


def values(drawn: Drawn) -> dict[str, tuple[int, ...]]:
    """Return the contents of the tensors whose contents matter."""
    return {
        name: one.values
        for name, one in drawn.arguments.items()
        if isinstance(one, Tensor) and one.values is not None
    }


# Numbers by place
#
# The compiler may omit an access that never has an active element, a loop that never runs twice,
# and a branch that is always or never taken; `whole` includes these.


def counted_numbers(counts: Counts, *, whole: bool) -> Numbers:
    """Return the counted numbers."""
    found: list[tuple[Any, dict[str, Amount]]] = []
    for access in counts.accesses:
        if whole or access.active.high:
            kind = "load" if access.reads else "store"
            kind = "atomic" if access.reads and access.writes else kind
            names = ("executions", "elements", "active", "bytes", "sectors", "lines")
            numbers = {name: getattr(access, name) for name in (*names, "unique_bytes")}
            found.append(((kind, lines(access.place)), numbers))
    for loop in counts.loops:
        if whole or (loop.trips.high != 0 and loop.most != 1):
            numbers = {"entered": loop.entered, "trips": loop.trips}
            limits = {} if whole else {"least": known(loop.least), "most": known(loop.most)}
            found.append((("loop", lines(loop.place)), numbers | limits))
    for branch in counts.branches:
        if whole or branch.taken not in {Amount.of(0), branch.reached}:
            numbers = {"reached": branch.reached, "taken": branch.taken}
            found.append((("branch", lines(branch.place)), numbers))
    for done in counts.arithmetic:
        if done.operation in ARITHMETIC and (whole or done.executions.high):
            numbers = {"executions": done.executions, "flops": done.flops}
            found.append(((done.operation, lines(done.place)), numbers))
    return summed([*found, *counted_footprints(counts, whole=whole)])


def counted_footprints(counts: Counts, *, whole: bool) -> Iterator[tuple[Any, dict[str, Amount]]]:
    """Return the distinct bytes of each tensor."""
    for one in counts.footprints:
        if whole or one.read.high or one.written.high:
            names = ("read", "written", "read_whole", "written_whole")
            yield (f"footprint of {one.tensor}", ()), {name: getattr(one, name) for name in names}


def ran_numbers(ran: Ran, *, whole: bool) -> Numbers:
    """Return the numbers of the run."""
    found: list[tuple[Any, dict[str, int]]] = []
    for (where, kind, _), moved in ran.moved.items():
        if whole or moved.active:
            names = ("executions", "elements", "active", "sectors", "lines", "unique_bytes")
            numbers = {name: getattr(moved, name) for name in names}
            numbers["bytes"] = moved.active * moved.item_bytes
            found.append(((kind, where), numbers))
    for (where, *_), trips in ran.loops.items():
        if whole or max(trips) > 1:
            limits = {} if whole else {"least": min(trips), "most": max(trips)}
            numbers = {"entered": len(trips), "trips": sum(trips)}
            found.append((("loop", where), numbers | limits))
    for (where, *_), branch in ran.branches.items():
        if whole or branch.taken not in {0, branch.reached}:
            numbers = {"reached": branch.reached, "taken": branch.taken}
            found.append((("branch", where), numbers))
    for (where, name, _), done in ran.arithmetic.items():
        numbers = {"executions": done.executions, "flops": done.flops}
        found.append(((name, where), numbers))
    for name, one in ran.touched.items():
        names = ("read", "written", "read_whole", "written_whole")
        numbers = {each: getattr(one, each) for each in names}
        found.append(((f"footprint of {name}", ()), numbers))
    return summed((place, {key: Amount.of(n) for key, n in one.items()}) for place, one in found)


def known(number: int | None) -> Amount:
    """Return *number* as an amount; None becomes an unknown amount."""
    return Amount(0, None) if number is None else Amount.of(number)


def lines(place: Place) -> tuple[int, ...]:
    """Return the kernel's own lines among *place* and the calls to it, innermost first."""
    calls = (place, *place.called_from)
    return tuple(one.line for one in calls if one.file == place.outermost.file)


def summed(found: Iterable[tuple[Any, dict[str, Amount]]]) -> Numbers:
    """Return the sums of the numbers of all operations at each place."""
    at: Numbers = {}
    for place, numbers in found:
        at[place] = {
            name: together(name, at[place][name], one) if place in at else one
            for name, one in numbers.items()
        }
    return at


def together(name: str, one: Amount, other: Amount) -> Amount:
    """Return the combined number of two operations."""
    limits = {"least": min, "most": max}
    return limits[name](one, other, key=lambda one: one.low) if name in limits else one + other


def differences(counts: Counts, ran: Ran) -> list[str]:
    """Return each place whose counted numbers differ from those of the run."""
    there, here = counted_numbers(counts, whole=False), ran_numbers(ran, whole=False)
    return [
        *(
            f"{place}: counted {shown(there.get(place))}, ran {shown(here.get(place))}"
            for place in sorted({*there, *here})
            if there.get(place) != here.get(place)
        ),
        *(
            f"unknown: {one.name} of line {one.place.line}"
            for one in counts.unknowns
            if one.assumed is None
        ),
        *(f"not counted: {name}" for name in counts.not_counted),
    ]


def outside(counts: Counts, ran: Ran) -> list[str]:
    """Return each number of the run that is outside of the counted limits."""
    there, most = counted_numbers(counts, whole=True), ran_numbers(ran, whole=True)
    least = ran_numbers(ran, whole=False)
    return [
        f"{name} of {place}: counted {amount}, ran {low.low} to {high.low}"
        for place in sorted({*there, *most})
        for name in most.get(place, there.get(place, {}))
        for amount, low, high in [
            [one.get(place, {}).get(name, Amount.of(0)) for one in (there, least, most)]
        ]
        if amount.low > high.low or (amount.high is not None and amount.high < low.low)
    ]


def shown(numbers: dict[str, Amount] | None) -> str:
    """Return numbers as text."""
    return str(
        {
            name: (one.low, one.high) if one.exact is None else one.low
            for name, one in numbers.items()
        }
        if numbers
        else None
    )


# Tests


NUMBERS = itertools.count()


def written_and_run(drawn: Drawn, interpreter: Interpreter, folder: Path) -> tuple[Path, Ran]:
    """Write a kernel to a file and run its launch; discard a kernel that leaves its tensors."""
    path = folder / f"kernel{next(NUMBERS)}.py"
    path.write_text(drawn.source, "utf-8")
    ran = interpreter.run(path, {**drawn.arguments}, drawn.grid)
    if str(ran).startswith(OutsideError.__name__):
        reject()
    assert isinstance(ran, Ran), ran
    return path, ran


@pytest.fixture
def drawn_and_run(interpreter: Interpreter, tmp_path: Path) -> Callable[[Drawn], tuple[Path, Ran]]:
    """Return a function that writes a random kernel and runs its launch."""

    def run(drawn: Drawn) -> tuple[Path, Ran]:
        path, ran = written_and_run(drawn, interpreter, tmp_path)
        assume(not ran.alike)
        return path, ran

    return run


DRAWN = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def test_random_kernels_are_counted_exactly(
    drawn_and_run: Callable[[Drawn], tuple[Path, Ran]],
) -> None:
    """Loops, branches, accesses, dots and footprints of any random kernel are counted exactly."""

    @DRAWN
    @given(kernels())
    def check(drawn: Drawn) -> None:
        path, ran = drawn_and_run(drawn)
        counts = counted(drawn, path, values=values(drawn))
        assert differences(counts, ran) == []

    check()


def test_limits_without_contents_of_tensors(
    drawn_and_run: Callable[[Drawn], tuple[Path, Ran]],
) -> None:
    """Where the contents of tensors that steer a kernel are unknown, limits contain the run."""

    @settings(DRAWN, max_examples=EXAMPLES // 3)
    @given(kernels())
    def check(drawn: Drawn) -> None:
        path, ran = drawn_and_run(drawn)
        counts = counted(drawn, path)
        assert outside(counts, ran) == []

    check()


HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit\n"
SEARCH = (
    HEAD
    + """def kernel(table, wanted, y, size, steps, CB: tl.constexpr):
    at = tl.program_id(0) * CB + tl.arange(0, CB)
    key = tl.load(wanted + at)
    low = tl.zeros((CB,), tl.int32)
    high = low + size
    for i in range(steps):
        middle = (low + high) // 2
        value = tl.load(table + middle)
        low = tl.where(value < key, middle, low)
        high = tl.where(value < key, high, middle)
    tl.store(y + at, low)
"""
)
WANDERING = (
    HEAD
    + """def kernel(table, wanted, y, size, steps, CB: tl.constexpr):
    place = tl.program_id(0)
    rows = y + tl.arange(0, CB)
    for i in range(steps):
        rows += CB
        place = tl.load(wanted + place) % 64
        value = tl.load(table + place)
        tl.store(rows, value)
    end = tl.load(wanted) % 7
    at = tl.arange(0, CB) * 2
    for i in range(end):
        at = tl.where(at % 4 == 0, at // 2, at + 3)
        rows += CB
    tl.store(rows, 1)
    tl.store(table + at, 1)
    turn = 0
    while turn * turn < end:
        turn += 1
        at = tl.where(at % 4 == 0, at // 2, at + 3)
    tl.store(table + at + 1000, 1)
"""
)


@pytest.mark.parametrize("source", [SEARCH, WANDERING])
def test_limits_of_unknown_carried_values(
    source: str, interpreter: Interpreter, tmp_path: Path
) -> None:
    """Where each element takes its own path through a loop, limits contain the run."""
    numbers = tuple(one * one % 4093 for one in range(2048))
    arguments = {
        "table": Tensor("int32", tuple(sorted(numbers))),
        "wanted": Tensor("int32", numbers[64:]),
        "y": Tensor("int32"),
        "size": 2048,
        "steps": 11,
        "CB": 64,
    }
    drawn = Drawn(source, arguments, (8,), 8, frozenset())
    path, ran = written_and_run(drawn, interpreter, tmp_path)
    counts = counted(drawn, path)
    assert outside(counts, ran) == []
    assert any(not one.sectors.is_exact for one in counts.accesses if one.tensor == "table")


GATHERED = (
    HEAD
    + """def kernel(rows, x, y, n, CB: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [n, 64], [64, 1], [1, 32])
    target = tl.make_tensor_descriptor(y, [n, 64], [64, 1], [1, 32])
    at = tl.program_id(0) * CB + tl.arange(0, CB)
    row = tl.load(rows + at)
    target.scatter(source.gather(row, 24), at * 3, 48)
"""
)


def test_gathers_and_scatters_of_descriptors(interpreter: Interpreter, tmp_path: Path) -> None:
    """Gathers and scatters through descriptors count only the bytes inside the tensor."""
    rows = Tensor("int32", (5, 1, 5, 70, 2, 39, 40, 3, *range(8)))
    given = {"n": 40, "rows": rows, "x": Tensor("float32"), "y": Tensor("float32"), "CB": 8}
    drawn = Drawn(GATHERED, given, (2,), 1, frozenset())
    path, ran = written_and_run(drawn, interpreter, tmp_path)
    counts = counted(drawn, path, values=values(drawn))
    for name, each in (("x", "read"), ("y", "written")):
        (found,) = (one for one in counts.footprints if one.tensor == name)
        assert getattr(found, each).exact == getattr(ran.touched[name], each) > 0
        (access,) = (one for one in counts.accesses if one.tensor == name)
        moved = (one.active for one in ran.moved.values() if name in one.tensors)
        assert access.active.exact == sum(moved)


STEERED = (
    HEAD
    + """def kernel(lengths, x, y, CB: tl.constexpr, CMOST: tl.constexpr):
    inner, total = tl.arange(0, CB), tl.zeros((CB,), tl.float32)
    program, block = tl.program_id(0), 0
    while (block < CMOST) & (block < tl.load(lengths + program)):
        total += tl.load(x + (program * CMOST + block) * CB + inner)
        block += 1
    for last in range(tl.load(lengths + program)):
        tl.store(y + last * CB + inner, total)
"""
)


def steered(lengths: tuple[int, ...]) -> Drawn:
    """Return a launch with loops whose trips are in memory, a number for each program."""
    tensors = {"lengths": Tensor("int32", lengths), "x": Tensor("float32"), "y": Tensor("float32")}
    return Drawn(STEERED, {**tensors, "CB": 32, "CMOST": 6}, (len(lengths),), 1, frozenset())


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_assumed_trips_are_as_good_as_the_contents(
    trips: int, interpreter: Interpreter, tmp_path: Path
) -> None:
    """Assuming the trips that numbers in memory give to two loops gives the same counts."""
    path, ran = written_and_run(drawn := steered((trips,) * 3), interpreter, tmp_path)
    text = path.read_text("utf-8").splitlines()
    loops = [n for n, line in enumerate(text, 1) if line.strip().startswith(("while", "for"))]
    counts = counted(drawn, path, assume={f"trips@{line}": trips for line in loops})
    assert differences(counts, ran) == []


def test_a_run_is_within_what_the_source_allows(interpreter: Interpreter, tmp_path: Path) -> None:
    """Without values, the counts of a run are in their ranges, and the source's limit is seen."""
    path, ran = written_and_run(drawn := steered((0, 3, 7)), interpreter, tmp_path)
    counts = counted(drawn, path)
    assert outside(counts, ran) == []
    assert [one.allowed for one in counts.loops] == [Amount(0, 6), Amount(0, None)]
    assert [one.trips for one in counts.loops] == [Amount(0, 18), Amount(0, None)]


def test_an_assumed_number_is_as_good_as_the_contents(
    drawn_and_run: Callable[[Drawn], tuple[Path, Ran]],
) -> None:
    """Assuming the one number that a tensor holds gives the same counts as its contents."""

    @settings(DRAWN, max_examples=EXAMPLES // 3)
    @given(kernels(), st.integers(0, LARGEST_INDEX))
    def check(drawn: Drawn, number: int) -> None:
        held = {
            name: Tensor(drawn.arguments[name].dtype, (number,) * len(given))
            for name, given in values(drawn).items()
        }
        drawn = replace(drawn, arguments={**drawn.arguments, **held})
        path, ran = drawn_and_run(drawn)
        counts = counted(drawn, path, assume=dict.fromkeys(held, number))
        assert differences(counts, ran) == []

    check()
