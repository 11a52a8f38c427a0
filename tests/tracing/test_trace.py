"""A traced program is as it is without, and what it launched is told at its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import occupancy_lab
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.tracing import hook, sitecustomize
from occupancy_lab.tracing.trace import dry_trace, trace_program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.tracing.records import TracedKernel
    from occupancy_lab.tracing.trace import Trace

PROGRAM = Path(__file__).with_name("traced_program.py")
TOOL = [sys.executable, "-m", "occupancy_lab", "trace"]


def command(what: str) -> list[str]:
    """Return the command that has the program do *what*."""
    return [sys.executable, str(PROGRAM), what]


def traced(what: str, **asked: Any) -> Trace:
    """Return the trace of the program that does *what*."""
    return trace_program(command(what), **asked)


def run(
    asked: Sequence[str], options: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command under the tool."""
    return subprocess.run(
        [*TOOL, *options, "--", *asked],
        capture_output=True,
        check=False,
        env=os.environ | environment,
    )


def grids(kernel: TracedKernel) -> dict[Any, int]:
    """Return the launches by their grid."""
    return {one.grid: one.launches for one in kernel.grids}


@pytest.mark.slow
def test_streams_and_status_are_the_programs() -> None:
    """Standard output is the same bytes, standard error begins with the program's, status too."""
    plain = subprocess.run(command("status"), capture_output=True, check=False)
    found = run(command("status"))
    assert (plain.returncode, found.returncode) == (7, 7)
    assert found.stdout == plain.stdout == b"out\n"
    assert found.stderr.startswith(plain.stderr)
    told = found.stderr[len(plain.stderr) :].decode()
    assert "1 launch of 1 kernel in 1 configuration" in told


@pytest.mark.slow
def test_a_program_that_fails_is_told_too() -> None:
    """The traceback and the status are the program's, and its launches are counted."""
    found = run(command("fails"))
    assert found.returncode == 1
    assert b"ValueError: the program's own" in found.stderr
    assert b"2 launches of 1 kernel" in found.stderr


