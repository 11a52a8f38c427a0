"""The CUDA formula equals NVIDIA's own cuda_occupancy.h."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.gpus import CudaArchitecture, architectures
from occupancy_lab.occupancy import cuda, occupancy
from occupancy_lab.occupancy.rule import UNLIMITED, programs
from occupancy_lab.values import Resources

Points = Mapping[str, np.ndarray]
AskHeader = Callable[[CudaArchitecture, Points], Points]

CUDA = [item for item in architectures().values() if isinstance(item, CudaArchitecture)]
POINTS_PER_ARCHITECTURE = 200_000


def points_of(sm: CudaArchitecture) -> Points:
    """Return points for *sm*: one half from the whole range, the other such as kernels really are.

    The first half holds much that cannot be launched, a little beyond each maximum included.
    """
    random = np.random.default_rng(int(sm.target.arch))
    half = POINTS_PER_ARCHITECTURE // 2
    most = sm.max_shared + 2048

    def mixed(whole_range: np.ndarray, likely: np.ndarray) -> np.ndarray:
        return np.concatenate([whole_range, likely])

    small = random.integers(0, 2048, half)
    quarter = random.integers(0, most // 4, half)
    return {
        "num_warps": mixed(random.integers(1, 34, half), 2 ** random.integers(0, 6, half)),
        "n_regs": mixed(random.integers(0, 260, half), random.integers(16, 129, half)),
        "shared": mixed(
            random.integers(0, most, half), np.where(random.random(half) < 0.5, small, quarter)
        ),
        "static_shared": mixed(
            np.where(random.random(half) < 0.5, random.integers(0, 49153, half), 0),
            np.where(random.random(half) < 0.1, random.integers(0, 4096, half), 0),
        ),
        "barriers": mixed(random.integers(0, 17, half), random.integers(0, 3, half)),
    }


def limits_of(sm: CudaArchitecture, points: Points) -> Points:
    """Return the formula's limits for all *points* at once, and the smallest."""
    found = programs(cuda.RULES, SimpleNamespace(**{"tensor_memory": None, **points}), sm, np.where)
    every = {"barriers": UNLIMITED, **found}
    return every | {"active": np.minimum.reduce(np.broadcast_arrays(*every.values()))}


@pytest.mark.parametrize("sm", CUDA, ids=lambda sm: sm.target_name)
def test_equals_nvidias_header(ask_header: AskHeader, sm: CudaArchitecture) -> None:
    """Programs per SM and each limit equal the header's at every point."""
    points = points_of(sm)
    said = ask_header(sm, points)
    assert not said["error"].any()
    for name, found in limits_of(sm, points).items():
        differing = np.flatnonzero(found != said[name])
        first = {key: int(column[differing[0]]) for key, column in points.items() if len(differing)}
        assert len(differing) == 0, f"{len(differing)} points differ in {name}, first {first}"


@pytest.mark.parametrize("sm", CUDA, ids=lambda sm: sm.target_name)
def test_points_reach_everything(ask_header: AskHeader, sm: CudaArchitecture) -> None:
    """Most points can be launched, and each limit alone decides some of them."""
    said = ask_header(sm, points_of(sm))
    assert np.mean(said["active"] > 0) > 0.6
    resources = ["warps", "registers", "shared", "programs"]
    if sm.compute_capability >= "9.0" or len(sm.compute_capability) > 3:
        resources.append("barriers")
    attained = np.stack([said[resource] == said["active"] for resource in resources])
    alone = attained & (attained.sum(axis=0) == 1) & (said["active"] > 0)
    assert alone.any(axis=1).all()


def test_more_columns_than_there_are_fit_nowhere() -> None:
    """More than 512 columns never run; an SM without them has no limit."""
    resources = Resources(16, 1, 0, tensor_memory=513)
    assert occupancy(resources, architectures()["sm_100"]).programs_per_multiprocessor == 0
    assert "tensor_memory" not in {
        limit.resource for limit in occupancy(resources, architectures()["sm_120"]).limits
    }


@given(st.integers(0, 512), st.integers(0, 512), st.sampled_from(["sm_100", "sm_103"]))
def test_as_many_allocations_fit_as_are_handed_out(less: int, more: int, name: str) -> None:
    """Programs that each allocate columns fit the 512."""
    found = [
        occupancy(Resources(16, 1, 0, tensor_memory=columns), architectures()[name])
        for columns in sorted((less, more))
    ]
    few, many = (each.programs_per_multiprocessor for each in found)
    assert few >= many
    allocated = max(32, 1 << (max(less, more) - 1).bit_length()) if max(less, more) else 0
    assert many == min(32, 512 // allocated if allocated else 32)
