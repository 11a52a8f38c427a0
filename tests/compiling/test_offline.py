"""A launch without tensors or a GPU is, to Triton, the launch that the kernel's own `run` makes."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from occupancy_lab.calibrating.kernels import KERNELS as MICRO_BENCHMARKS
from occupancy_lab.compiling import resource_key
from occupancy_lab.compiling.compile import _compile
from occupancy_lab.compiling.offline import OfflineDriver, offline
from occupancy_lab.compiling.store import key_digest
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import bare_gpus, find_gpu
from occupancy_lab.kernel import Pointer, load_kernel
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from occupancy_lab.kernel import Kernel
    from occupancy_lab.launch import Launch
    from occupancy_lab.values import Target

TARGETS = [gpu.target for gpu in bare_gpus().values()]
SM_90, GFX942 = find_gpu("sm_90").target, find_gpu("gfx942").target
SOFTMAX = load_kernel("softmax")
KERNELS = [load_kernel(name) for name in ("softmax", "softmax_row", "vector_add")]
CONFIG = Config(1024, 4, 2)
COLS = (1, 16, 781, 784, 1024)
ROWS = (1, 16, 17)
TWO_GIB = 2**31
PROBLEMS = [
    *(Problem(rows, cols) for rows in ROWS for cols in COLS),
    Problem(16, 784, "float16"),
    Problem(8, 776),
    Problem(2**19, 1024),
    Problem(2**19 - 1, 1024),
    Problem(2**19 + 1, 1024),
    Problem(2**31 - 1, 16),
    Problem(2**31, 16),
    Problem(17, 2**31 - 1),
    Problem(17, 2**31),
    Problem(17, 2**31 + 1),
]


def asked(function: Any, call: Callable[[], object], target: Target) -> dict[str, Any]:
    """Return what Triton is asked to compile when *call* launches or warms up *function*."""
    seen: list[dict[str, Any]] = []

    def hook(*, compile: dict[str, Any], **_others: object) -> bool:  # noqa: A002 - Triton's name
        seen.append(compile)
        return True

    function.device_caches.clear()
    with pytest.MonkeyPatch.context() as patch, offline(target):
        patch.setattr(knobs.runtime, "jit_cache_hook", hook)
        call()
    (compile_request,) = seen
    names = ("signature", "constants", "configs", "num_warps", "num_stages", "enable_fp_fusion")
    return {name: compile_request[name] for name in names}


CONSTEXPRS = {"BLOCK_SIZE": 1024, "INT64_OFFSETS": False, "num_stages": 4}


def specialization(kernel: Kernel, launch: Launch, target: Target) -> list[str]:
    """Return the classes of the arguments that are no constexprs."""
    told = launch.specialization(kernel.function, target)
    return [one for one in told if not one.startswith("constexpr")]


def asked_by_stand_ins(launch: Launch, kernel: Kernel, target: Target) -> dict[str, Any]:
    """Return what Triton is asked to compile for a launch without tensors."""

    def warm_up() -> None:
        launch.warm_up(kernel.function)

    return asked(kernel.function, warm_up, target)


def triton_class(signature: dict[str, str], attributes: Any, index: int) -> str:
    """Return Triton's own class of argument *index* in the words of a specialization."""
    kind = list(signature.values())[index]
    traits = dict(attributes.get((index,), []))
    if kind == "constexpr":
        return "= 1"
    if kind.startswith("*"):
        assert traits.pop("tt.divisibility") == 16
        return f"{kind}{' 32-bit range' if traits.pop('tt.pointer_range', None) == 32 else ''}"
    return f"{kind}{' % 16 = 0' if traits.pop('tt.divisibility', None) == 16 else ''}"


def own_class(argument: str) -> str:
    """Return the class as Triton tells it: what is 1 is a constant, of whatever width."""
    return "= 1" if argument.endswith("= 1") else argument


@pytest.mark.parametrize("target", [SM_90, GFX942], ids=lambda target: target.name)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: f"{problem.rows}x{problem.cols}")
def test_classes_are_tritons(problem: Problem, target: Target) -> None:
    """Each argument's class is what Triton compiles for: dtype, width, 1, 16 and pointer range."""
    launch = SOFTMAX.launch(problem, CONFIG)
    request = asked_by_stand_ins(launch, SOFTMAX, target)
    (attributes,) = request["configs"]
    own = specialization(SOFTMAX, launch, target)
    assert [own_class(one) for one in own] == [
        triton_class(request["signature"], attributes, index) for index in range(len(own))
    ]


