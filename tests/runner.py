"""How the runner of GitHub Actions finds commands in what a step prints."""

from __future__ import annotations

import re


def commands_in(printed: str) -> list[str]:
    """Return the lines of *printed* that the runner takes for a command.

    It reads lines as .NET does, skips blanks, and takes "::" at the beginning or "##[" anywhere
    (actions/runner, ActionCommand.cs). Codes of colours are skipped here too.
    """
    lines = re.split(r"\r\n|\r|\n", re.sub(r"\x1b\[[\d;]*m", "", printed))
    return [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
