"""The explanation of a launch of any kernel: what its binary shows, and what was tried besides."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from occupancy_lab.explaining.limits import held_in_short, the_limits, the_next_step
from occupancy_lab.explaining.neighbours import first_of, have_times, predicted_us, rank
from occupancy_lab.explaining.short import BOUNDS, limits_with_bars
from occupancy_lab.occupancy.calculator import limiter_words
from occupancy_lab.options import KNOBS, NAMES
from occupancy_lab.record import Failed, Record
from occupancy_lab.text.document import Document, Section, Table, literal
from occupancy_lab.text.words import (
    basis_sentence,
    cell,
    change,
    compared,
    count,
    error_words,
    known,
    listed,
    microseconds,
    percent,
    prediction_words,
    resource_word,
    said_of_each,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from occupancy_lab.explaining.neighbours import Neighbour, Tried
    from occupancy_lab.gpus import Gpu

MOST_REASONS = 3
"""Reasons why configurations have no record that a page has."""


def launch_title(records: tuple[Record, ...]) -> str:
    """Return what is explained: the kernel, its grid and the GPUs."""
    first = records[0]
    grid = "" if first.launch.grid is None else f", {grid_words(first.launch.grid)}"
    return f"{literal(first.kernel)}{grid}, on {listed([one.title for one in records])}"


def grid_words(grid: tuple[int, ...]) -> str:
    """Return a grid in words: "grid 4096", "grid 32 x 32"."""
    return f"grid {' x '.join(map(str, grid))}"


def write_launch(
    tried: tuple[Tried, ...], failures: Sequence[Failed] = (), *, full: bool = False
) -> Document:
    """Return the explanation of one launch on one or several GPUs, *full* with the arithmetic.

    *failures* are the GPUs on which it has no record.
    """
    records = tuple(one.record for one in tried)
    calculations = tuple(record.calculation for record in records)
    limits: tuple[Section, ...] = (limits_with_bars(calculations),)
    if full:
        limits = (the_limits(calculations), the_next_step(calculations))
    return Document(
        launch_title(records),
        (
            *(f"{held_in_short(one)}." for one in calculations),
            *(f"**{one.gpu.title}**: {literal(one.failure.reason)}." for one in failures),
        ),
        (
            Section("", (_launch_table(records),), said_of_each(records, _sentences)),
            *limits,
            _what_to_try(tried),
        ),
    )


def write_variants(runs: Sequence[Record | Failed], *, full: bool = False) -> Document:
    """Return the configurations of one launch line on one or several GPUs as one table.

    With *full* each limit of the first of them, as `first_of` chooses it, follows.
    """
    records = [run for run in runs if isinstance(run, Record)]
    knobs = varying([settings_of(run) for run in runs])
    several = len({run.gpu.key for run in runs}) > 1
    timed = any(record.least_us is not None for record in records)
    rows = tuple(
        (
            *((run.gpu.key,) if several else ()),
            ", ".join(setting(settings_of(run), knob) for knob in knobs),
            *_outcome(run, timed=timed),
        )
        for run in runs
    )
    headers = (
        *(("GPU",) if several else ()),
        literal(", ".join(knobs)),  # a column each is more than a terminal has room for
        *(SHORT_HEADERS if several else number_headers([runs[0].gpu])),
        *(("time",) if timed else ()),
        "limited by",
    )
    keys = dict.fromkeys(record.gpu.key for record in records)
    of_each = [[one for one in records if one.gpu.key == key] for key in keys]
    chosen = tuple(map(first_of, of_each))
    sentences = [first_sentence(found, knobs) for found in of_each]
    sentences += said_of_each(chosen, lambda record: (time_sentence(record),)) if timed else ()
    sections = [Section("", (Table(headers, rows),), (*sentences, *_reasons(runs)))]
    if full and chosen:
        sections.append(the_limits(tuple(record.calculation for record in chosen)))
    grids = dict.fromkeys(run.launch.grid for run in runs)
    grid = next(iter(grids)) if len(grids) == 1 else None
    titles = listed(list(dict.fromkeys(run.gpu.title for run in runs)))
    words = dict.fromkeys(run.gpu.architecture.multiprocessor_word for run in runs)
    multiprocessors = " or ".join(words)
    return Document(
        f"{literal(runs[0].kernel)}{'' if grid is None else f', {grid_words(grid)}'}, on {titles}",
        (
            f"{len(records)} of {len(runs)} configurations compile and fit.",
            f"Programs are per {multiprocessors}, with the occupancy beside them.",
        ),
        tuple(sections),
    )


def _reasons(runs: Sequence[Record | Failed]) -> Iterator[str]:
    """Say why configurations have no record, those with one reason together."""
    reasons = Counter(
        (run.failure.status, run.failure.reason) for run in runs if isinstance(run, Failed)
    )
    for (status, reason), number in reasons.most_common(MOST_REASONS):
        yield f"{count(number, 'configuration')}, {status}: {literal(reason)}."
    if len(reasons) > MOST_REASONS:
        yield f"{count(len(reasons) - MOST_REASONS, 'further reason')} in `--json`."


def varying(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names whose values differ between *settings*, in the order of their appearance."""
    names = dict.fromkeys(name for setting in settings for name in setting)
    return [name for name in names if len({repr(one.get(name)) for one in settings}) > 1]


