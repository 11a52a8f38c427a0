"""A traced program behaves as without tracing, and its launches are shown at its end."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_trace import TOOL, command, grids, run

import occupancy_lab
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu, present_gpus
from occupancy_lab.tracing import hook, launchers, sitecustomize
from occupancy_lab.tracing.trace import LOCK, PREFIX, Trace, folder_of_records, trace_program


def traced(what: str, **asked: Any) -> Trace:
    """Return the trace of the program doing *what*."""
    return trace_program(command(what), **asked)


def test_streams_and_status_are_the_programs() -> None:
    """Standard output, the beginning of standard error and the status are equal."""
    plain = subprocess.run(command("status"), capture_output=True, check=False)
    found = run(command("status"))
    assert (plain.returncode, found.returncode) == (7, 7)
    assert found.stdout == plain.stdout == b"out\n"
    assert found.stderr.startswith(plain.stderr)
    told = found.stderr[len(plain.stderr) :].decode()
    assert "1 launch of 1 kernel." in told


def test_a_killed_program_ends_us_as_it_ended() -> None:
    """The signal is passed on, and flushed launches are shown as incomplete."""
    found = run(command("killed"), ["--json"])
    assert found.returncode == -signal.SIGKILL
    told = json.loads(found.stderr.partition(b"err\n")[2])
    assert told["status"] == -signal.SIGKILL
    assert [one["ended"] for one in told["processes"]] == [False]
    assert 50 <= told["kernels"][0]["launches"] <= 153
    assert "was killed or had not ended" in str(told["document"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_program_which_decides(number: int) -> None:
    """A program that handles a signal ends in its own way."""
    with subprocess.Popen(
        [*TOOL, "--", *command("waits")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert [process.stdout.readline() for _ in range(2)] == [b"out\n", b"ready\n"]
        process.send_signal(number)
        assert process.stdout.read() == b"heard\n"
        assert b"2 launches" in process.stderr.read()
        assert process.wait(20) == 9


IMPORTED = "import sys; print(sorted(sys.modules), sys.path, sys.flags, sys.argv)"


def test_a_program_without_triton_imports_nothing_more() -> None:
    """Modules and path are unchanged, and the page says nothing launched."""
    asked = [sys.executable, "-c", IMPORTED, ""]
    plain = subprocess.run(asked, capture_output=True, check=True)
    found = run(asked)
    assert found.stdout == plain.stdout
    assert b"No Triton kernel was launched" in found.stderr
    page = b" ".join(found.stderr.split())
    assert (b"--dry-run needs none" in page) is (not present_gpus())


@pytest.mark.parametrize("asked", [[sys.executable, "-S", "-c", ""], ["true"]])
def test_what_cannot_be_noted_is_said(asked: list[str]) -> None:
    """Programs that cannot be noted are not said to launch nothing."""
    found = trace_program(asked)
    assert "Nothing could be noted" in str(found)
    assert not found.kernels


def test_the_programs_own_sitecustomize_is_run(tmp_path: Path) -> None:
    """The program's own sitecustomize runs and is the imported module."""
    own = tmp_path / "sitecustomize.py"
    own.write_text("print('own', __name__, __file__)", encoding="utf-8")
    code = "import sitecustomize; print(sitecustomize.__file__, sitecustomize.__spec__.origin)"
    found = run([sys.executable, "-c", code], PYTHONPATH=str(tmp_path))
    # The tool's own Python runs it as well, first.
    assert found.stdout.decode().splitlines()[-2:] == [f"own sitecustomize {own}", f"{own} {own}"]


@pytest.mark.parametrize("text", ["from . import part\nprint(__package__, __path__)", None])
def test_a_sitecustomize_may_be_a_package(tmp_path: Path, text: str | None) -> None:
    """A sitecustomize package is imported as without the tool."""
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


def test_configurations_and_grids_are_told_apart() -> None:
    """Each configuration has a row, with its grids by frequency."""
    found = traced("some")
    first, second = found.kernels
    assert grids(first) == {(528,): 5, (4,): 2}
    assert (first.options["num_warps"], first.constexprs) == (4, {"BLOCK": "256"})
    assert grids(second) == {(1,): 1}
    assert (second.options["num_warps"], second.constexprs) == (8, {"BLOCK": "512"})
    assert first.calculation.gpu == find_gpu("h100")
    plan = first.plan((528,))
    assert plan.waves == 528 / (132 * 16)
    assert list(found.table()["launches"]) == [7, 1]
    table = found.table()
    assert list(table["flops"]) == [528 * 256, 512]
    assert list(table["dram_read_bytes"]) == [2 * 4 * 4096, 2 * 4 * 512]
    assert table["executed_instructions"].notna().all()


