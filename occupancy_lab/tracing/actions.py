"""What would bring most to the kernels of a trace that lose most: launches near them, compiled."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.explaining.action import best_action
from occupancy_lab.tracing.page import shown_kernels
from occupancy_lab.tracing.traced import WORTH_TRYING, KernelTime
from occupancy_lab.workers import signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.tracing.traced import Traced, TracedKernel

ACTION_SECONDS = 60.0
"""How long launches are compiled where nobody says so."""
MOST_TRIED, MOST_EXPLAINED = 5, 10
"""The kernels of a page, and of a report, of which launches near theirs are compiled."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is compiled to find what brings most."""

    seconds: float = 0.0
    """After so many nothing of a further kernel is compiled; with 0 nothing is."""
    kernels: int = MOST_TRIED
    """Of how many kernels, those that lose most."""


NOTHING = Effort()


def with_actions(
    found: Traced, case_of: Callable[[TracedKernel], Case | None], effort: Effort
) -> Traced:
    """Return *found* with the action of the kernels that lose most, as far as *effort* goes.

    *case_of* compiles the launches near a kernel's most frequent one; it gives None, or raises
    what it may, where none can be. After an interrupt the rest is left.
    """
    if not effort.seconds:
        return found
    shown = shown_kernels(found)
    total = KernelTime.total(one.time for one in shown)
    most = [one for one in shown if one.time is not None][: effort.kernels]
    least = 0.0 if total is None else WORTH_TRYING * total.us
    wanted = [one for one in most if _lost(one) > least]
    minor = tuple(one.kernel for one in most if _lost(one) <= least)
    until = time.monotonic() + effort.seconds
    tried: dict[int, TracedKernel] = {}
    failed: list[str] = []
    while wanted and time.monotonic() <= until:
        one, action = wanted[0], None
        try:
            case = case_of(one)
            action = None if case is None else best_action(case)
        except KeyboardInterrupt:
            signals.arrived()
            break
        except Exception:  # noqa: BLE001, S110 - what was launched is told without it
            pass
        if action is None:
            failed.append(one.kernel)
        tried[id(one)] = dataclasses.replace(one, action=action)
        del wanted[0]
    kernels = tuple(tried.get(id(one), one) for one in found.kernels)
    untried = tuple(one.kernel for one in wanted)
    return dataclasses.replace(
        found, kernels=kernels, untried=untried, failed=tuple(failed), minor=minor
    )


def _lost(kernel: TracedKernel) -> float:
    time = kernel.time
    return 0.0 if time is None else time.lost_us or 0.0
