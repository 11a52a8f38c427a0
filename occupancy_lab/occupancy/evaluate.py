"""From rules and a kernel's usage to an Occupancy, or to arrays of millions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from occupancy_lab.occupancy.rule import UNLIMITED, scalar_where
from occupancy_lab.values import Limit, Occupancy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from occupancy_lab.gpus import Architecture
    from occupancy_lab.occupancy.rule import Rule, Usage, Where
    from occupancy_lab.values import Resources


class _Numbers(dict[str, Any]):
    """The names that a step's template may use: the rule's numbers, the usage's, the GPU's."""

    def __init__(self, work: Mapping[str, Any], usage: Usage, architecture: Architecture) -> None:
        super().__init__(work)
        self._sources = (usage, architecture)

    def __missing__(self, name: str) -> Any:
        for source in self._sources:
            if hasattr(source, name):
                return getattr(source, name)
        raise KeyError(name)


def _limit(rule: Rule, usage: Resources, architecture: Architecture) -> Limit | None:
    work = rule.work(usage, architecture, scalar_where)
    if work is None:
        return None
    if work["programs"] == UNLIMITED:
        return Limit(rule.resource, None, ())
    numbers = _Numbers(work, usage, architecture)
    steps = tuple(step.format_map(numbers) for step in rule.steps)
    return Limit(rule.resource, work["programs"], steps)


def limits(
    rules: Iterable[Rule], usage: Resources, architecture: Architecture
) -> tuple[Limit, ...]:
    """Return every limit that applies to *usage*, in the order of *rules*."""
    found = (_limit(rule, usage, architecture) for rule in rules)
    return tuple(limit for limit in found if limit is not None)


def evaluate(rules: Iterable[Rule], usage: Resources, architecture: Architecture) -> Occupancy:
    """Return the Occupancy of one kernel: the least of its limits."""
    found = limits(rules, usage, architecture)
    return Occupancy(
        programs_per_multiprocessor=min(
            limit.programs for limit in found if limit.programs is not None
        ),
        num_warps=usage.num_warps,
        max_warps=architecture.max_warps,
        limits=found,
    )


def programs(
    rules: Iterable[Rule], usage: Usage, architecture: Architecture, where: Where = scalar_where
) -> dict[str, Any]:
    """Return each rule's programs by resource, as ints or arrays; UNLIMITED where it sets none.

    Rules that do not apply are left out.
    """
    works = ((rule.resource, rule.work(usage, architecture, where)) for rule in rules)
    return {resource: work["programs"] for resource, work in works if work is not None}
