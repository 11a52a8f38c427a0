"""What the user sets and assumes for the launches of a program."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from occupancy_lab.assumed import Assumption
from occupancy_lab.compiling.assumptions import Value, given_values, names_value
from occupancy_lab.compiling.notes import ScriptLaunch
from occupancy_lab.errors import few_of, refuse, shortened
from occupancy_lab.explaining.script_lines import takes
from occupancy_lab.gpus import Gpu
from occupancy_lab.options import KNOBS
from occupancy_lab.signature import Words, check_knob, read_assumed, read_settings


def read_values(
    script: str,
    launches: Sequence[ScriptLaunch],
    gpus: Sequence[Gpu],
    *,
    constexprs: Words,
    options: Words,
    **knobs: Any,
) -> dict[str, tuple[Any, ...]]:
    """Return the values of constexprs and options by name that *launches* of *script* are to have.

    Raises InputError if none of them has one of the names on any of *gpus*, or a value is invalid.
    """
    check = functools.partial(_check_setting, script, launches, gpus)
    chosen = read_settings(check, constexprs, options, knobs)
    for knob in KNOBS:
        check_knob(knob, chosen.get(knob, ()))
    return chosen


def assumed_words(assume: Words) -> list[str]:
    """Return *assume* as a command line has it."""
    if isinstance(assume, Mapping):
        return [f"{name}={value}" for name, value in assume.items()]
    return [assume] if isinstance(assume, str) else [*assume]


def read_both(assume: Sequence[str]) -> tuple[dict[str, Value], list[str]]:
    """Return what *assume* has for values that a script reads, and the words for its kernels."""
    words = [word for word in assume if not names_value(word)]
    return given_values(filter(names_value, assume)), words


def read_assumed_of(launches: Iterable[ScriptLaunch], words: Words) -> dict[str, Assumption]:
    """Return the assumed values of the parameters of the kernels of *launches*."""
    names = dict.fromkeys(name for one in launches for name in one.bound.arguments)
    return read_assumed(words, names)


def _check_setting(
    script: str, launches: Sequence[ScriptLaunch], gpus: Sequence[Gpu], option: str, name: str
) -> None:
    """Raise InputError if *option* sets what none of the *launches* of *script* has on any GPU."""
    if any(name in one.tuned for one in launches):
        return
    constexprs = dict.fromkeys(known for one in launches for known in one.bound.constexprs)
    if option == "--constexpr" and name not in constexprs:
        there = few_of([*constexprs]) if constexprs else "none"
        refuse(
            f"no kernel that {script} launches has the constexpr {shortened(name)}; what they have"
            f" is {there}"
        )
    if option == "--option" and name in constexprs:
        refuse(f"{shortened(name)} is a constexpr of a kernel of {script}; give it by --constexpr")
    if not any(takes(one.bound, gpu, name) for one in launches for gpu in gpus):
        refuse(f"{option} {shortened(name)} is no option of Triton's compiler for these GPUs")