@pytest.mark.parametrize("target", [SM_90, GFX942], ids=lambda target: target.name)
@pytest.mark.parametrize("cols", COLS)
def test_classes_are_those_of_the_compiled_kernel(cols: int, target: Target) -> None:
    """A kernel that is really compiled carries the attributes that its specialization tells."""
    launch = SOFTMAX.launch(Problem(17, cols), CONFIG)
    source = _compile(SOFTMAX.function, launch, target, "softmax", present=False).src
    own = specialization(SOFTMAX, launch, target)
    assert [own_class(one) for one in own] == [
        triton_class(source.signature, source.attrs, index) for index in range(len(own))
    ]


@pytest.mark.parametrize("target", [SM_90, GFX942], ids=lambda target: target.name)
def test_problems_compile_alike_just_where_their_classes_are_equal(target: Target) -> None:
    """Of two problems Triton is asked for one binary if lists and constexprs are equal."""
    launches = [SOFTMAX.launch(problem, CONFIG) for problem in PROBLEMS]
    told = [resource_key(SOFTMAX.function, launch, target) for launch in launches]
    requests = [asked_by_stand_ins(launch, SOFTMAX, target) for launch in launches]
    pairs = list(itertools.combinations(range(len(PROBLEMS)), 2))
    assert {told[one] == told[other] for one, other in pairs} == {True, False}
    for one, other in pairs:
        equal = told[one] == told[other]
        assert equal == (requests[one] == requests[other]), (PROBLEMS[one], PROBLEMS[other])


@pytest.mark.parametrize("target", [SM_90, GFX942], ids=lambda target: target.name)
def test_equal_classes_give_one_binary(target: Target) -> None:
    """Triton's own hash of the compile is one for 781 and 783 cols and another for 784."""
    hashes = {}
    for rows, cols in ((4096, 781), (4096, 783), (8192, 781), (4096, 784), (4095, 781)):
        launch = SOFTMAX.launch(Problem(rows, cols), CONFIG)
        compiled = _compile(SOFTMAX.function, launch, target, "softmax", present=False)
        hashes.setdefault(compiled.hash, []).append((rows, cols))
    assert list(hashes.values()) == [
        [(4096, 781), (4096, 783), (8192, 781)],
        [(4096, 784)],
        [(4095, 781)],
    ]


@pytest.mark.parametrize("target", [SM_90, GFX942], ids=lambda target: target.name)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@settings(max_examples=60, deadline=None)
@given(
    rows=st.sampled_from([1, 2, 16, 17, 4096]) | st.integers(1, 10**6),
    cols=st.sampled_from([1, 2, 16, 781, 1024]) | st.integers(1, 1024),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    warps=st.sampled_from([1, 4, 16]),
    stages=st.integers(1, 5),
)
def test_stand_ins_are_the_launch_itself(  # noqa: PLR0913, PLR0917 - all that a launch depends on
    kernel: Kernel, target: Target, rows: int, cols: int, dtype: str, warps: int, stages: int
) -> None:
    """The kernel's own `run` on a torch tensor asks for the very compile that the stand-ins do."""
    problem, config = Problem(rows, cols, dtype), Config(1024, warps, stages)
    matrix = torch.empty((rows, cols), dtype=getattr(torch, dtype), device="meta")
    launched = asked(kernel.function, lambda: kernel.run(matrix, config, 1056), target)
    assert launched == asked_by_stand_ins(kernel.launch(problem, config), kernel, target)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("rows", [2**19 - 1, 2**19, 2**19 + 1])
def test_tensors_around_two_gib(kernel: Kernel, rows: int) -> None:
    """On AMD a torch tensor of 2 GiB and its stand-in alike lose their 32-bit range."""
    matrix = torch.empty((rows, 1024), device="meta")
    launched = asked(kernel.function, lambda: kernel.run(matrix, CONFIG, 1216), GFX942)
    launch = kernel.launch(Problem(rows, 1024), CONFIG)
    assert launched == asked_by_stand_ins(launch, kernel, GFX942)
    near = matrix.nbytes < TWO_GIB
    pointers = [one for one in specialization(kernel, launch, GFX942) if one.startswith("*")]
    assert set(pointers) == {"*fp32 32-bit range" if near else "*fp32"}
    assert set(specialization(kernel, launch, SM_90)[: len(pointers)]) == {"*fp32"}


