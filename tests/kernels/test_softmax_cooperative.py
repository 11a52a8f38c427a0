"""The softmax of rows that several programs share gives torch's softmax, launch after launch."""

import dataclasses
from collections.abc import Callable
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matrices import (
    DTYPES,
    INF,
    MATRICES,
    MAX_SHARED,
    check_softmax,
    ends_of_float32,
    problem_of,
    random_matrix,
)
from records import compile_resources, counted_record
from torch import Tensor

from occupancy_lab.compiling import Store
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu, present_gpus
from occupancy_lab.kernel import kept_workspace
from occupancy_lab.kernels import softmax_cooperative
from occupancy_lab.kernels.softmax_cooperative import KERNEL, MOST_PARTS, together, work, workspace
from occupancy_lab.occupancy import occupancy
from occupancy_lab.values import Config, Problem

LONG = 9001
"""Three parts of the default 4096, the last one not full, in rows that begin anywhere."""
on_gpu = pytest.mark.parametrize(
    "launch", [pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True
)


def default_config(x: Tensor) -> Config:
    """Return the kernel's own configuration for *x* on a GPU like the H100."""
    return KERNEL.default_config(problem_of(x), MAX_SHARED)


def multiprocessors() -> int:
    """Return the GPU's multiprocessors: as many programs always fit it at once."""
    return torch.cuda.get_device_properties(0).multi_processor_count


def resident(x: Tensor, config: Config) -> int:
    """Return the predicted number of programs that the GPU holds at once."""
    gpu = present_gpus()[0].gpu
    found = compile_resources(KERNEL, problem_of(x), config, gpu.target, Store(None))
    return occupancy(found, gpu.architecture).programs_per_multiprocessor * gpu.multiprocessors


def widened(x: Tensor) -> Tensor:
    """Return *x* with its columns repeated until they are LONG."""
    return x.repeat(1, -(-LONG // x.shape[1]))[:, :LONG].contiguous()


@pytest.fixture
def conforms(launch: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function that checks a launch: `conforms(x, config, num_programs)`.

    It returns the result of the launch.
    """

    def conform(
        x: Tensor,
        config: Config | None = None,
        num_programs: int | None = None,
        epsilons: float | None = None,
    ) -> Tensor:
        programs = num_programs or multiprocessors()
        result = launch(KERNEL.run, x, config or default_config(x), programs)
        check_softmax(result, x, epsilons)
        return result

    return conform


@on_gpu
@pytest.mark.parametrize("matrix", [name for name in MATRICES if name != "no columns"])
def test_long_rows_equal_torch(conforms: Callable[..., Tensor], matrix: str) -> None:
    """Every dtype and special value gives torch's softmax if three programs share a row."""
    x = widened(MATRICES[matrix]())
    config = Config(4096, 2, 1)
    assert together(problem_of(x), config) == 3
    conforms(x, config)


@on_gpu
@pytest.mark.parametrize(("cols", "dtype"), [(8200, torch.bfloat16), (20_001, torch.float32)])
def test_any_config_gives_the_same_softmax(
    conforms: Callable[..., Tensor], cols: int, dtype: torch.dtype
) -> None:
    """Parts of any size in one or two pieces, other warps and other stages give the same result."""
    x = random_matrix(70, cols, dtype)
    configs = KERNEL.configs(problem_of(x))
    assert configs
    for config in configs:
        conforms(x, config)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [131_072, 300_001])
def test_rows_of_many_parts_equal_torch(
    conforms: Callable[..., Tensor], cols: int, dtype: torch.dtype
) -> None:
    """Rows that 32 or 74 programs share are complete."""
    conforms(random_matrix(9, cols, dtype))


@on_gpu
@pytest.mark.parametrize("num_programs", [3, 4, 7, 100, 100_000])
def test_any_number_of_programs_takes_every_part(
    conforms: Callable[..., Tensor], num_programs: int
) -> None:
    """Each part is written, by as few programs as share a row or by more than there are parts."""
    conforms(random_matrix(30, LONG), num_programs=num_programs)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_around_parts_and_chunks_are_whole(
    conforms: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    """Rows slightly shorter or longer than whole parts are written, and nothing beyond."""
    for cols in (2047, 2048, 2049, 2052, 2056, 2057, 3071, 3072, 3073):
        conforms(random_matrix(9, cols, dtype), Config(1024, 1, 1))


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("first", "stride"), [(1, 9003), (0, 9003), (1, 9005), (8, 9009)])
def test_rows_may_lie_anyhow(
    conforms: Callable[..., Tensor], first: int, stride: int, dtype: torch.dtype
) -> None:
    """Rows at any distance, from any column on, give torch's softmax."""
    conforms(random_matrix(5, stride, dtype)[:, first : first + LONG])


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_minus_infinity_count_for_nothing(
    conforms: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    """Whole parts of -inf do not change a row unless all of it is -inf."""
    x = random_matrix(6, LONG, dtype)
    x[0, :4100] = -INF
    x[1, 4090:8200] = -INF
    x[2, 100:] = -INF
    x[3, :-1] = -INF
    x[4] = -INF
    assert conforms(x).isnan().any(dim=1).tolist() == [False] * 4 + [True, False]


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("below", [5, 20, 80, 200])
def test_a_part_may_be_far_below_the_rows_maximum(
    conforms: Callable[..., Tensor], below: int, dtype: torch.dtype
) -> None:
    """A part's own maximum scales to the row's, down to the smallest float32."""
    x = random_matrix(3, LONG, dtype)
    for row in range(3):
        x[row, row * 4096 : (row + 1) * 4096] -= below
    conforms(x, epsilons=64)


@on_gpu
def test_the_ends_of_float32_are_no_exception(conforms: Callable[..., Tensor]) -> None:
    """The lowest number is not mistaken for -inf, nor a difference beyond float32 for NaN."""
    conforms(ends_of_float32(LONG))


@pytest.mark.gpu
def test_launches_leave_the_workspace_as_the_next_one_needs_it() -> None:
    """50 alternating launches of two shapes are right; each finds its words and counters at 0."""
    kept_workspace.cache_clear()
    matrices = [random_matrix(64, LONG).cuda(), random_matrix(100, 20_000).cuda()]
    config = Config(4096, 2, 1)
    stream = torch.cuda.current_stream().cuda_stream
    for launches in range(1, 26):
        for x in matrices:
            y = KERNEL.run(x, config, multiprocessors())
            problem = problem_of(x)
            kept = kept_workspace(x.device, stream, workspace(problem, config)).cpu()
            assert kept[:3].tolist() == [0, 0, launches]
            words = kept[32:].view(torch.int64).view(2, work(problem, config))
            assert not words[launches % 2].any()
            assert words[1 - launches % 2].all()
            check_softmax(y.cpu(), x.cpu())
    assert kept_workspace.cache_info().misses == 2


@pytest.mark.gpu
def test_two_streams_launch_at_once() -> None:
    """Simultaneous launches share no workspace."""
    kept_workspace.cache_clear()
    matrices = [random_matrix(300, LONG).cuda(), random_matrix(300, LONG).flip(1).cuda()]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    results: list[list[Tensor]] = [[], []]
    for _ in range(20):
        for x, stream, found in zip(matrices, streams, results, strict=True):
            with torch.cuda.stream(stream):
                found.append(KERNEL.run(x, default_config(x), multiprocessors()))
    torch.cuda.synchronize()
    for x, found in zip(matrices, results, strict=True):
        check_softmax(found[0].cpu(), x.cpu())
        assert all(torch.equal(y, found[0]) for y in found)
    assert kept_workspace.cache_info().misses == 2


@pytest.mark.gpu
def test_a_cuda_graph_replays_it() -> None:
    """A captured launch replays on new values, between others that are not in the graph."""
    static = random_matrix(64, LONG).cuda()
    config = default_config(static)
    KERNEL.run(static, config, multiprocessors())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = KERNEL.run(static, config, multiprocessors())
    for replay in range(20):
        x = random_matrix(64, LONG).roll(replay, dims=1) + replay
        static.copy_(x)
        graph.replay()
        beside = KERNEL.run(static, config, multiprocessors())
        torch.cuda.synchronize()
        check_softmax(y.cpu(), x)
        assert torch.equal(beside, y)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("config", [Config(4096, 2, 1), Config(8192, 4, 1), Config(4096, 4, 3)])
def test_exactly_as_many_programs_as_predicted_fit(
    config: Config,
    dtype: torch.dtype,
) -> None:
    """The driver accepts the predicted number of resident programs and refuses one more."""
    x = random_matrix(4000, LONG, dtype)
    on_gpu = x.cuda()
    programs = resident(x, config)
    assert together(problem_of(x), config) <= programs < work(problem_of(x), config)
    y = KERNEL.run(on_gpu, config, programs)
    torch.cuda.synchronize()
    check_softmax(y[::100].cpu(), x[::100])
    with pytest.raises(RuntimeError, match="cooperative"):
        KERNEL.run(on_gpu, config, programs + 1)
    assert torch.equal(KERNEL.run(on_gpu, config, programs), y)


def test_fewer_programs_than_share_a_row_are_refused() -> None:
    """A launch is refused if its programs would wait for one that is not launched."""
    message = (
        "num_programs is 2, and 3 programs of 4096 elements share a row and wait for each other"
    )
    with pytest.raises(InputError, match=message):
        KERNEL.run(random_matrix(2, LONG), Config(4096, 2, 1), 2)


@pytest.mark.parametrize(
    ("cols", "dtype", "block_size", "such_as"),
    [
        (LONG, "float32", 0, 4096),
        (LONG, "float32", 64, 4096),
        (LONG, "float32", 4160, 4096),
        (LONG, "bfloat16", 4224, 4096),
        (131_072, "float32", 128, 4096),
        (600_000, "float32", 1024, 8192),
        (9_000_000, "float32", 16_384, 17_664),
    ],
)
def test_a_block_that_makes_no_parts_is_refused(
    cols: int, dtype: str, block_size: int, such_as: int
) -> None:
    """Parts below 512 bytes, or too many, are refused, and a suitable BLOCK_SIZE is named."""
    problem = Problem(2, cols, dtype)
    message = (
        f"BLOCK_SIZE is {block_size}; softmax_cooperative takes a multiple of"
        f" {512 // problem.item_bytes} that a row of {cols} has at most 512 of, such as {such_as}$"
    )
    with pytest.raises(InputError, match=message):
        KERNEL.constexprs(problem, Config(block_size, 2, 1))
    assert KERNEL.constexprs(problem, Config(such_as, 2, 1))["PARTS"] <= MOST_PARTS


@pytest.mark.usefixtures("record")
def test_a_workspace_is_a_streams_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches on a stream share a workspace, other streams and captures have their own."""
    passed = []
    kernel = {(6,): lambda *arguments, **_: passed.append(arguments[2])}
    monkeypatch.setattr(softmax_cooperative, "softmax_cooperative_kernel", kernel)
    x = random_matrix(2, LONG)

    def launched(stream: int, *, capturing: bool = False) -> Tensor:
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: Mock(cuda_stream=stream))
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
        KERNEL.run(x, default_config(x), 9)
        return passed[-1]

    first = launched(7)
    assert not first.any()
    assert launched(7) is first
    assert launched(8) is not first
    captured = launched(9, capturing=True)
    assert launched(9, capturing=True) is not captured
    assert launched(9) is not captured


@given(
    cols=st.integers(1, 2_000_000),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
)
def test_parts_hold_the_row(cols: int, dtype: str) -> None:
    """The parts of each configuration hold the row, and none is empty."""
    problem = Problem(3, cols, dtype)
    for config in (*KERNEL.configs(problem), KERNEL.default_config(problem, MAX_SHARED)):
        passed = KERNEL.constexprs(problem, config)
        parts, power = passed["PARTS"], passed["PARTS_POWER"]
        assert 0 <= parts * config.block_size - cols < config.block_size
        assert power // 2 < parts <= power


def test_a_rows_programs_wait_for_each_other_once() -> None:
    """A program waits once for each part that it takes, and its time includes that."""
    problem = Problem(512, 32_768)
    config = KERNEL.default_config(problem, 0)
    found = counted_record(KERNEL, problem, config, find_gpu("h100"))
    parts = KERNEL.pieces(problem, config)
    assert found.executed.program.waits == pytest.approx(parts / found.plan.num_programs)
    alone = dataclasses.replace(found.executed.program, waits=0.0)
    executed = dataclasses.replace(found.executed, program=alone)
    without = dataclasses.replace(found, executed=executed).with_time().prediction
    assert without.us < found.prediction.us
