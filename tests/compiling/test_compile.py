"""Compiling for GPUs that are not here, and for one that is."""

import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl
from launched_kernels import matmul
from packaging.version import Version
from records import compile_resources

from occupancy_lab.compiling import Store, compile_launch, resource_key, triton_version
from occupancy_lab.compiling import compile as compiling
from occupancy_lab.compiling.compile import compile_together, failure_of, smallest_kernel
from occupancy_lab.compiling.compiler import Compilation, Compiler
from occupancy_lab.compiling.texts import unpack
from occupancy_lab.errors import BinaryError, CompileError, InputError, TargetError
from occupancy_lab.gpus import Gpu, bare_gpus, find_gpu, present_gpus
from occupancy_lab.kernel import Grid, Kernel, Pointer, load_function, load_kernel
from occupancy_lab.launch import Launch
from occupancy_lab.values import Config, Failure, Problem, Resources, Target

SOFTMAX = load_kernel("softmax")
PROBLEM, CONFIG = Problem(4096, 781), Config(1024, 8, 4)
SM_90, GFX942 = find_gpu("sm_90").target, find_gpu("gfx942").target
GFX9999 = Target("hip", "gfx9999", 64)
TARGETS = (
    *("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121"),
    *("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1102"),
    *("gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201", "gfx1250"),
)
STAGES = (1, 2, 3, 4)


def resources(target: Target, config: Config = CONFIG, **others: Any) -> Resources:
    """Return the resources of a compiled tutorial softmax."""
    problem = Problem(4096, others.pop("cols", 781), others.pop("dtype", "float32"))
    kernel = others.pop("kernel", SOFTMAX)
    return compile_resources(kernel, problem, config, target, Store(None), **others)


@pytest.mark.parametrize(
    ("target", "dtype", "warps"),
    [
        ("sm_80", "float16", 4),
        ("sm_86", "bfloat16", 8),
        ("sm_90", "float16", 4),
        ("sm_90", "bfloat16", 8),
        ("gfx90a", "bfloat16", 8),
        ("gfx942", "float16", 4),
        ("gfx942", "bfloat16", 8),
        ("gfx1100", "float16", 4),
    ],
)
def test_tensor_cores_do_the_multiply_adds_of_a_block(target: str, dtype: str, warps: int) -> None:
    """Tensor instructions times their size equal the product's multiply-adds."""
    a = Pointer(dtype, 2**20)
    blocks = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}
    launch = Launch(
        (a, a, a, 512, 512, 512, 512, 1, 512, 1, 512, 1),
        {**blocks, "ACTIVATION": "", "num_warps": warps, "num_stages": 3},
    )
    (outcome,) = compile_together([(matmul, launch)], find_gpu(target).target)
    found = outcome.resources
    assert found.tensor_instructions * found.tensor_size * warps == 128 * 64 * 32


def test_several_are_compiled_together_as_one_by_one(tmp_path: Path) -> None:
    """Each launch has its own outcome in its place, whether others fail or not."""
    store = Store(tmp_path)
    launches = [SOFTMAX.launch(PROBLEM, Config(size, 4, 2)) for size in (1024, 1000, 2048)]
    wanted = [Compilation(SOFTMAX.function, launch, SM_90) for launch in launches]
    first, failed, last = Compiler(tmp_path, threads=True).compile(wanted)
    assert isinstance(failed, Failure)
    assert first == resources(SM_90, Config(1024, 4, 2))
    assert last == resources(SM_90, Config(2048, 4, 2))
    keys = [resource_key(SOFTMAX.function, launch, SM_90) for launch in launches]
    assert [store.get(key) for key in keys] == [first, None, last]


@triton.jit
def unknown_name(x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):  # noqa: ANN001, ANN201, ARG001, N803
    """Fails in Triton's front end."""
    tl.store(x_ptr, nonsense)  # noqa: F821


@triton.jit
def failed_assertion(x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):  # noqa: ANN001, ANN201, ARG001, N803
    """Fails in its author's static assertion."""
    tl.static_assert(BLOCK_SIZE > 99_999, "rows are too short")


@triton.jit
def talking(x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):  # noqa: ANN001, ANN201, ARG001, N803
    """Prints something before it fails."""
    tl.static_print("rows are long enough")
    tl.static_assert(BLOCK_SIZE > 99_998, "rows are too short")


@triton.jit
def too_large(x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):  # noqa: ANN001, ANN201, ARG001, N803
    """Fails in one of Triton's checks."""
    tl.store(x_ptr + tl.arange(0, 2097152), 1.0)