@pytest.mark.slow
def test_a_killed_program_ends_us_as_it_ended() -> None:
    """The signal is passed on, and what was flushed before is told as incomplete."""
    found = run(command("killed"), ["--json"])
    assert found.returncode == -signal.SIGKILL
    told = json.loads(found.stderr.partition(b"err\n")[2])
    assert told["status"] == -signal.SIGKILL
    assert [one["ended"] for one in told["processes"]] == [False]
    assert 50 <= told["kernels"][0]["launches"] <= 153
    assert "was killed or had not ended" in str(told["document"])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_program_which_decides(number: int) -> None:
    """A program that hears a signal and ends by itself has the last word."""
    with subprocess.Popen(
        [*TOOL, "--", *command("waits")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"out\n", b"ready\n"]
        process.send_signal(number)
        assert process.stdout.read() == b"heard\n"
        assert b"2 launches" in process.stderr.read()
        assert process.wait(20) == 9


IMPORTED = "import sys; print(sorted(sys.modules), sys.path, sys.flags, sys.argv)"


def test_a_program_without_triton_imports_nothing_more() -> None:
    """What is imported, and the path, are the same; and that nothing was launched is said."""
    asked = [sys.executable, "-c", IMPORTED, ""]
    plain = subprocess.run(asked, capture_output=True, check=True)
    found = run(asked)
    assert found.stdout == plain.stdout
    assert b"no kernel of Triton was launched" in found.stderr


@pytest.mark.parametrize("asked", [[sys.executable, "-S", "-c", ""], ["true"]])
def test_what_cannot_be_noted_is_said(asked: list[str]) -> None:
    """A Python without site, and what is no Python, are not said to launch nothing."""
    found = trace_program(asked)
    assert "Nothing could be noted" in str(found)
    assert not found.kernels


def test_the_programs_own_sitecustomize_is_run(tmp_path: Path) -> None:
    """It takes the place of ours: its code has run, and the module is its file."""
    own = tmp_path / "sitecustomize.py"
    own.write_text("print('own', __name__, __file__)", encoding="utf-8")
    code = "import sitecustomize; print(sitecustomize.__file__, sitecustomize.__spec__.origin)"
    found = run([sys.executable, "-c", code], PYTHONPATH=str(tmp_path))
    # The tool's own Python runs it as well, first.
    assert found.stdout.decode().splitlines()[-2:] == [f"own sitecustomize {own}", f"{own} {own}"]


@pytest.mark.parametrize("text", ["from . import part\nprint(__package__, __path__)", None])
def test_a_sitecustomize_may_be_a_package(tmp_path: Path, text: str | None) -> None:
    """It imports what is in it, and is in sys.modules as it is without the tool."""
    package = tmp_path / "sitecustomize"
    package.mkdir()
    (package / "part.py").write_text("print('part')", encoding="utf-8")
    if text is not None:
        (package / "__init__.py").write_text(text, encoding="utf-8")
    code = "import sitecustomize as s; print(vars(s).get('__file__'), s.__spec__.name, *s.__path__)"
    asked = [sys.executable, "-c", code]
    own = os.environ | {"PYTHONPATH": str(tmp_path)}
    plain = subprocess.run(asked, capture_output=True, check=True, env=own)
    # The tool's own Python runs it as well, first.
    found = run(asked, PYTHONPATH=str(tmp_path))
    assert found.stdout.endswith(plain.stdout)
    assert found.stdout.count(b"part\n") == (0 if text is None else 2)


@pytest.mark.slow
def test_configurations_and_grids_are_told_apart() -> None:
    """A row for each configuration, and of the grids the most frequent first."""
    found = traced("some")
    first, second = found.kernels
    assert grids(first) == {(528,): 5, (4,): 2}
    assert (first.options["num_warps"], first.constexprs) == (4, {"BLOCK": "256"})
    assert grids(second) == {(1,): 1}
    assert (second.options["num_warps"], second.constexprs) == (8, {"BLOCK": "512"})
    assert first.calculation is not None
    assert first.calculation.gpu == find_gpu("h100")
    plan = first.plan((528,))
    assert plan is not None
    assert plan.waves == 528 / (132 * 16)
    assert list(found.table()["launches"]) == [7, 1]
    table = found.table()
    assert list(table["flops"]) == [528 * 256, 512]
    assert list(table["dram_read_bytes"]) == [2 * 4 * 4096, 2 * 4 * 512]
    assert table["executed_instructions"].notna().all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "launches", "processes"),
    [("threads", 20_001, 1), ("forks", 11, 2), ("spawns", 6, 4), ("empty", 0, 0)],
)
def test_launches_are_counted_wherever_they_are_made(
    what: str, launches: int, processes: int
) -> None:
    """In threads, forks, processes of multiprocessing and of subprocess; an empty grid is none."""
    found = traced(what).found
    assert sum(one.launches for one in found.kernels) == launches
    assert len(found.processes) == processes
    assert all(one.ended for one in found.processes)
    assert not any(one.errors for one in found.processes)


@pytest.mark.slow
def test_launches_of_an_autotuner_are_counted_apart() -> None:
    """Each configuration is tried three times, and the first is taken for all four launches."""
    found = {one.constexprs["BLOCK"]: one for one in traced("tuned").kernels}
    assert {name: (one.launches, one.tuning) for name, one in found.items()} == {
        "256": (4, 3),
        "512": (0, 3),
    }


@pytest.mark.slow
def test_times_are_those_of_the_kernel_alone() -> None:
    """A GPU that waits for the host adds nothing to the time: 40 us are 40 us."""
    (kernel,) = traced("timed").kernels
    assert kernel.us == pytest.approx(40)
    assert kernel.samples >= 10
    assert kernel.total_us == pytest.approx(8000)
    assert kernel.calculation is not None
    assert kernel.calculation.gpu == find_gpu("h200")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "samples", "total"),
    [("slows", 8, 50 * 10 + 250 * 12), ("waits_long", 8, 300 * 10), ("few", 3, 10 + 20 + 60)],
)
def test_launches_between_timed_ones_last_as_long_as_these(
    what: str, samples: int, total: float
) -> None:
    """A GPU that slows after most timed launches, few launches, and pairs that tell no time."""
    (kernel,) = traced(what).kernels
    assert kernel.samples >= samples
    assert kernel.total_us == pytest.approx(total, rel=0.02)


@pytest.mark.slow
def test_launches_in_a_graph_count_once() -> None:
    """Those that are captured are counted as such, not timed, and replays are said."""
    found = traced("graph")
    (kernel,) = found.kernels
    assert (kernel.launches, kernel.captured) == (203, 3)
    assert kernel.total_us == pytest.approx(8000)
    assert "3 of them captured in CUDA graphs, which were replayed 10 times" in str(found)


