"""The short explanation: golden files, its length, and its advice."""

import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from hand_made import rows
from samples import H100, H100_SINGLE, MI300X, MI300X_SINGLE
from simple_times import timed
from stand_ins import CONDITIONS, MEASURED

import occupancy_lab
from occupancy_lab.compiled_records import records_of
from occupancy_lab.compiling import Store, resource_key
from occupancy_lab.compiling.process import CompileProcess, Request
from occupancy_lab.explaining import write_full
from occupancy_lab.explaining.advice import (
    advice,
    by_recorded,
    explain_command,
    launch_instead,
    tune_command,
    wanted_besides,
    with_alternatives,
)
from occupancy_lab.explaining.case import Alternative, Alternatives, Case, Recorded, with_recorded
from occupancy_lab.explaining.duration import otherwise
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.neighbours import Neighbour
from occupancy_lab.explaining.short import WORDS, write_short
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import chosen_kernels
from occupancy_lab.kernels.softmax import ALIKE
from occupancy_lab.record import Record
from occupancy_lab.sweeping import recorded
from occupancy_lab.sweeping.grid import grid_tasks
from occupancy_lab.sweeping.recorded import OTHER_SOFTMAXES, recorded_ranking
from occupancy_lab.text.printing import print_shown
from occupancy_lab.text.words import microseconds
from occupancy_lab.tuning import Tuning
from occupancy_lab.values import Config, Measurement, Problem

COUNTED = {"instructions": 90, "loop_instructions": 172, "async_copies": 4}
SINGLE = {"instructions": 40, "loop_instructions": 135, "async_copies": 0}
SPILLED = MI300X.replace(n_regs=128, num_warps=4, local_bytes=276, vgpr_spills=68, **SINGLE)
KNOBS = ("num_warps", "num_stages")
MOST_LINES = {1: 48, 2: 67}


def test_the_glossary_says_what_pages_show() -> None:
    """FLOPs are counted as docs/work.md has it, ranges as pages print them, the tail as a part."""
    assert "n - 1 of a reduction" in WORDS["FLOPs"]
    assert "±" not in " ".join(WORDS.values())
    assert "within the range in parentheses" in WORDS["predicted"]
    assert "first loads" not in WORDS["round, tail"]
    assert "first loads" in WORDS["parts of the time"]


def full_of_numbers(make_case: Callable[..., Case], gpu: str, **changes: object) -> Case:
    """Return a case with everything that a short explanation has words for."""
    nvidia = not gpu.startswith("mi")
    own, single = (H100, H100_SINGLE) if nvidia else (MI300X, MI300X_SINGLE)
    own = own.replace(n_regs=38) if nvidia else own
    case = make_case(
        gpu,
        own.replace(**(COUNTED if nvidia else SINGLE)),
        single.replace(**SINGLE),
        **changes,
    )
    problem = case.record.problem
    record = dataclasses.replace(case.record, counts=rows(problem.rows, problem.cols, 792))
    case = dataclasses.replace(case, record=record)
    fast = Alternative("softmax_row", Config(1024, 4, 1), 5.0, 6.2)
    found = Alternatives(fast, 30) if nvidia else Alternatives(tuned=38)
    return dataclasses.replace(case, alternatives=found)


