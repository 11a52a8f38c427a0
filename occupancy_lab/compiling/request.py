"""A compile that another process can do: what to compile, as plain values."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from occupancy_lab.values import Config, Problem, Target


@dataclass(frozen=True, slots=True)
class Request:
    """One compile: a kernel's name or file, and all that `compile_resources` needs besides."""

    kernel: str
    problem: Problem
    config: Config
    target: Target
    store: str | None
    """The store's directory; None where the process that compiles is to keep nothing."""
    key: str | None = None
    """The `resource_key` that it must have where it is compiled, as JSON; None takes any."""

    def to_json(self) -> str:
        """Return the request as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Request:
        """Return the request of a line that `to_json` made."""
        values = json.loads(line)
        return cls(
            kernel=values["kernel"],
            problem=Problem(**values["problem"]),
            config=Config(**values["config"]),
            target=Target(**values["target"]),
            store=values["store"],
            key=values["key"],
        )