@pytest.mark.parametrize(
    ("what", "launches", "processes"),
    [("threads", 20_001, 1), ("forks", 11, 2), ("spawns", 6, 4), ("empty", 0, 0)],
)
def test_launches_are_counted_wherever_they_are_made(
    what: str, launches: int, processes: int
) -> None:
    """Threads, forks and child processes are counted; empty grids are not."""
    found = traced(what).found
    assert sum(one.launches for one in found.kernels) == launches
    assert len(found.processes) == processes
    assert all(one.ended for one in found.processes)
    assert not any(one.errors for one in found.processes)


def test_launches_of_an_autotuner_are_counted_apart() -> None:
    """Tuning launches and the chosen configuration's launches are separate."""
    found = {one.constexprs["BLOCK"]: one for one in traced("tuned").kernels}
    assert {name: (one.launches, one.tuning) for name, one in found.items()} == {
        "256": (4, 3),
        "512": (0, 3),
    }


def test_times_are_those_of_the_kernel_alone() -> None:
    """Waiting for the host does not count: 40 us are 40 us."""
    (kernel,) = traced("timed").kernels
    assert kernel.us == pytest.approx(40)
    assert kernel.samples >= 10
    assert kernel.total_us == pytest.approx(8000)
    assert kernel.calculation.gpu == find_gpu("h200")
    row = kernel.row()
    assert row["lost_us"] == pytest.approx(200 * (40 - row["speed_of_light_us"]))
    assert row["lost_of"] == "measured"


def test_launches_between_timed_ones_last_as_long_as_these() -> None:
    """Untimed launches count with the times around them."""
    (kernel,) = traced("paced").kernels
    expected = {
        (528,): (8, 50 * 10 + 250 * 12),
        (264,): (8, 300 * 10),
        (132,): (3, 10 + 20 + 60),
    }
    assert {one.grid for one in kernel.grids} == expected.keys()
    for one in kernel.grids:
        samples, total = expected[one.grid]
        assert one.samples >= samples
        assert one.total_us == pytest.approx(total, rel=0.02)


def test_launches_in_a_graph_count_once() -> None:
    """Captured launches are counted once and not timed; replays are reported."""
    found = traced("graph")
    (kernel,) = found.kernels
    assert (kernel.launches, kernel.captured) == (203, 3)
    assert kernel.total_us == pytest.approx(8000)
    assert "3 of them captured in CUDA graphs, which were replayed 10 times" in str(found)


def test_a_fault_of_the_tool_does_not_reach_the_program() -> None:
    """All launches are made, and the page has the fault."""
    found = run(command("hurt"))
    assert (found.returncode, found.stdout) == (0, b"out\n10\n")
    assert b"Noting failed" in found.stderr
    assert b"RuntimeError: a fault of" in found.stderr


def test_a_block_of_a_process_is_traced() -> None:
    """Kernels loaded before are noted, and blocks can be nested."""
    done = run(command("in_block"))
    assert b"25 launches of 1 kernel" in done.stderr
    printed = done.stdout.decode().removeprefix("out\n")
    page, outer, inner, launched = printed.rsplit("\n", 4)[:4]
    assert page.startswith("# trace\n\n- ")
    assert "\n- 12 launches of 1 kernel" in page
    assert (outer, inner) == ("[((264,), 7), ((528,), 5)]", "[((264,), 7)]")
    assert launched == "25"


def test_a_trace_is_used_once() -> None:
    """A trace cannot be read before its end or entered again."""
    trace = occupancy_lab.trace()
    assert repr(trace) == "<Trace: not ended>"
    with pytest.raises(InputError, match="has not ended"):
        str(trace)
    with trace:
        pass
    assert trace.kernels == ()
    assert "No Triton kernel was launched" in str(trace)
    with pytest.raises(InputError, match="used already"), trace:
        pass


@pytest.mark.parametrize("asked", [{"gpu": "h999"}, {"sample": 0}])
def test_bad_input_is_refused_before_anything_runs(asked: dict[str, Any]) -> None:
    """An unknown GPU and a sample below 1 are InputErrors."""
    with pytest.raises(InputError):
        occupancy_lab.trace(**asked)
    with pytest.raises(InputError):
        trace_program(["false"], **asked)


