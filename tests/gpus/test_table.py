"""The data files: complete, sourced, and true to what the vendors' own numbers imply."""

from __future__ import annotations

import csv
import dataclasses
from importlib import resources

import pytest

from occupancy_lab.gpus import CudaArchitecture, HipArchitecture, architectures, bare_gpus, devices
from occupancy_lab.gpus.table import aliases, citations, pci_ids

DATA = resources.files("occupancy_lab.gpus") / "data"
CUDA = [item for item in architectures().values() if isinstance(item, CudaArchitecture)]
HIP = [item for item in architectures().values() if isinstance(item, HipArchitecture)]
NUMBER_FILES = ["architectures.csv", "device_numbers.csv"]


def read(file: str) -> list[dict[str, str]]:
    """Return the rows of a data file."""
    return list(csv.DictReader((DATA / file).read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("file", NUMBER_FILES)
def test_each_number_has_a_source_and_a_verdict(file: str) -> None:
    """Every row cites a source that exists, says yes or no to doubt, and appears once."""
    rows = read(file)
    assert all(row["source"] in citations() for row in rows)
    assert {row["doubtful"] for row in rows} == {"yes", "no"}
    owner = next(iter(rows[0]))
    assert len({(row[owner], row["quantity"]) for row in rows}) == len(rows)


def test_each_source_is_used_and_said_once() -> None:
    """No citation is orphaned, empty or repeated."""
    cited = {row["source"] for file in NUMBER_FILES for row in read(file)}
    assert set(citations()) - cited == {"amdgpu-ids"}
    assert len(set(citations().values())) == len(read("sources.csv"))
    assert all(citations().values())


def test_each_known_field_of_a_gpu_has_its_source() -> None:
    """A number without a source, and a source without a number, cannot enter a Gpu."""
    for gpu in (*devices().values(), *bare_gpus().values()):
        own = {"key", "title", "architecture", "sources", "target_name"}
        known = {
            field.name
            for value in (gpu, gpu.architecture)
            for field in dataclasses.fields(value)
            if field.name not in own and getattr(value, field.name) is not None
        }
        assert set(gpu.sources) == known, gpu.key


def test_each_device_knows_its_size() -> None:
    """Every device has multiprocessors, bandwidth and L2, and no number is zero."""
    for gpu in devices().values():
        assert gpu.multiprocessors, gpu.key
        assert gpu.bandwidth_gbs, gpu.key
        assert gpu.l2_bytes, gpu.key
        assert gpu.boost_mhz != 0, gpu.key


def test_each_row_belongs_to_a_device() -> None:
    """Numbers, names and PCI ids of devices that do not exist would never be read."""
    assert {row["device"] for row in read("device_numbers.csv")} == set(devices())
    assert set(aliases()) == set(devices())
    assert set(pci_ids().values()) == {key for key, gpu in devices().items() if gpu.vendor == "AMD"}


@pytest.mark.parametrize("architecture", CUDA, ids=lambda item: item.target_name)
def test_cuda_limits_agree_with_each_other(architecture: CudaArchitecture) -> None:
    """The identities that hold between NVIDIA's own numbers hold in the table."""
    item = architecture
    assert item.max_shared + item.reserved_shared == item.shared_per_multiprocessor
    assert item.max_threads == item.warp_size * item.max_warps
    assert item.shared_per_multiprocessor % item.shared_unit == 0
    assert item.max_warps_per_program == 32
    assert item.reserved_shared == (1024 if float(item.compute_capability) >= 8 else 0)
    assert (item.max_barriers is None) == (float(item.compute_capability) < 9)
    assert item.max_barriers is None or item.max_barriers % item.max_programs == 0


@pytest.mark.parametrize("architecture", HIP, ids=lambda item: item.target_name)
def test_hip_limits_agree_with_each_other(architecture: HipArchitecture) -> None:
    """A wave that addresses all its VGPRs fits, WGPs have two CUs' LDS, gfx9 limits SGPRs."""
    item = architecture
    assert item.max_vgprs <= item.vgprs_per_simd
    assert item.max_vgprs % item.vgpr_granule == 0 or item.multiprocessor == "WGP"
    pools = {"CU": 1, "WGP": 2}
    assert item.shared_per_multiprocessor == item.max_shared * pools[item.multiprocessor]
    assert item.shared_per_multiprocessor % item.shared_unit == 0
    assert item.max_multiwave_programs == 16 * pools[item.multiprocessor]
    assert (item.sgprs_per_simd is None) == (item.warp_size == 32)
    assert item.max_threads == 2048 or item.target_name == "gfx1250"


@pytest.mark.parametrize(
    ("name", "registers"),
    [
        ("gfx908", 65536),
        ("gfx90a", 131072),
        ("gfx942", 131072),
        ("gfx950", 131072),
        ("gfx1100", 196608),
        ("gfx1102", 131072),
        ("gfx1151", 196608),
        ("gfx1201", 196608),
    ],
)
def test_hip_registers_are_what_the_runtime_reports(name: str, registers: int) -> None:
    """The vector registers of a multiprocessor are HIP's regsPerBlock, as its logs print it."""
    assert architectures()[name].registers == registers


def test_words_and_targets_are_the_vendors() -> None:
    """Each architecture names its vendor's things as the vendor does."""
    hopper, cdna, rdna = (architectures()[name] for name in ("sm_90", "gfx942", "gfx1201"))
    assert (hopper.vendor, hopper.multiprocessor_word, hopper.warp_word) == ("NVIDIA", "SM", "warp")
    assert (cdna.vendor, cdna.multiprocessor_word, cdna.warp_word) == ("AMD", "CU", "wave")
    assert rdna.multiprocessor_word == "WGP"
    assert [str(item.target) for item in (hopper, cdna, rdna)] == [
        "cuda:90:32",
        "hip:gfx942:64",
        "hip:gfx1201:32",
    ]
    assert architectures()["sm_120"].target.name == "sm_120"


def test_rdna_devices_count_wgps() -> None:
    """A 96-CU RX 7900 XTX has 48 multiprocessors, as HIP reports it; a MI300X keeps its CUs."""
    assert devices()["rx7900xtx"].multiprocessors == 48
    assert devices()["mi300x"].multiprocessors == 304


def test_doubt_is_told() -> None:
    """A vendor's round number is doubtful, one that a device reported is not."""
    assert devices()["mi355x"].doubtful == ("bandwidth_gbs", "boost_mhz")
    assert devices()["h100"].doubtful == ()
    assert "max_waves_per_simd" in devices()["mi100"].doubtful


def test_a_gpu_is_a_value() -> None:
    """A Gpu can be a key, and equality looks at its numbers."""
    gpu = devices()["h100"]
    assert hash(gpu) == hash(dataclasses.replace(gpu))
    assert gpu != dataclasses.replace(gpu, multiprocessors=114)
