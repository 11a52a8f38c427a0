"""A kernel and its providers, timed in turns."""

from collections.abc import Callable

import pytest
from records import counted_record
from stand_ins import Launches

from occupancy_lab.errors import DoesNotFitError, InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.measuring.side_by_side import ALL, measure_side_by_side
from occupancy_lab.prediction import Part, Prediction
from occupancy_lab.record import Record
from occupancy_lab.values import Config, Problem

PROBLEM = Problem(4096, 781)
TIMES = {"torch": 15.2, "torch.compile": 9.6, "naive": 123.0, "copy": 8.0}


@pytest.fixture(autouse=True)
def _times(launches: Launches) -> None:
    """Give each provider a time of its own."""
    launches.times = lambda launch: TIMES.get(launch.kernel, 10.0)


def test_everything_is_one_problem_in_order(launches: Launches) -> None:
    """The kernel, the tutorial and the providers are launches on one matrix, in their order.

    Every softmax has to read and write it once; a share is of the copy's bandwidth.
    """
    found = measure_side_by_side(781)
    assert [row.provider for row in found.rows] == list(ALL)
    assert {problem for problem, _ in launches.asked} == {PROBLEM}
    names = [launch.kernel for _, launch in launches.asked]
    assert names == ["softmax", "softmax", *TIMES]
    assert all(launch.config is None for _, launch in launches.asked[2:])
    for row in found.rows:
        assert row.gbs == pytest.approx(2 * 4096 * 781 * 4 / row.measurement.us / 1e3)
        assert found.share_of_copy(row) == pytest.approx(8.0 / row.measurement.us)


@pytest.mark.parametrize("provider", ["tutorial", "torch", "torch.compile", "naive"])
def test_only_what_computes_the_same_is_compared(launches: Launches, provider: str) -> None:
    """No softmax is timed beside an addition, whose providers are named."""
    expected = f"{provider} computes a softmax.*vector_add.*providers are kernel and copy"
    with pytest.raises(InputError, match=expected):
        measure_side_by_side(781, kernel="vector_add", providers=("copy", provider))
    assert not launches.asked


def test_kernel_and_tutorial_are_launched_as_their_records_say(launches: Launches) -> None:
    """The tutorial is launched with its own choice and formula."""
    measure_side_by_side(781, rows=20_000, kernel="softmax_row", num_warps=2)
    kernel, tutorial = (launch for _, launch in launches.asked[:2])
    assert (kernel.kernel, kernel.config, kernel.num_programs) == (
        "softmax_row",
        Config(1024, 2, 1),
        20_000,
    )
    record = counted_record(
        load_kernel("softmax"), Problem(20_000, 781), Config(1024, 8, 4), find_gpu("h200")
    )
    assert (tutorial.kernel, tutorial.config) == ("softmax", record.config)
    assert tutorial.num_programs == record.tutorial_plan.num_programs


def test_predictions_are_of_what_is_launched(launches: Launches) -> None:
    """The kernel has its record's prediction, and a provider has none.

    How far off it is, and what it rests on, is said beside the time.
    """
    found = measure_side_by_side(781, num_warps=4, num_stages=1)
    record = counted_record(load_kernel("softmax"), PROBLEM, Config(1024, 4, 1), find_gpu("h200"))
    assert found.row("kernel").prediction == record.prediction is not None
    assert found.row("tutorial").prediction is not None
    assert found.row("copy").prediction is None
    text = found.to_markdown()
    assert f"{record.prediction.us / 10.0 - 1:+.1%}" in text
    assert f"Times for H200 SXM rest on {record.prediction.basis}; of kernels" in text
    assert launches.asked


def test_providers_are_chosen(launches: Launches) -> None:
    """Named providers are timed once each; without the copy there is no share of it."""
    found = measure_side_by_side(781, providers=("torch", "kernel", "torch"))
    assert [row.provider for row in found.rows] == ["torch", "kernel"]
    assert found.share_of_copy(found.rows[0]) is None
    assert len(launches.asked) == 2


def test_tutorial_that_does_not_fit_is_a_row(launches: Launches) -> None:
    """A tutorial launch that does not fit has a row that says so."""
    found = measure_side_by_side(65_536, num_warps=32, num_stages=1)
    row = found.row("tutorial")
    assert (row.measurement.status, row.measurement.us) == ("does not fit", None)
    assert "num_stages 1 is the most that can fit" in row.measurement.reason
    assert len(launches.asked) == len(ALL) - 1
    assert found.row("torch").measurement.us == 15.2
    with pytest.raises(DoesNotFitError):
        measure_side_by_side(65_536)


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"providers": ("cudnn",)}, "no provider 'cudnn'"),
        ({"rows": 0}, "rows is 0"),
        ({"kernel": "softmax_naive"}, "torch operations"),
        ({"num_warps": 3}, "power of two"),
        ({"num_warps": 4, "providers": ("copy",)}, "the kernel's, which is not to be timed"),
    ],
)
def test_nonsense_is_said_before_any_launch(
    launches: Launches, asked: dict[str, object], word: str
) -> None:
    """Invalid arguments are errors before any launch."""
    with pytest.raises(InputError, match=word):
        measure_side_by_side(781, **asked)
    assert launches.asked == []


def test_the_tutorials_time_is_of_what_it_launches(launches: Launches) -> None:
    """The tutorial's predicted time is for its own number of programs."""
    found = measure_side_by_side(500, providers=("kernel", "tutorial"))
    problem, config = Problem(4096, 500), Config(512, 8, 4)
    record = counted_record(load_kernel("softmax"), problem, config, find_gpu("h200"))
    kernel, tutorial = found.row("kernel"), found.row("tutorial")
    assert (kernel.num_programs, tutorial.num_programs) == (
        record.plan.num_programs,
        record.miscount,
    )
    assert kernel.prediction == record.prediction
    assert tutorial.prediction == record.tutorial_prediction is not None
    assert len(launches.asked) == 2


TAKEN = Prediction(
    us=9.5,
    gbs=2694.0,
    copy_gbs=2950.0,
    parts=(Part("launch", 3.0), Part("bandwidth", 6.5)),
    basis="the data sheet and launches of a test",
    calibrated=True,
    low_us=8.8,
    high_us=10.8,
)


def test_words_of_a_measurement(
    launches: Launches, check_golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The golden file has tables and sentences, also for a lost provider."""
    launches.times = lambda launch: {**TIMES, "torch.compile": None}.get(launch.kernel, 10.0)
    monkeypatch.setattr(Record, "time_with", lambda *_asked: TAKEN)
    check_golden("side_by_side.md", measure_side_by_side(781).to_markdown())


def test_what_has_no_predicted_time_is_measured(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a prediction cells are empty, and no basis is mentioned."""
    monkeypatch.setattr(Record, "time_with", lambda *_asked: None)
    found = measure_side_by_side(781, providers=("kernel", "copy"))
    assert found.row("kernel").prediction is None
    page = found.to_markdown()
    (row,) = (line for line in page.splitlines() if line.startswith("| kernel") and "792" in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["kernel", "8", "4", "792", "-", "-", "-", "10.0", "-"]
    assert "rest on" not in page
    assert "off is how far" not in page
    assert launches.asked


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_of_them_on_the_gpu_here(dtype: str) -> None:
    """On a real GPU every provider is right and has a time."""
    found = measure_side_by_side(1000, dtype=dtype, cache=False)
    assert [row.measurement.status for row in found.rows] == ["measured"] * len(ALL)
    assert all(row.measurement.relative_error is not None for row in found.rows)
    assert found.share_of_copy(found.row("kernel")) < 1.3