@triton.jit
def helper(x_ptr, n_cols):  # noqa: ANN001, ANN201
    """Fails where another kernel calls it."""
    return x_ptr.no_such_method(n_cols)


@triton.jit
def calling(x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):  # noqa: ANN001, ANN201, ARG001, N803
    """Calls a function that fails."""
    tl.store(x_ptr, helper(x_ptr, n_cols))


@triton.jit
def asserting(x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):  # noqa: ANN001, ANN201, ARG001, N803
    """Fails in an assertion of Triton that has no message."""
    a = tl.full((32, 32), 1, tl.int8)
    tl.store(x_ptr, tl.dot(a, a, tl.zeros((32, 32), tl.int32)))


@triton.jit
def packed(x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):  # noqa: ANN001, ANN201, ARG001, N803
    """Fails in a later stage, which prints the reason."""
    x = tl.load(x_ptr + tl.arange(0, 64))
    y = tl.inline_asm_elementwise("", "=f,f,f,f", [x], tl.float32, True, 3)  # noqa: FBT003
    tl.store(x_ptr + tl.arange(0, 64), y)


@triton.jit
def no_instruction(x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):  # noqa: ANN001, ANN201, ARG001, N803
    """Fails in ptxas, which does not know the instruction."""
    x = tl.load(x_ptr)
    y = tl.inline_asm_elementwise("nonsense.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)  # noqa: FBT003
    tl.store(x_ptr, y)


@triton.jit
def one(x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):  # noqa: ANN001, ANN201, ARG001, N803
    """Stores one element per program."""
    tl.store(x_ptr, n_cols)


@triton.jit
def many(x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):  # noqa: ANN001, ANN201, N803
    """Stores a whole block, with the same arguments as `one`."""
    tl.store(x_ptr + tl.arange(0, BLOCK_SIZE), n_cols)


def kernel_of(function: Any) -> Kernel:
    """Return a user's kernel with *function*."""
    return Kernel(
        name="own",
        title="Own",
        grid=Grid.ROWS,
        function=function,
        arguments=lambda problem: (Pointer(problem.dtype, problem.matrix_bytes), problem.cols),
        constexprs=lambda _problem, config: {"BLOCK_SIZE": config.block_size},
        default_config=lambda _problem, _max_shared: CONFIG,
        memory_steps=lambda _problem: (),
        run=print,
    )


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_compiles(name: str) -> None:
    """The softmax compiles for each target that the installed Triton supports."""
    gpu = find_gpu(name)
    try:
        found = resources(gpu.target)
    except TargetError as error:
        assert Version(triton_version()) != Version("3.7.1")
        pytest.skip(str(error))
    assert found.num_warps == 8
    assert 16 <= found.n_regs <= 64
    assert (found.local_bytes, found.n_spills, found.static_shared) == (0, 0, 0)
    assert found.load_bytes == found.store_bytes == 4
    of_hip = (found.sgprs, found.allocated_vgprs, found.vgpr_spills, found.sgpr_spills)
    assert (None in of_hip) == (gpu.vendor == "NVIDIA")
    assert (found.barriers is None) == (gpu.vendor == "AMD")
    # Triton pipelines global loads through shared memory from sm_80 on, but not on AMD.
    assert found.shared == 32 + (found.pipeline_shared or 0)
    assert (found.pipeline_shared == 0) == (name == "sm_75" or gpu.vendor == "AMD")


def test_every_architecture_of_the_table_is_tried() -> None:
    """These tests cover every architecture that Triton compiles for."""
    untried = [gpu for name, gpu in bare_gpus().items() if name not in TARGETS]
    for gpu in untried:
        assert gpu.target.name in {"sm_70", "sm_72", "sm_88", "sm_110"}


@pytest.mark.parametrize(
    ("block_size", "dtype", "row_bytes"),
    [(1024, "float32", 4096), (8192, "float32", 32768), (1024, "float16", 2048)],
)
def test_stages_cost_shared_memory_on_nvidia(block_size: int, dtype: str, row_bytes: int) -> None:
    """On sm_90 each stage after the first takes one row's buffer; nothing else grows."""
    for stages in STAGES:
        config = Config(block_size, 8, stages)
        found = resources(SM_90, config, dtype=dtype, cols=784 if dtype == "float16" else 781)
        assert found.pipeline_shared == (stages - 1) * row_bytes
        assert found.shared == 32 + found.pipeline_shared


def test_spills_are_seen() -> None:
    """Rows too long for one warp spill: to memory on NVIDIA, SGPRs to VGPRs on AMD."""
    on_nvidia = resources(SM_90, Config(8192, 1, 1), cols=8192)
    assert on_nvidia.n_regs == 255
    assert (on_nvidia.n_spills or 0) > 0
    assert on_nvidia.local_traffic >= on_nvidia.local_bytes
    on_amd = resources(GFX942, Config(4096, 1, 1), cols=4093)
    assert (on_amd.sgpr_spills or 0) > 0
    assert on_amd.n_spills == 0


@pytest.mark.parametrize(
    "target",
    [Target("hip", "gfx940", 64), Target("hip", "gfx9999", 64)],
    ids=lambda target: target.arch,
)
def test_targets_without_a_compiler(target: Target, capfd: pytest.CaptureFixture[str]) -> None:
    """A target unknown to Triton's LLVM raises TargetError and prints nothing."""
    with pytest.raises(TargetError) as caught:
        resources(target)
    assert str(caught.value) == f"Triton {triton_version()} has no compiler for {target.name}"
    assert caught.value.__cause__ is not None
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("target", [SM_90, GFX942], ids=lambda target: target.name)
@pytest.mark.parametrize(
    ("function", "reason", "line"),
    [
        (unknown_name, "nonsense is not defined", "tl.store(x_ptr, nonsense)"),
        (failed_assertion, "rows are too short", "tl.static_assert(BLOCK_SIZE > 99_999"),
        (talking, "rows are too short", "tl.static_assert(BLOCK_SIZE > 99_998"),
        (
            too_large,
            "exceeds triton maximum tensor numel (1048576)",
            "tl.store(x_ptr + tl.arange(0, 20",
        ),
        (calling, "no attribute 'no_such_method'", "return x_ptr.no_such_method"),
        (asserting, "AssertionError at `assert acc.type", "tl.store(x_ptr, tl.dot(a, a"),
        (
            packed,
            "must be a multiple of the op's packed_element",
            'y = tl.inline_asm_elementwise(""',
        ),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_kernels_with_errors(
    function: Any, reason: str, line: str, target: Target, capfd: pytest.CaptureFixture[str]
) -> None:
    """A kernel that Triton rejects raises CompileError with the reason and the line."""
    with pytest.raises(CompileError) as caught:
        resources(target, kernel=kernel_of(function))
    message = str(caught.value)
    assert not isinstance(caught.value, TargetError)
    assert message.startswith(f"Triton {triton_version()} cannot compile own for {target.name}: ")
    assert reason in message
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = (n for n, text in enumerate(lines, 1) if text.strip().startswith(line))
    assert message.endswith(f" (test_compile.py:{number})")
    assert "\n" not in message
    assert capfd.readouterr() == ("", "")


def test_what_ptxas_says_is_the_reason(capfd: pytest.CaptureFixture[str]) -> None:
    """If ptxas fails, the message has its complaint, and no PTX is printed."""
    with pytest.raises(CompileError, match=r"known instruction: 'nonsense'$"):
        resources(SM_90, kernel=kernel_of(no_instruction))
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def trustless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give Triton a cache of its own, and forget what this process compiled."""
    forget_compiled()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    return tmp_path / "triton"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Forget what this process compiled, and return where a store in "store" has Triton's files."""
    forget_compiled()
    return tmp_path / "store" / "triton-cache"


def forget_stored(store: Path) -> None:
    """Remove all outcomes, but no file of Triton, from a store and from this process."""
    forget_compiled()
    for kind in ("resources", "texts"):
        shutil.rmtree(store / kind)


def forget_compiled() -> None:
    """Empty this process's own cache of compiled kernels."""
    SOFTMAX.function.device_caches.clear()
    smallest_kernel().device_caches.clear()


@pytest.mark.parametrize(
    ("target", "kind", "left"),
    [
        (SM_90, "binary", 0.5),
        (SM_90, "binary", None),
        (SM_90, "ttgir", 0.5),
        (SM_90, "assembly", 0.0),
        (SM_90, "json", 0.5),
        (GFX942, "binary", 0.5),
        (GFX942, "assembly", 0.0),
    ],
)
def test_what_is_cut_off_in_tritons_cache_is_compiled_again(
    kept: Path, target: Target, kind: str, left: float | None
) -> None:
    """A damaged or missing file of Triton is made again."""
    store = Store(kept.parent)
    right = compile_resources(SOFTMAX, PROBLEM, CONFIG, target, store)
    hip = target.backend == "hip"
    suffix = {"binary": "hsaco" if hip else "cubin", "assembly": "amdgcn" if hip else "ptx"}
    (file,) = kept.rglob(f"softmax_kernel.{suffix.get(kind, kind)}")
    whole = file.read_bytes()
    if left is None:
        file.unlink()
    else:
        os.truncate(file, int(len(whole) * left))
    forget_stored(kept.parent)
    assert compile_resources(SOFTMAX, PROBLEM, CONFIG, target, store) == right
    assert len(file.read_bytes()) == len(whole)


@pytest.mark.usefixtures("trustless")
def test_a_copy_of_a_kernel_has_the_lines_of_its_own_file(tmp_path: Path) -> None:
    """Triton keeps one binary for two files with the same kernel; here each has its own places."""
    target, store = find_gpu("h100").target, Store(tmp_path / "store")
    lines = "import triton", "@triton.jit", "def nothing(x):", "    return"
    for name in ("first.py", "second.py"):
        path = tmp_path / name
        path.write_text("\n".join(lines))
        function, _ = load_function(f"{path}:nothing")
        launch = Launch((), {"x": 1024})
        compile_launch(function, launch, target, store)
        texts = unpack(store.get_line("texts", resource_key(function, launch, target)) or "")
        assert texts is not None
        assert str(path) in texts.ttir


def tool(path: Path, *lines: str) -> Path:
    """Make a ptxas that prints a version, and otherwise runs *lines*."""
    version = "Cuda compilation tools, release 12.8, V12.8.93"
    told = f'case "$*" in *--version*) echo "{version}"; exit 0;; esac'
    path.write_text("\n".join(("#!/bin/sh", told, *lines)) + "\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("lines", "again", "part"),
    [
        (["kill -9 $$"], False, "error code -9"),
        (["kill -11 $$"], False, "error code -11"),
        (["exit 1"], False, "error code 1"),
        (["echo 'ptxas fatal : Memory allocation failure' >&2; exit 1"], False, "Memory"),
        (["echo 'ptxas x.ptx, line 3; error   : Nonsense' >&2; exit 255"], True, "Nonsense"),
    ],
    ids=["killed", "crashed", "wordless", "no memory", "an error"],
)
def test_only_what_ptxas_says_of_a_kernel_lasts(
    trustless: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: list[str],
    part: str,
    *,
    again: bool,
) -> None:
    """A killed or silent ptxas is a passing failure; its error messages last."""
    ptxas = tool(trustless.with_name("ptxas"), *lines)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(ptxas))
    monkeypatch.setattr(compiling, "can_compile", lambda _target: True)
    with pytest.raises(CompileError, match=part) as caught:
        resources(SM_90)
    assert not isinstance(caught.value, TargetError)
    assert failure_of(caught.value).lasting is again


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("target", [SM_90, GFX942], ids=lambda target: target.name)
@pytest.mark.usefixtures("trustless")
def test_a_disk_that_cannot_be_written_is_no_missing_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Target, *, kept: bool
) -> None:
    """A disk that cannot be written is the reason, and passes."""
    if kept:
        (tmp_path / "triton-cache").write_text("a file")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere" / "below"))
    with pytest.raises(CompileError, match=r"Not a directory|No such file") as caught:
        compile_resources(SOFTMAX, PROBLEM, CONFIG, target, Store(tmp_path if kept else None))
    assert not isinstance(caught.value, TargetError)
    assert not failure_of(caught.value).lasting
    with pytest.raises(CompileError, match="no folder to compile in"):
        compiling.can_compile(target)


def test_what_would_fail_again() -> None:
    """Triton's verdicts on kernels and targets last; other failures need not.

    A name that is missing may be there the next time.
    """
    with pytest.raises(CompileError, match="nonsense is not defined") as nameless:
        resources(SM_90, kernel=kernel_of(unknown_name))
    assert not failure_of(nameless.value).lasting
    for function, target in ((no_instruction, SM_90), (one, GFX9999)):
        with pytest.raises(CompileError) as caught:
            resources(target, kernel=kernel_of(function))
        assert failure_of(caught.value).lasting
    for error in (InputError("what"), BinaryError("what"), CompileError("what")):
        assert not failure_of(error).lasting


@pytest.mark.parametrize("target", [SM_90, GFX942], ids=lambda target: target.name)
def test_what_the_lab_compiles_is_not_in_the_users_cache(
    trustless: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Target
) -> None:
    """The user's Triton cache gets nothing: the store has a cache, or a folder that is removed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    right = resources(target)
    assert list(tmp_path.iterdir()) == []
    forget_compiled()
    assert compile_resources(SOFTMAX, PROBLEM, CONFIG, target, Store(kept.parent)) == right
    assert len([*kept.rglob("*.cubin"), *kept.rglob("*.hsaco")]) == 1
    assert not trustless.exists()
    assert os.environ["TRITON_CACHE_DIR"] == str(trustless)


def entries(cache: Path) -> set[str]:
    """Return the kernels with files in Triton's cache, and its empty folders."""
    folders = [[file.name for file in folder.iterdir()] for folder in cache.iterdir()]
    return {min(names).partition(".")[0] if names else "nothing" for names in folders}


@pytest.mark.parametrize(
    ("function", "target"),
    [(unknown_name, SM_90), (no_instruction, SM_90), (unknown_name, GFX9999)],
)
def test_what_fails_leaves_nothing_in_tritons_cache(
    trustless: Path, kept: Path, function: Any, target: Target
) -> None:
    """A failed compile leaves no file of Triton; a good one leaves all."""
    store = Store(kept.parent)
    compile_resources(SOFTMAX, PROBLEM, CONFIG, SM_90, store)
    assert entries(kept) == {"__grp__softmax_kernel"}
    with pytest.raises(CompileError):
        compile_resources(kernel_of(function), PROBLEM, CONFIG, target, store)
    launch = kernel_of(function).launch(PROBLEM, CONFIG)
    (failure,) = compile_together([(function, launch)], target)
    assert isinstance(failure, Failure)
    assert entries(kept) == {"__grp__softmax_kernel"}
    assert entries(trustless) == set()


def test_torch_operations_are_not_compiled() -> None:
    """A kernel without a Triton function raises an error that says why."""
    with pytest.raises(InputError, match="softmax_naive is made of torch operations"):
        resources(SM_90, kernel=load_kernel("softmax_naive"))


@pytest.mark.parametrize("value", ["1", "true", "on"])
def test_the_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """With Triton's interpreter on, compiling is refused with what to unset."""
    monkeypatch.setenv("TRITON_INTERPRET", value)
    with pytest.raises(InputError, match="unset it"):
        resources(SM_90)


@pytest.mark.parametrize(
    "variable",
    [
        "DISABLE_LLVM_OPT",
        "DISABLE_PTXAS_OPT",
        "AMDGCN_USE_BUFFER_OPS",
        "TRITON_OVERRIDE_ARCH",
        *compiling.KEY_VARIABLES,
    ],
)
def test_the_environment_is_part_of_the_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    """A variable that changes the binary changes the key."""
    monkeypatch.delenv(variable, raising=False)
    launch = SOFTMAX.launch(PROBLEM, CONFIG)
    key, store = resource_key(SOFTMAX.function, launch, SM_90), Store(tmp_path)
    store.put(key, Resources(32, 8, 0))
    monkeypatch.setenv(variable, "1")
    assert store.get(resource_key(SOFTMAX.function, launch, SM_90)) is None
    monkeypatch.delenv(variable)
    assert store.get(resource_key(SOFTMAX.function, launch, SM_90)) == Resources(32, 8, 0)


@pytest.mark.parametrize(
    ("name", "other"),
    [("triton_version", lambda: "3.99.0"), ("READERS", compiling.READERS + 1)],
)
def test_versions_are_part_of_the_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, other: object
) -> None:
    """Results of another Triton or of older readers are not used."""
    launch, store = SOFTMAX.launch(PROBLEM, CONFIG), Store(tmp_path)
    store.put(resource_key(SOFTMAX.function, launch, SM_90), Resources(32, 8, 0))
    monkeypatch.setattr(compiling, name, other)
    assert store.get(resource_key(SOFTMAX.function, launch, SM_90)) is None


@pytest.fixture
def gpu() -> Gpu:
    """The GPU at hand."""
    return present_gpus()[0].gpu


@pytest.mark.gpu
@pytest.mark.parametrize("block_size", [256, 512, 1024, 2048, 4096, 8192])
def test_the_gpu_at_hand_gives_what_offline_gives(gpu: Gpu, block_size: int) -> None:
    """The GPU's own driver and the offline driver give equal resources."""
    most_warps = gpu.architecture.max_warps_per_program
    for num_warps, stages in itertools.product((1, 2, 4, 8, 16, 32), STAGES):
        if num_warps > most_warps or block_size > 64 * 32 * num_warps:
            continue
        config = Config(block_size, num_warps, stages)
        made = (SOFTMAX, Problem(4096, block_size - 3), config, gpu.target, Store(None))
        assert compile_resources(*made, present=True) == compile_resources(*made), config
