"""The launch predicted to be fastest is found without launching, and remembered."""

# A @triton.jit function's arguments have no Python types, and this one uses none.
# ruff: noqa: ANN001, ANN202, ARG001, N803, PLR0913, PLR0917

import dataclasses
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from records import plan_of
from triton import knobs

from occupancy_lab import InputError, find_gpu
from occupancy_lab.gpus.present import PresentGpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.operators import planning
from occupancy_lab.operators.planning import Choice, Launcher, Rows, as_laid_out, choose, launcher
from occupancy_lab.operators.softmax import FORWARD
from occupancy_lab.tuning.search import tune
from occupancy_lab.values import Config, Problem

H200 = find_gpu("h200")
FEW = ("softmax_row", "softmax_loop")


def dense(problem: Problem, inputs: int = 1) -> tuple[Rows, ...]:
    """Return the output and *inputs* dense matrices."""
    return (Rows(problem.cols),) * (1 + inputs)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Forget what other tests chose."""
    remembering = (planning._candidates, planning.launcher, planning._gpu)
    for one in remembering:
        one.cache_clear()
    yield
    for one in remembering:
        one.cache_clear()


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by 0 per request to compile, and by the compiles."""
    counts: list[int] = []
    compile_here = planning.compile_runs

    def counted(asked: list[Any], compiler: Any) -> Any:
        counts.append(0)
        compiler._counted = lambda done, of: counts.append(of) if not done else None
        return compile_here(asked, compiler)

    monkeypatch.setattr(planning, "compile_runs", counted)
    return counts


@pytest.mark.parametrize(("rows", "cols"), [(4096, 67), (1, 5000)])
def test_the_choice_is_tunes(rows: int, cols: int) -> None:
    """A dense matrix is launched as `tune` predicts to be best."""
    problem = Problem(rows, cols)
    found = choose(FORWARD, problem, dense(problem), H200)
    best = tune(cols, rows=rows, kernel=FORWARD, gpu="h200").best_predicted
    assert (found.kernel.name, found.config) == (best.kernel, best.config)
    assert found.num_programs == best.num_programs


def test_another_number_of_rows_compiles_nothing(compiles: list[int]) -> None:
    """Of 200 numbers of rows only the first of each kind compiles."""
    first = Problem(4096, 300, "float16"), Problem(4097, 300, "float16"), Problem(1, 300, "float16")
    for problem in first:
        choose(FEW, problem, dense(problem), H200)
    compiles.clear()
    for rows in range(2, 20_000, 100):
        problem = Problem(rows, 300, "float16")
        assert choose(FEW, problem, dense(problem), H200).plan.work == rows
    assert set(compiles) <= {0}
    assert len(compiles) < 40


def test_a_new_process_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch, compiles: list[int]
) -> None:
    """A new process finds compiled results and counts in the store."""
    problem = Problem(77, 300, "float16")
    found = choose(FEW, problem, dense(problem), H200)
    planning._candidates.cache_clear()
    compiles.clear()
    monkeypatch.setattr("occupancy_lab.work.counting.Counting.count", None)
    again = choose(FEW, problem, dense(problem), H200)
    assert set(compiles) == {0}
    assert (again.kernel.name, again.config) == (found.kernel.name, found.config)


def test_a_kernel_is_compiled_as_it_is_launched() -> None:
    """Strides, alignment and wide offsets reach the compiler."""
    problem, config = Problem(64, 256, "float16"), Config(256, 4, 1)
    row = load_kernel("softmax_row")
    kernel = as_laid_out(row, (Rows(256), Rows(1000, aligned=False)), wide=True)
    launch = kernel.launch(problem, config)
    output, x, *numbers = launch.arguments
    assert (output.aligned, x.aligned) == (True, False)
    assert numbers == [1000, 256, 256]
    assert launch.keywords["INT64_OFFSETS"] is True
    same = as_laid_out(row, dense(problem), wide=False).launch(problem, config)
    known = row.launch(problem, config)
    target = H200.target
    assert same.keywords == known.keywords
    assert same.specialization(row.function, target) == known.specialization(row.function, target)


@pytest.mark.parametrize(
    ("rows", "typical"), [(1, 1), (2, 3), (3, 3), (15, 9), (16, 16), (17, 17), (31, 17), (48, 32)]
)
def test_rows_that_compile_alike_share_candidates(rows: int, typical: int) -> None:
    """Numbers of rows that compile to the same binary share a typical number."""
    assert planning._typical_rows(rows) == typical


