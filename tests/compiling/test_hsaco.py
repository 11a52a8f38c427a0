"""The reader of hsacos, against what LLVM wrote into the same kernel's assembly, and damage."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.compiling.elf import read_elf
from occupancy_lab.compiling.hsaco import HsacoResources, encoding_granule, gfx_name, read_hsaco
from occupancy_lab.errors import BinaryError

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = Path(__file__).with_name("recorded")
RECORDED = {
    file.stem: gzip.decompress(file.read_bytes()) for file in sorted(FOLDER.glob("*.hsaco.gz"))
}
ORACLES = json.loads((FOLDER / "oracles.json").read_text(encoding="utf-8"))
METADATA = {
    "vgprs": ".vgpr_count",
    "agprs": ".agpr_count",
    "sgprs": ".sgpr_count",
    "vgpr_spills": ".vgpr_spill_count",
    "sgpr_spills": ".sgpr_spill_count",
    "scratch_bytes": ".private_segment_fixed_size",
    "dynamic_stack": ".uses_dynamic_stack",
    "static_lds": ".group_segment_fixed_size",
    "wavefront_size": ".wavefront_size",
    "max_threads": ".max_flat_workgroup_size",
    "wgp_mode": ".workgroup_processor_mode",
}
GRANULES = {"gfx908": 4, "gfx1250": 16}

GRID = [
    (256, 1, 1, {}),
    (1024, 8, 2, {}),
    (1024, 8, 2, {"waves_per_eu": 2}),
    (4096, 4, 4, {}),
    (16384, 4, 2, {}),
]
"""block_size, num_warps, num_stages and options; the last one spills on RDNA."""
ARCHS = ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201", "gfx1250"]


def assert_agrees(found: HsacoResources, said: dict[str, int]) -> None:
    """Compare with LLVM's metadata, comments and directives."""
    for field, key in METADATA.items():
        expected = said.get(key, False if (field, found.arch) == ("wgp_mode", "gfx1250") else None)
        assert getattr(found, field) == expected, field
    assert found.scratch_bytes == said["ScratchSize"]
    granule = GRANULES.get(found.arch, 8)
    assert found.allocated_vgprs == -(-said["NumVGPRsForWavesPerEU"] // granule) * granule
    assert found.allocated_vgprs == (said["VGPRBlocks"] + 1) * granule


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_kernels_agree_with_llvm(name: str) -> None:
    """Every number is the one that LLVM wrote into the assembly of the same kernel."""
    for kernel, said in ORACLES[name].items():
        found = read_hsaco(RECORDED[name], kernel)
        assert_agrees(found, said)
        assert name.startswith((found.arch, "two_kernels"))


def test_padding_shows_only_in_the_allocation() -> None:
    """With waves_per_eu=2 a kernel of as many VGPRs is allocated 176 of them."""
    plain = read_hsaco(RECORDED["gfx942.hsaco"], "row_softmax")
    padded = read_hsaco(RECORDED["gfx942_padded.hsaco"], "row_softmax")
    assert padded.vgprs == plain.vgprs == 20
    assert (plain.allocated_vgprs, padded.allocated_vgprs) == (24, 176)


def test_recordings_cover_spills_and_accumulation_registers() -> None:
    """The recordings hold what a reader can get wrong: spills, and VGPRs beyond 256."""
    spilling = read_hsaco(RECORDED["gfx1030_spilling.hsaco"], "row_softmax")
    assert spilling.vgpr_spills > 0
    assert spilling.scratch_bytes > 0
    unified = read_hsaco(RECORDED["gfx942_agprs.hsaco"], "row_softmax")
    assert unified.agprs > 0
    assert unified.vgprs > 256


def test_each_kernel_of_an_hsaco_is_told_from_the_others() -> None:
    """Two kernels of one hsaco each get their own LDS, scratch and kind of stack."""
    binary = RECORDED["two_kernels.hsaco"]
    sharing, stacking = (read_hsaco(binary, name) for name in ("sharing", "stacking"))
    assert (sharing.static_lds, sharing.scratch_bytes, sharing.dynamic_stack) == (112, 0, False)
    assert (stacking.static_lds, stacking.scratch_bytes, stacking.dynamic_stack) == (0, 16, True)


def test_another_kernel_is_refused_with_the_names_that_are_there() -> None:
    """A name that the hsaco does not hold is refused, and the message lists those it holds."""
    with pytest.raises(BinaryError, match="no kernel 'softmax', only sharing, stacking"):
        read_hsaco(RECORDED["two_kernels.hsaco"], "softmax")


def test_a_cubin_is_refused() -> None:
    """An NVIDIA binary is not taken for an hsaco."""
    binary = gzip.decompress((FOLDER / "sm_90.cubin.gz").read_bytes())
    with pytest.raises(BinaryError, match="not an hsaco"):
        read_hsaco(binary, "row_softmax")


def test_a_negative_count_is_refused() -> None:
    """Metadata with -1 VGPRs is damage, not a number."""
    key = b".vgpr_count"
    binary = RECORDED["gfx942.hsaco"].replace(key + b"\x14", key + b"\xff")
    with pytest.raises(BinaryError, match=r"'\.vgpr_count' is -1"):
        read_hsaco(binary, "row_softmax")


def test_a_descriptor_outside_its_section_is_refused() -> None:
    """A kernel descriptor's address before its section is damage."""
    binary = RECORDED["gfx942.hsaco"]
    elf = read_elf(binary, 224, "an hsaco")
    descriptor = next(s for s in elf.all_symbols() if s.name == "row_softmax.kd")
    place = struct.pack("<HQQ", descriptor.section, descriptor.value, descriptor.size)
    assert binary.count(place) == 2
    moved = binary.replace(place, struct.pack("<HQQ", descriptor.section, 0, descriptor.size))
    with pytest.raises(BinaryError, match="cut off or damaged"):
        read_hsaco(moved, "row_softmax")


@pytest.mark.parametrize(
    ("target", "arch"),
    [
        ("amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", "gfx90a"),
        ("amdgcn-amd-amdhsa-unknown-gfx942", "gfx942"),
        ("amdgpu9.42-amd-amdhsa-unknown-gfx942", "gfx942"),
        ("amdgcn-amd-amdhsa--gfx9-4-generic", "gfx9-4-generic"),
    ],
)
def test_the_architecture_is_found_in_every_form_of_target(target: str, arch: str) -> None:
    """Features and the parts before the architecture are not taken for it."""
    assert gfx_name({"amdhsa.target": target}) == arch


@pytest.mark.parametrize(
    ("arch", "wave", "granule"),
    [
        ("gfx900", 64, 4),
        ("gfx908", 64, 4),
        ("gfx90a", 64, 8),
        ("gfx942", 64, 8),
        ("gfx950", 64, 8),
        ("gfx9-4-generic", 64, 8),
        ("gfx9-generic", 64, 4),
        ("gfx1030", 32, 8),
        ("gfx1100", 64, 4),
        ("gfx12-generic", 32, 8),
        ("gfx1250", 32, 16),
        ("gfx1310", 32, None),
    ],
)
def test_encoding_granules_are_those_of_llvms_guide(
    arch: str, wave: int, granule: int | None
) -> None:
    """The step of the VGPR field is the guide's, and not known for a newer generation."""
    assert encoding_granule(arch, wave) == granule


@given(name=st.sampled_from(sorted(RECORDED)), place=st.floats(0, 1, exclude_max=True))
def test_every_cut_is_noticed(name: str, place: float) -> None:
    """An hsaco that ends early is refused, wherever it ends."""
    with pytest.raises(BinaryError):
        read_hsaco(RECORDED[name][: int(place * len(RECORDED[name]))], next(iter(ORACLES[name])))


@given(
    name=st.sampled_from(sorted(RECORDED)),
    changes=st.lists(
        st.tuples(st.integers(0, 4095) | st.integers(0, 2**17), st.integers(0, 255)), max_size=9
    ),
)
def test_flipped_bytes_give_numbers_or_the_one_error(
    name: str, changes: list[tuple[int, int]]
) -> None:
    """A damaged hsaco, mostly in its headers and metadata, gives resources or BinaryError."""
    binary = bytearray(RECORDED[name])
    for place, byte in changes:
        binary[place % len(binary)] = byte
    try:
        assert read_hsaco(bytes(binary), next(iter(ORACLES[name]))).vgprs >= 0
    except BinaryError as error:
        assert str(error).endswith(".")  # noqa: PT017


@pytest.mark.parametrize("arch", ARCHS)
def test_compiled_kernels_agree_with_llvm(sample: ModuleType, arch: str) -> None:
    """On a grid of configurations no number differs from LLVM's, padded allocations included."""
    if arch == "gfx1030" and sample.triton.__version__.startswith("3.9."):
        pytest.skip("Triton 3.9 does not compile for gfx10.3")
    padded = 0
    for block_size, num_warps, num_stages, options in GRID:
        compiled = sample.compile_sample(arch, block_size, num_warps, num_stages, **options)
        found = read_hsaco(compiled.asm["hsaco"], "row_softmax")
        assert_agrees(found, sample.llvm_resources(compiled.asm["amdgcn"])["row_softmax"])
        assert found.arch == arch
        assert found.max_threads == found.wavefront_size * num_warps
        padded += found.allocated_vgprs - found.vgprs >= 16
    assert padded >= 1


@pytest.mark.parametrize("arch", ["gfx908", "gfx942", "gfx1100", "gfx1250"])
def test_stacks_that_grow_agree_with_llvm(sample: ModuleType, arch: str) -> None:
    """Static LDS, and the fixed scratch of a kernel whose stack grows, are LLVM's numbers."""
    hsaco, assembly = sample.assemble_llvm(sample.TWO_KERNELS_LLVM, arch)
    for kernel, said in sample.llvm_resources(assembly).items():
        assert_agrees(read_hsaco(hsaco, kernel), said)
