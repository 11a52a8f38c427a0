"""The fast reader of AMD assembly agrees with the reader of every line."""

from collections import Counter

import pytest
from recorded_binaries import of_kind, recorded

from occupancy_lab.compiling.amdgcn import LINE, amdgcn_scratch_width, kernel_body, kind_of
from occupancy_lab.scanning.cache import amd_mix

TEXTS = {name: recorded(name) for name in of_kind("amdgcn")}
KERNELS = [
    (name, line.split()[-1])
    for name, text in TEXTS.items()
    for line in text.splitlines()
    if line.startswith("\t.amdhsa_kernel ")
]


@pytest.mark.parametrize(("name", "kernel"), KERNELS)
def test_instructions_are_those_of_the_whole_reader(name: str, kernel: str) -> None:
    """Each kind of instruction is counted as often as in the kernel's lines."""
    body = kernel_body(TEXTS[name], kernel)
    counted: Counter[str] = Counter()
    for label, operation, operands in LINE.findall(body):
        if label:
            continue
        counted["instructions"] += 1
        instruction = f"{operation} {operands}"
        if moved := amdgcn_scratch_width(instruction):
            counted["local_loads" if "load" in operation else "local_stores"] += 1
            counted["local_bytes"] += moved
        elif kind := kind_of(instruction):
            counted[kind] += 1
    found = amd_mix(body)
    assert found.instructions == counted["instructions"]
    assert (found.local_loads, found.local_stores, found.local_bytes) == (
        counted["local_loads"],
        counted["local_stores"],
        counted["local_bytes"],
    )
    assert found.tensor_instructions == counted["tensor_instructions"]
    assert found.copies == counted["async_copies"]
    assert found.global_accesses == counted["global_accesses"] + counted["async_copies"]


def test_the_recordings_have_spills_to_count() -> None:
    """Some recorded kernels have scratch loads and stores, or the test above would prove little."""
    mixes = [amd_mix(kernel_body(TEXTS[name], kernel)) for name, kernel in KERNELS]
    assert any(one.local_loads and one.local_stores for one in mixes)
