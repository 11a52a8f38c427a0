"""The softmax of rows that several programs share gives torch's softmax, launch after launch."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matrices import DTYPES, INF, MAX_SHARED, ends_of_float32, problem_of

from occupancy_lab.compiling import Store, compile_resources
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu, present_gpus
from occupancy_lab.inputs import check_config
from occupancy_lab.kernel import OPTIONS, Grid, MemoryStep
from occupancy_lab.kernels import softmax_cooperative
from occupancy_lab.kernels.softmax_cooperative import (
    KERNEL,
    MOST_PARTS,
    kept_workspace,
    together,
    work,
    workspace,
)
from occupancy_lab.occupancy import occupancy
from occupancy_lab.occupancy.planning import plan_launch
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import ProcessPoolExecutor

    from torch import Tensor

LONG = 9001
"""Three parts of the default 4096, the last one not full, and rows that begin anywhere."""
on_gpu = pytest.mark.parametrize(
    "launch", [pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True
)


def default_config(x: Tensor) -> Config:
    """Return the kernel's own configuration for *x* on a GPU like the H100."""
    return KERNEL.default_config(problem_of(x), MAX_SHARED)


def multiprocessors() -> int:
    """Return those of the GPU at hand: as many programs always fit it at once."""
    return torch.cuda.get_device_properties(0).multi_processor_count


def resident(x: Tensor, config: Config) -> int:
    """Return how many programs the GPU at hand is predicted to hold at once."""
    gpu = present_gpus()[0].gpu
    found = compile_resources(KERNEL, problem_of(x), config, gpu.target, Store(None))
    return occupancy(found, gpu.architecture).programs_per_multiprocessor * gpu.multiprocessors


def widened(x: Tensor) -> Tensor:
    """Return *x* with its columns repeated until they are LONG."""
    return x.repeat(1, -(-LONG // x.shape[1]))[:, :LONG].contiguous()


@pytest.fixture
def interpret(interpreter: ProcessPoolExecutor) -> Callable[..., Tensor]:
    """Call `run` in Triton's interpreter: `interpret(x, config, num_programs)`.

    It runs programs one after the other, so that none can wait for another.
    """
    no_stream = "import torch, unittest.mock as m; torch.cuda.current_stream = m.Mock()"
    interpreter.submit(exec, no_stream).result()
    no_capture = "import torch; torch.cuda.is_current_stream_capturing = lambda: False"
    interpreter.submit(exec, no_capture).result()
    return lambda *arguments: interpreter.submit(KERNEL.run, *arguments).result()


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `run` go as far as the launch on a machine without a GPU."""
    kept_workspace.cache_clear()
    monkeypatch.setattr(torch.cuda, "current_stream", Mock())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    yield
    kept_workspace.cache_clear()


def test_one_part_a_row_equals_torch(
    interpret: Callable[..., Tensor], matrix: Tensor, assert_softmax: Callable[..., None]
) -> None:
    """A row of one part gives torch's softmax, and so does the next launch on its workspace."""
    x = matrix[:9]
    for num_programs in (1, 4):
        result = interpret(x, Config(1024, 1, 1), num_programs)
        assert_softmax(result, x)
        assert result.is_contiguous()


@on_gpu
def test_short_rows_equal_torch(
    launch: Callable[..., Tensor], matrix: Tensor, assert_softmax: Callable[..., None]
) -> None:
    """Every shape, dtype, layout and special value gives torch's softmax, in a dense matrix."""
    result = launch(KERNEL.run, matrix, default_config(matrix), multiprocessors())
    assert_softmax(result, matrix)
    assert result.is_contiguous()


@on_gpu
def test_long_rows_equal_torch(
    launch: Callable[..., Tensor], matrix: Tensor, assert_softmax: Callable[..., None]
) -> None:
    """Every dtype and special value gives torch's softmax where three programs share a row."""
    x = widened(matrix[:200])
    config = Config(4096, 2, 1)
    assert together(problem_of(x), config) == 3
    assert_softmax(launch(KERNEL.run, x, config, multiprocessors()), x)


@on_gpu
@pytest.mark.parametrize(("cols", "dtype"), [(8200, torch.bfloat16), (20_001, torch.float32)])
def test_any_config_gives_the_same_softmax(
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    cols: int,
    dtype: torch.dtype,
) -> None:
    """Parts of any size in one or two pieces, other warps and stages change no result."""
    x = random_matrix(70, cols, dtype)
    configs = KERNEL.configs(problem_of(x))
    assert configs
    for config in configs:
        assert_softmax(launch(KERNEL.run, x, config, multiprocessors()), x)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [131_072, 300_001])
def test_rows_of_many_parts_equal_torch(
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    cols: int,
    dtype: torch.dtype,
) -> None:
    """Rows that 32 or 74 programs share are whole."""
    x = random_matrix(9, cols, dtype)
    assert_softmax(launch(KERNEL.run, x, default_config(x), multiprocessors()), x)


@on_gpu
@pytest.mark.parametrize("num_programs", [3, 4, 7, 100, 100_000])
def test_any_number_of_programs_takes_every_part(
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    num_programs: int,
) -> None:
    """From as many programs as share a row to more than there are parts, each part is written."""
    x = random_matrix(30, LONG)
    assert_softmax(launch(KERNEL.run, x, default_config(x), num_programs), x)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_around_parts_and_chunks_are_whole(
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    dtype: torch.dtype,
) -> None:
    """Rows a few columns shorter or longer than whole parts are written and no further."""
    for cols in (2047, 2048, 2049, 2052, 2056, 2057, 3071, 3072, 3073):
        x = random_matrix(9, cols, dtype)
        assert_softmax(launch(KERNEL.run, x, Config(1024, 1, 1), multiprocessors()), x)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("first", "stride"), [(1, 9003), (0, 9003), (1, 9005), (8, 9009)])
