"""`tuned`: which launches use the file, on which GPU and at which size."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from launched_kernels import compiled_whole, double, grid
from triton.compiler import CompiledKernel
from triton.runtime.errors import OutOfResources

import occupancy_lab
from occupancy_lab import UntunedWarning
from occupancy_lab.compiling.offline import offline
from occupancy_lab.digest import source_digest
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.gpus.present import PresentGpu
from occupancy_lab.tuning import tuned as module

Write = Callable[..., Path]
"""Writes a file for `double` with changes."""
Made = list[dict[str, Any]]
"""Launches with their programs, warps and stages."""
H100 = find_gpu("h100")
X = torch.empty(2**20)
N = 2**20


OWN = [triton.Config({"BLOCK_SIZE": size}, num_warps=1) for size in (64, 128)]
"""The configurations of the autotuner."""


def autotuned(kernel: Any = double, **others: Any) -> Any:
    """Return *kernel* with an autotuner that counts, but does not time."""

    def bench(call: Callable[[], None], **_: Any) -> list[float]:
        call()
        tuner.tunes += 1
        return [1.0, 1.0, 1.0]

    tuner = triton.autotune(OWN, key=["n"], do_bench=bench, **others)(kernel)
    tuner.tunes = 0
    return tuner


def launch(n: int, block: int, warps: int = 4) -> dict[str, Any]:
    """Return a launch for a file."""
    config = {"BLOCK_SIZE": block, "num_warps": warps, "num_stages": 3}
    times = {"predicted_us": 2.0, "predicted_low_us": 1.0, "predicted_high_us": 3.0}
    return {"sizes": {"n": n}, "config": config, **times, "bound": "bandwidth"}


LAUNCHES = [launch(2**10, 256, 2), launch(2**14, 512), launch(2**20, 1024, 8)]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a file for `double` with changes."""

    def written(**changes: Any) -> Path:
        values = {
            "format": "occupancy-lab tuned",
            "version": 2,
            "kernel": {"name": "double", "digest": source_digest(double)},
            "triton": "3.7.1",
            "sizes": ["n"],
            "tensors": {"x_ptr": "fp32", "y_ptr": "fp32"},
            "constexprs": {},
            "gpus": {"h100": LAUNCHES},
            "left_out": [],
            "basis": {"h100": "a guess", "b200": "a guess", "h200": "a guess"},
        }
        path = tmp_path / "tuned.json"
        path.write_text(json.dumps({**values, **changes}), encoding="utf-8")
        return path

    return written


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """Simulate an H100 that launches nothing, and return the launches."""
    launches: Made = []

    def run(kernel: Any) -> Callable[..., None]:
        def launched(width: int, *_: Any) -> None:
            meta = kernel.metadata
            launches.append({"programs": width, "warps": meta.num_warps, "stages": meta.num_stages})

        return launched

    put_here(monkeypatch, H100)
    monkeypatch.setattr(CompiledKernel, "_init_handles", lambda _: None)
    monkeypatch.setattr(CompiledKernel, "run", property(run))
    with offline(H100.target):
        yield launches


def put_here(monkeypatch: pytest.MonkeyPatch, *gpus: Any) -> None:
    """Simulate *gpus* in this machine; Triton launches on the first."""
    here = tuple(PresentGpu(gpu, gpu.title, {}, place, gpu) for place, gpu in enumerate(gpus))
    monkeypatch.setattr(module, "present_gpus", lambda: here)


