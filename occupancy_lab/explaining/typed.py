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

    A dimension that covers a whole number of the launch with blocks is written so, of several
    blocks of one size with that whose name ends with the number's.
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
    alike = [one for one in record.constexprs if BLOCK.search(one) and one != name]
    alike = [name, *(one for one in alike if record.arguments[one] == block)]
    for size in record.launch.grid or ():
        covers = (
            one for one in numbers if type(block) is int and -(-numbers[one] // block) == size
        )
        argument = next(covers, None) if size > 1 else None
        if argument is None:
            sizes.append(str(size))
        else:
            own = next((one for one in alike if one.endswith(argument)), name)
            sizes.append(f"cdiv({argument}, {own})")
    return ", ".join(sizes)
