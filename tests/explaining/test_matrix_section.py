"""The section about a matrix has what only such a launch has, and general pages have none."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from samples import H100, H100_SINGLE
from simple_times import timed
from stand_ins import MEASURED, recorded_launch

import occupancy_lab
from occupancy_lab.compiled_records import records_of
from occupancy_lab.explaining.case import Case, Recorded
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.matrix_section import row_launch, the_matrix
from occupancy_lab.kernels.softmax import ALIKE
from occupancy_lab.sweeping import recorded
from occupancy_lab.sweeping.recorded import recorded_ranking
from occupancy_lab.text.words import change, microseconds
from occupancy_lab.tuning.choice import Tuning
from occupancy_lab.values import Config, Problem, Resources

COUNTED = H100.replace(instructions=90, loop_instructions=172, async_copies=4)
SINGLE = H100_SINGLE.replace(instructions=40, loop_instructions=135, async_copies=0)


def told(case: Case, *, full: bool = False) -> str:
    """Return the sentences of the section."""
    return "\n".join(the_matrix((case,), full=full).sentences)


def test_other_launches_have_no_such_section(make_case: Callable[..., Case]) -> None:
    """A launch that was not made from a matrix has no section about one."""
    case = make_case("h100", COUNTED)
    record = dataclasses.replace(case.record, matrix=None)
    section = the_matrix((dataclasses.replace(case, record=record),), full=True)
    assert (*section.tables, *section.sentences) == ()


@pytest.mark.parametrize(
    ("own", "us", "words"),
    [
        (None, 6.2, "The fastest of 30 launches recorded for this matrix is softmax_row, "),
        (12.4, 6.2, "num_stages 1: 6.20 us against 12.4 us (-50.0%). `occupancy-lab explain "),
        (12.4, 12.3, "None of 30 launches recorded for this matrix was noticeably faster"),
        (None, None, "`occupancy-lab tune --cols 781 --gpu h100` ranks other launches"),
    ],
)
def test_the_fastest_recorded_launch(
    own: float | None, us: float | None, words: str, make_case: Callable[..., Case]
) -> None:
    """It is named with its command if it is noticeably faster, and `tune` if none was recorded."""
    launch = None if own is None else dataclasses.replace(MEASURED, us=own)
    known = Recorded(launch, fastest=None if us is None else recorded_launch(us), number=30)
    assert words in told(make_case("h100", COUNTED, recorded=known))


@pytest.mark.parametrize("recorded_us", [None, 14.0])
@pytest.mark.parametrize("compiled", [True, False])
def test_one_program_per_row(
    recorded_us: float | None, *, compiled: bool, make_case: Callable[..., Case]
) -> None:
    """It has the predicted and the recorded time; there is no sentence without either."""
    other = None if recorded_us is None else dataclasses.replace(MEASURED, us=recorded_us)
    case = make_case("h100", COUNTED, SINGLE, recorded=Recorded(MEASURED, row_programs=other))
    parts = []
    if compiled:
        (found,) = records_of([row_launch(case)], [SINGLE], triton="3.7.1")
        case = dataclasses.replace(case, row_kernel=timed(found))
        us = case.row_kernel.prediction.us
        longer = change(us / case.record.prediction.us - 1)
        parts.append(f"{microseconds(us)} is predicted ({longer})")
    if recorded_us is not None:
        parts.append(f"14.0 us was recorded ({change(14.0 / 12.4 - 1)})")
    assert ("one program per row" in told(case)) is bool(parts)
    assert (
        f"softmax_row and num_warps 8, one program per row without a loop, {', '.join(parts)}."
        in told(case)
        or not parts
    )


def miscounted(make_case: Callable[..., Case], resources: Resources, **changes: object) -> Case:
    """Return a case of which 3 programs fit, where the tutorial's formula says 4."""
    resources = resources.replace(n_regs=56, shared=57376)
    problem, config = Problem(4096, 7168), Config(8192, 8, 3)
    return make_case("h100", resources, SINGLE, problem=problem, config=config, **changes)


