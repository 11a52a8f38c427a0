"""The commands that launch, with simulated launches."""

import signal
from pathlib import Path

import pytest
from in_process import run
from stand_ins import CALIBRATION, Launches, values_of

from occupancy_lab.calibrating.units import Calibrated, Units
from occupancy_lab.measuring.verify import Check, Verification
from occupancy_lab.values import Config
from occupancy_lab.workers.signals import Interrupted


def test_measure_takes_its_options(launches: Launches) -> None:
    """Matrix, configuration, providers and runs are as asked for."""
    options = "--rows 7 --dtype float16 --num-warps 2 --num-stages 3 --runs 12"
    done = run("measure", "--cols", "257", *options.split(), "--provider", "kernel,copy", "--json")
    values = values_of(done.stdout)
    assert done.returncode == 0
    assert (values["rows"], values["cols"], values["dtype"]) == (7, 257, "float16")
    kernel, copy = values["measured"]
    assert kernel["config"] == {"block_size": 512, "num_warps": 2, "num_stages": 3}
    assert (kernel["measurement"]["runs"], copy["provider"]) == (12, "copy")
    assert len(launches.asked) == 2


def test_tune_launches_only_with_measure(launches: Launches) -> None:
    """Tuning launches nothing without --measure, and then --top configurations."""
    asked = ("tune", "--cols", "781", "--num-warps", "4,8", "--quiet", "--kernel", "softmax")
    assert "Nothing was launched" in run(*asked).stdout
    assert launches.asked == []
    measured = run(*asked, "--measure", "--top", "2")
    assert measured.returncode == 0
    assert "Fastest measured: softmax" in measured.stdout
    assert len(launches.asked) == 2


def test_measured_sweep_uses_the_devices(launches: Launches) -> None:
    """A measured sweep exports measured columns from every chosen GPU."""
    asked = ("sweep", "--cols", "100,781", "--num-warps", "4", "--num-stages", "1,2", "--quiet")
    done = run(*asked, "--measure", "--devices", "all", "--runs", "6", "--json")
    rows = values_of(done.stdout)
    assert done.returncode == 0
    assert [row["us"] for row in rows] == [10.0] * 4
    assert {row["runs"] for row in rows} == {6}
    assert launches.devices == ("0", "1")


def test_calibrate_prints_the_units(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A calibration is printed, as words and as JSON."""
    made = Calibrated(CALIBRATION, tmp_path / "h200.json", 34.4, Units(l1_cycles=34.2))
    monkeypatch.setattr("occupancy_lab.calibrating.units.calibrate_here", lambda: made)
    done = run("calibrate")
    assert done.returncode == 0
    assert "l1_cycles" in done.stdout
    assert values_of(run("calibrate", "--json").stdout)["device"] == "NVIDIA H200"


def test_interrupted_calibration_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal in the middle of a calibration ends it with a sentence."""

    def interrupted() -> None:
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr("occupancy_lab.calibrating.units.calibrate_here", interrupted)
    done = run("calibrate")
    assert (done.returncode, done.stderr.strip()) == (143, "occupancy-lab: interrupted")


@pytest.mark.parametrize(("agrees", "status"), [(True, 0), (None, 0), (False, 1)])
def test_verify_exits_with_1_where_anything_differs(
    monkeypatch: pytest.MonkeyPatch,
    agrees: bool | None,  # noqa: FBT001 - pytest passes parameters
    status: int,
) -> None:
    """A difference is exit 1, an omitted check is not; both are printed."""
    check = Check(Config(1024, 8, 2), "programs per SM", 8, 7, agrees, "driver", "it is busy")
    found = Verification((check,))
    monkeypatch.setattr("occupancy_lab.measuring.verify.verify_here", lambda **_asked: found)
    done = run("verify", "--num-warps", "8")
    assert done.returncode == status
    assert "programs per SM" in done.stdout
    as_json = run("verify", "--json")
    assert as_json.returncode == status
    (value,) = values_of(as_json.stdout)
    assert value["agrees"] is agrees
