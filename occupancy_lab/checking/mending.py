"""The nearest thing with which a row would meet a condition: another row, or less of a resource."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from occupancy_lab.checking.rows import OK, Row, make_rows, shown
from occupancy_lab.errors import CompileError, DoesNotFitError
from occupancy_lab.gpus import CudaArchitecture
from occupancy_lab.occupancy import occupancy
from occupancy_lab.occupancy.exact import option_for
from occupancy_lab.text.words import LIMITS, count, listed, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from occupancy_lab.expressions import Value
    from occupancy_lab.gpus import Architecture
    from occupancy_lab.values import Resources

    Meets: TypeAlias = Callable[[Mapping[str, Value]], bool]
    """Whether values meet a condition."""
    Problem: TypeAlias = frozenset[tuple[str, Value]]
    """What a launch computes, on which GPU, compiled by which Triton."""

FEWEST_REGISTERS = 24
"""The fewest registers per thread that ptxas compiles for, whatever maxnreg asks: sm_80 to sm_100
were tried with Triton 3.7.1."""
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu")
"""What a launch chooses freely."""
_TUNED = re.compile(r"BLOCK|TILE|SPLIT|UNROLL|STAGES|WARPS|GROUP(_SIZE)?_?[MNK]$", re.IGNORECASE)
"""The constexprs that are named as those are that a launch chooses; others say what is computed."""
CAPS = ("maxnreg", "waves_per_eu")
"""The options that cap the registers of a thread."""
_PROBES = 16
_LESS: Mapping[str, str] = {
    "n_regs": "registers",
    "shared": "shared",
    "local_bytes": "",
}
"""The amounts of a row that less of may mend, and the limit that each belongs to, if any."""
_PLANNED = frozenset(
    (
        *("num_programs", "waves", "tutorial_programs", "tutorial_num_programs", "predicted_us"),
        *("predicted_gbs", "bound", "us", "us_low", "us_high", "next_step", "gain", "gain_by"),
        *("resident_programs", "rounds", "last_round"),
    )
)
"""What follows from an occupancy in ways that a row does not say."""


@dataclass(frozen=True, slots=True)
class Mend:
    """What would make a row meet a condition."""

    words: str
    """A clause: "num_warps 8 instead of 4 does: occupancy 0.5"."""
    changes: Mapping[str, Value]
    """The columns that would change, and their values or, of an amount, the most."""
    option: str | None = None
    """The option of a launch that asks for it: maxnreg=64."""
    compiled: bool = False
    """Whether a compile has shown it; what a compiler makes of less registers is not known."""
    values: Mapping[str, Value] = field(default_factory=dict, compare=False, repr=False)
    """The values that the row would then have."""

    def to_dict(self) -> dict[str, Any]:
        """Return the mend as plain values, for JSON."""
        return {
            "words": self.words,
            "changes": dict(self.changes),
            "option": self.option,
            "compiled": self.compiled,
        }


class Mender:
    """Finds what would make rows of a table meet a condition."""

    def __init__(self, rows: Iterable[Row], meets: Meets) -> None:
        """Take the rows of the table, and what says whether values meet the condition."""
        self._rows = rows
        self._meets = meets

    @functools.cached_property
    def _meeting(self) -> Mapping[Problem, list[Row]]:
        """The rows that meet the condition, by what each computes."""
        found: dict[Problem, list[Row]] = {}
        for row in self._rows:
            if row.status == OK and self._meets(row.values):
                found.setdefault(_problem(row), []).append(row)
        return found

    def mend(self, row: Row, tried: Iterable[Row] = ()) -> list[Mend]:
        """Return what would make *row* meet the condition, the surest and nearest first.

        *tried* are other launches of it, each compiled when it is asked for, which is where the
        table has none that meets the condition.
        """
        found = nearest(row, self._meeting.get(_problem(row), ()))
        if found is None:
            meeting = (one for one in tried if self._meets(one.values))
            found = nearest(row, itertools.islice(meeting, 1))
        return [*([] if found is None else [found]), *_with_less(row, self._meets)]


def nearest(row: Row, meeting: Iterable[Row]) -> Mend | None:
    """Return the one of *meeting*, launches of the same, that differs from *row* in fewest knobs.

    None where none does.
    """
    candidates = [(differences, one) for one in meeting if (differences := _differences(row, one))]
    if not candidates:
        return None
    differences, one = min(candidates, key=lambda pair: _distance(row, pair[0]))
    knobs = [
        f"{name} {shown(value)} instead of {shown(row.values.get(name))}"
        if value is not None and row.values.get(name) is not None
        else f"{name} left out"
        if value is None
        else f"{name} {shown(value)}"
        for name, value in differences.items()
    ]
    words = listed(knobs)
    if any(name not in OPTIONS for name in differences):
        words += ", if the kernel may be launched so"
    return Mend(words, differences, compiled=True, values=one.values)


def _is_knob(name: str) -> bool:
    return name in OPTIONS or _TUNED.search(name) is not None


def _problem(row: Row) -> Problem:
    """Return what two launches have in common that differ in their knobs only."""
    named = {name: value for name, value in row.names.items() if not _is_knob(name)}
    return frozenset({**named, "triton_version": row.values.get("triton_version")}.items())


def _differences(row: Row, other: Row) -> dict[str, Value]:
    names = dict.fromkeys([*row.names, *other.names])
    return {
        name: other.values.get(name)
        for name in names
        if _is_knob(name) and other.values.get(name) != row.values.get(name)
    }


def _distance(row: Row, differences: Mapping[str, Value]) -> tuple[int, int, float]:
    """Return how far other knobs are: those of the kernel first, all of them, how many times."""
    times = [
        abs(math.log2(value) - math.log2(now))
        for name, value in differences.items()
        if isinstance(value, int | float)
        and isinstance(now := row.values.get(name), int | float)
        and value > 0 < now
    ]
    own = sum(name not in OPTIONS for name in differences)
    return own, len(differences), sum(times)


@dataclass(frozen=True, slots=True)
class _Recalculation:
    """A row whose columns say all that its occupancy is made of."""

    row: Row
    resources: Resources
    architecture: Architecture
    meets: Meets

    def values(self, amounts: Mapping[str, int]) -> dict[str, Value]:
        """Return the values that the row has with other *amounts*, all else being as it is.

        What follows from them in ways that the row does not say is not known.
        """
        changed = self.changed(amounts)
        held = occupancy(changed, self.architecture)
        values: dict[str, Value] = {
            name: None if name in _PLANNED else value for name, value in self.row.values.items()
        }
        values |= amounts
        others: dict[str, Value] = {
            "n_spills": changed.n_spills,
            "launched_warps": changed.num_warps,
            "allocated_vgprs": changed.allocated_vgprs,
        }
        return values | {
            **{name: value for name, value in others.items() if name in values},
            "programs_per_multiprocessor": held.programs_per_multiprocessor,
            "warps_per_multiprocessor": held.warps_per_multiprocessor,
            "limiter": "+".join(held.limiters),
            "occupancy": held.occupancy,
        }

    def changed(self, amounts: Mapping[str, int]) -> Resources:
        """Return the resources with other *amounts*."""
        padded = {"allocated_vgprs": None} if "n_regs" in amounts else {}
        return self.resources.replace(**amounts, **padded)

    def does(self, amounts: Mapping[str, int]) -> bool:
        """Tell whether the row would meet the condition with *amounts*, and run at all."""
        values = self.values(amounts)
        return bool(values["programs_per_multiprocessor"]) and self.meets(values)

    def largest(self, name: str, least: int, now: int, others: Mapping[str, int]) -> int | None:
        """Return the largest amount below *now* that does, and of which one more does not.

        It is looked for in a few steps, and then between two of them by halves.
        """

        def does(amount: int) -> bool:
            return self.does({**others, name: amount})

        step = max(1, (now - least) // _PROBES)
        probes = [*range(now, least, -step), least]
        for high, low in itertools.pairwise(probes):
            if does(low):
                return _last(does, low, high)
        return None


def _last(does: Callable[[int], bool], low: int, high: int) -> int:
    """Return, of what is from *low*, which does, to below *high*, what does while one more not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if does(middle) else (low, middle)
    return low


