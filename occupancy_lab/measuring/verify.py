"""Checks what the lab says of a kernel against this machine's NVIDIA GPU."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from occupancy_lab.compiled_records import compile_matrix
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.errors import DoesNotFitError, DriverError, InputError, refuse
from occupancy_lab.gpus import Gpu, PresentGpu, present_gpus
from occupancy_lab.inputs import (
    DEFAULT_ROWS,
    AskedDtype,
    AskedKernel,
    Integer,
    Integers,
    chosen_config,
    chosen_kernel,
    chosen_problem,
    whole_numbers,
)
from occupancy_lab.kernel import Grid, Kernel
from occupancy_lab.measuring.driver import accepts_cooperative_launch, ask_driver
from occupancy_lab.measuring.ncu import NcuProfile, profile
from occupancy_lab.measuring.process import TimedLaunch
from occupancy_lab.occupancy import occupancy
from occupancy_lab.record import Record, matrix_of
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import count, formatted
from occupancy_lab.values import Config, Problem

OCCUPANCY_POINTS = 0.1
"""The percentage points by which theoretical occupancies may differ: Nsight Compute prints two
decimals, and one warp in 64 is 1.6 points."""
ACHIEVED_POINTS = 1.0
"""The percentage points by which a counted occupancy may exceed the theoretical one: less than one
warp's."""
READ_AT_LEAST, READ_AT_MOST = 0.9, 1.5
"""Allowed DRAM reads over the bytes that must be read: less if some are still in the L2 cache, more
if the driver or another program reads at the same time. The range distinguishes a matrix that is
read once from one that is read twice."""
DEFAULT_COLS = 781
"""The number of columns in the tutorial's example."""
NUM_STAGES = (1, 2, 3, 4)
"""From a loop without prefetch to the most stages that the tutorial launches with."""
PROFILED = 3
"""Configurations that Nsight Compute profiles, which takes some 3 s for each."""
MAX_ELEMENTS_PER_THREAD = 64
"""Above this, ptxas takes many seconds for a kernel."""
FEW_ELEMENTS_PER_THREAD = 32
"""Up to this, any kernel compiles in a second or two."""

DRIVER, LAUNCH, NCU = "driver", "cooperative launch", "ncu"
LEAST_REGISTERS = 16
"""Nsight Compute reports at least so many registers per thread: for kernels of 6 to 15 registers
too, in reports/data/work-h100.csv and work-h200.csv."""


@dataclass(frozen=True, slots=True)
class Check:
    """One prediction for a configuration, and what the machine says of it."""

    config: Config
    what: str
    predicted: float | str | None
    found: float | str | None
    agrees: bool | None
    """None if it was not checked."""
    source: str
    """The source of the answer: the driver, a cooperative launch, or Nsight Compute (ncu)."""
    reason: str | None = None
    """Why the value was not checked."""


class Verification(Answer, tuple[Check, ...]):
    """The checks, in the order in which they were made."""

    __slots__ = ()

    def to_document(self) -> Document:
        """Return a table of checks for each configuration, and how many differ."""
        groups = itertools.groupby(self, lambda check: check.config)
        differ = sum(check.agrees is False for check in self)
        answer = (
            f"{count(len(self), 'check')}, {differ} {'differs' if differ == 1 else 'differ'},"
            f" {sum(check.agrees is None for check in self)} not checked."
        )
        return Document(
            "What was predicted, and what the GPU says",
            (answer,),
            tuple(_section(config, group) for config, group in groups),
        )

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the checks as plain values, for JSON."""
        return [dataclasses.asdict(check) for check in self]


def _check(  # noqa: PLR0913 - the fields of a check
    config: Config,
    source: str,
    what: str,
    predicted: Any,
    found: Any,
    *,
    agrees: bool | None = None,
) -> Check:
    """Return a check of two values, which agree if they are equal unless *agrees* is given."""
    if predicted is None or found is None:
        reason = "nothing is predicted" if predicted is None else f"{source} does not say"
        return Check(config, what, predicted, found, None, source, reason)
    agrees = predicted == found if agrees is None else agrees
    return Check(config, what, predicted, found, agrees, source)


def driver_checks(record: Record) -> Iterator[Check]:
    """Check the numbers of the binary and the formula against the driver's of the loaded kernel."""
    driver = ask_driver(matrix_of(record).kernel, record.problem, record.config, record.gpu.target)
    binary, check = record.resources, partial(_check, record.config, DRIVER)
    programs = record.occupancy.programs_per_multiprocessor
    yield check("registers per thread", binary.n_regs, driver.n_regs)
    yield check("local memory, B per thread", binary.local_bytes, driver.local_bytes)
    yield check("static shared memory, B", binary.static_shared, driver.static_shared)
    yield check("programs per SM", programs, driver.programs_per_multiprocessor)


