"""The sentences on how long a launch takes follow from the record's numbers."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import H100, H100_SINGLE, MI300X, MI300X_SINGLE

from occupancy_lab.arguments import Pointer
from occupancy_lab.asked import ask
from occupancy_lab.compiled_records import compile_runs, with_counts
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.explaining import duration
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.duration import (
    programs_sentences,
    stages_sentences,
    stages_words,
    the_duration,
    why_no_time,
)
from occupancy_lab.explaining.explanation import make_cases
from occupancy_lab.gpus import devices, find_gpu
from occupancy_lab.inputs import chosen_kernel
from occupancy_lab.prediction import Part, Quotient
from occupancy_lab.text.words import change
from occupancy_lab.values import Config, Problem
from occupancy_lab.work.counts import Counts, Place, Unknown

COUNTED = H100.replace(instructions=90, loop_instructions=172, async_copies=4)
SINGLE = H100_SINGLE.replace(instructions=40, loop_instructions=135, async_copies=0)


@pytest.fixture
def timed(make_case: Callable[..., Case]) -> Case:
    """Return the tutorial's example."""
    return make_case("h100", COUNTED, SINGLE)


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
    record = make_case("h100", COUNTED.replace(n_regs=64), SINGLE).record
    own = record.prediction
    more = dataclasses.replace(own, us=own.us * factor)
    record = dataclasses.replace(record, with_others=dict.fromkeys(record.other_launches(), more))
    (sentence,) = programs_sentences(record, own)
    assert sentence.startswith(verdict)
    assert "with 5 programs per SM instead of 4" in sentence
    assert change(factor - 1) in sentence


@pytest.mark.parametrize(
    ("rows", "words"),
    [(100, "All programs run at once now"), (4096, "No more programs fit on an SM")],
)
def test_no_time_of_more_programs(rows: int, words: str, make_case: Callable[..., Case]) -> None:
    """A launch whose programs all run at once, or take all warps, has no time with more of them."""
    record = make_case("h100", COUNTED, SINGLE, problem=Problem(rows, 781)).record
    assert record.occupancy.occupancy == 1
    (sentence,) = programs_sentences(record, record.prediction)
    assert sentence.startswith(words)


@given(stages=st.integers(2, 9))
def test_two_stages_hide_nothing(stages: int) -> None:
    """Two stages hide no latency; with more, the work of stages - 2 other passes does."""
    words = stages_words(stages, "shared memory")
    assert ("hides none" in words) is (stages == 2)
    assert stages == 2 or f"work of {stages - 2} other pass" in words


def test_stages_are_told_where_they_change_the_binary(make_case: Callable[..., Case]) -> None:
    """One sentence says when a copy starts, and one what it takes; there is none for one stage."""
    one = Config(1024, 8, 1)
    for kernel in ("softmax", "softmax_row"):
        assert not list(stages_sentences(make_case("h100", SINGLE, kernel=kernel, config=one)))
    ahead, taken = stages_sentences(make_case("h100", COUNTED, SINGLE))
    assert ahead.startswith("num_stages 4 starts a copy into shared memory at the end of a pass")
    assert taken == (
        "With num_stages 1 it takes 32 B of shared memory instead of 12320 and 29 registers a"
        " thread instead of 32."
    )
    (words,) = stages_sentences(make_case("mi300x", MI300X, MI300X_SINGLE))
    assert words == "With num_stages 1 it takes 16 VGPRs a thread instead of 22."


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
    assert cases[0].with_one_stage.prediction == cases[1].record.prediction
