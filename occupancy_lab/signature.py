"""Reads the launches that a command line describes.

`--signature` has an entry for each argument, separated by commas: by name, `X=*fp16, N=i32`, or in
the order of the parameters, as for `triton.tools.compile`, `*fp16, i32, 1024`. In the second form a
constexpr's entry is its value, and parameters that --constexpr, an autotuner or heuristics set have
no entry. `notation` describes the entries.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from occupancy_lab.arguments import plain
from occupancy_lab.assumed import MOST_TRIPS, TRIPS, Assumption, read_elements
from occupancy_lab.errors import InputError, few_of, quoted, refuse, shortened
from occupancy_lab.expressions import parse
from occupancy_lab.kernel import Variant
from occupancy_lab.launch import checked_grid, constant_text
from occupancy_lab.notation import (
    Parameters,
    Typical,
    is_constant,
    is_typical,
    read_argument,
    read_constant,
    split,
    whole_numbers,
)
from occupancy_lab.options import KNOBS
from occupancy_lab.values import INT64_MAX, MAX_STAGES

Words: TypeAlias = str | Sequence[str] | Mapping[str, Any]
"""NAME=VALUE texts of a command line, or values by name, with a list for several."""
Grid: TypeAlias = tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]

MOST_LAUNCHES = 10_000
MOST_WARPS = 64
"""More than any GPU allows per program; the real limit is checked when the GPU is known."""
EXAMPLE = "cdiv(N, BLOCK_SIZE)"
_NAME = re.compile(r"[^\W\d]\w*")
_ANOTHER = re.compile(rf"\s*{_NAME.pattern}\s*=(?!=)")
_NAMED = re.compile(r"([^\W\d]\w*)\s*=\s*(.*)", re.DOTALL)
_BYTES = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*(k|[KMGT]i?)?B")
_UNITS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGT", 1)
}


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """One launch of a command line: the arguments of `kernel[grid](*arguments, **keywords)`."""

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    grid: Grid | None
    """None if it is not known; a function of the arguments if an autotuner or heuristics influence
    it."""
    read_bytes: int | None
    """Bytes that the launch must read; None if not given."""
    written_bytes: int | None
    """Bytes that the launch must write; None if not given."""
    typical: Mapping[str, str]
    """The signature of each argument that has a type but no value: {"N": "i32:16"}. Any number of
    the type stands for it in the launch, and is never shown."""
    chosen: Mapping[str, tuple[Any, ...]]
    """The values that the autotuner's configurations must have, by name: one of each tuple."""

    def choose(self, found: Sequence[Variant]) -> list[Variant]:
        """Return those of *found* whose configuration is chosen; InputError if there are none."""
        kept = are_chosen([one.tuned for one in found], self.chosen)
        return [*itertools.compress(found, kept)]


def are_chosen(
    configurations: Sequence[Mapping[str, Any]], chosen: Mapping[str, tuple[Any, ...]]
) -> list[bool]:
    """Return which of an autotuner's *configurations* have one of the *chosen* values by name.

    Raises InputError if none has.
    """
    settings = [{name: plain(one.get(name)) for name in chosen} for one in configurations]
    kept = [
        all(constant_text(own[name]) in map(constant_text, chosen[name]) for name in own)
        for own in settings
    ]
    if not any(kept):
        there = [" ".join(f"{name}={value}" for name, value in one.items()) for one in settings]
        asked = " ".join(f"{name}={','.join(map(str, values))}" for name, values in chosen.items())
        refuse(
            f"the autotuner has no configuration with {quoted(asked)}; there are"
            f" {few_of(list(dict.fromkeys(there)))}"
        )
    return kept


def read_launches(  # noqa: PLR0913 - a command line's options
    function: Any,
    *,
    signature: str | None = None,
    constexprs: Words = (),
    num_warps: Any = None,
    num_stages: Any = None,
    options: Words = (),
    grid: Any = None,
    bytes_read: Any = None,
    bytes_written: Any = None,
) -> tuple[LaunchLine, ...]:
    """Return the launches of *function* that options describe, as for `explain_launch`.

    Raises InputError, with what would work, if something is missing or wrong.
    """
    kernel = Parameters.of(function)
    knobs = {"num_warps": num_warps, "num_stages": num_stages}
    given = read_settings(kernel.check_setting, constexprs, options, knobs)
    chosen = {name: values for name, values in given.items() if name in kernel.setters}
    settings = {name: values for name, values in given.items() if name not in chosen}
    texts = _entries(kernel, signature or "", settings)
    arguments = {
        name: read_argument(name, text, kernel.by_name[name].annotation_type)
        for name, text in texts.items()
        if not kernel.is_constexpr(name)
    }
    settings |= {
        name: (read_constant(name, text),)
        for name, text in texts.items()
        if kernel.is_constexpr(name)
    }
    for name in KNOBS:
        check_knob(name, {**settings, **chosen}.get(name, ()))
    kernel.check_complete(texts, settings)
    check_number(math.prod(map(len, settings.values())))
    first = tuple(itertools.takewhile(arguments.__contains__, kernel.by_name))
    others = {name: value for name, value in arguments.items() if name not in first}
    typical = {name: texts[name] for name, value in arguments.items() if is_typical(value)}
    lines = []
    for values in itertools.product(*settings.values()):
        own = dict(zip(settings, values, strict=True))
        known = {**kernel.defaults, **arguments, **own}
        lines.append(
            LaunchLine(
                tuple(arguments[name] for name in first),
                others | own,
                _read_grid(kernel, grid, known),
                _read_bytes(kernel, "--bytes-read", bytes_read, known),
                _read_bytes(kernel, "--bytes-written", bytes_written, known),
                typical,
                chosen,
            )
        )
    return tuple(lines)


