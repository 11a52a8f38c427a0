"""What holds for every kernel of the lab, whatever it calculates and however it is launched."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch
from counting import counted
from hypothesis import given
from hypothesis import strategies as st
from matrices import (
    DTYPES,
    MATRICES,
    MAX_SHARED,
    WIDE,
    check_gradient,
    check_softmax,
    check_sum,
    problem_of,
    random_matrix,
)
from records import compile_resources, plan_of
from torch import Tensor

from occupancy_lab.compiling import Store
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import check_config
from occupancy_lab.kernel import Kernel, kernel_names, load_kernel
from occupancy_lab.values import Config, Problem

KERNELS = {name: load_kernel(name) for name in kernel_names()}
LAUNCHED = {name: kernel for name, kernel in KERNELS.items() if kernel.function is not None}
SOFTMAXES = [name for name, kernel in KERNELS.items() if kernel.operands == 1]
OF_TWO = [name for name in KERNELS if name not in SOFTMAXES]
QUICK = [name for name in KERNELS if name != "softmax_cooperative"]
"""The kernels that the interpreter runs fast enough; most tests of the other one need a GPU."""
FEW = ("7x257", "bfloat16", "special values")
"""The matrices with which the other one is interpreted."""
INTERPRETED_ROWS = 11
"""The most rows of a matrix in the interpreter, which is slow."""
ALIKE_ROWS = 5
"""What it gets of a matrix of more, whose rows are alike, but of a kernel of tiles of rows: more
than `conforms` launches programs, so that a persistent one has two."""
SIZES = (torch.float32, torch.float16)
"""A dtype of each size, for tests in which only the size counts."""
BLOCKS = {
    "softmax": (Config(1024, 1, 1), Config(1024, 32, 4), Config(2048, 8, 2), Config(16_384, 16, 3)),
    "softmax_row": (Config(1024, 1, 1), Config(2048, 32, 4), Config(16_384, 16, 3)),
    "softmax_loop": (Config(64, 2, 1), Config(128, 4, 1), Config(256, 4, 1)),
    "softmax_backward": (Config(64, 2, 1), Config(128, 4, 1), Config(2048, 4, 1)),
    "vector_add": (Config(32, 1, 1), Config(4096, 16, 3), Config(65_536, 32, 1)),
}
"""More configurations for a kernel that offers none, for rows of up to 1024 elements."""


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """A kernel of the lab; a test may ask for some by their names."""
    return KERNELS[request.param]


def default_config(kernel: Kernel, x: Tensor) -> Config:
    """Return the kernel's own configuration for *x* on a GPU like the H100."""
    return kernel.default_config(problem_of(x), MAX_SHARED)


def some_configs(kernel: Kernel, x: Tensor) -> tuple[Config, ...]:
    """Return the configurations that *kernel* offers for *x*, or else those of BLOCKS."""
    tried = kernel.configs(problem_of(x)) if kernel.configs else ()
    return tried or BLOCKS.get(kernel.name, ())


def operands(kernel: Kernel, x: Tensor) -> list[tuple[Tensor, ...]]:
    """Return the operands of each launch: *x*, or for a kernel of two *x* and a share of it."""
    if kernel.operands == 1:
        return [(x,)]
    shares = torch.rand(x.shape, generator=torch.Generator().manual_seed(x.shape[1]))
    shares = (shares / shares.sum(1, keepdim=True) / 2).to(x.dtype)
    return [(x, shares), (shares, x)]


def check(kernel: Kernel, result: Tensor, *tensors: Tensor, epsilons: float | None = None) -> None:
    """Compare *result* with torch's of *tensors* in float64."""
    if kernel.name == "softmax_backward":
        check_gradient(result, *tensors)
    elif kernel.name == "vector_add":
        check_sum(result, *tensors)
    else:
        rounds_each_step = kernel.function is None
        check_softmax(result, *tensors, epsilons or (16 if rounds_each_step else None))


