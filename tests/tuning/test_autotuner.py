"""`early_config_prune` and `perf_model` under Triton's own Autotuner, with nothing launched."""

import dataclasses
import functools
import inspect
import itertools
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import in_process
import launched_kernels
import pytest
import torch
import triton
import triton.language as tl
from launched_kernels import compiled_whole, double, grid
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources

import occupancy_lab
from occupancy_lab.arguments import tensor
from occupancy_lab.asked import Asked
from occupancy_lab.compiled_records import record_of
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.offline import offline
from occupancy_lab.gpus import find_gpu
from occupancy_lab.gpus.present import PresentGpu
from occupancy_lab.launch import Launch
from occupancy_lab.sweeping.recorded import row_resources
from occupancy_lab.tuning import autotuner
from occupancy_lab.values import Resources

GPU = find_gpu("h200")
PRUNED = {"early_config_prune": occupancy_lab.early_config_prune}
BOTH = PRUNED | {"perf_model": occupancy_lab.perf_model}


X = torch.empty(2**20)
ARGUMENTS = (X, X, 2**20)
pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Simulate an H200, on which Triton compiles and launches nothing."""

    def load(kernel: Any) -> None:
        most = GPU.architecture.max_shared
        if kernel.metadata.shared > most:
            raise OutOfResources(kernel.metadata.shared, most, "shared memory")

    def run(kernel: Any) -> Callable[..., None]:
        load(kernel)
        return lambda *_, **__: None

    present = (PresentGpu(GPU, GPU.title, {}, 0, GPU),)
    monkeypatch.setattr(autotuner, "present_gpus", lambda: present)
    monkeypatch.setattr(CompiledKernel, "_init_handles", load)
    monkeypatch.setattr(CompiledKernel, "run", property(run))
    with offline(GPU.target):
        yield


def stand_in_bench(call: Callable[[], None], **_: Any) -> list[float]:
    """Launch once, and return one second."""
    call()
    return [1.0, 1.0, 1.0]


def tuned(kernel: Any, configs: Sequence[Any], **prune: Any) -> Any:
    """Return an Autotuner of *kernel* that launches but does not measure."""
    return Autotuner(
        kernel,
        kernel.arg_names,
        list(configs),
        [],
        None,
        None,
        prune_configs_by=prune,
        do_bench=stand_in_bench,
    )


def configs_of(**swept: Sequence[int]) -> list[Any]:
    """Return every combination of the values."""
    found = []
    for values in itertools.product(*swept.values()):
        named = dict(zip(swept, values, strict=True))
        options = {name: named.pop(name) for name in ("num_warps", "num_stages") if name in named}
        found.append(triton.Config(named, **options))
    return found


def matmul_configs(*blocks: tuple[int, int, int, int, int]) -> list[Any]:
    """Return configurations of launched_kernels.matmul: its blocks, stages and warps."""
    return [
        triton.Config(
            {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8},
            num_stages=stages,
            num_warps=warps,
        )
        for m, n, k, stages, warps in blocks
    ]


def matmul_grid(named: Mapping[str, int]) -> tuple[int]:
    """Return the grid of a product of two 512 x 512 matrices."""
    return (triton.cdiv(512, named["BLOCK_SIZE_M"]) * triton.cdiv(512, named["BLOCK_SIZE_N"]),)


def launch_matmul(tuner: Any) -> None:
    """Launch a product of two 512 x 512 matrices."""
    a = torch.empty((512, 512), dtype=torch.float16)
    tuner[matmul_grid](*(a, a, a, 512, 512, 512, 512, 1, 512, 1, 512, 1), ACTIVATION="")


def noted(model: Callable[..., float]) -> tuple[Callable[..., float], list[float]]:
    """Return *model* as one that keeps what it says, and the list of that."""
    said: list[float] = []

    def perf_model(**arguments: Any) -> float:
        said.append(model(**arguments))
        return said[-1]

    return perf_model, said


def launched(tuner: Any) -> list[Any]:
    """Return the configurations launched by a tune."""
    return list(getattr(tuner, "configs_timings", [tuner.best_config]))


def test_what_cannot_fit_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """A matmul with 288 KB of shared memory is not launched, and the log says why."""
    caplog.set_level(logging.INFO, "occupancy_lab")
    configs = matmul_configs((128, 256, 128, 3, 8), (64, 64, 32, 3, 4))
    tuner = tuned(launched_kernels.matmul, configs, **BOTH, top_k=8)
    launch_matmul(tuner)
    assert launched(tuner) == configs[1:]
    dropped, summary = (record.getMessage() for record in caplog.records)
    assert dropped.startswith("matmul: dropped BLOCK_SIZE_M 128, BLOCK_SIZE_N 256")
    assert "at most 232448 B of shared memory, and this one needs 294912 B" in dropped
    assert "1 of 2 configurations are kept (1 cannot run)" in summary


def test_where_nothing_fits_everything_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    """If no configuration can run all stay, so that the user sees Triton's error."""
    configs = matmul_configs((128, 256, 128, 3, 8), (256, 128, 128, 3, 8))
    with pytest.raises(OutOfResources):
        launch_matmul(tuned(launched_kernels.matmul, configs, **BOTH, top_k=1))
    assert "0 of 2 configurations are usable, so all are kept (2 cannot run)" in caplog.text


