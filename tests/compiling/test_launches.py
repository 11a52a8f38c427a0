"""Launches are compiled in other processes, each once, and failures are sentences."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import launched_kernels
import pytest
import triton
import triton.language as tl
from triton.language.core import builtin

from occupancy_lab.arguments import tensor
from occupancy_lab.compiling import compiler as compiling
from occupancy_lab.compiling.compiler import INTERRUPTED, Compilation, Compiler
from occupancy_lab.compiling.process import CompileProcess, Found, Request
from occupancy_lab.compiling.texts import Compiled
from occupancy_lab.errors import CompileError, CompileTimeoutError, InputError
from occupancy_lab.explaining.dry_run import dry_run
from occupancy_lab.gpus import find_gpu
from occupancy_lab.launch import launch_of
from occupancy_lab.values import Failure, Resources, Status, Target
from occupancy_lab.workers.signals import UnfinishedError

X = tensor((64, 64), "float16")
SM_90, GFX942 = find_gpu("sm_90").target, find_gpu("gfx942").target
NAME = f"{launched_kernels.__file__}:transpose"
TAKEN = Resources(32, 4, 0)
FOUND = Compiled(TAKEN, "")


def compilation(target: Target = SM_90, *, name: str | None = NAME, **keywords: Any) -> Compilation:
    """Return a launch of a function of Triton, to be compiled."""
    function = launched_kernels.transpose
    arguments = (X, X, 64, 64)
    launch = launch_of(function, arguments, {"BLOCK": 64, **keywords}, (1, 1))
    return Compilation(function, launch, target, name, "transpose")


class Compiles:
    """Stands in for `compile_here`, and keeps its requests."""

    def __init__(self, outcome: Found = FOUND) -> None:
        self.asked: list[Request] = []
        self.jobs: list[int] = []
        self.outcome = outcome

    def __call__(
        self, requests: Mapping[str, Request], jobs: int, *_how: object, **_more: object
    ) -> Iterator[tuple[str, Found]]:
        """Give each request the same outcome."""
        self.jobs.append(jobs)
        self.asked += requests.values()
        yield from ((name, self.outcome) for name in requests)


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Compiles:
    """Replace the compiling processes by a stand-in."""
    made = Compiles()
    monkeypatch.setattr(compiling, "compile_here", made)

    def compile_(_process: CompileProcess, request: Request, timeout: float | None) -> object:
        ((_, outcome),) = made({"": request}, 1, timeout, "")
        return outcome

    monkeypatch.setattr(CompileProcess, "compile", compile_)
    return made


def test_each_launch_is_compiled_once(compiles: Compiles) -> None:
    """Launches with equal keys are one request, and are not requested again."""
    compiler = Compiler(None)
    usual, other = compilation(), compilation(num_warps=8)
    assert compiler.compile([usual, compilation(), other]) == [TAKEN, TAKEN, TAKEN]
    assert [request.launch for request in compiles.asked] == [usual.launch, other.launch]
    assert compiler.resources(compilation()) == TAKEN
    assert compiler.compile([usual, other]) == [TAKEN, TAKEN]
    assert len(compiles.asked) == 2
    assert {request.kernel for request in compiles.asked} == {NAME}


def test_what_does_not_compile_is_remembered(compiles: Compiles, tmp_path: Path) -> None:
    """A lasting failure is kept until a retry is asked for."""
    compiles.outcome = Failure(Status.COMPILE_FAILED, "no luck", lasting=True)
    pair = [compilation(), compilation(num_warps=8)]
    (first, _) = Compiler(tmp_path).compile(pair)
    assert isinstance(first, Failure)
    assert "no luck; remembered in" in first.reason
    with pytest.raises(CompileError, match=r"no luck; remembered in .* --retry-failed"):
        Compiler(tmp_path).resources(pair[0])
    assert len(compiles.asked) == 2
    compiles.outcome = FOUND
    assert Compiler(tmp_path, retry_failed=True).compile(pair) == [TAKEN, TAKEN]
    assert Compiler(tmp_path).resources(pair[1]) == TAKEN
    assert len(compiles.asked) == 4


def test_what_passes_is_not_remembered(compiles: Compiles, tmp_path: Path) -> None:
    """A passing failure, such as a killed compiler, is tried again."""
    compiles.outcome = Failure(Status.COMPILE_FAILED, "it was killed", lasting=False)
    assert Compiler(tmp_path).compile([compilation()]) == [compiles.outcome]
    compiles.outcome = FOUND
    assert Compiler(tmp_path).compile([compilation()]) == [TAKEN]
    assert len(compiles.asked) == 2


def test_progress_is_ended_whatever_happens(
    compiles: Compiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is shown, and its line is cleared even after a failure."""
    said: list[str] = []
    counted: list[tuple[int, int]] = []
    pair = [compilation(), compilation(num_warps=8)]
    Compiler(
        None, progress=said.append, counted=lambda done, of: counted.append((done, of))
    ).compile(pair)
    assert said == ["compiling 2 launches of transpose ...", ""]
    assert counted == [(0, 2), (1, 2), (2, 2)]

    def fail(*_: object, **_how: object) -> Iterator[Any]:
        yield from ()
        raise KeyboardInterrupt

    monkeypatch.setattr(compiling, "compile_here", fail)
    with pytest.raises(UnfinishedError) as interrupt:
        Compiler(None, progress=said.append).compile(pair)
    assert interrupt.value.finished == [INTERRUPTED, INTERRUPTED]
    assert said[-1] == ""
    assert len(compiles.asked) == 2


def test_failures_are_sentences(compiles: Compiles) -> None:
    """A failed compile has its reason, a timeout the option that raises the limit."""
    compiles.outcome = Failure(Status.COMPILE_FAILED, "no luck")
    with pytest.raises(CompileError, match="no luck"):
        Compiler(None).resources(compilation())
    compiles.outcome = Failure(Status.TIMED_OUT, "too slow", 2.5)
    with pytest.raises(
        CompileTimeoutError, match=r"with num_warps 8 takes longer than 2\.5 s .*--compile-timeout"
    ):
        Compiler(None).resources(compilation(num_warps=8))


def test_an_unknown_option_starts_nothing(compiles: Compiles) -> None:
    """An option that Triton does not have is refused before a process starts."""
    with pytest.raises(InputError, match="nope"):
        Compiler(None).resources(compilation(nope=1))
    assert not compiles.asked


@builtin
def aborting(_semantic: object = None) -> None:
    """Abort the compiler as LLVM does on a fatal error."""
    os.write(2, b"LLVM ERROR: no register for f\n")
    os.abort()


@triton.jit
def broken(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - a kernel
    """Abort the compiler."""
    aborting()
    tl.store(x, 0.0)


def test_a_compiler_that_dies_leaves_this_process() -> None:
    """If LLVM aborts, this process gets an error with LLVM's message."""
    launch = dry_run(broken, "h100", cache=False)[(1,)]
    with pytest.raises(CompileError, match="LLVM ERROR: no register for f"):
        launch(tensor((4,)))
