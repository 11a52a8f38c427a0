"""The reader of NVIDIA's instructions, against the text of nvdisasm."""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from compiling import sample
from recorded_binaries import BINARIES, ORACLES, of_kind

from occupancy_lab.compiling import compile as compiling
from occupancy_lab.compiling import sass
from occupancy_lab.compiling.cubin import (
    EM_CUDA,
    compute_capability,
    kernel_text,
    own_code,
    read_cubin,
    read_elf,
)
from occupancy_lab.compiling.flow import Issued, Jump
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.values import COUNTERS, Config, Problem

ARCHITECTURES = ("75", "80", "90", "100", "120")
NAMES = {
    "SHFL": "shuffles",
    **dict.fromkeys(
        ("DMMA", "HMMA", "IMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA", "UTCHMMA", "UTCQMMA"),
        "tensor_instructions",
    ),
    "REDUX": "shuffles",
    "CREDUX": "shuffles",
    "BAR": "barrier_waits",
    "LDS": "shared_accesses",
    "STS": "shared_accesses",
    "LDSM": "shared_accesses",
    "STSM": "shared_accesses",
    "LDG": "global_accesses",
    "STG": "global_accesses",
    "LDGSTS": "async_copies",
    "MUFU": "special_functions",
    "LDL": "local_loads",
    "STL": "local_stores",
}
"""The field that counts each of nvdisasm's operations."""
SPILLING = ("softmax_row", 16384, "float32", Config(16384, 2, 1))
KERNELS = {
    "75": [("softmax", 781, "float32", Config(1024, 4, 1))],
    "80": [("softmax", 1024, "bfloat16", Config(1024, 1, 3))],
    "90": [
        ("softmax", 4093, "float16", Config(4096, 4, 2)),
        ("softmax", 16381, "float32", Config(16384, 4, 2)),
        ("softmax_row", 4096, "float16", Config(4096, 16, 1)),
    ],
    "100": [("softmax", 4093, "float16", Config(4096, 4, 2))],
    "120": [("softmax", 1024, "bfloat16", Config(1024, 1, 3))],
}
"""Kernel, columns, dtype and configuration by architecture, beside SPILLING."""


def compiled_kernel(name: str, cols: int, dtype: str, config: Config, arch: str) -> Any:
    """Return one of the package's kernels, compiled for a GPU that is not here."""
    kernel = load_kernel(name)
    launch = kernel.launch(Problem(4096, cols, dtype), config)
    target = find_gpu(f"sm_{arch}").target
    return compiling._compile(kernel.function, launch, target, name, present=False)


def code_of(cubin: bytes, kernel: str) -> memoryview:
    """Return the instructions of *kernel* without subroutines."""
    elf = read_elf(cubin, EM_CUDA, "a cubin")
    return own_code(elf, elf.symbols(elf.section(".symtab")), kernel_text(elf, kernel))


def issued_of(cubin: bytes, kernel: str) -> Issued:
    """Return the instructions that a warp issues of *kernel*, by COUNTERS."""
    return {name: value for name, value in read_cubin(cubin, kernel).items() if name in COUNTERS}