@pytest.mark.slow
def test_a_fault_of_the_tool_does_not_reach_the_program() -> None:
    """All launches are made and the fault is in the page."""
    found = run(command("hurt"))
    assert (found.returncode, found.stdout) == (0, b"out\n10\n")
    assert b"Noting went wrong" in found.stderr
    assert b"RuntimeError: a fault of" in found.stderr


@pytest.mark.slow
def test_a_block_of_a_process_is_traced() -> None:
    """Kernels that were launched before are seen; blocks nest, within a traced program too."""
    done = run(command("in_block"))
    assert b"25 launches of 1 kernel" in done.stderr
    printed = done.stdout.decode().removeprefix("out\n")
    page, outer, inner, launched = printed.rsplit("\n", 4)[:4]
    assert page.startswith("# trace\n\n- 12 launches of 1 kernel")
    assert (outer, inner) == ("[((264,), 7), ((528,), 5)]", "[((264,), 7)]")
    assert launched == "25"


def test_a_trace_is_used_once() -> None:
    """It cannot be asked before its end, or entered again."""
    trace = occupancy_lab.trace()
    assert repr(trace) == "<Trace: not ended>"
    with pytest.raises(InputError, match="has not ended"):
        str(trace)
    with trace:
        pass
    assert trace.kernels == ()
    assert "no kernel of Triton was launched" in str(trace)
    with pytest.raises(InputError, match="used already"), trace:
        pass


@pytest.mark.parametrize("asked", [{"gpu": "h999"}, {"sample": 0}])
def test_bad_input_is_refused_before_anything_runs(asked: dict[str, Any]) -> None:
    """An unknown GPU and a sample of none are InputErrors."""
    with pytest.raises(InputError):
        occupancy_lab.trace(**asked)
    with pytest.raises(InputError):
        trace_program(["false"], **asked)


def test_an_output_that_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    """The program is not run where its table could not be written."""
    ran = tmp_path / "ran"
    found = run(["touch", str(ran)], ["--output", str(tmp_path / "none" / "file")])
    assert found.returncode == 2
    assert b"there is no directory" in found.stderr
    assert not ran.exists()


def test_the_status_is_the_programs_whatever_becomes_of_the_table(tmp_path: Path) -> None:
    """A program that takes away the folder of the table still ends as it ended."""
    folder = tmp_path / "folder"
    folder.mkdir()
    asked = ["sh", "-c", f"rmdir {folder}; exit 5"]
    found = run(asked, ["--output", str(folder / "file")])
    assert found.returncode == 5
    assert b"what it launched cannot be told" in found.stderr


def test_a_command_that_is_not_there_is_refused() -> None:
    """It is one sentence, and exit 2."""
    found = run(["no-such-program"])
    assert found.returncode == 2
    assert found.stderr.decode().count("\n") == 1


@pytest.mark.slow
def test_processes_are_apart_in_json(tmp_path: Path) -> None:
    """The file has each process with its launches, and the page their sum."""
    output = tmp_path / "trace.json"
    found = run(command("forks"), ["--json", "--output", str(output), "--gpu", "h200"])
    assert found.stderr == b"err\n"
    told = json.loads(output.read_text("utf-8"))
    (kernel,) = told["kernels"]
    assert kernel["launches"] == 11
    apart = [sum(grid["launches"] for grid in part["grids"]) for part in kernel["parts"]]
    assert sorted(apart) == [4, 7]
    assert kernel["gpu"] == "h200"
    assert "summed over 2 processes" in told["document"]["answer"][0]


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


@pytest.mark.slow
def test_a_dry_run_tells_what_a_program_would_launch(tmp_path: Path) -> None:
    """A file is run as a program with its arguments, for a GPU that is not here."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("{end}", "sys.exit()"), encoding="utf-8")
    asked = ["--dry-run", "--gpu", "h100", "--json"]
    found = run(["python", str(script), "1024000"], asked)
    assert (found.returncode, found.stderr) == (0, b"")
    told = json.loads(found.stdout)
    (kernel,) = told["kernels"]
    assert (kernel["grid"], kernel["launches"], kernel["gpu"]) == ("2000", 3, "h100")
    assert "went no further" not in str(told["document"])


@pytest.mark.slow
def test_a_dry_run_says_which_line_stopped_it(tmp_path: Path) -> None:
    """What comes after an error is not there, and that is said."""
    script = tmp_path / "train.py"
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
WHEREVER = {
    "threads": """
import threading, time
from concurrent.futures import ThreadPoolExecutor