def _outcome(run: Record | Failed, *, timed: bool) -> tuple[str, ...]:
    if isinstance(run, Failed):
        return (*["-"] * (NUMBERS + timed), run.failure.status)
    return (*numbers(run), *((_time(run),) if timed else ()), limiter_words(run.calculation))


def first_sentence(records: Sequence[Record], knobs: Sequence[str]) -> str:
    """Say which of *records*, all of one GPU, `first_of` chooses, and how many are not behind it.

    It has the values of *knobs*.
    """
    first = first_of(records)
    settings = settings_of(first)
    words = ", ".join(
        f"{literal(name)} {setting(settings, name)}" for name in knobs if name in settings
    )
    if have_times(records):
        return f"**{first.title}**: {words or 'the launch'} {_takes_least(first, records)}."
    resources, occupancy = first.calculation.resources, first.calculation.occupancy
    alike = sum(rank(one) == rank(first) for one in records) - 1
    others = f", and {count(alike, 'other')} as many" if alike else ""
    local = f"{known(resources.local_bytes)} B of" if resources.local_bytes != 0 else "no"
    return (
        f"**{first.title}**: of those with least local memory, {words or 'the first'} keeps most"
        f" {first.calculation.architecture.warp_word}s resident{others}:"
        f" {percent(occupancy.occupancy)}, with {local} local memory; that alone does not make it"
        " the fastest."
    )


def _takes_least(first: Record, records: Sequence[Record]) -> str:
    least = first.prediction
    if least is None:
        return ""
    close = [
        one
        for one in records
        if one is not first
        and one.prediction is not None
        and one.prediction.us / least.us - 1 < least.noticeable
    ]
    others = ""
    if close:
        are = "is" if len(close) == 1 else "are"
        others = f"; {count(len(close), 'other')} {are} within {least.noticeable:.0%} of that"
    return f"is predicted to take least, {microseconds(least.us)}{error_words(least.error)}{others}"


def setting(settings: Mapping[str, Any], name: str) -> str:
    """Return the value of a constexpr or an option as a cell; "-" where there is none."""
    value = settings.get(name, "-")
    return literal(repr(value) if value == "" else str(value))


def settings_of(run: Record | Failed) -> dict[str, Any]:
    """Return the constexprs and the options of a launch by their names."""
    constexprs = {name: run.arguments[name] for name in run.arguments if name in run.constexprs}
    return {**constexprs, **run.options}


