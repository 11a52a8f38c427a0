"""A whole run of `evaluate`: what is read, what is chosen of it, and what is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from guesses import calibration

from occupancy_lab.errors import InputError
from occupancy_lab.evaluating.evaluation import evaluate
from occupancy_lab.evaluating.run import choose, run
from occupancy_lab.throughput import calibrations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pandas as pd

    Table = Callable[..., pd.DataFrame]

OWN_KERNEL = """
import dataclasses
from occupancy_lab.kernels import softmax

KERNEL = dataclasses.replace(softmax.KERNEL, name="mine")
"""


@pytest.fixture
def own_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have an H200 calibrated on this machine, with guessed constants."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "store"))
    calibration().write(calibrations.calibration_path("h200"))
    calibrations._calibrations.cache_clear()
    yield
    calibrations._calibrations.cache_clear()


def chosen(table: pd.DataFrame, *, gpus: tuple[str, ...] = (), uses: tuple[str, ...] = ()) -> list:
    """Return the uses and GPUs of the rows that are chosen."""
    return list(choose(table, gpus, uses)[["gpu", "use"]].itertuples(index=False, name=None))


def test_rows_are_chosen(make_table: Table) -> None:
    """All but the benchmark by default; else the GPUs, by any name, and the uses asked for."""
    table = make_table({"use": "tuning"}, {}, {"gpu": "h100", "use": "check"}, {"use": "benchmark"})
    assert chosen(table) == [("h200", "tuning"), ("h200", "held out"), ("h100", "check")]
    assert chosen(table, gpus=("NVIDIA H200",)) == [("h200", "tuning"), ("h200", "held out")]
    assert chosen(table, gpus=("h100,h200",), uses=("held out",)) == [("h200", "held out")]
    assert chosen(table, uses=("benchmark",)) == [("h200", "benchmark")]


def test_nothing_chosen_is_said(make_table: Table) -> None:
    """Where no row is left the error says which there are."""
    with pytest.raises(InputError, match="there are: h200, held out"):
        choose(make_table({}), ("h100",), ())
    with pytest.raises(InputError, match="no column use"):
        choose(make_table({}).drop(columns="use"), (), ("tuning",))


@pytest.mark.usefixtures("own_calibration")
def test_file_is_evaluated(make_table: Table, tmp_path: Path) -> None:
    """A file is evaluated with this machine's calibration, and held to the limits given."""
    table = make_table({}, {"num_warps": 8}, {"launched": 132}).drop(columns="use")
    table.to_csv(tmp_path / "own.csv", index=False)
    evaluation, broken = run(file=str(tmp_path / "own.csv"))
    assert broken == ()
    (result,) = evaluation.results
    assert (result.launches, result.use) == (2, "all")
    assert result.basis.startswith("calibrated on NVIDIA H200")
    _, broken = run(file=str(tmp_path / "own.csv"), max_median=0.0, max_worst_loss=1e9)
    assert len(broken) == 1
    assert "median error" in broken[0]


@pytest.mark.usefixtures("own_calibration")
def test_kernel_of_a_file(make_table: Table, tmp_path: Path) -> None:
    """Launches of one's own kernel are evaluated where its file is named."""
    (tmp_path / "mine.py").write_text(OWN_KERNEL)
    make_table({"kernel": "mine"}).to_csv(tmp_path / "own.csv", index=False)
    evaluation, _ = run(file=str(tmp_path / "own.csv"), kernels=(str(tmp_path / "mine.py"),))
    assert evaluation.results[0].launches == 1
    with pytest.raises(InputError, match="'mine'"):
        run(file=str(tmp_path / "own.csv"))


def test_kernels_of_a_file_are_not_run(make_table: Table, tmp_path: Path) -> None:
    """A path in the column kernel is refused, and what lies there is not imported."""
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{OWN_KERNEL}")
    for name in (str(tmp_path / "mine.py"), f"{tmp_path / 'mine.py'}:KERNEL"):
        make_table({"kernel": name}).to_csv(tmp_path / "own.csv", index=False)
        with pytest.raises(InputError, match=r"own\.csv, line 2: kernel is .* one of softmax"):
            run(file=str(tmp_path / "own.csv"))
        with pytest.raises(InputError, match="no kernel"):
            evaluate(make_table({"kernel": name}))
    assert not (tmp_path / "ran").exists()
