"""How long a launch should take: the time, its parts and range, and the columns that hold it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


@dataclass(frozen=True, slots=True)
class Quotient:
    """The arithmetic behind a time: an amount, over a rate."""

    amount: float
    unit: str
    """B, cycles, program or launch."""
    rate: float
    """Of that unit, a microsecond."""
    source: str
    """Where the rate is from, in words."""
    each: float | None = None
    """The amount of one program, of those that the mean multiprocessor has; None where it is none
    of single programs."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the things that take time in a launch."""

    name: str
    us: float
    """The time that it would take if nothing else took any; parts overlap."""
    quotient: Quotient | None = None
    """What comes to that time; None of one that is a rest of others, or measured as a whole."""


PARTS = {
    "launch": "starting and ending the launch",
    "dispatch": "starting its programs",
    "code": "fetching code, and the first loads",
    "latency": "latency: waits that no busy pipe covers",
    "issue": "issuing instructions",
    "fma": "FP32 and integer multiply-adds",
    "alu": "integer arithmetic and comparisons",
    "xu": "special functions and conversions",
    "fp64": "FP64 arithmetic",
    "uniform": "arithmetic of uniform registers",
    "tensor": "tensor cores",
    "lsu": "shared memory and L1 cache",
    "local": "local memory (register spills)",
    "l2": "L2 cache",
    "atomics": "atomic operations in the L2 cache, and locks",
    "bandwidth": "device memory",
    "tail": "rounds that are not full, and programs that take longer",
}
"""The parts of a time and what they are called."""
BESIDE_UNITS = frozenset({"launch", "dispatch", "code", "latency", "tail"})
"""Parts in which no unit need be busy."""
NOTICEABLE = 0.02
"""Changes of a time below this are called none."""
NOT_FOLLOWED = "the counters of the binary"
"""What is in the basis of a time for which no binary was followed."""
RATIO_ERROR, COUNTED_RATIO_ERROR = 0.1, 0.2
"""The median error of the ratio of the predicted times of two launches of one kernel, if the times
have ranges: of 65 problems with three configurations or more, on an H200. The second is that of the
same launches if their binaries are not followed."""
BANDWIDTH, BANDWIDTH_RATIO_ERROR = "bandwidth", 0.05
"""The same where device memory bounds the launch: eight in ten of 3,400 softmaxes that were within
15% of the first choice for their matrix (H100 and H200)."""
CHOSEN = 1.1
"""How much further up the range reaches of a launch that was chosen for its time, as such times are
predicted too short more often than too long: of 123 launches that were changed as `explain` says
first, on an H100 and an H200, 76% took a time in the range of any launch, and 86% in this."""


def ratio_error(basis: str, bound: str = "") -> float:
    """Return how far off the ratio of two times is, as a share, by their *basis* and *bound*."""
    if NOT_FOLLOWED in basis:
        return COUNTED_RATIO_ERROR
    return BANDWIDTH_RATIO_ERROR if bound == BANDWIDTH else RATIO_ERROR


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long a launch should take, and why."""

    us: float
    """Time of a launch, with the L2 cache flushed before it, us."""
    gbs: float | None
    """Bandwidth that its traffic comes to in that time, GB/s; None where it moves nothing."""
    copy_gbs: float | None
    """Bandwidth that a plain copy of as many bytes comes to, GB/s, launch included; None where
    nobody asked, as of a launch that no kernel of a matrix made."""
    parts: tuple[Part, ...]
    """What takes time: the units of the GPU that it keeps busy, and what none of them does."""
    basis: str
    """Where the model's constants are from, in words."""
    calibrated: bool
    """Whether they were measured on a GPU of this kind."""
    low_us: float
    """The time that eight in ten such launches stay above, us."""
    high_us: float
    """The time that they stay below, us."""
    busiest: Part | None = None
    """The unit of the GPU that works for longest, and for how long at its peak rate: over the time
    it is what Nsight Compute calls the Speed Of Light."""

    @property
    def as_chosen(self) -> Prediction:
        """It with the range of the fastest of several launches."""
        return dataclasses.replace(self, high_us=self.high_us * CHOSEN)

    @property
    def noticeable(self) -> float:
        """The share by which another predicted time must differ to be called another."""
        return ratio_error(self.basis, self.bound)

    @property
    def bound(self) -> str:
        """The part that would take longest alone."""
        return max(self.parts, key=lambda part: part.us).name

    @property
    def share_of_copy(self) -> float | None:
        """The bandwidth over a plain copy's; None where one of the two is not known."""
        if self.gbs is None or self.copy_gbs is None:
            return None
        return self.gbs / self.copy_gbs

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "us": self.us,
            "low_us": self.low_us,
            "high_us": self.high_us,
            "gbs": self.gbs,
            "share_of_copy": self.share_of_copy,
            "bound": self.bound,
            "parts": {part.name: part.us for part in self.parts},
            "arithmetic": {
                part.name: dataclasses.asdict(part.quotient)
                for part in self.parts
                if part.quotient is not None
            },
            "busiest": None if self.busiest is None else self.busiest.name,
            "busiest_us": None if self.busiest is None else self.busiest.us,
            "basis": self.basis,
            "calibrated": self.calibrated,
        }

    def part(self, name: str) -> Part:
        """Return the part called *name*."""
        return next(part for part in self.parts if part.name == name)


def time_lost(us: float | None, least_us: float | None) -> float | None:
    """Return the time above the least, us; 0 where caches had what was read, None: not known."""
    return None if us is None or least_us is None else max(us - least_us, 0.0)


def lost_columns(
    us: float | None, predicted_us: float | None, least_us: float | None
) -> dict[str, float | str | None]:
    """Return the columns of the time above the least: the measured time's, else the predicted."""
    found = time_lost(predicted_us if us is None else us, least_us)
    basis = "predicted" if us is None else "measured"
    return {"lost_us": found, "lost_of": None if found is None else basis}


def time_columns(prediction: Prediction | None) -> dict[str, float | str | None]:
    """Return the columns of a predicted time, each None where there is none."""
    found = None if prediction is None else prediction.busiest
    return {
        "predicted_us": None if prediction is None else prediction.us,
        "predicted_low_us": None if prediction is None else prediction.low_us,
        "predicted_high_us": None if prediction is None else prediction.high_us,
        "bound": None if prediction is None else prediction.bound,
        "busiest": None if found is None else found.name,
        "busiest_us": None if found is None else found.us,
    }
