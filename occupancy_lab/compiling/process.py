"""A compile in a process of its own, which can be timed out and killed, and may die."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from occupancy_lab.child import Child
from occupancy_lab.values import Failure, Resources

if TYPE_CHECKING:
    from occupancy_lab.compiling.request import Request

ATTEMPTS = 3
"""How often a compile is tried whose process dies: killed from outside, it may well work again."""


class CompileProcess:
    """One compiling process, started when it is first needed and again after it died."""

    def __init__(self, python: str = sys.executable) -> None:
        """Compile with the interpreter *python* and the Triton of its environment."""
        self._child = Child("occupancy_lab.compiling.server", python=python)

    def compile(self, request: Request, timeout: float | None) -> Resources | Failure:
        """Return what *request* compiles to, within *timeout* seconds a try."""
        for _ in range(ATTEMPTS):
            if self._child.closed:
                return Failure("compile failed", "interrupted", lasting=False)
            line = self._child.ask(request.to_json(), timeout)
            if line is None:
                return Failure("timed out", f"longer than {timeout:g} s", timeout)
            if line:
                return _outcome(json.loads(line))
        reason = f"the compiling process died {ATTEMPTS} times"
        return Failure("compile failed", reason, lasting=False)

    def close(self) -> None:
        """End the process for good, from any thread and in the middle of a compile too."""
        self._child.close()


def _outcome(answer: dict[str, Any]) -> Resources | Failure:
    if "failure" in answer:
        return Failure(**answer["failure"])
    return Resources(**answer["resources"])
