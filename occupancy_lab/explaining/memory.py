"""Memory traffic, and the least time that the bandwidth allows for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.kernel import load_kernel
from occupancy_lab.occupancy.planning import traffic
from occupancy_lab.text.document import Section, Table
from occupancy_lab.text.words import said_of_each
from occupancy_lab.values import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.values import Traffic

FEW_BYTES = 1_000_000


def megabytes(number: int) -> str:
    """Return bytes as "25.6 MB", of 1e6 bytes; few bytes as they are."""
    return f"{number} B" if number < FEW_BYTES else f"{number / 1e6:.1f} MB"


def _baseline(case: Case) -> tuple[str, Traffic] | None:
    name = case.record.kernel.compared_with
    if name is None:
        return None
    kernel = load_kernel(name)
    return kernel.name, traffic(kernel.memory_steps(case.record.problem), case.record.problem)


def _traffic_table(case: Case) -> Table:
    record = case.record
    moved = {record.kernel.name: record.traffic}
    baseline = _baseline(case)
    if baseline is not None:
        moved[baseline[0]] = baseline[1]
    rows = tuple(
        (
            name,
            megabytes(bytes_.read_bytes),
            megabytes(bytes_.written_bytes),
            megabytes(bytes_.total_bytes),
        )
        for name, bytes_ in moved.items()
    )
    return Table(("", "read", "written", "in all"), rows)


def _traffic_sentences(case: Case) -> Iterator[str]:
    baseline = _baseline(case)
    if baseline is None:
        return
    name, moved = baseline
    problem = case.record.problem
    kernel = load_kernel(name)
    passes = len(kernel.memory_steps(problem))
    reads, writes = _polynomials(kernel)
    ratio = moved.total_bytes / case.record.traffic.total_bytes
    yield (
        f"{name} makes {passes} passes over the matrix of M rows and N columns: {reads} elements"
        f" read and {writes} written, {ratio:.1f} times the traffic of one fused read and write."
    )


def _polynomials(kernel: Kernel) -> tuple[str, str]:
    """Return a kernel's reads and writes as "5MN + 2M"."""
    cols = 1000
    row = Problem(1, cols)
    steps = kernel.memory_steps(row)
    reads, writes = sum(step.reads for step in steps), sum(step.writes for step in steps)
    return _polynomial(reads, cols), _polynomial(writes, cols)


def _polynomial(elements: int, cols: int) -> str:
    matrices, columns = divmod(elements, cols)
    return f"{matrices}MN + {columns}M" if columns else f"{matrices}MN"


def _floor_table(cases: tuple[Case, ...]) -> Table:
    rows = []
    for case in cases:
        gpu = case.record.gpu
        floor = case.record.traffic.floor_us(gpu.bandwidth_gbs)
        bandwidth = "not known" if gpu.bandwidth_gbs is None else f"{gpu.bandwidth_gbs:g} GB/s"
        l2 = "not known" if gpu.l2_bytes is None else f"{gpu.l2_bytes / 2**20:g} MiB"
        floor_words = "not known" if floor is None else f"{floor:.2f} us"
        rows.append((case.title, bandwidth, l2, floor_words))
    return Table(("", "peak bandwidth", "L2", "floor time"), tuple(rows))


def _floor_sentences(case: Case) -> Iterator[str]:
    gpu, moved = case.record.gpu, case.record.traffic
    floor = moved.floor_us(gpu.bandwidth_gbs)
    if floor is None:
        return
    doubt = ", and in doubt" if "bandwidth_gbs" in gpu.doubtful else ""
    moved_words = megabytes(moved.total_bytes)
    yield (
        f"{moved_words} at {gpu.bandwidth_gbs:g} GB/s take at least {floor:.2f} us."
        f" That bandwidth is the vendor's peak, not a measurement{doubt}."
    )
    name, cache_bytes = _last_cache(gpu)
    if cache_bytes is not None and moved.written_bytes <= cache_bytes:
        yield (
            f"The output, {megabytes(moved.written_bytes)}, fits in the {cache_bytes / 2**20:g} MiB"
            f" {name} and may stay there, so a measured GB/s can pass what the DRAM gives."
        )


def _last_cache(gpu: Gpu) -> tuple[str, int | None]:
    """Return the name and the bytes of the cache in front of the DRAM."""
    if gpu.infinity_cache_bytes is not None:
        return "Infinity Cache", gpu.infinity_cache_bytes
    return "L2", gpu.l2_bytes


def the_memory(cases: tuple[Case, ...]) -> Section:
    """Explain the bytes that have to move, against the naive softmax, and the time they take."""
    sentences = (
        *said_of_each(cases[:1], _traffic_sentences),
        *said_of_each(cases, _floor_sentences),
    )
    return Section("Memory", (_traffic_table(cases[0]), _floor_table(cases)), sentences)