def launch_checks(record: Record) -> Iterator[Check]:
    """Check that exactly the predicted number of programs can be resident at once."""
    plan = record.plan
    assert plan is not None  # noqa: S101 - a matrix's plan is known
    resident = plan.resident_programs or 0
    for programs, expected in ((resident, "accepted"), (resident + 1, "refused")):
        what = f"{programs} programs at once"
        if not plan.is_persistent and programs > plan.work:
            reason = f"the matrix has work for {plan.work} programs"
            yield Check(record.config, what, expected, None, None, LAUNCH, reason)
            continue
        taken = accepts_cooperative_launch(
            matrix_of(record).kernel, record.problem, record.config, programs
        )
        yield _check(record.config, LAUNCH, what, expected, "accepted" if taken else "refused")


def ncu_checks(kernel: str, record: Record) -> Iterator[Check]:
    """Check the limits, the occupancy and the traffic of the planned launch."""
    check, programs = partial(_check, record.config, NCU), record.num_programs or 1
    try:
        found = profile(record.problem, TimedLaunch(kernel, record.config, programs))
    except DriverError as error:
        yield Check(record.config, "what was launched", None, None, None, NCU, str(error))
        return
    yield check("programs launched", programs, found.num_programs)
    registers = max(record.resources.n_regs, LEAST_REGISTERS)
    yield check("registers per thread", registers, found.n_regs)
    yield from _limit_checks(record, found)
    predicted, theoretical = 100 * record.occupancy.occupancy, found.theoretical_occupancy
    percent = None if theoretical is None else round(100 * theoretical, 2)
    agrees = percent is not None and abs(percent - predicted) <= OCCUPANCY_POINTS
    yield check("theoretical occupancy, %", predicted, percent, agrees=agrees)
    achieved = found.achieved_occupancy
    percent = None if achieved is None else round(100 * achieved, 2)
    agrees = percent is not None and percent <= predicted + ACHIEVED_POINTS
    yield check("achieved occupancy, %, at most", predicted, percent, agrees=agrees)
    # Written bytes may stay in the L2 cache, and bytes that are read again may come from there.
    if record.traffic is None:
        return
    reads, read = record.traffic.read_bytes, found.read_bytes
    least = READ_AT_LEAST * min(record.problem.matrix_bytes, reads)
    agrees = read is not None and least <= read <= READ_AT_MOST * reads
    yield check("read from DRAM, B", reads, read, agrees=agrees)


def _limit_checks(record: Record, found: NcuProfile) -> Iterator[Check]:
    allowed = {limit.resource: limit.programs for limit in record.occupancy.limits}
    check, what = partial(_check, record.config, NCU), "programs per SM, by"
    yield check(f"{what} registers", allowed["registers"], found.limit_registers)
    yield check(f"{what} warps", allowed["warps"], found.limit_warps)
    yield check(f"{what} program slots", allowed["programs"], found.limit_programs)
    carveout = found.carveout
    if carveout is None:
        reason = f"{NCU} does not say how much the driver carved out"
        yield Check(record.config, f"{what} shared memory", None, None, None, NCU, reason)
        return
    # Nsight Compute's limit refers to the driver's carve-out of the L1 cache for this launch.
    chosen = dataclasses.replace(record.gpu.architecture, shared_per_multiprocessor=carveout)
    programs = occupancy(record.resources, chosen).limit("shared").programs
    yield check(f"{what} {carveout} B of shared memory", programs, found.limit_shared)