def test_one_of_several_equal_binaries_is_launched(caplog: pytest.LogCaptureFixture) -> None:
    """Without a loop, stages give equal binaries: one per number of warps is left."""
    caplog.set_level(logging.INFO, "occupancy_lab")
    configs = configs_of(BLOCK_SIZE=(1024,), num_warps=(4, 8), num_stages=(1, 2, 3))
    tuner = tuned(double, configs, **PRUNED)
    tuner[grid](*ARGUMENTS)
    assert launched(tuner) == [configs[0], configs[3]]
    assert caplog.text.count("it is launched as BLOCK_SIZE 1024, num_warps 4, num_stages 1 is") == 2


def test_equal_binaries_of_other_grids_both_stay() -> None:
    """A constexpr that only the grid uses makes another launch of an equal binary."""

    @triton.jit
    def kernel(x_ptr, n, PROGRAMS: tl.constexpr):  # noqa: ANN001, ANN202, ARG001, N803 - a kernel
        tl.store(x_ptr + tl.program_id(0), n)

    configs = configs_of(PROGRAMS=(1, 2, 2))
    tuner = tuned(kernel, configs, **PRUNED)
    tuner.nargs = {"x_ptr": X, "n": 5}
    kept = tuner.prune_configs({"grid": lambda meta: (meta["PROGRAMS"],), "warmup": False})
    assert kept == configs[:2]


