"""A dry run compiles what the launch would compile, once, and launches nothing."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.runtime import driver

from occupancy_lab.arguments import tensor
from occupancy_lab.compiling import Store, store_directory
from occupancy_lab.compiling import compile as compiling
from occupancy_lab.compiling.offline import offline
from occupancy_lab.errors import CompileError, InputError, OccupancyLabError
from occupancy_lab.explaining.dry_run import dry_run, explain_launch, variants
from occupancy_lab.gpus import find_gpu, present_gpus

SM_90 = find_gpu("sm_90").target
X = tensor((4096,), torch.float16)


@triton.jit
def scale(x_ptr, n, factor, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201, N803
    """Multiply a vector."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, x * factor, mask=offsets < n)


def block_of(arguments: dict[str, Any]) -> int:
    """Return the block that a heuristic chooses."""
    return triton.next_power_of_2(arguments["n"])


def configurations(*blocks: int, **options: Any) -> list[Any]:
    """Return a configuration of an autotuner for each block."""
    return [
        triton.Config({"BLOCK": block}, num_warps=warps, **options)
        for block, warps in zip(blocks, (1, 2, 4, 8), strict=False)
    ]


def names(
    function: Any, *arguments: Any, grid: Any = None, **keywords: Any
) -> list[dict[str, Any]]:
    """Return the keywords of each launch that a launch line stands for."""
    return [dict(one.launch.keywords) for one in variants(function, arguments, keywords, grid)]


