"""The sentences on how long a launch takes follow from the record's numbers."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import H100, H100_SINGLE
from stand_ins import MEASURED

from occupancy_lab.arguments import Pointer
from occupancy_lab.asked import ask
from occupancy_lab.compiled_records import compile_runs, with_counts
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.explaining import duration
from occupancy_lab.explaining.case import Case, Recorded
from occupancy_lab.explaining.duration import (
    otherwise,
    programs_sentences,
    rows_sentences,
    stages_sentences,
    stages_words,
    the_duration,
    why_no_time,
)
from occupancy_lab.explaining.explanation import make_cases
from occupancy_lab.gpus import devices, find_gpu
from occupancy_lab.inputs import chosen_kernel
from occupancy_lab.prediction import PARTS as UNITS
from occupancy_lab.prediction import Part, Prediction, Quotient
from occupancy_lab.text.words import change, microseconds
from occupancy_lab.values import Config, Problem, Resources
from occupancy_lab.work.counts import Counts, Place, Unknown

PARTS = ("launch", "latency", "issue", "bandwidth", "tail")
COUNTED = H100.replace(instructions=90, loop_instructions=172, async_copies=4)
SINGLE = H100_SINGLE.replace(instructions=40, loop_instructions=135, async_copies=0)


@pytest.fixture
def timed(make_case: Callable[..., Case]) -> Case:
    """Return the tutorial's example."""
    return make_case("h100", COUNTED, SINGLE)


def slower(
    case: Case, factor: float, *, parts: dict[str, float] | None = None
) -> dict[str, Prediction]:
    """Return every alternative to *case* with *factor* times its time and other *parts*."""
    own = case.record.prediction
    changed = dataclasses.replace(
        own,
        us=own.us * factor,
        parts=tuple(Part(part.name, (parts or {}).get(part.name, part.us)) for part in own.parts),
    )
    return dict.fromkeys(("more_programs", "single_stage", "row_programs"), changed)


def test_each_part_has_its_arithmetic(timed: Case) -> None:
    """The table of parts has each part's amount, its rate, and the source of the rate."""
    quotients = {
        "launch": Quotient(1.0, "launch", 0.5, "calibrate here"),
        "dispatch": Quotient(4096.0, "program", 1667.0, "launches on an H100"),
        "tensor": Quotient(31e3, "cycles", 1754.0, "the architecture's rates", 1e3),
        "bandwidth": Quotient(268e6, "B", 4.4e6, "0.92 of 4814 GB/s: the data sheet"),
        "tail": None,
    }
    parts = tuple(Part(name, 10.0, one) for name, one in quotients.items())
    prediction = dataclasses.replace(timed.record.prediction, parts=parts)
    record = dataclasses.replace(timed.record, prediction=prediction)
    table, *_ = the_duration((dataclasses.replace(timed, record=record),)).tables
    assert [row[2:] for row in table.rows] == [
        ("1 launch", "-", "calibrate here"),
        ("4096 programs", "1667 a us", "launches on an H100"),
        ("31 x 1.00 k cycles", "1754 MHz", "the architecture's rates"),
        ("268 MB", "4.40 TB/s", "0.92 of 4814 GB/s: the data sheet"),
        ("-", "-", "-"),
    ]
    assert {row[1] for row in table.rows} == {"10.0 us"}


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        (0.85, "Lower use of registers would make the kernel faster:"),
        (0.97, "Occupancy is not the limit"),
        (1.1, "Occupancy is not the limit"),
    ],
)
def test_occupancy_is_a_limit_where_more_helps(
    factor: float, verdict: str, make_case: Callable[..., Case]
) -> None:
    """Occupancy is called a limit only if one more program is predicted to be faster."""
    case = make_case("h100", COUNTED.replace(n_regs=64), SINGLE)
    (sentence,) = programs_sentences(case, slower(case, factor))
    assert sentence.startswith(verdict)
    assert "with 5 programs per SM instead of 4" in sentence
    assert change(factor - 1) in sentence


