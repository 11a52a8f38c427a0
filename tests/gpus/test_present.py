"""The GPUs of this machine, read from a fake driver library and a fake sysfs."""

import ctypes
import re
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from occupancy_lab.gpus import HipArchitecture, devices, disagreements, present_gpus
from occupancy_lab.gpus.present import ATTRIBUTES, read_kfd, read_libcuda, target_name

NOWHERE = Path("/nowhere")
UUID = bytes(range(16))
NO_DRIVER = SimpleNamespace()

H100 = {
    "warp_size": 32,
    "clock_khz": 1980000,
    "multiprocessors": 132,
    "integrated": 0,
    "memory_clock_khz": 2619000,
    "bus_bits": 5120,
    "l2_bytes": 52428800,
    "max_threads": 2048,
    "compute_capability_major": 9,
    "compute_capability_minor": 0,
    "shared_per_multiprocessor": 233472,
    "registers": 65536,
    "cooperative_launch": 1,
    "max_shared": 232448,
    "max_programs": 32,
    "reserved_shared": 1024,
}

CPU_NODE = "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\nlds_size_in_kb 0\n"
MI300X = {
    "cpu_cores_count": 0,
    "simd_count": 1216,
    "max_waves_per_simd": 8,
    "lds_size_in_kb": 64,
    "wave_front_size": 64,
    "simd_per_cu": 4,
    "gfx_target_version": 90402,
    "vendor_id": 4098,
    "device_id": 29857,
    "unique_id": 9895604649984,
    "max_engine_clk_fcompute": 2100,
    "num_xcc": 8,
}
RX7900XTX = {
    "simd_count": 192,
    "max_waves_per_simd": 16,
    "lds_size_in_kb": 64,
    "wave_front_size": 32,
    "simd_per_cu": 2,
    "gfx_target_version": 110000,
    "device_id": 29772,
    "max_engine_clk_fcompute": 2526,
}


def fake_libcuda(
    numbers: Mapping[str, int], name: str = "NVIDIA H100 80GB HBM3", failing: str = ""
) -> Any:
    """Return a driver library of one GPU: C function pointers, so that ctypes converts for real."""
    by_attribute = {ATTRIBUTES[key]: value for key, value in numbers.items()}
    integer = ctypes.POINTER(ctypes.c_int)

    def get_attribute(value: Any, attribute: int, device: int) -> int:
        if attribute not in by_attribute or device != 7:
            return 1
        value[0] = by_attribute[attribute]
        return 0

    def get_name(text: int, length: int, device: int) -> int:
        ctypes.memmove(text, name.encode()[: length - 1] + b"\0", len(name) + 1)
        return 0 if device == 7 else 101

    def get_uuid(uuid: int, device: int) -> int:
        ctypes.memmove(uuid, UUID, len(UUID))
        return 0 if device == 7 else 101

    def put(number: int) -> Any:
        def call(value: Any, *_: int) -> int:
            value[0] = number
            return 0

        return call

    functions = {
        "cuInit": ((ctypes.c_uint,), lambda flags: flags),
        "cuDeviceGetCount": ((integer,), put(1)),
        "cuDeviceGet": ((integer, ctypes.c_int), put(7)),
        "cuDeviceGetName": ((ctypes.c_void_p, ctypes.c_int, ctypes.c_int), get_name),
        "cuDeviceGetAttribute": ((integer, ctypes.c_int, ctypes.c_int), get_attribute),
        "cuDeviceGetUuid_v2": ((ctypes.c_void_p, ctypes.c_int), get_uuid),
    }
    library = SimpleNamespace()
    for key, (arguments, function) in functions.items():
        chosen = (lambda *_: 100) if key == failing else function
        setattr(library, key, ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(chosen))
    return library


def write_nodes(folder: Path, *nodes: Mapping[str, int]) -> Path:
    """Write a KFD topology of one CPU and *nodes*, laid out as by the kernel."""
    for index, text in enumerate([CPU_NODE, *("".join(map(line, n.items())) for n in nodes)]):
        node = folder / str(index)
        node.mkdir()
        (node / "properties").write_text(text, encoding="ascii")
    return folder


def line(pair: tuple[str, int]) -> str:
    """Return a line of a properties file."""
    return f"{pair[0]} {pair[1]}\n"


def test_each_device_has_a_name_of_its_own(tmp_path: Path) -> None:
    """NVIDIA's UUID and AMD's unique_id identify a GPU."""
    (nvidia,) = present_gpus(fake_libcuda(H100), NOWHERE)
    assert nvidia.uuid == UUID.hex()
    (untold,) = present_gpus(fake_libcuda(H100, failing="cuDeviceGetUuid_v2"), NOWHERE)
    assert untold.uuid is None
    library = fake_libcuda(H100)
    del library.cuDeviceGetUuid_v2
    (older,) = present_gpus(library, NOWHERE)
    assert older.uuid is None
    told, silent = present_gpus(NO_DRIVER, write_nodes(tmp_path, MI300X, RX7900XTX))
    assert told.uuid == f"{MI300X['unique_id']:016x}"
    assert silent.uuid is None


