"""A launch that is asked about on a GPU: of any kernel, or made of a matrix and its knobs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from occupancy_lab.compiling import kernel_launch
from occupancy_lab.compiling.compile import check_options, failure_of
from occupancy_lab.compiling.compiler import Compilation
from occupancy_lab.errors import DoesNotFitError, InputError, refuse, shortened
from occupancy_lab.inputs import check_config, check_launch, check_num_warps
from occupancy_lab.launch import BoundLaunch, Launch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.inputs import NamedKernel
    from occupancy_lab.kernel import Kernel, Relaunch
    from occupancy_lab.values import Config, Failure, Problem


@dataclass(frozen=True, slots=True)
class Matrix:
    """What a kernel of a matrix made a launch from."""

    kernel: Kernel
    problem: Problem
    config: Config
    options: Mapping[str, Any] = field(default_factory=dict)
    """Compiler options that were asked for besides."""
    asked: frozenset[str] = frozenset()
    """The knobs that were asked for; the others are the kernel's own choice."""

    @property
    def settings(self) -> dict[str, Any]:
        """The knobs and options by name."""
        return {**self.config.settings, **self.options}

    def named(self) -> dict[str, Any]:
        """Return the columns that name it in a table."""
        return {
            "kernel": self.kernel.name,
            "rows": self.problem.rows,
            "cols": self.problem.cols,
            "dtype": self.problem.dtype,
            **self.settings,
        }


Run = TypeVar("Run", bound=BoundLaunch)


@dataclass(frozen=True, slots=True)
class Asked:
    """A launch that is asked about on a GPU."""

    function: Any
    """The JITFunction."""
    launch: Launch
    gpu: Gpu
    name: str | None = None
    """What `load_function` finds the function by; None where only this process has it."""
    matrix: Matrix | None = None
    """What a kernel of a matrix made it from; None where none did."""
    relaunch: Relaunch | None = field(default=None, compare=False, repr=False)
    """What gives the launch with other keywords, its grid worked out anew; None where nothing is
    known but the launch."""
    typed: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """What describes it in words, as `explain_launch` takes it; None where nothing does."""
    is_tuned: bool = field(default=False, compare=False)
    """Whether an autotuner sets some of it."""

    @property
    def compilation(self) -> Compilation:
        """What is compiled."""
        title = self.function.__name__ if self.matrix is None else self.matrix.kernel.name
        return Compilation(self.function, self.launch, self.gpu.target, self.name, title)

    def named(self, run: Run) -> Run:
        """Return *run* of it with the name that a kernel of a matrix has."""
        if self.matrix is None:
            return run
        return dataclasses.replace(run, kernel=self.matrix.kernel.name)

    def check(self) -> None:
        """Raise InputError where it cannot be launched, before it is compiled.

        DoesNotFitError where a matrix's stages alone take more shared memory than there is.
        """
        if self.matrix is not None:
            check_launch(self.matrix.kernel, self.matrix.problem, self.matrix.config, self.gpu)
            return
        num_warps = self.launch.options(self.function).get("num_warps")
        if type(num_warps) is int:
            check_num_warps(num_warps, self.gpu.architecture)

    def why_not(self) -> Failure | None:
        """Return why it need not be compiled, as it cannot be launched or does not fit; or None."""
        try:
            self.check()
        except (InputError, DoesNotFitError) as error:
            return failure_of(error)
        return None


def check_assumed(asked: Iterable[Asked], assume: Collection[str]) -> None:
    """Raise InputError where *assume* names a number that one of *asked* passes."""
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
    """Return the launch of a kernel on *problem* as *config* sets it, asked about on *gpu*.

    *options* are compiler options that are passed besides; InputError for one that there is not.
    *knobs* of the configuration were asked for. Where the kernel does not take it, the launch has
    no arguments, and `why_not` says why.
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
