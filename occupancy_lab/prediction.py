"""The predicted time of a launch: its parts and its range, and the columns for it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Quotient:
    """The arithmetic behind a time: an amount divided by a rate."""

    amount: float
    unit: str
    """B, cycles, program or launch."""
    rate: float
    """Units per microsecond."""
    source: str
    """The source of the rate, in words."""
    each: float | None = None
    """The amount per program, for the programs of an average multiprocessor; None if it is not made
    up of single programs."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the parts of a launch's time."""

    name: str
    us: float
    """The time that it would take if nothing else took any; parts overlap."""
    quotient: Quotient | None = None
    """The arithmetic of the time; None if it is the rest of others, or measured as a whole."""


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
"""The parts of a time and their names."""


_SHORT = {
    "launch": "the launch",
    "code": "fetching code",
    "fma": "multiply-adds",
    "alu": "integer arithmetic",
    "xu": "special functions",
    "uniform": "uniform registers",
    "lsu": "shared memory and L1",
    "local": "local memory",
    "atomics": "atomic operations",
    "tail": "rounds that are not full",
}
"""Names of parts that are shorter, for tables."""


def part_words(name: str) -> str:
    """Return the name of a part of a time, without what explains it."""
    return PARTS.get(name, name).partition(":")[0]


def part_cell(name: str) -> str:
    """Return the name of a part of a time for a table."""
    return _SHORT.get(name) or part_words(name)


BESIDE_UNITS = frozenset({"launch", "dispatch", "code", "latency", "tail"})
"""Parts in which no unit need be busy."""
NOTICEABLE = 0.02
"""Changes of a time below this share count as none."""
NOT_FOLLOWED = "the counters of the binary"
"""Part of a prediction's basis if no binary was followed."""
RATIO_ERROR, COUNTED_RATIO_ERROR = 0.1, 0.2
"""The median error of the ratio of the predicted times of two launches of one kernel, if the times
have ranges: of 65 problems with three configurations or more, on an H200. The second is that of the
same launches if their binaries are not followed."""
BANDWIDTH, BANDWIDTH_RATIO_ERROR = "bandwidth", 0.05
"""The same if device memory bounds the launch: 80% of 3,400 softmaxes that were within 15% of the
first choice for their matrix (H100 and H200)."""
CHOSEN = 1.1
"""The factor by which the range of a launch that was chosen for its time reaches further up,
because such times are predicted too short more often than too long. Of 123 launches that were
changed as `explain` suggests first, on an H100 and an H200, the times of 76% were in the range of
any launch, and of 86% in this one."""


def ratio_error(basis: str, bound: str = "") -> float:
    """Return the error of the ratio of two times, as a share, by their *basis* and *bound*."""
    if NOT_FOLLOWED in basis:
        return COUNTED_RATIO_ERROR
    return BANDWIDTH_RATIO_ERROR if bound == BANDWIDTH else RATIO_ERROR


CHOSEN_WORDS = (
    f"The range of a launch that is chosen for its time reaches {CHOSEN - 1:.0%} further up, as"
    " such times are predicted too short more often than too long."
)
"""Why the launch has another range where it is not chosen."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted time of a launch, and the reasons."""

    us: float
    """The time of a launch, with the L2 cache flushed before it, us."""
    gbs: float | None
    """The bandwidth of its traffic in that time, GB/s; None if it moves nothing."""
    copy_gbs: float | None
    """The bandwidth of a plain copy of as many bytes, GB/s, launch included; None if it was not
    computed, as for a launch that no kernel of a matrix made."""
    parts: tuple[Part, ...]
    """The parts of the time: of the GPU's units that it keeps busy, and of none of them."""
    basis: str
    """The source of the model's constants, in words."""
    calibrated: bool
    """Whether the constants were measured on a GPU of this kind."""
    low_us: float
    """The lower end of the range that contains 80% of such launches, us."""
    high_us: float
    """The upper end of that range, us."""
    is_chosen: bool = False
    """Whether the launch was chosen as the fastest of several, so that its range is wider."""
    busiest: Part | None = None
    """The unit of the GPU that works longest, with its time at its peak rate: over the time it is
    what Nsight Compute calls the Speed Of Light."""

    def down_to(self, least: Prediction, why: str) -> Prediction:
        """Return the prediction of the most that a launch may do, with *least* as its lower end.

        *why* says what it does most of.
        """
        basis, low_us = f"{self.basis}, {why}", min(self.low_us, least.low_us)
        return dataclasses.replace(self, low_us=low_us, basis=basis)

    @property
    def as_chosen(self) -> Prediction:
        """The prediction with the range of the fastest of several launches."""
        return dataclasses.replace(self, high_us=self.high_us * CHOSEN, is_chosen=True)

    @property
    def noticeable(self) -> float:
        """The share by which another predicted time must differ to count as different."""
        return ratio_error(self.basis, self.bound)

    @property
    def noticeable_words(self) -> str:
        """The sentence on why a smaller difference does not count."""
        of = ""
        if NOT_FOLLOWED in self.basis:
            of = " of launches whose binary is not followed"
        elif self.bound == BANDWIDTH:
            of = " of launches that device memory bounds"
        return (
            f"A change of less than {self.noticeable:.0%} does not count, as the ratio of two"
            f" predicted times{of} is usually off by as much."
        )

    @property
    def longest(self) -> list[Part]:
        """The parts by the time that each would take alone, the longest first."""
        return sorted(self.parts, key=lambda part: -part.us)

    @property
    def bound(self) -> str:
        """The part that would take longest alone."""
        return self.longest[0].name

    @property
    def share_of_copy(self) -> float | None:
        """The bandwidth over a plain copy's; None if either is not known."""
        if self.gbs is None or self.copy_gbs is None:
            return None
        return self.gbs / self.copy_gbs

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as plain values."""
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
    """Return the time above the least, us: 0 if caches served reads, None if not known."""
    return None if us is None or least_us is None else max(us - least_us, 0.0)


def lost_columns(
    us: float | None, predicted_us: float | None, least_us: float | None
) -> dict[str, float | str | None]:
    """Return the columns of the time above the least: of the measured time, else the predicted."""
    found = time_lost(predicted_us if us is None else us, least_us)
    basis = "predicted" if us is None else "measured"
    return {"lost_us": found, "lost_of": None if found is None else basis}


def time_columns(prediction: Prediction | None) -> dict[str, float | str | None]:
    """Return the columns of a predicted time, all None without one."""
    found = None if prediction is None else prediction.busiest
    return {
        "predicted_us": None if prediction is None else prediction.us,
        "predicted_low_us": None if prediction is None else prediction.low_us,
        "predicted_high_us": None if prediction is None else prediction.high_us,
        "bound": None if prediction is None else prediction.bound,
        "busiest": None if found is None else found.name,
        "busiest_us": None if found is None else found.us,
    }
