"""Formulas consist of rules; each rule is the limit that a resource sets.

A rule's arithmetic is written once: with integers it explains a kernel, with numpy arrays it
computes tables of millions. Only `where` differs between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any

from occupancy_lab.gpus import Architecture
from occupancy_lab.text.words import count, per_cta
from occupancy_lab.values import Limit, Resources

UNLIMITED = 2**31 - 1
"""Programs if a resource sets no limit; NVIDIA's header uses the same number, INT_MAX."""
Usage = Any
"""Resources, or an object with the same fields: each an int, an array of int64, or None."""
Where = Callable[[Any, Any, Any], Any]
"""`numpy.where`, or its scalar counterpart: the second argument where the first is true."""


def scalar_where(condition: object, yes: int, no: int, /) -> int:
    """Return *yes* if *condition* is true, else *no*."""
    return yes if condition else no


def round_up(number: Any, unit: int) -> Any:
    """Return the smallest multiple of *unit* that is at least *number*."""
    return -(-number // unit) * unit


def warp_slots(usage: Usage, architecture: Architecture, where: Where) -> Mapping[str, Any]:
    """Return the numbers of the rule for warps, which is the same for both vendors."""
    threads = usage.num_warps * architecture.warp_size
    fits = threads <= architecture.max_threads_per_program
    return {"programs": where(fits, architecture.max_warps // usage.num_warps, 0)}


@dataclass(frozen=True, slots=True)
class Rule:
    """The limit that a resource sets on the programs per multiprocessor.

    `work` takes a Usage, an architecture and a Where, and returns the named numbers of the
    calculation, with the limit itself as "programs", or None if the rule does not apply. `steps`
    are the same calculation in words: templates with these numbers and the fields of the
    architecture and the usage, where "{warps:warp}" becomes "1 warp" or "2 warps".
    """

    resource: str
    work: Callable[[Any, Any, Where], Mapping[str, Any] | None]
    steps: tuple[str, ...]


class _Step(Formatter):
    """Formats a step with a rule's numbers and, of other names, the fields of objects.

    A number with a word as format is counted in that word.
    """

    def get_value(self, key: Any, args: Any, kwargs: Any) -> Any:
        if key in kwargs:
            return kwargs[key]
        return next(getattr(one, key) for one in args if hasattr(one, key))

    def format_field(self, value: Any, format_spec: str) -> str:
        return count(value, format_spec) if format_spec else str(value)


def limits(
    rules: Iterable[Rule], usage: Resources, architecture: Architecture
) -> tuple[Limit, ...]:
    """Return every limit that applies to *usage*, in the order of *rules*."""
    found = []
    for rule in rules:
        work = rule.work(usage, architecture, scalar_where)
        if work is None:
            continue
        if work["programs"] == UNLIMITED:
            found.append(Limit(rule.resource, None, ()))
            continue
        steps = (_Step().vformat(step, (usage, architecture), work) for step in rule.steps)
        in_words = tuple(per_cta(step, usage.num_ctas) for step in steps)
        found.append(Limit(rule.resource, work["programs"], in_words))
    return tuple(found)


def programs(
    rules: Iterable[Rule], usage: Usage, architecture: Architecture, where: Where = scalar_where
) -> dict[str, Any]:
    """Return each rule's programs by resource, as ints or arrays; UNLIMITED without a limit.

    Rules that do not apply are left out.
    """
    works = ((rule.resource, rule.work(usage, architecture, where)) for rule in rules)
    return {resource: work["programs"] for resource, work in works if work is not None}