def test_nothing_is_compiled_twice(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each configuration is compiled once, in threads, and launched as compiled."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "store"))
    double.device_caches.clear()
    compiled: list[bool] = []

    def listen(*, cache_hit: bool, **_: Any) -> None:
        compiled.append(cache_hit)

    monkeypatch.setattr(triton.knobs.compilation, "listener", listen)
    configs = configs_of(BLOCK_SIZE=(256, 512), num_warps=(2, 4))
    tuner = tuned(double, configs, **BOTH, top_k=2)
    tuner[grid](*ARGUMENTS)
    assert compiled == [False] * 4
    assert len(launched(tuner)) == 2


def test_another_process_finds_what_was_compiled(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiles for pruning are in Triton's cache for later processes."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "store"))
    launched_kernels.layer_norm.device_caches.clear()
    configs = configs_of(BLOCK_SIZE=(256, 512))
    tuner = tuned(launched_kernels.layer_norm, configs, **PRUNED)
    tuner[(64,)](X, X, X, X, X, X, 512, 512, 1e-5)
    script = """
import launched_kernels, torch, triton
from occupancy_lab.compiling.offline import offline
from occupancy_lab.gpus import find_gpu
hits = []
triton.knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
x = torch.empty(2**20)
with offline(find_gpu("h200").target):
    for size in (256, 512):
        launched_kernels.layer_norm.warmup(
            x, x, x, x, x, x, 512, 512, 1e-5, BLOCK_SIZE=size, num_warps=4, num_ctas=1,
            num_stages=3, grid=(64,)
        )
print(hits)
"""
    own = inspect.getfile(launched_kernels).removesuffix("launched_kernels.py")
    path = os.pathsep.join(filter(None, (own, os.environ.get("PYTHONPATH"))))
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "[True, True]"


def test_arguments_by_name_and_heuristics() -> None:
    """Arguments by name, and heuristics below the autotuner, are supported."""
    kernel = triton.heuristics({"BLOCK_SIZE": lambda named: 512 if named["n"] > 0 else 1})(double)
    configs = configs_of(num_warps=(1, 2), num_stages=(1, 2))
    tuner = tuned(kernel, configs, **BOTH, top_k=1)
    tuner[grid](X, y_ptr=X, n=2**20)
    assert len(launched(tuner)) == 1


def test_what_does_not_compile_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """Only the configuration that Triton cannot compile is dropped, with the reason."""
    caplog.set_level(logging.INFO, "occupancy_lab")
    configs = configs_of(BLOCK_SIZE=(1000, 1024))
    tuner = tuned(double, configs, **PRUNED)
    tuner[grid](*ARGUMENTS)
    assert launched(tuner) == configs[1:]
    assert "double: dropped BLOCK_SIZE 1000, num_warps 4, num_stages 3: Triton" in caplog.text
    assert "cannot compile double for sm_90" in caplog.text
    kernels = [one for kernels, *_ in double.device_caches.values() for one in kernels.values()]
    assert all(isinstance(one, CompiledKernel) for one in kernels)


def test_without_an_autotuner_nothing_changes(caplog: pytest.LogCaptureFixture) -> None:
    """Called by anything else, the hooks keep all configurations and log why."""
    configs = configs_of(BLOCK_SIZE=(128, 256))
    assert occupancy_lab.early_config_prune(configs, {"n": 5}, grid=(1,)) == configs
    assert occupancy_lab.perf_model(n=5, BLOCK_SIZE=128, num_warps=4) == 0.0
    assert "no Autotuner of Triton called" in caplog.text
    assert {record.levelname for record in caplog.records} == {"WARNING"}


@pytest.mark.parametrize("moved", [(), (2**22, 2**22)], ids=["counted", "known bytes"])
def test_torch_compile_traces_a_kernel_with_both(
    monkeypatch: pytest.MonkeyPatch, moved: tuple[int, ...]
) -> None:
    """Dynamo traces a kernel with both hooks in one whole graph."""
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda *_: True)
    hooks = BOTH | {"perf_model": functools.partial(occupancy_lab.perf_model, *moved)}
    tuner = tuned(double, configs_of(BLOCK_SIZE=(128, 256)), **hooks, top_k=1)
    compiled, graphs = compiled_whole(tuner)
    compiled(X)
    assert len(graphs) == 1
    assert "triton_kernel_wrapper" in graphs[0]


def test_no_error_reaches_the_program(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After any error the tune goes on with every configuration."""
    monkeypatch.setattr(autotuner, "Compiler", lambda *_, **__: 1 / 0)
    configs = configs_of(BLOCK_SIZE=(128, 256))
    tuner = tuned(double, configs, **BOTH, top_k=1)
    tuner[grid](*ARGUMENTS)
    assert launched(tuner) == configs[:1]
    assert "no configuration is dropped: ZeroDivisionError" in caplog.text
    assert caplog.text.count("configurations are not ranked: ZeroDivisionError") == 1


def test_a_dry_run_prunes_and_ranks_as_the_launch_would(caplog: pytest.LogCaptureFixture) -> None:
    """A dry run passes the grid on, as a launch does."""
    configs = configs_of(BLOCK_SIZE=(128, 1024), num_stages=(1, 2))
    tuner = tuned(double, configs, **BOTH, top_k=1)
    (run,) = occupancy_lab.dry_run(tuner, "h200")[grid](*ARGUMENTS).runs
    assert run.arguments["BLOCK_SIZE"] == 1024
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


PROGRAM = """
import torch, triton, triton.language as tl
import occupancy_lab

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (64, 1024)]
RANKED = {"perf_model": occupancy_lab.perf_model, "top_k": 1}

@triton.autotune(CONFIGS, key=["n"], prune_configs_by=RANKED)
@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 1.0, mask=at < n)