@contextlib.contextmanager
def asked_of_triton(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Collect the keywords with which Triton's own wrappers run a function, and run nothing."""
    asked: list[dict[str, Any]] = []

    def run(_function: Any, *_args: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
        del grid, warmup
        asked.append(keywords)

    def once(_tuner: Any) -> Any:
        return lambda call, **_: (call(), [float(len(asked))] * 3)[1]

    with monkeypatch.context() as patch, offline(SM_90):
        patch.setattr(triton.runtime.JITFunction, "run", run)
        patch.setattr(triton.runtime.Autotuner, "do_bench", property(once))
        yield asked


def seen_by_triton(monkeypatch: pytest.MonkeyPatch, function: Any, *arguments: Any) -> list[Any]:
    """Return the keywords of the launches that Triton tries, without the final launch."""
    with asked_of_triton(monkeypatch) as asked:
        function[(1,)](*arguments)
    return asked[:-1] if len(asked) > 1 else asked


def tuned(*blocks: int, **options: Any) -> Any:
    """Return the decorator of an autotuner."""
    return triton.autotune(configurations(*blocks), key=["n"], **options)


def keep_large(found: list[Any], arguments: dict[str, Any], **_: Any) -> list[Any]:
    """Keep the configurations with a block of at least *n*."""
    return [one for one in found if one.kwargs["BLOCK"] >= arguments["n"]]


WRAPPED = {
    "autotune": tuned(64, 128, 256)(scale),
    "one configuration": tuned(64)(scale),
    "pruned early": tuned(64, 128, 256, prune_configs_by={"early_config_prune": keep_large})(scale),
    "best two": tuned(
        *(64, 128, 256),
        prune_configs_by={
            "perf_model": lambda BLOCK, **_: -BLOCK,  # noqa: N803 - the kernel's own name
            "top_k": 2,
        },
    )(scale),
    "heuristics": triton.heuristics({"BLOCK": block_of})(scale),
    "autotune of heuristics": triton.autotune(
        [triton.Config({}, num_warps=warps) for warps in (1, 4)], key=["n"]
    )(triton.heuristics({"BLOCK": block_of})(scale)),
    "heuristics of autotune": triton.heuristics({"factor": lambda arguments: arguments["n"] * 2})(
        tuned(64, 128)(scale)
    ),
}
GIVEN = {"heuristics of autotune": (torch.empty(0), 100)}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers_run_as_tritons_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autotune and heuristics, alone and nested, give the launches that Triton tries."""
    arguments = GIVEN.get(name, (torch.empty(0), 100, 2.0))
    theirs = seen_by_triton(monkeypatch, WRAPPED[name], *arguments)
    ours = names(WRAPPED[name], *arguments)
    assert ours
    assert sorted(map(str, map(sorted_items, ours))) == sorted(map(str, map(sorted_items, theirs)))


def sorted_items(keywords: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return keywords in alphabetical order, without None, which stands for Triton's default."""
    return sorted((name, value) for name, value in keywords.items() if value is not None)


def test_a_pre_hook_is_called_as_triton_calls_it() -> None:
    """A configuration's pre_hook is called before its launch, with all arguments by name."""
    seen = []
    kernel = triton.autotune(configurations(64, 128, pre_hook=seen.append), key=["n"])(scale)
    found = list(
        variants(kernel, (X, 100, 2.0), {}, lambda meta: (meta["n"] // meta["BLOCK"] + 1,))
    )
    assert [one.launch.grid for one in found] == [(2,), (1,)]
    assert [one.tuned["BLOCK"] for one in found] == [64, 128]
    assert [(one["n"], one["factor"], one["BLOCK"]) for one in seen] == [
        (100, 2.0, 64),
        (100, 2.0, 128),
    ]
    assert kernel.nargs is None


@pytest.mark.slow
def test_each_configuration_is_a_row() -> None:
    """Each configuration of an autotuner has a row per GPU, in the autotuner's order."""
    dry = dry_run(WRAPPED["autotune"], "h100,mi300x")[lambda meta: (4096 // meta["BLOCK"],)](
        X, 4096, 2.0
    )
    table = dry.table()
    assert list(table["BLOCK"]) == [64, 128, 256] * 2
    assert list(table["num_warps"]) == [1, 2, 4] * 2
    assert list(table["num_programs"]) == [64, 32, 16] * 2
    assert not dry.failures


@pytest.mark.slow
def test_a_stored_launch_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second dry run of a launch takes everything from the store."""
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    dry = dry_run(scale, "h100,gfx1100")[(64,)]
    first = dry(X, 4096, 2.0, BLOCK=64)

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("it is compiled again")

    monkeypatch.setattr(compiling, "_compile", refuse)
    again = dry(X, 4080, 3.0, BLOCK=64)
    assert [one.calculation for one in again.records] == [one.calculation for one in first.records]
    assert Store(store_directory()).directory is not None


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["sm_90", "gfx942"])
def test_a_dry_run_is_what_triton_compiles(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The binary is the one that Triton's own warmup compiles for real tensors."""
    found = []
    for cache in ("one", "other"):
        monkeypatch.setenv("TRITON_CACHE_DIR", str(store_directory() / cache))
        x = torch.empty(4096, dtype=torch.float16)[1:]
        launch = next(variants(scale, (x, 4095, 2.0), {"BLOCK": 128}, (32,))).launch
        with offline(find_gpu(gpu).target):
            scale.device_caches.clear()
            if cache == "one":
                compiled = scale.warmup(x, 4095, 2.0, BLOCK=128, grid=(1,))
            else:
                compiled = launch.warm_up(scale)
        found.append(compiled.asm["cubin" if gpu == "sm_90" else "hsaco"])
    assert found[0] == found[1]


@pytest.mark.slow
def test_one_vendors_option_is_not_passed_to_the_other() -> None:
    """With GPUs of both vendors each gets its own options; a foreign option alone is refused."""
    dry = dry_run(scale, "h100,mi300x")[(64,)](X, 4096, 2.0, BLOCK=64, maxnreg=32, waves_per_eu=2)
    assert [set(one.options) for one in dry.records] == [{"maxnreg"}, {"waves_per_eu"}]
    with pytest.raises(InputError, match="waves_per_eu is neither a parameter of scale"):
        dry_run(scale, "h100")[(64,)](X, 4096, 2.0, BLOCK=64, waves_per_eu=2)


WRONG = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.none(),
    st.booleans(),
    st.text(max_size=4),
    st.sampled_from([(), (1, 2), [], {}, object(), print, torch.float16, tl.float16, X, 1j, b"x"]),
)


@pytest.mark.slow
@settings(max_examples=25)
@given(WRONG, WRONG, WRONG, WRONG)
def test_wrong_arguments_are_one_sentence(x: Any, n: Any, factor: Any, block: Any) -> None:
    """Any arguments give records or an error of one sentence."""
    said = None
    try:
        dry = dry_run(scale, "sm_90", cache=False)[(1,)](x, n, factor, BLOCK=block)
    except OccupancyLabError as error:
        said = str(error)
    assert said is None or (said and "\n" not in said and "Traceback" not in said)
    assert said is not None or dry.records


@pytest.mark.gpu
@pytest.mark.parametrize("offset", [0, 1])
def test_a_dry_run_is_what_is_launched(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The binary of a dry run equals that of the launch on the GPU at hand, byte for byte."""
    (present, *_) = present_gpus()
    target = present.gpu.target
    x = torch.ones(4096 + offset, dtype=torch.float16, device="cuda")[offset:]
    launched = scale[(32,)](x, 4096, 2.0, BLOCK=128, num_warps=2)
    assert float(x.sum()) == 8192
    monkeypatch.setenv("TRITON_CACHE_DIR", str(store_directory() / f"dry{offset}"))
    (one,) = variants(scale, (x, 4096, 2.0), {"BLOCK": 128, "num_warps": 2}, (32,))
    before = driver.active
    with offline(target):
        dry = one.launch.warm_up(scale)
    assert driver.active is before
    kind = "cubin" if target.backend == "cuda" else "hsaco"
    assert dry.asm[kind] == launched.asm[kind]
    (record,) = dry_run(scale, target.name, cache=False)[(32,)](
        *(x, 4096, 2.0), BLOCK=128, num_warps=2
    ).records
    assert record.calculation.resources.n_regs == launched.n_regs


def test_what_no_gpu_compiles_has_its_reason_once() -> None:
    """The same failure on several GPUs is one sentence."""
    with pytest.raises(CompileError) as caught:
        explain_launch(scale, signature="*fp16,4096,2.0", constexprs="BLOCK=100", gpu="h100,mi300x")
    assert str(caught.value).count("range must be a power of 2") == 1
