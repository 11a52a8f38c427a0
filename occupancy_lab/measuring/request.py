"""A measurement that another process can take: what to launch on which problem, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.values import Config, Measurement, Problem
from occupancy_lab.workers.messages import from_line, to_line

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_RUNS = 30


@dataclass(frozen=True, slots=True)
class Launch:
    """One thing to time on a problem: a kernel's launch, or a provider by its name."""

    kernel: str
    """What `load_kernel` finds it by, or the name of a provider."""
    config: Config | None = None
    """None for a provider."""
    num_programs: int = 1


@dataclass(frozen=True, slots=True)
class Request:
    """Launches to be timed side by side on one problem."""

    problem: Problem
    launches: tuple[Launch, ...]
    runs: int = DEFAULT_RUNS

    def to_json(self) -> str:
        """Return the request as one line of JSON."""
        return to_line(self)

    @classmethod
    def from_json(cls, line: str) -> Request:
        """Return the request of a line that `to_json` made."""
        request: Request = from_line(cls, line)
        return request


def measurements_to_json(measurements: Sequence[Measurement]) -> str:
    """Return *measurements* as one line of JSON."""
    return to_line(measurements)


def measurements_from_json(line: str) -> list[Measurement]:
    """Return the measurements of a line that `measurements_to_json` made.

    Raises ValueError for any other line.
    """
    return list(from_line(tuple[Measurement, ...], line))