def test_the_status_is_the_programs_whatever_becomes_of_the_table(tmp_path: Path) -> None:
    """A failed table does not change the status."""
    folder = tmp_path / "folder"
    folder.mkdir()
    asked = ["sh", "-c", f"rmdir {folder}; exit 5"]
    found = run(asked, ["--output", str(folder / "file")])
    assert found.returncode == 5
    assert b"its launches cannot be shown" in found.stderr


def test_a_command_that_is_not_there_is_refused() -> None:
    """A missing command is one sentence and exit 2."""
    found = run(["no-such-program"])
    assert found.returncode == 2
    assert found.stderr.decode().count("\n") == 1


def test_processes_are_apart_in_json(tmp_path: Path) -> None:
    """JSON has each process's launches, and the page their sum."""
    output = tmp_path / "trace.json"
    found = run(command("forks"), ["--json", "--output", str(output), "--gpu", "h200"])
    assert found.stderr == b"err\n"
    told = json.loads(output.read_text("utf-8"))
    (kernel,) = told["kernels"]
    assert kernel["launches"] == 11
    apart = [sum(grid["launches"] for grid in part["grids"]) for part in kernel["parts"]]
    assert sorted(apart) == [4, 7]
    assert kernel["gpu"] == "h200"
    assert "summed over 2 processes" in told["document"]["answer"][1]


class Kernel:
    """A kernel that Inductor launches by itself."""

    name, hash, shared, n_regs, n_spills = "triton_poi", "abc", 0, 32, 0
    function, num_warps, arg_tys = 2, 4, "Oi"

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def run(self, *args: object) -> None:
        """Launch it."""
        self.calls.append(args)


def test_launchers_of_inductor_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated launchers and their fast copies count, and are restored."""
    import torch
    from torch._inductor.runtime import triton_heuristics

    config, kernel = triton_heuristics.Config({"XBLOCK": 256}, num_warps=4, num_stages=1), Kernel()
    meta = {"grid_type": "Grid1D", "use_fast_triton_launcher": True}
    result = triton_heuristics.CompileResult(kernel, config, {}, meta)
    session = hook.Session(str(tmp_path))
    session.launchers.install(sitecustomize.imported())
    launcher = result._gen_launcher_code(
        {"runner": kernel.run},
        ["x", "xnumel"],
        ["grid_0", "grid_1", "grid_2", "stream", "x", "xnumel"],
    )
    launcher._is_static, launcher.config = True, config
    launcher("x", 1000, stream=7)
    launchers.enter("tuning")
    launcher("x", 2000, stream=7)
    launchers.leave("tuning")
    fast, launches = None, 1
    if hasattr(triton_heuristics.CachingAutotuner, "_build_fast_launcher"):  # from torch 2.13 on
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


HOLD = """
import os
from occupancy_lab.tracing.trace import folder_of_records

with folder_of_records() as folder:
    (folder / "record").touch()
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a temporary folder that no other test uses."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_a_folder_is_removed_at_its_end(tmp_path: Path) -> None:
    """A trace's folder outlives other traces and is removed after its own."""
    with folder_of_records() as outer:
        with folder_of_records() as inner:
            assert {outer, inner} == set(tmp_path.iterdir())
        assert [outer] == list(tmp_path.iterdir())
        (outer / "record").touch()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_trace_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """The folder of a killed trace is removed by the next trace."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        left = tmp_path / process.stdout.readline().strip()
        with folder_of_records():
            assert (left / "record").exists()
        process.kill()
    assert left.exists()
    with folder_of_records():
        assert not left.exists()


def test_what_is_not_known_to_be_left_stays(tmp_path: Path) -> None:
    """Folders without a lock, links and other files stay."""
    bare, other = (tmp_path / f"{PREFIX}{name}" for name in ("bare", "other"))
    for folder in (bare, other):
        folder.mkdir()
    (other / LOCK).symlink_to(tmp_path)
    linked = tmp_path / "mine"
    linked.mkdir()
    (linked / LOCK).touch()
    (tmp_path / f"{PREFIX}link").symlink_to(linked)
    (tmp_path / f"{PREFIX}file").touch()
    before = set(tmp_path.iterdir())
    with folder_of_records():
        pass
    assert set(tmp_path.iterdir()) == before
    assert (linked / LOCK).exists()
