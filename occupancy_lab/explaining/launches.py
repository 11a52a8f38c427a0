"""What many launches of a kernel take together, and what sets one of them apart."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.arguments import Pointer
from occupancy_lab.prediction import time_lost
from occupancy_lab.text.words import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from occupancy_lab.launch import BoundLaunch
    from occupancy_lab.record import Record


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The time of all launches of which it is known: all measured, or all predicted."""

    measured: bool
    launches: int
    low_us: float
    """The least that is predicted of them, one after the other; measured, `us` itself."""
    us: float
    high_us: float
    known: int
    """How many of the launches have a speed of light."""
    light_us: float | None
    """The speed of light of those, of all that they may do where values steer that; None where
    there is none."""
    lost_us: float | None
    """The time of those above it, us. It is 0 where caches had what they read."""

    @property
    def basis(self) -> str:
        """What the time is, in a word."""
        return "measured" if self.measured else "predicted"

    @property
    def limits(self) -> str:
        """The least and the most that is predicted: "8.41 ms to 9.02 ms"."""
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
        """Return that of so many *launches*, as *record* has one, of these *times*.

        They are the least, the mean and the most of one.
        """
        low, us, high = (launches * one for one in times)
        speed = None if record is None else record.speed_of_light
        least = None if speed is None else speed.most_us
        light = None if least is None else launches * least
        known = 0 if light is None else launches
        return cls(measured, launches, low, us, high, known, light, time_lost(us, light))

    @classmethod
    def predicted(cls, record: Record | None, launches: int) -> KernelTime | None:
        """Return the predicted time of so many *launches* as *record* is; None where it is open."""
        found = None if record is None else record.prediction
        if found is None:
            return None
        times = (found.low_us, found.us, found.high_us)
        return cls.of(times, record, launches, measured=False)

    @classmethod
    def total(cls, times: Iterable[KernelTime | None]) -> KernelTime | None:
        """Return the sum of *times*, which are all measured or all predicted; None of none."""
        known = [one for one in times if one is not None]
        if not known:
            return None

        def added(name: str) -> Any:
            found = [getattr(one, name) for one in known if getattr(one, name) is not None]
            return sum(found) if found else None

        summed = {one.name: added(one.name) for one in dataclasses.fields(cls)}
        return cls(**{**summed, "measured": known[0].measured})


def argument_classes(bound: BoundLaunch) -> dict[str, str]:
    """Return the dtype of each tensor, and of each integer whether it is 1 or a multiple of 16."""
    found = {}
    for name, value in bound.arguments.items():
        if name in bound.constexprs:
            continue
        if isinstance(value, Pointer):
            found[name] = f"{value.dtype}{'' if value.aligned else ' unaligned'}"
        elif type(value) is int:  # of a bool nothing is distinguished
            found[name] = "1" if value == 1 else "any" if value % 16 else "multiple of 16"
    return found


def apart(own: Mapping[str, str], others: Iterable[Mapping[str, str]]) -> str:
    """Return what is said in *own* that any of *others* has otherwise: "n multiple of 16"."""
    alike = [*others]
    return ", ".join(
        f"{name} {said}"
        for name, said in own.items()
        if any(one.get(name) != said for one in alike)
    )
