"""Records of kernels whose resources are given, so that words do not depend on a compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from occupancy_lab import record
from occupancy_lab.explaining.case import Case
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.values import Config, Problem, Resources

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def make_case(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Case]:
    """Give a function that makes a case of resources instead of compiling."""
    monkeypatch.setattr(record, "triton_version", lambda: "3.7.1")

    def make(  # noqa: PLR0913 - what a record is made of
        gpu: str,
        resources: Resources,
        single_stage: Resources | None = None,
        *,
        kernel: str = "softmax",
        problem: Problem = Problem(4096, 781),  # noqa: B008 - it is frozen
        config: Config | None = None,
    ) -> Case:
        monkeypatch.setattr(record, "compile_resources", lambda *_, **__: resources)
        found, chosen = load_kernel(kernel), find_gpu(gpu)
        made = record.make_record(
            found,
            problem,
            config or found.default_config(problem, chosen.architecture.max_shared),
            chosen,
            record.Store(None),
        )
        return Case(made, single_stage or resources)

    return make
