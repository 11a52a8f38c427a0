"""One kernel on GPUs of both vendors: what was compiled for each, and what it takes there.

The rows say what was read of the binaries; everything else is worked out of them again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vendors_times import tutorial_record

from occupancy_lab.explaining.limits import limiter_words
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.reporting.launches import problem_words, row_record
from occupancy_lab.reporting.page import Chapter, Commands
from occupancy_lab.sweeping.recorded import read_rows, recorded_table
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import count, listed
from occupancy_lab.throughput.predict import row_config, row_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.values import Config, Problem


FILE = Path(__file__).with_name("data") / "vendors.csv"
"""What reports/record_vendors.py writes, a row per configuration and GPU."""


@dataclass(frozen=True, slots=True)
class CompiledRow:
    """One configuration on one GPU."""

    gpu: Gpu
    problem: Problem
    config: Config
    status: str
    """ok, or why there is no record."""
    record: Record | None


@dataclass(frozen=True, slots=True)
class Vendors:
    """Every configuration on every GPU, in the order of the rows."""

    triton: str
    every: tuple[CompiledRow, ...]

    @property
    def records(self) -> tuple[Record, ...]:
        """Those that a GPU holds."""
        return tuple(one.record for one in self.every if one.record is not None)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs, each once."""
        return tuple({one.gpu.key: one.gpu for one in self.every}.values())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems, each once."""
        return tuple(dict.fromkeys(one.problem for one in self.every))

    @property
    def num_warps(self) -> tuple[int, ...]:
        """The warps per program that were tried."""
        return tuple(sorted({one.config.num_warps for one in self.every}))

    @property
    def num_stages(self) -> tuple[int, ...]:
        """The stages that were tried."""
        return tuple(sorted({one.config.num_stages for one in self.every}))

    def of(self, gpu: Gpu) -> tuple[Record, ...]:
        """Return the records of one GPU."""
        return tuple(record for record in self.records if record.gpu.key == gpu.key)

    def at(self, gpu: Gpu, problem: Problem, num_warps: int, num_stages: int) -> Record | None:
        """Return one configuration on one GPU; None where the GPU has no such thing."""
        wanted = (problem, num_warps, num_stages)
        for record in self.of(gpu):
            config = record.config
            if (record.problem, config.num_warps, config.num_stages) == wanted:
                return record
        return None


def recorded_vendors() -> Vendors:
    """Return what was recorded with Triton and lies beside this file."""
    return make_vendors(read_rows(FILE).to_dict("records"))


def make_vendors(rows: list[dict[Any, Any]]) -> Vendors:
    """Return the configurations of *rows*, which one version of Triton compiled.

    Raises DoesNotFitError for a row that is "ok" where the GPU holds not one such program.
    """
    (version,) = {str(row["triton_version"]) for row in rows}
    return Vendors(version, tuple(_compiled(row) for row in rows))


def _compiled(row: Mapping[Any, Any]) -> CompiledRow:
    gpu, problem, config = find_gpu(str(row["gpu"])), row_problem(row), row_config(row)
    status, record = str(row["status"]), None
    if status == "ok":
        record = row_record(row, gpu)
    return CompiledRow(gpu, problem, config, status, record)


def what_was_compiled(vendors: Vendors) -> Chapter:
    """Say of what the page is made, and how to make it again."""
    statuses = Counter(one.status for one in vendors.every)
    numbers = [f"{number} {status}" for status, number in statuses.items()]
    problems = listed([problem_words(problem) for problem in vendors.problems])
    warps, stages = (listed(list(map(str, n))) for n in (vendors.num_warps, vendors.num_stages))
    words = (
        f"Triton {vendors.triton} compiled the tutorial's kernel, without a GPU, for"
        f" {listed([gpu.title for gpu in vendors.gpus])}: {problems}, num_warps {warps},"
        f" num_stages {stages}. That is {count(len(vendors.every), 'row')}: {listed(numbers)}."
        " Registers, shared memory and instructions are those of the binaries; all else is worked"
        " out from them. The first command compiles them again; the second makes this page of the"
        " rows, also after a new calibration:"
    )
    commands = Commands(("python reports/record_vendors.py", "python reports/amd_nvidia.py"))
    return Chapter("What was compiled", (words, commands))


def side_by_side(vendors: Vendors) -> Chapter:
    """Set the GPUs side by side, and the same kernel on each of them."""
    limits = tuple(_limits_row(gpu) for gpu in vendors.gpus)
    multiprocessor = ("GPU", "multiprocessor", "warps", "registers", "shared B", "B per program")
    launched = [
        _launched_row(record)
        for problem in vendors.problems
        for gpu in vendors.gpus
        if (record := tutorial_record(vendors, gpu, problem)) is not None
    ]
    headers = ("GPU", "cols", "warps", "stages", "registers", "shared B")
    return Chapter(
        "Side by side",
        (
            Table(multiprocessor, limits, "What one multiprocessor has (a warp is a wave on AMD):"),
            Table(
                (*headers, "programs", "limited by", "num_programs"),
                tuple(launched),
                f"The kernel as the tutorial would launch it there, compiled by Triton"
                f" {vendors.triton}: what a program takes, the programs that one multiprocessor"
                " holds, what allows no more, and num_programs of the launch:",
            ),
            *_other_tritons(vendors),
            *(_over_warps(vendors, stages) for stages in _ends(vendors.num_stages)),
        ),
    )


def _other_tritons(vendors: Vendors) -> Iterator[str]:
    """Say what the launched kernels of other Tritons take where other numbers of programs fit."""
    table = recorded_table()
    table = table[(table["status"] == "ok") & (table["kernel"] == TUTORIAL_KERNEL)]
    for problem, gpu in itertools.product(vendors.problems, vendors.gpus):
        own = tutorial_record(vendors, gpu, problem)
        if own is None:
            continue
        for row in table[table["target"] == gpu.target.name].to_dict("records"):
            if (row_problem(row), row_config(row)) != (problem, own.config):
                continue
            other = row_record(row, gpu)
            programs = other.occupancy.programs_per_multiprocessor
            if programs != own.occupancy.programs_per_multiprocessor:
                word = gpu.architecture.multiprocessor_word
                yield (
                    f"Another Triton gives other numbers: at {problem.cols} columns the kernel that"
                    f" Triton {other.triton_version} compiled for {gpu.target.name} has"
                    f" {other.resources.n_regs} registers, and {count(programs, 'program')} of it"
                    f" fit per {word} of {gpu.title}, not"
                    f" {own.occupancy.programs_per_multiprocessor}."
                )
            break


def _limits_row(gpu: Gpu) -> tuple[str, ...]:
    mp = gpu.architecture
    return (
        f"{gpu.title} ({gpu.target.name})",
        f"{gpu.multiprocessors} {mp.multiprocessor_word}",
        f"{mp.max_warps} x {mp.warp_size}",
        str(mp.registers),
        str(mp.shared_per_multiprocessor),
        str(mp.max_shared),
    )


def _launched_row(record: Record) -> tuple[str, ...]:
    return (
        record.gpu.title,
        str(record.problem.cols),
        str(record.config.num_warps),
        str(record.config.num_stages),
        str(record.resources.n_regs),
        str(record.resources.shared),
        str(record.occupancy.programs_per_multiprocessor),
        limiter_words(record.calculation),
        str(record.plan.num_programs),
    )


def _ends(numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((numbers[0], numbers[-1])))


def _over_warps(vendors: Vendors, num_stages: int) -> Table:
    widest = max(vendors.problems, key=lambda problem: problem.cols)
    rows = tuple(
        (gpu.title, *(_cell(vendors.at(gpu, widest, n, num_stages)) for n in vendors.num_warps))
        for gpu in vendors.gpus
    )
    return Table(
        ("GPU", *(f"num_warps {number}" for number in vendors.num_warps)),
        rows,
        f"{problem_words(widest)}, num_stages {num_stages}: registers per thread, + its 4-byte"
        " words of local memory where there are any, and **the programs that one multiprocessor"
        " holds** with what limits them:",
        prose=True,
    )


def _cell(record: Record | None) -> str:
    if record is None:
        return "-"
    held = record.occupancy.programs_per_multiprocessor
    spilled = f" + {record.resources.n_spills}" if record.resources.n_spills else ""
    limiters = limiter_words(record.calculation)
    return f"{record.resources.n_regs}{spilled}: **{held}** ({limiters})"