def main():
    fill[lambda meta: (2**20 // meta["BLOCK"],)](torch.empty(2**20, device="cuda"), 2**20)
    print("best:", fill.best_config)
"""


@pytest.mark.parametrize("gpu", ["b200", "h100"])
@pytest.mark.usefixtures("alone")
def test_a_dry_run_of_a_program_ranks_for_the_gpu_that_is_asked_for(
    tmp_path: Path, gpu: str
) -> None:
    """The hooks use the GPU of the dry run, and best_config is their first."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = in_process.run("explain", f"{program}:main", "--gpu", gpu)
    assert "best: BLOCK: 1024," in done.stdout + done.stderr


def test_configurations_are_ranked_by_the_time_that_explain_predicts() -> None:
    """Configurations are ranked by predicted milliseconds."""
    blocks = ((128, 128, 64, 3, 8), (16, 16, 16, 1, 1), (64, 64, 32, 3, 4))
    perf_model, said = noted(occupancy_lab.perf_model)
    tuner = tuned(launched_kernels.matmul, matmul_configs(*blocks), perf_model=perf_model, top_k=1)
    launch_matmul(tuner)
    asked = tuned(launched_kernels.matmul, matmul_configs(*blocks))
    a = tensor((512, 512), "float16")
    run = occupancy_lab.dry_run(asked, "h200")[matmul_grid](
        *(a, a, a, 512, 512, 512, 512, 1, 512, 1, 512, 1), ACTIVATION=""
    )
    times = [one.prediction.us / 1e3 for one in run.records if one.prediction is not None]
    assert said == pytest.approx(times)
    assert max(said) == said[1]
    assert launched(tuner) == [tuner.configs[said.index(min(said))]]


def test_known_bytes_give_milliseconds() -> None:
    """With given bytes a launch without loops has a time, no less than they take."""
    size = X.numel() * X.element_size()
    bytes_read, bytes_written = size, lambda named: named["n"] * 4
    model = functools.partial(occupancy_lab.perf_model, bytes_read, bytes_written)
    perf_model, said = noted(model)
    tuner = tuned(double, configs_of(BLOCK_SIZE=(256, 1024)), perf_model=perf_model, top_k=1)
    tuner[grid](*ARGUMENTS)
    assert GPU.bandwidth_gbs is not None
    assert all(2 * size / GPU.bandwidth_gbs / 1e6 <= ms < 0.1 for ms in said)
    assert len(said) == 2


PLAIN = Resources(
    n_regs=64,
    num_warps=8,
    shared=0,
    local_bytes=0,
    local_traffic=0,
    local_loads=0,
    local_stores=0,
    instructions=1000,
    global_accesses=8,
    load_bytes=16,
    binary=1,
)
SPILLING = PLAIN.replace(
    local_bytes=400, local_traffic=800, local_loads=100, local_stores=100, binary=2
)


def kept_of(
    monkeypatch: pytest.MonkeyPatch, outcomes: Sequence[Resources], configs: Sequence[Any]
) -> list[int]:
    """Return the indices that are kept if *configs* compile to *outcomes*."""
    monkeypatch.setattr(Compiler, "compile", lambda *_: list(outcomes))
    tuner = tuned(double, configs, **PRUNED)
    tuner.nargs = dict(zip(double.arg_names, ARGUMENTS, strict=False))
    kept = tuner.prune_configs({"grid": grid, "warmup": False})
    return [place for place, one in enumerate(configs) if any(one is other for other in kept)]


@pytest.mark.parametrize(
    ("spilling", "clean", "kept"),
    [
        pytest.param({}, {}, [1], id="no better in anything"),
        pytest.param({"local_loads": 20, "local_stores": 20}, {}, [0, 1], id="light spills"),
        pytest.param({}, {"n_regs": 128}, [0, 1], id="more warps resident"),
        pytest.param({}, {"instructions": 1200}, [0, 1], id="fewer instructions"),
        pytest.param({}, {"local_traffic": 4}, [0, 1], id="the other spills too"),
        pytest.param({}, {"local_traffic": None}, [0, 1], id="the other is not known"),
    ],
)
def test_heavy_spills_are_dropped_where_nothing_speaks_for_them(
    monkeypatch: pytest.MonkeyPatch,
    spilling: dict[str, Any],
    clean: dict[str, Any],
    kept: list[int],
) -> None:
    """Spilling is dropped only if another is at least as good in all respects."""
    configs = configs_of(BLOCK_SIZE=(1024,), num_warps=(4, 8))
    outcomes = [SPILLING.replace(**spilling), PLAIN.replace(**clean)]
    assert kept_of(monkeypatch, outcomes, configs) == kept


def test_other_blocks_or_fewer_stages_do_not_dominate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other blocks or fewer stages do not replace a spilling configuration."""
    assert kept_of(monkeypatch, [SPILLING, PLAIN], configs_of(BLOCK_SIZE=(512, 1024))) == [0, 1]
    stages = configs_of(BLOCK_SIZE=(512,), num_stages=(4, 3))
    assert kept_of(monkeypatch, [SPILLING, PLAIN], stages) == [0, 1]
    assert kept_of(monkeypatch, [SPILLING, PLAIN], stages[::-1]) == [1]


def test_recorded_launches_bear_out_what_is_dropped() -> None:
    """No dominated launch recorded on an H200 is the fastest of its block."""
    table = occupancy_lab.recorded_table()
    table = table[
        (table["gpu"] == "h200")
        & table["us"].notna()
        & table["kernel"].isin(["softmax", "softmax_row"])
    ]
    dominated = 0
    for _, rows in table.groupby(["kernel", "rows", "cols", "dtype", "BLOCK_SIZE"]):
        tried = [_recorded(row) for row in rows.to_dict("records")]
        for one, us in tried:
            better = [other_us for other, other_us in tried if one.is_dominated_by(other)]
            dominated += bool(better)
            assert us > 4 * min(better, default=0.0)
    assert dominated > 250


def _recorded(row: dict[Any, Any]) -> tuple[autotuner.Tried, float]:
    config = triton.Config({}, num_warps=int(row["num_warps"]), num_stages=int(row["num_stages"]))
    launch = Launch((X, X, 7), {"BLOCK_SIZE": 1024, **config.all_kwargs()}, (1,))
    record = record_of(Asked(double, launch, GPU), row_resources(row), triton="3.6.0")
    return autotuner.Tried(config, record), float(row["us"])


@pytest.mark.parametrize("lacking", [{1}, {0, 1, 2}])
def test_what_has_no_time_comes_after_what_has_one(
    monkeypatch: pytest.MonkeyPatch, lacking: set[int]
) -> None:
    """Runnable ones come before others; without times all stay in order."""
    counted = autotuner.with_counts

    def without(*asked: Any, **others: Any) -> list[Any]:
        return [
            dataclasses.replace(one, prediction=None) if place in lacking else one
            for place, one in enumerate(counted(*asked, **others))
        ]

    monkeypatch.setattr(autotuner, "with_counts", without)
    perf_model, said = noted(occupancy_lab.perf_model)
    tuned(double, configs_of(BLOCK_SIZE=(64, 256, 1024)), perf_model=perf_model, top_k=1)[grid](
        *ARGUMENTS
    )
    if len(lacking) == 1:
        assert max(said[0], said[2]) < said[1] < math.inf
    else:
        assert said == [0.0] * 3
