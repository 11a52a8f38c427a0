"""A scan in words: what most of the kernels are short of, and the table of what there is to win."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from occupancy_lab.text.document import Document, Section, Table, literal
from occupancy_lab.text.words import count, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.scanning.scan import Scan, ScannedKernel

TOP = 20
"""The rows that a screen shows of a whole cache."""
HALF = 0.5


def write_scan(found: Scan, *, top: int = TOP) -> Document:
    """Return the headline of a scan, and its first *top* kernels."""
    fine = [one for one in found.kernels if one.status == "ok"]
    rest = [one for one in found.kernels if one.status != "ok"]
    answer = (*_read(found, fine), *_spilling(fine), *_occupied(fine))
    sections = []
    if fine:
        sections.append(Section("Kernels", (_table(fine[:top]),), ()))
    if rest:
        rows = Counter((one.status, one.reason) for one in rest)
        cells = tuple((str(n), status, literal(why)) for (status, why), n in rows.most_common(top))
        sections.append(
            Section("Not worked out", (Table(("", "status", "why"), cells, prose=True),))
        )
    return Document("Kernels in Triton's cache", answer, tuple(sections))


def _read(found: Scan, fine: Sequence[ScannedKernel]) -> Iterator[str]:
    if not found.kernels:
        where = listed([literal(one) for one in found.directories]) or "no cache"
        yield f"There is no kernel in {where}."
        return
    yield f"{len(fine)} of {count(len(found.kernels), 'kernel')} read."


def _spilling(fine: Sequence[ScannedKernel]) -> Iterator[str]:
    spill = sum(bool(one.local_accesses) for one in fine)
    if fine:
        yield f"{spill} of them move data to and from local memory (spills)."


def _occupied(fine: Sequence[ScannedKernel]) -> Iterator[str]:
    low = [one for one in fine if (one.occupancy or 0) < HALF]
    by = Counter(one.limiter for one in low)
    if low:
        words = listed([f"{n} by {limiter}" for limiter, n in by.most_common()])
        yield f"{len(low)} are below half occupancy: {words}."


def _table(kernels: Sequence[ScannedKernel]) -> Table:
    headers = ("gain", "kernel", "warps", "regs", "shared", "local", "%", "limiter", "next step")
    rows = tuple(
        (
            "-" if one.gain is None else f"{one.gain:.2f}",
            literal(one.kernel),
            str(one.num_warps),
            str(one.n_regs),
            str(one.shared),
            str(one.local_bytes),
            f"{100 * (one.occupancy or 0):.0f}",
            one.limiter.replace("+", ", "),
            literal(one.next_step),
        )
        for one in kernels
    )
    return Table(headers, rows, prose=True)
