"""What a launch does, in words: bytes and FLOPs, the speed of light, and wasted traffic.

Everything is counted from the kernel's texts and the launch's arguments; rates are from data
sheets.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

from occupancy_lab.arguments import Pointer
from occupancy_lab.assumed import trips_at
from occupancy_lab.explaining.case import Case
from occupancy_lab.record import Record
from occupancy_lab.text.document import Section, literal, side_by_side
from occupancy_lab.text.words import (
    amount_words,
    article,
    as_sentence,
    byte_words,
    count,
    listed,
    microseconds,
    or_more,
    percent,
    scaled,
)
from occupancy_lab.values import INT32_MAX
from occupancy_lab.work.counts import (
    LINE,
    NOTHING,
    SECTOR,
    TRIPS_OF,
    Access,
    Amount,
    Counts,
    Place,
    Unknown,
    total,
)
from occupancy_lab.work.memory import is_granular
from occupancy_lab.work.pieces import partial_bytes, read_cost, written_cost
from occupancy_lab.work.pipes import LSU
from occupancy_lab.work.speed_of_light import MEMORY

Fact = tuple[str, Callable[[Case], str]]
"""The name of a fact, and its words for a launch; "-" if there are none."""

RDNA_LANES = 32
"""Lanes of an RDNA wave; RDNA binaries are never followed instruction by instruction."""
MASKED, UNUSED = 0.25, 0.1
"""The shares of masked lanes, and of unused bytes of sectors, above which a page mentions them. A
block that is a power of two has up to half of its lanes masked off."""
APART = 0.25
"""The share of a sector up to which an access is said to touch elements that lie apart."""
AGAIN = 1.1
"""The ratio of bytes read to distinct bytes above which a page mentions rereading."""
COSTLY = 1.1
"""The time that device memory takes for pieces, relative to the same bytes in a row, above which a
page mentions them."""
MOSTLY = 0.5
"""The share of the cycles of shared memory above which a page says what they are."""
LIBRARY = re.compile(r"/triton/(experimental/gluon/)?language/")
"""Matches the files of Triton's own functions, such as tl.sum, whose lines are not the reader's."""
MOST_UNKNOWN = 3
"""How many unknown values a short page names."""


def memory_words(record: Record) -> str:
    """Return the bytes read from and written to device memory, and through the L2; "-" for none."""
    memory = record.memory
    if memory is None:
        return "-"
    parts = (memory.dram_read_bytes, memory.dram_written_bytes)
    words = ", ".join("not known" if one is None else _bytes(one) for one in parts)
    if memory.l2_bytes is not None:
        words += f", {_bytes(memory.l2_bytes)}"
    return f"{words}{' (given)' if memory.given else ''}"


def flops_words(record: Record) -> str:
    """Return the FLOPs by dtype, and the FLOPs per byte; "-" if nothing is known."""
    if record.counts is None:
        return "-"
    kinds = _flops(record.counts)
    if not kinds:
        return "none"
    per_byte = "" if record.intensity is None else f", {_three(record.intensity)} a byte"
    return ", ".join(f"{_number(amount)} {name}" for name, amount in kinds) + per_byte


def light_words(record: Record) -> str:
    """Return the speed of light and the part that binds; "-" if it is not known."""
    light = record.speed_of_light
    if light is None or light.us is None:
        return "-"
    words = microseconds(light.us) if light.most_us == light.us else or_more(light.us)
    return f"{words} at peak ({light.binds})" if words else "-"


WORDS = {
    "reads, writes, L2 cache": memory_words,
    "FLOPs": flops_words,
    "speed of light": light_words,
}
"""The name of each fact on what a launch does, and the function that words it."""


def in_one_line(record: Record) -> str:
    """Return all of `WORDS` as one sentence; "" if nothing is known."""
    told = [f"{name}: {words}" for name, of in WORDS.items() if (words := of(record)) != "-"]
    return as_sentence("; ".join(told)) if told else ""


def _flops(counts: Counts) -> list[tuple[str, Amount]]:
    found = [(f"{dtype} in dots", flops) for dtype, flops in counts.dot_flops.items()]
    found += [*counts.other_flops.items()]
    return sorted((one for one in found if one[1].high != 0), key=lambda one: -one[1].low)


def _three(number: float) -> str:
    """Return a number with three significant digits, or all digits before the point."""
    return f"{number:.0f}" if number >= 99.5 else f"{number:.3g}"  # noqa: PLR2004 - of three digits


def _bytes(amount: Amount | None) -> str:
    return "-" if amount is None else amount_words(amount.low, amount.high, byte_words)


def _number(amount: Amount | None) -> str:
    return "-" if amount is None else amount_words(amount.low, amount.high, scaled)


def the_work(cases: Sequence[Case]) -> Section:
    """Return all numbers on what launches do; `work_sentences` has the conclusions."""
    parts = (
        {case: numbers(case.record) for case in cases}
        for numbers in (_traffic, _operations, _least_times)
    )
    facts = (
        (name, lambda case, of=of_case, name=name: of[case].get(name, "-"))
        for of_case in parts
        for name in dict.fromkeys(itertools.chain(*of_case.values()))
    )
    counted = any(case.record.counts is not None for case in cases)
    return Section("What it does", (side_by_side(cases, facts),) if counted else ())


def _traffic(record: Record) -> dict[str, str]:
    memory, counts, executed = record.memory, record.counts, record.executed
    if memory is None:
        return {}
    found = {
        "read from device memory": _bytes(memory.dram_read_bytes),
        "written to device memory": _bytes(memory.dram_written_bytes),
        "through the L2 cache": _bytes(memory.l2_bytes),
    }
    if counts is None:
        return found
    is_whole = counts.walked >= counts.programs
    run, loads, stores = (
        None if executed is None else getattr(executed, name)
        for name in ("instructions", "load_sectors", "store_sectors")
    )
    return {
        **found,
        "programs counted, then scaled up": (
            "-" if is_whole else f"{counts.walked} of {counts.programs}"
        ),
        "distinct bytes read": _bytes(counts.unique_read_bytes),
        "bytes that loads ask for": _bytes(counts.read_bytes),
        "instructions that warps execute": _number(run),
        "sectors that their loads ask for": _number(loads),
        "sectors that their stores ask for": _number(stores),
        "lanes of loads and stores in use": _share(used_lanes(counts)),
        "bytes of sectors in use": _share(used_sectors(counts)),
    }


def _operations(record: Record) -> dict[str, str]:
    kinds = () if record.counts is None else _flops(record.counts)
    return {f"FLOPs, {name}": _number(amount) for name, amount in kinds}


def _least_times(record: Record) -> dict[str, str]:
    light, intensity = record.speed_of_light, record.intensity
    found = {"FLOPs per byte of device memory": "-" if intensity is None else _three(intensity)}
    if light is None:
        return found
    for part in light.parts:
        words = or_more(part.us) if part.name in light.open else microseconds(part.us)
        called = "device memory" if part.name == MEMORY else part.name
        found[f"least time of {called}, by the data sheet"] = (
            f"{words}{', binds' * (light.binds == part.name)}" if words else "-"
        )
    return found


def _share(share: float | None) -> str:
    return "-" if share is None else percent(share)


def used_lanes(counts: Counts) -> float | None:
    """Return the share of elements whose mask is true; None if not known or without elements."""
    return _ratio(
        total(one.active for one in counts.accesses), total(one.elements for one in counts.accesses)
    )


def used_sectors(counts: Counts) -> float | None:
    """Return the share of the sectors' bytes that is asked for; None as in `used_lanes`."""
    some = _of_blocks(counts)
    sectors = total(one.sectors for one in some)
    return _ratio(total(one.bytes for one in some), sectors * SECTOR)


