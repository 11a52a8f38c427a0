"""Compiling with the store, or in a process that may hang, crash or answer nonsense."""

import contextlib
import dataclasses
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from records import compile_resources

from occupancy_lab.asked import ask
from occupancy_lab.compiling import Store, compile_launch, resource_key, triton_version
from occupancy_lab.compiling.compiler import Compilation, Compiler
from occupancy_lab.compiling.process import (
    CompileProcess,
    Request,
    check_scheduler,
    compile_here,
    compile_on_cluster,
)
from occupancy_lab.compiling.texts import Compiled
from occupancy_lab.errors import CompileError, InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.kernel import load_kernel
from occupancy_lab.sweeping.run import sweep
from occupancy_lab.values import Config, Failure, Problem
from occupancy_lab.workers.messages import from_line, to_line

SOFTMAX = load_kernel("softmax")
GPU = find_gpu("sm_90")
ASKED = (SOFTMAX, Problem(64, 100), Config(128, 4, 1), GPU.target)
WANTED = ask(NamedKernel("softmax", SOFTMAX), *ASKED[1:3], GPU).compilation

GOOD = """
from occupancy_lab.kernels import softmax_row

KERNEL = softmax_row.KERNEL
"""
ASSEMBLY = """
import dataclasses

import triton
import triton.language as tl

from occupancy_lab.kernel import Pointer
from occupancy_lab.kernels import softmax_row


@triton.jit
def bits_kernel(output_ptr, BLOCK_SIZE: tl.constexpr):
    where = tl.arange(0, BLOCK_SIZE)
    bits = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=f,r", [where], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(output_ptr + where, bits.to(tl.float32, bitcast=True))


KERNEL = dataclasses.replace(
    softmax_row.KERNEL,
    name="bits",
    function=bits_kernel,
    arguments=lambda problem: (Pointer(problem.dtype, 4096),),
    constexprs=lambda problem, config: {"BLOCK_SIZE": config.block_size},
)
"""
"""A kernel with NVIDIA's assembly, at which LLVM for AMD ends its process."""


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Compiler]:
    """Return a compiler with a fresh store, whose processes end with the test."""
    compiler = Compiler(tmp_path / "store", timeout=60)
    yield compiler
    compiler.close()


def named(file: str, gpu: str = "sm_90") -> Compilation:
    """Return a compilation of the kernel in *file*."""
    return ask(NamedKernel(file, load_kernel(file)), *ASKED[1:3], find_gpu(gpu)).compilation


def write(path: Path, source: str) -> str:
    """Write a kernel file and return its name."""
    path.write_text(source)
    return str(path)