def _with_less(row: Row, meets: Meets) -> Iterator[Mend]:
    """Return the largest amounts of one resource, else of several, with which the row would do."""
    resources, gpu = row.resources, row.gpu
    if resources is None or gpu is None:
        return
    case = _Recalculation(row, resources, gpu.architecture, meets)
    programs = occupancy(resources, gpu.architecture).programs_per_multiprocessor
    if not programs or programs != row.values.get("programs_per_multiprocessor"):
        return
    ranges = {name: (_least(name, gpu.architecture), _amount(row, name)) for name in _LESS}
    ranges = {name: (least, now) for name, (least, now) in ranges.items() if now > least}
    alone = {name: case.largest(name, *both, {}) for name, both in ranges.items()}
    found = [{name: amount} for name, amount in alone.items() if amount is not None]
    for amounts in found or filter(None, [_together(case, ranges)]):
        yield _of_amounts(case, amounts)
    if alone.get("n_regs") is None:
        yield from _with_warps(case)


def _amount(row: Row, name: str) -> int:
    value = row.values.get(name)
    return value if isinstance(value, int) else 0


def _least(name: str, architecture: Architecture) -> int:
    """Return the least of an amount that can be asked for."""
    if name != "n_regs":
        return 0
    if isinstance(architecture, CudaArchitecture):
        return FEWEST_REGISTERS
    return architecture.vgprs_per_simd // architecture.max_waves_per_simd