def _of_blocks(counts: Counts) -> list[Access]:
    """Return the accesses of more than one element: a scalar needs a whole sector anyway."""
    return [one for one in counts.accesses if one.elements.low > one.executions.low]


def _ratio(part: Amount, whole: Amount) -> float | None:
    if part.exact is None or not whole.exact:
        return None
    return min(part.exact / whole.exact, 1.0)


def work_sentences(record: Record) -> Iterator[str]:
    """Say what a launch moves without need, and what is not known about it."""
    counts = record.counts
    if counts is not None:
        yield from _waste(record, counts)
        yield from _exchanged(record)
        yield from _unknown(counts)
        yield from _limited_loops(record, counts)
        if record.prediction is not None:
            yield from _shared_addresses(counts)
        yield from _beyond(record, counts)
    yield from written_later(record)
    memory = record.memory
    if memory is not None and memory.kept is not None:
        yield (
            f"Right after the same launch, {percent(memory.kept)} of the data that it touches is in"
            " the L2 cache: bytes of device memory and times are for that case."
        )
    if record.why_not_counted is not None and record.plan is not None:
        yield f"What it does is not counted: {literal(record.why_not_counted)}."
    is_rdna = record.gpu.target.backend == "hip" and record.gpu.architecture.warp_size == RDNA_LANES
    if record.why_not_executed is not None and not is_rdna:
        yield literal(record.why_not_executed)
    for doubt in record.doubts:
        yield (
            f"Not certain: {doubt.number}. The source gives {scaled(doubt.counted)}, the binary"
            f" {scaled(doubt.executed)}: it may be that {doubt.why}."
        )
    light = record.speed_of_light
    if light is not None and record.gpu.multiprocessors is None:
        yield (
            f"{record.gpu.title} is an architecture without a data sheet, so no speed of light is"
            " given."
        )
    elif light is not None and light.unknown:
        yield f"The data sheet has no rate for {listed(light.unknown)}: it may take longer."