thread = threading.Thread(target=launch, args=(1,))
thread.start()
threading.Thread(target=lambda: (time.sleep(0.3), launch(2))).start()
ThreadPoolExecutor(1).submit(launch, 3)
""",
    "forks": """
import os

launch(1)
if os.fork() == 0:
    launch(2)
    sys.exit()
if os.fork() == 0:
    launch(3)
    os._exit(0)
""",
    "fork": """
import multiprocessing

context = multiprocessing.get_context("fork")
context.Process(target=launch, args=(1,)).start()
with context.Pool(2) as pool:  # which kills its processes
    pool.map(launch, [2, 3])
""",
    "spawn": """
import multiprocessing

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    context.Process(target=launch, args=(1,)).start()
    with context.Pool(2) as pool:
        pool.map(launch, [2, 3])
""",
    "forkserver": """
import multiprocessing

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    with context.Pool(2) as pool:
        pool.map(launch, [1, 2, 3])
""",
    "atexit": """
import atexit

atexit.register(launch, 2)
atexit.register(launch, blocks=1)
never = atexit.register(lambda: launch(9))
atexit.unregister(never)
launch(3)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("where", WHEREVER)
def test_a_dry_run_has_launches_wherever_they_are_made(tmp_path: Path, where: str) -> None:
    """In threads, forks, processes of multiprocessing and at the program's end."""
    script = tmp_path / "train.py"
    script.write_text(KERNEL + WHEREVER[where], encoding="utf-8")
    found = dry_trace(["python", str(script)], gpu="h100")
    assert {grid: one for kernel in found.kernels for grid, one in grids(kernel).items()} == {
        (1,): 1,
        (2,): 1,
        (3,): 1,
    }
    assert all(one.calculation is not None for one in found.kernels)
    assert "Launches may be missing" not in str(found)
    assert found.outcome is not None
    assert found.outcome.status == 0


@pytest.mark.slow
def test_a_dry_run_says_what_ended_early_or_not_at_all(tmp_path: Path) -> None:
    """A thread that fails, a process that goes on and another Python may lack launches."""
    script = tmp_path / "train.py"
    text = """
import os, subprocess, threading, time

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
    assert "was started as a program of its own, which is not run dry" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "end", "status", "said"),
    [
        ("launch(1)", "sys.exit(3)", 3, "ends the script with status 3"),
        ("", "sys.exit('no')", 1, "ends the script with status no"),
        ("launch(1)", "torch.zeros(1, device='cuda').numpy()", 1, "can't convert cuda:0"),
        ("", "raise KeyError('own')", 1, "KeyError: 'own'"),
    ],
)
def test_the_status_of_a_dry_run_is_the_programs(
    tmp_path: Path, before: str, end: str, status: int, said: str
) -> None:
    """What it exits with, and 1 after an error, whether anything was launched before or not."""
    script = tmp_path / "train.py"
    script.write_text(f"{KERNEL}{before}\n{end}\n", encoding="utf-8")
    found = run(["python", str(script)], ["--dry-run", "--gpu", "h100"], COLUMNS="200")
    assert (found.returncode, found.stderr) == (status, b"")
    page = found.stdout.decode()
    assert said in page
    assert ("1 launch of 1 kernel" if before else "no kernel of Triton") in page


@pytest.mark.slow
def test_an_interrupted_dry_run_tells_what_there_is(tmp_path: Path) -> None:
    """Ctrl-C stops the program where it is: its launches are listed, and the status is 130."""
    script, begun = tmp_path / "train.py", tmp_path / "begun"
    ending = (
        f"launch(1)\nimport time, pathlib\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(600)\n"
    )
    script.write_text(KERNEL + ending, encoding="utf-8")
    command = [sys.executable, "-m", "occupancy_lab", "trace", "--dry-run", "--gpu", "h100"]
    words = [*command, "--json", "--", "python", str(script)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 120
        while not begun.exists() and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        told = json.loads(process.communicate(timeout=60)[0])
        assert process.returncode == 130
    assert [one["kernel"] for one in told["kernels"]] == ["add"]
    assert "it was interrupted" in str(told["document"])


@pytest.mark.slow
def test_a_dry_run_has_a_time_limit(tmp_path: Path) -> None:
    """A program that takes longer is stopped where it is: its launches until then are listed."""
    script = tmp_path / "train.py"
    script.write_text(f"{KERNEL}launch(1)\nwhile True:\n    pass\n", encoding="utf-8")
    found = run(["python", str(script)], ["--dry-run", "--gpu", "h100", "--timeout", "5"])
    assert found.returncode == 1
    page = b" ".join(found.stdout.split())
    assert b"1 launch of 1 kernel" in page
    assert b"it takes longer than 5 s" in page


MISSING = """
@torch.library.custom_op("dry::host", mutates_args=(), device_types="cpu")
def host(x: torch.Tensor) -> torch.Tensor:
    return x + 1


