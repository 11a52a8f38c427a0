"""Predictions against measured times: which launches count, the report, and broken limits."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from stand_ins import UNLISTED, put_calibration, put_here

from occupancy_lab.errors import InputError
from occupancy_lab.evaluating import Evaluation
from occupancy_lab.evaluating.evaluation import (
    broken_limits,
    choose,
    evaluate,
    run,
    with_predictions,
)
from occupancy_lab.evaluating.score import METRICS
from occupancy_lab.gpus import find_gpu
from occupancy_lab.throughput.launch_time import basis_words
from occupancy_lab.throughput.rounds import launch_us

Table = Callable[..., pd.DataFrame]


H200 = find_gpu("h200")
TOO_LARGE = {
    "predicted_us": None,
    "cols": 16384,
    "BLOCK_SIZE": 16384,
    "num_warps": 32,
    "num_stages": 8,
}
"""A launch without a time in the table, which is compiled, and does not fit any GPU."""


def test_only_measured_launches_as_planned_count(make_table: Table) -> None:
    """Unplanned, unmeasured and providers' launches do not count."""
    table = make_table(
        {"predicted_us": 30.0},
        {"launched": 528},
        {"measured": "wrong result", "us": None},
        {"measured": None, "launched": None, "us": None, "num_programs": None},
        {"kernel": "copy", "num_programs": None, "num_warps": None, "BLOCK_SIZE": None},
    )
    (result,) = evaluate(table).results
    assert (result.launches, result.shapes, result.without_prediction) == (1, 1, 0)
    assert result.score.errors.median == pytest.approx(0.5)


def test_gpus_and_uses_are_apart(make_table: Table) -> None:
    """Each use of each GPU has a result, in the table's order."""
    table = make_table(
        {"use": "tuning"}, {}, {"num_warps": 8}, {"gpu": "h100"}, {"cols": 1000, "use": "tuning"}
    )
    results = evaluate(table).results
    assert [(one.gpu, one.use, one.launches, one.shapes) for one in results] == [
        ("h200", "tuning", 2, 2),
        ("h200", "held out", 2, 1),
        ("h100", "held out", 1, 1),
    ]
    assert results[0].title == find_gpu("h200").title


def test_rivals_by_hand(make_table: Table) -> None:
    """The prediction, the roofline and the occupancy choose as computed by hand."""
    other = {"kernel": "softmax_row", "num_programs": 1, "launched": 1}
    table = make_table(
        {"us": 10.0, "predicted_us": 12.0, "occupancy": 0.25},
        {"us": 20.0, "predicted_us": 11.0, "occupancy": 0.5, "num_warps": 8},
        {"us": 40.0, "predicted_us": 30.0, "occupancy": 1.0} | other,
        {"us": 16.0, "predicted_us": 20.0, "occupancy": 1.0, "num_warps": 16},
    )
    (result,) = evaluate(table).results
    prediction, roofline, occupancy = result.scores
    assert [one.name for one in result.scores] == ["prediction", "roofline", "highest occupancy"]
    assert prediction.mean_loss == pytest.approx(1.0)
    assert roofline.mean_loss == pytest.approx(0.0)
    floor = launch_us(H200) + 2 * 4096 * 1024 * 4 / H200.bandwidth_gbs / 1e3
    errors = [1 - floor / us for us in (10.0, 20.0, 40.0, 16.0)]
    assert roofline.errors.mean == pytest.approx(sum(map(abs, errors)) / 4)
    assert roofline.rank_correlation is None
    assert occupancy.mean_loss == pytest.approx(3.0)
    assert occupancy.errors is None
    assert occupancy.rank_correlation == pytest.approx(-0.6325, abs=1e-4)
    assert result.score == prediction


def test_perfect_model_has_nothing_to_be_said_against(make_table: Table) -> None:
    """Where the model's own times were measured there is no error, no loss and the same order.

    A table without predicted times has every launch compiled and counted.
    """
    knobs = [{"cols": cols, "num_warps": warps} for cols in (700, 1024) for warps in (1, 4, 16)]
    table = make_table(*knobs)
    table = table.drop(columns=["predicted_us", "bound"])
    table["us"] = with_predictions(table, {}, H200)["predicted_us"]
    (result,) = evaluate(table).results
    assert result.score.errors.p90 == pytest.approx(0, abs=1e-12)
    assert result.score.worst_loss == pytest.approx(0, abs=1e-12)
    assert result.score.rank_correlation == pytest.approx(1)
    assert result.basis == basis_words(H200)


