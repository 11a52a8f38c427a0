"""Drawn programs run dry as they run on the CPU, and every launch is noted."""

import collections
import json
import os
from pathlib import Path

from occupancy_lab.compiling.script import Run, Script
from occupancy_lab.gpus import find_gpu

EXAMPLES = int(os.environ.get("OCCUPANCY_LAB_COMMAND_LINES", "300"))


def test_a_drawn_program_runs_dry(tmp_path: Path) -> None:
    """Shapes, dtypes and values equal the CPU's, and no launch is missing."""
    program, told = Path(__file__).with_name("drawn_program.py"), tmp_path / "launched.json"
    words = (str(EXAMPLES), str(told))
    with Script(Run(str(program), find_gpu("h100"), arguments=words, seconds=3600)) as script:
        assert script.ran.failure is None, script.ran.failure
        found: collections.Counter[str] = collections.Counter()
        for one in script.launches:
            found[str((one.bound.launch.grid or ())[0])] += one.times
        assert found == json.loads(told.read_text("utf-8"))
        assert (script.ran.status, script.ran.missing, script.ran.faults) == (0, (), ())
