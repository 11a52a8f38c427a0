"""What the softmaxes of the lab are held to alike, each launched by `run` on a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from matrices import DTYPES, MAX_SHARED, ends_of_float32, problem_of

from occupancy_lab.compiling import Store, compile_resources
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import check_config
from occupancy_lab.kernel import OPTIONS, Grid, load_kernel
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from occupancy_lab.kernel import Kernel

ROWS = {
    "softmax": None,
    "softmax_row": None,
    "softmax_loop": 200,
    "softmax_tile": 99,
    "softmax_pieces": 40,
}
"""By kernel: the rows that it gets of a matrix; the interpreter takes long for some."""
IN_CHUNKS = ("softmax_tile", "softmax_pieces")
"""The kernels that read 16 bytes at a time of rows that begin anywhere."""


@pytest.fixture
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """The kernel of a name."""
    return load_kernel(request.param)


def default_config(kernel: Kernel, x: Tensor) -> Config:
    """Return the kernel's own configuration for *x* on a GPU like the H100."""
    return kernel.default_config(problem_of(x), MAX_SHARED)


@pytest.mark.parametrize("kernel", ROWS, indirect=True)
def test_equals_torch(
    kernel: Kernel,
    launch: Callable[..., Tensor],
    matrix: Tensor,
    assert_softmax: Callable[..., None],
) -> None:
    """Every shape, dtype, layout and special value gives torch's softmax, in a dense matrix."""
    x = matrix[: ROWS[kernel.name]]
    result = launch(kernel.run, x, default_config(kernel, x), 7)
    assert_softmax(result, x)
    assert result.is_contiguous()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("kernel", "rows", "cols"),
    [("softmax_tile", 100_003, 129), ("softmax_pieces", 20_000, 781)],
    indirect=["kernel"],
)
def test_many_rows_equal_torch(  # noqa: PLR0913, PLR0917 - a matrix, and two fixtures
    kernel: Kernel,
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    rows: int,
    cols: int,
    dtype: torch.dtype,
) -> None:
    """More rows or tiles than are resident are each written, the last, not full one too."""
    x = random_matrix(rows, cols, dtype)
    assert_softmax(kernel.run(x.cuda(), default_config(kernel, x), 1).cpu(), x)


@pytest.mark.parametrize(
    "config", [Config(1024, 1, 1), Config(1024, 32, 4), Config(2048, 8, 2), Config(16384, 16, 3)]
)
@pytest.mark.parametrize("kernel", ["softmax", "softmax_row"], indirect=True)
def test_any_block_gives_the_same_softmax(
    kernel: Kernel,
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    config: Config,
) -> None:
    """A larger BLOCK_SIZE, other warps and other stages change no result."""
    x = random_matrix(20, 781)
    assert_softmax(launch(kernel.run, x, config, 6), x)


@pytest.mark.parametrize(
    ("kernel", "rows", "cols", "dtype"),
    [
        ("softmax_tile", 19, 5, torch.float32),
        ("softmax_tile", 19, 129, torch.float16),
        ("softmax_tile", 19, 256, torch.bfloat16),
        ("softmax_tile", 19, 781, torch.float32),
        ("softmax_pieces", 3, 129, torch.float32),
        ("softmax_pieces", 3, 781, torch.float32),
        ("softmax_pieces", 3, 781, torch.bfloat16),
        ("softmax_pieces", 3, 1300, torch.float16),
    ],
    indirect=["kernel"],
)
def test_any_config_gives_the_same_softmax(  # noqa: PLR0913, PLR0917 - a matrix, three fixtures
    kernel: Kernel,
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    rows: int,
    cols: int,
    dtype: torch.dtype,
) -> None:
    """Tiles of 1 to 16 rows, which divide no matrix, 1 to 3 pieces, other warps change nothing."""
    x = random_matrix(rows, cols, dtype)
    configs = kernel.configs(problem_of(x))
    assert configs
    for config in configs:
        assert_softmax(launch(kernel.run, x, config, 6), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("first", "stride"), [(1, 783), (0, 783), (1, 785), (8, 789), (0, 797)])
