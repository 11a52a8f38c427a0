"""Compares the lab's counts for recorded launches with Nsight Compute's.

`python reports/compare_work.py` prints how many launches agree within 1% and 5% in each quantity,
and each launch that does not.
"""

from __future__ import annotations

import argparse
import collections
import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recorded_work import RecordedLaunch, recorded_launches

from occupancy_lab.compiling.cubin import read_cubin
from occupancy_lab.errors import OccupancyLabError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy.calculator import Calculation, calculate
from occupancy_lab.throughput.demand import l1_hits
from occupancy_lab.throughput.l1_cache import l1_share
from occupancy_lab.values import Resources
from occupancy_lab.work.counts import SECTOR, Amount, total
from occupancy_lab.work.executed import execute
from occupancy_lab.work.gathers import gathers_of
from occupancy_lab.work.memory import local_memory, memory
from occupancy_lab.work.ttir import read_ttir
from occupancy_lab.work.walk import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from occupancy_lab.work.counts import Access, Counts
    from occupancy_lab.work.executed import Executed
    from occupancy_lab.work.memory import Memory

LEAST_WRITTEN = 5_000_000
"""If fewer bytes are written, most of them were in the L2 cache before the launch: some 2 MB."""
CAUSES = {
    ("dram_read_bytes", "_attn_bwd"): "a few of its frames, taken to stay in the cache, do not",
    (
        "dram_read_bytes",
        "chunk_gsa_bwd_kernel_dqkvg",
    ): "the cache keeps more of its spilled registers"
    " than what lies between their touches lets one expect",
    ("dram_read_bytes", "triton_per_fused_slice_sort_0"): "its own code of 200 KB is read too",
    ("dram_written_bytes", "_attn_bwd"): "as for what it reads",
    ("dram_written_bytes", "triton_per_fused_slice_sort_0"): "all stays in the cache",
    ("dram_written_bytes", "triton_poi_fused_add_2"): "all stays in the cache, which has 2.5 MB of"
    " others at the start",
}
"""Why bytes of device memory differ by more than 5%, or written bytes by more than 10%."""
WARP_GROUP = 4
"""Warps that execute one HGMMA together (PTX ISA, wgmma)."""
PRODUCT = re.compile(r"(?:HG|IG|QG)MMA\.(\d+)x(\d+)x(\d+)")


@dataclass(frozen=True, slots=True)
class Compared:
    """A number of a launch, as the lab counts it and as Nsight Compute counted it."""

    quantity: str
    launch: RecordedLaunch
    ours: Amount
    counted: float
    unknown: bool
    """Whether a value that steers the launch is not known."""

    @property
    def error(self) -> float | None:
        """The lab's error relative to the counted number, or None if the lab has no number."""
        ours = self.ours.exact
        if ours is None:
            return None
        return abs(ours - self.counted) / self.counted if self.counted else float(ours != 0)

    def within(self, share: float) -> bool:
        """Tell whether the error is known and at most *share*."""
        return self.error is not None and self.error <= share


@functools.cache
def resources_of(launch: RecordedLaunch) -> Resources:
    """Return the resources that a program of the launch takes."""
    found = read_cubin(launch.cubin, launch.texts.name)
    names = ("n_regs", "num_warps", "shared", "num_ctas")
    return Resources(**found | {name: int(launch.row[name]) for name in names})


def calculation_of(launch: RecordedLaunch) -> Calculation:
    """Return how the launch's programs fit on its GPU."""
    return calculate(resources_of(launch), find_gpu(launch.gpu))


def resident(launch: RecordedLaunch) -> int | None:
    """Return how many of its programs fit on the GPU at once."""
    return calculation_of(launch).resident_programs


@functools.cache
def counts_of(launch: RecordedLaunch) -> Counts:
    """Return the lab's counts for a launch."""
    return count(
        read_ttir(launch.ttir),
        launch.arguments,
        launch.grid,
        values=launch.values,
        resident=resident(launch),
    )


@functools.cache
def executed_of(launch: RecordedLaunch) -> Executed | None:
    """Return the lab's counts for the machine code of a launch, or None if it has none."""
    try:
        return execute(
            *(launch.texts, launch.arguments, launch.grid),
            values=launch.values,
            resident=resident(launch),
            gathers=gathers_of(counts_of(launch)),
            l1_bytes=l1_share(calculation_of(launch), launch.grid),
        )
    except OccupancyLabError:
        return None


def memory_of(launch: RecordedLaunch) -> Memory:
    """Return the bytes that the lab counts for a launch, by where they are served."""
    counts, resources, gpu = counts_of(launch), resources_of(launch), find_gpu(launch.gpu)
    given = (executed_of(launch), resources)
    local = local_memory(*given, counts.programs, resident(launch), lanes=32)
    fit = calculation_of(launch).occupancy.programs_per_multiprocessor
    return memory(counts, gpu, local, l1_hits(counts, *given, fit, gpu))


def _sectors(accesses: Iterable[Access], operation: str) -> Amount:
    return total(one.sectors for one in accesses if one.operation == operation)


def has_products(launch: RecordedLaunch) -> bool:
    """Tell whether a launch multiplies matrices, whose programs' requests the L2 cache merges."""
    executed = executed_of(launch)
    return executed is not None and "tensor_instructions" in executed.kinds


