"""A dry run of a program: its launches, what is missing, and how it ends."""

import json
import signal
import subprocess
import sys
import venv
from pathlib import Path

import in_process
import pytest
import torch
from processes import wait_until
from run_trace import TOOL, grids, run

from occupancy_lab.errors import InputError
from occupancy_lab.tracing.dry import dry_trace, dry_traces

SCRIPT = """
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, n, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + where, tl.load(x + where, mask=where < n) + 1, mask=where < n)


if __name__ == "__main__":
    x = torch.zeros(int(sys.argv[1]), device="cuda")
    for _ in range(3):
        add[(triton.cdiv(x.numel(), 512),)](x, x.numel(), BLOCK=512)
    {end}
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return the path of the program."""
    return tmp_path / "train.py"


def dry_run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program dry with the tool, in this process."""
    return in_process.run("trace", "--dry-run", "--gpu", "h100", *words, **environment)


def test_a_dry_run_tells_what_a_program_would_launch(script: Path) -> None:
    """A file runs as a program with its arguments, for a GPU that is not here."""
    script.write_text(SCRIPT.replace("{end}", "sys.exit()"), encoding="utf-8")
    found = dry_run("--json", "--", "python", str(script), "1024000")
    assert (found.returncode, found.stderr) == (0, "")
    told = json.loads(found.stdout)
    (kernel,) = told["kernels"]
    assert (kernel["grid"], kernel["launches"], kernel["gpu"]) == ("2000", 3, "h100")
    assert "went no further" not in str(told["document"])


def test_what_a_program_prints_is_on_standard_error(script: Path) -> None:
    """Standard output has only the page."""
    script.write_text("import sys\nprint('out')\nprint('err', file=sys.stderr)", encoding="utf-8")
    found = run(["python", str(script)], ["--dry-run", "--gpu", "h100", "--json"])
    assert (found.returncode, found.stderr) == (0, b"out\nerr\n")
    assert json.loads(found.stdout)["rows"] == []


def test_a_dry_run_says_which_line_stopped_it(script: Path) -> None:
    """The page says which line failed and that later launches are missing."""
    script.write_text(SCRIPT.replace("{end}", "x + torch.rand(1)"), encoding="utf-8")
    found = dry_trace(["python", str(script), "1024"], gpu="mi300x")
    assert found.kernels[0].launches == 3
    assert f"{script.name}:19: RuntimeError: Expected all tensors to be on" in str(found)


KERNEL = (
    SCRIPT.partition("if __name__")[0]
    + """

def launch(blocks):
    add[(blocks,)](torch.zeros(blocks * 512, device="cuda"), blocks * 512, BLOCK=512)


"""
)
WHEREVER = """
import atexit
import multiprocessing
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

if __name__ == "__main__":
    launch(1)
    if os.fork() == 0:
        launch(2)
        sys.exit()
    if os.fork() == 0:
        launch(3)
        os._exit(0)
    context = multiprocessing.get_context("fork")
    context.Process(target=launch, args=(4,)).start()
    with context.Pool(2) as pool:  # whose end kills its processes
        pool.map(launch, [5, 6])
    multiprocessing.get_context("spawn").Process(target=launch, args=(7,)).start()
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        pool.map(launch, [8, 9])
    threading.Thread(target=launch, args=(10,)).start()
    threading.Thread(target=lambda: (time.sleep(0.3), launch(11))).start()
    ThreadPoolExecutor(1).submit(launch, 12)
    atexit.register(launch, 13)
    atexit.register(launch, blocks=14)
    never = atexit.register(lambda: launch(99))
    atexit.unregister(never)
