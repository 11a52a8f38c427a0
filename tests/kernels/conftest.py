"""Where kernels run: in Triton's interpreter, on the GPU, or not at all, to see their launches."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import triton
from matrices import to_gpu
from packaging.version import Version
from torch import Tensor

from occupancy_lab.kernel import Kernel, Pointer, kept_workspace

NO_STREAM = """
import torch, unittest.mock
torch.cuda.current_stream = unittest.mock.Mock()
torch.cuda.is_current_stream_capturing = lambda: False
"""
"""Lets a kernel with a workspace for each stream be launched without a GPU."""


@pytest.fixture(scope="session")
def interpreter() -> Iterator[ProcessPoolExecutor]:
    """Start a process in which Triton interprets kernels and torch.empty gives NaN.

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
            pool.submit(exec, NO_STREAM).result()
        assert pool.submit(torch.empty, 9).result().isnan().all()
        yield pool


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
    """Stands in for a Triton function, and records how it is launched."""

    grid: tuple[int, ...] = ()
    arguments: tuple[Pointer | int, ...] = ()
    keywords: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        self.grid = grid
        return self.launch

    def launch(self, *arguments: Tensor | int, **keywords: int) -> None:
        """Record the arguments; a Pointer describes a tensor."""
        self.arguments = tuple(
            Pointer(str(each.dtype).removeprefix("torch."), each.nbytes)
            if isinstance(each, torch.Tensor)
            else each
            for each in arguments
        )
        self.keywords = keywords


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Recorder]]:
    """Return a function that records launches: `record(kernel, x, config, num_programs)`."""
    kept_workspace.cache_clear()
    monkeypatch.setattr(torch.cuda, "current_stream", Mock())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)

    def call(kernel: Kernel, *arguments: object) -> Recorder:
        recorder, function = Recorder(), kernel.function
        module = kernel.run.__module__
        monkeypatch.setattr(f"{module}.{function.__name__}", recorder)
        object.__setattr__(kernel, "function", recorder)
        try:
            kernel.run(*arguments)
        finally:
            object.__setattr__(kernel, "function", function)
        return recorder

    yield call
    kept_workspace.cache_clear()
