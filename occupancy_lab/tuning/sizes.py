"""The sizes for which a kernel is tuned, as a user gives them, and its launches at each."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from occupancy_lab.errors import InputError, few_of, quoted, refuse, shortened
from occupancy_lab.expressions import Expression, parse
from occupancy_lab.notation import Parameters, read_constant, split
from occupancy_lab.signature import LaunchLine, Words, read_launches
from occupancy_lab.table.rows import read_file
from occupancy_lab.values import INT64_MAX

if TYPE_CHECKING:
    from occupancy_lab.tuning.tuned_file import Size

AskedSizes: TypeAlias = str | Sequence[Mapping[str, Any]]
"""The path of a CSV or JSON file, or for each size the value of each argument by name."""
MOST_SIZES = 10_000
_ENTRY = re.compile(r"(\s*[^\W\d]\w*\s*=)?(.*)", re.DOTALL)


def read_sizes(asked: AskedSizes, kernel: Any, signature: Sequence[str] = ()) -> dict[str, Size]:
    """Return the sizes that are *asked*, each as arguments of *kernel* by name.

    The keys are the places where each is first: "'sizes.csv', line 2". Errors name no argument for
    which the *signature* has a tensor.

    Raises InputError if there is no size, if a name is no argument that a launch passes, or if a
    value is no integer; the value of a constexpr may be a truth value, a number or a text.
    """
    parameters = Parameters.of(kernel)
    name, rows = _rows(asked)
    if not rows:
        refuse(f"{name} has no sizes; its first line names arguments, and each other has a size")
    if len(rows) > MOST_SIZES:
        refuse(f"{name} has {len(rows)} sizes; give at most {MOST_SIZES}")
    names = list(next(iter(rows.values())))
    for one in names:
        if one not in parameters.by_name:
            entries = itertools.zip_longest(parameters.by_name, signature, fillvalue="")
            free = [
                known
                for known, entry in entries
                if known not in parameters.setters and not entry.strip().startswith("*")
            ]
            refuse(
                f"{name} has the column {quoted(one)}, which {parameters.name} does not take;"
                f" it takes {', '.join(free)}"
            )
        if one in parameters.setters:
            refuse(
                f"{name} has the column {shortened(one)}, which the {parameters.setters[one]} of"
                f" {parameters.name} sets; leave it out"
            )
    found: dict[str, Size] = {}
    for place, row in rows.items():
        if list(row) != names:
            refuse(f"{place} has other arguments than the first size: {few_of([*row])}")
        size = {one: _value(place, one, value, parameters) for one, value in row.items()}
        if size not in found.values():
            found[place] = size
    return found


def _rows(asked: AskedSizes) -> tuple[str, dict[str, Mapping[str, Any]]]:
    """Return the name of the sizes in errors, and the texts or values of each size by its place."""
    if not isinstance(asked, str):
        return "sizes", {f"size {number}": one for number, one in enumerate(asked, 1)}
    found = read_file(asked, {})
    rows = (
        {name.strip(): value for name, value in row.items() if value is not None}
        for row in found.rows
    )
    places = (f"{quoted(asked)}, {place}" for place in found.places)
    return quoted(asked), dict(zip(places, rows, strict=True))


def _value(place: str, name: str, given: Any, parameters: Parameters) -> Any:
    value = read_constant(name, given) if isinstance(given, str) else given
    if parameters.is_constexpr(name):
        fits = value is None or type(value) in {bool, int, float, str}
        wanted = "a number, True or a text"
    else:
        fits = type(value) is int and abs(value) <= INT64_MAX
        wanted = "a whole number"
    if not fits:
        refuse(f"{place} has {quoted(given)} for {shortened(name)}; give {wanted}")
    return value


def launches_at(
    kernel: Any, size: Size, *, signature: str | None, constexprs: Words, **described: Any
) -> tuple[LaunchLine, ...]:
    """Return the launches of *kernel* at a *size*, described as for `read_launches`.

    An entry of the signature may be an expression of arguments that the size sets, "M" or "2 * K".
    An argument without an entry, by position or by name, is passed by name.

    Raises InputError as `read_launches` does, and if the signature passes another value.
    """
    parameters = Parameters.of(kernel)
    text, passed = _signature_at(signature or "", size, parameters)
    others = {name: value for name, value in size.items() if name not in passed}
    given = {name: value for name, value in others.items() if parameters.is_constexpr(name)}
    entries = [text] if text else []
    entries += [f"{name}={others[name]}" for name in others.keys() - given.keys()]
    lines = read_launches(
        kernel,
        signature=", ".join(entries) or None,
        constexprs=with_values(constexprs, given),
        **described,
    )
    for line in lines:
        named = {**dict(zip(parameters.by_name, line.arguments, strict=False)), **line.keywords}
        for name, value in size.items():
            if name in named and named[name] != value:
                refuse(
                    f"--signature passes {quoted(named[name])} as {shortened(name)}, whose size is"
                    f" {quoted(value)}; give {shortened(name)} in its place"
                )
    return lines


def _signature_at(signature: str, size: Size, kernel: Parameters) -> tuple[str, set[str]]:
    """Return *signature* with the numbers of a size, and the arguments of the size that it passes.

    Raises InputError if an entry uses an argument of the *kernel* that no size sets.
    """
    entries: list[str] = []
    passed: set[str] = set()
    for entry in split(signature, "--signature") if signature.strip() else []:
        match = _ENTRY.fullmatch(entry)
        name, text = (match[1] or "", match[2]) if match else ("", entry)
        passed.add(name.strip(" =") or text.strip())
        try:
            expression = parse(text)
        except InputError:
            expression = None
        if expression and (missing := sorted(expression.names & {*kernel.by_name} - size.keys())):
            refuse(
                f"{quoted(entry)} in --signature needs a number for {few_of(missing)}, and the"
                f" sizes have none; give them a column {missing[0]}"
            )
        if expression is None or not expression.names or not expression.names <= size.keys():
            entries.append(entry)
        else:
            entries.append(f"{name}{_worked_out(expression, size)!r}")
    return ", ".join(entries), passed


def _worked_out(expression: Expression, size: Size) -> Any:
    if (name := expression.text.strip()) in size:
        return size[name]
    expression.check_number()
    value = expression.evaluate(size)
    if value is None:
        refuse(f"{quoted(expression.text)} in --signature comes to no number")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def with_values(words: Words, given: Mapping[str, Any]) -> Words:
    """Return *words*, NAME=VALUE or values by name, with the *given* values replacing their own."""
    if isinstance(words, Mapping):
        return {**words, **{name: [value] for name, value in given.items()}}
    texts = [words] if isinstance(words, str) else list(words)
    kept = [one for one in texts if one.partition("=")[0].strip() not in given]
    return [*kept, *(f"{name}={value!r}" for name, value in given.items())]
