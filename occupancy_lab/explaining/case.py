"""What an explanation is of: a record, what was recorded of it elsewhere, and measured now."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from occupancy_lab.kernel import kernel_names
from occupancy_lab.record import matrix_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.asked import Matrix
    from occupancy_lab.explaining.neighbours import Neighbour
    from occupancy_lab.gpus import Architecture, Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.occupancy.calculator import Calculation
    from occupancy_lab.record import Record
    from occupancy_lab.values import Config, LaunchPlan, Measurement, Problem


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was recorded on a GPU of the same kind elsewhere; None where nothing was."""

    launch: Measurement | None = None
    """Of the launch that is explained."""
    single_stage: Measurement | None = None
    """Of the same with num_stages 1."""
    row_programs: Measurement | None = None
    """Of the same with one program per row."""
    tutorial: Measurement | None = None
    """Of the same with the tutorial's num_programs, where that is another."""
    as_compiled: tuple[int, Measurement] | None = None
    """Where nothing is of the launch itself: another launch of its configuration, by the number of
    programs that fit as it was compiled then, and its time. The two are not compared."""
    copy: Measurement | None = None
    """Of a plain copy of this matrix."""
    faster: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Of a softmax: what else was recorded to be faster than the lab's kernels, us."""

    @property
    def us(self) -> float | None:
        """The time of the launch, us."""
        return None if self.launch is None else self.launch.us

    @property
    def share_of_copy(self) -> float | None:
        """The speed as a share of a plain copy's; None where one of the two was not recorded."""
        copy_us = None if self.copy is None else self.copy.us
        return None if self.us is None or copy_us is None else copy_us / self.us

    def to_dict(self) -> dict[str, Any]:
        """Return the launch and the copy as plain values, and what the one is of the other."""
        programs, as_compiled = self.as_compiled or (None, None)
        return {
            "launch": None if self.launch is None else self.launch.to_dict(),
            "as_compiled": None if as_compiled is None else as_compiled.to_dict(),
            "as_compiled_num_programs": programs,
            "copy": None if self.copy is None else self.copy.to_dict(),
            "share_of_copy": self.share_of_copy,
            "faster": dict(self.faster),
        }


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another launch of the same problem that was recorded, by its kernel, and its times."""

    kernel: str
    config: Config
    us: float | None
    """The predicted time, us; None where it is not compiled so, or cannot be predicted."""
    recorded_us: float
    num_programs: int | None = None
    """Programs of the recorded launch, where not as many fit of what is compiled now."""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Other launches of the same problem on the same GPU, whatever a store holds of them."""

    fastest: Alternative | None = None
    """The fastest that was recorded; None where none was."""
    recorded: int = 0
    """Of how many it is the fastest."""
    tuned: int = 0
    """Where none was recorded: how many configurations `tune` compiles and ranks."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A record, and what it is compared with."""

    record: Record
    single_stage: Record | None = None
    """The same with num_stages 1; None where nobody compiled it."""
    neighbours: tuple[Neighbour, ...] = field(default=(), kw_only=True)
    """The same launch with one setting changed."""
    recorded: Recorded = field(default=Recorded(), kw_only=True)
    padded: Record | None = field(default=None, kw_only=True)
    """The launch on a matrix padded for wider loads, of any kernel with whole numbers and addresses
    that are multiples of 16; None where that is no use."""
    row_kernel: Record | None = field(default=None, kw_only=True)
    """The launch with one program per row and the same warps; None where it is not compiled."""
    asked_kernel: str | None = field(default="", kw_only=True)
    """What the kernel was asked for by, a name or a path; "" is its own name, None a Kernel that
    nothing names."""
    triton: str | None = field(default=None, kw_only=True)
    """What another Triton was asked for by; None is the Triton here."""
    typed: Mapping[str, Any] | None = field(default=None, kw_only=True, hash=False)
    """What describes the launch in words, as `explain_launch` takes it; None where nothing does."""
    is_tuned: bool = field(default=False, kw_only=True)
    """Whether an autotuner sets some of the launch."""
    alternatives: Alternatives = field(default=Alternatives(), kw_only=True)

    @property
    def matrix(self) -> Matrix:
        """What a kernel of a matrix made the launch from; it is known that one did."""
        return matrix_of(self.record)

    @property
    def kernel(self) -> Kernel:
        """The kernel of a matrix that made the launch."""
        return self.matrix.kernel

    @property
    def problem(self) -> Problem:
        """The matrix that it was made for."""
        return self.matrix.problem

    @property
    def config(self) -> Config:
        """The knobs that it was made with."""
        return self.matrix.config

    @property
    def alike(self) -> tuple[str, ...]:
        """The kernels of the lab that do the same; none where it is not one of them by name."""
        own = self.kernel_name in self.kernel.alike
        return self.kernel.alike if own else ()

    @property
    def by_rows(self) -> str | None:
        """The kernel of the lab that does the same with one program per row, as `alike`."""
        return self.kernel.by_rows if self.alike else None

    @property
    def plan(self) -> LaunchPlan:
        """How it is spread over the GPU, of a launch whose grid is known."""
        assert self.record.plan is not None  # noqa: S101 - said above
        return self.record.plan

    @property
    def piece(self) -> str:
        """What a program does one after the other: a row, a block, a piece, or itself."""
        return self.record.launch.work.piece

    @property
    def kernel_name(self) -> str | None:
        """What `load_function` finds the kernel by; None for a Kernel that nothing names."""
        own = None if self.record.matrix is None else self.kernel.name
        return own if self.asked_kernel == "" else self.asked_kernel

    @property
    def calculation(self) -> Calculation:
        """What the formulas say of it."""
        return self.record.calculation

    @property
    def gpu(self) -> Gpu:
        """The GPU that it is on."""
        return self.record.gpu

    @property
    def architecture(self) -> Architecture:
        """The limits of the GPU."""
        return self.gpu.architecture

    @property
    def title(self) -> str:
        """What the GPU is called."""
        return self.gpu.title

    @property
    def threads(self) -> int:
        """Threads per program."""
        return self.record.num_warps * self.architecture.warp_size


