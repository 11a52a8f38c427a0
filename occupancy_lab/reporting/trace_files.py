"""The files that are written of a trace besides its page: what the command line asks for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy_lab.errors import refuse
from occupancy_lab.files import HTML, check_outputs, check_page, check_picture, export

if TYPE_CHECKING:
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
            from occupancy_lab.tracing.timeline import timeline

            export(Path(self.timeline), json.dumps(timeline(found)))
