"""A sweep has a row for every configuration, compiles it once, and loses no finished work."""

import io
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from in_process import run
from processes import wait_until
from records import counted_record
from stand_ins import UNLISTED, put_here

import occupancy_lab
from occupancy_lab.compiling.process import CompileProcess, Request
from occupancy_lab.kernel import load_kernel
from occupancy_lab.sweeping.run import sweep
from occupancy_lab.table.columns import SWEEP_COLUMNS
from occupancy_lab.values import Config, Problem

GRID = {"gpu": "h100,mi300x", "num_warps": (4, 8), "num_stages": (1, 2)}
TOOL = Path(sys.executable).with_name("occupancy-lab")


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store that no other test uses."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the compiles that sweeps of the test make."""
    made: list[str] = []
    real = CompileProcess.compile

    def counted(process: CompileProcess, request: Request, timeout: float | None) -> object:
        made.append(str(request.key))
        return real(process, request, timeout)

    monkeypatch.setattr(CompileProcess, "compile", counted)
    return made


def test_every_configuration_is_a_row_in_order() -> None:
    """The table has the whole grid in its order, with the documented columns."""
    table = sweep(781, **GRID)
    assert list(table.columns) == list(SWEEP_COLUMNS)
    cells = table[["gpu", "num_warps", "num_stages"]].itertuples(index=False, name=None)
    assert list(cells) == list(itertools.product(("h100", "mi300x"), (4, 8), (1, 2)))
    assert (table["status"] == "ok").all()


def test_a_kernel_with_configs_is_swept_over_these() -> None:
    """Without a grid option the kernel's own configurations are swept; with one, the usual grid."""
    knobs = ["BLOCK_SIZE", "num_warps", "num_stages"]
    asked = {"gpu": "h100", "kernel": "softmax_pieces"}
    tuned = occupancy_lab.tune(781, **asked).table
    swept = sweep(781, **asked)
    assert {*swept[knobs].itertuples(index=False, name=None)} == {
        *tuned[knobs].itertuples(index=False, name=None)
    }
    assert len({*swept["BLOCK_SIZE"]}) > 1
    usual = sweep(781, **asked, num_stages=1)
    assert usual["num_warps"].tolist() == [1, 2, 4, 8, 16, 32]
    assert len({*usual["BLOCK_SIZE"]}) == 1


def test_a_gpu_that_no_table_has_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU at hand has its driver's numbers in every column, as in a record."""
    put_here(monkeypatch, UNLISTED)
    (row,) = sweep(781, num_warps=8, num_stages=2).to_dict("records")
    problem, config = Problem(4096, 781), Config(1024, 8, 2)
    record = counted_record(load_kernel("softmax"), problem, config, UNLISTED)
    assert row["predicted_us"] == pytest.approx(record.prediction.us)
    limits = row["predicted_low_us"], row["predicted_high_us"]
    assert limits == pytest.approx((record.prediction.low_us, record.prediction.high_us))
    assert row["basis"] == record.prediction.basis
    assert row["num_programs"] == record.plan.num_programs
    assert row["occupancy"] == record.occupancy.occupancy
    assert row["programs_per_multiprocessor"] == record.occupancy.programs_per_multiprocessor == 5


def test_a_row_is_what_a_record_says() -> None:
    """A row equals the record that explain makes of the same configuration."""
    table = sweep(781, **GRID)
    for row in table.to_dict("records"):
        knobs = {name.lower(): row[name] for name in ("BLOCK_SIZE", "num_warps", "num_stages")}
        record = occupancy_lab.explain(781, gpu=row["gpu"], **knobs).records[0].row()
        told = {name: None if pd.isna(value) else value for name, value in row.items()}
        assert told == {name: record[name] for name in told}


def test_bad_configurations_are_rows() -> None:
    """A configuration that is invalid or does not fit is a row with its reason."""
    table = sweep(12672, gpu="rtx4090", num_warps=(3, 8), num_stages=(1, 4))
    assert list(table["status"]) == ["skipped", "skipped", "ok", "does not fit"]
    assert "power of two" in table["reason"][0]
    assert "num_stages 2 is the most that can fit" in table["reason"][3]
    numbers = table.loc[[0, 1], ["n_regs", "num_programs", "occupancy"]]
    assert numbers.isna().all(axis=None)


def test_values_that_no_launch_takes_are_refused() -> None:
    """A sweep without a possible configuration is an error, as it is for explain."""
    done = run("sweep", "--cols", "781", "--gpu", "h100", "--num-warps", "3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "occupancy-lab: num_warps is 3; Triton takes a power of two\n"


def test_stages_that_cannot_be_are_rows_at_once(own_store: Path, compiled: list[str]) -> None:
    """Too many stages, or stages with too much memory, are rows with a reason, not compiled."""
    table = sweep(12672, gpu="h100", num_warps=(8,), num_stages=(2, 60, 20_000))
    assert list(table["status"]) == ["ok", "does not fit", "skipped"]
    assert "num_stages 4 is the most that can fit" in table["reason"][1]
    assert "at most 64" in table["reason"][2]
    assert len(compiled) == 1
    assert own_store.exists()


SWEEP = [
    *(TOOL, "sweep", "--cols", "781", "--rows", "99", "--gpu", "h100", "--csv"),
    *("--num-warps", "1,2,4,8", "--num-stages", "1,2,3"),
]
SWEPT = 12
"""The number of rows of SWEEP."""


def environment(store: Path) -> dict[str, str]:
    """Return an environment with its own store and Triton cache."""
    places = {"OCCUPANCY_LAB_CACHE_DIR": str(store), "TRITON_CACHE_DIR": str(store / "triton")}
    return os.environ | places


def entries(store: Path) -> int:
    """Return the compiles in the store."""
    return len(list(store.glob("resources/*/*.json")))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the output of SWEEP without a disturbance."""
    own = environment(tmp_path_factory.mktemp("calm"))
    return subprocess.run(SWEEP, env=own, capture_output=True, check=True).stdout


def test_ended_sweep_goes_on_from_the_store(tmp_path: Path, undisturbed: bytes) -> None:
    """Ctrl-C prints finished rows and marks the others interrupted; the next run has all rows."""
    with subprocess.Popen(
        SWEEP, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: entries(tmp_path) >= 3)
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "occupancy-lab: interrupted; what was finished is above\n"
    rows = pd.read_csv(io.StringIO(printed))
    assert len(rows) == SWEPT
    assert set(rows["status"]) == {"ok", "interrupted"}
    again = subprocess.run(SWEEP, env=environment(tmp_path), capture_output=True, check=True)
    assert again.stdout == undisturbed


def test_killed_sweeps_have_an_undisturbed_sweeps_rows(tmp_path: Path, undisturbed: bytes) -> None:
    """After kill -9 at later and later times, the next run has all rows."""
    for compiled in (1, 4):
        with subprocess.Popen(
            SWEEP, env=environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            wait_until(lambda compiled=compiled: entries(tmp_path) >= compiled, every=0.002)
            process.kill()
    again = subprocess.run(SWEEP, env=environment(tmp_path), capture_output=True, check=True)
    assert again.stdout == undisturbed


def test_all_bad_is_exit_1() -> None:
    """A sweep exits with 1 if no row is ok, otherwise with 0."""
    asked = ("sweep", "--cols", "12672", "--gpu", "rtx4090", "--num-warps", "8", "--quiet")
    assert run(*asked, "--num-stages", "4").returncode == 1
    assert run(*asked, "--num-stages", "1,4").returncode == 0