def _waste(record: Record, counts: Counts) -> Iterator[str]:
    lanes, sectors = used_lanes(counts), used_sectors(counts)
    if lanes is not None and lanes < 1 - MASKED:
        yield f"{percent(1 - lanes)} of the lanes of its loads and stores are masked off."
    if sectors is not None and sectors < 1 - UNUSED:
        worst = max(_of_blocks(counts), key=lambda one: (one.sectors * SECTOR).low - one.bytes.low)
        share = _ratio(worst.bytes, worst.sectors * SECTOR)
        apart = ""
        if share is not None and share <= APART and worst.is_known and worst.tensor is not None:
            apart = (
                f": its elements lie apart in {literal(worst.tensor)}. A tile along the axis on"
                f" which {literal(worst.tensor)} is contiguous uses whole sectors"
            )
        yield (
            f"{percent(sectors)} of the bytes of moved sectors are used; the"
            f" {worst.operation} at {line_words(worst.place)} uses {_share(share)}{apart}."
        )
    memory = record.memory
    if memory is None or memory.given or memory.dram_read_bytes is None:
        return
    if is_granular(record.gpu):
        yield from _pieces(counts)
    read, once = memory.dram_read_bytes.exact, (memory.once_read_bytes or NOTHING).exact
    if read and once and (again := read / once) > AGAIN:
        yield (
            f"{byte_words(once)} are read from device memory {again:.1f} times, because they leave"
            " the L2 cache before they are read again."
        )


def written_later(record: Record) -> Iterator[str]:
    """Say which writes the time of a launch within a program leaves out."""
    memory, found = record.memory, record.prediction
    if not record.launch.in_program or memory is None or found is None:
        return
    read, written = memory.dram_read_bytes, memory.dram_written_bytes
    within = memory.written_within_bytes
    if read is None or written is None or within is None:
        return
    later = written.low - within.low
    if later > UNUSED * (read.low + written.low):
        yield (
            f"{byte_words(later)} of what it writes are still in the L2 cache when it ends: its"
            " time leaves them out, and the speed of light does not."
        )


