"""A compile that another process can do: what to compile, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from occupancy_lab.values import Config, Problem, Target  # noqa: TC001 - from_line reads them
from occupancy_lab.workers.messages import from_line, to_line


@dataclass(frozen=True, slots=True)
class Import:
    """A kernel file that is to be imported, and nothing more."""

    file: str


@dataclass(frozen=True, slots=True)
class Request:
    """One compile: a kernel's name or file, and all that `compile_resources` needs besides."""

    kernel: str
    problem: Problem
    config: Config
    target: Target
    store: str | None
    """The store's directory; None where the process that compiles is to keep nothing."""
    present: bool = False
    """Whether the target's GPU is here, and what is compiled is to be loaded on it."""
    key: str | None = None
    """The `resource_key` that it must have where it is compiled, as JSON; None takes any."""

    def to_json(self) -> str:
        """Return the request as one line of JSON."""
        return to_line(self)

    @classmethod
    def from_json(cls, line: str) -> Request:
        """Return the request of a line that `to_json` made."""
        request: Request = from_line(cls, line)
        return request