def _constexprs(run: Record | Failed) -> dict[str, Any]:
    """Return the constexprs that are no compiler options too."""
    return {
        name: value
        for name, value in run.arguments.items()
        if name in run.constexprs and name not in NAMES
    }


def _launch_table(records: tuple[Record, ...]) -> Table:
    shown = tuple(
        row
        for row in launch_rows(records)
        if row[0] != "occupancy" and any(cell != "-" for cell in row[1:])
    )
    return Table(("the launch", *(record.title for record in records)), shown, prose=True)


def launch_rows(records: Sequence[Record]) -> tuple[tuple[str, ...], ...]:
    """Return the rows of a table with a column per record; "-" where one has nothing to say."""
    gpus = [record.gpu for record in records]
    names = dict.fromkeys(name for record in records for name in _constexprs(record))
    settings = tuple(
        (
            literal(name),
            *(setting(_constexprs(record), name) for record in records),
        )
        for name in names
    )
    return settings + compared(
        tuple(records),
        (
            ("num_warps", _warps),
            ("num_stages", lambda record: _knob(record, "num_stages")),
            ("compiler options", _options),
            ("programs", _programs),
            ("waves of programs", _waves),
            (f"{resource_words(gpus, 'registers')} per thread", _registers),
            ("local memory", _local_memory),
            (resource_words(gpus, "shared"), _shared),
            ("loads, stores of a thread", _accesses),
            ("tensor cores", _tensor_cores),
            ("tensor memory", _tensor_memory),
            ("occupancy", _occupancy),
            ("predicted time", _time),
            ("bound by", _bound),
        ),
    )


def resource_words(gpus: Iterable[Gpu], resource: str) -> str:
    """Return what the vendors of *gpus* call a resource: "registers, VGPRs"."""
    return ", ".join(dict.fromkeys(resource_word(gpu.vendor, resource) for gpu in gpus))


def _occupancy(record: Record) -> str:
    fits = record.calculation.occupancy
    word = record.calculation.architecture.multiprocessor_word
    programs = count(fits.programs_per_multiprocessor, "program")
    return f"{percent(fits.occupancy)}, {programs} per {word}"


def _knob(record: Record, name: str) -> str:
    if name in record.options:
        return f"{record.options[name]}, asked"
    usual = record.usual_options.get(name)
    return "-" if usual is None else f"{usual}, Triton's default"


def _warps(record: Record) -> str:
    asked = record.options.get("num_warps", record.usual_options.get("num_warps"))
    launched = record.calculation.resources.num_warps
    words = _knob(record, "num_warps")
    if asked is None or asked == launched:
        return words
    return f"{words}; {launched} launched, as the kernel is specialized by warp"


def _options(record: Record) -> str:
    others = {name: value for name, value in record.options.items() if name not in KNOBS}
    return ", ".join(f"{name} {literal(str(value))}" for name, value in others.items()) or "-"


def _programs(record: Record) -> str:
    plan = record.plan
    if plan is None:
        return "-"
    resident = plan.resident_programs
    return f"{plan.num_programs}" + ("" if resident is None else f"; {resident} run at once")


def _waves(record: Record) -> str:
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


def _registers(record: Record) -> str:
    resources = record.calculation.resources
    parts = f", {resources.agprs} of them AGPRs" if resources.agprs else ""
    return f"{resources.n_regs}{parts} (Triton {record.triton_version})"


def _local_memory(record: Record) -> str:
    found = record.calculation.resources.local_bytes
    return "-" if found is None else f"{found} B per thread" if found else "none"


def _shared(record: Record) -> str:
    resources = record.calculation.resources
    static = f" and {resources.static_shared} B static" if resources.static_shared else ""
    pipeline = ""
    if resources.pipeline_shared:
        pipeline = f", {resources.pipeline_shared} B of it for data under way"
    return f"{resources.shared} B{static} per program{pipeline}"


