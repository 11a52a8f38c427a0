"""A launch with everything that its explanation compares it with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from occupancy_lab.explaining.neighbours import Neighbour, best_of
from occupancy_lab.gpus import Architecture, Gpu
from occupancy_lab.kernel import Kernel, kernel_names
from occupancy_lab.occupancy.calculator import Calculation
from occupancy_lab.record import Record, matrix_of
from occupancy_lab.values import Config, LaunchPlan, Measurement

if TYPE_CHECKING:
    from occupancy_lab.sweeping.recorded import RecordedLaunch


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was recorded elsewhere on a GPU of the same kind; None where nothing was recorded."""

    launch: Measurement | None = None
    """The explained launch itself."""
    row_programs: Measurement | None = None
    """The same launch with one program per row."""
    tutorial: Measurement | None = None
    """The same launch with the tutorial's num_programs, if that is another number."""
    as_compiled: tuple[int, Measurement] | None = None
    """The same configuration with as many programs as fit when it was compiled for the recording:
    that number, and the time. Only set if the launch itself was not recorded; the two launches are
    not compared."""
    copy: Measurement | None = None
    """A plain copy of this matrix."""
    fastest: RecordedLaunch | None = None
    """The fastest launch of the lab's kernels for this matrix."""
    number: int = 0
    """How many launches of the lab's kernels were recorded for this matrix."""
    faster: Mapping[str, float] = field(default_factory=dict, hash=False)
    """The other softmaxes that were recorded to be faster than the lab's kernels, us."""

    @property
    def us(self) -> float | None:
        """The recorded time of the launch, us."""
        return None if self.launch is None else self.launch.us

    @property
    def share_of_copy(self) -> float | None:
        """The speed as a share of a plain copy's; None unless both were recorded."""
        copy_us = None if self.copy is None else self.copy.us
        return None if self.us is None or copy_us is None else copy_us / self.us

    def to_dict(self) -> dict[str, Any]:
        """Return the recorded launch and copy as plain values, with their ratio."""
        programs, as_compiled = self.as_compiled or (None, None)
        return {
            "launch": None if self.launch is None else self.launch.to_dict(),
            "as_compiled": None if as_compiled is None else as_compiled.to_dict(),
            "as_compiled_num_programs": programs,
            "copy": None if self.copy is None else self.copy.to_dict(),
            "share_of_copy": self.share_of_copy,
            "faster": dict(self.faster),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A launch as a record, and what it is compared with."""

    record: Record
    _: KW_ONLY
    neighbours: tuple[Neighbour, ...] = ()
    """The same launch with one setting changed."""
    recorded: Recorded = Recorded()
    padded: Record | None = None
    """The launch with integers and addresses rounded up to multiples of 16, for wider loads; None
    if that cannot help."""
    row_kernel: Record | None = None
    """The launch with one program per row and the same num_warps; None if it was not compiled."""
    asked_kernel: str | None = ""
    """The name or path by which the user asked for the kernel; "" stands for the kernel's own name,
    None for a Kernel object without a name to find it by."""
    triton: str | None = None
    """The other Triton that the user asked for, as typed; None is the Triton here."""
    typed: Mapping[str, Any] | None = None
    """The launch as a command line described it, in `explain_launch`'s arguments; else None."""
    is_tuned: bool = False
    """Whether an autotuner sets some of the launch's parameters."""

    @property
    def kernel(self) -> Kernel:
        """The kernel that made the launch from a matrix; only for such launches."""
        return matrix_of(self.record).kernel

    @property
    def best(self) -> Neighbour | None:
        """The neighbour that is noticeably faster, as `best_of` chooses it; None if none is."""
        return best_of(self.record, self.neighbours)

    @property
    def with_one_stage(self) -> Record | None:
        """The neighbour with num_stages 1; None if it gives the same binary or does not compile."""
        found = (one for one in self.neighbours if one.changes == {"num_stages": 1})
        return next((one.record for one in found if not one.reason), None)

    @property
    def alike(self) -> tuple[str, ...]:
        """The lab's kernels that compute the same; none if this kernel is not one of them."""
        return self.kernel.alike if self.kernel_name in self.kernel.alike else ()

    @property
    def plan(self) -> LaunchPlan:
        """How the programs are spread over the GPU; only for launches whose grid is known."""
        assert self.record.plan is not None  # noqa: S101 - said above
        return self.record.plan

    @property
    def kernel_name(self) -> str | None:
        """The name that `load_function` finds the kernel by; None if there is none."""
        own = None if self.record.matrix is None else self.kernel.name
        return own if self.asked_kernel == "" else self.asked_kernel

    @property
    def calculation(self) -> Calculation:
        """The occupancy by the formulas."""
        return self.record.calculation

    @property
    def gpu(self) -> Gpu:
        """The GPU of the launch."""
        return self.record.gpu

    @property
    def architecture(self) -> Architecture:
        """The limits of the GPU."""
        return self.record.gpu.architecture

    @property
    def title(self) -> str:
        """The name of the GPU for the reader."""
        return self.record.title


def with_recorded(case: Case) -> Case:
    """Return *case* with what was recorded of its launch, if it launches one of the lab's kernels.

    A user's kernel may have the name of a recorded one, so the name that was asked for decides.
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

    record, kernel = case.record, case.kernel
    name, config, problem, plan = kernel.name, record.config, record.problem, case.plan
    key, alike = record.gpu.key, case.alike

    def find(kernel: str, config: Config, programs: int | None) -> Measurement | None:
        return recorded_measurement(key, kernel, problem, config, programs)

    ranking = recorded_ranking(key, problem, alike) if alike else ()
    of_matrix: dict[str, Any] = {"copy": recorded_copy(key, problem)}
    if ranking:
        faster = faster_rivals(key, problem, ranking[0].measurement.us or 0.0)
        of_matrix |= {"fastest": ranking[0], "number": len(ranking), "faster": faster}
    rows, tutorial = kernel.by_rows, record.miscount
    launch = find(name, config, plan.num_programs if plan.is_persistent else None)
    single = dataclasses.replace(config, num_stages=1)
    return Recorded(
        launch,
        row_programs=None if rows is None else find(rows, single, None),
        tutorial=None if tutorial is None else find(name, config, tutorial),
        as_compiled=None if launch else recorded_as_compiled(key, name, problem, config),
        **of_matrix,
    )
