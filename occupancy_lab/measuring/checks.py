"""The checks of one configuration: what was predicted of it, and what the machine says of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import DriverError
from occupancy_lab.kernel import Grid
from occupancy_lab.measuring.driver import accepts_cooperative_launch, ask_driver
from occupancy_lab.measuring.ncu import profile
from occupancy_lab.measuring.once import OneLaunch
from occupancy_lab.occupancy import occupancy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.measuring.ncu import NcuReport
    from occupancy_lab.record import Record
    from occupancy_lab.values import Config

OCCUPANCY_POINTS = 0.1
"""Percentage points that a theoretical occupancy may differ by: it is printed rounded."""
ACHIEVED_POINTS = 1.0
"""Percentage points that a counted occupancy may lie above the theoretical one."""
READ_AT_LEAST, READ_AT_MOST = 0.9, 1.5
"""What is read from DRAM over what has to be read."""

DRIVER, LAUNCH, NCU = "driver", "cooperative launch", "ncu"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was predicted of a configuration, and what the machine says of it."""

    config: Config
    what: str
    predicted: float | str | None
    found: float | str | None
    agrees: bool | None
    """None where it was not checked."""
    source: str
    """What was asked: the driver, a cooperative launch, or ncu, Nsight Compute."""
    reason: str | None = None
    """Why it was not checked."""

    def to_dict(self) -> dict[str, Any]:
        """Return the check as plain values."""
        return dataclasses.asdict(self)


def _check(  # noqa: PLR0913 - the fields of a check
    record: Record,
    source: str,
    what: str,
    predicted: Any,
    found: Any,
    *,
    agrees: bool | None = None,
) -> Check:
    """Return a check of two values, which must be equal unless *agrees* says whether they agree."""
    if predicted is None or found is None:
        reason = "nothing is predicted" if predicted is None else f"{source} does not say"
        return Check(record.config, what, predicted, found, None, source, reason)
    agrees = predicted == found if agrees is None else agrees
    return Check(record.config, what, predicted, found, agrees, source)


def driver_checks(record: Record) -> Iterator[Check]:
    """Check what the binary and the formula say against the driver's word on the loaded kernel."""
    said = ask_driver(record.kernel, record.problem, record.config, record.gpu.target)
    read, held = record.resources, record.occupancy.programs_per_multiprocessor
    yield _check(record, DRIVER, "registers a thread", read.n_regs, said.n_regs)
    yield _check(record, DRIVER, "local memory, B a thread", read.local_bytes, said.local_bytes)
    yield _check(record, DRIVER, "static shared memory, B", read.static_shared, said.static_shared)
    yield _check(record, DRIVER, "programs an SM", held, said.programs_per_multiprocessor)


def launch_checks(record: Record) -> Iterator[Check]:
    """Check that as many programs as predicted are resident at once, and not one more."""
    held = record.plan.resident_programs or 0
    for programs, expected in ((held, True), (held + 1, False)):
        what = f"{programs} programs at once"
        if record.kernel.grid is not Grid.PERSISTENT and programs > record.plan.work:
            reason = f"the matrix has work for {record.plan.work} programs"
            yield Check(record.config, what, _accepted(expected), None, None, LAUNCH, reason)
            continue
        taken = accepts_cooperative_launch(record.kernel, record.problem, record.config, programs)
        yield _check(record, LAUNCH, what, _accepted(expected), _accepted(taken))


def _accepted(taken: bool) -> str:  # noqa: FBT001 - it is what is put into words
    return "accepted" if taken else "refused"


def ncu_checks(kernel: str, record: Record) -> Iterator[Check]:
    """Check the limits, the occupancy and the traffic of the launch that the plan is for."""
    programs = record.plan.num_programs or 1
    try:
        report = profile(OneLaunch(kernel, record.problem, record.config, programs))
    except DriverError as error:
        yield Check(record.config, "what was launched", None, None, None, NCU, str(error))
        return
    yield _check(record, NCU, "programs launched", programs, report.num_programs)
    yield _check(record, NCU, "registers a thread", record.resources.n_regs, report.n_regs)
    yield from _limit_checks(record, report)
    yield from _occupancy_checks(record, report)
    yield _read_check(record, report)


def _limit_checks(record: Record, report: NcuReport) -> Iterator[Check]:
    allowed = {limit.resource: limit.programs for limit in record.occupancy.limits}
    what = "programs an SM, by"
    yield _check(record, NCU, f"{what} registers", allowed["registers"], report.limit_registers)
    yield _check(record, NCU, f"{what} warps", allowed["warps"], report.limit_warps)
    yield _check(record, NCU, f"{what} program slots", allowed["programs"], report.limit_programs)
    carveout = report.carveout
    if carveout is None:
        reason = f"{NCU} does not say how much of it the driver chose"
        yield Check(record.config, f"{what} shared memory", None, None, None, NCU, reason)
        return
    what = f"{what} {carveout} B of shared memory"
    yield _check(record, NCU, what, _shared_limit(record, carveout), report.limit_shared)


def _shared_limit(record: Record, carveout: int) -> int | None:
    """Return the programs that *carveout* bytes of shared memory an SM allow.

    Nsight Compute's limit is of what the driver took from the L1 cache for this launch.
    """
    chosen = dataclasses.replace(record.gpu.architecture, shared_per_multiprocessor=carveout)
    return occupancy(record.resources, chosen).limit("shared").programs


def _occupancy_checks(record: Record, report: NcuReport) -> Iterator[Check]:
    predicted = 100 * record.occupancy.occupancy
    found = _percent(report.theoretical_occupancy)
    agrees = found is not None and abs(found - predicted) <= OCCUPANCY_POINTS
    yield _check(record, NCU, "theoretical occupancy, %", predicted, found, agrees=agrees)
    found = _percent(report.achieved_occupancy)
    agrees = found is not None and found <= predicted + ACHIEVED_POINTS
    yield _check(record, NCU, "achieved occupancy, %, at most", predicted, found, agrees=agrees)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)


def _read_check(record: Record, report: NcuReport) -> Check:
    """Check that the matrix came from DRAM, once, or as often as the kernel is said to read it.

    What is written may stay in the L2 cache, and what is read again may come from there.
    """
    has_to, said, found = record.problem.matrix_bytes, record.traffic.read_bytes, report.read_bytes
    least, most = READ_AT_LEAST * min(has_to, said), READ_AT_MOST * said
    agrees = found is not None and least <= found <= most
    return _check(record, NCU, "read from DRAM, B", said, found, agrees=agrees)
