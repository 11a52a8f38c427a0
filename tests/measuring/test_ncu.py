"""Nsight Compute: where it is found, how it is run, and how its raw page is read."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import is_running, wait_until

from occupancy_lab.errors import DriverError
from occupancy_lab.gpus import present_gpus
from occupancy_lab.measuring import ncu
from occupancy_lab.measuring.ncu import METRICS, NcuProfile, find_ncu, profile, read_profile
from occupancy_lab.measuring.process import Batch, TimedLaunch
from occupancy_lab.values import Config, Problem
from occupancy_lab.workers.messages import to_line

PROBLEM = Problem(4096, 781)
LAUNCH = TimedLaunch("softmax", Config(1024, 8, 4), 1056)

COLUMNS = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC"'
)
NO_UNITS = '"","","","","","","","","","",""'
KERNEL = (
    '"0","4242","python3.12","host","softmax_kernel","1","7","(256, 1, 1)","(1056, 1, 1)","0","9.0"'
)
VALUES = {
    "dram__bytes_read.sum": ("byte", "12,801,024"),
    "launch__occupancy_limit_blocks": ("block", "32"),
    "launch__occupancy_limit_registers": ("block", "8"),
    "launch__occupancy_limit_shared_mem": ("block", "10"),
    "launch__occupancy_limit_warps": ("block", "8"),
    "launch__registers_per_thread": ("register/thread", "32"),
    "launch__shared_mem_config_size": ("byte", "135,168"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "100"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "93.71"),
}
REPORT = NcuProfile(
    num_programs=1056,
    limit_registers=8,
    limit_shared=10,
    limit_warps=8,
    limit_programs=32,
    theoretical_occupancy=1.0,
    achieved_occupancy=pytest.approx(0.9371),
    read_bytes=12801024,
    n_regs=32,
    carveout=135168,
)
NOT_PERMITTED = (
    "==PROF== Connected to process 4242 (/usr/bin/python3.12)\n"
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU"
    " Performance Counters on the target device 0.\n"
    "==PROF== Disconnected from process 4242\n"
    "==WARNING== No kernels were profiled.\n"
)
NO_KERNEL = (
    "==WARNING== Note: Running with uncontrolled GPU frequencies.\n"
    "==WARNING== No kernels were profiled.\n"
)


def page(values: dict[str, tuple[str, str]]) -> str:
    """Return a raw CSV page as in NVIDIA's manual: names, units, one kernel."""
    names = "".join(f',"{name}"' for name in values)
    units = "".join(f',"{unit}"' for unit, _ in values.values())
    numbers = "".join(f',"{number}"' for _, number in values.values())
    return (
        "==PROF== Connected to process 4242 (/usr/bin/python3.12)\n"
        '==PROF== Profiling "softmax_kernel": 0%....50%....100% - 4 passes\n'
        "==PROF== Disconnected from process 4242\n"
        f"{COLUMNS}{names}\n{NO_UNITS}{units}\n{KERNEL}{numbers}\n"
    )


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a fake ncu, the only program on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "PLACES", ())
    return tmp_path / "ncu"


def answer(place: Path, printed: str) -> None:
    """Make the ncu at *place* note its arguments and print *printed*."""
    place.with_name("printed").write_text(printed, encoding="utf-8")
    script(place, 'printf "%s\\n" "$*" >> "${0%/*}/asked"; cat "${0%/*}/printed"')


def script(place: Path, body: str) -> None:
    """Write an executable."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{body}\n", encoding="utf-8")
    place.chmod(0o755)


def test_page_is_read() -> None:
    """Every column is read into its field, occupancies as shares."""
    assert read_profile(page(VALUES)) == REPORT


@pytest.mark.parametrize("text", ["", "n/a", "N/A", "(!) nan", "nan", "inf"])
def test_what_is_no_number_is_not_known(text: str) -> None:
    """A metric without a number is None, not 0."""
    report = read_profile(page(VALUES | {"dram__bytes_read.sum": ("byte", text)}))
    assert report.read_bytes is None
    assert report.n_regs == 32


@given(st.sets(st.sampled_from(sorted(VALUES))))
def test_missing_columns_are_not_known(missing: set[str]) -> None:
    """Missing metrics are None, and the others are unchanged."""
    report = read_profile(page({name: VALUES[name] for name in VALUES.keys() - missing}))
    for field, metric in METRICS.items():
        expected = None if metric in missing else getattr(REPORT, field)
        assert getattr(report, field) == expected


@given(st.integers(0, 2**50))
def test_thousands_are_read(number: int) -> None:
    """Separators of thousands do not change a number."""
    for text in (f"{number}", f"{number:,}"):
        report = read_profile(page(VALUES | {"dram__bytes_read.sum": ("byte", text)}))
        assert report.read_bytes == number


@pytest.mark.parametrize(
    ("unit", "bytes_read"),
    [("byte", 12), ("Kbyte", 12_500), ("Mbyte", 12_500_000), ("Gbyte", 12_500_000_000)],
)
def test_units_are_obeyed(unit: str, bytes_read: int) -> None:
    """Nsight Compute's prefixes are decimal: a Kbyte is 1000 bytes."""
    report = read_profile(page(VALUES | {"dram__bytes_read.sum": (unit, "12.5")}))
    assert report.read_bytes == bytes_read


