"""The files that are written of a trace besides its page: what the command line asks for."""

from __future__ import annotations

import itertools
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import refuse
from occupancy_lab.files import HTML, check_outputs, check_page, check_picture, export
from occupancy_lab.tracing.page import configuration, shown_kernels
from occupancy_lab.tracing.traced import Launched

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from occupancy_lab.tracing.trace import Trace


@dataclass(frozen=True, slots=True)
class TraceFiles:
    """Which files are wanted; None is for one that is not."""

    plot: str | None = None
    """The picture of the roofline."""
    report: str | None = None
    """The report, of markdown or HTML."""
    timeline: str | None = None
    """The launches one after another, as a Chrome trace."""

    def check(self, output: str | None, gpu: str | None) -> None:
        """Raise InputError, before a program is run, for what cannot be written.

        *output* is where the page goes, and *gpu* the GPU, or several with commas.
        """
        from occupancy_lab.reporting.contents import picture_folder

        if self.report is not None:
            check_page(self.report)
        wanted = {"--plot": self.plot, "--report": self.report, "--timeline": self.timeline}
        pictures = {}
        if self.report is not None and Path(self.report).suffix.lower() not in HTML:
            pictures["the folder of pictures"] = picture_folder(Path(self.report))
        check_outputs({"--output": output, **wanted}, pictures=pictures)
        if self.plot is not None:
            check_picture(self.plot)
        given = [option for option, path in wanted.items() if path is not None]
        if given and gpu is not None and "," in gpu:
            refuse(f"{given[0]} is of one GPU, and --gpu names several")

    def write(self, found: Trace) -> None:
        """Write what is wanted of *found*.

        Raises InputError where a file cannot be written, and for a roofline of no kernel.
        """
        if self.plot is not None:
            from occupancy_lab.plotting.style import save
            from occupancy_lab.reporting.roofline import draw_trace

            save(draw_trace(found.found), Path(self.plot))
        if self.report is not None:
            from occupancy_lab.reporting.trace_report import write_trace_report

            write_trace_report(found, Path(self.report))
        if self.timeline is not None:
            export(Path(self.timeline), json.dumps(timeline(found)))


MOST_SHOWN = 4096
"""The launches of a process whose order nobody noted."""


def timeline(found: Trace) -> dict[str, Any]:
    """Return the last launches of each process, one after another, as the plain values of a file.

    A launch takes the mean measured time of those of its kernel over its grid, or where nothing was
    measured the predicted one; one without such a time is a mark. What lay between two launches,
    of the host or of other kernels, is not there.
    """
    launches = found.found.recent or tuple(_in_any_order(found))
    measured = any(one.grid.us is not None for one in launches)
    basis = "measured" if measured else "predicted"
    events: list[dict[str, Any]] = []
    for pid, group in itertools.groupby(launches, key=lambda one: one.pid):
        events += _of_process(pid, group, found, basis=basis)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "times": f"{basis}, a mean of each kernel and grid",
            "order": "as launched" if found.found.recent else "not known: kernel after kernel",
        },
    }


def _in_any_order(found: Trace) -> Iterator[Launched]:
    """Return launches of all kernels, one kernel after the other, as many as are shown."""
    each = (
        Launched(kernel, grid, 0)
        for kernel in shown_kernels(found.found)
        for grid in kernel.grids
        for _ in range(min(grid.launches, MOST_SHOWN))
    )
    return itertools.islice(each, MOST_SHOWN)


def _of_process(
    pid: int, launches: Iterable[Launched], found: Trace, *, basis: str
) -> Iterator[dict[str, Any]]:
    program = "" if found.outcome is None else shlex.join(found.outcome.command)
    name = {"name": f"{program or 'launches'}, {basis}"}
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": name}
    at = 0.0
    for one in launches:
        time = one.grid.measured if basis == "measured" else one.grid.predicted
        event: dict[str, Any] = {
            "name": one.kernel.kernel,
            "cat": basis,
            "pid": pid,
            "tid": 0,
            "ts": at,
            "args": _arguments(one),
        }
        if time is None or not time.launches:
            yield {**event, "ph": "i", "s": "t", "name": f"{one.kernel.kernel}: no time is known"}
            continue
        us = time.us / time.launches
        yield {**event, "ph": "X", "dur": us}
        at += us


def _arguments(one: Launched) -> dict[str, Any]:
    """Return what Perfetto shows of a launch that is selected; what is not known is missing."""
    record = one.grid.record
    prediction = None if record is None else record.prediction
    light = None if record is None else record.speed_of_light
    values = {
        "grid": None if one.grid.grid is None else "x".join(map(str, one.grid.grid)),
        "configuration": configuration(one.kernel),
        "speed_of_light_us": None if light is None else light.us,
        "predicted_us": None if prediction is None else prediction.us,
        "bound": None if prediction is None else prediction.bound,
    }
    return {name: value for name, value in values.items() if value is not None}