def with_recorded(case: Case) -> Case:
    """Return *case* with what was recorded of its launch.

    Only the lab's own kernels were recorded, and a kernel of a file may have the name of one.
    """
    matrix = case.record.matrix
    if matrix is None or matrix.options or case.kernel_name not in kernel_names():
        return case
    return dataclasses.replace(case, recorded=_recorded(case))


def _recorded(case: Case) -> Recorded:
    from occupancy_lab.sweeping.recorded import (
        faster_rivals,
        recorded_as_compiled,
        recorded_copy,
        recorded_measurement,
        recorded_ranking,
    )

    record = case.record
    name, config, problem, plan = case.kernel.name, case.config, case.problem, case.plan
    key = record.gpu.key

    def find(kernel: str, config: Config, programs: int | None) -> Measurement | None:
        return recorded_measurement(key, kernel, problem, config, programs)

    copy = recorded_copy(key, problem)
    faster = {}
    alike = case.kernel.alike
    if name in alike and (ranking := recorded_ranking(key, problem, alike)):
        faster = faster_rivals(key, problem, ranking[0].measurement.us or 0.0)
    if not plan.is_persistent:
        return Recorded(find(name, config, None), copy=copy, faster=faster)
    single = dataclasses.replace(config, num_stages=1)
    single_plan = None if case.single_stage is None else case.single_stage.plan
    rows, tutorial = case.kernel.by_rows, record.miscount
    launch = find(name, config, plan.num_programs)
    return Recorded(
        launch=launch,
        single_stage=None if single_plan is None else find(name, single, single_plan.num_programs),
        row_programs=None if rows is None else find(rows, single, None),
        tutorial=None if tutorial is None else find(name, config, tutorial),
        as_compiled=None if launch else recorded_as_compiled(key, name, problem, config),
        copy=copy,
        faster=faster,
    )