host.register_fake(torch.empty_like)
x = torch.zeros(1 << 20, device="cuda")
host(x).sum().item()
launch(1)
"""


@pytest.mark.slow
def test_a_dry_run_says_what_is_missing_and_what_it_assumed(tmp_path: Path) -> None:
    """An operation without a kernel for a GPU is named and the status is 1; so are assumptions."""
    script = tmp_path / "train.py"
    script.write_text(KERNEL + MISSING, encoding="utf-8")
    words = ["--dry-run", "--gpu", "h100", "--json", "--assume", "float=0.5"]
    found = run(["python", str(script)], words)
    told = json.loads(found.stdout)
    assert (found.returncode, told["missing"]) == (1, ["dry::host"])
    line = KERNEL.count("\n") + MISSING.partition(".item()")[0].count("\n") + 1
    assumed = {"place": f"{script}:{line}", "use": "a value", "value": "0.5"}
    assert told["assumed"] == [assumed]
    page = str(told["document"])
    assert "Launches are missing: the operation dry::host" in page
    assert f"Assumed: 0.5 for a value at {script}:{line}." in page


@pytest.mark.slow
def test_a_dry_run_of_which_nothing_compiles_fails(tmp_path: Path) -> None:
    """The table has the reason, and the status is 1; one that compiles is enough for 0."""
    script = tmp_path / "train.py"
    broken = KERNEL.replace("    where =", "    tl.static_assert(BLOCK < 512)\n    where =")
    script.write_text(f"{broken}launch(1)\n", encoding="utf-8")
    found = dry_trace(["python", str(script)], gpu="h100")
    assert found.outcome is not None
    assert found.outcome.status == 1
    assert "cannot compile add" in str(found)
    wide = "add[(1,)](torch.zeros(1, device='cuda'), 1, BLOCK=256)\n"
    script.write_text(f"{broken}launch(1)\n{wide}", encoding="utf-8")
    found = dry_trace(["python", str(script)], gpu="h100")
    assert found.outcome is not None
    assert found.outcome.status == 0


TUNED = """
@triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 1024)], key=[])
@triton.jit
def multiply(x, BLOCK: tl.constexpr):
    rows, cols = tl.arange(0, BLOCK)[:, None], tl.arange(0, 128)[None, :]
    a, b = tl.load(x + rows * 128 + cols), tl.load(x + cols.trans() * 128 + cols)
    tl.store(x + rows * 128 + cols, tl.dot(a, b))


multiply[(8,)](torch.zeros(2**20, device="cuda", dtype=torch.float16))
"""


@pytest.mark.slow
def test_a_configuration_that_does_not_fit_costs_no_other(tmp_path: Path) -> None:
    """It is a row without waves that says why, and the page shows one that fits."""
    script = tmp_path / "train.py"
    script.write_text(KERNEL + TUNED, encoding="utf-8")
    found = dry_trace(["python", str(script)], gpu="h100")
    rows = {one.constexprs["BLOCK"]: one.row() for one in found.kernels}
    assert rows["64"]["waves"] == 8 / 528
    assert rows["1024"]["waves"] is None
    assert "shared memory" in rows["1024"]["reason"]
    page = found.to_markdown()
    assert page.count("1?") == 1
    assert "BLOCK 64" in page
    assert "BLOCK 1024" not in page


ALIKE = """
for n in (1024, 1000):
    for dtype in (torch.half, torch.float):
        add[(4,)](torch.zeros(1024, device="cuda", dtype=dtype), n, BLOCK=256)
