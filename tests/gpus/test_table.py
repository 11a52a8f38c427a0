"""The data files are complete, sourced, and consistent with the vendors' own numbers."""

import csv
import dataclasses
import math
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.errors import InputError
from occupancy_lab.gpus import (
    CudaArchitecture,
    Gpu,
    HipArchitecture,
    aliases,
    architectures,
    bare_gpus,
    devices,
    find_gpu,
    find_gpus,
    usual_gpus,
)
from occupancy_lab.gpus.gpu import citations, find_device, pci_ids

DATA = resources.files("occupancy_lab.gpus") / "data"
CUDA = [item for item in architectures().values() if isinstance(item, CudaArchitecture)]
HIP = [item for item in architectures().values() if isinstance(item, HipArchitecture)]
RATES = [field.name for field in dataclasses.fields(Gpu) if field.name.endswith("_tflops")]
NUMBER_FILES = ["architectures.csv", "device_numbers.csv"]


def read(file: str) -> list[dict[str, str]]:
    """Return the rows of a data file."""
    return list(csv.DictReader((DATA / file).read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("file", NUMBER_FILES)
def test_each_number_has_a_source_and_a_verdict(file: str) -> None:
    """Every row cites an existing source, has a doubt flag, and is unique."""
    rows = read(file)
    assert all(row["source"] in citations() for row in rows)
    assert {row["doubtful"] for row in rows} == {"yes", "no"}
    owner = next(iter(rows[0]))
    assert len({(row[owner], row["quantity"]) for row in rows}) == len(rows)


def test_each_source_is_used_and_said_once() -> None:
    """No citation is unused, empty or repeated."""
    cited = {row["source"] for file in NUMBER_FILES for row in read(file)}
    assert set(citations()) - cited == {"amdgpu-ids"}
    assert len(set(citations().values())) == len(read("sources.csv"))
    assert all(citations().values())


def test_each_known_field_of_a_gpu_has_its_source() -> None:
    """A Gpu's numbers and sources belong together."""
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


def test_each_rate_is_a_power_of_two_a_clock() -> None:
    """Rates are powers of two per clock, at 85% to 105% of the boost clock."""
    checked = 0
    for gpu in devices().values():
        assert gpu.fp32_tflops, gpu.key
        assert gpu.tensor_fp16_tflops, gpu.key
        for name in RATES:
            rate = getattr(gpu, name)
            if rate is not None and gpu.boost_mhz and gpu.multiprocessors:
                a_clock = math.log2(rate * 1e6 / gpu.multiprocessors / gpu.boost_mhz)
                assert math.log2(0.85) < a_clock - round(a_clock) < math.log2(1.06), (gpu.key, name)
                checked += 1
    assert checked > 200


def test_each_row_belongs_to_a_device() -> None:
    """Numbers, names and PCI ids belong to existing devices."""
    assert {row["device"] for row in read("device_numbers.csv")} == set(devices())
    assert set(aliases()) == set(devices())
    assert set(pci_ids().values()) == {key for key, gpu in devices().items() if gpu.vendor == "AMD"}


@pytest.mark.parametrize("architecture", CUDA, ids=lambda item: item.target_name)
def test_cuda_limits_agree_with_each_other(architecture: CudaArchitecture) -> None:
    """NVIDIA's limits satisfy the identities between them."""
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
    """A wave with all VGPRs fits, WGPs have two CUs' LDS, gfx9 limits SGPRs."""
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
    """Vector registers equal HIP's regsPerBlock in its logs."""
    assert architectures()[name].registers == registers


def test_doubt_is_told() -> None:
    """A vendor's round number is doubtful, a device's report is not."""
    caches = ("instruction_bytes", "instruction_cache_bytes")
    rates = tuple(name for name in RATES if getattr(devices()["mi355x"], name) is not None)
    assert devices()["mi355x"].doubtful == (*caches, "bandwidth_gbs", "boost_mhz", *rates)
    assert devices()["a100"].doubtful == ("instruction_cache_bytes",)
    assert devices()["h100"].doubtful == ("max_cluster_programs",)
    assert "max_waves_per_simd" in devices()["mi100"].doubtful


NAMES = [
    (name, key) for key, gpu in devices().items() for name in (key, gpu.title, *aliases()[key])
]


@pytest.mark.parametrize(("name", "key"), NAMES)
def test_each_name_means_its_own_device(name: str, key: str) -> None:
    """Keys, titles and aliases find their device in any spelling."""
    for spelling in (name, name.upper(), f"  {name.lower()} ", name.replace(" ", "_")):
        assert find_gpu(spelling) is devices()[key]
    assert find_gpu(name.replace(" ", "-").replace("-", " ")) is devices()[key]


@pytest.mark.parametrize("gpu", bare_gpus().values(), ids=lambda gpu: gpu.key)
def test_each_architecture_goes_by_its_targets(gpu: Gpu) -> None:
    """The compiler's name and Triton's target find the bare architecture."""
    target = gpu.target
    for name in (gpu.key, str(target), f"{target.backend}:{target.arch}", gpu.key.upper()):
        found = find_gpu(name)
        assert found is gpu
        assert found.multiprocessors is None
        assert found.bandwidth_gbs is None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Radeon RX 7900 XTX", "rx7900xtx"),
        ("AMD Radeon 8060S Graphics", "strix-halo"),
        ("sm90", "sm_90"),
        ("sm_90a", "sm_90"),
        ("sm90a", "sm_90"),
        ("gfx942:sramecc+:xnack-", "gfx942"),
    ],
)
def test_names_that_drivers_report_are_known(name: str, key: str) -> None:
    """Names of drivers and frameworks find the same GPU as short names."""
    assert find_gpu(name).key == key