def moved_bytes(operation: str) -> int:
    """Return the bytes of an LDL or STL by its name: 16 for LDL.128, 4 for STL."""
    parts = operation.split(".")[1:]
    return next((int(part.lstrip("US")) // 8 for part in parts if part[-1].isdecimal()), 4)


def assert_agrees(cubin: bytes, kernel: str, folder: Path) -> Issued:
    """Compare jumps, accesses to local memory and all counts with nvdisasm's text."""
    found = issued_of(cubin, kernel)
    said = sample.nvdisasm_instructions(cubin, kernel, folder)
    kinds = {
        number: NAMES[name]
        for number, instruction in enumerate(said)
        if (name := instruction.operation.split(".")[0]) in NAMES
    }
    local = {
        number: moved_bytes(said[number].operation)
        for number, kind in kinds.items()
        if kind.startswith("local")
    }
    jumps = {
        number: Jump(instruction.target, not instruction.conditional)
        for number, instruction in enumerate(said)
        if instruction.operation.startswith("EXIT")
        or (instruction.operation.startswith(("BRA", "CALL")) and instruction.target is not None)
    }
    code = code_of(cubin, kernel)
    assert len(code) == 16 * len(said)
    arch = compute_capability(read_elf(cubin, EM_CUDA, "a cubin"))
    read_jumps, read_local, read_kinds = sass.decode(code, arch)
    assert (read_jumps, read_local) == (jumps, local)
    assert read_kinds == kinds
    assert sass.count_kinds(code, arch) == Counter(kinds.values())
    stalls = sass.stalls(code)
    counts = sample.issued_by_definition(sample.successors(said), local, kinds, stalls)
    assert_waits(said, stalls)
    assert found == found | dict.fromkeys(NAMES.values(), 0) | counts
    return found


LATENCY = 4
"""Cycles until a result of the FP32 pipe can be read, on every architecture from sm_70 on (Jia et
al. 2018, 4.1)."""


def assert_waits(said: Sequence[Any], stalls: Sequence[int]) -> None:
    """Assert that a warp waits where an instruction reads the previous one's result."""
    assert len(stalls) == len(said)
    dependent = 0
    for number, (one, other) in enumerate(itertools.pairwise(said)):
        written, *_ = one.operands.split(",")
        if one.operation.split(".")[0] in {"FADD", "FMUL", "FFMA"} and re.fullmatch(
            r"R\d+", written
        ):
            _, _, read = other.operands.partition(",")
            if re.search(rf"\b{written}\b", read):
                assert stalls[number] >= LATENCY
                dependent += 1
    assert dependent or not any(one.operation.startswith("FADD") for one in said)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_softmax_agrees_with_nvdisasm(arch: str, tmp_path: Path) -> None:
    """Jumps, targets and counts equal those in nvdisasm's text, with spills."""
    spilling = 0
    for name, cols, dtype, config in (SPILLING, *KERNELS[arch]):
        compiled = compiled_kernel(name, cols, dtype, config, arch)
        issued = assert_agrees(compiled.asm["cubin"], compiled.metadata.name, tmp_path)
        assert (issued["loop_instructions"] is None) == (name == "softmax_row")
        spilling += bool(issued["local_traffic"])
    assert spilling


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_loops_in_loops_and_subroutines_agree_with_nvdisasm(arch: str, tmp_path: Path) -> None:
    """The outer loop counts; a division's slow path does not."""
    cubin = sample.compile_sample(arch, 256, 2, kernel=sample.dividing).asm["cubin"]
    issued = assert_agrees(cubin, "dividing", tmp_path)
    assert (
        len(code_of(cubin, "dividing")) < kernel_text(read_elf(cubin, EM_CUDA, ""), "dividing").size
    )
    assert issued["loop_instructions"] > 5 * issued["instructions"]


@pytest.mark.parametrize("name", of_kind("cubin"))
def test_recorded_kernels_agree_with_nvdisasm(name: str, tmp_path: Path) -> None:
    """Kernels of another Triton agree, also two in one cubin."""
    for kernel in ORACLES[name]:
        assert_agrees(BINARIES[name], kernel, tmp_path)


@pytest.mark.parametrize("arch", ["80", "90", "100", "120"])
def test_matrix_products_agree_with_nvdisasm(arch: str, tmp_path: Path) -> None:
    """LDSM and STSM, which move matrices, count as shared accesses."""
    compiled = sample.compile_sample(arch, 64, 4, 2, kernel=sample.multiplying, dtype="fp16")
    cubin = compiled.asm["cubin"]
    said = sample.nvdisasm_instructions(cubin, "multiplying", tmp_path)
    assert any(one.operation.startswith("LDSM") for one in said)
    issued = assert_agrees(cubin, "multiplying", tmp_path)
    assert issued["shared_accesses"]
    assert issued["tensor_instructions"]


def test_functions_that_are_not_inlined_are_not_counted() -> None:
    """A kernel that calls a function has no counts."""
    cubin = sample.compile_sample("90", 1024, 4, kernel=sample.calling).asm["cubin"]
    assert issued_of(cubin, "calling") == Issued()


def instruction(low: int, high: int = 0x000FEA0003800000) -> bytes:
    """Return an instruction's 16 bytes."""
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


EXIT, NOP = instruction(0x794D), instruction(0x7918)


@pytest.mark.parametrize(
    ("code", "arch"),
    [
        pytest.param(NOP + EXIT, 69, id="older"),
        pytest.param(NOP + EXIT, 130, id="newer"),
        pytest.param(b"", 90, id="nothing"),
        pytest.param(NOP + EXIT[:8], 90, id="half an instruction"),
        pytest.param(NOP + NOP, 90, id="no end"),
        pytest.param(instruction(0x7949) + EXIT, 90, id="BRX"),
        pytest.param(instruction(0x0000001000007947) + EXIT, 90, id="out of the code"),
        pytest.param(instruction(0x0000000000047947) + EXIT, 90, id="into an instruction"),
    ],
)
def test_what_is_not_known(code: bytes, arch: int) -> None:
    """An unknown architecture or layout has no counts and raises no error."""
    assert sass.read_sass(memoryview(code), arch) == Issued()