@pytest.fixture
def first_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Triton launch on GPU 0."""
    monkeypatch.setattr(module, "_device", lambda: 0)


def launch_all(kernel: Any, *sizes: int) -> None:
    """Launch *kernel* at each of *sizes*."""
    for n in sizes:
        kernel[grid](X, X, n)


def blocks(made: Sequence[Mapping[str, Any]], n: int = N) -> list[int]:
    """Return the block sizes of launches *made* for *n* elements."""
    return [n // one["programs"] for one in made]


pytestmark = pytest.mark.usefixtures("first_gpu")


@pytest.mark.parametrize("wrapped", [True, False], ids=["autotuned", "alone"])
def test_a_size_of_the_file_is_launched_as_it_says(
    write: Write, made: Made, *, wrapped: bool
) -> None:
    """Each size takes its configuration without tuning or warning."""
    below = autotuned() if wrapped else double
    kernel = occupancy_lab.tuned(write())(below)
    for _ in range(2):
        kernel[grid](X, X, 2**20)
        kernel[grid](x_ptr=X, y_ptr=X, n=2**10)
    assert made == 2 * [
        {"programs": 2**10, "warps": 8, "stages": 3},
        {"programs": 4, "warps": 2, "stages": 3},
    ]
    assert getattr(below, "tunes", 0) == 0
    assert kernel.best_config.kwargs == {"BLOCK_SIZE": 256}


def test_warmup_compiles_what_is_launched(write: Write, made: Made) -> None:
    """`warmup` accepts dtypes for tensors, and launches nothing."""
    kernel = occupancy_lab.tuned(write())(double)
    (compiled,) = kernel.warmup(torch.float32, torch.float32, 2**20, grid=(1,))
    assert compiled.metadata.num_warps == 8
    assert made == []


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "another kernel": ({"kernel": {"name": "halve", "digest": ""}}, "of the kernel halve"),
    "changed": ({"kernel": {"name": "double", "digest": "0"}}, "double has changed since"),
    "another GPU": ({"gpus": {"b200": LAUNCHES}}, "the file has b200, and this is h100"),
    "another dtype": ({"tensors": {"x_ptr": "fp16"}}, "x_ptr is fp32, and the file is of fp16"),
    "another version": ({"version": 1}, "is of version '1', and this occupancy-lab reads version"),
    "another format": ({"format": "table"}, "is no file that `occupancy-lab tune --output` wrote"),
    "a part missing": ({"gpus": {"h100": [{"sizes": {"n": 1}}]}}, "lacks a part"),
    "no configuration": ({"gpus": {"h100": [{**LAUNCHES[0], "config": 4}]}}, "a launch without"),
}


@pytest.mark.parametrize(("changes", "why"), CHANGES.values(), ids=CHANGES)
def test_what_the_file_does_not_answer_is_tuned(
    write: Write, made: Made, changes: dict[str, Any], why: str
) -> None:
    """The autotuner takes over, and a single warning says why."""
    below = autotuned()
    kernel = occupancy_lab.tuned(write(**changes))(below)
    with pytest.warns(UntunedWarning, match=why) as caught:
        launch_all(kernel, 2**20, 2**20, 2**10)
    assert len(caught) == 1
    assert str(caught[0].message).endswith("; Triton's autotuner chooses")
    assert caught[0].filename == __file__  # the place of the launch
    assert below.tunes == 4
    assert kernel.best_config is below.best_config
    assert {one["warps"] for one in made} == {1}


@pytest.mark.parametrize("name", ["changed", "another GPU", "another dtype"])
def test_without_an_autotuner_the_first_configuration_is_launched(
    write: Write, made: Made, name: str
) -> None:
    """Without an autotuner the file's first configuration is launched."""
    changes, why = CHANGES[name]
    kernel = occupancy_lab.tuned(write(**changes))(double)
    with pytest.warns(UntunedWarning, match=why):
        kernel[grid](X, X, 2**20)
    assert blocks(made) == [256]


def test_without_any_configuration_the_launch_line_counts(
    write: Write, made: Made, tmp_path: Path
) -> None:
    """Without a configuration the launch is unchanged, or lacks a constexpr."""
    kernel = occupancy_lab.tuned(write(**CHANGES["another kernel"][0]))(double)
    with pytest.raises(
        InputError, match=r"without a value for BLOCK_SIZE; .*gives none, as .*halve"
    ):
        kernel[grid](X, X, 2**20)
    unread = occupancy_lab.tuned(tmp_path / "none.json")(double)
    with pytest.raises(InputError, match=r"without a value for BLOCK_SIZE; .*none.json cannot be"):
        unread[grid](X, X, 2**20)
    with pytest.warns(UntunedWarning, match="it is launched as it is"):
        kernel[grid](X, X, 2**20, BLOCK_SIZE=128, num_warps=2)
    assert made == [{"programs": 2**13, "warps": 2, "stages": 3}]