def tensor_flops(launch: RecordedLaunch) -> int | None:
    """Return the FLOPs of the tensor instructions that a sampled launch executed.

    None if it was not sampled or executed other tensor instructions than those of warp groups.
    """
    flops = 0
    for one in launch.instructions:
        if shape := PRODUCT.search(one.sass):
            m, n, k = map(int, shape.groups())
            flops += 2 * m * n * k * one.executed // WARP_GROUP
        elif re.search(r"\b(HMMA|IMMA|QMMA|DMMA)\.", one.sass):
            return None
    return flops if launch.instructions else None


def compared(launch: RecordedLaunch) -> Iterator[Compared]:
    """Yield the lab's number and the counted number of each quantity of a launch."""
    yield from _compared_code(launch)
    counts, gpu = counts_of(launch), find_gpu(launch.gpu)
    unknown = bool(counts.unknowns or counts.not_counted)
    ours = {
        f"{operation}_sectors": _sectors(counts.accesses, operation)
        for operation in ("load", "store")
    }
    found, sectors = memory_of(launch), launch.number("l2_sectors")
    if found.l2_bytes is not None and sectors is not None and not has_products(launch):
        yield Compared("l2_bytes", launch, found.l2_bytes, SECTOR * sectors, unknown)
    if int(launch.row["tensor_bytes"]) > (gpu.l2_bytes or 0):
        if found.dram_read_bytes is not None:
            ours["dram_read_bytes"] = found.dram_read_bytes
        if found.written_within_bytes is not None and (
            found.dram_written_bytes is None or found.dram_written_bytes.low >= LEAST_WRITTEN
        ):
            ours["dram_written_bytes"] = found.written_within_bytes
    for name, amount in ours.items():
        if (number := launch.number(name)) is not None:
            quantity = f"{name} of TTIR" if name.endswith("sectors") else name
            yield Compared(quantity, launch, amount, number, unknown)
    if (flops := tensor_flops(launch)) is not None:
        yield Compared("dot_flops", launch, total(counts.dot_flops.values()), flops, unknown)


def _compared_code(launch: RecordedLaunch) -> Iterator[Compared]:
    found = executed_of(launch)
    if found is None:
        if launch.executed is not None:
            yield Compared("instructions", launch, Amount(0, None), launch.executed, unknown=True)
        return
    unknown = bool(found.unknowns)
    if launch.executed is not None:
        yield Compared("instructions", launch, found.instructions, launch.executed, unknown)
    for name, amount in (
        ("load_sectors", found.load_sectors),
        ("store_sectors", found.store_sectors),
    ):
        if (number := launch.number(name)) is not None:
            yield Compared(name, launch, amount, number, unknown)


@functools.cache
def comparisons(gpu: str = "h100", every: int = 1) -> tuple[Compared, ...]:
    """Return the comparisons of a recording, for one of *every* counted launches."""
    launches = [one for one in recorded_launches(gpu) if one.is_counted or one.instructions]
    return tuple(found for one in launches[::every] for found in compared(one))


@dataclass(frozen=True, slots=True)
class Reached:
    """The accuracy of the lab's counts."""

    known: int
    """Launches in which no unknown value steers the work."""
    within_1: float
    """The share of known launches whose error is within 1%."""
    within_5: float
    unknown: int
    """The other launches."""


def reached(quantity: str, gpu: str = "h100", every: int = 1) -> Reached:
    """Return the accuracy of a quantity over one of *every* counted launches."""
    some = [one for one in comparisons(gpu, every) if one.quantity == quantity]
    known = [one for one in some if not one.unknown]
    shares = (
        sum(one.within(share) for one in known) / len(known) if known else 0.0
        for share in (0.01, 0.05)
    )
    return Reached(len(known), *shares, len(some) - len(known))


def main() -> None:
    """Print the table, and each launch whose error exceeds 1%."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="h100")
    gpu = parser.parse_args().gpu
    misses = collections.defaultdict(list)
    for one in comparisons(gpu):
        if not one.within(0.01):
            misses[one.quantity].append(one)
    print(
        "| quantity | launches | within 1 % | within 5 % | with unknowns |\n|---|--:|--:|--:|--:|"
    )
    for quantity in dict.fromkeys(one.quantity for one in comparisons(gpu)):
        now = reached(quantity, gpu)
        shares = f"{now.within_1:.0%} | {now.within_5:.0%}"
        print(f"| {quantity} | {now.known} | {shares} | {now.unknown} |")
    for quantity, some in misses.items():
        print(f"\n{quantity}: ours, counted, ours / counted, kernel, id, trial")
        for one in some:
            ours = one.ours.exact
            text = f"{one.ours.low} to {one.ours.high}" if ours is None else str(ours)
            ratio = f"{ours / one.counted:.3f}" if ours is not None and one.counted else "-"
            of_launch = f"{one.launch.kernel}, {one.launch.id}, {one.launch.trial}"
            unknown = " ?" if one.unknown else ""
            cause = CAUSES.get((quantity, one.launch.kernel), "")
            print(
                f"{text}, {one.counted:.0f}, {ratio}, {of_launch}{unknown}{cause and f': {cause}'}"
            )


if __name__ == "__main__":
    main()
