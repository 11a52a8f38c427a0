"""The possible gain of a kernel in a cache: how many times faster it could be, and why.

The gain is by the predicted time of the entry's launch: with one more program, without its spills,
or with the settings of another entry of the same function. Of an entry whose launch is not known no
time is known either, so only its spills and its next occupancy step are named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from occupancy_lab.options import CAPS, NAMES
from occupancy_lab.prediction import PARTS, RATIO_ERROR
from occupancy_lab.text.words import listed, microseconds

if TYPE_CHECKING:
    from occupancy_lab.record import Record
    from occupancy_lab.scanning.page import ScannedKernel

ALIKE = 1 + RATIO_ERROR
"""The ratio up to which predicted times of a kernel's launches are not noticeably different."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The next occupancy step of a kernel, its spills, and the advice against them."""

    after: int | None
    """Programs resident per multiprocessor after the step; None if no step gives more."""
    step: str
    """The step in words."""
    condition: str
    """The condition of the step that only a compile can check, "it does not spill"; "" if another
    entry shows that it holds."""
    spill_advice: str
    """What to do against spills; "" if nothing is known to help."""
    spills: int = 0
    """Loads and stores of local memory, as far as they are known."""

    @property
    def without_spills(self) -> str:
        """The advice, and what it is against."""
        return f"{self.spill_advice}: {self.spills} loads and stores of local memory"


def gain_of(record: Record | None, ahead: Ahead) -> tuple[float | None, str]:
    """Return how many times faster a launch is by its next step, or without its spills, and why.

    The factor is None if it is not known, as for a kernel whose launch, and so *record*, is not.
    """
    only_if = f"if {ahead.condition}, which only a compile tells"
    now = None if record is None else record.prediction
    if record is None or now is None:
        if ahead.spills and ahead.spill_advice:
            return None, ahead.without_spills
        has_condition = ahead.after is not None and ahead.condition
        return None, f"{ahead.step}, {only_if}" if has_condition else ahead.step
    programs = record.occupancy.programs_per_multiprocessor
    if ahead.spills:
        free = record.time_with(programs, spills=False)
        factor = 1.0 if free is None else now.us / free.us
        if ahead.spill_advice and factor > ALIKE:
            return factor, ahead.without_spills
        if ahead.after is not None:
            return None, ahead.step
    then = None if ahead.after is None else record.time_with(ahead.after)
    factor = 1.0 if then is None else now.us / then.us
    if then is None or factor <= ALIKE:
        return 1.0, f"{PARTS[now.bound]} takes longest"
    words = f"{ahead.step}: {microseconds(then.us)} instead of {microseconds(now.us)}"
    return (None, f"{words}, {only_if}") if ahead.condition else (factor, words)


def beside_others(kernels: Sequence[ScannedKernel]) -> Iterator[ScannedKernel]:
    """Return *kernels*, with the gain from the settings of the fastest entry of the same function.

    The settings are blocks, warps, stages and caps on registers.
    """
    fastest: dict[tuple[str, ...], ScannedKernel] = {}
    for one in sorted(kernels, key=_us):
        fastest.setdefault(function_of(one), one)
    for one in kernels:
        best = fastest[function_of(one)]
        factor = _us(one) / _us(best) if one.predicted_us else 1.0
        own, other = _settings(one), _settings(best)
        changes = [f"{name} {other[name]}" for name in other if other[name] != own.get(name)]
        if factor <= ALIKE or factor <= (one.gain or 1.0) or not changes:
            yield one
            continue
        times = f"{microseconds(_us(best))} instead of {microseconds(_us(one))}"
        yield replace(one, gain=factor, gain_by=f"{listed(changes)}, as another entry: {times}")


FEWER_WARPS, MORE_WARPS = "fewer num_warps", "more num_warps"
FEWER_STAGES, SMALLER_BLOCK = "fewer num_stages", "a smaller block"
"""The proposals for a kernel besides caps on registers."""


def shown_slower(one: ScannedKernel, others: Iterable[ScannedKernel]) -> frozenset[str]:
    """Return the proposals that *others* show not to be faster than *one*: "fewer num_warps".

    *others* are entries of the same function; some may differ only in what is proposed. Without
    times, more or fewer warps are not proposed if all warps together then spill no less.
    """
    least: dict[str, float] = {}
    for other in others:
        proposal = _proposal(_settings(one), _settings(other))
        now, then = one.predicted_us, other.predicted_us
        if None in {now, then} and proposal in {FEWER_WARPS, MORE_WARPS}:
            now, then = ((x.num_warps or 0) * (x.local_bytes or 0) for x in (one, other))
        if proposal and now and then is not None:
            least[proposal] = min(then / now, least.get(proposal, math.inf))
    return frozenset(proposal for proposal, ratio in least.items() if ratio >= 1)


def _proposal(own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the proposal that changes *own* settings into *other* ones; "" if none does."""
    changed = {name: (own.get(name), one) for name, one in other.items() if one != own.get(name)}
    if len(changed) == 1:
        ((name, (now, then)),) = changed.items()
        if name in CAPS:
            return f"without {name}={now}" if then is None else f"{name}={then}"
        if name == "num_warps":
            return FEWER_WARPS if then < now else MORE_WARPS
        if name == "num_stages":
            return FEWER_STAGES if then < now else ""
    numbers = (type(now) is type(then) is int and then < now for now, then in changed.values())
    return SMALLER_BLOCK if changed and not changed.keys() & {*NAMES} and all(numbers) else ""


def function_of(one: ScannedKernel) -> tuple[str, ...]:
    """Return the key of entries of one function for one target."""
    return one.kernel, one.source, one.arguments, one.target


def _settings(one: ScannedKernel) -> dict[str, Any]:
    return {**one.constexprs, **{name: getattr(one, name) for name in NAMES}}


def _us(one: ScannedKernel) -> float:
    return one.predicted_us or math.inf