def _pieces(counts: Counts) -> Iterator[str]:
    loads = [one for one in counts.accesses if one.reads]
    stores = [one for one in counts.accesses if one.writes]
    for some, verb in ((loads, "reads"), (stores, "writes")):
        whole = sum(one.sectors.most for one in some)
        short = [one for one in some if one.piece_bytes and one.piece_bytes <= LINE]
        worst = max(short, key=lambda one: one.sectors.most, default=None)
        if worst is None or not worst.sectors.most:
            continue
        tensor = next(one for one in counts.footprints if one.tensor == worst.tensor)
        cost = read_cost([worst]) if verb == "reads" else written_cost([worst], tensor)
        if 1 + (cost - 1) * worst.sectors.most / whole > COSTLY:
            size = round(min(worst.piece_bytes or LINE, LINE))
            yield (
                f"The {worst.operation} at {line_words(worst.place)} {verb} scattered pieces of"
                f" up to {size} bytes, for which device memory takes {cost:.1f} times as long as"
                " for the same bytes in a row."
            )
    for one in counts.footprints:
        mine = [store for store in stores if store.tensor == one.tensor]
        rest = partial_bytes(one.written_whole.low, one.written.low)
        if not one.read_whole.most and rest > UNUSED * one.written_whole.most:
            worst = max(mine, key=lambda store: store.sectors.most)
            yield (
                f"The {worst.operation} at {line_words(worst.place)} writes only parts of sectors:"
                f" device memory has to read the rest, {byte_words(round(rest))}."
            )


def _exchanged(record: Record) -> Iterator[str]:
    """Say if shuffles or bank conflicts are most of what bounds a launch by shared memory."""
    executed, time = record.executed, record.prediction
    if executed is None or executed.program is None or time is None or time.bound != LSU:
        return
    busy = executed.program.pipes.get(LSU, 0.0) * executed.programs
    shuffles = min(executed.kinds.get("shuffles", NOTHING).middle / busy, 1.0)
    if shuffles > MOSTLY:
        yield (
            f"{percent(shuffles)} of the cycles of shared memory and the L1 cache go to shuffles,"
            " by which the threads of a warp exchange values in reductions, scans and sorts: there"
            " are fewer where a thread holds more elements along that axis."
        )
    passes = [
        (one.wavefronts.middle - one.executions.middle * max(one.thread_bytes / 4, 1.0), one)
        for one in executed.shared
        if one.operation in {"load", "store"} and one.is_known
    ]
    lost, worst = max(passes, key=itemgetter(0), default=(0.0, None))
    conflicts = sum(max(more, 0.0) for more, _ in passes) / busy
    if worst is not None and conflicts > MOSTLY:
        each, least = (
            number / worst.executions.middle
            for number in (worst.wavefronts.middle, worst.wavefronts.middle - lost)
        )
        yield (
            f"{percent(conflicts)} of the cycles of shared memory and the L1 cache go to bank"
            f" conflicts: for a warp, the {worst.operation} at {line_words(worst.place)} passes"
            f" through the banks {each:.0f} times instead of {least:.0f}."
        )


def _beyond(record: Record, counts: Counts) -> Iterator[str]:
    assumed = any("address" in one.steers and one.assumed is not None for one in counts.unknowns)
    for one in counts.footprints:
        tensor = record.arguments.get(one.tensor or "")
        if one.bounds is None or not isinstance(tensor, Pointer):
            continue
        if tensor.storage_bytes == INT32_MAX:
            continue  # a signature gives it no sizes
        first, end = one.bounds
        if first < 0 or end - SECTOR >= tensor.storage_bytes:
            where = f"from {scaled(first)}" if first < 0 else f"up to byte {scaled(end)}"
            what = "with the assumed values the launch" if assumed else "the launch"
            follows = "assume smaller ones" if assumed else "it reads or writes out of bounds"
            yield (
                f"{literal(one.tensor or '')} has {byte_words(tensor.storage_bytes)}, and {what}"
                f" touches it {where}: {follows}."
            )