def test_rows_may_lie_anyhow(  # noqa: PLR0913, PLR0917 - what a layout is, and three fixtures
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    first: int,
    stride: int,
    dtype: torch.dtype,
) -> None:
    """Rows at any distance, from any column on, give torch's softmax."""
    x = random_matrix(5, stride, dtype)[:, first : first + LONG]
    assert_softmax(launch(KERNEL.run, x, default_config(x), multiprocessors()), x)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_minus_infinity_count_for_nothing(
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    dtype: torch.dtype,
) -> None:
    """Whole parts of -inf take nothing from a row, unless all of it is -inf."""
    x = random_matrix(6, LONG, dtype)
    x[0, :4100] = -INF
    x[1, 4090:8200] = -INF
    x[2, 100:] = -INF
    x[3, :-1] = -INF
    x[4] = -INF
    expected = x.double().softmax(1)
    result = launch(KERNEL.run, x, default_config(x), multiprocessors())
    assert_softmax(result, x)
    assert torch.equal(result.isnan(), expected.isnan())
    assert result.isnan().any(dim=1).tolist() == [False] * 4 + [True, False]


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("below", [5, 20, 80, 200])
def test_a_part_may_be_far_below_the_rows_maximum(
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    below: int,
    dtype: torch.dtype,
) -> None:
    """A part's own maximum scales to the row's, down to where float32 ends."""
    x = random_matrix(3, LONG, dtype)
    for row in range(3):
        x[row, row * 4096 : (row + 1) * 4096] -= below
    assert_softmax(launch(KERNEL.run, x, default_config(x), multiprocessors()), x, 64)


@on_gpu
def test_the_ends_of_float32_are_no_exception(
    launch: Callable[..., Tensor], assert_softmax: Callable[..., None]
) -> None:
    """The lowest number is not taken for -inf, nor a difference beyond float32 for NaN."""
    x = ends_of_float32(LONG)
    assert_softmax(launch(KERNEL.run, x, default_config(x), multiprocessors()), x)


@pytest.mark.gpu
def test_launches_leave_the_workspace_as_the_next_one_needs_it(
    random_matrix: Callable[..., Tensor], assert_softmax: Callable[..., None]
) -> None:
    """50 launches of two shapes in turn are right; each finds its words 0 and counters at 0."""
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
            assert_softmax(y.cpu(), x.cpu())
    assert kept_workspace.cache_info().misses == 2


