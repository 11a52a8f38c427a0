"""The explanation of a launch of any kernel: what its binary shows, and what was tried besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from occupancy_lab.explaining.limits import (
    held_in_short,
    step_sentences,
    the_limits,
    the_next_step,
)
from occupancy_lab.text.document import Document, Section, Table, literal
from occupancy_lab.text.words import compared, count, known, listed, percent, said_of_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.explaining.neighbours import Neighbour, Tried
    from occupancy_lab.record import LaunchRecord

KNOBS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu")


def launch_title(records: tuple[LaunchRecord, ...]) -> str:
    """Return what is explained: the kernel, its grid and the GPUs."""
    first = records[0]
    grid = "" if first.launch.grid is None else f", {grid_words(first.launch.grid)}"
    return f"{literal(first.kernel)}{grid}, on {listed([one.title for one in records])}"


def grid_words(grid: tuple[int, ...]) -> str:
    """Return a grid in words: "grid 4096", "grid 32 x 32"."""
    return f"grid {' x '.join(map(str, grid))}"


def write_launch(tried: tuple[Tried, ...], *, full: bool = False) -> Document:
    """Return the explanation of one launch on one or several GPUs, *full* with the arithmetic."""
    records = tuple(one.record for one in tried)
    calculations = tuple(record.calculation for record in records)
    limits: tuple[Section, ...] = (the_limits(calculations),)
    if full:
        limits = (*limits, the_next_step(calculations))
    return Document(
        launch_title(records),
        tuple(f"{held_in_short(one)}." for one in calculations),
        (
            Section("", (_launch_table(records),), _grid_sentences(records)),
            *limits,
            _what_to_try(tried),
        ),
    )


def _constexprs(record: LaunchRecord) -> dict[str, Any]:
    return {
        name: value
        for name, value in record.arguments.items()
        if name in record.constexprs and name not in KNOBS
    }


def _launch_table(records: tuple[LaunchRecord, ...]) -> Table:
    rows = [
        (literal(name), *(literal(str(_constexprs(record)[name])) for record in records))
        for name in _constexprs(records[0])
    ]
    rows += compared(
        records,
        (
            ("num_warps", _warps),
            ("num_stages", lambda record: _knob(record, "num_stages")),
            ("compiler options", _options),
            ("programs", lambda record: known(record.launch.num_programs)),
            ("waves of programs", _waves),
            ("registers per thread", _registers),
            ("spilled", _spills),
            ("shared memory", _shared),
            ("global loads, stores", _accesses),
            ("tensor cores", _tensor_cores),
        ),
    )
    shown = tuple(row for row in rows if any(cell != "-" for cell in row[1:]))
    return Table(("the launch", *(record.title for record in records)), shown, prose=True)


def _knob(record: LaunchRecord, name: str) -> str:
    if name in record.options:
        return f"{record.options[name]}, asked"
    usual = record.usual_options.get(name)
    return "-" if usual is None else f"{usual}, Triton's default"


def _warps(record: LaunchRecord) -> str:
    asked = record.options.get("num_warps", record.usual_options.get("num_warps"))
    launched = record.calculation.resources.num_warps
    words = _knob(record, "num_warps")
    if asked is None or asked == launched:
        return words
    return f"{words}; {launched} launched, as the kernel is specialized by warp"


def _options(record: LaunchRecord) -> str:
    others = {name: value for name, value in record.options.items() if name not in KNOBS[:2]}
    return ", ".join(f"{name} {literal(str(value))}" for name, value in others.items()) or "-"


def _waves(record: LaunchRecord) -> str:
    plan = record.plan
    if plan is None or plan.waves is None:
        return "-"
    whole, rest = divmod(plan.num_programs or 0, plan.resident_programs or 1)
    if not whole:
        return f"{plan.waves:.2f}: all {plan.num_programs} run at once, {percent(plan.waves)} full"
    if not rest:
        return f"{whole}, each full"
    tail = percent(rest / (plan.resident_programs or 1))
    return f"{plan.waves:.2f}: {whole} full, then a tail of {tail}"


def _registers(record: LaunchRecord) -> str:
    resources = record.calculation.resources
    parts = f", {resources.agprs} of them AGPRs" if resources.agprs else ""
    return f"{resources.n_regs}{parts} (Triton {record.triton_version})"


def _spills(record: LaunchRecord) -> str:
    found = record.calculation.resources.local_bytes
    return f"{found} B of local memory per thread" if found else "-"


def _shared(record: LaunchRecord) -> str:
    resources = record.calculation.resources
    static = f" and {resources.static_shared} B static" if resources.static_shared else ""
    pipeline = ""
    if resources.pipeline_shared:
        pipeline = f", {resources.pipeline_shared} B of it for data under way"
    return f"{resources.shared} B{static} per program{pipeline}"


def _accesses(record: LaunchRecord) -> str:
    resources = record.calculation.resources
    widest = (resources.load_bytes, resources.store_bytes)
    return ", ".join("none" if width is None else f"{width} B" for width in widest) + " at most"


def _tensor_cores(record: LaunchRecord) -> str:
    number = record.calculation.resources.tensor_instructions
    return count(number, "instruction") + " per pass" if number else "-"


def _grid_sentences(records: tuple[LaunchRecord, ...]) -> tuple[str, ...]:
    def sentences(record: LaunchRecord) -> Iterator[str]:
        word = record.calculation.architecture.multiprocessor_word
        plan = record.plan
        if plan is None:
            yield "How many programs are launched is not known: give the grid."
        elif plan.resident_programs is not None:
            yield (
                f"The GPU holds {plan.resident_programs} programs at once: waves of programs are"
                f" the programs launched over these, and the tail is the last, partly filled wave."
            )
        else:
            yield f"How many {word}s the GPU has is not known, and so are the waves of programs."
        yield "No time is predicted: how many bytes the launch moves is not known."

    return said_of_each(records, sentences)


def _what_to_try(tried: tuple[Tried, ...]) -> Section:
    return Section(
        "What to try",
        tuple(_neighbours_table(one) for one in tried if one.neighbours),
        said_of_each(tried, _advice),
    )


HEADERS = ("", "registers", "spilled B", "shared B", "programs", "occupancy")


def _neighbours_table(tried: Tried) -> Table:
    record = tried.record
    rows = [("as launched", *_numbers(record))]
    for one in tried.neighbours:
        if one.record is None:
            rows.append((one.words, *["-"] * (len(HEADERS) - 2), one.status))
        else:
            rows.append((one.words, *_numbers(one.record)))
    word = record.calculation.architecture.multiprocessor_word
    headers = tuple(f"{name} per {word}" if name == "programs" else name for name in HEADERS)
    return Table(headers, tuple(rows), f"**{record.title}**")


def _numbers(record: LaunchRecord) -> tuple[str, ...]:
    resources, held = record.calculation.resources, record.calculation.occupancy
    return (
        str(resources.n_regs),
        known(resources.local_bytes),
        str(resources.shared + resources.static_shared),
        str(held.programs_per_multiprocessor),
        percent(held.occupancy),
    )


def _advice(tried: Tried) -> Iterator[str]:
    yield from step_sentences(tried.record.calculation)
    for one in tried.neighbours:
        if one.reason:
            yield one.reason
    best = tried.best
    if best is not None:
        yield _better(tried.record, best)
    elif tried.neighbours:
        yield "None of these spills less, or keeps more warps resident without spilling more."


def _better(record: LaunchRecord, best: Neighbour) -> str:
    if best.record is None:
        return ""
    own, other = record.calculation, best.record.calculation
    spills, fewer = own.resources.local_bytes or 0, other.resources.local_bytes or 0
    gains = []
    if fewer < spills:
        gains.append(f"{fewer} B spilled instead of {spills}")
    if other.occupancy.occupancy > own.occupancy.occupancy:
        gains.append(
            f"an occupancy of {percent(other.occupancy.occupancy)} instead of"
            f" {percent(own.occupancy.occupancy)}"
        )
    return (
        f"{best.words} has {listed(gains)}; whether it is faster, a measurement says: more warps"
        " help where loads are waited for, and cost registers."
    )
