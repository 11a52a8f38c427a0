"""What commands compile with: the store, or a process that can hang, crash and talk nonsense."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from records import compile_resources

from occupancy_lab.asked import ask
from occupancy_lab.compiling import Store
from occupancy_lab.compiling.compiler import Compiler, check_files
from occupancy_lab.compiling.process import CompileProcess, Request
from occupancy_lab.errors import CompileError, InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.kernel import load_kernel
from occupancy_lab.values import Config, Problem
from occupancy_lab.workers.child import from_line, to_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from occupancy_lab.compiling.compiler import Compilation

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
"""A kernel in NVIDIA's assembly, of which LLVM for AMD ends its process."""


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Compiler]:
    """Return a compiler with a store of its own, whose processes are gone after the test."""
    compiler = Compiler(tmp_path / "store", timeout=60)
    yield compiler
    compiler.close()


def named(file: str, gpu: str = "sm_90") -> Compilation:
    """Return a launch of the kernel in *file*, to be compiled."""
    return ask(NamedKernel(file, load_kernel(file)), *ASKED[1:3], find_gpu(gpu)).compilation


def write(path: Path, source: str) -> str:
    """Write a kernel file and return its name."""
    path.write_text(source)
    return str(path)


def test_resources_are_those_of_this_process(compiler: Compiler, tmp_path: Path) -> None:
    """A compile elsewhere gives what one here gives, and the store has it."""
    expected = compile_resources(*ASKED, Store(None))
    assert compiler.resources(WANTED) == expected
    assert list((tmp_path / "store").glob("resources/*/*.json"))


def test_what_is_stored_starts_no_process(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's resources, and a file that was imported before, need no process."""
    file = write(tmp_path / "good.py", GOOD)
    compiler.check_file(file)
    first = compiler.resources(WANTED)
    monkeypatch.setattr(subprocess, "Popen", None)
    again = Compiler(tmp_path / "store")
    again.check_file(file)
    again.check_file("softmax")
    assert again.resources(WANTED) == first


def test_a_changed_file_is_imported_again(tmp_path: Path) -> None:
    """A file that the store knows is another one after a change."""
    file = tmp_path / "good.py"
    check_files([write(file, GOOD)], tmp_path / "store")
    with pytest.raises(InputError, match="RuntimeError: changed"):
        check_files([write(file, GOOD + "raise RuntimeError('changed')\n")], tmp_path / "store")


def test_progress_is_told_and_ended(tmp_path: Path) -> None:
    """What takes long is told before it begins, and "" after it."""
    told: list[str] = []
    compiler = Compiler(None, progress=told.append)
    compiler.check_file(write(tmp_path / "good.py", GOOD))
    compiler.resources(WANTED)
    compiler.close()
    assert told == ["importing good.py ...", "", "compiling softmax for sm_90 ...", ""]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("while True: pass", "takes longer than 1.5 s to import"),
        ("import ctypes; ctypes.string_at(0)", "cannot be imported: .* Segmentation fault"),
        ("import os; os._exit(0)", "cannot be imported: .* exit status 0"),
    ],
)
def test_a_file_that_ends_its_process_is_told(tmp_path: Path, source: str, reason: str) -> None:
    """A file that hangs or crashes is refused with its path and why."""
    file = write(tmp_path / "odd.py", source)
    with pytest.raises(InputError, match=f"^{file} {reason}"):
        check_files([file], tmp_path / "store", 1.5 if "while" in source else 60)


def test_a_file_that_raises_is_told(compiler: Compiler, tmp_path: Path) -> None:
    """A file that raises anything at all is refused with its path and what it raised."""
    for source, reason in (
        ("raise GeneratorExit", "GeneratorExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ):
        file = write(tmp_path / "odd.py", source)
        with pytest.raises(InputError, match=f"^{file} cannot be imported: {reason}$"):
            compiler.check_file(file)


def test_a_native_abort_is_told_in_the_compilers_words(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where LLVM ends the process, the error has what LLVM printed, and Triton's cache no file."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    file = write(tmp_path / "bits.py", ASSEMBLY)
    words = "died 3 times: error: couldn't allocate output register for constraint 'f'"
    with pytest.raises(CompileError, match=words):
        compiler.resources(named(file, "gfx942"))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


@pytest.mark.parametrize("answer", ["no JSON", "[]", '{"n_regs": "many"}', "null", "[" * 9999])
def test_an_answer_that_is_none_is_a_failure(tmp_path: Path, answer: str) -> None:
    """An interpreter that answers something else is told with what it said, and is ended."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho ready\nread line\necho '{answer}'\nsleep 600\n")
    python.chmod(0o755)
    process = CompileProcess(str(python))
    failure = process.compile(Request("softmax", WANTED.launch, WANTED.target, None), 60)
    assert "answers what is no answer" in str(failure)
    assert not str(failure).count("[" * 50)
    assert process._child._process is None
    process.close()


def test_the_gpu_at_hand_is_compiled_for_by_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is told that the GPU is here, so that the loaded kernel is checked there."""
    seen: list[Request] = []

    def compile_(_self: CompileProcess, request: Request, _timeout: float | None) -> object:
        seen.append(request)
        return compile_resources(*ASKED, Store(None))

    monkeypatch.setattr(CompileProcess, "compile", compile_)
    Compiler(None, here=[WANTED.target]).resources(WANTED)
    Compiler(None).resources(WANTED)
    assert [request.present for request in seen] == [True, False]
    assert from_line(Request, to_line(seen[0])) == seen[0]


def test_a_printing_file_prints_to_standard_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a file prints, from Python, a descriptor or C, is kept off standard output."""
    prints = "import ctypes, os\nprint('one')\nos.write(1, b'two\\n')\n"
    prints += "ctypes.CDLL(None).puts(b'three')\n"
    assert load_kernel(write(tmp_path / "prints.py", prints + GOOD)).name == "softmax_row"
    sys.stdout.flush()
    assert capfd.readouterr() == ("", "one\ntwo\nthree\n")
