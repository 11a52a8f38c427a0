"""How far a sweep is, on standard error, for a person at a terminal."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def shown_progress(*stages: str, quiet: bool = False) -> Iterator[list[Callable[[int, int], None]]]:
    """Return for each of *stages* a function to call with what is done and to do.

    It draws the stage's rate and time left. Nothing is drawn where standard error is no terminal,
    or with *quiet*.
    """
    if quiet or not sys.stderr.isatty():
        yield [lambda _done, _of: None for _ in stages]
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:.1f}/s")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:

        def shown(task: TaskID) -> Callable[[int, int], None]:
            return lambda done, of: bar.update(task, completed=done, total=of, visible=True)

        yield [shown(bar.add_task(stage, total=None, visible=False)) for stage in stages]
