"""The HIP formula's waves are those that LLVM writes into the assembly of the same kernel.

LLVM's `; Occupancy:` counts the waves of one SIMD, by VGPRs, SGPRs and wave slots; it knows neither
the LDS of a Triton kernel nor how whole programs fit.
"""

import csv
import itertools
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from occupancy_lab.gpus import HipArchitecture, architectures
from occupancy_lab.occupancy import hip
from occupancy_lab.occupancy.rule import scalar_where
from occupancy_lab.values import Config, Resources

RECORDED = Path(__file__).with_name("recorded")
RULES = {rule.resource: rule for rule in hip.RULES}
HIP = [item for item in architectures().values() if isinstance(item, HipArchitecture)]
LLVMS_MAX_WAVES = {"gfx908": 10}
"""LLVM's waves per SIMD where they differ from HIP's runtime, which the table follows."""
FRESH = (
    (1024, Config(1024, 8, 2), 0),
    (1011, Config(1024, 1, 2), 0),
    (1011, Config(1024, 8, 2), 4),
)
"""Columns, configuration and waves_per_eu; the architectures take turns with them."""
RESERVE_COUNTED_FROM = "3.9"
"""The first Triton whose LLVM counts the SGPRs of the trap handler, as the formula does."""


def waves(resource: str, resources: Resources, mp: HipArchitecture) -> int:
    """Return the waves per SIMD in the formula's calculation of the limit of *resource*."""
    work = RULES[resource].work(resources, mp, scalar_where)
    return work["waves_per_simd"]


def steps_of_sgprs(sgprs: int) -> int:
    """Return LLVM's getOccupancyWithNumSGPRs before it counted the trap handler's SGPRs."""
    return next(waves for most, waves in ((80, 10), (88, 9), (100, 8), (999, 7)) if sgprs <= most)


def expected(resources: Resources, mp: HipArchitecture, triton: str) -> int:
    """Return LLVM's expected answer: waves per SIMD by VGPRs, SGPRs and slots."""
    limits = [LLVMS_MAX_WAVES.get(mp.target_name, mp.max_waves_per_simd)]
    limits.append(waves("registers", resources, mp))
    if mp.sgprs_per_simd is not None:
        assert resources.sgprs is not None
        counted = version(triton) >= version(RESERVE_COUNTED_FROM)
        limits.append(waves("sgprs", resources, mp) if counted else steps_of_sgprs(resources.sgprs))
    return min(limits)


def version(text: str) -> tuple[int, ...]:
    """Return the first two numbers of a version for comparison."""
    return tuple(map(int, text.split(".")[:2]))


def check(row: dict[str, Any]) -> None:
    """Compare a recorded or fresh row with the formula."""
    numbers = {key: int(value) for key, value in row.items() if key not in {"arch", "triton"}}
    resources = Resources(
        n_regs=numbers["vgprs"],
        num_warps=numbers["num_warps"],
        shared=0,
        sgprs=numbers["sgprs"],
        agprs=numbers["agprs"],
        allocated_vgprs=numbers["allocated_vgprs"],
    )
    mp = architectures()[row["arch"]]
    assert numbers["llvm_occupancy"] == expected(resources, mp, row["triton"]), row


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, str]]:
    """Return the rows of llvm_occupancy.csv."""
    text = (RECORDED / "llvm_occupancy.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def test_equals_llvm_on_recorded_kernels(recorded: list[dict[str, str]]) -> None:
    """On recorded kernels the formula's waves per SIMD equal LLVM's."""
    for row in recorded:
        check(row)


@pytest.fixture
def compile_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., dict[str, str | int]]:
    """Return the function that made the recording, with an empty cache."""
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return runpy.run_path(str(RECORDED / "remake.py"))["compile_row"]


@pytest.mark.parametrize("mp", HIP, ids=lambda mp: mp.target_name)
def test_equals_llvm_on_fresh_kernels(
    compile_row: Callable[..., dict[str, str | int]], mp: HipArchitecture
) -> None:
    """On newly compiled kernels the formula's waves per SIMD equal LLVM's."""
    cols, config, waves_per_eu = FRESH[HIP.index(mp) % len(FRESH)]
    check(compile_row(mp.target_name, cols, config, waves_per_eu))