def test_no_work_for_more_programs(make_case: Callable[..., Case]) -> None:
    """If every row has its program from the start, no time with more programs is predicted."""
    case = make_case("h100", COUNTED, SINGLE, problem=Problem(100, 781))
    assert "more_programs" not in otherwise(case)
    (sentence,) = programs_sentences(case, otherwise(case))
    assert sentence.startswith("More resident programs would not help")


@pytest.mark.parametrize(("factor", "verdict", "sign"), [(0.85, "is", -1), (1.15, "is not", 1)])
@pytest.mark.parametrize("name", PARTS)
def test_the_part_that_differs_most_is_why(
    name: str, factor: float, verdict: str, sign: int, timed: Case
) -> None:
    """The reason is the part that changes most in the direction of the difference."""
    own = timed.record.prediction
    now, more = own.part(name).us, sign * 0.1 * own.us
    (sentence,) = rows_sentences(timed, slower(timed, factor, parts={name: now + more}))
    assert sentence.startswith(f"One program per row {verdict} better here")
    assert f" What differs most by itself: {UNITS[name]}, " in sentence
    assert sentence.endswith(f"against {microseconds(now)}.")


def test_an_unnoticeable_difference(timed: Case) -> None:
    """If the difference is not noticeable, one program per row is not called better or worse."""
    factor = 1 + timed.record.prediction.noticeable / 2
    (sentence,) = rows_sentences(timed, slower(timed, factor))
    assert sentence.startswith("The loop costs nothing here")


@pytest.mark.parametrize(("rows_us", "verdict"), [(11.0, "is better"), (14.0, "is not better")])
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_recorded_times_decide(rows_us: float, verdict: str, factor: float, timed: Case) -> None:
    """If both launches were recorded, the recorded times say which is better."""
    recorded = Recorded(MEASURED, None, dataclasses.replace(MEASURED, us=rows_us))
    case = dataclasses.replace(timed, recorded=recorded)
    (sentence,) = rows_sentences(case, slower(case, factor))
    assert sentence.startswith(f"One program per row {verdict} here")
    assert f"is predicted ({change(factor - 1)})" in sentence
    assert f"{microseconds(rows_us)} was recorded ({change(rows_us / 12.4 - 1)})" in sentence


def test_full_of_warps_no_more_programs_are_predicted(timed: Case) -> None:
    """If all warps are resident, the page says that no more programs fit."""
    others = otherwise(timed)
    assert timed.record.occupancy.occupancy == 1
    assert timed.calculation.next_programs is None
    assert "more_programs" not in others
    (sentence,) = programs_sentences(timed, others)
    assert sentence.startswith("No more programs fit on an SM")


TUTORIALS = "the tutorial's num_programs"


def miscounted(make_case: Callable[..., Case], resources: Resources, **changes: Any) -> Case:
    """Return a case of which 3 programs fit, where the tutorial's formula says 4."""
    resources = resources.replace(n_regs=56, shared=57376)
    problem, config = Problem(4096, 7168), Config(8192, 8, 3)
    return make_case("h100", resources, SINGLE, problem=problem, config=config, **changes)


@pytest.mark.parametrize("recorded", [None, 15.5])
@pytest.mark.parametrize("resources", [COUNTED, H100])
def test_the_tutorials_launch_is_told_once(
    make_case: Callable[..., Case], resources: Resources, recorded: float | None
) -> None:
    """One sentence has the predicted and the recorded time with the tutorial's num_programs."""
    other = None if recorded is None else dataclasses.replace(MEASURED, us=recorded)
    case = miscounted(make_case, resources, recorded=Recorded(MEASURED, tutorial=other))
    found, section = otherwise(case).get("tutorial"), the_duration((case,))
    parts = []
    if found is not None:
        longer = found.us / case.record.prediction.us - 1
        parts.append(f"{microseconds(found.us)} is predicted ({change(longer)})")
    if recorded is not None:
        parts.append(f"15.5 us was recorded ({change(recorded / 12.4 - 1)})")
    sentence = f"With the tutorial's 528 programs instead of 396, {', '.join(parts)}."
    said = [text for text in section.sentences if "tutorial" in text]
    assert said == ([sentence] if parts else [])
    names = {row[0] for table in section.tables for row in table.rows}
    assert (TUTORIALS in names) is (found is not None)


