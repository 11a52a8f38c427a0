"""The best changes for a trace's kernels are those that `explain` finds, within a time limit."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launched_kernels
import pytest
from traced_kernels import LAUNCH, traced_kernel, worked

from occupancy_lab import dry_run
from occupancy_lab.arguments import Pointer, tensor
from occupancy_lab.compiling.offline import offline
from occupancy_lab.compiling.script import Run, Script
from occupancy_lab.errors import CompileError
from occupancy_lab.explaining.advice import Action
from occupancy_lab.explaining.script_lines import script_lines
from occupancy_lab.gpus import find_gpu
from occupancy_lab.launch import launch_of
from occupancy_lab.reporting.trace_files import make_trace_report
from occupancy_lab.text.document import to_markdown
from occupancy_lab.text.words import cell, duration
from occupancy_lab.tracing import actions
from occupancy_lab.tracing.actions import Effort, _warm_up, with_actions, without_timed
from occupancy_lab.tracing.dry import dry_trace
from occupancy_lab.tracing.page import write_trace
from occupancy_lab.tracing.trace import Trace
from occupancy_lab.tracing.traced import GridLaunches, Traced

CHANGE = "BLOCK 2 instead of 1 (if its results stay right)"
ACTION = Action(CHANGE, f"{CHANGE}: 25 us.", 100.0, 25.0, "25 us")
GRID = GridLaunches(LAUNCH.grid, 100, record=worked())
PREDICTION = worked().prediction
TOTAL_US = 100 * PREDICTION.us


def traced(*names: str) -> Traced:
    """Return a trace of kernels of these names, each of which loses more than the next."""
    return Traced(
        tuple(
            traced_kernel(name, (dataclasses.replace(GRID, launches=100 - place),))
            for place, name in enumerate(names)
        ),
        (),
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of tried kernels, each of which has the same action."""
    monkeypatch.setattr(actions, "best_action", lambda _case: ACTION)
    return []


def trying(asked: list[str], failing: str = "") -> Any:
    """Return a `case_of` that adds the tried kernels to *asked*."""

    def case_of(kernel: Any) -> Any:
        asked.append(kernel.kernel)
        if kernel.kernel == failing:
            raise CompileError(failing)
        return kernel

    return case_of


def test_those_that_lose_most_are_tried(asked: list[str]) -> None:
    """As many as asked for are tried; one that fails has no action, the next has its own."""
    found = with_actions(traced(*"abcd"), trying(asked, "b"), Effort(60, 3))
    assert asked == ["a", "b", "c"]
    assert [one.action is not None for one in found.kernels] == [True, False, True, False]
    assert found.kernels[0].saved_us == pytest.approx(0.75 * TOTAL_US)
    assert (found.untried, found.failed) == ((), ("b",))
    row = found.kernels[0].row()
    assert (row["action"], row["advice"]) == (ACTION.change, ACTION.sentence)
    assert row["predicted_total_us"] == pytest.approx(TOTAL_US)
    said = write_trace(found, None).to_markdown()
    assert "No launch near b could be compiled and predicted here." in said
    assert "Launches were only tried near those that lose most, and not near d." in said


def test_nothing_is_tried_unasked_nor_where_nothing_is_lost(asked: list[str]) -> None:
    """Nothing is compiled with 0 seconds or without lost time."""
    assert with_actions(traced("a"), trying(asked), Effort()) == traced("a")
    least = worked().speed_of_light.us
    idle = traced_kernel("idle", (dataclasses.replace(GRID, us=least),))
    with_actions(Traced((idle,), ()), trying(asked), Effort(60))
    assert asked == []


@pytest.mark.parametrize(
    ("launches", "said"),
    [
        ((100, 1), "little0 loses 1% of the time of all kernels or less: no launch near it was"),
        ((100, 1, 1), "little0 and little1 each lose 1% of the time of all kernels or less: no"),
    ],
)
def test_what_loses_little_is_said_not_to_be_tried(
    asked: list[str], launches: tuple[int, ...], said: str
) -> None:
    """The page says which kernels lose too little to be tried."""
    most, *others = (dataclasses.replace(GRID, launches=one) for one in launches)
    names = [f"little{number}" for number in range(len(others))]
    little = [traced_kernel(name, (grid,)) for name, grid in zip(names, others, strict=True)]
    given = Traced((traced_kernel("most", (most,)), *little), ())
    found = with_actions(given, trying(asked), Effort(60))
    assert (asked, found.minor) == (["most"], tuple(names))
    assert any(one.startswith(said) for one in write_trace(found, None).sections[0].sentences)
    assert with_actions(given, trying(asked), Effort(60, 1)).minor == tuple(names)