@pytest.fixture
def conforms(request: pytest.FixtureRequest, launch: Callable[..., Tensor]) -> Callable[..., None]:
    """Return a function that checks a launch: `conforms(kernel, x, config, num_programs)`."""
    interpreted = request.node.callspec.params["launch"] == "interpreter"

    def conform(
        kernel: Kernel,
        x: Tensor,
        config: Config | None = None,
        num_programs: int = 3,
        epsilons: float | None = None,
    ) -> None:
        config = config or default_config(kernel, x)
        if interpreted:
            if len(x) > INTERPRETED_ROWS:
                x = x[: INTERPRETED_ROWS if kernel.name == "softmax_tile" else ALIKE_ROWS]
            if kernel.name == "vector_add" and x.dtype == torch.bfloat16:
                pytest.skip("Triton's interpreter adds the bits of bfloat16 numbers as integers")
        for tensors in operands(kernel, x):
            first, *others = tensors
            result = launch(kernel.run, first, config, num_programs, *others)
            check(kernel, result, *tensors, epsilons=epsilons)
            assert result.is_contiguous() or kernel.function is None

    return conform


@pytest.mark.parametrize(
    ("kernel", "matrix"),
    [(name, one) for name in KERNELS for one in MATRICES if name in QUICK or one in FEW],
    indirect=["kernel"],
)
def test_every_matrix_gives_torchs_result(
    kernel: Kernel, conforms: Callable[..., None], matrix: str
) -> None:
    """Every shape, dtype, layout and special value gives torch's result in one or more blocks."""
    x = MATRICES[matrix]()
    conforms(kernel, x)
    if kernel.passes:
        conforms(kernel, x, Config(64, 2, 1))


@pytest.mark.parametrize("matrix", WIDE)
@pytest.mark.parametrize("kernel", SOFTMAXES, indirect=True)
def test_far_apart_values_give_torchs_result(
    kernel: Kernel, conforms: Callable[..., None], matrix: str
) -> None:
    """No maximum comes too late, nor is the lowest number -inf or an infinite difference NaN."""
    x = WIDE[matrix]()
    conforms(kernel, x, epsilons=64)
    if kernel.passes:
        conforms(kernel, x, Config(128, 4, 1), epsilons=64)


@pytest.mark.parametrize(
    ("cols", "dtype"),
    [
        (5, torch.float32),
        (129, torch.float16),
        (256, torch.bfloat16),
        (781, torch.float32),
        (1000, torch.float16),
    ],
)
@pytest.mark.parametrize("kernel", QUICK, indirect=True)
def test_any_config_gives_the_same_result(
    kernel: Kernel,
    conforms: Callable[..., None],
    cols: int,
    dtype: torch.dtype,
) -> None:
    """Other blocks, which divide no matrix, warps and stages change nothing."""
    x = random_matrix(19 if kernel.work else 3, cols, dtype)
    for config in some_configs(kernel, x):
        conforms(kernel, x, config)


@pytest.mark.parametrize("num_programs", [1, 5, INTERPRETED_ROWS, 1000])
@pytest.mark.parametrize("kernel", QUICK, indirect=True)
def test_any_num_programs_gives_the_same_result(
    kernel: Kernel,
    conforms: Callable[..., None],
    num_programs: int,
) -> None:
    """One program, fewer than the rows, as many and more all write every row."""
    conforms(kernel, random_matrix(INTERPRETED_ROWS, 257), num_programs=num_programs)


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize(("first", "stride"), [(1, 783), (0, 783), (1, 785), (8, 789), (0, 797)])
@pytest.mark.parametrize("kernel", QUICK, indirect=True)
def test_rows_may_lie_anyhow(
    kernel: Kernel,
    conforms: Callable[..., None],
    first: int,
    stride: int,
    dtype: torch.dtype,
) -> None:
    """Rows at any distance, from any column on, give torch's result."""
    conforms(kernel, random_matrix(5, stride, dtype)[:, first : first + 781])


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("kernel", ["softmax_pieces", "softmax_tile"], indirect=True)
def test_rows_around_a_chunk_are_whole(
    kernel: Kernel, conforms: Callable[..., None], dtype: torch.dtype
) -> None:
    """Rows of 1 to 17 columns, which begin anywhere in a chunk, are written, and nothing beyond."""
    for cols in range(1, 18):
        x = random_matrix(40 if kernel.work else 9, cols, dtype)
        conforms(kernel, x, some_configs(kernel, x)[0])


@pytest.mark.parametrize("cols", [1, 255, 256, 257, 512, 1000])
@pytest.mark.parametrize(
    "kernel", ["softmax_backward", "softmax_loop", "vector_add"], indirect=True
)
def test_rows_around_a_block_are_whole(
    kernel: Kernel, conforms: Callable[..., None], cols: int
) -> None:
    """A row slightly shorter or longer than whole blocks is written to its end, and not beyond."""
    conforms(kernel, random_matrix(3, cols), Config(256, 4, 1))


