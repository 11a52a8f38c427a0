"""A dry run: which kernels a program would launch on a GPU that need not be here."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.assumptions import given_values
from occupancy_lab.compiling.environment import Environment
from occupancy_lab.compiling.script import Script
from occupancy_lab.compiling.store import store_directory
from occupancy_lab.errors import InputError, quoted, refuse
from occupancy_lab.explaining.script_lines import script_lines
from occupancy_lab.inputs import asked_gpus, chosen_gpus
from occupancy_lab.tracing.actions import NO_EFFORT, Effort
from occupancy_lab.tracing.lines import dry_run_of
from occupancy_lab.tracing.several import DryTraces
from occupancy_lab.tracing.trace import Trace
from occupancy_lab.workers.child import run

if TYPE_CHECKING:
    from occupancy_lab.inputs import AskedGpus

_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


def dry_traces(  # noqa: PLR0913 - one argument per option of the command line
    command: Sequence[str],
    *,
    gpu: AskedGpus | None = None,
    assume: Sequence[str] = (),
    timeout: float = 120.0,
    retry_failed: bool = False,
    effort: Effort = NO_EFFORT,
    progress: Callable[[str], None] = lambda _said: None,
) -> DryTraces:
    """Return what *command*, `python FILE.py ...`, would launch on each GPU, without a GPU.

    The named Python runs the file as a program, for each GPU separately. Tensors on "cuda" have a
    shape, a dtype and strides; small ones have the values that the program gives them. *gpu* None
    means the GPU of this machine, or the H100. *assume* gives values that only a GPU could compute,
    each as `bool=true`, `int=64`, `float=0.5` or, for a single line, `file.py:12=64`.

    *timeout* is the time limit in seconds, after which the program is stopped wherever it is.
    *retry_failed* compiles again what the store has as a failed compile. *effort* says how much is
    compiled for each GPU to find the changes that save most. *progress* is called with a sentence
    before slow steps, and with "" after them.

    The outcome's status is the program's, or 1 if launches are missing or no kernel compiles. After
    an interrupt the result so far is returned, with the status of the interrupt and without further
    GPUs.

    Raises InputError if *command* names no file, or no Python that has torch and Triton, if the
    file does not end in time, and for GPUs that `asked_gpus` refuses.
    """
    file, arguments = _script(command)
    how: dict[str, Any] = {"arguments": arguments, "assume": given_values(assume)}
    how |= {"timeout": timeout, "retry_failed": retry_failed, "progress": progress}
    how |= {"environment": _environment(command[0])}
    found = []
    for one in asked_gpus(gpu) if gpu is not None else (chosen_gpus(None)[0][0],):
        with Script(file, one, store_directory(), **how) as script:
            found.append(dry_run_of(script, script_lines(script), tuple(command), effort))
        if script.interrupted is not None:
            break
    return DryTraces(tuple(command), tuple(found))


def dry_trace(command: Sequence[str], **asked: Any) -> Trace:
    """Return what *command* would launch on one GPU; the arguments are those of `dry_traces`."""
    return dry_traces(command, **asked).traces[0].trace


def _script(command: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    for place, word in enumerate(command):
        if word.endswith(".py"):
            if not Path(word).is_file():
                refuse(f"there is no file {quoted(word)} to run dry")
            return word, tuple(command[place + 1 :])
        if place and not word.startswith("-"):
            break
    return refuse(
        f"{quoted(shlex.join(command))} names no FILE.py: give `python FILE.py ...`, with the file"
        " that a `-m` or a script stands for"
    )


def _environment(word: str) -> Environment:
    """Return the Python that the first *word* of a command means, as a shell finds it.

    It is this process's Python if the word names none, or if `python` without a path lacks torch or
    Triton.

    Raises InputError if a path leads to no Python, or to one that lacks them.
    """
    from occupancy_lab.compiling.environment import ANSWERING, find_environment, running_environment

    if not re.fullmatch(r"python[\d.]*", Path(word).name):
        return running_environment()
    found = shutil.which(word)
    if found is not None and Path(found).absolute().parent == Path(sys.executable).parent:
        return running_environment()
    try:
        if found is None:
            refuse(f"there is no Python {quoted(word)}")
        environment = find_environment(found)
        if run([environment.python, "-c", _HAS_TORCH], ANSWERING).returncode:
            refuse(f"{word} has no torch that it can import")
    except InputError as error:
        if "/" not in word:
            return running_environment()
        refuse(f"{error}; give one that has torch and Triton, such as {sys.executable}")
    return environment