def test_long_rows_have_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row longer than any program is launched in blocks, forward and backward."""
    # Following so many blocks takes long if a warp does much of each.
    monkeypatch.setattr(planning, "_compiles_soon", lambda task: task.matrix.config.num_warps >= 8)
    problem = Problem(3, 1_100_001, "bfloat16")
    assert choose(FORWARD, problem, dense(problem), H200).kernel.name == "softmax_cooperative"
    apart = (dense(problem)[0], Rows(problem.cols + 1))
    assert choose(FORWARD, problem, apart, H200).kernel.name == "softmax_loop"
    back = choose(("softmax_backward",), problem, dense(problem, 2), H200)
    assert back.config.block_size < problem.cols


def test_what_has_no_time_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel without counts is left out; if none has counts, that is the error."""
    problem, counted = Problem(64, 300, "float16"), planning.with_counts
    assert choose(FEW, problem, dense(problem), H200).kernel.name == "softmax_row"

    def left_open(*given: Any) -> list[Any]:
        return [
            dataclasses.replace(run, prediction=None) if run.kernel in without else run
            for run in counted(*given)
        ]

    monkeypatch.setattr(planning, "with_counts", left_open)
    without = {"softmax_row"}
    planning._candidates.cache_clear()
    assert choose(FEW, problem, dense(problem), H200).kernel.name == "softmax_loop"
    without = {*FEW}
    planning._candidates.cache_clear()
    with pytest.raises(InputError, match="nothing can be predicted for H200 SXM"):
        choose(FEW, problem, dense(problem), H200)


def test_a_grid_that_no_launch_takes_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more rows than a grid may have, kernels with one program per row are left out."""
    monkeypatch.setattr(planning, "GRID_LIMITS", (5000, 1, 1))
    few, many = Problem(4992, 300), Problem(5008, 300)
    rows, either = ("softmax_row",), ("softmax_row", "softmax")
    assert choose(rows, few, dense(few), H200).num_programs == 4992
    assert choose(either, many, dense(many), H200).kernel.name == "softmax"
    with pytest.raises(InputError, match="nothing can be predicted for H200 SXM"):
        choose(rows, many, dense(many), H200)


def here(monkeypatch: pytest.MonkeyPatch, *keys: str) -> None:
    """Simulate a machine with the GPUs *keys*."""
    gpus = [find_gpu(key) for key in keys]
    present = [PresentGpu(gpu, gpu.title, {}, place, gpu) for place, gpu in enumerate(gpus)]
    monkeypatch.setattr(planning, "present_gpus", lambda: tuple(present))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device}")


def test_a_gpu_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown device is refused by name."""
    here(monkeypatch, "h200", "h100")
    assert planning._gpu(1).key == "h100"
    with pytest.raises(InputError, match="nothing is known of GPU 2"):
        planning._gpu(2)


def test_a_new_shape_in_a_capture_is_refused(
    monkeypatch: pytest.MonkeyPatch, compiles: list[int]
) -> None:
    """During a capture only shapes that were launched before are accepted."""
    here(monkeypatch, "h200")
    loaded: list[Any] = []

    def load(choice: Any) -> Launcher:
        loaded.append(choice)
        return Launcher(lambda *_: None, 0)

    monkeypatch.setattr(planning, "load", load)
    problem = Problem(64, 300, "float16")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    first = launcher(FEW, 0, problem, dense(problem))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert launcher(FEW, 0, problem, dense(problem)) is first
    with pytest.raises(InputError, match=r"65 x 300 float16 .* call it once"):
        launcher(FEW, 0, Problem(65, 300, "float16"), dense(problem))
    assert len(loaded) == 1
    assert compiles


class Compiled:
    """Stands in for Triton's CompiledKernel, and keeps what is launched."""

    function, packed_metadata = 42, ("packed",)

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []

    def run(self, *arguments: Any) -> None:
        """Keep the arguments."""
        self.launched.append(arguments)

    def launch_metadata(self, grid: tuple[int, ...], stream: int, *_arguments: Any) -> str:
        """Return what a hook gets."""
        return f"{grid} on {stream}"


def test_a_launch_is_what_triton_makes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch passes the same arguments as `JITFunction.run`."""
    compiled = Compiled()
    launch = planning._direct(compiled, 12, (781, True))
    launch(7, 1600, 3200)
    start = (12, 1, 1, 7, 42, ("packed",))
    assert compiled.launched == [(*start, None, None, None, 1600, 3200, 781, True)]

    def hook(*_told: Any) -> None: ...

    chain = SimpleNamespace(calls=[hook])
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", chain)
    launch(7, 1600, 3200)
    told = ("(12,) on 7", chain, knobs.runtime.launch_exit_hook)
    assert compiled.launched[1] == (*start, *told, 1600, 3200, 781, True)


@pytest.mark.parametrize("name", [*FORWARD, "softmax_backward"])
def test_a_loaded_kernel_is_given_every_parameter(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Addresses and numbers are the function's parameters, in order."""
    compiled = Compiled()
    kernel = load_kernel(name)
    problem = Problem(64, 300)
    config = kernel.default_config(problem, H200.architecture.max_shared)
    laid_out = as_laid_out(kernel, dense(problem, kernel.operands), wide=False)
    choice = Choice(
        laid_out, problem, config, plan_of(kernel, problem, config, 1, 132), H200.target
    )
    monkeypatch.setattr("occupancy_lab.launch.Launch.warm_up", lambda *_: compiled)
    found = planning.load(choice)
    addresses = range(1, 2 + kernel.operands + (kernel.workspace is not None))
    found.launch(7, *addresses)
    (launched,) = compiled.launched
    parameters = [parameter.name for parameter in kernel.function.params]
    values = dict(zip(parameters, launched[9:], strict=True))
    assert values["n_cols"] == 300
    constexprs = kernel.constexprs(problem, choice.config)
    assert {name: values[name] for name in constexprs if name in values} == {
        name: value for name, value in constexprs.items() if name in parameters
    }
    assert [values[one] for one in parameters if one.endswith("_ptr")] == [*addresses]
    assert launched[0] == choice.num_programs


