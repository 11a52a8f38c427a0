"""Finds the change that saves most for the kernels that lose most, by compiling nearby launches."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from occupancy_lab.arguments import ALIGNMENT, Pointer
from occupancy_lab.asked import Asked
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.compiling.texts import kept_files
from occupancy_lab.explaining.advice import best_action
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.dry_run import stand_in
from occupancy_lab.explaining.explanation import explain_asked
from occupancy_lab.explaining.kernel_time import KernelTime
from occupancy_lab.launch import Launch
from occupancy_lab.record import Record
from occupancy_lab.tracing.traced import WORTH_TRYING, Traced, TracedKernel
from occupancy_lab.workers import signals

ACTION_SECONDS = 60.0
"""How long nearby launches are compiled by default."""
MOST_TRIED, MOST_EXPLAINED = 5, 10
"""For how many kernels of a page, and of a report, nearby launches are compiled."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is compiled to find the changes that save most."""

    seconds: float = 0.0
    """No further kernel is begun after this many seconds; 0 compiles nothing."""
    kernels: int = MOST_TRIED
    """For how many kernels, beginning with those that lose most."""
    share: float = WORTH_TRYING
    """The share of all kernels' time that a kernel must lose."""


NO_EFFORT = Effort()
ALL = Effort(math.inf, sys.maxsize, -1.0)
"""Compiles launches near every kernel."""


def with_actions(
    found: Traced, case_of: Callable[[TracedKernel], Case | None], effort: Effort
) -> Traced:
    """Return *found* with actions for the kernels that lose most, as far as *effort* goes.

    *case_of* compiles the launches near a kernel's main grid; it returns None, or raises any error,
    if that is not possible. After an interrupt the remaining kernels are left out.
    """
    if not effort.seconds:
        return found
    shown = found.shown
    times = [(one, took) for one in shown if (took := one.time) is not None]
    total = KernelTime.total(took for _, took in times)
    least = 0.0 if total is None else effort.share * total.us
    worth = [one for one, took in times if (took.lost_us or 0.0) > least]
    minor = tuple(one.kernel for one, took in times if (took.lost_us or 0.0) <= least)
    wanted = worth[: effort.kernels]
    until = time.monotonic() + effort.seconds
    tried: dict[int, TracedKernel] = {}
    failed: list[str] = []
    for one in wanted:
        if time.monotonic() > until:
            break
        action = None
        try:
            case = case_of(one)
            action = None if case is None else best_action(case)
        except KeyboardInterrupt:
            signals.arrived()
            break
        except Exception:  # noqa: BLE001, S110 - the page lacks only the action
            pass
        if action is None:
            failed.append(one.kernel)
        tried[id(one)] = dataclasses.replace(one, action=action)
    return dataclasses.replace(
        found,
        kernels=tuple(tried.get(id(one), one) for one in found.kernels),
        untried=tuple(one.kernel for one in wanted if id(one) not in tried),
        failed=tuple(failed),
        minor=minor,
        lesser=tuple(one.kernel for one in worth[effort.kernels :]),
    )


DIVISIBLE = f"tt.divisibility = {ALIGNMENT} : i32"


def case_of_kept(
    kernel: TracedKernel,
    folder: Path,
    directory: Path | None,
    progress: Callable[[str], None] = lambda _said: None,
) -> Case | None:
    """Return a launch over the main grid of *kernel*, whose files are in *folder*, and nearby ones.

    Nearby launches have other options, and arguments that 16 divides. Other block sizes would need
    another text. *directory* is the store's.

    Return None if the kernel's text is gone, or if the installed Triton compiles it to another
    binary. Raises OccupancyLabError if it does not compile.
    """
    bound, ttir = kernel.record, kept_files(folder).get("ttir")
    if bound is None or ttir is None:
        return None
    gpu = bound.gpu
    usual = default_options(gpu.target)
    options = {name: value for name, value in bound.options.items() if name in usual}
    function = stand_in(bound)
    function.cache_key = hashlib.sha256(ttir.encode()).hexdigest()
    function.warmup = partial(_warm_up, ttir, dict(bound.arguments))
    keywords, values = {**bound.arguments, **options}, bound.launch.values
    launch = Launch((), keywords, bound.launch.grid, values=values, in_program=True)
    compiler = Compiler(directory, progress=progress)
    run = explain_asked([Asked(function, launch, gpu)], compiler)
    same = isinstance(run.runs[0], Record) and run.runs[0].resources == bound.resources
    return run.cases[0] if same else None


def without_timed(case: Case, kernel: TracedKernel, others: Iterable[TracedKernel]) -> Case:
    """Return *case*, of *kernel*, without the configurations that an autotuner measured.

    The autotuner chose by measuring. *others* are the kernels of the same program.
    """
    timed = [
        (one.options.get("num_warps"), one.options.get("num_stages"))
        for one in others
        if one.tuning and (one.kernel, one.constexprs) == (kernel.kernel, kernel.constexprs)
    ]
    return dataclasses.replace(
        case,
        neighbours=tuple(
            one
            for one in case.neighbours
            if not one.changes.keys() <= {"num_warps", "num_stages"}
            or one.record is None
            or (one.record.num_warps, one.record.num_stages) not in timed
        ),
    )


def _warm_up(ttir: str, noted: Mapping[str, Any], *, grid: Any, **given: Any) -> Any:
    """Return Triton's CompiledKernel of *ttir* with the *given* options and arguments.

    Arguments that 16 divides now, but did not when they were *noted*, are marked in the text. For
    the reverse, the mark is removed.
    """
    from triton import compile as compile_file
    from triton.runtime import driver

    del grid
    options = {name: value for name, value in given.items() if name not in noted}
    for name, value in given.items():
        if name not in noted or _divided(value) == _divided(noted[name]):
            continue
        parameter, mark = rf"(%{re.escape(name)}: (?:!tt\.ptr<\w+>|i32|i64))", f" {{{DIVISIBLE}}}"
        before, after = ("", mark) if _divided(value) else (mark, "")
        ttir = re.sub(rf"{parameter}{re.escape(before)} loc", rf"\1{after} loc", ttir, count=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ttir")
        path.write_text(ttir, "utf-8")
        target = driver.active.get_current_target()
        return compile_file(str(path), target=target, options=options)


def _divided(value: Any) -> bool:
    """Return whether Triton would know that 16 divides an argument, or a tensor's address."""
    if isinstance(value, Pointer):
        return value.aligned
    if hasattr(value, "data_ptr"):
        return bool(value.data_ptr() % ALIGNMENT == 0)
    return type(value) is int and value != 1 and value % ALIGNMENT == 0