def test_a_file_that_is_not_there_yet_is_no_error(tmp_path: Path) -> None:
    """A kernel may be decorated before its file exists: `tune` imports it."""
    kernel = occupancy_lab.tuned(tmp_path / "none.json")(autotuned())
    assert kernel.configs == OWN
    assert kernel.untuned.configs == OWN


@pytest.mark.usefixtures("made")
def test_what_is_tuned_and_given_too_is_refused(write: Write) -> None:
    """A launch line that passes a tuned setting is refused, as by Triton."""
    kernel = occupancy_lab.tuned(write())(double)
    with pytest.raises(InputError, match=r"num_warps is tuned by .*, and given too"):
        kernel[grid](X, X, 2**20, num_warps=4)


@pytest.mark.usefixtures("made")
def test_heuristics_around_an_autotuner_stay_outside() -> None:
    """`tuned` must be right above autotune, not above heuristics."""
    outside = triton.heuristics({"BLOCK_SIZE": lambda _: 64})(autotuned())
    with pytest.raises(InputError, match="above the heuristics of double; put it right above"):
        occupancy_lab.tuned("tuned.json")(outside)


def test_heuristics_work_with_what_was_chosen(write: Write, made: Made) -> None:
    """Heuristics inside see the chosen configuration, those outside do not."""

    @triton.jit
    def fill(x_ptr, n, BLOCK_SIZE: tl.constexpr, EVEN: tl.constexpr, HALF: tl.constexpr):  # noqa: ANN001, ANN202, N803 - a kernel
        at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        tl.store(x_ptr + at, HALF, mask=None if EVEN else at < n)

    seen: list[int] = []

    def half(named: Mapping[str, Any]) -> int:
        seen.append(named["BLOCK_SIZE"])
        return int(named["BLOCK_SIZE"]) // 2

    inside = triton.heuristics({"HALF": half})(fill)
    file = write(kernel={"name": "fill", "digest": source_digest(fill)}, tensors={"x_ptr": "fp32"})
    tuned = occupancy_lab.tuned(file)(triton.autotune(OWN, key=["n"])(inside))
    outside = triton.heuristics({"EVEN": lambda named: named["n"] % 1024 == 0})(tuned)
    outside[grid](X, 2**20)
    assert seen == [1024]
    assert blocks(made) == [1024]