def _together(case: _Recalculation, ranges: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return amounts of several resources that do together; none where not even the least do."""
    amounts = {name: least for name, (least, _) in ranges.items()}
    if not case.does(amounts):
        return {}
    for name, (least, now) in ranges.items():
        if case.does({**amounts, name: now}):
            del amounts[name]
        else:
            largest = case.largest(name, least, now, amounts)
            amounts[name] = least if largest is None else largest
    return amounts


def _of_amounts(case: _Recalculation, amounts: Mapping[str, int]) -> Mend:
    row, architecture, values = case.row, case.architecture, case.values(amounts)
    option = None
    if "n_regs" in amounts and "local_bytes" not in amounts:
        option = option_for(architecture, "registers", amounts["n_regs"])
    needs = [
        f"at most {amount} {_unit(name, architecture)} instead of {shown(row.values[name])}"
        + (f" ({option})" if option and name == "n_regs" else "")
        for name, amount in amounts.items()
    ]
    words = listed(needs)
    if "local_bytes" in amounts:
        words += f"; {_spill_words(case, amounts)}"
    else:
        programs, share = values["programs_per_multiprocessor"], values["occupancy"]
        each = count(int(programs or 0), "program")
        held = f"{each} per {architecture.multiprocessor_word} ({percent(float(share or 0))})"
        words += f", which gives {held}"
        if option:
            words += "; what that spills, only a compile tells"
        elif "shared" in amounts:
            words += "; smaller blocks or fewer num_stages take less"
    return Mend(words, dict(amounts), option, values=values)


def _unit(name: str, architecture: Architecture) -> str:
    if name == "local_bytes":
        return "B of local memory per thread"
    return LIMITS[_LESS[name]].unit.format(architecture)


def _spill_words(case: _Recalculation, amounts: Mapping[str, int]) -> str:
    """Say how a thread comes by less local memory, as far as that can be said."""
    architecture, resources = case.architecture, case.resources
    asked = [name for name in CAPS if case.row.values.get(name)]
    if asked and "n_regs" not in amounts:
        cap = f"{asked[0]}={shown(case.row.values[asked[0]])}"
        return f"{cap} caps its registers: leave it out or ask for more registers"
    less = "a smaller block leaves each thread less to hold"
    if isinstance(architecture, CudaArchitecture) and "n_regs" not in amounts:
        most = architecture.max_registers_per_thread
        if resources.n_regs + architecture.register_unit // architecture.warp_size <= most:
            if _is_full(resources, architecture):
                return f"no option sets that: fewer num_warps allow more registers, and {less}"
            return (
                f"a thread may have more than these {resources.n_regs} registers, so something caps"
                " them, such as maxnreg, or its local memory is no spill"
            )
    if resources.num_warps < architecture.max_warps_per_program:
        warps = f"more {architecture.warp_word}s per program"
        less = f"{warps} or a smaller block leave each thread less to hold"
    return f"no option sets that: {less}"


def _is_full(resources: Resources, architecture: CudaArchitecture) -> bool:
    """Tell whether a thread has as many registers as a program of so many warps may have."""
    more = resources.n_regs + architecture.register_unit // architecture.warp_size
    return not occupancy(resources.replace(n_regs=more), architecture).programs_per_multiprocessor


def _with_warps(case: _Recalculation) -> Iterator[Mend]:
    """Return the nearest num_warps that would do if a thread then took as many registers as now."""
    now = _amount(case.row, "num_warps")
    if now != case.resources.num_warps:
        return
    most = case.architecture.max_warps_per_program
    others = [1 << place for place in range(most.bit_length()) if 1 << place != now]
    for warps in sorted(others, key=lambda one: abs(math.log2(one / now))):
        if case.does({"num_warps": warps}):
            words = (
                f"num_warps {warps} instead of {now}, if a thread then takes as many registers and"
                " a program as much shared memory as now"
            )
            values = case.values({"num_warps": warps})
            yield Mend(words, {"num_warps": warps}, f"num_warps={warps}", values=values)
            return


def compiled_neighbours(row: Row, function: Any, maker: Any) -> Iterator[Row]:
    """Return launches like that of *row* with other options, each compiled when it is asked for.

    More warps come first, which leave each thread less to hold, then fewer, then fewer stages, and
    first of all the launch without its cap on registers.
    """
    record = row.record
    if record is None:
        return
    launch, most = record.launch, record.calculation.architecture.max_warps_per_program
    asked = {**record.usual_options, **record.options}
    warps, stages = int(asked.get("num_warps", 4)), int(asked.get("num_stages", 1))
    capped = [name for name in CAPS if record.options.get(name)]
    changes: list[dict[str, Any]] = [dict.fromkeys(capped)] if capped else []
    changes += [{"num_warps": 1 << place} for place in range(6) if warps < 1 << place <= most]
    changes += [{"num_warps": 1 << place} for place in reversed(range(6)) if 1 << place < warps]
    changes += [{"num_stages": number} for number in reversed(range(1, stages))]
    taken = {*[*record.arguments][: len(launch.arguments)]}
    for change in changes:
        if taken & change.keys():
            continue
        keywords = {**launch.keywords, **change}
        keywords = {name: value for name, value in keywords.items() if value is not None}
        tried = dataclasses.replace(launch, keywords=keywords)
        try:
            made = maker.make(function, tried, record.gpu)
        except (CompileError, DoesNotFitError):
            continue
        yield make_rows([made.to_dict()], "compiled to see")[0]