def test_what_cannot_be_predicted_is_counted(make_table: Table) -> None:
    """A launch that cannot be compiled again counts as not predicted."""
    (result,) = evaluate(make_table({}, TOO_LARGE)).results
    assert (result.launches, result.without_prediction) == (1, 1)


def test_nothing_to_evaluate_is_said(make_table: Table) -> None:
    """Without measured or predicted launches the error says which are missing."""
    with pytest.raises(InputError, match="no launch was measured"):
        evaluate(make_table({"measured": "out of memory"}))
    with pytest.raises(InputError, match=r"1 launches .* h200"):
        evaluate(make_table(TOO_LARGE))


@pytest.mark.parametrize("device", [UNLISTED.title, "NVIDIA H100 ABC"])
def test_rows_of_a_gpu_that_no_table_has(
    make_table: Table, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """An unlisted GPU's rows are evaluated if this machine has the GPU."""
    put_here(monkeypatch, UNLISTED)
    table = make_table({"gpu": "sm_90", "device": device, "predicted_us": None})
    if device == UNLISTED.title:
        (result,) = evaluate(table).results
        assert (result.title, result.launches) == (UNLISTED.title, 1)
    else:
        with pytest.raises(InputError, match="no time is predicted of them on sm_90"):
            evaluate(table)


@pytest.fixture
def evaluation(make_table: Table) -> Evaluation:
    """Return the evaluation of four launches on two shapes, and an unpredicted one."""
    table = make_table(
        {"us": 10.0, "predicted_us": 10.2},
        {"us": 20.0, "predicted_us": 25.0, "num_warps": 8, "occupancy": 1.0},
        {"us": 31.0, "predicted_us": 31.0, "cols": 1000, "n_spills": 12},
        {"us": 10.0, "predicted_us": 12.0, "cols": 1000, "num_warps": 16, "num_stages": 2},
        TOO_LARGE,
    )
    return evaluate(table)


def test_words(evaluation: Evaluation, check_golden: Callable[[str, str], None]) -> None:
    """The text has scores beside rivals, errors by kind, and the worst launches."""
    check_golden("four_launches.md", evaluation.to_markdown())


def test_without_a_table_the_recorded_measurements_are_evaluated() -> None:
    """`evaluate()` does what the command does without options."""
    assert evaluate().results == run()[0].results


def test_a_screen_has_every_number_of_the_predictions(evaluation: Evaluation) -> None:
    """The short text has each number, and says where the rest is."""
    page = evaluation.to_document(full=False)
    (section,) = page.sections
    (table,) = section.tables
    assert [row[0] for row in table.rows] == [metric.words for metric in METRICS.values()]
    assert table.headers[1:] == ("H200 SXM, held out",)
    assert section.sentences[0] == (
        "The launches of held out were kept out of fitting, to test it."
    )
    assert "`--full` has" in section.sentences[1]
    assert page.answer == evaluation.to_document().answer
    assert len(page.to_markdown().splitlines()) < 20


@pytest.mark.parametrize("name", METRICS)
def test_broken_limit_is_said(evaluation: Evaluation, name: str) -> None:
    """A limit slightly beyond a number is broken, with one sentence that has both."""
    metric = METRICS[name]
    value = metric.read(evaluation.results[0].score)
    limit = value + (0.01 if metric.least else -0.01)
    (sentence,) = broken_limits(evaluation, {name: limit})
    assert metric.words in sentence
    assert f"is {value:.4g}" in sentence
    assert f"{limit:g} at {'least' if metric.least else 'most'}" in sentence


def test_unknown_number_keeps_no_limit(make_table: Table) -> None:
    """A single launch has no rank correlation, which breaks any limit on it."""
    evaluation = evaluate(make_table({}))
    (sentence,) = broken_limits(evaluation, {"rank": 0.5, "median": 0.1})
    assert sentence.endswith("the rank correlation is not known, and may be 0.5 at least")


OWN_KERNEL = """
import dataclasses
from occupancy_lab.kernels import softmax

KERNEL = dataclasses.replace(softmax.KERNEL, name="mine")
"""


@pytest.fixture
def own_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrate an H200 on this machine."""
    put_calibration(monkeypatch, tmp_path / "store")


def chosen(table: pd.DataFrame, *, gpus: tuple[str, ...] = (), uses: tuple[str, ...] = ()) -> list:
    """Return the uses and GPUs of the selected rows."""
    return list(choose(table, gpus, uses)[["gpu", "use"]].itertuples(index=False, name=None))


def test_rows_are_chosen(make_table: Table) -> None:
    """The default is all but the benchmark; otherwise GPUs and uses are selected."""
    table = make_table({"use": "tuning"}, {}, {"gpu": "h100", "use": "fresh"}, {"use": "benchmark"})
    assert chosen(table) == [("h200", "tuning"), ("h200", "held out"), ("h100", "fresh")]
    assert chosen(table, gpus=("NVIDIA H200",)) == [("h200", "tuning"), ("h200", "held out")]
    assert chosen(table, gpus=("h100,h200",), uses=("held out",)) == [("h200", "held out")]
    assert chosen(table, uses=("benchmark",)) == [("h200", "benchmark")]


@pytest.mark.usefixtures("own_calibration")
def test_what_is_left_out_is_said(make_table: Table, tmp_path: Path) -> None:
    """The report names omitted uses, and the option that selects them."""
    path = tmp_path / "own.csv"
    make_table({"use": "tuning"}, {"use": "benchmark"}).to_csv(path, index=False)
    evaluation, _ = run(file=str(path))
    assert evaluation.left_out == ("benchmark",)
    assert "`--use benchmark` takes them" in evaluation.to_markdown()
    evaluation, _ = run(file=str(path), uses=("benchmark",))
    assert evaluation.left_out == ()


def test_nothing_chosen_is_said(make_table: Table) -> None:
    """If no row is left, the error lists the existing ones."""
    with pytest.raises(InputError, match="there are: h200, held out"):
        choose(make_table({}), ("h100",), ())
    with pytest.raises(InputError, match="no column use"):
        choose(make_table({}).drop(columns="use"), (), ("tuning",))


@pytest.mark.usefixtures("own_calibration")
def test_file_is_evaluated(make_table: Table, tmp_path: Path) -> None:
    """A file is evaluated with this machine's calibration, and checked against limits."""
    table = make_table({"predicted_us": 21.0}, {"num_warps": 8}, {"launched": 132})
    table = table.drop(columns="use")
    table.to_csv(tmp_path / "own.csv", index=False)
    evaluation, broken = run(file=str(tmp_path / "own.csv"))
    assert broken == ()
    (result,) = evaluation.results
    assert (result.launches, result.use) == (2, "all")
    assert result.basis.startswith("what calibrate measured here")
    _, broken = run(file=str(tmp_path / "own.csv"), max_median=0.01, max_worst_loss=1e9)
    assert len(broken) == 1
    assert "median error" in broken[0]


@pytest.mark.usefixtures("own_calibration")
def test_kernel_of_a_file(make_table: Table, tmp_path: Path) -> None:
    """A user's kernel is evaluated if its file is named."""
    (tmp_path / "mine.py").write_text(OWN_KERNEL)
    make_table({"kernel": "mine"}).to_csv(tmp_path / "own.csv", index=False)
    evaluation, _ = run(file=str(tmp_path / "own.csv"), kernels=(str(tmp_path / "mine.py"),))
    assert evaluation.results[0].launches == 1
    with pytest.raises(InputError, match="'mine'"):
        run(file=str(tmp_path / "own.csv"))


def test_kernels_of_a_file_are_not_run(make_table: Table, tmp_path: Path) -> None:
    """A path in the column kernel is refused and not imported."""
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{OWN_KERNEL}")
    for name in (str(tmp_path / "mine.py"), f"{tmp_path / 'mine.py'}:KERNEL"):
        make_table({"kernel": name}).to_csv(tmp_path / "own.csv", index=False)
        with pytest.raises(InputError, match=r"own\.csv, line 2: kernel is .* one of softmax"):
            run(file=str(tmp_path / "own.csv"))
        with pytest.raises(InputError, match="no kernel"):
            evaluate(make_table({"kernel": name}))
    assert not (tmp_path / "ran").exists()
