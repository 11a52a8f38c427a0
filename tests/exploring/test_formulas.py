"""The exported formulas give the same results as the rules."""

import dataclasses
import itertools
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.exploring.page import OPTIONAL, Nodes, Symbol, formulas, optional_of
from occupancy_lab.gpus.gpu import architectures
from occupancy_lab.occupancy.exact import exact_rules, next_steps, option_for, stepped_amounts
from occupancy_lab.occupancy.rule import programs
from occupancy_lab.occupancy.tutorial import (
    Rocm,
    programs_without,
    terms_of,
    tutorial_occupancy,
    tutorial_rules,
)
from occupancy_lab.values import Resources

ARCHITECTURES = architectures()
CLUSTER = 500
"""Points that each architecture is tested with."""
OPERATIONS: Mapping[str, Any] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "|": lambda a, b: a | b,
    "?": np.where,
}


def worked_out(nodes: list[Any], place: int, usage: Any, architecture: Any) -> Any:
    """Return the number at *place*, an int or an array, like the page's evaluator."""
    node = nodes[place]
    if isinstance(node, int):
        return node
    if isinstance(node, str):
        owner, _, name = node.partition(".")
        return getattr(usage if owner == "u" else architecture, name)
    sign, *operands = node
    return OPERATIONS[sign](*(worked_out(nodes, one, usage, architecture) for one in operands))


def points(seed: int, names: tuple[str, ...]) -> Any:
    """Return random usages as arrays, with the fields *names*."""
    random = np.random.default_rng(seed)
    fields = {
        "n_regs": random.integers(0, 300, CLUSTER),
        "num_warps": 2 ** random.integers(0, 6, CLUSTER),
        "shared": random.choice([0, 32, 1000, 30_000, 240_000], CLUSTER)
        + random.integers(0, 2000, CLUSTER),
        "static_shared": random.choice([0, 16, 4096], CLUSTER),
        **dict.fromkeys(OPTIONAL),
        "agprs": None,
    }
    most = {"barriers": 20, "tensor_memory": 600, "sgprs": 112, "allocated_vgprs": 300}
    given = {name: random.integers(0, most[name], CLUSTER) for name in names}
    return SimpleNamespace(**(fields | given))


@pytest.mark.parametrize("name", ARCHITECTURES)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1))
def test_limits_are_those_of_the_rules(name: str, seed: int) -> None:
    """Every exported limit, exact or the tutorial's, equals the rule's with any optional fields."""
    architecture = ARCHITECTURES[name]
    data = json.loads(json.dumps(formulas(architecture)))
    for count in range(len(optional_of(architecture)) + 1):
        for names in itertools.combinations(optional_of(architecture), count):
            usage = points(seed, names)
            expected = programs(exact_rules(architecture), usage, architecture, np.where)
            found = {
                rule["resource"]: worked_out(
                    data["nodes"], rule["work"]["+".join(names)]["programs"], usage, architecture
                )
                for rule in data["rules"]
                if rule["work"]["+".join(names)] is not None
            }
            assert list(found) == list(expected)
            for resource, limit in expected.items():
                np.testing.assert_array_equal(found[resource], limit)
    said = programs(tutorial_rules(architecture), usage, architecture, np.where)
    for rule in data["tutorial"]:
        limit = worked_out(data["nodes"], rule["work"][""]["programs"], usage, architecture)
        np.testing.assert_array_equal(limit, said[rule["resource"]])


def resources(seed: int, architecture: Any) -> Resources:
    """Return a random usage with all optional fields of *architecture*."""
    usage = points(seed, optional_of(architecture))
    names = ("n_regs", "num_warps", "shared", "static_shared", *optional_of(architecture))
    return Resources(**{name: int(getattr(usage, name)[0]) for name in names})


@pytest.mark.parametrize("name", ARCHITECTURES)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1))
def test_what_steps_start_from_is_the_calculators(name: str, seed: int) -> None:
    """The stepped amounts, the option that requests one, and the formula's failure are the same."""
    architecture, data = ARCHITECTURES[name], formulas(ARCHITECTURES[name])
    usage = resources(seed, architecture)
    if usage.tensor_memory == 0:
        usage = usage.replace(tensor_memory=1)

    def number(place: int) -> int:
        return int(worked_out(data["nodes"], place, usage, architecture))

    way = "+".join(optional_of(architecture))
    found = {name: tuple(map(number, pair)) for name, pair in data["amounts"][way].items()}
    assert found == stepped_amounts(usage, architecture)
    assert set(found) == {step.resource for step in next_steps(usage, architecture)}
    if usage.n_regs:
        template, _, place = data["option"].partition("{")
        asked = f"{template}{number(int(place.rstrip('}')))}"
        assert asked == option_for(architecture, "registers", usage.n_regs)
    fails = number(data["tutorial_fails"])
    assert bool(fails) == (usage.shared == 0 or usage.n_regs == 0)
    if fails:
        assert tutorial_occupancy(usage, architecture).programs_per_multiprocessor is None


@pytest.mark.parametrize("name", ARCHITECTURES)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), chosen=st.integers(0, 2**11 - 1))
def test_terms_hide_what_the_tutorials_hide(name: str, seed: int, chosen: int) -> None:
    """Without any of the terms, the exported formulas equal the exact formula without them."""
    architecture, data = ARCHITECTURES[name], formulas(ARCHITECTURES[name])
    usage: Any = resources(seed, architecture)
    blind: Any = architecture
    terms = [
        (term, told)
        for place, (term, told) in enumerate(
            zip(terms_of(architecture), data["terms"], strict=True)
        )
        if chosen >> place & 1
    ]
    expected = programs_without(tuple(term for term, _ in terms), usage, architecture, Rocm.CURRENT)
    for term, told in terms:
        assert told["name"] == term.name

        def changed(places: Mapping[str, int | None], *, at: Any = (usage, blind)) -> Any:
            return {
                name: None if place is None else int(worked_out(data["nodes"], place, *at))
                for name, place in places.items()
            }

        usage, blind = (
            usage.replace(**changed(told["usage"])),
            dataclasses.replace(blind, **changed(told["architecture"])),
        )
    way = "+".join(name for name in optional_of(architecture) if getattr(usage, name) is not None)
    limits = [
        int(worked_out(data["nodes"], rule["work"][way]["programs"], usage, blind))
        for rule in data["rules"]
        if rule["work"][way] is not None
    ]
    assert min(limits) == expected


def test_a_symbol_decides_nothing() -> None:
    """A rule that branches on a kernel's number is refused instead of being exported in part."""
    with pytest.raises(TypeError, match=r"use `where`"):
        bool(Symbol(Nodes(), "u.n_regs") > 3)