"""


def test_a_dry_run_has_launches_wherever_they_are_made(script: Path) -> None:
    """Launches of threads, forks, child processes and atexit are there."""
    script.write_text(KERNEL + WHEREVER, encoding="utf-8")
    found = dry_trace(["python", str(script)], gpu="h100")
    launched = {grid: one for kernel in found.kernels for grid, one in grids(kernel).items()}
    assert launched == {(blocks,): 1 for blocks in range(1, 15)}
    assert all(one.calculation is not None for one in found.kernels)
    assert "Launches may be missing" not in str(found)
    assert found.outcome.status == 0


def test_a_dry_run_says_what_ended_early_or_not_at_all(script: Path, tmp_path: Path) -> None:
    """Failed threads, running processes and other Pythons are reported."""
    text = """
import os, subprocess, threading, time
from occupancy_lab.compiling import notes

notes.ENDING = 1.0  # seconds to wait for a process
if os.fork() == 0:
    launch(2)
    time.sleep(60)
threading.Thread(target=lambda: torch.zeros(1, device="cuda").numpy()).start()
launch(1)
subprocess.run([sys.executable, "-c", ""])
"""
    script.write_text(KERNEL + text, encoding="utf-8")
    found = dry_trace(["python", str(script)], gpu="h100")
    assert grids(found.kernels[0]) == {(1,): 1, (2,): 1}
    page = str(found)
    assert f"a thread ended early: {script.name}:" in page.replace(f"{tmp_path}/", "")
    assert "can't convert cuda:0 device type tensor to numpy" in page
    assert "had not ended: what it launches later is not here" in page
    assert "was started as a separate program, which is not run dry" in page


@pytest.mark.parametrize(
    ("before", "end", "status", "said"),
    [
        ("launch(1)", "sys.exit(3)", 3, "ends the script with status 3"),
        ("", "sys.exit('no')", 1, "ends the script with status no"),
        ("launch(1)", "torch.zeros(1, device='cuda').numpy()", 1, "can't convert cuda:0"),
    ],
)
def test_the_status_of_a_dry_run_is_the_programs(
    script: Path, before: str, end: str, status: int, said: str
) -> None:
    """The status is the program's, and 1 after an error."""
    script.write_text(f"{KERNEL}{before}\n{end}\n", encoding="utf-8")
    found = dry_run("--", "python", str(script), COLUMNS="200")
    assert (found.returncode, found.stderr) == (status, "")
    assert said in found.stdout
    assert ("1 launch of 1 kernel" if before else "No Triton kernel") in found.stdout


