"""The commands that a page suggests: another launch explained, or configurations ranked."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.grids import GRID
from occupancy_lab.explaining.neighbours import MOST_ELEMENTS, Neighbour, blocks_of, setting_of
from occupancy_lab.inputs import DEFAULT_ROWS, TUTORIAL_KERNEL, option_name
from occupancy_lab.kernel import load_kernel
from occupancy_lab.notation import whole_numbers, written
from occupancy_lab.options import KNOBS, NAMES
from occupancy_lab.record import Record
from occupancy_lab.values import Config

OF_SCRIPT = "of_script"
"""In a description of a launch: which kernel of a program makes it, or None if there is only one;
then "kernel" is the program, and no signature or grid is described."""
LEAST_OF_DOT = 16
"""The least size of a block that Triton multiplies on every GPU."""


def _command(command: str, case: Case, **options: object) -> str:
    problem = case.record.problem
    options = {
        "cols": problem.cols,
        "rows": None if problem.rows == DEFAULT_ROWS else problem.rows,
        "dtype": None if problem.dtype == "float32" else problem.dtype,
        "gpu": case.record.gpu.key,
        "triton": case.triton,
        **options,
    }
    given = [(name, value) for name, value in options.items() if value is not None]
    if case.kernel_name is None:
        passed = ", ".join(f"{name}={value!r}" for name, value in given)
        return f"`occupancy_lab.{command}(kernel=KERNEL, {passed})`"
    words = " ".join(f"{option_name(name)} {shlex.quote(str(value))}" for name, value in given)
    return f"`occupancy-lab {command} {words}`"


def explain_command(case: Case, kernel: str, config: Config) -> str:
    """Return the explain command of the matrix of *case* with another *kernel* and its *config*."""
    found, most = load_kernel(kernel), case.architecture.max_shared
    usual = dataclasses.asdict(found.default_config(case.record.problem, most))
    knobs = dataclasses.asdict(config)
    return _command(
        "explain",
        case,
        kernel=None if kernel == TUTORIAL_KERNEL else kernel,
        **{knob: value for knob, value in knobs.items() if value != usual[knob]},
    )


def tune_command(case: Case) -> str:
    """Return the command that ranks every configuration for the problem and the GPU of *case*."""
    return _command("tune", case, kernel=None if case.alike else case.kernel_name)


def further_away(case: Case) -> Iterator[str]:
    """Name the command that ranks blocks further away than the neighbours of a launch.

    If one of these is faster, the command starts from that one.
    There is none for a launch that spills, because larger blocks spill more; for blocks that an
    autotuner sets; and for a program's launch whose grid does not follow the block, if its work
    depends on values in tensors, which no command line has.
    """
    own, case = case, _from_best(case)
    record = case.record
    if record.resources.local_bytes or case.is_tuned:
        return
    for name in blocks_of(record):
        grid, several = grid_by(case, name), further_blocks(case, name)
        typed = case.typed
        if typed is not None and OF_SCRIPT in typed and not _grid_follows(own, name):
            typed = None
        if grid is None or not several or (typed is None and record.launch.values):
            continue
        sizes = f"{name}={','.join(map(str, several))}"
        typed = typed or _as_typed(record)
        if typed is None:
            command = (
                f"occupancy-lab tune FILE.py:{record.kernel}`, with this launch's `--signature` and"
                f" constexprs, `--constexpr {sizes}` and `--grid '{grid}'`,"
            )
        else:
            command = f"{tune_blocks(case, typed, sizes, grid)}`"
        yield f"`{command} ranks blocks further away."
        return


def _grid_follows(case: Case, name: str) -> bool:
    """Tell whether the grid of a program's launch changes with the block *name* by itself."""
    best = case.best
    changed = (one for one in case.neighbours if name in one.changes and GRID not in one.changes)
    return (best is None or GRID not in best.changes) and any(
        one.record is not None and one.record.launch.grid != case.record.launch.grid
        for one in changed
    )


