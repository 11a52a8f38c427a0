"""What the lab says of a kernel, checked against what the NVIDIA GPU at hand says and does."""

from __future__ import annotations

import dataclasses
import itertools
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.process import Compiler
from occupancy_lab.errors import DoesNotFitError, DriverError, InputError
from occupancy_lab.gpus import present_gpus
from occupancy_lab.inputs import (
    DEFAULT_ROWS,
    chosen_config,
    chosen_kernel,
    chosen_problem,
    whole_numbers,
)
from occupancy_lab.kernel import Grid
from occupancy_lab.measuring.driver import accepts_cooperative_launch, ask_driver
from occupancy_lab.measuring.ncu import OneLaunch, profile
from occupancy_lab.occupancy import occupancy
from occupancy_lab.record import compile_record
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import count
from occupancy_lab.values import Config

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from occupancy_lab.gpus import Gpu, PresentGpu
    from occupancy_lab.inputs import AskedDtype, AskedKernel, Integer, Integers
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.measuring.ncu import NcuReport
    from occupancy_lab.record import Record
    from occupancy_lab.values import Problem

OCCUPANCY_POINTS = 0.1
"""Percentage points that a theoretical occupancy may differ by: it is printed rounded."""
ACHIEVED_POINTS = 1.0
"""Percentage points that a counted occupancy may lie above the theoretical one."""
READ_AT_LEAST, READ_AT_MOST = 0.9, 1.5
"""What is read from DRAM over what has to be read: less where some of it is still in the L2 cache,
more where the driver or another program reads beside the launch. It tells a matrix that is read
once from one that is read twice."""

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


class Verification(Answer, tuple[Check, ...]):
    """The checks, in the order in which they were made."""

    __slots__ = ()

    def to_document(self) -> Document:
        """Return the checks in a table per configuration, and how many differ."""
        groups = itertools.groupby(self, lambda check: check.config)
        return Document(
            "What was predicted, and what the GPU says",
            (_sentence(self),),
            tuple(_section(config, group) for config, group in groups),
        )

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the checks as plain values, for JSON."""
        return [check.to_dict() for check in self]


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
    """Return the programs that *carveout* bytes of shared memory per SM allow.

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


DEFAULT_COLS = 781
"""The columns that the tutorial explains itself with."""
NUM_STAGES = (1, 2, 3, 4)
PROFILED = 3
"""Configurations that Nsight Compute looks at: it takes some 3 s for each."""
ELEMENTS_A_THREAD = 64
"""Above this ptxas takes many seconds a kernel."""


def verify_here(  # noqa: PLR0913 - one argument an option of the command line
    cols: Integer = DEFAULT_COLS,
    *,
    rows: Integer = DEFAULT_ROWS,
    dtype: AskedDtype = "float32",
    kernel: AskedKernel = "softmax",
    num_warps: Integers = (),
    num_stages: Integers = (),
    ncu: bool = True,
) -> Verification:
    """Check a grid of configurations on the first NVIDIA GPU at hand; `verify` says what.

    Without *num_warps* every number of warps that compiles in a moment is taken, without
    *num_stages* 1 to 4 of a persistent kernel and 1 of another. Raises InputError where there is
    no NVIDIA GPU, or what is asked makes no sense.
    """
    present = next((one for one in present_gpus() if one.gpu.vendor == "NVIDIA"), None)
    if present is None:
        msg = "verify needs an NVIDIA GPU, and none is at hand; explain does without one"
        raise InputError(msg)
    problem = chosen_problem(rows, cols, dtype)
    with closing(Compiler(store_directory())) as compiler:
        found = chosen_kernel(kernel, compiler.check_file)
    found.check_name("Nsight Compute")
    knobs = whole_numbers("num_warps", num_warps), whole_numbers("num_stages", num_stages)
    configs = grid_of_configs(found.kernel, problem, present.gpu, *knobs)
    profiled = PROFILED if ncu else 0
    return verify(str(found.name), problem, configs, present, profiled=profiled)


def grid_of_configs(
    kernel: Kernel,
    problem: Problem,
    gpu: Gpu,
    num_warps: Sequence[int] = (),
    num_stages: Sequence[int] = (),
) -> tuple[Config, ...]:
    """Return every configuration of *num_warps* and *num_stages*; `verify_here` says what () is."""
    architecture = gpu.architecture
    block_size = chosen_config(kernel, problem, gpu, {}).block_size
    threads_at_least = block_size / ELEMENTS_A_THREAD
    powers = (1 << power for power in range(architecture.max_warps_per_program.bit_length()))
    warps = num_warps or [n for n in powers if n * architecture.warp_size >= threads_at_least]
    stages = num_stages or (NUM_STAGES if kernel.grid is Grid.PERSISTENT else (1,))
    return tuple(Config(block_size, *knobs) for knobs in itertools.product(warps, stages))


def verify(
    kernel: str,
    problem: Problem,
    configs: Iterable[Config],
    present: PresentGpu,
    *,
    profiled: int = PROFILED,
) -> Verification:
    """Return the checks of each of *configs* that fits, in their order.

    *kernel* is what `load_kernel` finds it by. Registers, local memory, static shared memory and
    programs are set against the driver's, num_programs against what it accepts to launch at once.
    Nsight Compute looks at *profiled* of the configurations, spread over them; where it fails,
    a check says why. The kernel is compiled as it is without a GPU.

    Raises InputError where *present* is no NVIDIA GPU or there is no configuration, and
    DoesNotFitError where not one fits.
    """
    if present.gpu.vendor != "NVIDIA":
        msg = f"{present.name} is no NVIDIA GPU; its driver cannot be asked"
        raise InputError(msg)
    records = _fitting(kernel, problem, configs, present.gpu)
    last = len(records) - 1
    places = {place * last // max(profiled - 1, 1) for place in range(profiled)}
    checks: list[Check] = []
    for place, record in enumerate(records):
        checks += (*driver_checks(record), *launch_checks(record))
        if place in places:
            checks += ncu_checks(kernel, record)
    return Verification(checks)


def _fitting(name: str, problem: Problem, configs: Iterable[Config], gpu: Gpu) -> list[Record]:
    kernel = chosen_kernel(name).kernel
    records, refusal = [], None
    with closing(Compiler(None)) as compiler:
        for config in configs:
            try:
                records.append(
                    compile_record(name, kernel, problem, config, gpu, compiler=compiler)
                )
            except DoesNotFitError as error:
                refusal = error
    if not records:
        raise refusal or InputError("there is no configuration to check; name num_warps")
    return records


HEADERS = ("", "predicted", "found", "asked", "")


def _section(config: Config, checks: Iterable[Check]) -> Section:
    title = (
        f"BLOCK_SIZE {config.block_size}, num_warps {config.num_warps},"
        f" num_stages {config.num_stages}"
    )
    rows = tuple(
        (check.what, _shown(check.predicted), _shown(check.found), check.source, _verdict(check))
        for check in checks
    )
    return Section(title, (Table(HEADERS, rows, prose=True),))


def _shown(value: float | str | None) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _verdict(check: Check) -> str:
    if check.agrees is None:
        return f"not checked: {literal(str(check.reason))}"
    return "agrees" if check.agrees else "**DIFFERS**"


def _sentence(checks: tuple[Check, ...]) -> str:
    differ = sum(check.agrees is False for check in checks)
    unchecked = sum(check.agrees is None for check in checks)
    return (
        f"{count(len(checks), 'check')}, {differ} {'differs' if differ == 1 else 'differ'},"
        f" {unchecked} not checked."
    )