@pytest.mark.parametrize("target", [SM_90, GFX942], ids=lambda target: target.name)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tensors_in_memory_compile_to_the_same_binary(target: Target, dtype: str) -> None:
    """A warmup with torch tensors in the CPU's memory gives the stand-ins' binary, bit for bit."""
    launch = SOFTMAX.launch(Problem(64, 784, dtype), CONFIG)
    tensors = [
        torch.empty(64, 784, dtype=getattr(torch, dtype)) if isinstance(one, Pointer) else one
        for one in launch.arguments
    ]
    binary = "cubin" if target is SM_90 else "hsaco"
    with offline(target):
        SOFTMAX.function.device_caches.clear()
        real = SOFTMAX.function.warmup(*tensors, grid=(1,), **launch.keywords)
    SOFTMAX.function.device_caches.clear()
    own = _compile(SOFTMAX.function, launch, target, "softmax", present=False)
    assert own.asm[binary] == real.asm[binary]
    assert own.metadata.shared == real.metadata.shared


@pytest.mark.parametrize("kernel", MICRO_BENCHMARKS.values(), ids=MICRO_BENCHMARKS)
@pytest.mark.parametrize("stages", [1, 2])
def test_micro_benchmarks_launch_what_is_compiled(kernel: Kernel, stages: int) -> None:
    """A kernel of a calibration launches with the options that it was compiled with."""
    problem, config = Problem(64, 781), Config(1024, 4, stages)
    matrix = torch.empty((64, 781), device="meta")
    launched = asked(kernel.function, lambda: kernel.run(matrix, config, 16), SM_90)
    assert launched["num_stages"] == stages
    assert launched == asked_by_stand_ins(kernel.launch(problem, config), kernel, SM_90)


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_options_reach_the_compiler(stages: int) -> None:
    """num_stages does where the kernel has no constexpr of the name, and so do its own options."""
    kernel = dataclasses.replace(
        load_kernel("vector_add"),
        constexprs=lambda _problem, _config: {"BLOCK_SIZE": 1024, "INT64_OFFSETS": False},
        options={"num_ctas": 1, "maxnreg": 40},
    )
    launch = kernel.launch(Problem(4, 781), Config(1024, 8, stages))
    with offline(SM_90):
        compiled = launch.warm_up(kernel.function)
    metadata = compiled.metadata
    assert (metadata.num_warps, metadata.num_stages, metadata.maxnreg) == (8, stages, 40)


def test_options_are_part_of_the_key() -> None:
    """A kernel with another option, or another num_stages, has another key."""
    plain = dataclasses.replace(
        SOFTMAX, constexprs=lambda _problem, config: CONSTEXPRS | {"num_stages": config.num_stages}
    )
    kernels = (plain, dataclasses.replace(plain, options={"maxnreg": 40}))
    keys = {
        key_digest(resource_key(kernel.function, kernel.launch(PROBLEMS[0], config), SM_90))
        for kernel, config in itertools.product(kernels, (CONFIG, Config(1024, 4, 3)))
    }
    assert len(keys) == 4


def test_a_constexpr_that_json_lacks_can_be_in_a_key() -> None:
    """A constexpr that is no number, such as a dtype, tells keys apart too."""
    keys = set()
    for dtype in (tl.float16, tl.float32, "fp16"):
        named = dataclasses.replace(
            SOFTMAX, constexprs=lambda *_, dtype=dtype: CONSTEXPRS | {"INT64_OFFSETS": dtype}
        )
        keys.add(key_digest(resource_key(named.function, named.launch(PROBLEMS[0], CONFIG), SM_90)))
    assert len(keys) == 3