def _accesses(record: Record) -> str:
    resources = record.calculation.resources
    widest = (resources.load_bytes, resources.store_bytes)
    if resources.instructions is None and None in widest:
        return "-"
    return ", ".join("none" if width is None else f"{width} B at most" for width in widest)


def _tensor_cores(record: Record) -> str:
    number = record.calculation.resources.tensor_instructions
    if not number:
        return "-"
    once = record.calculation.resources.loop_instructions is None
    return f"{count(number, 'instruction')} per warp{'' if once else ' and pass of a loop'}"


def _tensor_memory(record: Record) -> str:
    columns = record.calculation.resources.tensor_memory
    return f"{columns} columns per program" if columns else "-"


def _sentences(record: Record) -> Iterator[str]:
    plan = record.plan
    if plan is None:
        yield "How many programs are launched is not known: no grid is given."
    elif plan.resident_programs is not None:
        yield (
            "Waves of programs are the programs launched over those that run at once; the tail is"
            " the last wave, where it is not full."
        )
    found = record.calculation.clusters
    if found is not None:
        whole = "; ".join(found.steps) or found.source
        yield f"A program is a cluster of {found.num_ctas} CTAs, and only whole ones fit: {whole}."
    yield time_sentence(record)


def _time(record: Record) -> str:
    prediction, least = record.prediction, record.least_us
    if prediction is not None:
        return prediction_words(prediction)
    return "-" if least is None else f"{microseconds(least)} or more"


def _bound(record: Record) -> str:
    prediction = record.prediction
    if prediction is None:
        return "-"
    words = BOUNDS[prediction.bound].format(work="program")
    return f"{words}, {microseconds(prediction.part(prediction.bound).us)}"


def time_sentence(record: Record) -> str:
    """Return what the predicted time rests on, or what is missing for one."""
    if record.prediction is not None:
        found = record.prediction
        return basis_sentence(
            record.gpu, found.basis, calibrated=found.calibrated, error=found.error
        )
    why = why_no_time(record)
    if record.least_us is not None:
        gbs = record.gpu.bandwidth_gbs
        why += f"; the least possible is that of the bytes at the {gbs:.0f} GB/s of the data sheet"
    elif record.launch.work.known_bytes is None and _not_modelled(record):
        why += "; `--bytes-read` and `--bytes-written` give the least possible"
    return f"{why}."


def why_no_time(record: Record) -> str:
    """Say that a launch has no predicted time, and what would give it one, if anything would."""
    launch = record.launch
    if why := _not_modelled(record):
        return f"No time is predicted, as {why}"
    if record.launch.work.known_bytes is None:
        return (
            "No time is predicted: a binary does not say how many bytes it moves; `--bytes-read`"
            " and `--bytes-written` do"
        )
    if not record.launch.work.known_bytes:
        return "No time is predicted: a launch that moves no bytes is not modelled"
    if record.least_us is None:
        return "No time is predicted: the GPU's bandwidth is not known"
    missing = (
        (launch.work.read_bytes is None, "`--bytes-read` is not given"),
        (launch.work.written_bytes is None, "`--bytes-written` is not given"),
        (record.plan is None, "no grid is given"),
    )
    why = next(
        (why for missed, why in missing if missed),
        "the GPU's size, its clock or the binary's instructions are not known",
    )
    return f"No time is predicted, as {why}"


def _not_modelled(record: Record) -> str:
    """Return why no option would give the launch a predicted time; "" where one may."""
    resources = record.calculation.resources
    if resources.tensor_instructions:
        return "what its tensor cores take is not modelled"
    if resources.num_ctas > 1:
        return "clusters are not modelled"
    return "" if resources.loop_instructions is None else "what its loop takes is not modelled"


def _what_to_try(tried: tuple[Tried, ...]) -> Section:
    return Section(
        "What to try",
        tuple(_neighbours_table(one, title=len(tried) > 1) for one in tried if one.neighbours),
        said_of_each(tried, _advice),
    )


