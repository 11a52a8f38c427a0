"""Launches of a kernel are compiled elsewhere, each once, and fail as a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import launched_kernels
import pytest

from occupancy_lab.compiling import pool as compiling
from occupancy_lab.compiling.pool import LaunchCompiler
from occupancy_lab.errors import CompileError, CompileTimeoutError, InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.launch import launch_of, tensor
from occupancy_lab.values import Failure, Resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from occupancy_lab.compiling.process import Request

X = tensor((64, 64), "float16")
SM_90, GFX942 = find_gpu("sm_90").target, find_gpu("gfx942").target
NAME = f"{launched_kernels.__file__}:transpose"
TAKEN = Resources(32, 4, 0)


def launch(**keywords: Any) -> tuple[Any, Any]:
    """Return a function of Triton and a launch of it."""
    function = launched_kernels.transpose
    arguments = (X, X, 64, 64)
    return function, launch_of(function, arguments, {"BLOCK": 64, **keywords}, (1, 1))


class Compiles:
    """Stands in for `compile_here`: what it was asked for, and what it answers."""

    def __init__(self, outcome: Resources | Failure = TAKEN) -> None:
        self.asked: list[Request] = []
        self.jobs: list[int] = []
        self.outcome = outcome

    def __call__(
        self, requests: Mapping[str, Request], jobs: int, _timeout: float | None, _python: str
    ) -> Iterator[tuple[str, Resources | Failure]]:
        """Give each request the same outcome."""
        self.jobs.append(jobs)
        self.asked += requests.values()
        yield from ((name, self.outcome) for name in requests)


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Compiles:
    """Return what stands in for the processes that compile."""
    made = Compiles()
    monkeypatch.setattr(compiling, "compile_here", made)
    return made


def test_each_launch_is_compiled_once(compiles: Compiles) -> None:
    """What is alike to the compiler is one request, and what is compiled is not asked for again."""
    compiler = LaunchCompiler(NAME, None)
    function, usual = launch()
    _, alike = launch()
    _, other = launch(num_warps=8)
    compiler.prepare([(function, usual, SM_90), (function, alike, SM_90), (function, other, SM_90)])
    assert [request.launch for request in compiles.asked] == [usual, other]
    assert compiler.resources(function, alike, SM_90) == TAKEN
    assert compiler.resources(function, usual, GFX942) == TAKEN
    compiler.prepare([(function, usual, SM_90)])
    assert len(compiles.asked) == 3
    assert {request.kernel for request in compiles.asked} == {NAME}


def test_what_a_store_has_is_not_compiled(compiles: Compiles, tmp_path: Path) -> None:
    """A launch in the store needs no process at all."""
    function, usual = launch()
    here = LaunchCompiler(None, tmp_path)
    found = here.resources(function, usual, SM_90)
    assert LaunchCompiler(NAME, tmp_path).resources(function, usual, SM_90) == found
    assert not compiles.asked


def test_progress_is_ended_whatever_happens(
    compiles: Compiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compiled is told, and the line is cleared where it fails too."""
    said: list[str] = []
    function, usual = launch()
    LaunchCompiler(NAME, None, progress=said.append).prepare([(function, usual, SM_90)])
    assert said == [f"compiling 1 of {NAME} ...", ""]

    def fail(*_: object) -> Iterator[Any]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(compiling, "compile_here", fail)
    with pytest.raises(KeyboardInterrupt):
        LaunchCompiler(NAME, None, progress=said.append).prepare([(function, usual, GFX942)])
    assert said[-1] == ""
    assert len(compiles.asked) == 1


def test_failures_are_sentences(compiles: Compiles) -> None:
    """A compile that fails has its reason, and one that takes too long what gives it more."""
    function, usual = launch()
    compiles.outcome = Failure("compile failed", "no luck")
    with pytest.raises(CompileError, match="no luck"):
        LaunchCompiler(NAME, None).resources(function, usual, SM_90)
    compiles.outcome = Failure("timed out", "too slow", 2.5)
    with pytest.raises(
        CompileTimeoutError, match=r"transpose takes longer than 2\.5 s .*--compile-timeout"
    ):
        LaunchCompiler(NAME, None).resources(function, usual, SM_90)


def test_an_unknown_option_starts_nothing(compiles: Compiles) -> None:
    """An option that Triton does not have is refused before any process starts."""
    function, wrong = launch(nope=1)
    with pytest.raises(InputError, match="nope"):
        LaunchCompiler(NAME, None).prepare([(function, wrong, SM_90)])
    assert not compiles.asked