"""


@pytest.mark.slow
def test_rows_of_one_configuration_say_what_differs(tmp_path: Path) -> None:
    """Rows of a kernel that differ in arguments alone have their dtypes and divisibility."""
    script = tmp_path / "train.py"
    script.write_text(KERNEL + ALIKE, encoding="utf-8")
    found = dry_trace(["python", str(script)], gpu="h100")
    page = found.to_markdown()
    dtypes = {one.arguments["x"] for one in found.kernels}
    assert dtypes == {"float16", "float32"}
    assert all(f"BLOCK 256; x {dtype}" in page for dtype in dtypes)
    assert "| regs |" in page.replace("  ", "").replace("|   ", "| ")


@pytest.mark.slow
def test_a_dry_run_is_of_the_programs_own_python(tmp_path: Path) -> None:
    """The interpreter that is named runs the program, with the modules that it has alone."""
    own = tmp_path / ".venv"
    venv.create(own, symlinks=True)
    (packages,) = own.glob("lib/*/site-packages")
    paths = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "paths.pth").write_text("\n".join(paths), encoding="utf-8")
    (packages / "own_module.py").touch()
    script = tmp_path / "train.py"
    script.write_text(f"{KERNEL}import own_module\nprint(sys.prefix)\nlaunch(1)", encoding="utf-8")
    found = run([f"{own}/bin/python", "-u", str(script)], ["--dry-run", "--gpu", "h100"])
    assert (found.returncode, found.stderr.decode()) == (0, f"{own}\n")
    assert b"1 launch of 1 kernel" in found.stdout


@pytest.mark.parametrize("name", ["python", "python3.11"])
def test_a_python_without_triton_is_refused_with_what_would_do(tmp_path: Path, name: str) -> None:
    """One that is named by its path says what it lacks; none is found at another path."""
    (tmp_path / "train.py").touch()
    venv.create(tmp_path / "bare", symlinks=True)
    bare = f"{tmp_path}/bare/bin/python"
    with pytest.raises(InputError, match=r"without a Triton .* such as /"):
        dry_trace([bare, str(tmp_path / "train.py")], gpu="h100")
    with pytest.raises(InputError, match=r"there is no Python .* such as /"):
        dry_trace([f"{tmp_path}/none/{name}", str(tmp_path / "train.py")], gpu="h100")


def test_a_dry_run_takes_a_file() -> None:
    """Other commands are refused."""
    with pytest.raises(InputError, match=r"names no FILE\.py"):
        dry_trace(["python", "-c", "1"], gpu="h100")


class Kernel:
    """A kernel that inductor launches by itself."""

    name, hash, shared, n_regs, n_spills = "triton_poi", "abc", 0, 32, 0
    function, num_warps, arg_tys = 2, 4, "Oi"

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def run(self, *args: object) -> None:
        """Launch it."""
        self.calls.append(args)


@pytest.mark.slow
def test_launchers_of_inductor_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that inductor generates counts, its faster copy too, and both are put back."""
    import torch
    from torch._inductor.runtime import triton_heuristics

    config, kernel = triton_heuristics.Config({"XBLOCK": 256}, num_warps=4, num_stages=1), Kernel()
    meta = {"grid_type": "Grid1D", "use_fast_triton_launcher": True}
    result = triton_heuristics.CompileResult(kernel, config, {}, meta)
    session = hook.Session(str(tmp_path))
    session.install(sitecustomize.imported())
    launcher = result._gen_launcher_code(
        {"runner": kernel.run},
        ["x", "xnumel"],
        ["grid_0", "grid_1", "grid_2", "stream", "x", "xnumel"],
    )
    launcher._is_static, launcher.config = True, config
    launcher("x", 1000, stream=7)
    hook.enter("tuning")
    launcher("x", 2000, stream=7)
    hook.leave("tuning")
    fast, launches = None, 1
    if hasattr(triton_heuristics.CachingAutotuner, "_build_fast_launcher"):  # since torch 2.13
        made = lambda *_: kernel.run  # noqa: E731 - as the class of C is called
        monkeypatch.setattr(torch._C, "_FastCudaLauncher", made, raising=False)
        tuner: Any = SimpleNamespace(inductor_meta=meta, device_props=SimpleNamespace(type="cuda"))
        fast = triton_heuristics.CachingAutotuner._build_fast_launcher(tuner, launcher)
        fast("x", 1000, stream=7)
        launches = 2
    session.close()
    for one in filter(None, (launcher, fast)):
        one("x", 1000, stream=7)
    assert len(kernel.calls) == 2 * launches + 1
    assert set(kernel.calls) == {(4, 1, 1, 7, "x", 1000), (8, 1, 1, 7, "x", 2000)}
    (counted,) = tmp_path.glob("*/counts.json")
    found = json.loads(counted.read_text("utf-8"))
    assert not found["errors"]
    assert [(one["grid"], one["count"], one["tuning"]) for one in found["kernels"]["0"]] == [
        ([4, 1, 1], launches, 0),
        ([8, 1, 1], 0, 1),
    ]
