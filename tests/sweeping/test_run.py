"""A whole run of the sweep command with its exports and pictures."""

import dataclasses
from pathlib import Path

import pandas as pd
import pytest
from hand_made import executed, place, rows
from stand_ins import UNLISTED, put_here
from swept import run_sweep

from occupancy_lab.asked import Asked, ask
from occupancy_lab.cli import main
from occupancy_lab.compiled_records import records_of
from occupancy_lab.errors import InputError
from occupancy_lab.expressions import Kind
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.kernel import load_kernel
from occupancy_lab.sweeping.grid import make_table
from occupancy_lab.sweeping.run import sweep
from occupancy_lab.table.columns import COLUMNS, SWEEP_COLUMNS
from occupancy_lab.text.document import to_markdown
from occupancy_lab.values import Config, Failure, Problem, Resources, Status

GRID = {"cols": 781, "gpu": "h100,mi300x", "num_warps": (8, 32), "num_stages": (1, 2)}


def test_a_condition_that_no_row_meets_is_named() -> None:
    """A condition without any matching row is named, with the number of compiled rows."""
    swept = run_sweep(where="occupancy > 2", cols=781, gpu="h100", num_warps=(8,))
    said = to_markdown(swept.shown)
    assert said == "4 configurations: 4 ok; none meets --where 'occupancy \\> 2'.\n"
    assert swept.status == 0


def test_files_are_written_beside_the_table(tmp_path: Path) -> None:
    """Each export, and a heat map and curves for each GPU, are written as SVG and PNG."""
    exports = {f"export_{form}": str(tmp_path / form) for form in ("csv", "json", "markdown")}
    swept = run_sweep(**exports, plot=str(tmp_path / "plots"), **GRID)
    assert (swept.status, swept.complaints) == (0, ())
    assert "8 configurations" in to_markdown(swept.shown)
    assert all((tmp_path / form).stat().st_size for form in ("csv", "json", "markdown"))
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {
        f"{picture}-{gpu}.{suffix}"
        for picture in ("heatmap", "curves")
        for gpu in ("h100", "mi300x")
        for suffix in ("svg", "png")
    }


def test_a_gpu_that_no_table_has_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The basis of predictions names a GPU that is not in the table, and its curves are drawn."""
    put_here(monkeypatch, UNLISTED)
    asked = {"cols": 781, "gpu": None, "num_warps": (8,), "num_stages": (2,)}
    swept = run_sweep(plot=str(tmp_path), **asked)
    assert swept.status == 0
    shown = to_markdown(swept.shown)
    assert f"Times for {UNLISTED.title} rest on the data sheet and" in shown
    assert f"; no {UNLISTED.title} was measured." in shown
    assert (tmp_path / "curves-sm_90.svg").stat().st_size


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ({"where": "occupancy >"}, "--where"),
        ({"plot": "/dev/null/plots"}, "cannot be written"),
        ({"export_csv": "none/rows.csv"}, "no directory"),
        ({"export_csv": "rows", "export_json": "rows"}, "both name"),
        ({"export_json": "rows", "export_markdown": "./rows"}, "both name"),
        ({"export_csv": "plots/heatmap-h100.svg", "plot": "plots"}, "both name"),
        ({"export_csv": "mine.py", "kernel": "mine.py"}, "both name"),
    ],
)
def test_what_is_asked_is_checked_before_any_work(
    option: dict[str, object], word: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An invalid condition, order or file is an error before any compile."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plots").mkdir()
    monkeypatch.setattr("occupancy_lab.sweeping.run.sweep", pytest.fail)
    with pytest.raises(InputError, match=word):
        run_sweep(**GRID | option)


def test_one_failed_export_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If a folder disappears, only the exports into it fail, and the command exits with 2."""
    gone, kept = tmp_path / "gone", tmp_path / "kept"
    gone.mkdir()
    kept.mkdir()

    def swept(*asked: object, **options: object) -> pd.DataFrame:
        table = sweep(*asked, **options)
        gone.rmdir()
        return table

    monkeypatch.setattr("occupancy_lab.sweeping.run.sweep", swept)
    command = ["sweep", "--cols", "781", "--gpu", "h100", "--num-warps", "8", "--num-stages", "1"]
    paths = [gone / "rows.csv", kept / "rows.json", gone / "rows.md"]
    options = [f"--export-{kind}" for kind in ("csv", "json", "markdown")]
    for option, path in zip(options, paths, strict=True):
        command += [option, str(path)]
    with pytest.raises(SystemExit) as exit_:
        main([*command, "--plot", str(kept / "plots"), "--csv"])
    assert exit_.value.code == 2
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2
    assert captured.err == (
        f"occupancy-lab: {paths[0]} cannot be written: No such file or directory;"
        f" {paths[2]} cannot be written: No such file or directory\n"
    )
    assert (kept / "rows.json").stat().st_size
    assert list((kept / "plots").iterdir())


WHOLE = Resources(
    **{
        field.name: 1
        for field in dataclasses.fields(Resources)
        if field.name not in {"num_warps", "shared", "tensor_memory", "tensor_instructions"}
    },
    num_warps=4,
    shared=1024,
    tensor_memory=256,
    tensor_instructions=0,
)
"""Values of everything that a program can take."""


def asked(gpu: str) -> Asked:
    """Return the tutorial's launch at 781 columns on a GPU."""
    named = NamedKernel("softmax", load_kernel("softmax"))
    return ask(named, Problem(4096, 781), Config(1024, 4, 2), find_gpu(gpu))


def test_no_column_is_silently_empty() -> None:
    """Each column is filled if everything is known or a launch failed, with values of its type."""
    failure = Failure(Status.COMPILE_FAILED, "no such thing")
    runs = records_of([asked("b200"), asked("h100")], [WHOLE, failure], triton="3.7.1")
    counts, code = rows(4096, 781, 592), executed([place(3), place(20)], 8 * 4096)
    runs[0] = dataclasses.replace(runs[0], counts=counts, executed=code).with_time()
    table = make_table(runs)
    assert tuple(table) == SWEEP_COLUMNS
    empty = [name for name in SWEEP_COLUMNS if table[name].isna().all()]
    assert empty == []
    for name in SWEEP_COLUMNS:
        is_text = all(isinstance(value, str) for value in table[name].dropna())
        assert is_text == (COLUMNS[name].kind is Kind.TEXT), name