def test_a_device_is_not_found_by_a_part_of_its_name() -> None:
    """A slice of an H100 is not an H100."""
    assert find_device("NVIDIA H100 80GB HBM3 MIG 1g.10gb") is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("h10", "'h10'; did you mean h100 or"),
        ("gfx94", "gfx942"),
        ("", "No GPU is called ''."),
        ("sm_61", "sm_61 is not in the table, which has sm_70, sm_75"),
        ("cuda:61:32", "sm_61 is not in the table"),
        ("gfx1010", "gfx1010 is not in the table, which has gfx908"),
        ("cuda:90:64", "warps of 32, not 64; write cuda:90:32"),
        ("hip:gfx942:32", "waves of 64, not 32; write hip:gfx942:64"),
        ("h100" * 9999, "No GPU is called"),
        ("cuda:90:" + "9" * 9999, "warps of 32, not 9"),
    ],
)
def test_a_wrong_name_is_explained(text: str, part: str) -> None:
    """The message quotes the input shortly and suggests names."""
    with pytest.raises(InputError) as caught:
        find_gpu(text)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 300
    if "No GPU" in str(caught.value):
        assert "`occupancy-lab gpus`" in str(caught.value)


@settings(max_examples=40)
@given(
    st.text()
    | st.from_regex(r"(cuda|hip|sm|gfx|compute)[:_ -]?[0-9a-fx]*(:[0-9]*)?", fullmatch=True)
    | st.sampled_from([name for name, _ in NAMES]).flatmap(lambda name: st.just(name[:-1]))
)
def test_any_text_means_a_gpu_or_is_refused(text: str) -> None:
    """Any text finds a GPU in the table or raises InputError."""
    try:
        gpu = find_gpu(text)
    except InputError:
        return
    assert gpu is {**devices(), **bare_gpus()}[gpu.key]


@pytest.mark.parametrize("text", ["", " ", "h100,", ",h100", "h100,,a100"])
def test_a_list_with_an_empty_part_is_refused(text: str) -> None:
    """A stray comma is an error."""
    with pytest.raises(InputError, match="empty part"):
        find_gpus(text)


def test_the_usual_gpu_of_a_target_is_the_first_of_the_table() -> None:
    """A target's usual GPU is its first device, or the bare architecture."""
    assert usual_gpus()["sm_90"] == find_gpu("h100")
    assert usual_gpus()["gfx942"] == find_gpu("mi300x")
    assert usual_gpus()["gfx1030"] == find_gpu("gfx1030")