def test_a_workspace_is_passed_after_the_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workspace's address comes third, with the needed size."""
    compiled = Compiled()

    def passed(y: torch.Tensor, x: torch.Tensor, counters: torch.Tensor) -> tuple[Any, ...]:
        return (y, x, counters, x.stride(0), y.stride(0), x.shape[1])

    @triton.jit
    def counting(y_ptr, x_ptr, counters, x_stride, y_stride, n_cols, BLOCK_SIZE: tl.constexpr):
        tl.store(counters, BLOCK_SIZE)

    kernel = dataclasses.replace(
        load_kernel("softmax_row"),
        function=counting,
        passed=passed,
        workspace=lambda problem, config: config.block_size + problem.cols,
    )
    problem, config = Problem(64, 300), Config(512, 4, 1)
    laid_out = as_laid_out(kernel, dense(problem), wide=False)
    plan = plan_of(kernel, problem, config, 1, 132)
    monkeypatch.setattr("occupancy_lab.launch.Launch.warm_up", lambda *_: compiled)
    found = planning.load(Choice(laid_out, problem, config, plan, H200.target))
    assert found.workspace == 512 + 300
    found.launch(7, 1, 2, 3)
    assert compiled.launched[0][9:] == (1, 2, 3, 300, 300, 300, 512)


@pytest.mark.parametrize(
    ("matrices", "takes"),
    [
        ((Rows(61), Rows(61)), True),
        ((Rows(61), Rows(61 + 8)), True),
        ((Rows(61), Rows(63)), False),
        ((Rows(61), Rows(61, aligned=False)), False),
        ((Rows(61), Rows(62, aligned=False)), False),
    ],
)
def test_rows_that_lie_otherwise_leave_a_kernel_out(
    monkeypatch: pytest.MonkeyPatch, matrices: tuple[Rows, ...], *, takes: bool
) -> None:
    """`rows_alike` requires aligned rows with equal distances modulo 16 B."""
    found = {"softmax_row": dataclasses.replace(load_kernel("softmax_row"), rows_alike=True)}
    monkeypatch.setattr(planning, "load_kernel", lambda name: found.get(name) or load_kernel(name))
    problem = Problem(64, 61, "float16")
    if takes:
        assert choose(("softmax_row",), problem, matrices, H200).kernel.rows_alike
    else:
        with pytest.raises(InputError, match="no kernel takes rows with these strides"):
            choose(("softmax_row",), problem, matrices, H200)
        assert choose(FEW, problem, matrices, H200).kernel.name == "softmax_loop"


def test_programs_that_cannot_wait_for_each_other_are_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A launch whose waiting programs do not fit is never chosen."""
    waiting = dataclasses.replace(
        load_kernel("softmax_row"), together=lambda problem, _config: 1000 * problem.rows
    )
    found = {"softmax_row": waiting}
    monkeypatch.setattr(planning, "load_kernel", lambda name: found.get(name) or load_kernel(name))
    few, many = Problem(1, 300, "float16"), Problem(64, 300, "float16")
    assert choose(("softmax_row",), few, dense(few), H200).num_programs == 1
    assert choose(FEW, many, dense(many), H200).kernel.name == "softmax_loop"


def test_a_configuration_that_other_rows_refuse_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`constexprs` may reject a configuration for some numbers of rows."""
    loop = load_kernel("softmax_loop")

    def constexprs(problem: Problem, config: Config) -> dict[str, Any]:
        if problem.rows == 67 and config.block_size == 512:
            msg = "no 67 rows"
            raise InputError(msg)
        return dict(loop.constexprs(problem, config))

    own = dataclasses.replace(
        loop,
        configs=lambda _problem: (Config(512, 4, 1),),
        default_config=lambda _problem, _most: Config(64, 1, 1),
        constexprs=constexprs,
    )
    monkeypatch.setattr(planning, "load_kernel", lambda _name: own)
    for rows, block_size in ((66, 512), (67, 64), (68, 512)):
        problem = Problem(rows, 300, "float16")
        found = choose(("softmax_loop",), problem, dense(problem), H200)
        assert found.config.block_size == block_size