def _unknown(counts: Counts) -> Iterator[str]:
    first: dict[tuple[str, str, str | None], Unknown] = {}
    for one in counts.unknowns:
        first.setdefault((one.name, one.steers, one.assumed), one)
    found: dict[tuple[str, str, str | None], list[Unknown]] = {}
    for one in first.values():
        found.setdefault((one.name, line_words(one.place), one.assumed), []).append(one)
    for one, *others in [*found.values()][:MOST_UNKNOWN]:
        if one.name == TRIPS_OF:
            yield (
                f"Not known: how often the loop at {line_words(one.place)} runs;"
                f" {literal(one.assumed or '')} {'is' if one.assumed == '1 trip' else 'are'}"
                " assumed each time."
            )
            continue
        taken = "amounts are ranges from the least to the most"
        if one.assumed is not None:
            taken = f"{one.assumed} is assumed{'' if one.tensor is None else ' for each'}"
        where = f" at {line_words(one.place)}" if one.place.line else ""
        kinds = [each.steers for each in (one, *others)]
        steered = listed([f"{article(kind.partition(',')[0])} {kind}" for kind in kinds])
        yield (
            f"Not known: {literal(one.name)}{where}, on which {literal(steered)}"
            f" {'depend' if others else 'depends'}; {literal(taken)}."
        )
    if len(found) > MOST_UNKNOWN:
        more = count(len(found) - MOST_UNKNOWN, "further unknown")
        yield f"{more} in `--json`."
    yield from _empty_loops(counts)
    if counts.not_counted:
        names = [f"{literal(name)} ({number})" for name, number in counts.not_counted.items()]
        yield f"Not counted: {listed(names)}."


def _shared_addresses(counts: Counts) -> Iterator[str]:
    """Say what a time assumes of atomic operations whose addresses are not known."""
    places = dict.fromkeys(
        line_words(one.place)
        for one in counts.accesses
        if one.reads and one.writes and not one.is_known
    )
    if places:
        yield (
            "The predicted time assumes that atomic operations at"
            f" {listed([*places])} go to different addresses: one"
            " address takes them one after the other, so that very many at few addresses take"
            " longer than the range."
        )


def _limited_loops(record: Record, counts: Counts) -> Iterator[str]:
    """Say which trips a time rests on where the source only limits them."""
    for place, allowed in counts.steered if counts.limits else ():
        time = (
            ""
            if record.prediction is None
            else (
                f": the predicted time is that of {allowed.high}, and its range begins with that of"
                f" {allowed.low}"
            )
        )
        yield (
            f"The loop at {line_words(place)} makes {allowed.low} to {allowed.high} trips each"
            f" time, as its data decides{time}. `--assume {trips_at(place.line)}=N` gives what N"
            " trips do."
        )


def _empty_loops(counts: Counts) -> Iterator[str]:
    """Say that a loop does not run because all offsets are assumed to be equal."""
    assumed = (one for one in counts.unknowns if one.tensor and one.assumed is not None)
    alike = next((one for one in assumed if one.assumed and "i" not in one.assumed), None)
    empty = next((loop for loop in counts.loops if loop.trips.high == 0), None)
    if alike is not None and empty is not None:
        yield (
            f"So the loop at {line_words(empty.place)} does not run. For offsets,"
            f" `--assume {alike.tensor}={alike.assumed}*i` assumes that each is"
            f" {alike.assumed} more than the one before."
        )


def line_words(place: Place) -> str:
    """Return "kernel.py:12": the line, or for one of Triton's library the line that calls it."""
    own = (one for one in (place, *place.called_from) if not LIBRARY.search(one.file))
    found = next(own, place)
    return f"{literal(found.file.rpartition('/')[2])}:{found.line}"
