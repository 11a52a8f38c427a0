"""A launch on a GPU that the user asks about: of any kernel, or made from a matrix and knobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from occupancy_lab.compiling import kernel_launch
from occupancy_lab.compiling.compile import check_options, failure_of
from occupancy_lab.compiling.compiler import Compilation
from occupancy_lab.errors import DoesNotFitError, InputError, refuse, shortened
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import NamedKernel, check_config, check_launch, check_num_warps
from occupancy_lab.kernel import Kernel, Relaunch
from occupancy_lab.launch import Launch
from occupancy_lab.values import Config, Failure, Problem


@dataclass(frozen=True, slots=True)
class Matrix:
    """The problem and configuration from which a matrix's kernel made a launch."""

    kernel: Kernel
    problem: Problem
    config: Config
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further compiler options that were asked for."""
    asked: frozenset[str] = frozenset()
    """The knobs that were asked for; the others are the kernel's own choice."""

    @property
    def settings(self) -> dict[str, Any]:
        """The knobs and options by name."""
        return {**self.config.settings, **self.options}

    def named(self) -> dict[str, Any]:
        """Return the columns that identify it in a table."""
        return {
            "kernel": self.kernel.name,
            "rows": self.problem.rows,
            "cols": self.problem.cols,
            "dtype": self.problem.dtype,
            **self.settings,
        }


@dataclass(frozen=True, slots=True)
class Asked:
    """A launch on a GPU that the user asks about."""

    function: Any
    """The JITFunction."""
    launch: Launch
    gpu: Gpu
    name: str | None = None
    """The function's name for `load_function`; None if only this process has it."""
    matrix: Matrix | None = None
    """The matrix from which the launch was made; None for other launches."""
    relaunch: Relaunch | None = field(default=None, compare=False, repr=False)
    """Returns the launch with other keywords, with its grid computed anew; None if only the launch
    is known."""
    typed: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """The description of the launch in words, as for `explain_launch`; None without one."""
    is_tuned: bool = field(default=False, compare=False)
    """Whether an autotuner sets some of it."""

    @property
    def compilation(self) -> Compilation:
        """The compilation of the launch."""
        title = self.function.__name__ if self.matrix is None else self.matrix.kernel.name
        return Compilation(self.function, self.launch, self.gpu.target, self.name, title)

    def check(self) -> None:
        """Raise InputError if the launch is impossible, before it is compiled.

        Raises DoesNotFitError if a matrix's stages alone take more shared memory than there is.
        """
        if self.matrix is not None:
            check_launch(self.matrix.kernel, self.matrix.problem, self.matrix.config, self.gpu)
            return
        num_warps = self.launch.options(self.function).get("num_warps")
        if type(num_warps) is int:
            check_num_warps(num_warps, self.gpu.architecture)

    def why_not(self) -> Failure | None:
        """Return why no compile is needed: the launch is impossible or does not fit; or None."""
        try:
            self.check()
        except (InputError, DoesNotFitError) as error:
            return failure_of(error)
        return None


def check_assumed(asked: Iterable[Asked], assume: Collection[str]) -> None:
    """Raise InputError if *assume* names a number that one of *asked* passes."""
    for one in asked if assume else ():
        passed = one.launch.bound(one.function)
        for name in assume:
            number = passed.get(name)
            if isinstance(number, int | float) and name not in one.launch.typical:
                refuse(
                    f"--assume {shortened(name)} is of an argument that the launch passes as"
                    f" {number}; change it there"
                )


def ask(  # noqa: PLR0913 - what a launch of a matrix is made from
    named: NamedKernel,
    problem: Problem,
    config: Config,
    gpu: Gpu,
    options: Mapping[str, Any] = MappingProxyType({}),
    *,
    knobs: Collection[str] = (),
) -> Asked:
    """Return the launch of a kernel on *problem* with *config*, on *gpu*.

    *options* are further compiler options; unknown ones raise InputError. *knobs* are the parts of
    the configuration that were asked for. If the kernel does not accept the configuration, the
    launch has no arguments, and `why_not` says why.
    """
    matrix = Matrix(named.kernel, problem, config, options, frozenset(knobs))
    asked = Asked(named.kernel.function, Launch((), {}), gpu, named.name, matrix=matrix)
    try:
        check_config(named.kernel, problem, config, gpu)
    except InputError:
        return asked
    launch = kernel_launch(named.kernel, problem, config, gpu.target)
    if options:
        launch = dataclasses.replace(launch, keywords={**launch.keywords, **options})
        check_options(named.kernel.function, launch, gpu.target)
    return dataclasses.replace(asked, launch=launch)
