"""Cases made from given resources, so that words do not depend on a compiler."""

import dataclasses
from collections.abc import Callable, Iterator

import pytest
from records import record_of
from simple_times import simple_prediction, timed

from occupancy_lab.explaining.case import Case, Recorded
from occupancy_lab.explaining.neighbours import Neighbour
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import check_launch
from occupancy_lab.kernel import load_kernel
from occupancy_lab.prediction import Prediction
from occupancy_lab.record import Record
from occupancy_lab.values import Config, Measurement, Problem, Resources


@pytest.fixture(scope="module")
def given_times() -> Iterator[None]:
    """Give launches without counts the simple predicted time of a stand-in model."""
    own = Record.time_with

    def time_with(record: Record, programs: int) -> Prediction | None:
        plan = record.plan_with(programs)
        if record.counts is not None or plan is None:
            return own(record, programs)
        return simple_prediction(record, plan, programs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Record, "time_with", time_with)
        yield


@pytest.fixture
def make_case(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Case]:
    """Return a function that makes a case from resources instead of compiling."""

    def time_with(record: Record, programs: int) -> Prediction | None:
        plan = record.plan_with(programs)
        return None if plan is None else simple_prediction(record, plan, programs)

    monkeypatch.setattr(Record, "time_with", time_with)

    def make(  # noqa: PLR0913 - what a case is made of
        gpu: str,
        resources: Resources,
        single_stage: Resources | None = None,
        *,
        kernel: str = "softmax",
        problem: Problem = Problem(4096, 781),  # noqa: B008 - it is frozen
        config: Config | None = None,
        measurement: Measurement | None = None,
        recorded: Recorded = Recorded(),  # noqa: B008 - it is frozen
    ) -> Case:
        found, chosen = load_kernel(kernel), find_gpu(gpu)
        config = config or found.default_config(problem, chosen.architecture.max_shared)
        check_launch(found, problem, config, chosen)
        made = record_of(found, problem, config, chosen, resources)
        made = dataclasses.replace(timed(made), measurement=measurement)
        one_stage = dataclasses.replace(config, num_stages=1)
        if config == one_stage:
            return Case(made, recorded=recorded)
        single = timed(record_of(found, problem, one_stage, chosen, single_stage or resources))
        neighbour = Neighbour.of(made, {"num_stages": 1}, single)
        return Case(made, neighbours=(neighbour,), recorded=recorded)

    return make
