"""The short explanation: golden files, its length, and its advice."""

import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from hand_made import rows
from samples import H100, H100_SINGLE, MI300X, MI300X_SINGLE
from stand_ins import CONDITIONS, MEASURED, recorded_launch

import occupancy_lab
from occupancy_lab.compiling import Store, resource_key
from occupancy_lab.compiling.process import CompileProcess, Request
from occupancy_lab.explaining.case import Case, Recorded, with_recorded
from occupancy_lab.explaining.commands import explain_command, tune_command
from occupancy_lab.explaining.explanation import write_full
from occupancy_lab.explaining.short import WORDS, write_short
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import chosen_kernels
from occupancy_lab.kernels.softmax import ALIKE
from occupancy_lab.sweeping.grid import grid_tasks
from occupancy_lab.sweeping.recorded import OTHER_SOFTMAXES
from occupancy_lab.text.printing import print_shown
from occupancy_lab.values import Config, Measurement, Problem

COUNTED = {"instructions": 90, "loop_instructions": 172, "async_copies": 4}
SINGLE = {"instructions": 40, "loop_instructions": 135, "async_copies": 0}
SPILLED = MI300X.replace(n_regs=128, num_warps=4, local_bytes=276, vgpr_spills=68, **SINGLE)
KNOBS = ("num_warps", "num_stages")
MOST_LINES = {1: 50, 2: 67}


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
    if not nvidia:
        return case
    recorded = dataclasses.replace(case.recorded, fastest=recorded_launch(6.2), number=30)
    return dataclasses.replace(case, recorded=recorded)


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
    matrix = dataclasses.replace(case.record.matrix, asked=frozenset({"num_warps"}))
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
    """Without neighbours, one GPU takes at most 50 lines of 80 columns, and two take 67."""
    problem, others = Problem(rows, cols, dtype), [*OTHER_SOFTMAXES.values()]
    for faster in (0, 1, len(others)) if kernel.startswith("softmax") else (0,):
        known = Recorded(MEASURED, copy=MEASURED, faster=dict.fromkeys(others[:faster], 12.2))
        of_each = {gpu: known if gpu in {"h100", "h200"} else Recorded() for gpu in gpus}
        cases = tuple(
            full_of_numbers(make_case, gpu, kernel=kernel, problem=problem, recorded=of_each[gpu])
            for gpu in gpus
        )
        lines = screen(tuple(dataclasses.replace(one, neighbours=()) for one in cases), capsys)
        assert len(lines) <= MOST_LINES[len(gpus)], "\n".join(lines)
        assert max(map(len, lines)) <= 80


def test_other_options_were_not_recorded(make_case: Callable[..., Case]) -> None:
    """A launch with further compiler options has no recorded time."""
    case = make_case("h200", H100.replace(**COUNTED))
    matrix = dataclasses.replace(case.record.matrix, options={"maxnreg": 32})
    other = dataclasses.replace(case, record=dataclasses.replace(case.record, matrix=matrix))
    for one, known in ((case, True), (other, False)):
        found = with_recorded(one)
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
    assert "`occupancy-lab tune --cols 93 --gpu h100` ranks other launches" in text


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
    for command, kernel in (
        (explain_command(case, "softmax_row", Config(1024, 4, 1)), "softmax_row"),
        (tune_command(case), path),
    ):
        words = shlex.split(command.strip("`"))
        options = dict(zip(words[2::2], words[3::2], strict=True))
        assert options["--kernel"] == kernel
        assert options["--dtype"] == "bfloat16"
        assert options["--rows"] == "512"
    assert options.keys() == {"--cols", "--rows", "--dtype", "--gpu", "--kernel"}
    words = shlex.split(explain_command(case, "softmax", Config(1024, 16, 1)).strip("`"))
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert (options["--num-warps"], options["--num-stages"]) == ("16", "1")
    assert "--block-size" not in options
