"""The process that measures for others, on the one GPU that it sees."""

from __future__ import annotations

import os

from occupancy_lab.measuring.measure import DeviceLostError, conditions, measure
from occupancy_lab.measuring.request import Request, measurements_to_json
from occupancy_lab.values import Measurement
from occupancy_lab.workers.child import serve


def answer(line: str) -> str:
    """Return the measurements of the request *line*.

    A lost GPU ends the process: at once where several launches could be the cause, after the
    answer where it was the only one.
    """
    request = Request.from_json(line)
    try:
        return measurements_to_json(measure(request))
    except DeviceLostError as error:
        if len(request.launches) > 1:
            os._exit(1)
        return measurements_to_json([Measurement("device lost", conditions(), str(error))])


def main() -> None:
    """Serve, once torch has found the GPU."""
    conditions()
    serve(answer)