def test_without_a_driver_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a library, its functions or sysfs there are no GPUs."""

    def missing(name: str) -> ctypes.CDLL:
        message = f"{name}: cannot open shared object file"
        raise OSError(message)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert read_libcuda() == ()
    assert present_gpus(None, NOWHERE) == ()
    assert present_gpus(NO_DRIVER, NOWHERE) == ()


@pytest.mark.parametrize(
    "failing", ["cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName"]
)
def test_an_error_code_gives_no_gpu(failing: str) -> None:
    """If the driver refuses a call, there is no GPU, and no error."""
    assert len(present_gpus(fake_libcuda(H100), NOWHERE)) == 1
    assert present_gpus(fake_libcuda(H100, failing=failing), NOWHERE) == ()


def test_an_unanswered_attribute_is_left_to_the_table() -> None:
    """Attributes that the driver does not report are the table's."""
    assert present_gpus(fake_libcuda(H100, failing="cuDeviceGetAttribute"), NOWHERE) == ()
    numbers = {key: value for key, value in H100.items() if key != "reserved_shared"}
    (present,) = present_gpus(fake_libcuda(numbers | {"l2_bytes": 0}), NOWHERE)
    assert present.gpu == devices()["h100"]
    assert "l2_bytes" not in present.driver
    assert present.gpu.sources["reserved_shared"] != present.gpu.sources["max_shared"]


def test_an_h100_is_the_tables_h100() -> None:
    """A real H100's numbers equal the table's, with the driver as source."""
    (present,) = present_gpus(fake_libcuda(H100), NOWHERE)
    assert present.gpu == devices()["h100"]
    assert (present.name, present.index) == ("NVIDIA H100 80GB HBM3", 0)
    assert present.gpu.sources["max_programs"].text == "the driver"
    assert present.gpu.sources["register_unit"].text.startswith("cuda_occupancy.h")
    assert {key: present.driver[key] for key in H100} == H100
    assert disagreements(present) == ()


def test_an_unknown_card_keeps_the_drivers_numbers() -> None:
    """An unknown card has its architecture's limits and computed bandwidth."""
    (present,) = present_gpus(fake_libcuda(H100 | {"multiprocessors": 78}, "NVIDIA H20"), NOWHERE)
    assert (present.gpu.key, present.gpu.title) == ("sm_90", "NVIDIA H20")
    assert present.gpu.multiprocessors == 78
    assert present.gpu.bandwidth_gbs == pytest.approx(3352.3)
    assert disagreements(present) == ()


def test_the_driver_wins_and_the_difference_is_told() -> None:
    """The driver's number replaces the table's, and a sentence says so."""
    numbers = H100 | {"max_shared": 200000, "bus_bits": 4096}
    (present,) = present_gpus(fake_libcuda(numbers), NOWHERE)
    assert present.gpu.key == "h100"
    assert present.gpu.architecture.max_shared == 200000
    assert present.gpu.bandwidth_gbs == pytest.approx(3352.3)
    assert disagreements(present) == (
        "NVIDIA H100 80GB HBM3: the driver's max_shared is 200000, the table's 232448.",
        "NVIDIA H100 80GB HBM3: the driver's bandwidth_gbs is 2681.9, the table's 3352.3.",
    )


def test_a_device_of_another_size_is_not_the_tables() -> None:
    """A device with another number of SMs keeps only the limits."""
    (present,) = present_gpus(fake_libcuda(H100 | {"multiprocessors": 66}), NOWHERE)
    assert present.gpu.key == "sm_90"
    assert present.gpu.multiprocessors == 66
    (sentence,) = disagreements(present)
    assert "multiprocessors is 66, the table's 132" in sentence


@pytest.mark.parametrize(
    ("major", "minor", "bandwidth"), [(8, 6, 3352.3), (8, 7, None), (12, 1, None)]
)
def test_a_clock_that_is_not_the_memorys_is_not_believed(
    major: int, minor: int, bandwidth: float | None
) -> None:
    """Jetson's and GB10's clocks give no bandwidth."""
    capability = {"compute_capability_major": major, "compute_capability_minor": minor}
    (present,) = present_gpus(fake_libcuda(H100 | capability, "A card of tomorrow"), NOWHERE)
    assert present.gpu.bandwidth_gbs == bandwidth


def test_an_unknown_architecture_is_left_out() -> None:
    """A GPU of an unknown architecture is left out."""
    numbers = H100 | {"compute_capability_major": 6, "compute_capability_minor": 1}
    assert present_gpus(fake_libcuda(numbers, "NVIDIA GeForce GTX 1080"), NOWHERE) == ()


