"""The reader of cubins, against cuobjdump and ptxas and against damage."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.compiling import cubin as reader
from occupancy_lab.compiling.cubin import EM_CUDA, compute_capability, read_elf
from occupancy_lab.errors import BinaryError

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = Path(__file__).with_name("recorded")
RECORDED = {
    file.stem: gzip.decompress(file.read_bytes()) for file in sorted(FOLDER.glob("*.cubin.gz"))
}
ORACLES = json.loads((FOLDER / "oracles.json").read_text(encoding="utf-8"))

GRID = [
    (256, 1, 1, {}),
    (1024, 4, 1, {}),
    (1024, 8, 4, {}),
    (4096, 4, 2, {}),
    (4096, 4, 1, {"maxnreg": 32}),
    (16384, 4, 2, {}),
]
"""block_size, num_warps, num_stages and options; the one with few registers spills everywhere."""


def arch_of(binary: bytes) -> int:
    """Return the compute capability that a cubin is for."""
    return compute_capability(read_elf(binary, EM_CUDA, "a cubin"))


def read_cubin(binary: bytes, kernel: str) -> SimpleNamespace:
    """Return what is read of a kernel, each number as an attribute."""
    return SimpleNamespace(**reader.read_cubin(binary, kernel))


def assert_agrees(found: SimpleNamespace, said: dict[str, int], binary: bytes) -> None:
    """Compare with cuobjdump, which counts the driver's reserve where the binary shows it."""
    reserve = 1024 if arch_of(binary) >= 90 else 0
    assert found.n_regs == said["REG"]
    assert found.local_bytes == said["STACK"]
    assert found.static_shared == max(said["SHARED"] - reserve, 0)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_kernels_agree_with_cuobjdump_and_ptxas(name: str) -> None:
    """Registers, stack and shared memory are cuobjdump's, barriers are ptxas's."""
    for kernel, said in ORACLES[name].items():
        found = read_cubin(RECORDED[name], kernel)
        assert_agrees(found, said, RECORDED[name])
        assert found.barriers == said.get("barriers", found.barriers)


@pytest.mark.parametrize("name", [name for name in RECORDED if name.startswith("sm_")])
def test_the_recorded_targets_are_found(name: str) -> None:
    """The compute capability is the one that was compiled for."""
    assert arch_of(RECORDED[name]) == int(name.removesuffix(".cubin").split("_")[1])


def test_recordings_cover_spills_and_both_forms_of_barriers() -> None:
    """The recordings hold what a reader can get wrong: no barrier, a spill, both ELF versions."""
    found = {
        name: read_cubin(RECORDED[name], kernel) for name in RECORDED for kernel in ORACLES[name]
    }
    assert found["sm_90_one_warp.cubin"].barriers == 0
    assert found["sm_90.cubin"].barriers == found["sm_120.cubin"].barriers == 1
    assert found["sm_90_spilling.cubin"].local_bytes > 0


def test_each_kernel_of_a_cubin_is_told_from_the_others() -> None:
    """Two kernels of one cubin each get their own numbers."""
    binary = RECORDED["two_kernels.cubin"]
    sharing, stacking = (read_cubin(binary, name) for name in ("sharing", "stacking"))
    assert (sharing.static_shared, sharing.local_bytes, sharing.barriers) == (112, 0, 3)
    assert (stacking.static_shared, stacking.local_bytes, stacking.barriers) == (0, 256, 0)


def test_another_kernel_is_refused_with_the_names_that_are_there() -> None:
    """A name that the cubin does not hold is refused, and the message lists those it holds."""
    with pytest.raises(BinaryError, match="no kernel 'softmax', only stacking, sharing"):
        read_cubin(RECORDED["two_kernels.cubin"], "softmax")


@given(
    name=st.sampled_from(sorted(RECORDED)),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=9),
)
def test_flipped_bytes_give_numbers_or_the_one_error(
    name: str, changes: list[tuple[float, int]]
) -> None:
    """A damaged cubin gives resources or BinaryError, and nothing else."""
    binary = bytearray(RECORDED[name])
    for place, byte in changes:
        binary[int(place * len(binary))] = byte
    try:
        assert read_cubin(bytes(binary), next(iter(ORACLES[name]))).n_regs >= 0
    except BinaryError as error:
        assert str(error).endswith(".")  # noqa: PT017


@pytest.mark.parametrize("arch", ["75", "80", "86", "90", "100", "120"])
def test_compiled_kernels_agree_with_cuobjdump(
    sample: ModuleType, arch: str, tmp_path: Path
) -> None:
    """On a grid of configurations, spilling ones too, no number differs from cuobjdump's."""
    spilling = 0
    for block_size, num_warps, num_stages, options in GRID:
        compiled = sample.compile_sample(arch, block_size, num_warps, num_stages, **options)
        cubin = compiled.asm["cubin"]
        found = read_cubin(cubin, "row_softmax")
        assert_agrees(found, sample.cuobjdump_resources(cubin, tmp_path)["row_softmax"], cubin)
        assert arch_of(cubin) == int(arch)
        spilling += bool(found.local_bytes)
    assert spilling >= 1


@pytest.mark.parametrize("arch", ["75", "80", "86", "90", "100", "120"])
def test_barriers_and_static_shared_agree_with_ptxas(
    sample: ModuleType, arch: str, tmp_path: Path
) -> None:
    """Barriers are those that ptxas counts, and each of two kernels has cuobjdump's numbers."""
    cubin, barriers = sample.assemble_ptx(sample.TWO_KERNELS_PTX, arch, tmp_path)
    said = sample.cuobjdump_resources(cubin, tmp_path)
    found = {kernel: read_cubin(cubin, kernel) for kernel in said}
    for kernel, resources in found.items():
        assert_agrees(resources, said[kernel], cubin)
    assert found["sharing"].barriers == barriers == 3


def test_a_function_that_is_not_inlined_belongs_to_its_kernel(
    sample: ModuleType, tmp_path: Path
) -> None:
    """The stack of a called function is in the kernel's local memory."""
    compiled = sample.compile_sample("90", 1024, 4, kernel=sample.calling)
    cubin = compiled.asm["cubin"]
    found = read_cubin(cubin, "calling")
    assert_agrees(found, sample.cuobjdump_resources(cubin, tmp_path)["calling"], cubin)
    assert found.local_bytes > 0
