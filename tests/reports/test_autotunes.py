"""What reports/record_autotunes.py makes of tunes, with launches that are not made."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import pytest
import record_autotunes
import torch
import triton
import triton.language as tl
from triton.compiler import CompiledKernel

from occupancy_lab.compiling.offline import offline
from occupancy_lab.gpus import find_gpu

if TYPE_CHECKING:
    from pathlib import Path

GPU = find_gpu("h100")


@triton.jit
def double(x_ptr, y_ptr, n, BLOCK_SIZE: tl.constexpr):  # noqa: ANN001, ANN201, N803 - a kernel
    """Double n elements, a block a program."""
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> record_autotunes.Case:
    """Return a tune of nine configurations, a third of which are different."""
    monkeypatch.setattr(CompiledKernel, "_init_handles", lambda _: None)
    monkeypatch.setattr(CompiledKernel, "run", property(lambda _: lambda *_, **__: None))
    x = torch.empty(2**20)
    swept = {"BLOCK_SIZE": (256, 512, 1024), "num_warps": (4,), "num_stages": (1, 2, 3)}
    return record_autotunes.Case(
        "double",
        double,
        record_autotunes.grid_of(swept),
        lambda meta: (triton.cdiv(2**20, meta["BLOCK_SIZE"]),),
        (x, x, 2**20),
        moved=(2**22, 2**22),
    )


def test_a_tune_is_recorded(case: record_autotunes.Case, tmp_path: Path) -> None:
    """A summary says what was dropped, launched and lost, and a row what each took."""
    with offline(GPU.target):
        summary, rows, tune = record_autotunes.record(case, dry=True)
        assert tune.serially() > 0
    assert (summary["status"], summary["configs"], summary["kept"]) == ("ok", 9, 3)
    assert (summary["equal"], summary["compiles"], summary["ranking"]) == (6, 9, "predicted time")
    assert summary["loss_top_1"] >= summary["loss_top_3"] == summary["prune_loss"]
    assert [row["status"] for row in rows].count("dropped") == 6
    assert {row["reason"][:21] for row in rows} == {"", "it is launched as BLO"}
    assert sorted(row["place"] for row in rows if row["place"]) == [1, 2, 3]
    record_autotunes.write(tmp_path, summary, rows)
    record_autotunes.export(tmp_path, "h100")
    with (tmp_path / "autotunes-h100.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 9


def test_what_was_cut_off_is_left_out(tmp_path: Path) -> None:
    """The last summary of a case counts, and a line that was cut off does not."""
    for status in ("not tried", "ok"):
        record_autotunes.write(tmp_path, {"case": "one", "status": status}, [])
    with (tmp_path / "autotunes.jsonl").open("a") as file:
        file.write('{"summary": {"case": "tw')
    assert record_autotunes.written(tmp_path) == ([{"case": "one", "status": "ok"}], [])


def test_losses_and_order() -> None:
    """The loss of the first k is that of the best of them; the order's correlation is ranks'."""
    times: dict[Any, float] = {"a": 2.0, "b": 1.0, "c": 4.0}
    assert record_autotunes.losses(["a", "c", "b"], times, 1.0) == {1: 1.0, 3: 0.0, 5: 0.0, 8: 0.0}
    assert record_autotunes.correlation({"a": 20.0, "b": 10.0, "c": 30.0}, times) == 1.0
    assert record_autotunes.correlation({"a": 1.0, "b": 1.0, "c": 1.0}, times) is None