def test_attribute_numbers_are_those_of_cuda_h() -> None:
    """Attributes have the numbers of NVIDIA's header in Triton."""
    spec = util.find_spec("triton")
    if spec is None or spec.origin is None:
        pytest.skip("triton is not installed")
    header = Path(spec.origin).parent / "backends/nvidia/include/cuda.h"
    text = header.read_text(encoding="utf-8")
    numbers = dict(re.findall(r"CU_DEVICE_ATTRIBUTE_(\w+) = (\d+),", text))
    names = {
        "warp_size": "WARP_SIZE",
        "clock_khz": "CLOCK_RATE",
        "multiprocessors": "MULTIPROCESSOR_COUNT",
        "integrated": "INTEGRATED",
        "memory_clock_khz": "MEMORY_CLOCK_RATE",
        "bus_bits": "GLOBAL_MEMORY_BUS_WIDTH",
        "l2_bytes": "L2_CACHE_SIZE",
        "max_threads": "MAX_THREADS_PER_MULTIPROCESSOR",
        "compute_capability_major": "COMPUTE_CAPABILITY_MAJOR",
        "compute_capability_minor": "COMPUTE_CAPABILITY_MINOR",
        "shared_per_multiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
        "registers": "MAX_REGISTERS_PER_MULTIPROCESSOR",
        "cooperative_launch": "COOPERATIVE_LAUNCH",
        "max_shared": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
        "max_programs": "MAX_BLOCKS_PER_MULTIPROCESSOR",
        "reserved_shared": "RESERVED_SHARED_MEMORY_PER_BLOCK",
    }
    assert {key: int(numbers[name]) for key, name in names.items()} == dict(ATTRIBUTES)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (90008, "gfx908"),
        (90500, "gfx950"),
        (100300, "gfx1030"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
        (120500, "gfx1250"),
    ],
)
def test_kfd_versions_are_decimal_pairs_printed_in_hex(version: int, name: str) -> None:
    """KFD's packed version gives the compiler's name."""
    assert target_name(version) == name


def test_a_mi300x_is_the_tables_mi300x(tmp_path: Path) -> None:
    """The CPU's node is skipped, and the MI300X's numbers equal the table's."""
    (present,) = present_gpus(NO_DRIVER, write_nodes(tmp_path, MI300X))
    assert present.gpu == devices()["mi300x"]
    assert (present.name, present.index) == ("MI300X", 0)
    assert present.gpu.sources["multiprocessors"].text == "the driver"
    assert present.driver["num_xcc"] == 8
    assert disagreements(present) == ()


def test_a_partition_of_a_mi300x_is_not_a_mi300x(tmp_path: Path) -> None:
    """One XCD of an MI300X has 38 CUs and no known bandwidth."""
    slices = [MI300X | {"simd_count": 152, "num_xcc": 1}] * 2
    first, second = present_gpus(NO_DRIVER, write_nodes(tmp_path, *slices))
    assert (first.gpu.key, first.gpu.multiprocessors) == ("gfx942", 38)
    assert first.gpu.bandwidth_gbs is None
    assert (first.index, second.index) == (0, 1)


def test_rdna_counts_wgps(tmp_path: Path) -> None:
    """Two CUs are one WGP; the driver's clock is used, and the difference reported."""
    (present,) = present_gpus(NO_DRIVER, write_nodes(tmp_path, RX7900XTX))
    assert (present.gpu.key, present.gpu.multiprocessors) == ("rx7900xtx", 48)
    assert present.gpu.architecture == devices()["rx7900xtx"].architecture
    assert disagreements(present) == (
        "RX 7900 XTX: the driver's boost_mhz is 2526, the table's 2500.",
    )


def test_the_tables_waves_stay(tmp_path: Path) -> None:
    """On gfx908 HIP's 8 waves per SIMD stay, and KFD's 10 are reported."""
    mi100 = MI300X | {"simd_count": 480, "gfx_target_version": 90008, "device_id": 0x738C}
    mi100 |= {"max_waves_per_simd": 10, "max_engine_clk_fcompute": 1502}
    (present,) = present_gpus(NO_DRIVER, write_nodes(tmp_path, mi100))
    assert isinstance(present.gpu.architecture, HipArchitecture)
    assert present.gpu.key == "mi100"
    assert present.gpu.architecture.max_waves_per_simd == 8
    (sentence,) = disagreements(present)
    assert "max_waves_per_simd is 10, the table's 8" in sentence


def test_nodes_are_in_the_kernels_order(tmp_path: Path) -> None:
    """Node 10 comes after node 2, as HIP numbers devices."""
    write_nodes(tmp_path, *[MI300X] * 9, RX7900XTX)
    found = present_gpus(NO_DRIVER, tmp_path)
    assert [present.name for present in found] == ["MI300X"] * 9 + ["RX 7900 XTX"]


def test_unreadable_nodes_are_passed_over(tmp_path: Path) -> None:
    """Missing, binary and foreign files do not hide other GPUs."""
    write_nodes(tmp_path, MI300X, {"simd_count": 4})
    (tmp_path / "10").mkdir()
    (tmp_path / "11").mkdir()
    (tmp_path / "11" / "properties").write_bytes(b"\xff\xfe simd_count 4\n")
    (tmp_path / "generation_id").write_text("2\n", encoding="ascii")
    assert [report.target_name for report in read_kfd(tmp_path)] == ["gfx942"]


@pytest.mark.gpu
def test_the_gpu_at_hand_is_within_its_architecture() -> None:
    """A real driver's limits equal the table's for its architecture."""
    found = present_gpus()
    assert found
    for present in found:
        assert present.gpu.architecture == present.table.architecture
        assert present.gpu.multiprocessors
