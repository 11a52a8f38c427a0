"""The gradient of softmax is torch's, whatever the matrices and the block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from occupancy_lab.compiling import Store, compile_resources
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import check_config
from occupancy_lab.kernel import OPTIONS, Grid, MemoryStep
from occupancy_lab.kernels.softmax_backward import KERNEL
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

MAX_SHARED = 232_448
EPSILONS = 16
"""Units of the last place that an element may be off, of the row's largest term."""


def default_config(x: Tensor) -> Config:
    """Return the kernel's own configuration for *x* on a GPU like the H100."""
    return KERNEL.default_config(Problem(*x.shape), MAX_SHARED)


def check_gradient(dx: Tensor, y: Tensor, dy: Tensor) -> None:
    """Hold *dx* to torch's own gradient in float64 of the same *y* and *dy*."""
    y64, dy64 = y.double(), dy.double()
    expected = torch._softmax_backward_data(dy64, y64, 1, torch.float64)
    assert dx.dtype == y.dtype
    assert dx.shape == y.shape
    if not dx.numel():
        return
    products = (y64 * dy64).abs()
    terms = products.amax(1, keepdim=True) + y64.abs() * products.sum(1, keepdim=True)
    allowed = EPSILONS * torch.finfo(y.dtype).eps * terms + 1e-7
    assert bool(((dx.double() - expected).abs() <= allowed).all())


@pytest.mark.parametrize("block_size", [None, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(33, 781), (9, 1), (1, 300), (4, 1024), (0, 5), (3, 0)])
def test_equals_torch(
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    shape: tuple[int, int],
    dtype: torch.dtype,
    block_size: int | None,
) -> None:
    """Every shape and dtype gives torch's gradient, in one block and in several."""
    y = random_matrix(*shape).softmax(1).to(dtype)
    dy = random_matrix(*shape).flip(0).to(dtype)
    config = Config(block_size, 2, 1) if block_size else Config(1024, 4, 1)
    dx = launch(KERNEL.run, y, config, 1, dy)
    check_gradient(dx, y, dy)
    assert dx.is_contiguous()


@pytest.mark.parametrize("block_size", [512, 128])
def test_any_layout(
    launch: Callable[..., Tensor], random_matrix: Callable[..., Tensor], block_size: int
) -> None:
    """Padded, transposed, sliced and repeated matrices give what dense ones do."""
    y = random_matrix(12, 300).softmax(1)
    layouts = [
        random_matrix(12, 400)[:, :300],
        random_matrix(300, 12).t(),
        random_matrix(12, 600)[:, ::2],
        random_matrix(1, 300).expand(12, 300),
        torch.ones(1, 1).expand(12, 300),
    ]
    for dy in layouts:
        config = Config(block_size, 4, 1)
        check_gradient(launch(KERNEL.run, y, config, 1, dy), y, dy)
        check_gradient(launch(KERNEL.run, dy, config, 1, y), dy, y)


def test_a_row_of_nan_stays_among_its_own(
    launch: Callable[..., Tensor], random_matrix: Callable[..., Tensor]
) -> None:
    """NaN in y or dy makes its row NaN, as torch's does, and no other."""
    y, dy = random_matrix(3, 50).softmax(1), random_matrix(3, 50).flip(0)
    y[0, 3] = dy[2, 4] = float("nan")
    dx = launch(KERNEL.run, y, Config(64, 2, 1), 1, dy)
    assert dx.isnan().all(1).tolist() == [True, False, True]


@pytest.mark.parametrize("block_size", [512, 128])
def test_launch_is_as_described(
    record: Callable[..., object], random_matrix: Callable[..., Tensor], block_size: int
) -> None:
    """`run` passes what `arguments` and `constexprs` say, to one program a row."""
    y, config = random_matrix(13, 257, torch.float16), Config(block_size, 4, 1)
    launched = record(KERNEL, y, config, 1, y.clone())
    assert launched.arguments == KERNEL.arguments(Problem(13, 257, "float16"))
    assert launched.keywords == {
        "num_warps": 4,
        **KERNEL.constexprs(Problem(13, 257), config),
        **OPTIONS,
    }
    assert launched.grid == (13,)
    assert KERNEL.grid is Grid.ROWS


def test_offsets_take_64_bits_where_a_stride_asks_for_it(record: Callable[..., object]) -> None:
    """A gradient whose rows lie 2**30 apart is read with 64 bits, though its y is dense."""
    y = torch.empty(2, 5, device="meta")
    dy = torch.empty_strided((2, 5), (2**30, 1), device="meta")
    assert record(KERNEL, y, Config(8, 4, 1), 1, dy).keywords["INT64_OFFSETS"] is True
    assert record(KERNEL, y, Config(8, 4, 1), 1, y).keywords["INT64_OFFSETS"] is False


@pytest.mark.parametrize(
    ("cols", "config", "passes"),
    [
        (1, Config(1, 4, 1), 1),
        (1025, Config(2048, 4, 1), 1),
        (16_384, Config(16_384, 32, 1), 1),
        (16_385, Config(4096, 8, 1), 10),
    ],
)
def test_default_config(cols: int, config: Config, passes: int) -> None:
    """A row of up to 16,384 elements is one block, and a longer one is read twice in blocks."""
    problem = Problem(3, cols)
    assert KERNEL.default_config(problem, MAX_SHARED) == config
    assert KERNEL.passes(problem, config) == passes


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("cols", [8192, 2**20])
def test_compiles_without_spills(target: str, dtype: str, cols: int) -> None:
    """Rows of one block and of several compile, 16 bytes a load and a store."""
    problem, gpu = Problem(64, cols, dtype), find_gpu(target)
    config = KERNEL.default_config(problem, gpu.architecture.max_shared)
    if config.num_warps > gpu.architecture.max_warps_per_program:
        config = Config(config.block_size, gpu.architecture.max_warps_per_program, 1)
    check_config(KERNEL, problem, config, gpu)
    found = compile_resources(KERNEL, problem, config, gpu.target, Store(None))
    assert (found.load_bytes, found.store_bytes) == (16, 16)
    assert found.n_spills in {0, None}


def test_memory_is_one_pass_or_two() -> None:
    """Short rows are read once, two matrices for one that is written; long rows twice."""
    write = MemoryStep("gradient", reads=70, writes=35)
    assert KERNEL.memory_steps(Problem(7, 5)) == (write,)
    elements = 20_000
    assert KERNEL.memory_steps(Problem(1, elements)) == (
        MemoryStep("sum", reads=2 * elements, writes=0),
        MemoryStep("gradient", reads=2 * elements, writes=elements),
    )


def test_reference_is_torchs(random_matrix: Callable[..., Tensor]) -> None:
    """What a measurement is compared with is torch's own gradient."""
    y, dy = random_matrix(5, 9).double(), random_matrix(9, 5).t().double()
    torch.testing.assert_close(
        KERNEL.reference(y, dy), torch._softmax_backward_data(dy, y, 1, torch.float64)
    )
