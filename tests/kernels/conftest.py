"""Where kernels run (Triton's interpreter, the GPU), what they run on, and what they must give."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import triton
from packaging.version import Version

from occupancy_lab.kernel import Pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from occupancy_lab.kernel import Kernel

INF = float("inf")
NAN = float("nan")


def random(rows: int, cols: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return normally distributed elements, the same in every run."""
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(rows + cols)).to(dtype)


MATRICES: dict[str, Callable[[], Tensor]] = {
    "1823x781": lambda: random(1823, 781),
    "8192x1000": lambda: random(8192, 1000),
    "7x257": lambda: random(7, 257),
    "16x1024": lambda: random(16, 1024),
    "one column": lambda: random(9, 1),
    "one row": lambda: random(1, 300),
    "one element": lambda: random(1, 1),
    "float16": lambda: random(33, 781, torch.float16),
    "bfloat16": lambda: random(33, 781, torch.bfloat16),
    "one column of float16": lambda: random(9, 1, torch.float16),
    "special values": lambda: torch.tensor(
        [
            [0.0, 1.0, -INF, 2.0, -1.0],
            [-INF, -INF, -INF, -INF, -INF],
            [-INF, -INF, 3.0, -INF, -INF],
            [0.0, INF, 1.0, 2.0, 3.0],
            [INF, INF, INF, INF, INF],
            [INF, -INF, 0.0, 1.0, 2.0],
            [0.0, 1.0, NAN, 2.0, 3.0],
            [NAN, -INF, -INF, -INF, -INF],
            [NAN, INF, -INF, 0.0, 1.0],
            [NAN, NAN, NAN, NAN, NAN],
            [4.0, 4.0, 4.0, 4.0, 4.0],
        ]
    ),
    "large values": lambda: torch.tensor([[1e4], [-1e4], [1e8], [1e30], [-1e30]]) * random(5, 60),
    "large float16": lambda: torch.linspace(-65504, 65504, 41).to(torch.float16).expand(3, 41),
    "padded rows": lambda: random(12, 400)[:, :300],
    "sliced columns": lambda: random(12, 400)[:, 3:],
    "every second row": lambda: random(13, 257)[::2],
    "every second column": lambda: random(12, 400)[:, ::2],
    "transposed": lambda: random(300, 12).t(),
    "one row repeated": lambda: random(1, 257).expand(6, 257),
    "no rows": lambda: random(0, 5),
}


@pytest.fixture(params=MATRICES)
def matrix(request: pytest.FixtureRequest) -> Tensor:
    """A matrix to run a kernel on: each shape, dtype, layout and range that has its own trap."""
    return MATRICES[request.param]()


@pytest.fixture
def random_matrix() -> Callable[..., Tensor]:
    """Return the function that makes a matrix: `random_matrix(rows, cols, dtype)`."""
    return random


@pytest.fixture(scope="session")
def interpreter() -> Iterator[ProcessPoolExecutor]:
    """A process in which Triton interprets kernels and torch.empty gives NaN.

    Triton chooses between interpreter and compiler as it is imported, hence another process. It
    sees no GPU, for which a kernel may have inline assembly, which is not interpreted.
    """
    if Version(triton.__version__) < Version("3.7") and Version(np.__version__) >= Version("2.4"):
        pytest.skip("the interpreter of Triton 3.6 needs a NumPy below 2.4")
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("TRITON_INTERPRET", "1")
            for vendor in ("CUDA", "HIP"):
                environment.setenv(f"{vendor}_VISIBLE_DEVICES", "")
            environment.setenv("PYTHONWARNINGS", "ignore")
            pool.submit(torch.use_deterministic_algorithms, mode=True).result()
        assert pool.submit(torch.empty, 9).result().isnan().all()
        yield pool


def to_gpu(value: object) -> object:
    """Copy a tensor to the GPU in the layout it has here, which Tensor.cuda would make dense."""
    if not isinstance(value, torch.Tensor):
        return value
    storage = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
    return storage.cuda().as_strided(value.size(), value.stride(), value.storage_offset())


@pytest.fixture(params=["interpreter", pytest.param("gpu", marks=pytest.mark.gpu)])
def launch(request: pytest.FixtureRequest) -> Iterator[Callable[..., Tensor]]:
    """Call a kernel's `run` where it can run: `launch(run, x, config, num_programs)`.

    An element that the kernel does not write comes back as NaN.
    """
    if request.param == "interpreter":
        pool: ProcessPoolExecutor = request.getfixturevalue("interpreter")
        yield lambda run, *arguments: pool.submit(run, *arguments).result()
        return
    torch.use_deterministic_algorithms(mode=True)
    yield lambda run, *arguments: run(*map(to_gpu, arguments)).cpu()
    torch.use_deterministic_algorithms(mode=False)


@dataclass
class Recorder:
    """Stands in for a Triton function, and keeps what it is launched with instead."""

    grid: tuple[int, ...] = ()
    arguments: tuple[Pointer | int, ...] = ()
    keywords: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        self.grid = grid
        return self.launch

    def launch(self, *arguments: Tensor | int, **keywords: int) -> None:
        """Keep the arguments, a tensor as the Pointer that describes it."""
        self.arguments = tuple(
            Pointer(str(each.dtype).removeprefix("torch."), each.nbytes)
            if isinstance(each, torch.Tensor)
            else each
            for each in arguments
        )
        self.keywords = keywords


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Recorder]:
    """Call a kernel's `run` and give its launch: `record(kernel, x, config, num_programs)`."""

    def call(kernel: Kernel, *arguments: object) -> Recorder:
        recorder = Recorder()
        module = kernel.run.__module__
        monkeypatch.setattr(f"{module}.{kernel.function.__name__}", recorder)
        kernel.run(*arguments)
        return recorder

    return call


def check_softmax(result: Tensor, x: Tensor, epsilons: float | None = None) -> None:
    """Hold *result* to torch's float64 softmax of *x*, NaN for NaN.

    The relative error may be *epsilons* of the dtype; by default 16 for float32 arithmetic and 2
    for a 16-bit result, which only float32 arithmetic rounded once comes up to.
    """
    if epsilons is None:
        epsilons = 16 if x.dtype == torch.float32 else 2
    limits = torch.finfo(x.dtype)
    smallest = limits.tiny if x.dtype == torch.float32 else limits.tiny * limits.eps
    expected = torch.softmax(x.double(), dim=1)
    assert result.dtype == x.dtype
    torch.testing.assert_close(
        result.double(), expected, rtol=epsilons * limits.eps, atol=2 * smallest, equal_nan=True
    )


@pytest.fixture
def assert_softmax() -> Callable[..., None]:
    """Return the comparison that every softmax is held to."""
    return check_softmax