@given(stages=st.integers(2, 9))
def test_two_stages_hide_nothing(stages: int) -> None:
    """Two stages hide no latency; with more, the work on stages - 2 other rows does."""
    words = stages_words(stages, "shared memory")
    assert ("hides none" in words) is (stages == 2)
    assert stages == 2 or f"work on {stages - 2} other row" in words


def test_no_stages_no_sentence(make_case: Callable[..., Case]) -> None:
    """There is no sentence on stages for one stage or without a loop over rows."""
    config = Config(1024, 8, 1)
    for kernel in ("softmax", "softmax_row"):
        case = make_case("h100", SINGLE, SINGLE, kernel=kernel, config=config)
        others = otherwise(case)
        assert not list(stages_sentences(case, others))
        assert "single_stage" not in others


def test_not_known_says_why(make_case: Callable[..., Case]) -> None:
    """The sentence names the missing size or clock of the GPU, or instructions of the binary."""
    assert "is an architecture" in why_no_time(make_case("sm_90", COUNTED).record)
    assert "could not be counted" in why_no_time(make_case("h100", H100).record)
    for key, gpu in devices().items():
        sentence = why_no_time(make_case(key, COUNTED.replace(num_warps=4)).record)
        if gpu.multiprocessors is not None and gpu.boost_mhz is None:
            assert "clock" in sentence


@pytest.mark.parametrize(
    ("dtypes", "steers", "said"),
    [
        (
            ("int32",),
            "mask",
            "element, and `--assume t0=-2147483648..2147483647` draws each at random",
        ),
        (("uint8",), "branch", "`--assume t0=0..255` draws each at random"),
        (("bool",), "mask", "`--assume t0=0..1` draws each at random"),
        (("int32",), "address", "`--assume t0=64*i` gives offsets that are 64 apart"),
        (
            ("float32", "float32"),
            "branch",
            "`--assume t0=VALUE --assume t1=VALUE` give the value of each element",
        ),
    ],
)
def test_what_to_assume_fits_the_tensor(
    make_case: Callable[..., Case],
    monkeypatch: pytest.MonkeyPatch,
    dtypes: Sequence[str],
    steers: str,
    said: str,
) -> None:
    """Masks are drawn at random, addresses are apart, and one line has all tensors."""
    record = make_case("h100", COUNTED).record
    arguments = {f"t{place}": Pointer(dtype, 64) for place, dtype in enumerate(dtypes)}
    unknowns = tuple(Unknown(Place("k.py", 1), f"values of {one}", steers) for one in arguments)
    monkeypatch.setattr(duration, "is_open", lambda *_: True)
    changed = dataclasses.replace(
        record, counts=Counts(8, 8, unknowns=unknowns), arguments=arguments
    )
    assert why_no_time(changed).endswith(said)


@pytest.mark.usefixtures("alone")
def test_num_stages_1_is_predicted_as_its_own_record_is() -> None:
    """The time with num_stages 1 equals the prediction of a launch with num_stages 1."""
    compiler, cases = Compiler(None, threads=True), []
    for stages in (4, 1):
        config, gpu = Config(1024, 4, stages), find_gpu("h200")
        asked = ask(chosen_kernel("softmax"), Problem(4096, 781), config, gpu)
        runs = with_counts(compile_runs([asked], compiler), [asked], compiler)
        cases += make_cases([asked], runs, compiler, None, {})
    compiler.close()
    assert otherwise(cases[0])["single_stage"] == cases[1].record.prediction