@pytest.mark.parametrize("kernel", OF_TWO, indirect=True)
def test_an_operand_that_is_not_given_is_the_first(
    kernel: Kernel,
    launch: Callable[..., Tensor],
) -> None:
    """Given one tensor, a kernel of two operands uses it for both."""
    x = random_matrix(40, 60)
    check(kernel, launch(kernel.run, x, default_config(kernel, x), 1), x, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.gpu
def test_many_rows_equal_torch(
    kernel: Kernel,
    dtype: torch.dtype,
) -> None:
    """More rows or tiles than are resident are each written, also a last tile that is not full."""
    rows, cols = (100_003, 129) if kernel.name == "softmax_tile" else (20_000, 781)
    for tensors in operands(kernel, random_matrix(rows, cols, dtype)):
        first, *others = (one.cuda() for one in tensors)
        result = kernel.run(first, default_config(kernel, first), 100, *others)
        check(kernel, result.cpu(), *tensors)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", LAUNCHED, indirect=True)
def test_more_than_2_31_elements(kernel: Kernel) -> None:
    """Rows beyond element 2**31 are read and written at their addresses."""
    rows, cols = (240_000, 9001) if kernel.together else (4_200_000, 513)
    x = torch.randn(rows, cols, dtype=torch.float16, device="cuda")
    y = kernel.run(x, default_config(kernel, x), 100)
    for some in (slice(100), slice(-10_000, None)):
        check(kernel, y[some].cpu(), *[x[some].cpu()] * kernel.operands)


def test_reference_is_torchs(kernel: Kernel) -> None:
    """The reference of a measurement is torch's own result."""
    for tensors in operands(kernel, random_matrix(5, 9).double()):
        check(kernel, kernel.reference(*tensors), *tensors)


@pytest.mark.parametrize(("rows", "cols"), [(7, 5), (5, 781), (1, 20_001)])
@pytest.mark.parametrize("kernel", LAUNCHED, indirect=True)
def test_memory_steps_are_what_is_read_and_written(
    kernel: Kernel,
    interpreter: ProcessPoolExecutor,
    rows: int,
    cols: int,
) -> None:
    """Memory steps count each element that is loaded or stored, and each pass loads an operand."""
    problem = Problem(rows, cols)
    config = kernel.default_config(problem, MAX_SHARED)
    if kernel.together and kernel.together(problem, config) > 1:
        config = Config(32_768, 8, 1)  # the interpreter never runs two programs at once
    tensors = [random_matrix(rows, cols)] * kernel.operands
    counts = interpreter.submit(counted, kernel.run, tensors[0], config, 3, *tensors[1:]).result()
    steps = kernel.memory_steps(problem)
    assert counts["read"] == sum(step.reads for step in steps)
    assert counts["written"] == sum(step.writes for step in steps)
    if kernel.passes:
        assert counts["loads"] == rows * kernel.passes(problem, config) * kernel.operands


@pytest.mark.parametrize("num_programs", [1, 12, 1000])
@pytest.mark.parametrize(
    ("rows", "cols", "dtype"),
    [
        (13, 257, torch.float16),
        (16, 128, torch.float32),
        (17, 128, torch.bfloat16),
        (13, 9001, torch.float16),
    ],
)
@pytest.mark.parametrize("kernel", LAUNCHED, indirect=True)
def test_launch_is_as_described(  # noqa: PLR0913, PLR0917 - the shape, and two fixtures
    kernel: Kernel,
    record: Callable[..., object],
    rows: int,
    cols: int,
    dtype: torch.dtype,
    num_programs: int,
) -> None:
    """`run` launches the kernel as it is compiled, with as many programs as are planned."""
    x = random_matrix(rows, cols, dtype)
    problem = problem_of(x)
    for config in {default_config(kernel, x), *(some_configs(kernel, x) if cols < 1024 else ())}:
        if kernel.together:
            num_programs = max(num_programs, kernel.together(problem, config))
        launched = record(kernel, x, config, num_programs)
        described = kernel.launch(problem, config)
        assert launched.arguments == described.arguments
        assert launched.keywords.items() <= described.keywords.items()
        assert described.keywords.keys() - launched.keywords.keys() <= {"num_stages"}
        planned = plan_of(kernel, problem, config, num_programs, 1)
        assert launched.grid == (planned.num_programs,)


@pytest.mark.parametrize(
    ("rows", "row_stride", "wide"),
    [(2**21, 1023, False), (2**21, 1024, True), (2, 2**30 - 1, False), (2, 2**30, True)],
)
@pytest.mark.parametrize(
    "kernel", ["softmax", "softmax_row", "softmax_loop", "softmax_backward"], indirect=True
)
def test_offsets_take_64_bits_only_where_they_must(
    kernel: Kernel, record: Callable[..., object], rows: int, row_stride: int, *, wide: bool
) -> None:
    """A launch has 64-bit offsets from 2**31 elements on, by the matrix or its rows' distance."""
    far = torch.empty_strided((rows, 5), (row_stride, 1), device="meta")
    for tensors in operands(kernel, far):
        first, *others = tensors
        launched = record(kernel, first, Config(8, 4, 1), 7, *others)
        assert launched.keywords["INT64_OFFSETS"] is wide


@pytest.mark.parametrize(
    ("kernel", "dtype", "block_size", "instead"),
    [
        ("softmax", "float32", 512, "use 1024 or more"),
        ("softmax_row", "float32", 512, "use 1024 or more"),
        *(
            (
                "softmax_tile",
                "float32",
                size,
                "a power of two that holds rows of 781 elements, such as 4096",
            )
            for size in (512, 1536, 2000)
        ),
        ("softmax_pieces", "float32", 512, "a multiple of 4 that holds a row, such as 896"),
        ("softmax_pieces", "float32", 1022, "a multiple of 4 that holds a row, such as 896"),
        ("softmax_pieces", "bfloat16", 780, "a multiple of 8 that holds a row, such as 1024"),
        ("softmax_pieces", "float16", 1028, "a multiple of 8 that holds a row, such as 1024"),
    ],
    indirect=["kernel"],
)
def test_a_block_that_holds_no_row_is_refused(
    kernel: Kernel, dtype: str, block_size: int, instead: str
) -> None:
    """A BLOCK_SIZE too small for a row is refused, and a suitable one is named."""
    config = Config(block_size, 4, 1)
    message = rf"BLOCK_SIZE .*{block_size}.*{instead}"
    with pytest.raises(InputError, match=message):
        kernel.run(torch.zeros(2, 781, dtype=getattr(torch, dtype)), config, 2)
    if kernel.configs:
        with pytest.raises(InputError, match=message):
            kernel.constexprs(Problem(2, 781, dtype), config)


@given(cols=st.integers(1, 65_536), dtype=st.sampled_from(["float32", "float16", "bfloat16"]))
@pytest.mark.parametrize("name", LAUNCHED)
def test_every_config_can_be_launched(name: str, cols: int, dtype: str) -> None:
    """Every configuration of `configs` and `default_config` is accepted, and covers the matrix."""
    kernel = KERNELS[name]
    problem = Problem(1000, cols, dtype)
    tried = kernel.configs(problem) if kernel.configs else ()
    for config in (*tried, kernel.default_config(problem, MAX_SHARED)):
        kernel.constexprs(problem, config)
        pieces = plan_of(kernel, problem, config, None, None).work
        passes = kernel.passes(problem, config) if kernel.passes else 1
        assert pieces * passes * config.block_size >= 1000 * cols
        assert not kernel.together or pieces % kernel.together(problem, config) == 0


@pytest.mark.parametrize(
    ("kernel", "cols", "dtype", "target", "access_bytes"),
    [
        ("softmax_pieces", 10_869, "float16", "sm_100", 16),
        ("softmax_loop", 2**21, "float32", "sm_100", 16),
        ("softmax_backward", 2**20, "bfloat16", "sm_100", 16),
        ("softmax_cooperative", 781, "bfloat16", "sm_100", 16),
        *(
            (*compiled, target, 16)
            for target in ("sm_90", "gfx942")
            for compiled in (
                ("softmax_pieces", 781, "float32"),
                ("softmax_pieces", 781, "bfloat16"),
                ("softmax_pieces", 10_869, "float16"),
                ("softmax_loop", 2**21, "float32"),
                ("softmax_loop", 2**21, "float16"),
                ("softmax_loop", 2**21, "bfloat16"),
                ("softmax_backward", 8192, "float32"),
                ("softmax_backward", 8192, "bfloat16"),
                ("softmax_backward", 2**20, "float32"),
                ("softmax_backward", 2**20, "bfloat16"),
                ("softmax_cooperative", 781, "float32"),
                ("softmax_cooperative", 781, "bfloat16"),
                ("softmax_cooperative", 10_869, "float16"),
            )
        ),
        ("softmax_tile", 781, "float32", "sm_90", 4),
        ("softmax_tile", 781, "bfloat16", "sm_90", 4),
        ("softmax_tile", 128, "float16", "sm_90", 16),
        ("softmax_tile", 781, "bfloat16", "sm_100", 4),
        ("softmax_tile", 128, "float32", "sm_100", 16),
        ("softmax_tile", 781, "float32", "gfx942", 4),
        ("softmax_tile", 128, "float16", "gfx942", 8),
    ],
    indirect=["kernel"],
)
def test_compiles_without_spills(
    kernel: Kernel, cols: int, dtype: str, target: str, access_bytes: int
) -> None:
    """Rows are loaded and stored in accesses as wide as possible, without spills.

    That is 16 bytes; where several rows are one tile, 8 with 64 threads a warp, and 4 of odd rows.
    """
    problem, gpu = Problem(4096, cols, dtype), find_gpu(target)
    config = kernel.default_config(problem, MAX_SHARED)
    most = gpu.architecture.max_warps_per_program
    config = Config(config.block_size, min(config.num_warps, most), config.num_stages)
    check_config(kernel, problem, config, gpu)
    found = compile_resources(kernel, problem, config, gpu.target, Store(None))
    assert (found.load_bytes, found.store_bytes) == (access_bytes, access_bytes)
    assert found.n_spills in {0, None}
    assert {found.local_loads, found.local_stores} <= {0, None}


@pytest.mark.parametrize(
    ("kernel", "cols", "config"),
    [
        ("softmax_row", 1, Config(1, 4, 1)),
        ("softmax_row", 1024, Config(1024, 4, 1)),
        ("softmax_row", 1025, Config(2048, 8, 1)),
        ("softmax_row", 2049, Config(4096, 16, 1)),
        ("softmax_row", 10_000, Config(16_384, 16, 1)),
        ("softmax_loop", 1, Config(1, 1, 1)),
        ("softmax_loop", 1000, Config(1024, 2, 1)),
        ("softmax_loop", 4096, Config(4096, 8, 1)),
        ("softmax_loop", 3_000_000, Config(4096, 8, 1)),
        ("softmax_backward", 1, Config(1, 4, 1)),
        ("softmax_backward", 1025, Config(2048, 4, 1)),
        ("softmax_backward", 16_384, Config(16_384, 32, 1)),
        ("softmax_backward", 16_385, Config(4096, 8, 1)),
        ("softmax_cooperative", 1, Config(4096, 2, 1)),
        ("softmax_cooperative", 4096 * 128, Config(4096, 2, 1)),
        ("softmax_cooperative", 4096 * 128 + 1, Config(8192, 4, 1)),
        ("softmax_cooperative", 8_000_000, Config(16_384, 8, 1)),
        ("softmax_tile", 1, Config(2048, 4, 1)),
        ("softmax_tile", 128, Config(2048, 4, 1)),
        ("softmax_tile", 2049, Config(4096, 8, 1)),
        ("vector_add", 781, Config(1024, 4, 1)),
    ],
    indirect=["kernel"],
)
def test_default_config(kernel: Kernel, cols: int, config: Config) -> None:
    """The block holds a row, or what a program takes of a long row at once; warps go with it."""
    assert kernel.default_config(Problem(3, cols), MAX_SHARED) == config


@pytest.mark.parametrize(
    ("kernel", "last", "first"),
    [
        ("softmax_pieces", 32_768, 32_769),
        ("softmax_tile", 2048, 2049),
        ("softmax_cooperative", 8192, 8191),
    ],
    indirect=["kernel"],
)
def test_configs_end_where_another_kernel_is_faster(kernel: Kernel, last: int, first: int) -> None:
    """Rows that are too long, or too short to be shared, have no configurations."""
    assert kernel.configs(Problem(3, last))
    assert kernel.configs(Problem(3, first)) == ()


def test_description(kernel: Kernel) -> None:
    """A kernel is loaded by its own name, and compared with one that Triton does not compile."""
    assert load_kernel(kernel.name) is kernel is KERNELS[kernel.name]
    assert kernel.title != kernel.name
    assert kernel.compared_with is None or KERNELS[kernel.compared_with].function is None