def _from_best(case: Case) -> Case:
    """Return the case of the best neighbour of *case*, or *case* itself if none is faster."""
    record, best = case.record, case.best
    if record.prediction is None or best is None or best.record is None:
        return case

    def from_best(one: Neighbour) -> Neighbour:
        found = {}
        for name in dict.fromkeys((*best.changes, *one.changes)):
            own = setting_of(record, name)
            there = one.changes.get(name, own)
            if there != best.changes.get(name, own):
                found[name] = there
        return Neighbour(found, one.record)

    others = [one for one in case.neighbours if one is not best]
    typed = None if case.typed is None else _typed_with(case.typed, best.changes)
    neighbours = tuple(map(from_best, (Neighbour({}, record), *others)))
    return dataclasses.replace(case, record=best.record, typed=typed, neighbours=neighbours)


def _typed_with(typed: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    names = [name for name in changes if name != GRID and name not in NAMES]
    constexprs = [one for one in _texts(typed["constexprs"]) if one.partition("=")[0] not in names]
    constexprs += [f"{name}={changes[name]}" for name in names]
    knobs = {name: changes[name] for name in KNOBS if name in changes}
    others = [f"{name}={changes[name]}" for name in changes if name in {*NAMES} - {*KNOBS}]
    options = [*_texts(typed["options"]), *others]
    return {**typed, "constexprs": constexprs, "options": options, **knobs}


def _as_typed(record: Record) -> Mapping[str, Any] | None:
    """Return a script's launch as a command line describes it; None if it cannot.

    The kernel's file is that of its first access.
    """
    found = written(record.arguments, record.constexprs)
    accesses = () if record.counts is None else record.counts.accesses
    if found is None or not accesses:
        return None
    file = Path(accesses[0].place.outermost.file)
    if file.is_relative_to(Path.cwd()):
        file = file.relative_to(Path.cwd())
    options = {name: value for name, value in record.options.items() if name not in KNOBS}
    return {
        "kernel": f"{file}:{record.kernel}",
        "signature": found[0],
        "constexprs": found[1],
        "options": options,
        "num_warps": record.options.get("num_warps"),
        "num_stages": record.options.get("num_stages"),
    }


def tune_blocks(case: Case, typed: Mapping[str, Any], several: str, grid: str) -> str:
    """Return the command that ranks *several* sizes of a block, as in BLOCK=64,128.

    *grid* is the grid as an expression of the block, and *typed* describes the launch as
    `explain_launch` takes it, or says which program makes it.
    """
    name = several.partition("=")[0]
    constexprs = [one for one in _texts(typed["constexprs"]) if one.partition("=")[0] != name]
    words = {
        "--gpu": [case.record.gpu.key],
        "--triton": _texts(case.triton),
        "--kernel": _texts(typed.get(OF_SCRIPT)),
        "--signature": _texts(typed.get("signature")),
        "--constexpr": [several, *constexprs],
        "--option": _texts(typed["options"]),
        "--grid": [grid] if OF_SCRIPT not in typed else [],
    }
    for option in ("num_warps", "num_stages", "bytes_read", "bytes_written", "assume"):
        words[option_name(option)] = _texts(typed.get(option))
    pairs = ((option, one) for option, texts in words.items() for one in texts)
    command = ("occupancy-lab", "tune", typed.get("kernel") or str(case.asked_kernel))
    return shlex.join([*command, *itertools.chain.from_iterable(pairs)])


def _texts(given: Any) -> list[str]:
    if isinstance(given, Mapping):
        return [f"{name}={value}" for name, value in given.items()]
    if given is None:
        return []
    return [str(given)] if isinstance(given, str | int) else [str(one) for one in given]


def grid_by(case: Case, name: str) -> str | None:
    """Return the grid of a launch as an expression of the block *name*; None if not known.

    That is the typed grid if it contains the block. Else, each dimension that changed with the
    block among the neighbours must be one integer argument divided by the block.
    """
    typed, own = (case.typed or {}).get("grid"), case.record.launch.grid
    changing = _changing(case, name)
    if own is None or not changing:
        return None
    if isinstance(typed, str) and whole_numbers(typed) is None:
        return typed if re.search(rf"\b{name}\b", typed) else None
    sizes = [*map(str, own)]
    for place in changing:
        number = _divided(case, name, place)
        if number is None:
            return None
        sizes[place] = f"cdiv({number}, {name})"
    return ", ".join(sizes)


def _seen(case: Case, name: str) -> list[tuple[int, tuple[int, ...]]]:
    """Return the sizes of a block among the launch and its neighbours, each with its grid.

    Only launches that differ in nothing else of their arguments are included.
    """
    runs = [one.record for one in case.neighbours if one.changes.keys() <= {name, GRID, *NAMES}]
    return [
        (blocks_of(one)[name], one.launch.grid)
        for one in (case.record, *runs)
        if one is not None and one.launch.grid is not None
    ]


def _changing(case: Case, name: str) -> list[int]:
    own = case.record.launch.grid or ()
    runs = [grid for block, grid in _seen(case, name) if block != case.record.arguments[name]]
    return [place for place, size in enumerate(own) if any(grid[place] != size for grid in runs)]


def _divided(case: Case, name: str, place: int) -> str | None:
    """Return the integer argument that gives a dimension of each grid when divided by *name*.

    If there are several, the block's name has to end with the argument's name.
    """
    record, seen = case.record, _seen(case, name)
    left_out = {*record.constexprs, *record.launch.typical}
    found = [
        argument
        for argument, number in record.arguments.items()
        if type(number) is int
        and argument not in left_out
        and "stride" not in argument.lower()
        and all(-(-number // block) == grid[place] for block, grid in seen)
    ]
    named = [one for one in found if name.endswith(one)]
    return (named or found)[0] if named or len(found) == 1 else None


def further_blocks(case: Case, name: str) -> list[int]:
    """Return the size of block *name* and larger ones; none if all of these were tried.

    They are smaller ones if half of the block is predicted to be faster than twice the block. No
    size exceeds the range that the block divides, or compiles slowly.
    """
    blocks, grid = blocks_of(case.record), case.record.launch.grid or ()
    own = blocks[name]
    most = max((grid[place] for place in _changing(case, name)), default=0)
    if _is_faster_halved(case, name):
        counts = case.record.counts
        least = LEAST_OF_DOT if counts is not None and counts.dot_flops else 1
        sizes = [own // times for times in (1, 2, 4, 8) if own // times >= least]
        return sizes if sizes and own > 2 * sizes[-1] else []  # half of it was tried
    tried = 4 if sum(one > 1 for one in blocks.values()) <= 1 else 2
    scales = [
        times
        for times in (1, 2, 4, 8)
        if times < 2 * most
        and math.prod(sorted({**blocks, name: own * times}.values())[-2:]) <= MOST_ELEMENTS
    ]
    return [own * times for times in scales] if max(scales, default=0) > tried else []


def _is_faster_halved(case: Case, name: str) -> bool:
    """Tell whether half of a block is predicted to be faster than twice the block.

    Both may have other options than the launch, if they have the same.
    """
    half, double = blocks_of(case.record)[name] // 2, blocks_of(case.record)[name] * 2
    us: dict[str, dict[int, float]] = {}
    for one in case.neighbours:
        others = {key: value for key, value in one.changes.items() if key not in {name, GRID}}
        if one.record is not None and name in one.changes and others.keys() <= {*NAMES}:
            us.setdefault(repr(others), {})[one.changes[name]] = one.us
    both = (times for times in us.values() if half in times and double in times)
    return any(times[half] < times[double] for times in both)
