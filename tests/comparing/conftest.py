"""Entries made from given resources, so that words do not depend on a compiler."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from records import record_of
from samples import H100, MI300X

from occupancy_lab.comparing.entries import Entry, make_entries
from occupancy_lab.explaining.case import Case
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.values import Config, Problem


def _case(
    gpu: str = "h100",
    *,
    kernel: str = "softmax",
    config: Config | None = None,
    triton: str = "3.7.1",
    stages: int | None = None,
    **changes: Any,
) -> Case:
    found, chosen, problem = load_kernel(kernel), find_gpu(gpu), Problem(4096, 781)
    config = config or found.default_config(problem, chosen.architecture.max_shared)
    if stages is not None:
        config = dataclasses.replace(config, num_stages=stages)
    resources = MI300X if chosen.vendor == "AMD" else H100
    resources = resources.replace(**{"num_warps": config.num_warps, **changes})
    record = record_of(found, problem, config, chosen, resources, triton=triton)
    asked = frozenset() if stages is None else frozenset({"num_stages"})
    return Case(dataclasses.replace(record, matrix=dataclasses.replace(record.matrix, asked=asked)))


@pytest.fixture
def entries() -> Callable[..., tuple[Entry, ...]]:
    """Return a function that makes an entry for each set of changes to the tutorial's example."""
    return lambda *changes: make_entries([_case(**one) for one in changes])