def test_other_lines_do_no_harm() -> None:
    """Output of the launching process around the page is ignored."""
    assert read_profile(f'a warning, "quoted"\n{page(VALUES)}done, in 3 s\n') == REPORT


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (NOT_PERMITTED, "may not read the GPU's counters .* run as root"),
        ("==ERROR== Failed to find metric regex:^dram__bytes_read.sum$\n", "dram__bytes_read.sum"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n", "LibraryNotLoaded"),
        (NO_KERNEL, "measured nothing: No kernels were profiled"),
        (
            "RuntimeError: out of memory\n==ERROR== The application returned an error code (1).\n",
            "measured nothing: RuntimeError: out of memory",
        ),
        ("", "it printed nothing"),
        (f"{COLUMNS}\n{NO_UNITS}\n", "measured nothing"),
    ],
)
def test_failures_say_why(printed: str, told: str) -> None:
    """If no kernel was measured, the error has Nsight Compute's message."""
    with pytest.raises(DriverError, match=told):
        read_profile(printed)


def test_launch_is_asked_for_once(fake: Path) -> None:
    """The command has the kernel, every metric, and a launch in its own process."""
    answer(fake, page(VALUES))
    assert profile(PROBLEM, LAUNCH) == REPORT
    asked = (fake.parent / "asked").read_text(encoding="utf-8")
    for option in (
        "--csv --page raw",
        "--clock-control none",
        "--cache-control all",
        "--kernel-name regex:^softmax_kernel$ --launch-count 1",
        " occupancy_lab.measuring.ncu ",
        to_line(Batch(PROBLEM, (LAUNCH,))),
    ):
        assert option in asked
    metrics = asked.partition("--metrics ")[2].partition(" ")[0]
    assert set(metrics.split(",")) == set(VALUES)


def test_nothing_outlives_a_time_limit(fake: Path) -> None:
    """A launch over the time limit is an error, and its processes end."""
    script(fake, 'sleep 60 & echo $! > "${0%/*}/child"; wait')
    start = time.monotonic()
    with pytest.raises(DriverError, match=r"took longer than 0\.5 s"):
        profile(PROBLEM, LAUNCH, timeout=0.5)
    assert time.monotonic() - start < 10
    child = (fake.parent / "child").read_text(encoding="utf-8").strip()
    wait_until(lambda: not is_running(child))


def test_no_ncu_is_told(fake: Path) -> None:
    """A missing Nsight Compute, or one that cannot be started, is one sentence."""
    with pytest.raises(DriverError, match="not installed"):
        profile(PROBLEM, LAUNCH)
    fake.write_bytes(b"no program")
    fake.chmod(0o755)
    with pytest.raises(DriverError, match="cannot be started"):
        profile(PROBLEM, LAUNCH)


def test_ncu_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The PATH comes first, then the newest version beside CUDA, then the newest of its own."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_ncu(tmp_path) is None
    for version in ("2024.3.2", "2025.1.0", "2024.12.0"):
        script(tmp_path / "opt/nvidia/nsight-compute" / version / "ncu", "")
    assert find_ncu(tmp_path) == tmp_path / "opt/nvidia/nsight-compute/2025.1.0/ncu"
    for version in ("cuda", "cuda-12.8", "cuda-12.10"):
        script(tmp_path / "usr/local" / version / "bin/ncu", "")
    assert find_ncu(tmp_path) == tmp_path / "usr/local/cuda-12.10/bin/ncu"
    (tmp_path / "usr/local/cuda-12.10/bin/ncu").chmod(0o644)
    assert find_ncu(tmp_path) == tmp_path / "usr/local/cuda-12.8/bin/ncu"
    script(tmp_path / "bin/ncu", "")
    assert find_ncu(tmp_path) == tmp_path / "bin/ncu"


@pytest.mark.gpu
@pytest.mark.skipif(find_ncu() is None, reason="no Nsight Compute")
def test_a_real_launch_is_counted() -> None:
    """Nsight Compute finds the launch and reads every needed metric."""
    if present_gpus()[0].gpu.vendor != "NVIDIA":
        pytest.skip("no NVIDIA GPU")
    try:
        report = profile(PROBLEM, LAUNCH)
    except DriverError as error:
        pytest.skip(str(error))
    assert report.num_programs == LAUNCH.num_programs
    assert None not in {getattr(report, field) for field in METRICS}
    assert 0 < report.theoretical_occupancy <= 1
    assert report.read_bytes >= 0.9 * PROBLEM.matrix_bytes
