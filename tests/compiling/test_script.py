"""A script's function runs dry in its own process: launches, failures and exit."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile_files import HOSTILE, put, within
from processes import is_running

from occupancy_lab.compiling.compiler import INTERRUPTED
from occupancy_lab.compiling.notes import ScriptLaunch
from occupancy_lab.compiling.script import Changed, Ran, Run, Script, names_script
from occupancy_lab.errors import CompileError, InputError
from occupancy_lab.explaining.dry_run import dry_run
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import load_function
from occupancy_lab.values import Failure, Resources, Status
from occupancy_lab.workers.child import Child
from occupancy_lab.workers.messages import from_line, to_line

KERNELS = """
import os
import sys

import torch
import triton
import triton.language as tl
from triton.language.core import builtin

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = where < n
    tl.store(out + where, tl.load(x + where, mask=mask) + tl.load(y + where, mask=mask), mask=mask)


@triton.heuristics({"EVEN": lambda named: named["n"] % named["BLOCK"] == 0})
@triton.jit
def copy(pair, n, stride, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    where = tl.program_id(0) * stride + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(pair[1] + where, tl.load(pair[0] + where))
    else:
        mask = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK) < n
        tl.store(pair[1] + where, tl.load(pair[0] + where, mask=mask), mask=mask)


def prune(configs, named_args, **_):
    return [one for one in configs if one.kwargs["BLOCK"] <= named_args["n"]]