def test_an_interrupted_dry_run_tells_what_there_is(tmp_path: Path) -> None:
    """Ctrl-C stops the program; its launches are listed; the status is 130."""
    script, begun = tmp_path / "train.py", tmp_path / "begun"
    ending = (
        f"launch(1)\nimport time, pathlib\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(600)\n"
    )
    script.write_text(KERNEL + ending, encoding="utf-8")
    words = [*TOOL, "--dry-run", "--gpu", "h100", "--json", "--", "python", str(script)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        wait_until(begun.exists)
        process.send_signal(signal.SIGINT)
        told = json.loads(process.communicate(timeout=60)[0])
        assert process.returncode == 130
    assert [one["kernel"] for one in told["kernels"]] == ["add"]
    assert "it was interrupted" in str(told["document"])


def test_a_dry_run_has_a_time_limit(script: Path) -> None:
    """A program is stopped at its limit, and its launches until then are listed."""
    script.write_text(f"{KERNEL}launch(1)\nwhile True:\n    pass\n", encoding="utf-8")
    found = dry_run("--timeout", "3", "--", "python", str(script))
    assert found.returncode == 1
    page = " ".join(found.stdout.split())
    assert "1 launch of 1 kernel" in page
    assert "it takes longer than 3 s; --timeout gives it more" in page


MISSING = """
@torch.library.custom_op("dry::host", mutates_args=(), device_types="cpu")
def host(x: torch.Tensor) -> torch.Tensor:
    return x + 1


host.register_fake(torch.empty_like)
x = torch.zeros(1 << 20, device="cuda")
host(x).sum().item()
launch(1)
"""


def test_a_dry_run_says_what_is_missing_and_what_it_assumed(script: Path) -> None:
    """Operations without a GPU kernel and assumptions are named."""
    script.write_text(KERNEL + MISSING, encoding="utf-8")
    found = dry_run("--json", "--assume", "float=0.5", "--", "python", str(script))
    told = json.loads(found.stdout)
    assert (found.returncode, told["missing"]) == (1, ["dry::host"])
    line = KERNEL.count("\n") + MISSING.partition(".item()")[0].count("\n") + 1
    assumed = {"place": f"{script}:{line}", "use": "a value", "value": "0.5"}
    assert told["assumed"] == [assumed]
    page = str(told["document"])
    assert "Launches are missing: the operation dry::host" in page
    assert f"Assumed: 0.5 for a value at {script}:{line}." in page


def test_sizes_over_one_grid_each_have_their_time(tmp_path: Path) -> None:
    """Launches over one grid with other sizes have their own times."""
    lines = """
import torch, triton, triton.language as tl

@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        where = start + tl.arange(0, BLOCK)
        tl.store(x + where, tl.load(x + where, mask=where < n) * 2, mask=where < n)

for n in {sizes}:
    scale[(132,)](torch.zeros(n, device="cuda"), n, BLOCK=1024)
"""
    found = []
    for sizes in ((4096,), (1 << 24,), (4096, 1 << 24)):
        script = tmp_path / "scale.py"
        script.write_text(lines.replace("{sizes}", str(sizes)), encoding="utf-8")
        (kernel,) = dry_trace(["python", str(script)], gpu="h100").kernels
        found.append(kernel)
    short, long, both = found
    assert short.time
    assert long.time
    assert both.time
    assert both.time.us == pytest.approx(short.time.us + long.time.us)
    assert both.record == long.record
    assert (both.row()["grids"], both.launches) == (1, 2)


def test_a_dry_run_of_which_nothing_compiles_fails(script: Path) -> None:
    """If no kernel compiles the status is 1, and the table has the reason."""
    broken = KERNEL.replace("    where =", "    tl.static_assert(BLOCK < 512)\n    where =")
    script.write_text(f"{broken}launch(1)\n", encoding="utf-8")
    runs = dry_traces(["python", str(script)], gpu="h100")
    assert runs.status == 1
    assert "cannot compile add" in str(runs.traces[0].trace)
    (why,) = runs.failures()
    assert "cannot compile add" in why
    wide = "add[(1,)](torch.zeros(1, device='cuda'), 1, BLOCK=256)\n"
    script.write_text(f"{broken}launch(1)\n{wide}", encoding="utf-8")
    found = dry_trace(["python", str(script)], gpu="h100")
    assert found.outcome.status == 0


TUNED = """
@triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 1024)], key=[])
@triton.jit
def multiply(x, BLOCK: tl.constexpr):
    rows, inner = tl.arange(0, BLOCK)[:, None], tl.arange(0, 128)[None, :]
    cols = tl.arange(0, 16)[None, :]
    a, b = tl.load(x + rows * 128 + inner), tl.load(x + inner.trans() * 16 + cols)
    tl.store(x + rows * 16 + cols, tl.dot(a, b))


multiply[(8,)](torch.zeros(2**20, device="cuda", dtype=torch.float16))
"""


def test_a_configuration_that_does_not_fit_costs_no_other(script: Path) -> None:
    """A configuration that does not fit has a reason; another is shown."""
    script.write_text(KERNEL + TUNED, encoding="utf-8")
    found = dry_trace(["python", str(script)], gpu="h100")
    rows = {one.constexprs["BLOCK"]: one.row() for one in found.kernels}
    assert rows["64"]["waves"] == 8 / 1320
    assert rows["1024"]["waves"] is None
    assert "shared memory" in rows["1024"]["reason"]
    page = found.to_markdown()
    assert page.count("1?") == 1
    assert "BLOCK 64" in page
    assert "BLOCK 1024" not in page


def test_a_dry_run_is_of_the_programs_own_python(script: Path, tmp_path: Path) -> None:
    """The named interpreter runs the program, with its own modules."""
    own = tmp_path / ".venv"
    venv.create(own, symlinks=True)
    (packages,) = own.glob("lib/*/site-packages")
    paths = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "paths.pth").write_text("\n".join(paths), encoding="utf-8")
    (packages / "own_module.py").touch()
    script.write_text(f"{KERNEL}import own_module\nprint(sys.prefix)\nlaunch(1)", encoding="utf-8")
    found = run([f"{own}/bin/python", "-u", str(script)], ["--dry-run", "--gpu", "h100"])
    assert (found.returncode, found.stderr.decode()) == (0, f"{own}\n")
    assert b"1 launch of 1 kernel" in found.stdout