NUMBERS = 4
"""What `numbers` has of a launch."""
SHORT_HEADERS = ("registers", "local B", "shared B", "programs")
"""The headers of `numbers` where a table has several GPUs."""


def number_headers(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Return the headers of `numbers` in the words of the GPUs' vendors."""
    words = dict.fromkeys(gpu.architecture.multiprocessor_word for gpu in gpus)
    return (
        resource_words(gpus, "registers"),
        "local B",
        f"{resource_words(gpus, 'shared').replace(' memory', '')} B",
        f"programs per {' or '.join(words)}",
    )


def _neighbours_table(tried: Tried, *, title: bool) -> Table:
    def cells(record: Record) -> tuple[str, ...]:
        return (*numbers(record), *((cell(predicted_us(record)),) if tried.timed else ()))

    headers = (*number_headers((tried.record.gpu,)), *(("predicted us",) if tried.timed else ()))
    rows = [("as launched", *cells(tried.record))]
    for one in tried.neighbours:
        if one.record is None:
            rows.append((one.words, *["-"] * (len(headers) - 1), one.status))
        elif not one.reason:
            rows.append((one.words, *cells(one.record)))
    return Table(("", *headers), tuple(rows), f"**{tried.title}**" if title else "")


def numbers(record: Record) -> tuple[str, ...]:
    """Return what a table says of a launch under `number_headers`."""
    resources, occupancy = record.calculation.resources, record.calculation.occupancy
    return (
        str(resources.n_regs),
        known(resources.local_bytes),
        str(resources.shared + resources.static_shared),
        f"{occupancy.programs_per_multiprocessor} ({percent(occupancy.occupancy)})",
    )


def _advice(tried: Tried) -> Iterator[str]:
    yield from dict.fromkeys(one.reason for one in tried.neighbours if one.reason)
    best = tried.best
    if best is not None:
        yield (_faster if tried.timed else _better)(tried, best)
        return
    own = tried.record.prediction
    if tried.timed and own is not None:
        if tried.neighbours:
            yield f"None of these is predicted to be faster by {own.noticeable:.0%} or more."
        return
    warps = f"{tried.record.calculation.architecture.warp_word}s"
    shown = [rank(one.record) for one in tried.neighbours if one.record and not one.reason]
    if any(resident > rank(tried.record)[1] for _, resident in shown):
        yield f"None of these spills less, and what keeps more {warps} resident spills more."
    elif shown:
        yield f"None of these keeps more {warps} resident or spills less."


def _faster(tried: Tried, best: Neighbour) -> str:
    if best.record is None:
        return ""
    own, other = predicted_us(tried.record), predicted_us(best.record)
    return (
        f"{best.words} is predicted to be faster: {microseconds(other)} against"
        f" {microseconds(own)} ({change(other / own - 1)})."
    )


def _better(tried: Tried, best: Neighbour) -> str:
    record = tried.record
    if best.record is None:
        return ""
    most = rank(best.record)
    alike = [one.words for one in tried.neighbours if one.record and rank(one.record) == most]
    own, other = record.calculation, best.record.calculation
    spills, fewer = own.resources.local_bytes or 0, other.resources.local_bytes or 0
    shares = percent(own.occupancy.occupancy), percent(other.occupancy.occupancy)
    gains = []
    if fewer < spills:
        gains.append(f"{fewer} B in local memory instead of {spills}")
    if other.occupancy.occupancy > own.occupancy.occupancy:
        gains.append(f"an occupancy of {shares[1]} instead of {shares[0]}")
    loss = ""
    if other.occupancy.occupancy < own.occupancy.occupancy:
        loss = f", at an occupancy of {shares[1]} instead of {shares[0]}"
    have = "has" if len(alike) == 1 else "have"
    return (
        f"{listed(alike)} {have} {listed(gains)}{loss}; whether it is faster, a measurement says:"
        f" more resident {record.calculation.architecture.warp_word}s help where loads are waited"
        " for, not where memory or the tensor cores are busy."
    )
