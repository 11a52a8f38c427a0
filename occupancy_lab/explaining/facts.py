"""The facts about a launch that fit a cell of a table: each with its name and its words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.limits import held_word
from occupancy_lab.explaining.work import WORDS, Fact
from occupancy_lab.gpus import Gpu
from occupancy_lab.options import KNOBS, NAMES
from occupancy_lab.prediction import PARTS
from occupancy_lab.record import Failed, Record
from occupancy_lab.text.document import literal
from occupancy_lab.text.words import (
    count,
    known,
    microseconds,
    multiprocessor_words,
    or_more,
    percent,
    prediction_words,
    resource_word,
)
from occupancy_lab.values import Measurement
from occupancy_lab.work.counts import SECTOR
from occupancy_lab.work.execution import Executed


def setting(settings: dict[str, Any], name: str) -> str:
    """Return the value of a constexpr or an option as a cell; "-" if it is not set."""
    value = settings.get(name, "-")
    return literal(repr(value) if value == "" else str(value))


def setting_words(settings: dict[str, Any], names: Iterable[str]) -> str:
    """Return the set ones of *names* with their values: "BLOCK 64, num_warps 4"."""
    known = (name for name in names if name in settings)
    return ", ".join(f"{literal(name)} {setting(settings, name)}" for name in known)


def launched_words(run: Record | Failed) -> str:
    """Return the kernel with its matrix or its grid."""
    if run.matrix is not None:
        return f"{run.kernel}, {run.matrix.problem.words}"
    grid = run.launch.grid
    return literal(run.kernel) + ("" if grid is None else f", grid {' x '.join(map(str, grid))}")


def all_launched_words(runs: Sequence[Record | Failed]) -> str:
    """Return `launched_words` if all launches of a kernel share them, else the kernel's name."""
    launched = dict.fromkeys(map(launched_words, runs))
    return next(iter(launched)) if len(launched) == 1 else literal(runs[0].kernel)


def resource_words(gpus: Iterable[Gpu], resource: str) -> str:
    """Return what the vendors of *gpus* call a resource: "registers, VGPRs"."""
    return ", ".join(dict.fromkeys(resource_word(gpu.vendor, resource) for gpu in gpus))


def launch_facts(cases: Sequence[Case]) -> tuple[Fact, ...]:
    """Return the facts that a page shows of the launches of *cases* side by side, in order."""
    gpus = [case.record.gpu for case in cases]
    names = dict.fromkeys(
        name for case in cases for name in case.record.settings if name not in NAMES
    )
    in_program = any(case.record.launch.in_program for case in cases)
    return (
        *(
            (literal(one), lambda case, name=one: setting(case.record.settings, name))
            for one in names
        ),
        ("num_warps", _warps),
        ("num_stages", lambda case: _knob(case, "num_stages")),
        ("compiler options", _options),
        ("programs", _programs),
        ("waves of programs", waves_words),
        (resource_words(gpus, "registers"), _registers),
        ("local memory", _local_memory),
        (resource_words(gpus, "shared"), _shared),
        ("loads, stores", _accesses),
        ("tensor cores", _tensor_cores),
        ("tensor memory", _tensor_memory),
        *((name, lambda case, of=words: of(case.record)) for name, words in WORDS.items()),
        (
            "L2 cache before it",
            lambda case: "filled by the same launch" if case.record.launch.warm else "-",
        ),
        ("predicted, by profiler" if in_program else "predicted, by events", _predicted),
        ("bound by", _bound),
        ("busiest unit", _busiest),
        ("measured now", lambda case: measured_words(case.record.measurement)),
        ("recorded time", recorded_words),
        ("of a plain copy's speed", copy_words),
    )


def _knob(case: Case, name: str) -> str:
    record = case.record
    if name not in {*record.options, *record.usual_options}:
        return "-"
    origin = (record.launch.chosen_by or "asked") if name in record.options else "Triton's default"
    if record.matrix is not None and name not in record.matrix.asked:
        origin = "the kernel's default"
    return f"{getattr(record, name)}, {origin}"


def _warps(case: Case) -> str:
    words, launched = _knob(case, "num_warps"), case.record.resources.num_warps
    if words == "-" or case.record.num_warps == launched:
        return words
    return f"{words}; {launched} launched, as the kernel is specialized by warp"


