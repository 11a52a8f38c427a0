"""Requests become records, together or alone."""

from pathlib import Path

import pytest
from stand_ins import put_calibration

from occupancy_lab.asked import ask
from occupancy_lab.compiled_records import record_of, records_of
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.kernel import load_kernel
from occupancy_lab.values import Config, Failure, Problem, Resources, Status

PROBLEM = Problem(4096, 781)
SOFTMAX = NamedKernel("softmax", load_kernel("softmax"))


@pytest.fixture(autouse=True)
def _calibrated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use known constants for predictions."""
    put_calibration(monkeypatch, tmp_path)


def test_records_are_those_of_each_launch_in_their_order() -> None:
    """Records of several launches and GPUs are as each has it alone, failures in their places.

    What compiled and does not fit keeps what it takes.
    """
    fine, large = Resources(32, 8, 64, instructions=90, loop_instructions=300), 300_000
    failure = Failure(Status.COMPILE_FAILED, "no luck")
    outcomes = [fine, failure, fine.replace(shared=large), fine, fine.replace(n_regs=64)]
    asked = [
        ask(SOFTMAX, PROBLEM, Config(1024, 8, stages), find_gpu(gpu))
        for stages, gpu in zip(
            (1, 2, 3, 4, 1), ("h200", "h100", "h200", "h100", "h200"), strict=True
        )
    ]
    found = records_of(asked, outcomes, triton="3.7.1")
    assert [one.row()["status"] for one in found] == [
        *("ok", "compile failed", "does not fit", "ok", "ok")
    ]
    for place in (0, 3, 4):
        assert found[place] == record_of(asked[place], outcomes[place], triton="3.7.1")
    assert found[2].row()["shared"] == large
