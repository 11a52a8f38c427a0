"""Runs a command like GitHub Actions' runner, and finds the runner's commands in its output."""

import os
import re
import subprocess
import sys
from pathlib import Path


def shell(
    command: str, folder: Path, flags: str = "-e -o pipefail", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in *folder* like a CI job, with the tool on the PATH and without a GPU."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ours = {"PATH": places, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80", "GITHUB_ACTIONS": ""}
    return subprocess.run(
        ["/bin/bash", *flags.split(), "-c", command],
        cwd=folder,
        env=os.environ | ours | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def commands_in(printed: str) -> list[str]:
    """Return the lines of *printed* that the runner takes for a command.

    It reads lines as .NET does, skips blanks, and takes "::" at the beginning or "##[" anywhere
    (actions/runner, ActionCommand.cs). Codes of colours are skipped here too.
    """
    lines = re.split(r"\r\n|\r|\n", re.sub(r"\x1b\[[\d;]*m", "", printed))
    return [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
