"""Commands that go on from a launch as a command line described it."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from occupancy_lab.explaining.grids import BLOCK
from occupancy_lab.inputs import option_name
from occupancy_lab.notation import whole_numbers

if TYPE_CHECKING:
    from occupancy_lab.explaining.case import Case
    from occupancy_lab.record import Record


def tune_blocks(case: Case, typed: Mapping[str, Any], name: str, several: str) -> str:
    """Return the command that ranks *several* sizes of the block *name* of a launch.

    *typed* is what describes the launch, as `explain_launch` takes it.
    """
    constexprs = [one for one in _texts(typed["constexprs"]) if one.partition("=")[0] != name]
    words = {
        "--gpu": [case.record.gpu.key],
        "--triton": _texts(case.triton),
        "--signature": _texts(typed["signature"]),
        "--constexpr": [several, *constexprs],
        "--option": _texts(typed["options"]),
        "--grid": [grid_by(case.record, typed["grid"], name)],
    }
    for option in ("num_warps", "num_stages", "bytes_read", "bytes_written", "assume"):
        words[option_name(option)] = _texts(typed[option])
    pairs = ((option, one) for option, texts in words.items() for one in texts)
    command = ("occupancy-lab", "tune", str(case.asked_kernel))
    return shlex.join([*command, *itertools.chain.from_iterable(pairs)])


def _texts(given: Any) -> list[str]:
    """Return what an option was given as the texts that a command line has of it."""
    if isinstance(given, Mapping):
        return [f"{name}={value}" for name, value in given.items()]
    if given is None:
        return []
    return [str(given)] if isinstance(given, str | int) else [str(one) for one in given]


def grid_by(record: Record, typed: Any, name: str) -> str:
    """Return the grid of a launch, *typed* so, as it goes by the block *name*.

    A dimension that covers a whole number of the launch with blocks is written so: of several that
    it may be a number that no dimension before covers, and a block whose name ends with its own.
    """
    if isinstance(typed, str) and whole_numbers(typed) is None:
        return typed
    fixed = {*record.constexprs, *record.launch.typical}
    numbers = {
        argument: value
        for argument, value in record.arguments.items()
        if type(value) is int and argument not in fixed
    }
    block, sizes = record.arguments[name], []
    alike = [one for one in record.constexprs if BLOCK.search(one)]
    alike = [name, *(one for one in alike if one != name and record.arguments[one] == block)]
    left = [(number, one) for number in numbers for one in alike]
    for size in record.launch.grid or ():
        covers = [
            pair
            for pair in left
            if type(block) is int and -(-numbers[pair[0]] // block) == size > 1
        ]
        pair = max(covers, key=lambda pair: pair[1].endswith(pair[0]), default=None)
        sizes.append(str(size) if pair is None else f"cdiv({pair[0]}, {pair[1]})")
        left = [one for one in left if pair is None or one[0] != pair[0]]
    return ", ".join(sizes)
