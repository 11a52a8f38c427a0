"""What a user types: the GPU it means, or a sentence that says what to type instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.errors import InputError
from occupancy_lab.gpus import Gpu, aliases, bare_gpus, devices, find_gpu, find_gpus
from occupancy_lab.gpus.names import find_device

NAMES = [
    (name, key) for key, gpu in devices().items() for name in (key, gpu.title, *aliases()[key])
]


@pytest.mark.parametrize(("name", "key"), NAMES)
def test_each_name_means_its_own_device(name: str, key: str) -> None:
    """Keys, titles and aliases resolve to their device, however they are spelled."""
    for spelling in (name, name.upper(), f"  {name.lower()} ", name.replace(" ", "_")):
        assert find_gpu(spelling) is devices()[key]
    assert find_gpu(name.replace(" ", "-").replace("-", " ")) is devices()[key]


@pytest.mark.parametrize("gpu", bare_gpus().values(), ids=lambda gpu: gpu.key)
def test_each_architecture_goes_by_its_targets(gpu: Gpu) -> None:
    """The compiler's name and Triton's target both mean the bare architecture."""
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
    """The names of drivers and frameworks mean the same GPU as the short ones."""
    assert find_gpu(name).key == key


def test_a_device_is_not_found_by_a_part_of_its_name() -> None:
    """A slice of an H100 has other numbers, so its name is not the H100's."""
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
    """The message quotes what was typed, shortly, and offers what would do."""
    with pytest.raises(InputError) as caught:
        find_gpu(text)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 300
    if "No GPU" in str(caught.value):
        assert "`occupancy-lab gpus`" in str(caught.value)


@given(
    st.text()
    | st.from_regex(r"(cuda|hip|sm|gfx|compute)[:_ -]?[0-9a-fx]*(:[0-9]*)?", fullmatch=True)
    | st.sampled_from([name for name, _ in NAMES]).flatmap(lambda name: st.just(name[:-1]))
)
def test_any_text_means_a_gpu_or_is_refused(text: str) -> None:
    """No text raises anything but InputError, and what it means is in the table."""
    try:
        gpu = find_gpu(text)
    except InputError:
        return
    assert gpu is {**devices(), **bare_gpus()}[gpu.key]


def test_a_list_keeps_order_and_drops_repeats() -> None:
    """Two names of one GPU are one GPU, at the place of the first."""
    found = find_gpus("mi300x, H100 SXM,sm_90,h100")
    assert [gpu.key for gpu in found] == ["mi300x", "h100", "sm_90"]


@pytest.mark.parametrize("text", ["", " ", "h100,", ",h100", "h100,,a100"])
def test_a_list_with_an_empty_part_is_refused(text: str) -> None:
    """A stray comma is an error, not a GPU."""
    with pytest.raises(InputError, match="empty part"):
        find_gpus(text)