def test_where_time_is_over_the_page_names_what_was_not_tried(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A begun kernel is finished, and later ones are named as untried."""
    clock = iter((0.0, 1.0, 31.0, 32.0))
    monkeypatch.setattr(actions.time, "monotonic", lambda: next(clock))
    found = with_actions(traced(*"abc"), trying(asked), Effort(30))
    assert asked == ["a"]
    assert found.untried == ("b", "c")
    assert "There was no time left to try launches near b and c:" in str(
        write_trace(found, None).sections[0].sentences
    )


def test_an_interrupt_leaves_the_rest(asked: list[str]) -> None:
    """After an interrupt the page has the trace and the actions so far."""

    def case_of(kernel: Any) -> Any:
        if kernel.kernel == "b":
            raise KeyboardInterrupt
        return trying(asked)(kernel)

    found = with_actions(traced(*"abc"), case_of, Effort(60))
    assert (asked, found.untried) == (["a"], ("b", "c"))
    assert found.kernels[0].action == ACTION


def test_a_page_and_a_report_say_what_brings_most(asked: list[str]) -> None:
    """The answer has the best change, the table each kernel's, JSON the numbers."""
    found = with_actions(traced("a", "b"), trying(asked), Effort(60, 1))
    page = write_trace(found, None)
    saved = duration(0.75 * TOTAL_US)
    assert page.answer[1] == (f"What brings most: in a {CHANGE}, predicted to save {saved}.")
    assert page.sections[0].tables[-1].rows == (("1", CHANGE, "25 us", cell(0.75 * TOTAL_US)),)
    report = to_markdown(make_trace_report(Trace(found)).blocks(None))
    assert f"What brings most: {ACTION.sentence} Over all launches: {saved}." in report
    row = found.kernels[0].row()
    assert (row["action"], row["saved_us"]) == (CHANGE, pytest.approx(0.75 * TOTAL_US))
    assert found.kernels[1].row()["action"] is None


PROGRAM = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + where, tl.load(x + where, mask=where < n) * 2, mask=where < n)


def main():
    n = 1 << 24
    x, y = torch.empty((2, n), device="cuda")
    for _ in range(3):
        scale[lambda named: (triton.cdiv(n, named["BLOCK"]),)](x, y, n, BLOCK=64)


if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_a_dry_run_says_what_explain_says(tmp_path: Path, only: Callable[..., None]) -> None:
    """A kernel's action is the first sentence of its launch's explanation."""
    only("BLOCK")
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    found = dry_trace(["python", str(path)], gpu="h100", effort=Effort(600))
    action = found.kernels[0].action
    assert action.change.startswith("BLOCK ")
    with Script(Run(f"{path}:main", find_gpu("h100"))) as script:
        (line,) = script_lines(script)
        assert f"**H100 SXM**: {action.sentence}" == line.run.to_document().answer[0]


H100, N = find_gpu("h100"), 1 << 20
X = tensor((N,), "float32")


def from_source(n: int, **options: Any) -> Any:
    """Return the kernel compiled from its source."""
    function = launched_kernels.tuned_add.fn.fn
    keywords = {"EVEN": False, "BLOCK": 512, **options}
    with offline(H100.target):
        return launch_of(function, (X, X, n), keywords, (1,)).warm_up(function)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"num_warps": 8}, {"num_stages": 1}, {"maxnreg": 32}])
def test_other_options_give_the_binary_of_the_source(options: dict[str, int]) -> None:
    """TTIR with other options compiles to the same cubin as the source."""
    ttir = from_source(N - 8).asm["ttir"]
    with offline(H100.target):
        again = _warm_up(ttir, {}, grid=(1,), **options)
    assert again.asm["cubin"] == from_source(N - 8, **options).asm["cubin"]


@pytest.mark.slow
@pytest.mark.parametrize(("noted_n", "n"), [(N - 8, N), (N, N - 8)])
def test_another_number_gives_the_binary_of_the_source(noted_n: int, n: int) -> None:
    """An argument that 16 divides, or not, is marked in TTIR as by Triton."""
    before, after = from_source(noted_n), from_source(n)
    noted = {"x_ptr": Pointer("float32", 4 * N), "y_ptr": Pointer("float32", 4 * N), "n": noted_n}
    with offline(H100.target):
        again = _warm_up(before.asm["ttir"], noted, grid=(1,), **{**noted, "n": n})
    assert again.asm["cubin"] == after.asm["cubin"] != before.asm["cubin"]


@pytest.mark.slow
def test_what_an_autotuner_timed_is_not_proposed(only: Callable[..., None]) -> None:
    """Configurations that the autotuner measured are not proposed."""
    only("num_warps")
    x = tensor((8192, 4096), "float16")
    lab = dry_run(launched_kernels.transpose, "h100")
    (case,) = lab[(128, 64)](x, x, 8192, 4096, BLOCK=64).cases
    kernel = traced_kernel("transpose", (), {"BLOCK": "64"})
    timed = GridLaunches((128, 64), 0, tuning=5)
    other = dataclasses.replace(kernel, options={"num_warps": 8, "num_stages": 3}, grids=(timed,))
    left = without_timed(case, kernel, [kernel, other])
    assert {one.words for one in case.neighbours} - {one.words for one in left.neighbours} == {
        "num_warps 8"
    }
    another = dataclasses.replace(other, kernel="another")
    assert without_timed(case, kernel, [kernel, another]).neighbours == case.neighbours