def screen(cases: tuple[Case, ...], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines of a short explanation on a terminal of 80 columns."""
    print_shown(write_short(cases).blocks())
    return capsys.readouterr().out.splitlines()


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def test_golden_one_gpu(
    make_case: Callable[..., Case], check_golden: Callable[[str, str], None]
) -> None:
    """The page of one GPU has its knobs and their origin, occupancy, time, limits and advice."""
    known = Recorded(
        MEASURED, copy=dataclasses.replace(MEASURED, us=10.5), faster={"torch.compile": 10.2}
    )
    case = full_of_numbers(make_case, "h100", recorded=known)
    matrix = dataclasses.replace(case.matrix, asked=frozenset({"num_warps"}))
    case = dataclasses.replace(case, record=dataclasses.replace(case.record, matrix=matrix))
    check_golden("short_h100.md", write_short((case,)).to_markdown())


def test_golden_two_gpus(
    make_case: Callable[..., Case], check_golden: Callable[[str, str], None]
) -> None:
    """The page of two GPUs has them side by side, and limits have the names of both vendors."""
    cases = tuple(full_of_numbers(make_case, gpu) for gpu in ("h100", "mi300x"))
    check_golden("short_h100_and_mi300x.md", write_short(cases).to_markdown())


def test_golden_amd(
    make_case: Callable[..., Case], check_golden: Callable[[str, str], None]
) -> None:
    """The page of an AMD GPU has its vendor's terms and a failed measurement."""
    failed = Measurement("launch failed", CONDITIONS, "RuntimeError: no luck")
    case = full_of_numbers(make_case, "mi300x", measurement=failed)
    check_golden("short_mi300x.md", write_short((case,)).to_markdown())


def test_golden_spills(
    make_case: Callable[..., Case], check_golden: Callable[[str, str], None]
) -> None:
    """The page of a kernel that spills has its local memory."""
    case = make_case(
        "mi300x",
        SPILLED,
        SPILLED,
        problem=Problem(64, 32768, "float16"),
        config=Config(32768, 4, 2),
    )
    check_golden("short_spills.md", write_short((case,)).to_markdown())


CASES = [
    ("softmax", 4096, 781, "float32"),
    ("softmax", 4096, 784, "float16"),
    ("softmax", 8192, 8192, "bfloat16"),
    ("softmax", 100, 100, "float32"),
    ("softmax", 1_000_000, 12672, "float16"),
    ("softmax_row", 4096, 781, "float32"),
    ("softmax_row", 32768, 1023, "bfloat16"),
    ("vector_add", 1, 98432, "float32"),
]


@pytest.mark.parametrize(("kernel", "rows", "cols", "dtype"), CASES)
@pytest.mark.parametrize(
    "gpus", [("h100",), ("b200",), ("mi300x",), ("sm_90",), ("h100", "mi300x"), ("h200", "gfx1100")]
)
def test_it_fits_a_screen(  # noqa: PLR0913, PLR0917 - what a page depends on
    gpus: tuple[str, ...],
    kernel: str,
    rows: int,
    cols: int,
    dtype: str,
    make_case: Callable[..., Case],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without neighbours, one GPU takes at most 48 lines of 80 columns, and two take 67."""
    problem, others = Problem(rows, cols, dtype), [*OTHER_SOFTMAXES.values()]
    for faster in (0, 1, len(others)) if kernel.startswith("softmax") else (0,):
        known = Recorded(MEASURED, copy=MEASURED, faster=dict.fromkeys(others[:faster], 12.2))
        of_each = {gpu: known if gpu in {"h100", "h200"} else Recorded() for gpu in gpus}
        cases = tuple(
            full_of_numbers(make_case, gpu, kernel=kernel, problem=problem, recorded=of_each[gpu])
            for gpu in gpus
        )
        lines = screen(cases, capsys)
        assert len(lines) <= MOST_LINES[len(gpus)], "\n".join(lines)
        assert max(map(len, lines)) <= 80


def test_nothing_slower_is_advised(make_case: Callable[..., Case]) -> None:
    """Only a noticeably faster launch is suggested or launched instead."""
    case = full_of_numbers(make_case, "h100")
    prediction = case.record.prediction
    assert prediction is not None
    config = case.record.config
    for factor, advised in ((1.07, False), (0.995, False), (0.8, True)):
        rows = Alternative(
            "softmax_row", dataclasses.replace(config, num_stages=1), prediction.us * factor, 6.2
        )
        by_rows = dataclasses.replace(prediction, us=prediction.us * factor)
        found = dataclasses.replace(
            case,
            row_kernel=dataclasses.replace(case.record, prediction=by_rows),
            alternatives=Alternatives(rows, 30),
        )
        sentences = [one.sentence for one in advice(found)]
        assert any("One program per row" in text for text in sentences) is advised
        assert (launch_instead(found) is not None) is advised


def test_two_launches_are_compared_on_one_basis(make_case: Callable[..., Case]) -> None:
    """If both were recorded, recorded times decide, whatever is predicted; the words say which."""
    known = full_of_numbers(make_case, "h100", recorded=Recorded(MEASURED))
    unknown = full_of_numbers(make_case, "h100")
    config = Config(1024, 8, 1)  # of which no other num_stages is faster
    plain = full_of_numbers(make_case, "h100", config=config)
    timed_ = full_of_numbers(make_case, "h100", config=config, recorded=Recorded(MEASURED))
    for case, us, recorded_us, words in (
        (known, 50.0, 6.2, "Launch {} instead: 6.20 us recorded against 12.4 us (-50.0%), the"),
        (
            timed_,
            5.0,
            12.3,
            "Launch it as it is: none of 30 launches recorded for this matrix was",
        ),
        (
            unknown,
            5.0,
            6.2,
            "fastest of 30 launches recorded for this matrix; 5.00 us predicted against 15.8 us",
        ),
        (plain, 50.0, 6.2, "it is not predicted to be noticeably slower than the fastest of 30"),
        (unknown, None, 6.2, "The fastest of 30 launches recorded for this matrix is {}: 6.20 us."),
    ):
        fastest = Alternative("softmax_row", Config(1024, 4, 1), us, recorded_us)
        found = dataclasses.replace(case, alternatives=Alternatives(fastest, 30))
        sentence = by_recorded(found)
        assert words.format("softmax_row, num_warps 4, num_stages 1") in sentence


def test_the_fastest_neighbour_of_a_matrix_comes_first(make_case: Callable[..., Case]) -> None:
    """The fastest neighbour comes first, once, with its time and command.

    If the recordings say that nothing is faster, that sentence replaces it.
    """
    case = full_of_numbers(make_case, "h100")
    own = case.record.prediction
    quick = dataclasses.replace(own, us=own.us * 0.7, low_us=own.low_us * 0.7)
    config = dataclasses.replace(case.record.config, num_warps=4)
    record = dataclasses.replace(
        case.record, prediction=quick, matrix=dataclasses.replace(case.matrix, config=config)
    )
    faster = Neighbour({"num_warps": 4}, record)
    plain = dataclasses.replace(case, neighbours=(faster,), alternatives=Alternatives())
    said = write_short((plain,)).answer[0]
    assert said.startswith("**H100 SXM**: num_warps 4 instead of 8: ")
    assert f"predicted instead of {microseconds(own.us)}" in said
    assert said.endswith("`occupancy-lab explain --cols 781 --gpu h100 --num-warps 4`")
    assert write_short((plain,)).to_markdown().count("--num-warps 4") == 1
    best = Alternatives(Alternative("softmax_row", Config(1024, 8, 1), own.us, 12.3), 30)
    known = dataclasses.replace(plain, recorded=Recorded(MEASURED), alternatives=best)
    assert "Launch it as it is" in write_short((known,)).answer[0]
    assert "num_warps 4 instead of 8" not in write_short((known,)).to_markdown()


def with_compiled(case: Case, *failing: str, n_regs: int = 32, **others: int) -> Case:
    """Return *case* with the launches that its advice needs, except those of *failing* kernels."""
    found = {}
    for named, asked in wanted_besides(case).items():
        num_warps = asked.launch.options(asked.function)["num_warps"]
        taken = H100_SINGLE.replace(**SINGLE, n_regs=n_regs, num_warps=num_warps, **others)
        if asked.name not in failing:
            (record,) = records_of([asked], [taken], triton="3.7.1")
            found[named] = timed(record) if isinstance(record, Record) else record
    return with_alternatives(case, found)


def test_one_program_per_row_has_one_time(make_case: Callable[..., Case]) -> None:
    """One program per row has a predicted time if it compiles."""
    case = full_of_numbers(make_case, "b200")
    for failing in ((), ("softmax_row",)):
        found = with_compiled(case, *failing)
        assert ("row_programs" not in otherwise(found)) is bool(failing)


@pytest.mark.parametrize(("n_regs", "rows"), [(255, 4096), (32, 100_000)])
def test_one_program_per_row_is_suggested_if_faster(
    n_regs: int, rows: int, make_case: Callable[..., Case]
) -> None:
    """One program per row is suggested only if its predicted time is shorter."""
    own = H100.replace(**COUNTED, n_regs=n_regs)
    case = with_compiled(make_case("h100", own, problem=Problem(rows, 781)))
    assert case.row_kernel is not None
    times = [one.prediction and one.prediction.us for one in (case.record, case.row_kernel)]
    faster = times[1] < times[0]
    assert faster is (rows == 4096)
    for page in (write_short((case,)), write_full((case,))):
        assert ("--kernel softmax_row" in page.to_markdown()) is faster


@pytest.mark.parametrize(
    ("padded", "worth_it"),
    [({"n_regs": 32}, True), ({"n_regs": 255}, False), ({"n_regs": 32, "local_bytes": 8}, False)],
)
def test_padding_is_suggested_if_faster(
    padded: dict[str, int], *, worth_it: bool, make_case: Callable[..., Case]
) -> None:
    """A padded matrix is suggested only if it is predicted to be faster and does not spill."""
    case = with_compiled(make_case("h100", H100.replace(**COUNTED, n_regs=64)), **padded)
    for page in (write_short((case,)), write_full((case,))):
        text = page.to_markdown()
        assert ("can be padded with -inf to 784 columns" in text) is worth_it
        assert ("--cols 784" in text) is worth_it


def test_other_options_were_not_recorded(make_case: Callable[..., Case]) -> None:
    """A launch with further compiler options has no recorded time."""
    case = make_case("h200", H100.replace(**COUNTED))
    matrix = dataclasses.replace(case.matrix, options={"maxnreg": 32})
    other = dataclasses.replace(case, record=dataclasses.replace(case.record, matrix=matrix))
    for one, known in ((case, True), (other, False)):
        found = with_compiled(with_recorded(one))
        assert (found.recorded != Recorded()) is known
        for page in (write_short((found,)), write_full((found,))):
            assert ("recorded" in page.to_markdown()) is known


@pytest.mark.parametrize("gpu", ["h200", "mi300x"])
def test_the_answer_does_not_depend_on_the_store(
    gpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is the same with an empty store and with everything that `tune` compiles."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path))
    problem, store = Problem(4096, 781), Store(tmp_path)
    empty = occupancy_lab.explain(problem.cols, gpu=gpu)
    said = empty.to_markdown(), empty.to_dict()
    for task in grid_tasks(chosen_kernels(ALIKE), problem, find_gpu(gpu)):
        key = resource_key(task.function, task.launch, task.gpu.target)
        if store.get(key) is None:
            few = H100_SINGLE.replace(instructions=1, num_warps=task.matrix.config.num_warps)
            store.put(key, few)
    full = occupancy_lab.explain(problem.cols, gpu=gpu)
    assert (full.to_markdown(), full.to_dict()) == said


def test_another_number_of_programs_is_another_launch(make_case: Callable[..., Case]) -> None:
    """If another number of programs fits now, the recorded time is shown but not compared."""
    problem = Problem(4096, 1024)
    case = make_case("h200", H100.replace(**COUNTED), problem=problem, config=Config(1024, 8, 4))
    fastest = recorded_ranking("h200", problem, ALIKE)[0]
    assert (fastest.kernel, fastest.config) == ("softmax", Config(1024, 2, 1))
    sentence = by_recorded(with_compiled(case, n_regs=255))
    launch = f"softmax, num_warps 2, num_stages 1, {fastest.num_programs} programs: 11.5 us."
    assert f"The fastest of 38 launches recorded for this matrix is {launch}" in sentence
    recorded = Recorded(as_compiled=(fastest.num_programs, MEASURED), single_stage=MEASURED)
    other = dataclasses.replace(case, recorded=recorded)
    for page in (write_short((other,)), write_full((other,))):
        assert "recorded against" not in page.to_markdown()
        assert "% recorded)" not in page.to_markdown()
    assert "recorded time" not in write_short((other,)).to_markdown()


def test_what_else_is_faster_is_said_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A softmax recorded to be faster than the lab's comes first, in `explain` and `tune` alike."""
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
    assert explained.to_document().answer[0] == f"**H200 SXM**: {sentence}"
    full = explained.to_markdown(full=True)
    assert 0 < full.index(sentence) < full.index("Launch ")
    (found,) = explained.to_dict()["recorded"]
    assert found["faster"] == tuned.faster == {"torch.softmax": own_us - 0.5}
    explained, tuned = beside("2027-01-02", own_us - 0.1)  # within the noise of recordings
    for page in (tuned.to_markdown(), explained.to_markdown(), explained.to_markdown(full=True)):
        assert "Recorded to be faster" not in page
    assert explained.to_dict()["recorded"][0]["faster"] == tuned.faster == {}


def test_json_has_what_was_recorded() -> None:
    """JSON has the recorded launch and copy, and the share of a copy that the page shows."""
    explanation = occupancy_lab.explain(781, gpu="h200", num_warps=4, num_stages=1)
    (recorded,) = explanation.to_dict()["recorded"]
    assert recorded["launch"]["us"] == pytest.approx(11.008)
    share = recorded["copy"]["us"] / recorded["launch"]["us"]
    assert recorded["share_of_copy"] == pytest.approx(share)
    assert f"{share:.0%}, both recorded" in explanation.to_markdown()


def test_explain_compiles_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """`explain` compiles the launch, its neighbours and alternatives; `tune` compiles the rest."""
    asked = []
    compile_ = CompileProcess.compile

    def count(self: CompileProcess, request: Request, timeout: float | None) -> object:
        asked.append(request)
        return compile_(self, request, timeout)

    monkeypatch.setattr(CompileProcess, "compile", count)
    text = occupancy_lab.explain(93, gpu="h100", cache=False).to_markdown()
    named = [(one.kernel, *map(one.launch.keywords.get, KNOBS)) for one in asked]
    warps, stages = [(4, 4), (16, 4)], [(8, 1), (8, 3), (8, 5)]
    pairs = [(4, 1), (4, 3), (4, 5)]  # 16 warps alone are slower
    further = [(2, 1)]
    own = [("softmax", *knobs) for knobs in [(8, 4), *warps, *stages, *pairs, *further]]
    assert sorted(named) == sorted([*own, ("softmax_row", 8, 1), ("softmax", 8, 4)])
    tasks = grid_tasks(chosen_kernels(ALIKE), Problem(4096, 93), find_gpu("h100"))
    several = sum(task.why_not() is None for task in tasks)
    tune = "`occupancy-lab tune --cols 93 --gpu h100`"
    assert f"To find the fastest, {tune} compiles {several} configurations for this" in text


def test_commands_have_the_kernel_as_it_was_asked_for(
    make_case: Callable[..., Case], tmp_path: Path
) -> None:
    """A printed command has the kernel's path, the dtype, and every knob that was asked for."""
    case = full_of_numbers(
        make_case,
        "h100",
        problem=Problem(512, 781, "bfloat16"),
        config=Config(1024, 16, 3),
    )
    path = str(tmp_path / "my kernels" / "mine.py")
    case = dataclasses.replace(case, asked_kernel=path)
    for command in (explain_command(case), tune_command(case)):
        words = shlex.split(command.strip("`"))
        options = dict(zip(words[2::2], words[3::2], strict=True))
        assert options["--kernel"] == path
        assert options["--dtype"] == "bfloat16"
        assert options["--rows"] == "512"
    assert options.keys() == {"--cols", "--rows", "--dtype", "--gpu", "--kernel"}
    words = shlex.split(explain_command(case, num_stages=1).strip("`"))
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert (options["--num-warps"], options["--num-stages"]) == ("16", "1")


def test_the_steps_of_torch_operations() -> None:
    """The page of a kernel of torch operations has the traffic of each step."""
    explanation = occupancy_lab.explain(781, kernel="softmax_naive", gpu="h200")
    assert explanation.records == ()
    (section,) = explanation.document.sections
    (table,) = section.tables
    assert [row[0] for row in table.rows] == ["max", "subtract", "exp", "sum", "divide", "total"]
    assert table.rows[-1][1:3] == ("5MN + 2M", "3MN + 2M")
    assert table.rows[0][1:3] == ("MN", "M")
    assert "102 MB" in explanation.to_markdown()