@pytest.mark.parametrize("name", ["python", "python3.11"])
def test_a_python_without_triton_is_refused_with_what_would_do(tmp_path: Path, name: str) -> None:
    """A Python named by its path is refused with what it lacks."""
    (tmp_path / "train.py").touch()
    venv.create(tmp_path / "bare", symlinks=True)
    bare = f"{tmp_path}/bare/bin/python"
    with pytest.raises(InputError, match=r"without a Triton .* such as /"):
        dry_trace([bare, str(tmp_path / "train.py")], gpu="h100")
    with pytest.raises(InputError, match=r"names no FILE.py: give `python FILE.py"):
        dry_trace((sys.executable, "-m", "train"), gpu="h100")
    with pytest.raises(InputError, match=r"there is no Python .* such as /"):
        dry_trace([f"{tmp_path}/none/{name}", str(tmp_path / "train.py")], gpu="h100")


DRAWING = """
import multiprocessing
import random

import numpy as np


def draw(_=0):
    numbers = torch.randint(1, 1000, (2,), device="cuda").tolist()
    numbers += [random.randint(1, 1000), np.random.randint(1, 1000), torch.randint(1, 1000, (1,))]
    numbers += torch.randperm(1000, device="cuda")[:2].add(1).tolist()
    for blocks in numbers:
        launch(int(blocks))


if __name__ == "__main__":
    draw()
    torch.manual_seed(7)
    launch(int(torch.randint(1, 1000, (1,))))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.map(draw, [1])
"""


@pytest.mark.usefixtures("cold_scripts")  # forks of one process might draw the same anyway
def test_what_a_program_draws_is_the_same_in_each_run(script: Path) -> None:
    """Random numbers are equal in each run, also in further processes."""
    script.write_text(KERNEL + DRAWING, encoding="utf-8")
    found = [
        {grid: times for kernel in one.trace.kernels for grid, times in grids(kernel).items()}
        for one in dry_traces(["python", str(script)], gpu="h100,a100").traces
    ]
    assert found[0] == found[1]
    assert sum(found[0].values()) == 15
    own = torch.Generator().manual_seed(7)
    assert (int(torch.randint(1, 1000, (1,), generator=own)),) in found[0]


def test_each_size_of_an_autotuned_kernel_has_its_fastest_configuration(script: Path) -> None:
    """Large products use large blocks, small ones small blocks."""
    examples = Path(__file__).parents[2] / "examples"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(examples)!r})\n"
        "import torch\nfrom matmul import multiply\n"
        "for n, times in ((4096, 2), (512, 3)):\n"
        "    a = torch.randn((n, n), device='cuda', dtype=torch.float16)\n"
        "    for _ in range(times):\n"
        "        multiply(a, a)\n",
        encoding="utf-8",
    )
    found = dry_trace(["python", str(script)], gpu="h100").kernels
    large, small = sorted((one for one in found if one.expected), key=lambda one: one.launches)
    assert [large.launches, small.launches] == [2, 3]
    blocks = [int(one.constexprs["BLOCK_M"]) for one in (large, small)]
    assert blocks[0] > blocks[1]
    for expected in (large, small):
        same = [grid for one in found for grid in one.grids if grid.launches == expected.launches]
        times = [grid.predicted.us for grid in same if grid.predicted is not None]
        assert len(times) == 4
        assert expected.grids[0].predicted.us == min(times)
