"""A measurement that another process can take: what to launch on which problem, as plain values."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from occupancy_lab.values import Conditions, Config, Measurement, Problem

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
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Request:
        """Return the request of a line that `to_json` made."""
        values = json.loads(line)
        return cls(
            problem=Problem(**values["problem"]),
            launches=tuple(_launch(fields) for fields in values["launches"]),
            runs=values["runs"],
        )


def _launch(fields: dict[str, object]) -> Launch:
    config = fields["config"]
    known = Config(**config) if isinstance(config, dict) else None
    return Launch(str(fields["kernel"]), known, int(str(fields["num_programs"])))


def measurements_to_json(measurements: list[Measurement]) -> str:
    """Return *measurements* as one line of JSON."""
    return json.dumps([dataclasses.asdict(measurement) for measurement in measurements])


def measurements_from_json(line: str) -> list[Measurement]:
    """Return the measurements of a line that `measurements_to_json` made."""
    return [
        Measurement(**(fields | {"conditions": _conditions(fields["conditions"])}))
        for fields in json.loads(line)
    ]


def _conditions(fields: dict[str, object] | None) -> Conditions | None:
    return None if fields is None else Conditions(**fields)  # type: ignore[arg-type] # from asdict