def test_a_configuration_that_cannot_be_launched_is_tuned(
    write: Write, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the GPU refuses the choice, the autotuner takes over."""

    def run(kernel: Any) -> Callable[..., None]:
        if kernel.metadata.num_warps == 8:
            raise OutOfResources(10, 5, "shared memory")
        return lambda *_: made.append({"warps": kernel.metadata.num_warps})

    monkeypatch.setattr(CompiledKernel, "run", property(run))
    kernel = occupancy_lab.tuned(write())(autotuned())
    with pytest.warns(UntunedWarning, match="cannot be launched: OutOfResources"):
        kernel[grid](X, X, 2**20)
    assert {one["warps"] for one in made} == {1}
    with pytest.raises(OutOfResources):
        occupancy_lab.tuned(write())(double)[grid](X, X, 2**20)


def test_what_the_author_prunes_is_not_launched(write: Write, made: Made) -> None:
    """A neighbour's choice that early_config_prune drops is not launched."""

    def prune(configs: list[Any], named_args: Mapping[str, Any], **_: Any) -> list[Any]:
        return [one for one in configs if one.kwargs["BLOCK_SIZE"] <= named_args["n"]]

    below = autotuned(prune_configs_by={"early_config_prune": prune})
    kernel = occupancy_lab.tuned(write())(below)
    kernel[grid](X, X, 2**10)
    kernel[grid](X, X, 512)
    assert below.tunes == 0
    with pytest.warns(UntunedWarning, match="early_config_prune drops what was chosen"):
        kernel[grid](X, X, 128)
    assert below.tunes == 2
    assert len(made) == 5


@pytest.mark.parametrize("own", [autotuned, lambda: double], ids=["autotuned", "alone"])
def test_what_a_search_found_is_launched_with_its_numbers_alone(
    write: Write, made: Made, own: Callable[[], Any]
) -> None:
    """Other sizes, grids, dtypes and torch.compile use the author's own."""
    searched = {"only": {"n": 2**10, "grid": [4, 1]}, "elsewhere": launch(0, 128, 1)["config"]}
    gpus = {"h100": [{**LAUNCHES[0], **searched}]}
    kernel = occupancy_lab.tuned(write(gpus=gpus))(own())
    for n, size in ((2**10, grid), (1000, grid), (2**10, (8,)), (2**10, (4,))):
        kernel[size](X, X, n)
    assert [one["warps"] for one in made] == [2, 1, 1, 2]
    told = {"x_ptr": X, "y_ptr": X, "n": 2**10}
    for passed, block in (({"grid": grid}, 256), ({"grid": (8,)}, 128), ({}, 128)):
        (config,) = kernel.early_config_prune(kernel.configs, told, **passed)
        assert config.kwargs == {"BLOCK_SIZE": block}
    with pytest.warns(UntunedWarning, match="x_ptr is fp64"):
        kernel[grid](X.double(), X, 2**10)
    assert made[-1]["warps"] == 1


def test_a_search_does_not_find_what_the_author_prunes(write: Write, made: Made) -> None:
    """A searched choice that early_config_prune drops is not launched."""

    def prune(configs: list[Any], *_: Any, **__: Any) -> list[Any]:
        return [one for one in configs if one.kwargs["BLOCK_SIZE"] < 256]

    searched = {"only": {"n": 2**10, "grid": [4]}, "elsewhere": launch(0, 128, 1)["config"]}
    below = autotuned(prune_configs_by={"early_config_prune": prune})
    gpus = {"h100": [{**LAUNCHES[0], **searched}]}
    occupancy_lab.tuned(write(gpus=gpus))(below)[grid](X, X, 2**10)
    assert [one["warps"] for one in made] == [1]
    assert below.tunes == 0


def test_hooks_of_a_configuration_are_called(write: Write, made: Made) -> None:
    """A configuration's pre_hook gets all arguments before each launch."""
    seen: list[Any] = []
    hooked = triton.Config(
        {"BLOCK_SIZE": 64}, pre_hook=lambda named: seen.append(named["BLOCK_SIZE"])
    )
    kernel = occupancy_lab.tuned(write())(triton.autotune([hooked], key=["n"])(double))
    kernel[grid](X, X, 2**20)
    kernel[grid](X, X, 2**20)
    assert seen == [1024, 1024]
    assert len(made) == 2


def test_each_gpu_has_its_own(write: Write, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each GPU of a process has its own choice."""
    other = find_gpu("h200")
    put_here(monkeypatch, H100, other)
    file = write(gpus={"h100": LAUNCHES, "h200": [launch(2**20, 64, 16)]})
    kernel = occupancy_lab.tuned(file)(double)
    kernel[grid](X, X, 2**20)
    monkeypatch.setattr(module, "_device", lambda: 1)
    kernel[grid](X, X, 2**20)
    assert blocks(made) == [1024, 64]


def test_constexprs_of_the_launch_line_tell_launches_apart(write: Write, made: Made) -> None:
    """A launch with another value of a constexpr does not use the file."""

    @triton.jit
    def scale(x_ptr, n, FACTOR: tl.constexpr, BLOCK_SIZE: tl.constexpr):  # noqa: ANN001, ANN202, N803 - a kernel
        at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * FACTOR, mask=at < n)

    file = write(
        kernel={"name": "scale", "digest": source_digest(scale)},
        tensors={"x_ptr": "fp32"},
        constexprs={"FACTOR": 2},
    )
    kernel = occupancy_lab.tuned(file)(triton.autotune(OWN[:1], key=["n"])(scale))
    kernel[grid](X, 2**20, 2)
    kernel[grid](X, 2**20, FACTOR=2)
    with pytest.warns(UntunedWarning, match="FACTOR is 3, and the file is of 2"):
        kernel[grid](X, 2**20, FACTOR=3)
    assert blocks(made) == [1024, 1024, 64]


@pytest.mark.parametrize("wrapped", [True, False], ids=["autotuned", "alone"])
def test_files_of_several_dtypes_are_stacked(
    write: Write, made: Made, tmp_path: Path, *, wrapped: bool
) -> None:
    """The first file that covers a launch is used; one warning if none does."""
    half = tmp_path / "half.json"
    halves = dict.fromkeys(("x_ptr", "y_ptr"), "fp16")
    write(tensors=halves, gpus={"h100": [launch(2**20, 2048)]}).rename(half)
    below = autotuned() if wrapped else double
    kernel = occupancy_lab.tuned(half)(occupancy_lab.tuned(write())(below))
    assert kernel.untuned is below
    kernel[grid](X, X, 2**20)
    kernel[grid](X.half(), X.half(), 2**20)
    assert blocks(made) == [1024, 2048]
    with pytest.warns(UntunedWarning, match="x_ptr is fp64, and the file is of fp32") as caught:
        kernel[grid](X.double(), X.double(), 2**20)
    assert len(caught) == 1
    assert blocks(made)[-1] == (64 if wrapped else 256)
    if wrapped:
        (config,) = kernel.early_config_prune(kernel.configs, {"x_ptr": X, "y_ptr": X, "n": 2**20})
        assert config.kwargs == {"BLOCK_SIZE": 1024}


@pytest.mark.usefixtures("made")
def test_torch_compile_launches_what_was_chosen(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.compile makes one graph per size with the chosen configuration."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    monkeypatch.setattr("torch.utils._triton.has_triton", lambda *_: True)
    kernel_side_table.reset_table()
    kernel = occupancy_lab.tuned(write())(autotuned())
    compiled, graphs = compiled_whole(kernel)
    for n in (2**20, 2**10, 2**20):
        compiled(X[:n])
    assert len(graphs) == 2
    assert all("triton_kernel_wrapper" in one for one in graphs)
    launched = [one for one in kernel_side_table.id_to_kernel.values() if one is not kernel]
    assert [[one.kwargs for one in tuner.configs] for tuner in launched] == [
        [{"BLOCK_SIZE": 1024}],
        [{"BLOCK_SIZE": 256}],
    ]
    with pytest.warns(UntunedWarning, match="x_ptr is fp64"):
        compiled(X[:1024].double())
    *_, tuner = kernel_side_table.id_to_kernel.values()
    assert tuner.configs == OWN
    torch.compiler.reset()


def test_the_interpreter_computes_with_the_first_configuration(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Triton's interpreter the result is right and nothing is timed."""
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    monkeypatch.setattr(module, "_device", lambda: module.NO_GPU)
    interpreted = triton.jit(double.fn)
    assert source_digest(interpreted) == source_digest(double)
    x, y = torch.arange(1000.0), torch.zeros(1000)
    for below in (interpreted, autotuned(interpreted)):
        kernel = occupancy_lab.tuned(write())(below)
        with pytest.warns(UntunedWarning, match="the file has h100, and this is none"):
            kernel[grid](x, y.zero_(), 1000)
        assert torch.equal(y, 2 * x)


def test_a_look_up_does_no_more_than_tritons(
    write: Write, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated launch does not read the file, the GPUs or the source."""
    kernel = occupancy_lab.tuned(write())(double)
    kernel[grid](X, X, 2**20)
    for name in ("_find", "_way", "_gpu", "_fallback"):
        monkeypatch.setattr(module.Tuned, name, pytest.fail)
    kernel[grid](X, X, 2**20)
    assert len(made) == 2


@pytest.mark.gpu
def test_a_real_gpu_is_launched_on(write: Write) -> None:
    """On a GPU a tuned kernel's result is right, also in a CUDA graph."""
    key = occupancy_lab.present_gpus()[0].gpu.key
    kernel = occupancy_lab.tuned(write(gpus={key: LAUNCHES}))(double)
    x = torch.rand(2**20, device="cuda")
    y = torch.empty_like(x)
    with warnings.catch_warnings(action="error"):
        kernel[grid](x, y, x.numel())
        assert torch.equal(y, 2 * x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel[grid](x, y, x.numel())
        y.zero_()
        graph.replay()
    assert torch.equal(y, 2 * x)
