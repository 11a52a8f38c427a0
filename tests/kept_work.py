"""Computes what recorded launches execute once per test run, for all its processes."""

import functools
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compare_work
from recorded_work import RecordedLaunch


def kept(work: Callable[[RecordedLaunch], Any]) -> Callable[[RecordedLaunch], Any]:
    """Return *work* that keeps its results in this run's home directory."""

    @functools.cache
    def found(launch: RecordedLaunch) -> Any:
        # Evaluated per call, as the home of this run is set after its modules are imported.
        folder = Path.home() / "worked" / work.__name__
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{launch.gpu}-{launch.id}"
        if path.exists():
            return pickle.loads(path.read_bytes())  # noqa: S301 - a worker of this run wrote it
        made = work(launch)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(pickle.dumps(made))
        os.replace(file.name, path)  # noqa: PTH105 - in one step, as another worker may read it
        return made

    return found


compare_work.executed_of = kept(compare_work.executed_of)
compare_work.counts_of = kept(compare_work.counts_of)
