"""The rows of a report: recorded or from a file, of one GPU, with any text in them."""

from pathlib import Path

import pytest
from small_table import H200, row, rows, table_of

from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.reporting.chapters.benchmark import RIVALS, STYLES
from occupancy_lab.reporting.source import (
    MEASURED,
    PREDICTED,
    PROBLEM,
    file_source,
    make_source,
    recorded_source,
)
from occupancy_lab.sweeping.recorded import recorded_table


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return the path of the small table in a sweep's format."""
    path = tmp_path / "rows.csv"
    table_of(rows()).drop(columns="use").to_csv(path, index=False)
    return str(path)


def test_recorded_rows_are_an_h200s() -> None:
    """The default is the recorded H200, with the other implementations timed on it.

    Each of them has a curve and a name on the page.
    """
    found = recorded_source(None)
    for name in set(found.providers["provider"]):
        assert name in STYLES
        assert name in RIVALS
    assert found.gpu == H200
    assert found.times is MEASURED
    assert {"torch", "naive", "copy"} <= set(found.providers["provider"])
    assert set(found.table["use"]) == {"benchmark", "tuning", "held out", "fresh"}


SINGLE = {"problems": (PROBLEM,), "kernels": {"softmax": (1,)}, "num_warps": (4,)}
"""The part of the benchmark that is compiled here."""


@pytest.mark.parametrize("name", ["mi300x", "a100"])
def test_a_gpu_of_a_target_without_rows_is_compiled_for(name: str) -> None:
    """If no GPU of a target has rows, the benchmark is compiled for the named GPU."""
    found = recorded_source(name, **SINGLE)
    assert found.gpu == find_gpu(name)
    assert found.times is PREDICTED
    assert found.origin is None
    ((target, us, predicted_us),) = found.planned[["target", "us", "predicted_us"]].to_numpy()
    assert target == found.gpu.target.name
    assert us == predicted_us > 0


@pytest.mark.parametrize("name", ["sm_90", "gfx942"])
def test_an_architecture_is_no_gpu(name: str) -> None:
    """An architecture is refused, as it has no number of multiprocessors."""
    with pytest.raises(InputError, match=f"{name}.*, and nothing can be predicted"):
        recorded_source(name)


def test_a_gpu_of_a_target_with_rows_is_compiled_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of another GPU with the same target are shown beside the predictions."""
    table = recorded_table()
    some = table[table.index % 10 == 0]
    monkeypatch.setattr("occupancy_lab.reporting.source.recorded_table", lambda: some)
    found = recorded_source("gh200", **SINGLE)
    assert found.times is PREDICTED
    assert (found.gpu, found.origin.gpu) == (find_gpu("gh200"), find_gpu("h100"))
    assert found.measured.empty
    assert (
        len(found.planned) == len(found.predictions) == (found.table["status"] == "ok").sum() == 1
    )
    assert (found.planned["us"] == found.planned["predicted_us"]).all()


def test_file_names_its_own_gpu(file: str) -> None:
    """The only GPU of a file needs no name; any other name is refused."""
    assert file_source(file, None).gpu == file_source(file, "h200").gpu == H200
    with pytest.raises(InputError, match="launches were measured on: h200"):
        file_source(file, "h100")


def test_file_of_several_gpus_asks_which(tmp_path: Path) -> None:
    """A file of two GPUs needs the name of one, and only its rows are taken."""
    path = str(tmp_path / "rows.csv")
    table_of([row(), row(gpu="h100")]).to_csv(path, index=False)
    with pytest.raises(InputError, match=r"name a GPU.*h100, h200"):
        file_source(path, None)
    assert len(file_source(path, "h100").table) == 1


def test_file_without_times_is_an_error(tmp_path: Path) -> None:
    """A sweep without measurements is refused."""
    path = str(tmp_path / "rows.csv")
    table_of([row(measured="launch failed")]).to_csv(path, index=False)
    with pytest.raises(InputError, match="none was measured"):
        file_source(path, None)


@pytest.mark.parametrize(
    ("changes", "match"),
    [({"kernel": "mine"}, "line 3: kernel is 'mine'"), ({"dtype": "int8"}, "dtype is 'int8'")],
)
def test_strange_rows_are_refused(changes: dict[str, str], match: str, tmp_path: Path) -> None:
    """An unknown kernel or dtype is refused."""
    path = str(tmp_path / "rows.csv")
    table_of([row(), row() | changes]).to_csv(path, index=False)
    with pytest.raises(InputError, match=match):
        file_source(path, None)


def test_missing_conditions_are_named() -> None:
    """Rows without the conditions of their measurement are refused, naming the missing columns."""
    with pytest.raises(InputError, match="lacks the columns timer, l2"):
        make_source(H200, table_of([row()]).drop(columns=["timer", "l2"]), file="rows.csv")


@pytest.mark.usefixtures("no_times")
def test_nothing_is_claimed_without_a_time() -> None:
    """Without predicted times there are no claims and no error."""
    found = make_source(H200, table_of([row() | {"predicted_us": None}]))
    assert (len(found.planned), len(found.predictions)) == (1, 0)