@pytest.mark.parametrize("kernel", IN_CHUNKS, indirect=True)
def test_rows_may_lie_anyhow(  # noqa: PLR0913, PLR0917 - what a layout is, and three fixtures
    kernel: Kernel,
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    first: int,
    stride: int,
    dtype: torch.dtype,
) -> None:
    """Rows at any distance, from any column on, give torch's softmax."""
    x = random_matrix(5, stride, dtype)[:, first : first + 781]
    assert_softmax(launch(kernel.run, x, default_config(kernel, x), 1), x)


@pytest.mark.parametrize("num_programs", [1, 1000])
@pytest.mark.parametrize(
    ("kernel", "block_size"), [("softmax_row", 512), ("softmax_loop", 128)], indirect=["kernel"]
)
def test_launch_is_as_described(
    kernel: Kernel,
    record: Callable[..., object],
    random_matrix: Callable[..., Tensor],
    block_size: int,
    num_programs: int,
) -> None:
    """`run` passes what `arguments` and `constexprs` say, to one program a row."""
    x, config = random_matrix(13, 257, torch.float16), Config(block_size, 4, 1)
    launched = record(kernel, x, config, num_programs)
    assert launched.arguments == kernel.arguments(Problem(13, 257, "float16"))
    constexprs = kernel.constexprs(Problem(13, 257), config)
    assert launched.keywords == {"num_warps": 4, **constexprs, **OPTIONS}
    assert launched.grid == (13,)
    assert kernel.grid is Grid.ROWS


@pytest.mark.parametrize("kernel", ["softmax", "softmax_row"], indirect=True)
def test_block_size_below_a_row_is_refused(
    kernel: Kernel, random_matrix: Callable[..., Tensor]
) -> None:
    """A BLOCK_SIZE that would leave a row's end out is refused, with the one that would do."""
    with pytest.raises(InputError, match="use 1024 or more"):
        kernel.run(random_matrix(2, 781), Config(512, 4, 1), 2)


@pytest.mark.parametrize("target", ["sm_90", "sm_100", "gfx942"])
@pytest.mark.parametrize(
    ("kernel", "cols", "dtype"),
    [
        ("softmax_pieces", 781, "float32"),
        ("softmax_pieces", 781, "bfloat16"),
        ("softmax_pieces", 10_869, "float16"),
        ("softmax_loop", 2**21, "float32"),
        ("softmax_loop", 2**21, "float16"),
        ("softmax_loop", 2**21, "bfloat16"),
    ],
    indirect=["kernel"],
)
def test_compiles_without_spills(kernel: Kernel, target: str, cols: int, dtype: str) -> None:
    """Rows are loaded and stored 16 bytes at a time, wherever they begin, from registers alone."""
    problem = Problem(64, cols, dtype)
    config = kernel.default_config(problem, MAX_SHARED)
    gpu = find_gpu(target)
    check_config(kernel, problem, config, gpu)
    found = compile_resources(kernel, problem, config, gpu.target, Store(None))
    assert (found.load_bytes, found.store_bytes) == (16, 16)
    assert found.n_spills in {0, None}


@pytest.mark.parametrize("cols", [6, 781])
@pytest.mark.parametrize("kernel", IN_CHUNKS, indirect=True)
def test_the_ends_of_float32_are_no_exception(
    kernel: Kernel, launch: Callable[..., Tensor], assert_softmax: Callable[..., None], cols: int
) -> None:
    """The lowest number is not taken for -inf, nor a difference beyond float32 for NaN."""
    x = ends_of_float32(cols)
    # Triton's interpreter rounds the product of an fma, which the kernel counts on not to be.
    assert_softmax(launch(kernel.run, x, default_config(kernel, x), 1), x, 64)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kernel", "cols"),
    [("softmax", 512), ("softmax_row", 512), ("softmax_tile", 513), ("softmax_pieces", 513)],
    indirect=["kernel"],
)
def test_more_than_2_31_elements(
    kernel: Kernel, assert_softmax: Callable[..., None], cols: int
) -> None:
    """Rows that lie past element 2**31 are read and written where they are."""
    x = torch.randn(4_200_000, cols, dtype=torch.float16, device="cuda")
    y = kernel.run(x, kernel.default_config(problem_of(x), MAX_SHARED), 1056)
    for rows in (slice(100), slice(-10_000, None)):
        assert_softmax(y[rows].cpu(), x[rows].cpu())