def _entries(kernel: Parameters, text: str, settings: Mapping[str, Any]) -> dict[str, str]:
    places = [
        name for name in kernel.by_name if name not in settings and name not in kernel.setters
    ]
    found: dict[str, str] = {}
    named = ""
    for place, entry in enumerate(split(text, "--signature") if text.strip() else []):
        name = shortened(places[place]) if place < len(places) else ""
        if match := _NAMED.fullmatch(entry):
            named, value = match.groups()
            kernel.check_argument(named)
            name = named
        elif named:
            refuse(
                f"{quoted(entry)} in --signature has no name, and comes after {shortened(named)}="
            )
        elif place >= len(places):
            refuse(f"--signature has more entries than {kernel.name} has parameters to give")
        else:
            name, value = places[place], entry
        if name in found:
            refuse(f"{shortened(name)} is twice in --signature; give it once")
        if not value:
            refuse(
                f"the entry of {shortened(name)} in --signature is empty; give *fp16, i32 or 2048"
            )
        found[name] = value
    return found


def check_number(launches: int) -> None:
    """Raise InputError if the values given come to more than MOST_LAUNCHES *launches*."""
    if launches > MOST_LAUNCHES:
        refuse(f"the values given come to more than {MOST_LAUNCHES} launches; give fewer at a time")