@pytest.mark.gpu
def test_two_streams_launch_at_once(
    random_matrix: Callable[..., Tensor], assert_softmax: Callable[..., None]
) -> None:
    """Launches that run beside each other share no workspace."""
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
        assert_softmax(found[0].cpu(), x.cpu())
        assert all(torch.equal(y, found[0]) for y in found)
    assert kept_workspace.cache_info().misses == 2


@pytest.mark.gpu
def test_a_cuda_graph_replays_it(
    random_matrix: Callable[..., Tensor], assert_softmax: Callable[..., None]
) -> None:
    """A captured launch replays on new values, beside others that are not in the graph."""
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
        assert_softmax(y.cpu(), x)
        assert torch.equal(beside, y)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("config", [Config(4096, 2, 1), Config(8192, 4, 1), Config(4096, 4, 3)])
def test_exactly_as_many_programs_as_predicted_fit(
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    config: Config,
    dtype: torch.dtype,
) -> None:
    """The driver takes the predicted number of resident programs and refuses another one."""
    x = random_matrix(4000, LONG, dtype)
    on_gpu = x.cuda()
    programs = resident(x, config)
    assert together(problem_of(x), config) <= programs < work(problem_of(x), config)
    y = KERNEL.run(on_gpu, config, programs)
    torch.cuda.synchronize()
    assert_softmax(y[::100].cpu(), x[::100])
    with pytest.raises(RuntimeError, match="cooperative"):
        KERNEL.run(on_gpu, config, programs + 1)
    assert torch.equal(KERNEL.run(on_gpu, config, programs), y)


@pytest.mark.gpu
def test_more_than_2_31_elements(assert_softmax: Callable[..., None]) -> None:
    """Rows that lie past element 2**31 are read and written where they are."""
    x = torch.randn(240_000, LONG, dtype=torch.float16, device="cuda")
    y = KERNEL.run(x, default_config(x), multiprocessors())
    for rows in (slice(100), slice(-100, None)):
        assert_softmax(y[rows].cpu(), x[rows].cpu())


def test_fewer_programs_than_share_a_row_are_refused(random_matrix: Callable[..., Tensor]) -> None:
    """Programs that would wait for one that is not launched are refused, not launched."""
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
    """Parts of less than 512 bytes, or too many, are refused, with a BLOCK_SIZE that is not."""
    problem = Problem(2, cols, dtype)
    message = (
        f"BLOCK_SIZE is {block_size}; softmax_cooperative takes a multiple of"
        f" {512 // problem.item_bytes} that a row of {cols} has at most 512 of, such as {such_as}$"
    )
    with pytest.raises(InputError, match=message):
        KERNEL.constexprs(problem, Config(block_size, 2, 1))
    assert KERNEL.constexprs(problem, Config(such_as, 2, 1))["PARTS"] <= MOST_PARTS


@pytest.mark.parametrize(
    ("cols", "dtype", "parts", "power"),
    [
        (4096, "float32", 1, 1),
        (4097, "float32", 2, 2),
        (8192, "bfloat16", 2, 2),
        (LONG, "float16", 3, 4),
        (131_072, "float32", 32, 32),
    ],
)
def test_rows_are_cut_into_parts(cols: int, dtype: str, parts: int, power: int) -> None:
    """A row has as many programs as parts of 4096, each part two words, beside the counters."""
    problem, config = Problem(10, cols, dtype), Config(4096, 2, 1)
    passed = KERNEL.constexprs(problem, config)
    assert (passed["PARTS"], passed["PARTS_POWER"]) == (parts, power)
    assert together(problem, config) == parts
    assert work(problem, config) == 10 * parts
    assert workspace(problem, config) == 32 + 2 * 2 * 10 * parts