@pytest.mark.parametrize("us", [None, 15.5])
@pytest.mark.parametrize("resources", [COUNTED, H100])
def test_the_tutorials_launch_is_told_once(
    make_case: Callable[..., Case], resources: Resources, us: float | None
) -> None:
    """One sentence has the predicted and the recorded time with the tutorial's num_programs."""
    other = None if us is None else dataclasses.replace(MEASURED, us=us)
    case = miscounted(make_case, resources, recorded=Recorded(MEASURED, tutorial=other))
    parts, found = [], case.record.tutorial_prediction
    if found is not None:
        longer = found.us / case.record.prediction.us - 1
        parts.append(f"{microseconds(found.us)} is predicted ({change(longer)})")
    if us is not None:
        parts.append(f"15.5 us was recorded ({change(15.5 / 12.4 - 1)})")
    sentence = (
        "With that formula, num_programs is 528, 132 more than fit, which wait until others have"
        f" finished all their rows{': ' if parts else ''}{', '.join(parts)}."
    )
    assert [one for one in told(case, full=True).splitlines() if "528" in one] == [sentence]


def test_programs_that_wait_for_each_other(make_case: Callable[..., Case]) -> None:
    """More programs than fit are refused and have no predicted time; the page speaks of pieces."""
    taken = SINGLE.replace(n_regs=145, num_warps=2, shared=8)
    case = make_case("h100", taken, kernel="softmax_cooperative", problem=Problem(4096, 50257))
    assert case.record.tutorial_plan.num_programs == 7 * 132
    assert case.record.tutorial_prediction is None
    text = told(case, full=True)
    assert "num_programs is 924, 132 more than fit: the driver refuses that" in text
    assert "Program p takes piece p first, and the programs take the others in turns" in text


def test_torch_operations_are_compared_by_what_they_move(make_case: Callable[..., Case]) -> None:
    """The full section has the elements and bytes that the naive softmax and this one move."""
    case = make_case("h100", COUNTED)
    (sentence,) = [one for one in told(case, full=True).splitlines() if "softmax_naive" in one]
    assert "reads 5MN + 2M elements (64.0 MB) and writes 3MN + 2M (38.4 MB)" in sentence
    assert "4.0 times the traffic of softmax, which reads MN elements (12.8 MB)" in sentence
    assert "softmax_naive" not in told(case)


def test_what_else_is_faster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A softmax recorded to be faster than the lab's is named by `explain` and `tune` alike."""
    own_us = recorded_ranking("h200", Problem(4096, 781), ALIKE)[0].measurement.us or 0.0
    package = recorded.files("occupancy_lab.recorded")
    monkeypatch.setattr(recorded, "files", lambda _package: tmp_path)
    for name in ("measured-h200.csv", "providers-h200.csv"):
        (tmp_path / name).write_bytes((package / name).read_bytes())

    def beside(date: str, us: float) -> tuple[Explanation, Tuning]:
        """Return `explain` and `tune` of the matrix after recording torch's time of that day."""
        with (tmp_path / "providers-h200.csv").open("a", encoding="utf-8") as file:
            file.write(f"4096,781,float32,torch,measured,,{us},,,30,0,False,NVIDIA H200,{date}\n")
        tuned = occupancy_lab.tune(781, gpu="h200", kernel="softmax_pieces", num_warps=[1])
        return occupancy_lab.explain(781, gpu="h200"), tuned

    explained, tuned = beside("2027-01-01", own_us - 0.5)
    sentence = (
        f"Recorded to be faster than any launch here: torch.softmax ({microseconds(own_us - 0.5)})."
    )
    assert tuned.to_document().answer[0] == sentence
    for page in (explained.to_document(), explained.to_document(full=True)):
        assert sentence in page.sections[-1].sentences
    (found,) = explained.to_dict()["recorded"]
    assert found["faster"] == tuned.faster == {"torch.softmax": own_us - 0.5}
    explained, tuned = beside("2027-01-02", own_us - 0.1)  # within the noise of recordings
    for page in (tuned.to_markdown(), explained.to_markdown(), explained.to_markdown(full=True)):
        assert "Recorded to be faster" not in page
    assert explained.to_dict()["recorded"][0]["faster"] == tuned.faster == {}


def test_the_steps_of_torch_operations() -> None:
    """The page of a kernel of torch operations has the traffic of each step."""
    explanation = occupancy_lab.explain(781, kernel="softmax_naive", gpu="h200")
    assert explanation.records == ()
    (section,) = explanation.to_document(full=True).sections
    (table,) = section.tables
    assert [row[0] for row in table.rows] == ["max", "subtract", "exp", "sum", "divide", "total"]
    assert table.rows[-1][1:3] == ("5MN + 2M", "3MN + 2M")
    assert table.rows[0][1:3] == ("MN", "M")
    assert "102 MB" in explanation.to_markdown()
