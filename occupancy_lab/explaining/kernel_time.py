"""The time of several launches, and how much of it is lost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from occupancy_lab.prediction import time_lost
from occupancy_lab.record import Record
from occupancy_lab.text.words import duration


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The total time of launches with known times, all measured or all predicted."""

    measured: bool
    launches: int
    low_us: float
    """The sum of the low ends of the predicted ranges; equal to `us` if measured."""
    us: float
    high_us: float
    known: int
    """How many of the launches have a speed of light."""
    light_us: float | None
    """The speed of light of those launches; of the most that they may do if that depends on values.
    None if there is none."""
    lost_us: float | None
    """The time of those launches beyond their speed of light, us; 0 if caches held their data."""

    @property
    def basis(self) -> str:
        """The word "measured" or "predicted"."""
        return "measured" if self.measured else "predicted"

    @property
    def limits(self) -> str:
        """The predicted range: "8.41 ms to 9.02 ms"."""
        return f"{duration(self.low_us)} to {duration(self.high_us)}"

    @classmethod
    def of(
        cls,
        times: tuple[float, float, float],
        record: Record | None,
        launches: int,
        *,
        measured: bool,
    ) -> KernelTime:
        """Return the time of *launches* like *record*; *times* are low, mean and high of one."""
        low, us, high = (launches * one for one in times)
        speed = None if record is None else record.speed_of_light
        least = None if speed is None else speed.most_us
        light = None if least is None else launches * least
        known = 0 if light is None else launches
        return cls(measured, launches, low, us, high, known, light, time_lost(us, light))

    @classmethod
    def predicted(cls, record: Record | None, launches: int) -> KernelTime | None:
        """Return the predicted time of *launches* like *record*; None if it has none."""
        found = None if record is None else record.prediction
        if found is None:
            return None
        times = (found.low_us, found.us, found.high_us)
        return cls.of(times, record, launches, measured=False)

    @classmethod
    def total(cls, times: Iterable[KernelTime | None]) -> KernelTime | None:
        """Return the sum of *times*, all measured or all predicted; None if there are none."""
        known = [one for one in times if one is not None]
        if not known:
            return None

        def added(name: str) -> Any:
            found = [getattr(one, name) for one in known if getattr(one, name) is not None]
            return sum(found) if found else None

        summed = {one.name: added(one.name) for one in dataclasses.fields(cls)}
        return cls(**{**summed, "measured": known[0].measured})