def verify_here(  # noqa: PLR0913 - one argument per option of the command line
    cols: Integer = DEFAULT_COLS,
    *,
    rows: Integer = DEFAULT_ROWS,
    dtype: AskedDtype = "float32",
    kernel: AskedKernel = "softmax",
    num_warps: Integers = (),
    num_stages: Integers = (),
    ncu: bool = True,
) -> Verification:
    """Check a grid of configurations on the first NVIDIA GPU of this machine, as `verify` does.

    *num_warps* defaults to every number of warps that compiles quickly, *num_stages* to 1 to 4 for
    a persistent kernel and 1 for others. Raises InputError if there is no NVIDIA GPU, or if an
    argument is invalid.
    """
    present = next((one for one in present_gpus() if one.gpu.vendor == "NVIDIA"), None)
    if present is None:
        refuse("verify needs an NVIDIA GPU, and none is at hand; explain does without one")
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
    """Return the configurations of *num_warps* and *num_stages*, or of `verify_here`'s defaults.

    For a kernel with `configs`, it returns these, or their blocks with the given values. A block
    with many elements per thread, more than in any of these, is left out: it may take many seconds
    to compile.
    """
    if kernel.configs is not None:
        configs = kernel.configs(problem)
        if not num_warps and not num_stages:
            return tuple(configs)
        knobs = (
            dict.fromkeys(one.block_size for one in configs),
            num_warps or dict.fromkeys(one.num_warps for one in configs),
            num_stages or dict.fromkeys(one.num_stages for one in configs),
        )
        few = FEW_ELEMENTS_PER_THREAD * gpu.architecture.warp_size
        most = max([few, *(one.block_size / one.num_warps for one in configs)])
        found = (Config(*one) for one in itertools.product(*knobs))
        return tuple(one for one in found if one.block_size <= most * one.num_warps)
    architecture = gpu.architecture
    block_size = chosen_config(kernel, problem, gpu, {}).block_size
    threads_at_least = block_size / MAX_ELEMENTS_PER_THREAD
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
    """Return the checks of each of *configs* that fits, in order.

    *kernel* is its name for `load_kernel`. Registers, local memory, static shared memory and
    programs are checked against the driver's, num_programs against what the driver launches at
    once. Nsight Compute profiles *profiled* of the configurations, spread over them; if it fails, a
    check says why. The kernel is compiled as it is without a GPU.

    Raises InputError if *present* is no NVIDIA GPU or there is no configuration, and
    DoesNotFitError if none fits.
    """
    if present.gpu.vendor != "NVIDIA":
        refuse(f"{present.name} is no NVIDIA GPU; its driver cannot be asked")
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
    kernel = chosen_kernel(name)
    records, refusal = [], None
    with closing(Compiler(None)) as compiler:
        for config in configs:
            try:
                records.append(compile_matrix(kernel, problem, config, gpu, compiler))
            except DoesNotFitError as error:
                refusal = error
    if not records:
        raise refusal or InputError("there is no configuration to check; name num_warps")
    return records


HEADERS = ("", "predicted", "found", "asked", "")


def _section(config: Config, checks: Iterable[Check]) -> Section:
    title = ", ".join(f"{name} {value}" for name, value in config.settings.items())
    rows = tuple(
        (check.what, _shown(check.predicted), _shown(check.found), check.source, _verdict(check))
        for check in checks
    )
    return Section(title, (Table(HEADERS, rows, prose=True),))


def _shown(value: float | str | None) -> str:
    return formatted(value, "g" if isinstance(value, float) else "")


def _verdict(check: Check) -> str:
    if check.agrees is None:
        return f"not checked: {literal(str(check.reason))}"
    return "agrees" if check.agrees else "**DIFFERS**"