@triton.autotune(
    [triton.Config({"BLOCK": 32 * warps**2}, num_warps=warps) for warps in (2, 4, 16)],
    key=["n"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + where, tl.load(x + where, mask=where < n) * 2, mask=where < n)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        add[(triton.cdiv(x.numel(), 256),)](x, x, out, x.numel(), BLOCK=256)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.zeros(grad.shape, device="cuda", dtype=grad.dtype)
        assert out.is_cuda and grad.device == DEVICE
        add[(triton.cdiv(out.numel(), 128),)](grad, grad, out, out.numel(), BLOCK=128)
        return out


@builtin
def aborting(_semantic=None):
    os.write(2, b"LLVM ERROR: no register for f\\n")
    os.abort()


@triton.jit
def asserting(x, n: tl.constexpr):
    tl.static_assert(n <= 64)
    tl.store(x, n)


@triton.jit
def broken(x):
    aborting()
    tl.store(x, 0.0)


@builtin
def wait(seconds, file=None, _semantic=None):
    import time
    if getattr(file, "value", file):
        with open(file.value, "w") as begun:
            begun.write(str(os.getpid()))
    time.sleep(seconds.value)


@triton.jit
def late(x, SECONDS: tl.constexpr, FILE: tl.constexpr):
    wait(SECONDS, FILE)
    tl.store(x, 0.0)


"""
SCRIPT = """
def several():
    x, y = torch.rand(4096, device="cuda"), torch.rand(4096).cuda()
    out = torch.empty_like(x)
    for _ in range(3):
        add[lambda named: (triton.cdiv(4096, named["BLOCK"]),)](x, y, out, 4096, BLOCK=1024)
    add[(8,)](x[1:], y[1:], out[1:], 4095, BLOCK=512, num_warps=8)
    matrix = torch.randn((64, 100), device=DEVICE, dtype=torch.float16)
    copy[(64, 1)]((matrix, torch.empty_like(matrix)), 100, matrix.stride(0), BLOCK=128)
    copy[(100, 1)]((matrix.T, matrix.T), 64, matrix.T.stride(0), BLOCK=64)
    for n in (1024, 1024, 2048):
        double[lambda named: (triton.cdiv(n, named["BLOCK"]),)](x, n)
    print("done")


def backward():
    x = torch.randn(1000, device="cuda", requires_grad=True)
    Doubled.apply(x).sum().backward()
    assert x.grad.is_cuda


def warmed():
    x = torch.empty(4096, device="cuda", dtype=torch.bfloat16)
    kernel = add.warmup(x, x, x, 4096, BLOCK=1024, num_warps=2, grid=(1,))
    kernel._init_handles()
    properties = triton.runtime.driver.active.utils.get_device_properties(x.device.index)
    programs = properties["max_num_regs"] // (kernel.n_regs * properties["warpSize"] * 2)
    print(kernel.n_regs, kernel.n_spills, kernel.metadata.shared, "ptx" in kernel.asm)
    kernel[(programs * properties["multiprocessor_count"], 1, 1)](x, x, x, 4096)


def relaunched():
    x = torch.empty(4096, device="cuda", dtype=torch.bfloat16)
    kernel = add[(4,)](x, x, x, 4096, BLOCK=1024)
    before = 8, 1, 1, 0, kernel.function, kernel.packed_metadata, None, None, None
    kernel.run(*before, x, x, x, 4096, 1024)


def benched():
    x = torch.rand(128, device="cuda")
    times = triton.testing.do_bench(lambda: add[(1,)](x, x, x, 128, BLOCK=128), quantiles=[0.2, 1])
    assert len(times) == 2
    torch.cuda.synchronize()
    triton.testing.assert_close(x, x)
    out = torch.empty_like(x)
    add[(1,)](x, x, out, 128, BLOCK=128)
    known = torch.ones(9, device="cuda")
    assert torch.allclose(out, x + x) and not torch.allclose(known, known + known)
    print(f"{128 / times[0]:.1f} {out.max():.2f}", torch.cuda.get_device_properties(0).name)
    print(x, out)


@triton.testing.perf_report(
    triton.testing.Benchmark(["n"], [128, 256], "by", ["triton"], ["triton"], "", {}, ylabel="ms")
)
def curve(n, by):
    x = torch.rand(n, device="cuda")
    return triton.testing.do_bench(lambda: add[(1,)](x, x, x, n, BLOCK=n))


def unusual():
    x, host = torch.rand(512, device="cuda"), torch.rand(512)
    add[(0,)](x, x, x, 0, BLOCK=128)
    double[lambda named: (triton.cdiv(0, named["BLOCK"]),)](x, 1024)
    double[(3,)](x, 1024)
    double[(5,)](x, 1024)
    add[(1,)](x, host.pin_memory(), torch.empty(9, pin_memory=True), 9, BLOCK=128)
    assert not host.is_pinned() and host.pin_memory().is_pinned()


def breaking():
    x = torch.rand(128, device="cuda")
    broken[(1,)](x)
    asserting[(1,)](x, 128)
    add[(1,)](x, x, x, 128, BLOCK=128)


def unequal():
    x = torch.rand(128, device="cuda")
    late[(1,)](x, 2, None, num_warps=8)
    broken[(1,)](x)
    add[(1,)](x, x, x, 128, BLOCK=128, num_warps=2)
    add[(2,)](x, x, x, 128, BLOCK=128, num_warps=2)


def hanging():
    import signal
    signal.signal(signal.SIGINT, lambda *_: None)
    x = torch.rand(128, device="cuda")
    add[(1,)](x, x, x, 128, BLOCK=128)
    late[(1,)](x, 600, {begun!r})


def waiting():
    while True:
        pass


def leaving():
    import subprocess
    child = subprocess.Popen(["sleep", "600"])
    open({pids!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
    os._exit(3)


def idle():
    torch.zeros(3)


def asking(rows, cols=3):
    add[(1,)](None)
"""
FAILING = {
    "property": (
        "torch.cuda.get_device_properties(0).no_such",
        "AttributeError: a dry run does not know no_such of H200 SXM",
    ),
    "exit": ("sys.exit(4)", "ends the script with status 4"),
    "stdin": ("input()", "EOFError: EOF when reading a line"),
    "error": ("{}['key']", "KeyError: 'key'"),
    "missing": ("add[(1,)](x, x, BLOCK=128)", "add is not given out, n"),
    "grid": ("add[(-1, 1)](x, x, x, 3, BLOCK=128)", "dimension 0 of the grid is '-1'"),
    "host tensor": (
        "add[(1,)](x, torch.rand(512), x, 3, BLOCK=128)",
        "ValueError: Pointer argument cannot be accessed from Triton (cpu tensor?)",
    ),
    "numpy": (
        "add[(1,)](x, x, x, __import__('numpy').int64(3), BLOCK=128)",
        "TypeError: failed to specialize argument of type: int64",
    ),
    "mixed": ("x + torch.rand(512)", "at least two devices, cuda:0 and cpu! (in add)"),
    "mixed list": ("torch.cat([torch.rand(5), x])", "be on the same device, but found at least"),
    "tuned": ("double[(1,)](x, 512, BLOCK=128)", "BLOCK is tuned, and given too"),
}


def every(run: Script) -> list[Changed]:
    """Return all launches of a script, without changes."""
    return [Changed(index, {}) for index in range(len(run.launches))]


def resources(run: Script, index: int, changes: Mapping[str, Any] | None = None) -> Resources:
    """Return the resources of a launch of a script, or raise why there are none."""
    (outcome,) = run.outcomes([Changed(index, changes or {})])
    if isinstance(outcome, Resources):
        return outcome
    raise (InputError if outcome.status is Status.SKIPPED else CompileError)(outcome.reason)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of kernels and of functions that launch them."""
    folder = tmp_path_factory.mktemp("script")
    failing = "".join(
        f"\n\ndef {name.replace(' ', '_')}():\n    x = torch.rand(512, device='cuda')\n    {line}\n"
        for name, (line, _) in FAILING.items()
    )
    path = folder / "bench.py"
    launching = SCRIPT.replace("{begun!r}", repr(str(folder / "begun")))
    launching = launching.replace("{pids!r}", repr(str(folder / "pids"))).replace("{{", "{")
    path.write_text(KERNELS + launching.replace("}}", "}") + failing, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def ask(script: Path) -> Iterator[Callable[..., Ran]]:
    """Return a function that runs the script's functions in one shared process."""
    child = Child("occupancy_lab.compiling.script_process")

    def run(function: str, gpu: str = "h200", file: Path = script) -> Ran:
        request = Run(f"{file}:{function}", find_gpu(gpu))
        line = child.ask(to_line(request), 120)
        assert line, child.last_words
        return from_line(Ran, line)

    yield run
    child.close()


def kernels(launches: tuple[ScriptLaunch, ...]) -> list[tuple[object, ...]]:
    """Return the kernel, the grid, the count and the tuned values of each launch."""
    return [
        (one.bound.kernel, one.bound.launch.grid, one.times, dict(one.tuned).get("BLOCK"))
        for one in launches
    ]


def test_every_launch_is_listed_with_its_binary(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each distinct launch is listed once, in order, with its binary."""
    seen = [
        ("add", (4,), 3, None),
        ("add", (8,), 1, None),
        ("copy", (64, 1), 1, None),
        ("copy", (100, 1), 1, None),
        ("double", (8,), 2, 128),
        ("double", (2,), 2, 512),
        ("double", (16,), 1, 128),
        ("double", (4,), 1, 512),
    ]
    text = script.read_text().replace("DEVICE = triton", "DEVICE = 'meta'  # triton")
    here = script.with_name("kernels.py")
    here.write_text(text, encoding="utf-8")
    add, copy, double = (load_function(f"{here}:{name}")[0] for name in ("add", "copy", "double"))
    x, matrix = torch.rand(4096, device="meta"), torch.rand((64, 100), device="meta").half()
    dry = (
        lambda gpu: dry_run(add, gpu)[(4,)](x, x, x, 4096, BLOCK=1024),
        lambda gpu: dry_run(add, gpu)[(8,)](x[1:], x[1:], x[1:], 4095, BLOCK=512, num_warps=8),
        lambda gpu: dry_run(copy, gpu)[(64, 1)]((matrix, matrix), 100, 100, BLOCK=128),
        lambda gpu: dry_run(copy, gpu)[(100, 1)]((matrix.T, matrix.T), 64, 1, BLOCK=64),
        lambda gpu: dry_run(double, gpu)[(1,)](x, 1024),
        lambda gpu: dry_run(double, gpu)[(1,)](x, 2048),
    )
    for name, compiled in (("h100", len(dry)), ("mi300x", 3)):
        with Script(Run(f"{script}:several", find_gpu(name))) as run:
            assert kernels(run.launches) == seen
            found = [
                one.calculation.resources.binary
                for asked in dry[:compiled]
                for one in asked(name).records
            ]
            assert [resources(run, index).binary for index in range(len(found))] == found
            assert None not in found
            assert resources(run, 0, {"num_warps": 2}).num_warps == 2
    assert capsys.readouterr() == ("", "done\ndone\n")


def test_a_launch_has_its_place(ask: Callable[..., Ran], script: Path) -> None:
    """A launch has its file and line, which an autotuner's configurations share."""
    launches = ask("several").launches
    lines = script.read_text().splitlines()
    places = [one.place.rpartition(":") for one in launches]
    assert {file for file, _, _ in places} == {str(script)}
    assert [lines[int(line) - 1].strip().partition("[")[0] for _, _, line in places] == [
        *("add", "add", "copy", "copy", "double", "double", "double", "double"),
    ]
    assert [one.call for one in launches] == [1, 4, 5, 6, 7, 7, 9, 9]


def test_a_launch_has_its_arguments(ask: Callable[..., Ran]) -> None:
    """Arguments have the parameters' names, with constexprs and heuristics."""
    bound = ask("several").launches[2].bound
    assert list(bound.arguments) == ["pair", "n", "stride", "BLOCK", "EVEN"]
    assert (bound.arguments["EVEN"], bound.constexprs) == (False, ("BLOCK", "EVEN"))
    pair = bound.arguments["pair"]
    assert isinstance(pair, tuple)
    assert [json.loads(to_line(one))["storage_bytes"] for one in pair] == [12800, 12800]


def test_autograd_launches_forward_and_backward(ask: Callable[..., Ran]) -> None:
    """An autograd function's backward launches, like its forward."""
    ran = ask("backward")
    assert ran.failure is None
    assert kernels(ran.launches) == [("add", (4,), 1, None), ("add", (8,), 1, None)]


def test_a_kernel_that_was_warmed_up_tells_its_registers(ask: Callable[..., Ran]) -> None:
    """A warmed-up kernel has n_regs and metadata, and can be launched."""
    ran = ask("warmed")
    assert ran.failure is None
    registers, spills, shared, has_ptx = ran.printed.split()
    assert (spills, shared, has_ptx) == ("0", "0", "True")
    programs = 65536 // (int(registers) * 32 * 2) * 132
    assert kernels(ran.launches) == [("add", (programs, 1, 1), 1, None)]
    assert ran.launches[0].bound.options == {"num_warps": 2}


def test_a_launcher_of_a_compiled_kernel_is_a_launch(ask: Callable[..., Ran]) -> None:
    """A launch through a compiled kernel's `run` is noted."""
    ran = ask("relaunched")
    assert ran.failure is None
    assert kernels(ran.launches) == [("add", (4,), 1, None), ("add", (8, 1, 1), 1, None)]


def test_a_benchmark_calls_once_and_has_no_time(ask: Callable[..., Ran]) -> None:
    """do_bench gives nan; comparing and printing unknown values works."""
    ran = ask("benched")
    assert (ran.failure, ran.printed) == (
        None,
        "nan nan H200 SXM\ntensor(..., device='cuda:0') tensor(..., device='cuda:0')\n",
    )
    assert [one.times for one in ran.launches] == [2]


def test_a_benchmark_of_triton_is_run_whole(ask: Callable[..., Ran]) -> None:
    """A perf_report benchmark launches for each of its values."""
    ran = ask("curve")
    assert ran.failure is None
    assert [one.bound.arguments["n"] for one in ran.launches] == [128, 256]


def test_an_empty_grid_launches_nothing(ask: Callable[..., Ran]) -> None:
    """An empty grid is skipped, pinned memory is accepted, and each grid counts."""
    ran = ask("unusual")
    assert ran.failure is None
    assert kernels(ran.launches) == [
        ("double", (3,), 1, 128),
        ("double", (3,), 1, 512),
        ("double", (5,), 1, 128),
        ("double", (5,), 1, 512),
        ("add", (1,), 1, None),
    ]


@pytest.mark.parametrize("name", FAILING)
def test_what_cannot_run_dry_is_named_with_its_line(
    ask: Callable[..., Ran], script: Path, name: str
) -> None:
    """Something that cannot run dry is refused with the script's line."""
    line, message = FAILING[name]
    number = script.read_text().splitlines().index(f"    {line}") + 1
    failure = ask(name.replace(" ", "_")).failure
    assert failure.startswith(f"{script}:{number}")
    assert message in failure
    assert "\n" not in failure


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("idle", "launches no Triton kernel"),
        ("asking", "takes rows; name a function that can be called without arguments"),
        ("nothing", "has no function 'nothing' that launches kernels"),
        ("add", "has no function 'add' that launches kernels"),
    ],
)
def test_a_function_that_launches_nothing_is_refused(
    ask: Callable[..., Ran], script: Path, function: str, message: str
) -> None:
    """A function must exist, need no argument and launch a kernel."""
    assert ask(function).failure == f"{script}:{function} {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module", ":1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = (", ":1: SyntaxError: '(' was never closed"),
        ("import sys\nsys.exit()", ":2 ends the script with status None"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named_with_its_line(
    ask: Callable[..., Ran], script: Path, text: str, message: str
) -> None:
    """A failing import is one sentence with the file's line."""
    path = script.with_name(f"file{abs(hash(text))}.py")
    path.write_text(f"{text}\n", encoding="utf-8")
    assert ask("main", file=path).failure == f"{path}{message}"


def test_a_script_that_never_ends_is_ended(script: Path) -> None:
    """A timeout names the limit and the option that raises it."""
    said = r"bench.py:\d+: it takes longer than 1 s; --compile-timeout gives it more"
    with pytest.raises(InputError, match=said):
        Script(Run(f"{script}:waiting", find_gpu("h100"), seconds=1))


def test_a_script_that_ends_its_process_leaves_none(script: Path) -> None:
    """A function that exits is refused, and its child processes are ended."""
    with pytest.raises(InputError, match=r"bench.py:leaving ends its process: exit status 3"):
        Script(Run(f"{script}:leaving", find_gpu("h100")))
    pids = script.with_name("pids").read_text(encoding="utf-8").split()
    assert len(pids) == 2
    until = time.monotonic() + 20  # a killed process is gone after a moment
    while any(map(is_running, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_running, pids))


def test_a_compiler_that_dies_takes_no_other_launch_with_it(script: Path) -> None:
    """A launch that kills the compiler does not affect others."""
    with Script(Run(f"{script}:breaking", find_gpu("h100"))) as run:
        with pytest.raises(CompileError, match="LLVM ERROR: no register for f"):
            resources(run, 0)
        with pytest.raises(CompileError, match="cannot compile asserting for sm_90"):
            resources(run, 1)
        assert resources(run, 2).n_regs > 0
        with pytest.raises(InputError, match="no_option is neither a parameter of add"):
            resources(run, 2, {"no_option": 1})


def test_launches_are_compiled_together_in_their_order(script: Path) -> None:
    """Each outcome belongs to its launch, whichever compiles first."""
    with Script(Run(f"{script}:unequal", find_gpu("h100"))) as run:
        slow, aborted, fast, same = run.outcomes(every(run))
        assert isinstance(slow, Resources)
        assert isinstance(aborted, Failure)
        assert "LLVM ERROR: no register for f" in aborted.reason
        assert isinstance(fast, Resources)
        assert (slow.num_warps, fast.num_warps, same) == (8, 2, fast)
        changed = run.outcomes([Changed(2, {"num_warps": 1}), Changed(0, {"no_option": 1})])
        assert [getattr(one, "num_warps", None) for one in changed] == [1, None]


def test_no_compile_is_made_after_ctrl_c(script: Path, tmp_path: Path) -> None:
    """After Ctrl-C finished outcomes are kept and nothing more is compiled."""
    with Script(Run(f"{script}:hanging", find_gpu("h100"), str(tmp_path))) as run:
        begun, compiled = script.with_name("begun"), resources(run, 0)

        def interrupt() -> None:
            while not begun.exists() or not begun.read_text(encoding="utf-8"):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        fast, hanging = run.outcomes(every(run))
        thread.join()
        assert (fast, hanging) == (compiled, INTERRUPTED)
        assert run.interrupted is not None
        assert run.outcomes(every(run)) == [INTERRUPTED, INTERRUPTED]
    assert not is_running(begun.read_text(encoding="utf-8"))


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_file_is_no_script(tmp_path: Path, what: str) -> None:
    """A pipe, a device or a 2 GB file in a script's place is not read."""
    path = put(what, tmp_path / "script.py")
    with within(5):
        assert not names_script(f"{path}:main")


def test_scripts_are_told_from_kernels(script: Path) -> None:
    """Only a function without a Triton decorator is a script's."""
    names = ("several", "curve", "add", "copy", "double", "none")
    found = [name for name in names if names_script(f"{script}:{name}")]
    assert found == ["several", "curve"]
    assert not names_script("softmax")
    assert not names_script("no_such.py:main")


def run_source(
    folder: Path, source: str, gpu: str = "h100", **asked: object
) -> tuple[Script, list[tuple[object, ...]]]:
    """Run KERNELS and *source* as a program; return the run, and each launch's grid and BLOCK."""
    path = folder / "program.py"
    path.write_text(KERNELS + source, encoding="utf-8")
    with Script(Run(str(path), find_gpu(gpu), arguments=(), **asked)) as script:  # type: ignore[arg-type]
        assert script.ran.failure is None, script.ran.failure
        launches = [
            (one.bound.launch.grid, one.bound.constexprs and one.bound.arguments.get("BLOCK"))
            for one in script.launches
        ]
    return script, launches


OPERATIONS = """
x = torch.randn(1000, device="cuda")


def launch(block):
    out = torch.empty_like(x)
    add[(1,)](x, x, out, 1000, BLOCK=block)
    return out


@torch.library.custom_op("dry::op", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return launch(16)


@torch.library.triton_op("dry::triton", mutates_args={})
def triton_op(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(add)[(1,)](x, x, out, 1000, BLOCK=32)
    return out


@torch.library.custom_op("dry::cuda", mutates_args=(), device_types="cuda")
def of_cuda(x: torch.Tensor) -> torch.Tensor:
    return launch(64)


@torch.library.custom_op("dry::host", mutates_args=(), device_types="cpu")
def host(x: torch.Tensor) -> torch.Tensor:
    return launch(256)


library = torch.library.Library("dry_old", "DEF")
library.define("op(Tensor x) -> Tensor")
library.impl("op", lambda x: launch(128), "CUDA")
for one in (op, triton_op, of_cuda, host):
    one.register_fake(torch.empty_like)
    one(x)
torch.ops.dry_old.op(x)
"""


def test_launches_inside_operations_of_libraries_are_seen(tmp_path: Path) -> None:
    """A registered operation really runs; one without a GPU kernel is named."""
    script, launches = run_source(tmp_path, OPERATIONS)
    assert [block for _, block in launches] == [16, 32, 64, 128]
    assert script.ran.missing == ("dry::host",)


VALUES = """
lengths = torch.tensor([3, 5, 8], device="cuda", dtype=torch.int32)
offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
x = torch.randn(offsets[-1].item(), 64, device="cuda")


def launch(grid):
    add[(grid,)](x, x, x, 1000, BLOCK=16)


launch(offsets[-1].item())
launch(len(torch.unique(lengths)) + lengths.tolist()[1])
launch((x.new_ones(5, dtype=torch.int64) > 0).sum().item())
for chosen in torch.repeat_interleave(lengths, lengths).cpu().numpy()[:2]:
    launch(int(chosen) + 20)
lengths[lengths > 4] = 31
launch(lengths.max().item())
with torch.no_grad():
    logits = torch.randn(256, 4096, device="cuda") @ torch.randn(4096, 8, device="cuda")
counts = torch.bincount(logits.topk(2)[1].flatten(), minlength=8)
assert counts.sum() == 512
count = torch.zeros(1, dtype=torch.int32, device="cuda")
add[(1,)](lengths, lengths, count, 1, BLOCK=16)
assert lengths.tolist() == [3, 31, 31]
launch(count.item() + 8)
if torch.isnan(logits).any():
    launch(1000)
"""


def test_values_are_those_that_the_program_makes(tmp_path: Path) -> None:
    """Small integers have real values; a kernel's results are assumed and named."""
    script, launches = run_source(tmp_path, VALUES)
    grids = [grid for grid, _ in launches]
    assert grids == [(16,), (8,), (5,), (23,), (31,), (1,), (24,)]
    line = KERNELS.count("\n") + VALUES.split("launch(count.item()", maxsplit=1)[0].count("\n") + 1
    assert [str(one) for one in script.ran.assumed if one.place.endswith(f":{line}")] == [
        f"16 for a value at {tmp_path / 'program.py'}:{line}"
    ]


TOLD = """
offsets = torch.tensor([0, 3, 5, 8], device="cuda").cumsum(0).to(torch.int32)
floats = torch.ones(64, device="cuda")
count = torch.zeros(2, dtype=torch.int64, device="cuda")
add[(1,)](offsets[1:], offsets > 4, floats, 3, BLOCK=16)
add[(2,)](offsets, offsets, count, 1, BLOCK=16)
add[(3,)](count, torch.zeros(1 << 19, dtype=torch.int32, device="cuda"), floats, 1, BLOCK=16)
assumed = torch.full((4,), count.sum().item(), dtype=torch.int32, device="cuda") + count.sum()
double[(4,)](offsets, 128)
add[(5,)](floats, assumed, floats, 1, BLOCK=16)
"""


def test_launches_tell_what_small_tensors_hold(tmp_path: Path) -> None:
    """A launch has the values of integer and bool tensors that it only reads."""
    script, _ = run_source(tmp_path, TOLD)
    offsets = (0, 3, 8, 16)
    assert [dict(one.bound.launch.values) for one in script.launches] == [
        {"x": offsets[1:], "y": (0, 0, 1, 1)},
        {"x": offsets, "y": offsets},
        {},
        {},
        {},
    ]


def test_an_assumption_can_be_given(tmp_path: Path) -> None:
    """An assumption can be given by kind, or for the line that uses it."""
    source = (
        "count = torch.zeros(1, dtype=torch.int32, device='cuda')\n"
        "add[(1,)](count, count, count, 1, BLOCK=16)\n"
        "add[(count.item(),)](count, count, count, 2, BLOCK=16)\n"
        "add[(count.item(),)](count, count, count, 2, BLOCK=16)\n"
    )
    line = KERNELS.count("\n") + 4
    _, launches = run_source(tmp_path, source, assume={"int": 5, f"program.py:{line}": 9})
    assert [grid for grid, _ in launches] == [(1,), (5,), (9,)]


ALIVE = """
def annotated(graph: torch.cuda.CUDAGraph | None, stream: torch.cuda.Stream | None = None): ...


assert not isinstance(annotated.__annotations__["graph"], str)  # as without a __future__ import


class Graph(torch.cuda.CUDAGraph):
    def replay(self):
        super().replay()


graph, stream = Graph(), torch.cuda.Stream()
generator = torch.cuda.default_generators[0]
seed, offset = generator.get_state().view(torch.int64).tolist()
generator.set_state(torch.tensor([seed + 1, offset + 4]).view(torch.uint8))
assert (generator.initial_seed(), generator.get_offset()) == (seed + 1, offset + 4)
drawing = torch.Generator("cuda").manual_seed(5)
assert drawing.device.type == "cuda" and torch.Generator().device.type == "cpu"
assert torch.randn(4, device="cuda", generator=drawing).shape == (4,)

import subprocess

assert subprocess.run(["nvidia-smi"], capture_output=True, text=True).stdout == "H100 SXM\\n"
from triton._C.libtriton import nvidia

product = torch.ones(2, 2, device="cuda", dtype=torch.int32)
nvidia.cublas.CublasLt(torch.empty(9, device="cuda")).matmul(product, product, product)
assert product.tolist() == [[16, 16]] * 2
assert isinstance(graph, torch.cuda.CUDAGraph) and torch.cuda.device(0).idx == 0
assert torch._C._cuda_getCurrentRawStream(0) == 0 and torch.cuda.mem_get_info()[1] > 2**30
properties = torch.cuda.get_device_properties(0)
assert properties.total_memory > 2**30 and properties.max_threads_per_block == 1024
assert properties.clock_rate > 10**6 and not properties.is_integrated
assert triton.testing.nvsmi(["clocks.max.sm"]) == [properties.clock_rate // 1000]
assert not hasattr(properties, "no_such")
with torch.cuda.stream(stream), torch.cuda.graph(graph):
    x = torch.ones(16).cuda()
    add[(1,)](x, torch.ones(16, device=0), torch.ones(16).to("cuda"), 16, BLOCK=16)
graph.replay()

from torch._subclasses import FakeTensorMode

with FakeTensorMode():
    fake = torch.empty(7, 5, device="cuda")
    assert (fake @ fake.T).shape == (7, 7)

model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).cuda()
data = torch.utils.data.TensorDataset(torch.randn(8, 64), torch.randint(0, 4, (8,)))
scaler = torch.amp.GradScaler()
for how in ({}, {"fused": True}, {"foreach": True}):
    optimizer = torch.optim.AdamW(model.parameters(), **how)
    for x, label in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = model(x.cuda(non_blocking=True))
            assert y.dtype == torch.bfloat16
            loss = torch.nn.functional.cross_entropy(y, label.to("cuda"))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        add[(2,)](y, y, y, 16, BLOCK=32)
assert isinstance(model[0].weight, torch.nn.Parameter) and type(y) is torch.Tensor
heads = torch.randn(2, 4, 16, 32, device="cuda", dtype=torch.half, requires_grad=True)
attend = torch.nn.functional.scaled_dot_product_attention
attend(heads, heads, heads, is_causal=True).sum().backward()
assert heads.grad.shape == heads.shape
half, total = torch.ones(2, 8, 8, device="cuda").half(), torch.ones(2, 8, 8, device="cuda")
torch.addmm(total[0], half[0], half[0], out_dtype=torch.float32, out=total[0])
added = torch.baddbmm(total, half, half, out_dtype=torch.float32, beta=2)
assert (added.dtype, added[:, 0, 0].tolist()) == (torch.float32, [26, 10])
assert torch.mm(half[0], half[0], out_dtype=torch.float32).dtype == torch.float32
few = torch.tensor([9, 6], device="cuda", dtype=torch.uint8)
assert ((few & 12) | 1).tolist() == [9, 5] and (few & 3).dtype == torch.uint8
assert torch.where(few > 6, few, 1).tolist() == [9, 1]
any_device = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
torch.ops.aten.copy_.default.redispatch(any_device, few, torch.tensor([1, 2]))
assert few.tolist() == [1, 2]


class Own:
    def __init__(self, tensor):
        self.tensor, self.dtype = tensor, tensor.dtype
        self.data_ptr, self.untyped_storage = tensor.data_ptr, tensor.untyped_storage


add[(3, 1, 1, 1)](few, few, Own(few), 2, BLOCK=64)
assert few.tolist() == [16, 16]
"""


def test_programs_use_torch_as_on_a_gpu(tmp_path: Path) -> None:
    """Streams, graphs, autocast, GradScaler, optimizers, DataLoaders and FakeTensorMode work."""
    _, launches = run_source(tmp_path, ALIVE)
    assert launches == [((1,), 16), ((2,), 32), ((3, 1, 1), 64)]


COMPILED = """
@torch.library.triton_op("dry::copy", mutates_args={})
def copied(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(add)[(1,)](x, x, out, 1000, BLOCK=32)
    return out


model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.LayerNorm(256)).cuda()
step = torch.compile(lambda x: model(x).softmax(-1).sum() + copied(x.detach()).sum())
step(torch.randn(512, 256, device="cuda")).backward()
assert model[0].weight.grad.shape == (256, 256)
"""


def test_kernels_of_torch_compile_are_seen(tmp_path: Path) -> None:
    """Inductor's kernels, forward and backward, are noted and compile.

    Their launch lines are the program's, none of torch or of what Inductor wrote. This is AMD's
    way; what Inductor makes for NVIDIA is in tests/scanning/test_launched.py.
    """
    path = tmp_path / "program.py"
    path.write_text(KERNELS + COMPILED, encoding="utf-8")
    with Script(Run(str(path), find_gpu("mi300x"), arguments=())) as script:
        assert script.ran.failure is None, script.ran.failure
        bound = [one.bound for one in script.launches]
        assert any("softmax" in one.kernel for one in bound)
        assert any("backward" in one.kernel for one in bound)
        assert ("add", (1, 1, 1)) in [(one.kernel, one.launch.grid) for one in bound]
        assert all(one.place.startswith(f"{path}:") for one in script.launches)
        assert all(resources(script, index).n_regs > 0 for index in range(len(bound)))


SUBCLASSES = """
class Tuner(triton.runtime.Autotuner):
    def run(self, *args, **kwargs):
        return super().run(*args, **kwargs)


tuner = Tuner(add, add.arg_names, [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})],
              ["n"], None, None)
x = torch.ones(64, device="cuda")
tuner[(1,)](x, x, x, 64)

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


@gluon.jit
def put(out, BLOCK: gl.constexpr):
    block = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)
    tma.async_copy_shared_to_global(out, [0, 0], block)
    tma.store_wait(0)


y = torch.ones(64, 64, device="cuda", dtype=torch.half)
layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
put[(1,)](TensorDescriptor.from_tensor(y, [64, 64], layout), 7)
"""


def test_subclasses_and_gluon_are_kernels(tmp_path: Path) -> None:
    """A subclass of Autotuner and Gluon's kernels are noted."""
    path = tmp_path / "program.py"
    path.write_text(KERNELS + SUBCLASSES, encoding="utf-8")
    with Script(Run(str(path), find_gpu("h100"), arguments=())) as script:
        assert script.ran.failure is None, script.ran.failure
        blocks = [one.bound.arguments["BLOCK"] for one in script.launches]
        assert blocks == [64, 128, 7]
        assert resources(script, 2).shared == 64 * 64 * 2
