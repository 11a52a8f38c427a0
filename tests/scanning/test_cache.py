"""The fast reader of AMD assembly agrees with the reader of every line."""

import pytest
from recorded_binaries import of_kind, recorded

from occupancy_lab.compiling.amdgcn import LINE, kernel_body, kind_of, scratch_width
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
    """Accesses to scratch and products of matrices are counted as in the kernel's lines."""
    body = kernel_body(TEXTS[name], kernel)
    spills = products = 0
    for label, operation, operands in LINE.findall(body):
        instruction = f"{operation} {operands}"
        if not label:
            spills += bool(scratch_width(instruction))
            products += kind_of(instruction) == "tensor_instructions"
    assert amd_mix(body) == (spills, products)


def test_the_recordings_have_spills_to_count() -> None:
    """Some recorded kernels access scratch, or the test above would prove little."""
    mixes = [amd_mix(kernel_body(TEXTS[name], kernel)) for name, kernel in KERNELS]
    assert any(spills for spills, _ in mixes)