def test_what_is_stored_starts_no_process(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored resources and known files need no process."""
    file = write(tmp_path / "good.py", GOOD)
    compiler.check_file(file)
    first = compiler.resources(WANTED)
    monkeypatch.setattr(subprocess, "Popen", None)
    again = Compiler(tmp_path / "store")
    again.check_file(file)
    again.check_file("softmax")
    assert again.resources(WANTED) == first


def test_a_changed_file_is_imported_again(compiler: Compiler, tmp_path: Path) -> None:
    """A known file is imported again after a change."""
    file = tmp_path / "good.py"
    compiler.check_file(write(file, GOOD))
    compiler.close()
    with pytest.raises(InputError, match="RuntimeError: changed"):
        compiler.check_file(write(file, GOOD + "raise RuntimeError('changed')\n"))


def test_a_file_that_raises_is_told(compiler: Compiler, tmp_path: Path) -> None:
    """A file that raises is refused with its path and its error."""
    for source, reason in (
        ("raise GeneratorExit", "GeneratorExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ):
        file = write(tmp_path / "odd.py", source)
        with pytest.raises(InputError, match=f"^{file} cannot be imported: {reason}$"):
            compiler.check_file(file)


def test_a_native_abort_is_told_in_the_compilers_words(compiler: Compiler, tmp_path: Path) -> None:
    """LLVM's message is the error, and no file of Triton is left."""
    file = write(tmp_path / "bits.py", ASSEMBLY)
    words = "died 3 times: error: couldn't allocate output register for constraint 'f'"
    with pytest.raises(CompileError, match=words):
        compiler.resources(named(file, "gfx942"))
    kept = compiler.store.triton_cache
    assert kept is not None
    assert not [*kept.rglob("*.hsaco")]


@pytest.mark.parametrize("answer", ["no JSON", "[]", '{"n_regs": "many"}', "null", "[" * 9999])
def test_an_answer_that_is_none_is_a_failure(tmp_path: Path, answer: str) -> None:
    """An interpreter that answers nonsense is a failure, and is ended."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho ready\nread line\necho '{answer}'\nsleep 600\n")
    python.chmod(0o755)
    process = CompileProcess(str(python))
    failure = process.compile(Request("softmax", WANTED.launch, WANTED.target, None), 60)
    assert "sent an invalid answer" in str(failure)
    assert not str(failure).count("[" * 50)
    assert process._child._process is None
    process.close()


def test_the_gpu_at_hand_is_compiled_for_by_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process knows of a present GPU, and checks the loaded kernel."""
    seen: list[Request] = []

    def compile_(_self: CompileProcess, request: Request, _timeout: float | None) -> object:
        seen.append(request)
        return Compiled(compile_resources(*ASKED, Store(None)), "")

    monkeypatch.setattr(CompileProcess, "compile", compile_)
    Compiler(None, here=[WANTED.target]).resources(WANTED)
    Compiler(None).resources(WANTED)
    assert [request.present for request in seen] == [True, False]
    assert from_line(Request, to_line(seen[0])) == seen[0]


SLOW_KERNEL = """
import time
from occupancy_lab.kernels import softmax

time.sleep({seconds})
KERNEL = softmax.KERNEL
"""


def request(num_warps: int = 4, kernel: str = "softmax") -> Request:
    """Return a small compile."""
    target = find_gpu("sm_90").target
    launch = load_kernel("softmax").launch(Problem(64, 100), Config(128, num_warps, 1))
    return Request(kernel, launch, target, None)


def slow_request(directory: Path, seconds: float) -> Request:
    """Return a compile that takes *seconds* to start."""
    file = directory / "slow.py"
    file.write_text(SLOW_KERNEL.format(seconds=seconds))
    return request(kernel=str(file))


@pytest.fixture
def process() -> Iterator[CompileProcess]:
    """Return a compiling process that ends with the test."""
    process = CompileProcess()
    yield process
    process.close()


def expected(of: Request) -> Compiled:
    """Return the result of compiling in this process."""
    function = load_kernel("softmax").function
    return compile_launch(function, of.launch, of.target, Store(None))


def test_timeout_kills_and_the_next_compile_works(process: CompileProcess, tmp_path: Path) -> None:
    """A slow compile is ended at its limit; the next has a new process."""
    process.compile(request(), None)
    start = time.monotonic()
    failure = process.compile(slow_request(tmp_path, 60), 1)
    assert failure == Failure("timed out", "longer than 1 s", 1)
    assert time.monotonic() - start < 30
    assert process.compile(request(), 60) == expected(request())


def test_killed_process_is_replaced(process: CompileProcess, tmp_path: Path) -> None:
    """A compile is repeated if its process is killed."""
    process.compile(request(), None)
    victim = process._child._process
    threading.Timer(0.5, os.kill, (victim.pid, signal.SIGKILL)).start()
    slow = slow_request(tmp_path, 2)
    assert isinstance(process.compile(slow, 60), Compiled)


def test_compile_here_gives_every_outcome() -> None:
    """Each name has its own outcome, for any number of processes."""
    requests = {str(warps): request(warps) for warps in (1, 2, 4, 8)}
    outcomes = dict(compile_here(requests, jobs=2, timeout=60))
    assert outcomes == {name: expected(one) for name, one in requests.items()}


def test_interrupt_leaves_no_process(tmp_path: Path) -> None:
    """A caller that stops early leaves no compiling process behind."""
    requests = {"fast": request(), "slow": slow_request(tmp_path, 600)}
    outcomes = compile_here(requests, jobs=2, timeout=None)
    next(outcomes)
    start = time.monotonic()
    outcomes.close()  # type: ignore[attr-defined] # it is a generator
    assert time.monotonic() - start < 30
    assert children() == []


def children() -> list[int]:
    """Return the compiling processes that are children of this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process may be gone
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            command = (folder / "cmdline").read_text()
            if int(parent) == os.getpid() and "occupancy_lab.compiling.process" in command:
                found.append(int(folder.name))
    return found


def test_cluster_survives_a_killed_worker(tmp_path: Path) -> None:
    """If one of two workers is killed, every outcome still arrives."""
    distributed = pytest.importorskip("distributed")
    slow = slow_request(tmp_path, 1)
    requests = {str(warps): request(warps) for warps in (1, 2, 4, 8)} | {"slow": slow}
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        pids = [worker.pid for worker in cluster.workers.values()]
        threading.Timer(1.0, os.kill, (pids[0], signal.SIGKILL)).start()
        outcomes = dict(compile_on_cluster(requests, cluster.scheduler_address, 120))
    assert outcomes.keys() == requests.keys()
    assert all(isinstance(outcome, Compiled) for outcome in outcomes.values())
    assert outcomes["4"] == expected(request(4))


@pytest.fixture
def server() -> Iterator[str]:
    """Return the address of a server that does not speak Dask's protocol."""

    class Refusing(socketserver.BaseRequestHandler):
        """A web server that understands no request."""

        def handle(self) -> None:
            """Send an answer, whatever was asked."""
            self.request.recv(100)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refusing) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"tcp://127.0.0.1:{serving.server_address[1]}"
        serving.shutdown()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("foo", "'foo' is no address of a Dask scheduler, such as tcp://host:8786"),
        ("", "is no address of a Dask scheduler"),
        ("http://127.0.0.1:80", "is no address of a Dask scheduler"),
        ("tcp://127.0.0.1", "is no address of a Dask scheduler"),
        ("tcp://127.0.0.1:1", r"answers at tcp://127\.0\.0\.1:1: Connection refused"),
        ("tcp://127.0.0.1:99999", r"no Dask scheduler answers at tcp://127\.0\.0\.1:99999"),
        ("tcp://no.such.host.invalid:1", "no Dask scheduler answers at tcp://no.such"),
        ("tcp://[::1]:1", r"no Dask scheduler answers at tcp://\[::1\]:1"),
    ],
)
def test_address_of_no_use_is_refused_before_any_work(
    address: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid or silent address is refused quickly in one sentence."""
    pytest.importorskip("distributed")
    monkeypatch.setattr("occupancy_lab.sweeping.run.run_tasks", pytest.fail)
    start = time.monotonic()
    with pytest.raises(InputError, match=words):
        sweep(100, gpu="sm_90", scheduler=address)
    assert time.monotonic() - start < 8


def test_server_that_is_no_scheduler_is_said(server: str, capfd: pytest.CaptureFixture) -> None:
    """A server of another kind is refused in one sentence without Dask's logs."""
    pytest.importorskip("distributed")
    with pytest.raises(InputError, match="is not a Dask scheduler"):
        check_scheduler(server)
    assert capfd.readouterr().err == ""


def test_absent_workers_are_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """Standard error says when no worker has joined the scheduler."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("occupancy_lab.compiling.process.PATIENCE", 0.2)
    with distributed.LocalCluster(
        n_workers=0, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        threading.Timer(1.0, cluster.scale, (1,)).start()
        address = cluster.scheduler_address
        outcomes = dict(compile_on_cluster({"one": request()}, address, 120))
    assert outcomes == {"one": expected(request())}
    told = [line for line in capfd.readouterr().err.splitlines() if "occupancy-lab" in line]
    assert told == [f"occupancy-lab: no worker has joined {address}; waiting for one"]


def test_cluster_with_another_kernel_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with another kernel file is a failure, which is not kept."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "store"))
    file = tmp_path / "own.py"
    source = Path(load_kernel("softmax_row").function.fn.__code__.co_filename).read_text()
    file.write_text(source)
    module = sys.modules["occupancy_lab.compiling.compiler"]
    real = module.compile_on_cluster

    def elsewhere(*asked: object) -> object:
        file.write_text(source.replace("tl.max(x, axis=0)", "tl.min(x, axis=0)"))
        return real(*asked)

    monkeypatch.setattr(module, "compile_on_cluster", elsewhere)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        table = sweep(
            *(100,),
            kernel=str(file),
            gpu="sm_90",
            num_warps=4,
            num_stages=1,
            scheduler=cluster.scheduler_address,
        )
    assert list(table["status"]) == ["compile failed"]
    assert table["reason"][0] == f"on {socket.gethostname()} the kernel file differs"
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["imported"]


def keyed(**changes: object) -> Request:
    """Return a small compile whose required key has *changes*."""
    asked = request()
    key = resource_key(load_kernel(asked.kernel).function, asked.launch, asked.target)
    return dataclasses.replace(asked, key=json.dumps(key | changes))


def test_another_key_is_refused(process: CompileProcess) -> None:
    """A process with another key says what differs, and compiles nothing."""
    assert process.compile(keyed(), None) == expected(request())
    for changes, words in (
        ({"triton": "1.0"}, f"Triton is {triton_version()}, not 1.0"),
        ({"environment": {"PTXAS_OPTIONS": "-O1"}}, "the environment differs (PTXAS_OPTIONS)"),
        ({"kernel": "0"}, "the kernel file differs"),
        ({"options": {}, "kernel": "0"}, "the kernel file differs"),
    ):
        reason = f"on {socket.gethostname()} {words}"
        assert process.compile(keyed(**changes), None) == Failure(
            "compile failed", reason, lasting=False
        )