def _options(case: Case) -> str:
    asked, usual = case.record.options, case.record.usual_options
    names = (name for name in asked if name not in KNOBS and asked[name] != usual.get(name))
    return ", ".join(f"{name} {literal(str(asked[name]))}" for name in names) or "-"


def _programs(case: Case) -> str:
    plan = case.record.plan
    if plan is None:
        return "-"
    if plan.num_programs is None:
        return "not known"
    if plan.resident_programs == plan.num_programs:
        return f"{resident_words(case)}, GPU full"
    if plan.resident_programs is None:
        return str(plan.num_programs)
    return f"{plan.num_programs}; {plan.resident_programs} run at once"


def resident_words(case: Case) -> str:
    """Return how many programs run on the GPU at once: "8 x 132 = 1056"."""
    resident, calculation = case.calculation.resident_programs, case.calculation
    if resident is None:
        return "not known"
    if calculation.clusters is not None:
        return str(resident)
    programs = calculation.occupancy.programs_per_multiprocessor
    return f"{programs} x {case.record.gpu.multiprocessors} = {resident}"


def waves_words(case: Case) -> str:
    """Return the waves of programs and the tail; "-" if not known, or for exactly one wave."""
    plan = case.record.plan
    if plan is None or plan.waves is None or plan.num_programs == plan.resident_programs:
        return "-"
    resident = plan.resident_programs or 1
    whole, rest = divmod(plan.num_programs or 0, resident)
    if not whole:
        return f"{plan.waves:.2f}: all {plan.num_programs} run at once, {percent(plan.waves)} full"
    if not rest:
        return f"{whole}, each full"
    return f"{plan.waves:.2f}: {whole} full, then a tail of {percent(rest / resident)}"


def _registers(case: Case) -> str:
    resources = case.record.resources
    parts = f", {resources.agprs} of them AGPRs" if resources.agprs else ""
    words = f"{resources.n_regs} per thread{parts} (Triton {case.record.triton_version})"
    fullest = None if case.record.executed is None else case.record.executed.fullest
    if fullest is None:
        return words
    return f"{words}, {fullest.live} live at line {fullest.place.outermost.line}"


def _local_memory(case: Case) -> str:
    found = case.record.resources.local_bytes
    return "-" if found is None else f"{found} B per thread"


def _shared(case: Case) -> str:
    resources = case.record.resources
    static = f" and {resources.static_shared} B static" if resources.static_shared else ""
    pipeline = ""
    if resources.pipeline_shared:
        pipeline = f", {resources.pipeline_shared} B of it for prefetched data"
    return f"{resources.shared} B{static} per {held_word(case.calculation)}{pipeline}"


def _accesses(case: Case) -> str:
    resources, counts, executed = case.record.resources, case.record.counts, case.record.executed
    widths, how = (resources.load_bytes, resources.store_bytes), " at most"
    if resources.instructions is None and None in widths:
        return "-"
    done = () if counts is None else counts.accesses
    copied = [one for one in done if one.operation.startswith("descriptor")]
    copies = any(one.reads for one in copied), any(one.writes for one in copied)
    if executed is not None:
        each = [
            {} if copy and width is None else _bytes_by_width(executed, operations)
            for operations, width, copy in zip((LOADING, STORING), widths, copies, strict=True)
        ]
        loads, stores = (max(one, key=lambda width: one[width], default=None) for one in each)
        widths = loads, stores
        how = " for most bytes" if max(map(len, each)) > 1 else ""
    words = [
        f"{width} B" if width is not None else "by TMA" if copy else "none"
        for width, copy in zip(widths, copies, strict=True)
    ]
    if widths == (None, None):
        return "both by TMA" if all(copies) else f"{', '.join(words)} by a thread"
    return f"{', '.join(words)} a thread{how}"


LOADING, STORING = ("load", "copy"), ("store", "atomic")
"""The operations on global memory in each of the two numbers of a row."""


