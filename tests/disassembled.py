"""What nvdisasm says of the recorded cubins, an oracle for the reading of instructions."""

import functools
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import triton
from recorded_binaries import of_kind
from recorded_work import recorded_launches

from occupancy_lab.compiling.cubin import EM_CUDA, compute_capability, read_elf
from occupancy_lab.work.operations import PREDICATES, UNIFORM, UNIFORM_PREDICATES

LARGEST = 150_000
"""Bytes of a cubin that is disassembled."""
INSTRUCTION = re.compile(
    r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s+/\* 0x([0-9a-f]{16}) \*/\n\s+/\* 0x([0-9a-f]{16}) \*/"
)
REGISTER = re.compile(r"(?<![A-Za-z_.0-9])(U?)(R|P)(\d+|Z|T)\b")
GUARD = re.compile(r"@!?(U?P\w+)\s+")


class Said(NamedTuple):
    """An instruction in the words of nvdisasm."""

    arch: int
    guard: str
    """Its predicate; none of what is always executed."""
    operation: str
    operands: str
    word: int


def nvdisasm(cubin: bytes, *options: str) -> str:
    """Return what nvdisasm prints of a cubin."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), *options, "--print-code", file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@functools.cache
def public_kernels() -> dict[str, bytes]:
    """Return the cubins of a few public kernels by kernel name."""
    cubins = {one.kernel: one.cubin for one in recorded_launches() if one.is_counted}
    return {name: cubin for name, cubin in sorted(cubins.items())[::6] if len(cubin) < LARGEST}


@functools.cache
def instructions() -> tuple[Said, ...]:
    """Return the instructions of the cubins, one of each text on each architecture."""
    found = {}
    for cubin in (*of_kind("cubin").values(), *public_kernels().values()):
        arch = compute_capability(read_elf(cubin, EM_CUDA, "a cubin"))
        for _, text, low, high in INSTRUCTION.findall(
            nvdisasm(cubin, "--print-instruction-encoding")
        ):
            guard = GUARD.match(text)
            operation, _, operands = text[guard.end() if guard else 0 :].partition(" ")
            word = int(high, 16) << 64 | int(low, 16)
            said = Said(arch, guard[1] if guard else "", operation, operands, word)
            found.setdefault((arch, text), said)
    assert len(found) > 4000
    return tuple(found.values())


def numbers(text: str) -> list[int]:
    """Return the numbers of the registers and predicates in a text, in order."""
    found = []
    for uniform, kind, name in REGISTER.findall(text):
        if kind == "R":
            number = 255 if name == "Z" else int(name)
            found.append(number + UNIFORM if uniform else number)
        else:
            first = UNIFORM_PREDICATES if uniform else PREDICATES
            found.append(first + (7 if name == "T" else int(name)))
    return found