def read_settings(
    check: Callable[[str, str], None], constexprs: Words, options: Words, knobs: Mapping[str, Any]
) -> dict[str, tuple[Any, ...]]:
    """Return the values of each constexpr and option by name, and of each of *knobs* that is given.

    *check* is called with each option, as it is written, and the name that it sets. Raises
    InputError as *check* does, and for invalid or duplicate values.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for option, name, given in (
        *_pairs("--constexpr", constexprs, "BLOCK_SIZE=1024"),
        *_pairs("--option", options, "maxnreg=128"),
        *((f"--{name.replace('_', '-')}", name, given) for name, given in knobs.items()),
    ):
        if given is None and name in knobs:
            continue
        check(option, name)
        if name in found:
            refuse(f"{shortened(name)} is given twice; give it once")
        found[name] = _several(name, given)
    return found


def read_options(options: Words) -> dict[str, Any]:
    """Return the value of each compiler option; InputError if one is invalid or has several."""
    found = {}
    for option, name, given in _pairs("--option", options, "maxnreg=128"):
        if name in KNOBS:
            refuse(f"{option} {name} has an option of its own; give --{name.replace('_', '-')}")
        values = _several(name, given)
        if len(values) > 1 or name in found:
            refuse(f"{option} {shortened(name)} has several values; give one of a matrix's launch")
        (found[name],) = values
    return found


def read_assumed(assume: Words, parameters: Collection[str]) -> dict[str, Assumption]:
    """Return the assumed values of a kernel's *parameters*: NAME=VALUE, or values by name.

    A value is an integer, or one for each index i of a tensor, such as 36*i, or random ones,
    such as 0..255. The name trips@12 is the number of trips of the loops at line 12.

    Raises InputError if a name is no parameter, or a value is neither.
    """
    found: dict[str, Assumption] = {}
    for option, name, given in _pairs("--assume", assume, "cu_seqlens=1024 or trips@12=37", TRIPS):
        of_trips = TRIPS.fullmatch(name) is not None
        if name not in parameters and not of_trips:
            refuse(
                f"{option} {shortened(name)} is no parameter of the kernel; there are"
                f" {few_of(list(parameters))}"
            )
        text = given[0] if isinstance(given, list) and len(given) == 1 else given
        of_elements = read_elements(text) if isinstance(text, str) else None
        try:
            values = _several(name, given) if of_elements is None else (of_elements,)
        except InputError:
            values = (text,)  # refused below
        if len(values) > 1 or name in found:
            refuse(f"{option} {shortened(name)} has several values; give one")
        (value,) = values
        if of_trips and not (type(value) is int and 0 <= value <= MOST_TRIPS):
            refuse(
                f"{option} {name} is {quoted(text)}; give the trips of the loop, a whole number"
                f" from 0 to {MOST_TRIPS}"
            )
        if of_elements is None and (type(value) is not int or abs(value) > INT64_MAX):
            refuse(
                f"{option} {shortened(name)} is {quoted(value)}; give a whole number, one for each"
                " index i, such as 36*i, or random ones, such as 0..255"
            )
        found[name] = value
    return found


def _pairs(
    option: str, given: Words, example: str, other: re.Pattern[str] = _NAME
) -> Iterator[tuple[str, str, Any]]:
    if isinstance(given, Mapping):
        for name, value in given.items():
            yield option, name, [value] if isinstance(value, str) else value
        return
    for text in [given] if isinstance(given, str) else given:
        name, _, values = (part.strip() for part in text.partition("="))
        if not (_NAME.fullmatch(name) or other.fullmatch(name)) or "=" not in text:
            refuse(f"{option} {quoted(text)} is no NAME=VALUE, such as {example}")
        if any(map(_ANOTHER.match, split(values, name)[1:] if values else ())):
            refuse(
                f"{option} {quoted(text)} has several names; {option} repeats, with one name each"
            )
        yield option, name, values or '""'


def _several(name: str, given: Any) -> tuple[Any, ...]:
    """Return the values in a text with commas or in a list, each once."""
    if isinstance(given, str):
        texts = split(given, name)
        if "" in texts:
            refuse(f"{shortened(name)} is {quoted(given)}, where a value is empty; give 4 or 4,8")
        values = [read_constant(name, text) for text in texts]
    else:
        values = list(map(plain, given)) if isinstance(given, list | range) else [plain(given)]
    for value in values:
        if not is_constant(value) and not hasattr(value, "cache_key"):
            refuse(f"{shortened(name)} is {quoted(value)}, which is no value of a constexpr")
    if not values:
        refuse(f"{shortened(name)} has no value; give at least one")
    return tuple({repr(value): value for value in values}.values())


def check_knob(name: str, values: Sequence[Any]) -> None:
    """Raise InputError if one of *values* is no num_warps or num_stages, whichever is the name."""
    for value in values:
        whole = type(value) is int
        if name == "num_stages" and not (whole and 1 <= value <= MAX_STAGES):
            refuse(f"num_stages is {quoted(value)}; give a whole number from 1 to {MAX_STAGES}")
        powers = whole and 1 <= value <= MOST_WARPS and value & (value - 1) == 0
        if name == "num_warps" and not powers:
            refuse(f"num_warps is {quoted(value)}; give a power of two, such as 4 or 8")


def _read_grid(kernel: Parameters, grid: Any, known: Mapping[str, Any]) -> Grid | None:
    if grid is None:
        return None
    if callable(grid):
        return partial(grid)
    if not isinstance(grid, str):
        return checked_grid(grid)
    if sizes := whole_numbers(grid):
        return checked_grid(sizes)
    texts = split(re.sub(r"\s+x\s+", ", ", grid), "--grid")
    names = {name for text in texts for name in parse(text, EXAMPLE).names}
    sizes_of = partial(_sizes, kernel, texts)
    return sizes_of if names & {*kernel.setters} else sizes_of(known)


def _sizes(kernel: Parameters, texts: Sequence[str], known: Mapping[str, Any]) -> tuple[int, ...]:
    return checked_grid(tuple(_calculate(kernel, "--grid", text, known) for text in texts))


def _calculate(kernel: Parameters, option: str, text: str, known: Mapping[str, Any]) -> float:
    expression = parse(text, EXAMPLE)
    for name in sorted(expression.names):
        if name not in known:
            kernel.refuse_unknown(option, name, known)
        if isinstance(known[name], Typical):
            known[name].unknown()
        if type(known[name]) not in {int, float}:
            refuse(f"{option} {quoted(text)} calculates with {shortened(name)}, which is no number")
    expression.check_number()
    number = expression.evaluate(known)
    if not isinstance(number, int | float) or not abs(number) <= INT64_MAX:
        refuse(f"{option} {quoted(text)} comes to no number of 64 bits")
    return number


def _read_bytes(
    kernel: Parameters, option: str, given: Any, known: Mapping[str, Any]
) -> int | None:
    if given is None:
        return None
    if isinstance(given, str) and (match := _BYTES.fullmatch(given.strip())):
        number = float(match[1]) * _UNITS.get(match[2], 1)
    else:
        number = _calculate(kernel, option, str(given), known)
    if not 0 <= number <= INT64_MAX:
        refuse(f"{option} is {quoted(given)}; give bytes, 0 or more, as 24MiB or 2 * M * N")
    return round(number)