def _bytes_by_width(executed: Executed, operations: Sequence[str]) -> dict[int, float]:
    """Return the bytes that threads move by *operations*, by how many a thread moves at once.

    What several threads of a warp load from the same address counts once.
    """
    found: dict[int, float] = {}
    for one in executed.accesses:
        if one.operation in operations:
            moved = min(one.threads.typical * one.thread_bytes, one.sectors.typical * SECTOR)
            found[one.thread_bytes] = found.get(one.thread_bytes, 0.0) + moved
    return found


def _tensor_cores(case: Case) -> str:
    number = case.record.resources.tensor_instructions
    if not number:
        return "-"
    once = case.record.resources.loop_instructions is None
    return f"{count(number, 'instruction')} per warp{'' if once else ' and pass of a loop'}"


def _tensor_memory(case: Case) -> str:
    columns = case.record.resources.tensor_memory
    return f"{columns} columns per {held_word(case.calculation)}" if columns else "-"


def _predicted(case: Case) -> str:
    prediction = case.record.prediction
    return "-" if prediction is None else prediction_words(prediction)


def predicted(record: Record) -> str:
    """Return the predicted time and its range, or else the speed of light; "-" for neither."""
    prediction, light = record.prediction, record.speed_of_light
    if prediction is not None:
        return prediction_words(prediction)
    return "-" if light is None or light.us is None else or_more(light.us) or "-"


def _bound(case: Case) -> str:
    time = case.record.prediction
    if time is None:
        return "-"
    return f"{PARTS[time.bound]}, {microseconds(time.part(time.bound).us)}"


def _busiest(case: Case) -> str:
    time = case.record.prediction
    if time is None or time.busiest is None:
        return "-"
    share = percent(time.busiest.us / time.us)
    return f"{PARTS[time.busiest.name]}, {share} of the time at its peak"


def measured_words(measurement: Measurement | None) -> str:
    """Return a time that was measured now, or why there is none; "-" if nothing was measured."""
    if measurement is None:
        return "-"
    return measurement.status if measurement.us is None else microseconds(measurement.us)


def time_words(case: Case, measurement: Measurement | None) -> str:
    """Return a measured time and its bandwidth, "12.4 us, 2065 GB/s"; "-" for none."""
    if measurement is None or measurement.us is None:
        return "-"
    gbs = measurement.gbs(case.record.traffic)
    return microseconds(measurement.us) + ("" if gbs is None else f", {gbs:.0f} GB/s")


def recorded_words(case: Case) -> str:
    """Return the recorded time, and its Triton if that is another version; "-" for none."""
    found = case.recorded.launch
    words = time_words(case, found)
    if found is None or found.conditions is None or words == "-":
        return words
    triton = found.conditions.triton
    return words if triton == case.record.triton_version else f"{words} (Triton {triton})"


def copy_words(case: Case) -> str:
    """Return the speed as a share of a plain copy's: "60%, both predicted (8.86 us)".

    Both times are recorded ones if both were recorded, else predicted. The time shown is the
    copy's.
    """
    prediction, recorded = case.record.prediction, case.recorded
    copy, share = recorded.copy, recorded.share_of_copy
    if share is not None and copy is not None and copy.us is not None:
        return f"{share:.0%}, both recorded ({microseconds(copy.us)})"
    if prediction is None or prediction.share_of_copy is None:
        return "-"
    us = prediction.us * prediction.share_of_copy
    return f"{prediction.share_of_copy:.0%}, both predicted ({microseconds(us)})"


SHORT_HEADERS = ("registers", "local B", "shared B", "programs")
"""The headers of `numbers` in a table with several GPUs."""


def number_headers(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Return the headers of `numbers` in the terms of the GPUs' vendors."""
    return (
        resource_words(gpus, "registers"),
        "local B",
        f"{resource_words(gpus, 'shared').replace(' memory', '')} B",
        f"programs per {multiprocessor_words(gpus)}",
    )


def numbers(record: Record) -> tuple[str, ...]:
    """Return the cells of a launch under `number_headers`."""
    resources, occupancy = record.resources, record.occupancy
    programs = str(occupancy.programs_per_multiprocessor)
    if record.calculation.clusters is not None:
        programs = count(occupancy.programs_per_multiprocessor, "CTA")
    return (
        str(resources.n_regs),
        known(resources.local_bytes),
        str(resources.shared + resources.static_shared),
        f"{programs} ({percent(occupancy.occupancy)})",
    )
