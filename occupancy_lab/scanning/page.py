"""A scan: its kernels, what most of them lack, and the table of possible gains."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import some_of
from occupancy_lab.options import CAPS
from occupancy_lab.table.columns import COLUMNS as TABLE_COLUMNS
from occupancy_lab.table.columns import kinds_of
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import cell, count, limiter_list, listed, microseconds, percent

if TYPE_CHECKING:
    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.table.rows import View

TOP = 20
"""How many rows a page shows."""
MOST_REASONS = 8
"""How many reasons for missing results a page shows."""
HALF = 0.5
NEAR_REGISTERS, NEAR_SHARED = 8, 1024
"""The registers, or bytes, within which a step is near."""
LONGEST_NAME = 40
"""How many characters of a kernel's name a table shows."""
MOST_NAMES = 3
"""How many kernels are named for each reason."""
MOST_TARGETS = 3
"""How many targets' GPUs a page names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedKernel:
    """One kernel of a cache on one GPU; unknown values are None, or "" for texts.

    `occupancy_lab.table.columns` describes the fields.
    """

    kernel: str
    target: str = ""
    gpu: str = ""
    status: str = "ok"
    """ok, unreadable, not compiled, unknown target, other target or does not fit."""
    reason: str = ""
    num_warps: int | None = None
    num_stages: int | None = None
    num_ctas: int | None = None
    maxnreg: int | None = None
    waves_per_eu: int | None = None
    constexprs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Those that could be recovered."""
    arguments: str = ""
    n_regs: int | None = None
    local_bytes: int | None = None
    local_accesses: int | None = None
    static_shared: int | None = None
    shared: int | None = None
    limiter: str = ""
    programs_per_multiprocessor: int | None = None
    occupancy: float | None = None
    next_step: str = ""
    next_programs: int | None = None
    """None if nothing lets one more program in."""
    fewer_registers: int | None = None
    """None if the next step does not take registers."""
    fewer_shared: int | None = None
    gain: float | None = None
    """1 if nothing can be gained."""
    gain_by: str = ""
    bound: str = ""
    """The part of its time that takes longest by itself."""
    tensor_instructions: int | None = None
    grid: str = ""
    num_programs: int | None = None
    waves: float | None = None
    predicted_us: float | None = None
    predicted_low_us: float | None = None
    predicted_high_us: float | None = None
    busiest: str = ""
    busiest_us: float | None = None
    flops: int | None = None
    executed_instructions: int | None = None
    load_sectors: int | None = None
    store_sectors: int | None = None
    l2_bytes: int | None = None
    dram_read_bytes: int | None = None
    dram_written_bytes: int | None = None
    intensity: float | None = None
    speed_of_light_us: float | None = None
    lost_us: float | None = None
    why_not_counted: str = ""
    triton_version: str = ""
    source: str = ""
    program: str = ""
    entry: str = ""

    @property
    def constexprs_text(self) -> str:
        """The constexprs for a cell: "BLOCK_SIZE=1024, EVEN=True"."""
        return ", ".join(f"{name}={value}" for name, value in self.constexprs.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {name: getattr(self, name) for name in COLUMNS} | {
            "constexprs": dict(self.constexprs)
        }


COLUMNS = tuple(field.name for field in dataclasses.fields(ScannedKernel))
LAUNCH_COLUMNS = COLUMNS[COLUMNS.index("num_programs") : COLUMNS.index("why_not_counted")]
"""The columns that only a known launch has."""


@dataclass(frozen=True, slots=True, repr=False)
class Scan(Answer):
    """The kernels of caches, those with the largest gains first."""

    kernels: tuple[ScannedKernel, ...]
    directories: tuple[str, ...]
    gpus: Mapping[str, Gpu]
    """The GPU that was used for each target."""

    def rows(self) -> list[dict[str, Any]]:
        """Return each kernel as a dict of plain values."""
        return [one.to_dict() for one in self.kernels]

    def choose(self, view: View) -> Scan:
        """Return the scan with only the kernels of *view*; raise InputError if that is invalid.

        A condition may name constexprs as well as columns.
        """
        rows = [
            {**one.constexprs, **one.to_dict(), "constexprs": one.constexprs_text}
            for one in self.kernels
        ]
        rows = [{name: None if one == "" else one for name, one in row.items()} for row in rows]
        kinds = kinds_of(rows) | {name: TABLE_COLUMNS[name].kind for name in COLUMNS}
        kernels = tuple(self.kernels[place] for place in view.places(rows, kinds))
        return dataclasses.replace(self, kernels=kernels)

    def table(self) -> pd.DataFrame:
        """Return the rows as a table."""
        import pandas as pd

        return pd.DataFrame(self.rows(), columns=[*COLUMNS])

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the rows, for JSON."""
        return self.rows()

    def to_document(self) -> Document:
        """Return the page with the headline and the kernels with the largest gains."""
        return write_scan(self)


def write_scan(found: Scan, *, top: int = TOP, every: bool = False) -> Document:
    """Return the headline of a scan, and its first *top* kernels.

    Kernels without a gain are only shown if *every* kernel was asked for.
    """
    fine = [one for one in found.kernels if one.status == "ok"]
    rest = [one for one in found.kernels if one.status != "ok"]
    timed = [one for one in fine if one.predicted_us is not None]
    others = [one for one in fine if one.predicted_us is None]
    shown = [one for one in others if every or one.local_accesses]
    answer = (
        *_read(found, fine),
        *_spilling(fine, found.gpus),
        *_losing(timed, found.gpus),
        *_low_occupancy(others, found.gpus),
        *_nearest(others, found.gpus),
        *_without_launch(others),
    )
    sections = []
    if timed:
        sections.append(_times_section(timed, top, found.gpus))
    if shown:
        sections.append(_kernels_section(shown, top, found.gpus))
    if rest:
        sections.append(_rest_section(rest))
    return Document("Kernels in Triton's cache", answer, tuple(sections))


def _read(found: Scan, fine: Sequence[ScannedKernel]) -> Iterator[str]:
    folders = listed([literal(one) for one in found.directories])
    if not found.kernels:
        yield f"No kernel was found in {folders}."
        return
    number = len(found.kernels)
    rest = number - len(fine)
    without = f"; {rest} without results, see below" if rest else ""
    yield f"{count(number, 'kernel')} in {folders}{without}."
    numbers = Counter(one.target for one in fine).most_common()
    taken = [f"{found.gpus[target].title} ({n} for {target})" for target, n in numbers]
    if len(taken) > MOST_TARGETS + 1:
        others = sum(n for _, n in numbers[MOST_TARGETS:])
        more = f"a usual GPU for each of {len(taken) - MOST_TARGETS} other targets ({others})"
        taken = [*taken[:MOST_TARGETS], more]
    if taken:
        yield f"Results are for {listed(taken)}; --gpu chooses."


def _spilling(fine: Sequence[ScannedKernel], gpus: Mapping[str, Gpu]) -> Iterator[str]:
    if not fine:
        return
    spilling = [one for one in fine if one.local_accesses]
    idle = sum(bool(one.local_bytes) and one.local_accesses == 0 for one in fine)
    words = "**None** spills"
    if spilling:
        most = max(spilling, key=lambda one: one.local_bytes or 0)
        words = (
            f"**{len(spilling)}** spill{'s' * (len(spilling) == 1)} registers to local memory;"
            f" {_named(most, gpus)} spills most, {most.local_bytes} B per thread"
        )
    if idle:
        words += f"; {idle} more have local memory that no instruction accesses"
    yield f"{words}."


def _losing(timed: Sequence[ScannedKernel], gpus: Mapping[str, Gpu]) -> Iterator[str]:
    if not timed:
        return
    words = f"The launches of **{len(timed)}** are known, and their times predicted"
    lost = max(timed, key=lambda one: one.lost_us or 0.0)
    if not lost.lost_us:
        yield f"{words}."
        return
    yield (
        f"{words}. {_named(lost, gpus)} loses most: {microseconds(lost.lost_us)} of"
        f" {microseconds(lost.predicted_us or 0.0)} are beyond what its bytes and FLOPs allow."
    )


def _low_occupancy(fine: Sequence[ScannedKernel], gpus: Mapping[str, Gpu]) -> Iterator[str]:
    low = [one for one in fine if (one.occupancy or 0) < HALF]
    limiters = Counter(" with ".join(_limiters(one, gpus)) for one in low).most_common()
    by = f": {listed([f'{n} by {names}' for names, n in limiters])}" if low else ""
    if fine:
        yield f"{_are(len(low))} below half occupancy{by}."


def _are(number: int) -> str:
    return "**None** is" if not number else f"**{number}** {'is' if number == 1 else 'are'}"


def _limiters(one: ScannedKernel, gpus: Mapping[str, Gpu]) -> list[str]:
    return limiter_list(gpus[one.target].vendor, one.limiter)


def _register(one: ScannedKernel, gpus: Mapping[str, Gpu]) -> str:
    return gpus[one.target].architecture.register_word


def _nearest(fine: Sequence[ScannedKernel], gpus: Mapping[str, Gpu]) -> Iterator[str]:
    """Count the kernels with a near step, and name the one that fits most programs more."""
    near = [
        one
        for one in fine
        if one.next_programs
        and (one.fewer_registers or one.fewer_shared)
        and (one.fewer_registers or 0) <= NEAR_REGISTERS
        and (one.fewer_shared or 0) <= NEAR_SHARED
    ]
    if not near:
        return

    def worth(one: ScannedKernel) -> tuple[float, int]:
        ratio = (one.next_programs or 0) / (one.programs_per_multiprocessor or 1)
        return ratio, -(one.fewer_registers or 0) - (one.fewer_shared or 0)

    words = " or ".join(dict.fromkeys(f"{_register(one, gpus)}s" for one in near))
    within = f"{NEAR_REGISTERS} {words} or {NEAR_SHARED} B of fitting one more program"
    best = max(near, key=worth)
    takes = [
        count(number, word)
        for number, word in (
            (best.fewer_registers, _register(best, gpus)),
            (best.fewer_shared, "byte"),
        )
        if number
    ]
    unless = ", if a compile with as many does not spill" if best.fewer_registers else ""
    after = count(best.next_programs or 0, "program")
    yield (
        f"{_are(len(near))} within {within}: with {listed(takes)} less, {after} of"
        f" {_named(best, gpus)} fit instead of {best.programs_per_multiprocessor}{unless}."
    )


def _without_launch(others: Sequence[ScannedKernel]) -> Iterator[str]:
    if others:
        yield (
            f"The {'launch' if len(others) == 1 else 'launches'} of **{len(others)}** and so the"
            " time and what there is to gain are not known: `--grid` and `--assume` say what is"
            " launched."
        )


def _names(kernels: Sequence[ScannedKernel]) -> str:
    names = [*dict.fromkeys(_short(one.kernel) for one in kernels)]
    return literal(listed(some_of(names, MOST_NAMES)))


def _named(one: ScannedKernel, gpus: Mapping[str, Gpu]) -> str:
    registers = count(one.n_regs or 0, _register(one, gpus))
    constexprs = f", {one.constexprs_text}" if one.constexprs else ""
    return (
        f"{literal(_short(one.kernel))} ({one.target}{literal(constexprs)},"
        f" num_warps {one.num_warps}, {registers})"
    )


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _times_section(timed: Sequence[ScannedKernel], top: int, gpus: Mapping[str, Gpu]) -> Section:
    headers = ("us", "lost us", "kernel", "num_warps", "grid", "what to try: why")
    cells = []
    for one in timed:
        kernel, num_warps, *_, why = _cells(one, gpus)
        low, high = cell(one.predicted_low_us), cell(one.predicted_high_us)
        us = f"{cell(one.predicted_us)} ({low} to {high})"
        cells.append((us, cell(one.lost_us), kernel, num_warps, one.grid, why))
    rows, left = _equal_in_one(cells, headers, top)
    sentences = (
        "us is predicted with an empty L2 cache, with the 10th and 90th percentile.",
        "lost us is the time beyond what bytes and FLOPs allow.",
        *left,
    )
    return Section("How long they take", (Table(headers, rows, prose=True),), sentences)


def _kernels_section(
    kernels: Sequence[ScannedKernel], top: int, gpus: Mapping[str, Gpu]
) -> Section:
    headers = ("kernel", "num_warps", "n_regs", "occupancy", "limiter", "what to try: why")
    rows, left = _equal_in_one([_cells(one, gpus) for one in kernels], headers, top)
    sentences = []
    steps = [one.gain_by or one.next_step for one in kernels]
    asked = [cap for cap in CAPS if any(f"({cap}=" in step for step in steps)]
    if asked:
        sentences.append(f"Only a compile shows what {' or '.join(asked)} would spill.")
    return Section("Of unknown launches", (Table(headers, rows, prose=True),), (*sentences, *left))


def _equal_in_one(
    cells: Sequence[tuple[str, ...]], headers: Sequence[str], top: int
) -> tuple[tuple[tuple[str, ...], ...], list[str]]:
    """Return the first *top* rows of *cells*, merging equal ones, and a sentence on the rest."""
    kernel, groups = headers.index("kernel"), [*Counter(cells).items()]
    rows = tuple(
        (*row[:kernel], row[kernel] + (f" x{number}" if number > 1 else ""), *row[kernel + 1 :])
        for row, number in groups[:top]
    )
    left = sum(number for _, number in groups[top:])
    return rows, [f"{left} more are not shown: --top shows more rows."] if left else []


def _cells(one: ScannedKernel, gpus: Mapping[str, Gpu]) -> tuple[str, ...]:
    constexprs = f" {one.constexprs_text}" if one.constexprs else ""
    return (
        literal(f"{_short(one.kernel)} {one.target}{constexprs}"),
        str(one.num_warps),
        str(one.n_regs),
        percent(one.occupancy or 0),
        ", ".join(_limiters(one, gpus)),
        literal(one.gain_by or one.next_step),
    )


def _rest_section(rest: Sequence[ScannedKernel]) -> Section:
    reasons: dict[tuple[str, str], list[ScannedKernel]] = {}
    for one in rest:
        reasons.setdefault((one.status, one.reason), []).append(one)
    most = sorted(reasons.items(), key=lambda reason: -len(reason[1]))
    rows = tuple(
        (str(len(kernels)), status, _names(kernels), literal(why))
        for (status, why), kernels in most[:MOST_REASONS]
    )
    left = sum(len(kernels) for _, kernels in most[MOST_REASONS:])
    sentences = (f"{left} more: --where \"status != 'ok'\" --csv has all.",) if left else ()
    table = Table(("", "status", "kernels", "why"), rows, prose=True)
    return Section("Without results", (table,), sentences)
