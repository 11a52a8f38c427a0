"""What was compiled for a GPU on which nothing was launched, and what its times rest on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.kernel import load_kernel
from occupancy_lab.reporting.excess import NAME
from occupancy_lab.reporting.taken import LATE, make_taken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.reporting.taken import Taken
    from occupancy_lab.throughput.calibrations import Basis


@dataclass(frozen=True, slots=True)
class Compiled:
    """The configurations behind predicted times."""

    gpu: Gpu
    origin: Gpu | None
    """The GPU of the same target for which they were compiled, and on which they were launched;
    None where they were compiled for this page."""
    basis: Basis
    """What the predictions rest on."""
    triton: tuple[str, ...]
    """The versions that compiled them."""
    kernels: tuple[Kernel, ...]
    configurations: int
    """Those that were compiled and fit."""
    shapes: int
    untimed: Mapping[str, int]
    """The others, by what came of them."""
    recorded: Taken | None
    """What others measured on the GPU; None for nothing."""
    counted: int
    """Of their launches, those with as many programs as fit."""


def make_compiled(source: Source) -> Compiled:
    """Return what was compiled to make *source*, one of predictions."""
    if not source.is_predicted or source.basis is None:
        msg = "these rows were measured"
        raise ValueError(msg)
    each = [name for name in NAME if name != "use"]
    table, planned = source.table.drop_duplicates(each), source.planned.drop_duplicates(each)
    failed = table.loc[table["status"] != "ok", "status"].replace("timed out", LATE)
    recorded = source.recorded
    return Compiled(
        gpu=source.gpu,
        origin=None if source.origin is None else source.origin.gpu,
        basis=source.basis,
        triton=tuple(sorted(set(planned["triton_version"]))),
        kernels=tuple(load_kernel(name) for name in planned["kernel"].unique()),
        configurations=len(planned),
        shapes=len(planned.drop_duplicates(["rows", "cols", "dtype"])),
        untimed=dict(Counter(failed).most_common()),
        recorded=None if recorded is None else make_taken(recorded),
        counted=0 if recorded is None else len(recorded.claims),
    )
