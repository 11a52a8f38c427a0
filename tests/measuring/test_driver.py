"""Predictions against the driver of this machine's GPU, and NVML's readings."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.measuring.driver import (
    REASONS,
    read_clock,
    throttle_words,
)

UUID = "6f1c2b7e-0000-1111-2222-333344445555"
PLACE = "00000000:C1:00.0"


class FakeNvml(ModuleType):
    """A pynvml with one GPU, which is found by UUID and by place, but not by number."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        """What NVML raises."""

    def __init__(self, *refused: str) -> None:
        super().__init__("pynvml")
        self.refused = refused
        self.started = 0
        answers = {
            "nvmlInit": lambda: self._count(1),
            "nvmlShutdown": lambda: self._count(-1),
            "nvmlDeviceGetHandleByUUID": lambda uuid: self._known(uuid, f"GPU-{UUID}"),
            "nvmlDeviceGetHandleByPciBusId": lambda place: self._known(place, PLACE),
            "nvmlDeviceGetClockInfo": lambda _handle, clock: {1: 1830}[clock],
            "nvmlDeviceGetCurrentClocksEventReasons": lambda _handle: 0b100,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _handle: 0b1000,
        }
        for name, function in answers.items():
            setattr(self, name, self._unless_refused(name, function))

    def _unless_refused(self, name: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if name in self.refused:
                raise self.NVMLError(name)
            return function(*arguments)

        return call

    def _count(self, change: int) -> None:
        self.started += change

    def _known(self, asked: str, right: str) -> str:
        if asked != right:
            raise self.NVMLError(asked)
        return "handle"


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace torch's device 0, unless the test needs a real one."""
    found = SimpleNamespace(uuid=UUID, pci_domain_id=0, pci_bus_id=0xC1, pci_device_id=0)
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _index: found)
    return found


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Replace pynvml by a stand-in."""
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


READING = 1830, "software power cap"
REASONS_NAME = "nvmlDeviceGetCurrentClocksEventReasons"


@pytest.mark.parametrize(
    ("refused", "changes", "reading"),
    [
        pytest.param("", {}, READING, id="every number"),
        pytest.param("", {"uuid": "another"}, READING, id="a part of a GPU, found by its place"),
        pytest.param(
            "", {"uuid": "another", "pci_bus_id": 7}, (None, None), id="no GPU that NVML knows"
        ),
        pytest.param(REASONS_NAME, {}, (1830, "hardware slowdown"), id="an older driver"),
        pytest.param("nvmlDeviceGetClockInfo", {}, (None, READING[1]), id="a number refused"),
        pytest.param("nvmlInit", {}, (None, None), id="no driver"),
    ],
)
def test_what_is_read_is_of_torchs_device(
    nvml: FakeNvml,
    device: SimpleNamespace,
    refused: str,
    changes: dict[str, Any],
    reading: tuple[int | None, str | None],
) -> None:
    """Clock and reasons are the device's or not known, and NVML is shut down."""
    nvml.refused = (refused,)
    for name, value in changes.items():
        setattr(device, name, value)
    assert read_clock() == reading
    assert nvml.started == 0


def test_extra_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without nvidia-ml-py nothing is read, without an error."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_clock() == (None, None)


@given(st.integers(0, 2**12 - 1))
def test_idle_and_chosen_clocks_are_no_throttling(reasons: int) -> None:
    """Bits 1 and 2 have no words; each other known bit has its own."""
    words = throttle_words(reasons)
    assert words == throttle_words(reasons | 0b11)
    count = sum(bool(reasons & bit) for bit in REASONS)
    assert (words is None) if count == 0 else (len(str(words).split(", ")) == count)


def test_bits_are_nvmls() -> None:
    """The bits equal those of NVIDIA's own module."""
    pynvml = pytest.importorskip("pynvml")
    names = {
        "SwPowerCap": "software power cap",
        "HwSlowdown": "hardware slowdown",
        "SyncBoost": "sync boost",
        "SwThermalSlowdown": "software thermal slowdown",
        "HwThermalSlowdown": "hardware thermal slowdown",
        "HwPowerBrakeSlowdown": "power brake",
        "DisplayClockSetting": "display clock setting",
    }
    for name, word in names.items():
        assert throttle_words(getattr(pynvml, f"nvmlClocksThrottleReason{name}")) == word
    for name in ("GpuIdle", "ApplicationsClocksSetting"):
        assert throttle_words(getattr(pynvml, f"nvmlClocksThrottleReason{name}")) is None


@pytest.mark.gpu
def test_a_real_gpu_is_read() -> None:
    """A real GPU has a clock of hundreds or thousands of MHz."""
    pytest.importorskip("pynvml")
    sm_mhz, _ = read_clock()
    if sm_mhz is None:
        pytest.skip("NVML does not answer")
    assert 100 < sm_mhz < 5000
