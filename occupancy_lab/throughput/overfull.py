"""What a launch loses whose programs do not all fit: the others begin when some have ended.

A program that has begun keeps its place until it has done all its rows, so those left over run
nearly alone at the end, and the memory waits for them.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TYPE_CHECKING

from occupancy_lab.throughput.features import stack
from occupancy_lab.throughput.model import row_rate, row_times

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from occupancy_lab.throughput.constants import Constants
    from occupancy_lab.throughput.features import Features

PACE_SPREAD = 0.1
"""How much faster or slower than the others a program goes. At one pace all would end at one time,
and those left over cost 4 % more than they do; with 0.1 the median of 488 recorded launches (H200,
2026-11-21; none of the held-out shapes) is met within 1 %."""
GOLDEN = 0.618034
"""Its multiples spread evenly over the range from 0 to 1, in whatever order they are taken."""
DONE = 1e-9


def overfull_us(launch: Features, constants: Constants, num_programs: int) -> float:
    """Return how much longer, in us, *launch* takes with *num_programs* programs than as planned.

    *launch* has as many programs as fit, and *num_programs* is more than that. It is negative
    where rows come out more evenly.
    """
    rates = _rates(launch, constants)
    planned = int(launch.programs * launch.multiprocessors)
    return _time_us(launch, rates, num_programs) - _time_us(launch, rates, planned)


def _rates(launch: Features, constants: Constants) -> Sequence[float]:
    """Return the rows a us of a multiprocessor with 1, 2, ... of the launch's programs."""
    places = range(1, int(launch.programs) + 1)
    some = stack([dataclasses.replace(launch, programs=place) for place in places])
    return [float(rate) for rate in row_rate(some, constants, row_times(some, constants))]


def _time_us(launch: Features, rates: Sequence[float], num_programs: int) -> float:
    """Return the time until the first multiprocessor has done its rows.

    Program p does rows p, p + num_programs, ...; the first multiprocessor has the programs
    0, multiprocessors, 2 x multiprocessors, ... of which as many run at once as fit.
    """
    programs = range(0, min(num_programs, int(launch.work)), int(launch.multiprocessors))
    waiting = deque(len(range(first, int(launch.work), num_programs)) for first in programs)
    paces = iter(_paces(len(waiting)))
    running: list[tuple[float, float]] = []
    time = 0.0
    while waiting or running:
        while waiting and len(running) < len(rates):
            running.append((waiting.popleft(), next(paces)))
        step = min(rows / pace for rows, pace in running)
        time += step * sum(pace for _, pace in running) / rates[len(running) - 1]
        left = ((rows - step * pace, pace) for rows, pace in running)
        running = [(rows, pace) for rows, pace in left if rows > DONE]
    return time


def _paces(count: int) -> Iterable[float]:
    """Return how fast each of *count* programs goes beside the others, 1 being the middle."""
    return (1.0 + PACE_SPREAD * (2.0 * (place * GOLDEN % 1.0) - 1.0) for place in range(count))