SIDES = (0, 3)
"""The last register's number of the least and the most that take the same space, in fours: VGPRs
are allocated by 4, or by a multiple of 4."""


def translated(text: str, arch: str) -> str:
    """Return the assembly that Triton's LLVM makes of *text*."""
    llvm = pytest.importorskip("triton._C.libtriton").llvm
    triton = pytest.importorskip("triton")
    # The arguments that later versions of Triton added are switches, off.
    switches = [True, False] + [False] * (version(triton.__version__) >= (3, 8))
    llvm.init_targets()
    return llvm.translate_to_asm(text, "amdgcn-amd-amdhsa", arch, "", [], *switches)


def assembly(clobbered: list[str], arch: str) -> Iterator[tuple[int, int, int]]:
    """Compile a kernel for each text of registers; return its SGPRs, VGPRs and occupancy."""
    kernels = (
        f'define amdgpu_kernel void @kernel{number}() #0 {{ call void asm sideeffect "",'
        f' "{registers}"() ret void }}'
        for number, registers in enumerate(clobbered)
    )
    text = "\n".join((*kernels, 'attributes #0 = { "amdgpu-flat-work-group-size"="1,256" }'))
    for kernel in translated(text, arch).split(".amdhsa_kernel ")[1:]:
        numbers = dict(re.findall(r"; (Total\w+|NumVgprs|Occupancy): +(\d+)", kernel))
        vgprs = numbers.get("TotalNumVgprs", numbers["NumVgprs"])
        yield int(numbers["TotalNumSgprs"]), int(vgprs), int(numbers["Occupancy"])


@pytest.mark.parametrize("mp", HIP, ids=lambda mp: mp.target_name)
def test_equals_llvm_at_every_number_of_registers(mp: HipArchitecture) -> None:
    """The formula's waves per SIMD equal LLVM's on both sides of every step of registers."""
    triton = pytest.importorskip("triton")
    vgprs = min(mp.max_vgprs, 512) if mp.agpr_file is None else 256
    numbered = [f"~{{v{last}}}" for last in range(vgprs) if last % 4 in SIDES]
    if mp.sgprs_per_simd is not None:
        numbered += [f"~{{s{last}}}" for last in range(102)]
    if mp.agpr_file is not None:
        numbered += [
            f"~{{v{last}}},~{{a{agpr}}}"
            for last, agpr in itertools.product((9, 100, 255), range(0, 256, 5))
        ]
    found = list(assembly(numbered, mp.target_name))
    assert len(found) == len(numbered)
    for sgprs, vgprs, occupancy in found:
        resources = Resources(vgprs, 1, 0, sgprs=sgprs)
        assert occupancy == expected(resources, mp, triton.__version__), (sgprs, vgprs)


@pytest.mark.parametrize("mp", HIP, ids=lambda mp: mp.target_name)
def test_equals_llvm_at_every_share_of_lds(mp: HipArchitecture) -> None:
    """Programs of one wave per SIMD by LDS equal LLVM's waves."""
    waves_of_a_program = mp.simds
    threads = waves_of_a_program * mp.warp_size
    shares = [share for share in (1, 2, 4, 5, 8) if mp.max_shared % (share * mp.shared_unit) == 0]
    kernels = (
        f"@lds{share} = internal addrspace(3) global [{mp.max_shared // share} x i8] undef\n"
        f"define amdgpu_kernel void @kernel{share}() #0 {{"
        f" store volatile i8 0, ptr addrspace(3) @lds{share} ret void }}"
        for share in shares
    )
    attributes = f'attributes #0 = {{ "amdgpu-flat-work-group-size"="{threads},{threads}" }}'
    said = translated("\n".join((*kernels, attributes)), mp.target_name)
    found = [int(waves) for waves in re.findall(r"; Occupancy: +(\d+)", said)]
    resources = [
        Resources(1, waves_of_a_program, mp.max_shared // share, sgprs=None) for share in shares
    ]
    pools = mp.shared_per_multiprocessor // mp.max_shared
    expected_waves = [
        min(
            RULES["shared"].work(usage, mp, scalar_where)["programs"],
            LLVMS_MAX_WAVES.get(mp.target_name, mp.max_waves_per_simd),
        )
        for usage in resources
    ]
    assert found == expected_waves
    assert pools in {1, 2}
