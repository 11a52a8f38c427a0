"""How far a sweep is, on standard error, for a person at a terminal."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def shown_progress(*, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Give a function to call with the compiles done and to do; it draws their rate and time left.

    Nothing is drawn where standard error is no terminal, or with *quiet*.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _done, _of: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:.1f}/s")

    columns = (TextColumn("compiling"), BarColumn(), MofNCompleteColumn(), Rate())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("compiling", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