@pytest.mark.parametrize(
    ("programs", "multiprocessors", "launched"),
    [(6, 132, 300), (1, 132, 132), (1, 3, 3), (1, 2, 0), (0, 132, 0), (None, 132, None)],
)
def test_the_plan_fills_the_gpu_or_does_not_fit(
    programs: int | None, multiprocessors: int, launched: int | None
) -> None:
    """All that are resident are launched, at most one a part, and none below a row's programs."""
    plan = plan_launch(KERNEL, Problem(100, LONG), Config(4096, 2, 1), programs, multiprocessors)
    assert plan.num_programs == launched


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(("num_programs", "launched"), [(3, 3), (20, 20), (1000, 39)])
def test_launch_is_as_described(
    record: Callable[..., object],
    random_matrix: Callable[..., Tensor],
    num_programs: int,
    launched: int,
) -> None:
    """`run` passes what `arguments`, `constexprs` and `options` say, to at most one a part."""
    x = random_matrix(13, LONG, torch.float16)
    config = Config(4096, 2, 1)
    found = record(KERNEL, x, config, num_programs)
    assert found.arguments == KERNEL.arguments(problem_of(x))
    assert found.keywords == {
        "num_warps": 2,
        **KERNEL.constexprs(problem_of(x), config),
        "launch_cooperative_grid": True,
        **OPTIONS,
    }
    assert found.grid == (launched,)
    assert KERNEL.grid is Grid.PERSISTENT


@pytest.mark.usefixtures("no_gpu")
def test_a_workspace_is_a_streams_own(
    monkeypatch: pytest.MonkeyPatch, random_matrix: Callable[..., Tensor]
) -> None:
    """Launches on a stream share a workspace, those on two do not, and a capture has its own."""
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
def test_every_config_can_be_launched(cols: int, dtype: str) -> None:
    """What `configs` and `default_config` give is never refused, and its parts hold the row."""
    problem = Problem(3, cols, dtype)
    for config in (*KERNEL.configs(problem), KERNEL.default_config(problem, MAX_SHARED)):
        passed = KERNEL.constexprs(problem, config)
        parts, power = passed["PARTS"], passed["PARTS_POWER"]
        assert 0 <= parts * config.block_size - cols < config.block_size
        assert power // 2 < parts <= power


def test_configs_begin_where_a_row_is_worth_sharing() -> None:
    """Rows of less than 8192 columns have nothing to try; no part is above 64 registers."""
    assert KERNEL.configs(Problem(3, 8191)) == ()
    for dtype, most in (("float32", 64), ("bfloat16", 128)):
        configs = KERNEL.configs(Problem(3, 32_768, dtype))
        assert max(one.block_size // one.num_warps // 32 for one in configs) == most


@pytest.mark.parametrize(
    ("cols", "config"),
    [
        (1, Config(4096, 2, 1)),
        (4096 * 128, Config(4096, 2, 1)),
        (4096 * 128 + 1, Config(8192, 4, 1)),
        (8_000_000, Config(16_384, 8, 1)),
    ],
)
def test_default_config(cols: int, config: Config) -> None:
    """64 elements a thread, and larger parts where more than 128 programs would share a row."""
    assert KERNEL.default_config(Problem(3, cols), MAX_SHARED) == config


@pytest.mark.parametrize("target", ["sm_90", "sm_100", "gfx942"])
@pytest.mark.parametrize(
    ("cols", "dtype"), [(781, "float32"), (781, "bfloat16"), (10_869, "float16")]
)
def test_compiles_without_spills(target: str, cols: int, dtype: str) -> None:
    """Parts are loaded and stored 16 bytes at a time, from registers alone."""
    problem = Problem(4096, cols, dtype)
    config = KERNEL.default_config(problem, MAX_SHARED)
    gpu = find_gpu(target)
    check_config(KERNEL, problem, config, gpu)
    found = compile_resources(KERNEL, problem, config, gpu.target, Store(None))
    assert (found.load_bytes, found.store_bytes) == (16, 16)
    assert found.n_spills in {0, None}
    assert {found.local_loads, found.local_stores} <= {0, None}


def test_memory_is_one_pass() -> None:
    """The matrix is read once and written once; a row's programs wait for each other once."""
    assert KERNEL.memory_steps(Problem(7, 5)) == (MemoryStep("softmax", reads=35, writes=35),)
    assert KERNEL.exchanges == 1