@pytest.mark.parametrize("number", [2**63, 10**30, -(2**63) - 1])
def test_numbers_beyond_64_bits_are_refused(number: int) -> None:
    """What Triton cannot take is said in a sentence, and the last number that it can is taken."""
    kernel = dataclasses.replace(SOFTMAX, arguments=lambda _problem: (number,))
    with pytest.raises(InputError, match=r"softmax is given a number of 2\*\*63 or more"):
        kernel.launch(PROBLEMS[0], CONFIG)
    extremes = (-(2**63), 2**63 - 1)
    fine = dataclasses.replace(SOFTMAX, arguments=lambda _problem: extremes * 3)
    classes = specialization(fine, fine.launch(PROBLEMS[0], CONFIG), SM_90)
    assert classes[:2] == ["i64 % 16 = 0", "i64"]


def test_keywords_are_complete() -> None:
    """A launch passes the constexprs, num_warps and the options that every compile has."""
    assert SOFTMAX.launch(Problem(4, 781), CONFIG).keywords == {
        "BLOCK_SIZE": 1024,
        "INT64_OFFSETS": False,
        "num_stages": 2,
        "num_warps": 4,
        "enable_fp_fusion": True,
    }


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """The driver that is active before, and after, whatever the test does."""
    active = OfflineDriver(SM_90)
    monkeypatch.setattr(driver, "_active", active)
    yield active
    assert driver.active is active


def test_each_target_has_a_device_number_of_its_own() -> None:
    """No two targets share a number, and a target keeps its own."""
    numbers = {target: OfflineDriver(target).get_current_device() for target in TARGETS}
    assert len(set(numbers.values())) == len(TARGETS)
    for target in reversed(TARGETS):
        assert OfflineDriver(target).get_current_device() == numbers[target]


def test_device_numbers_are_no_real_gpus() -> None:
    """A target that is not here never takes the number of a GPU that is."""
    assert min(OfflineDriver(target).get_current_device() for target in TARGETS) > 1000


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sm_90", GPUTarget("cuda", 90, 32)),
        ("sm_120", GPUTarget("cuda", 120, 32)),
        ("gfx942", GPUTarget("hip", "gfx942", 64)),
        ("gfx1100", GPUTarget("hip", "gfx1100", 32)),
    ],
)
def test_targets_are_tritons(name: str, expected: GPUTarget) -> None:
    """Inside the block Triton's active driver answers with the target as Triton writes it."""
    with offline(find_gpu(name).target):
        assert driver.active.get_current_target() == expected
        assert driver.active.get_current_stream(driver.active.get_current_device()) == 0


def test_the_driver_before_is_active_again(before: object) -> None:
    """After the block the driver is the one from before it."""
    with offline(GFX942):
        assert driver.active is not before
    assert driver.active is before


def test_the_driver_before_is_active_again_after_an_error(before: object) -> None:
    """An exception inside the block goes out of it, and the driver is the one from before."""
    with pytest.raises(ZeroDivisionError), offline(GFX942):
        1 / 0  # noqa: B018
    assert driver.active is before


def test_blocks_nest(before: object) -> None:
    """A block inside a block gives its own target, and after it the outer one's again."""
    with offline(GFX942):
        with offline(SM_90):
            assert driver.active.get_current_target().arch == 90
        assert driver.active.get_current_target().arch == "gfx942"
    assert driver.active is before


def test_no_gpu_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither entering nor leaving a block asks for a GPU, which fails where there is none."""

    def no_gpu() -> Any:
        msg = "0 active drivers ([]). There should only be one."
        raise RuntimeError(msg)

    monkeypatch.setattr(sys.modules["triton.runtime.driver"], "_create_driver", no_gpu)
    for name in ("_active", "_default"):
        monkeypatch.setattr(driver, name, None)
    with offline(SM_90):
        pass
    assert driver._active is None
    with pytest.raises(RuntimeError, match="0 active drivers"):
        _ = driver.active


def test_the_second_target_does_not_get_the_firsts_kernel() -> None:
    """One kernel compiled for several targets in turn gives each its own binary, each time."""
    kernel = load_kernel("softmax")
    launch = kernel.launch(Problem(64, 784), Config(1024, 4, 2))
    for _ in range(2):
        for name in ("sm_90", "gfx942", "sm_80", "gfx1100"):
            target = find_gpu(name).target
            compiled = _compile(kernel.function, launch, target, "softmax", present=False)
            assert str(compiled.metadata.target.arch) == target.arch
            assert ("cubin" if target.backend == "cuda" else "hsaco") in compiled.asm
