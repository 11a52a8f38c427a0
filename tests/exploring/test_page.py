"""The page in a real browser: its formulas are Python's, and its controls work."""

import csv
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Page
from click.testing import CliRunner

from occupancy_lab.cli import main
from occupancy_lab.explaining.limits import (
    _steps_table,
    held_in_short,
    step_sentences,
    tutorial_sentences,
)
from occupancy_lab.exploring.page import OPTIONAL, explore, optional_of
from occupancy_lab.gpus import find_gpu
from occupancy_lab.gpus.gpu import architectures, bare_gpus
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.occupancy.exact import exact_rules
from occupancy_lab.occupancy.rule import UNLIMITED, programs
from occupancy_lab.values import Resources

POINTS = 50_000
"""Points at which the page's limits are compared with Python's, over all architectures."""
SAID = 20
"""Points of each architecture at which sentences and cliffs are compared too."""
FIELDS = ("n_regs", "num_warps", "shared", "static_shared", *OPTIONAL)


def usages(name: str, count: int, seed: int) -> dict[str, np.ndarray[Any, Any] | None]:
    """Return random usages on the architecture *name* as columns, None for missing fields."""
    draw = np.random.default_rng(seed)
    near = draw.choice([0, 32, 8192, 65_536, 233_472], count) + draw.integers(-300, 300, count)
    columns: dict[str, np.ndarray[Any, Any] | None] = {
        "n_regs": draw.integers(0, 520, count),
        "num_warps": draw.integers(1, 33, count),
        "shared": np.where(
            draw.random(count) < 0.5, near.clip(0), draw.integers(0, 234_000, count)
        ),
        "static_shared": draw.choice([0, 0, 16, 4096], count),
        **dict.fromkeys(OPTIONAL),
    }
    most = {"barriers": 20, "tensor_memory": 600, "sgprs": 112, "allocated_vgprs": 520}
    for field in optional_of(architectures()[name]):
        if draw.random() < 0.7:
            columns[field] = draw.integers(0, most[field], count)
    return columns


class _Usage:
    """Columns as the attributes that a rule reads."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.agprs = None
        self.__dict__.update(columns)


WORK_OUT = """
(({name, columns, fields}) => {
  const architecture = occupancyLab.data.architectures[name];
  const count = columns.n_regs.length;
  const found = {};
  let least = [];
  for (let place = 0; place < count; place += 1) {
    const given = fields.map((name) => [name, columns[name] ? columns[name][place] : null]);
    const usage = Object.fromEntries(given);
    const { programs, limits, limiters } = occupancyLab.occupancyOf(architecture, usage);
    for (const limit of limits) (found[limit.resource] ??= []).push(limit.programs);
    least.push([programs, limiters.join("+")]);
  }
  return {found, least};
})(%s)
"""


def test_limits_are_pythons_at_50_000_points(page: Page) -> None:
    """Programs, limits and limiters of the page equal those of the rules at every point."""
    names = list(architectures())
    blocks = 4
    each = -(-POINTS // (len(names) * blocks))
    tried = 0
    for name in names:
        for block in range(blocks):
            columns = usages(name, each, seed=block)
            plain = {key: None if one is None else one.tolist() for key, one in columns.items()}
            asked = json.dumps({"name": name, "columns": plain, "fields": FIELDS})
            answer = page.value(WORK_OUT % asked)
            architecture = architectures()[name]
            expected = programs(exact_rules(architecture), _Usage(columns), architecture, np.where)
            limits = {
                resource: np.broadcast_to(limit, each) for resource, limit in expected.items()
            }
            assert list(answer["found"]) == list(limits)
            for resource, limit in limits.items():
                shown = [UNLIMITED if one is None else one for one in answer["found"][resource]]
                np.testing.assert_array_equal(shown, limit)
            least = np.minimum.reduce([*limits.values()])
            for place, (found, limiters) in enumerate(answer["least"]):
                assert found == least[place]
                binding = (one for one, limit in limits.items() if limit[place] == least[place])
                assert limiters == "+".join(binding)
            tried += each
    assert tried >= POINTS


SAY = """
(({name, all}) => all.map((usage) => {
  const said = occupancyLab.saidOf(name, occupancyLab.usageOf(usage));
  return {
    answer: said.answer(), next: said.nextProgram(), verdict: said.verdict(),
    rows: said.stepRows(), heads: said.stepHeads(),
    steps: said.occupancy.limits.map((limit) => [limit.resource, limit.programs, limit.steps]),
    options: said.steps.map((step) => step.option),
  };
}))(%s)
"""


def test_what_is_said_is_what_explain_says(page: Page) -> None:
    """Answer, arithmetic, cliffs, next program and verdict are explain's own sentences."""
    for seed, (name, gpu) in enumerate(bare_gpus().items()):
        columns = usages(name, SAID, seed)
        points = [
            {field: int(column[place]) for field, column in columns.items() if column is not None}
            for place in range(SAID)
        ]
        answers = page.value(SAY % json.dumps({"name": name, "all": points}))
        for point, said in zip(points, answers, strict=True):
            found = calculate(Resources(**point), gpu)
            assert held_in_short(found).partition("**: ")[2] == said["answer"]
            table = _steps_table(found)
            assert said["heads"] == list(table.headers)
            assert [tuple(row) for row in said["rows"]] == list(table.rows)
            assert [*step_sentences(found)] == [said["next"]]
            assert next(iter(tutorial_sentences(found))) == said["verdict"]
            assert said["steps"] == [
                [limit.resource, limit.programs, list(limit.steps)]
                for limit in found.occupancy.limits
            ]
            assert said["options"] == [step.option for step in found.next_steps]


def usage_of(page: Page, side: int = 0) -> dict[str, Any]:
    """Return the usage of a side's sliders."""
    return dict(page.value(f"occupancyLab.state.sides[{side}].usage"))


def test_a_drag_moves_the_programs(page: Page) -> None:
    """Dragging the register slider redraws programs, limiter and arithmetic within a frame."""
    assert page.text(".answer") == (
        "6 programs per SM, 48 of 64 warps (75%), limited by registers."
    )
    box = page.place("#n_regs-0-range")
    y = box["y"] + box["height"] / 2
    page.value(
        "globalThis.longest = 0; new PerformanceObserver((list) => { for (const entry of"
        " list.getEntries()) longest = Math.max(longest, entry.duration); })"
        ".observe({entryTypes: ['longtask']})"
    )
    page.mouse("Moved", box["x"] + 40, y, held=False)
    page.mouse("Pressed", box["x"] + 40, y)
    for x in range(40, int(box["width"] * 0.6), 9):
        page.mouse("Moved", box["x"] + x, y)
    page.mouse("Released", box["x"] + box["width"] * 0.6, y)
    page.drawn()
    usage = usage_of(page)
    assert usage["n_regs"] > 100
    found = calculate(Resources(**{**usage, "tensor_memory": None}), find_gpu("h100"))
    assert held_in_short(found).endswith(page.text(".answer").rstrip("."))
    assert page.text("#sides [data-resource=registers] .because") == "; ".join(
        found.occupancy.limit("registers").steps
    )
    assert page.text("#sides .limits .name") == "registers"


def test_a_drag_in_a_picture_moves_along_the_cliff(page: Page) -> None:
    """Pressing on the staircase of shared memory sets the amount at the pointer."""
    box = page.place("#cliff-shared-0 svg")
    x, y = box["x"] + box["width"] * 0.7, box["y"] + 90
    page.mouse("Moved", x, y, held=False)
    page.mouse("Pressed", x, y)
    page.mouse("Released", x, y)
    page.drawn()
    assert usage_of(page)["shared"] > 100_000
    assert page.text("#sides .limits .name") == "shared memory"


def test_a_link_shows_what_its_sender_saw(page: Page, file: Path) -> None:
    """The address restores the whole state of the page: GPUs, sliders, kernel and lesson."""
    page.choose("#beside", "mi300x")
    page.click("#step-6")
    page.choose("#beside", "mi300x")
    page.click("#together")
    page.choose("#shared-1", "4097", "input")
    state = page.value("occupancyLab.state")
    shown = page.text("main")
    address = page.value("location.hash.slice(1)")
    assert state["overfull"]
    assert state["lesson"] == 6
    assert state["sides"][1]["usage"]["shared"] == 4097
    assert state["sides"][0]["usage"]["shared"] == 12320
    page.open(file)
    assert page.value("occupancyLab.state") != state
    page.open(file, address)
    page.drawn()
    assert page.value("occupancyLab.state") == state
    assert page.text("main") == shown


@pytest.mark.parametrize(
    "address",
    ["", "main", "gpu=nosuch", "gpu=h100&regs=-5&warps=0", "gpu=h100&kernel=<b>/x/y/z/w&lesson=99"],
)
def test_an_address_that_makes_no_sense_is_passed_over(
    page: Page, file: Path, address: str
) -> None:
    """Invalid parts of an address are ignored, and the page opens."""
    page.open(file, address)
    page.drawn()
    assert re.match(r"\d+ programs? per SM", page.text(".answer"))


def test_the_command_says_the_same_in_a_terminal(page: Page) -> None:
    """The copied command runs: explain at a compiled kernel, otherwise occupancy."""
    page.call(
        "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    page.click("#copy-command")
    assert page.text("#copied") == "The command is copied."
    command = page.text("#command")
    assert command == (
        "occupancy-lab explain --cols 781 --gpu h100 --kernel softmax --dtype float32"
        " --num-warps 8 --num-stages 4"
    )
    page.choose("#beside", "b200")
    page.click("#together")
    page.choose("#n_regs-1", "77", "input")
    for place, one in enumerate(page.text("#command").split(" && ")):
        done = CliRunner().invoke(main, [*shlex.split(one)[1:], "--json"])
        assert done.exit_code == 0, done.output
        (found,) = json.loads(done.output)
        answer = page.value(f"document.querySelectorAll('.answer')[{place}].textContent")
        assert answer.startswith(f"{found['programs_per_multiprocessor']} program")


def test_the_keyboard_does_all(page: Page) -> None:
    """Arrows move a slider, Enter presses a button, and the focus stays."""
    page.value("document.querySelector('#n_regs-0-range').focus()")
    page.key("ArrowRight", 39)
    assert usage_of(page)["n_regs"] == 39
    page.value("document.querySelector('#num_warps-0-range').focus()")
    page.key("ArrowRight", 39)
    assert usage_of(page)["num_warps"] == 16
    page.value("document.querySelector('#step-7').focus()")
    page.key("Enter", 13, "\r")
    assert page.value("occupancyLab.state.lesson") == 7
    assert page.value("document.activeElement.id") == "step-7"
    page.value("document.querySelectorAll('#kernels button.sort')[7].focus()")
    page.key("Enter", 13, "\r")
    assert page.value("document.activeElement.textContent").startswith("predicted")


def test_two_gpus_take_what_each_compiles_to(page: Page) -> None:
    """On a second GPU the same kernel has its own registers and its own limiter."""
    page.choose("#beside", "mi300x")
    answers = page.value("[...document.querySelectorAll('.answer')].map((one) => one.textContent)")
    assert answers == [
        "6 programs per SM, 48 of 64 warps (75%), limited by registers.",
        "4 programs per CU, 32 of 32 waves (100%), limited by waves.",
    ]
    assert usage_of(page, 1)["n_regs"] != usage_of(page)["n_regs"]
    page.choose("#beside", "none")
    assert page.value("document.querySelectorAll('.answer').length") == 1


@pytest.mark.parametrize("gpu", ["gb10", "gfx1201", "sm_70", "rx7900xtx", "mi100", "b300"])
def test_every_kind_of_gpu_is_drawn(page: Page, gpu: str) -> None:
    """Each limit of each kind of GPU has its name and its picture."""
    page.choose("#gpu", gpu)
    found = page.value(
        "[...document.querySelectorAll('#sides .limit')].map((one) =>"
        " [one.dataset.resource, one.querySelector('.name').textContent])"
    )
    resources = Resources(
        **{name: value for name, value in usage_of(page).items() if value is not None}
    )
    limits = calculate(resources, find_gpu(gpu)).occupancy.limits
    assert [resource for resource, _ in found] == [limit.resource for limit in limits]
    assert "undefined" not in page.text("main")
    assert "NaN" not in page.value("document.querySelector('main').innerHTML")


def test_a_table_is_sorted_and_a_row_sets_the_sliders(page: Page) -> None:
    """A head sorts by its column both ways; the buttons of rows and cells set the sliders."""
    texts = (
        "[...document.querySelectorAll('#kernels tbody tr')]"
        ".map((row) => row.cells[%d].textContent)"
    )
    page.value("document.querySelectorAll('#kernels button.sort')[3].click()")
    page.drawn()
    up = [int(re.match(r"\d+", text)[0]) for text in page.value(texts % 3)]
    assert up == sorted(up)
    page.value("document.querySelectorAll('#kernels button.sort')[3].click()")
    page.drawn()
    assert [int(re.match(r"\d+", text)[0]) for text in page.value(texts % 3)] == up[::-1]
    page.click("#kernels tbody tr:first-child button")
    assert usage_of(page)["n_regs"] == up[-1]
    page.click("#heatmap tbody tr:first-child button")
    assert page.value("occupancyLab.state.kernel.num_warps") == 1
    assert page.text("#heatmap [aria-pressed=true]") == page.text("#heatmap tbody button")


def test_what_was_not_measured_says_so(page: Page) -> None:
    """Times of a GPU without measurements are marked, and those of other GPUs are not."""
    where = ("#kernels-hint", "#time-says", "#kernels")
    marks = ("Nothing was measured on MI300X", "which was not measured", "not measured")
    assert not any(mark in page.text(one) for mark, one in zip(marks[:2], where, strict=False))
    page.choose("#gpu", "mi300x")
    assert all(mark in page.text(one) for mark, one in zip(marks, where, strict=True))


def test_one_program_too_many_costs_what_the_model_says(page: Page) -> None:
    """The picture ends later by the predicted cost of the additional program."""
    page.click("#too-many")
    row = page.value(
        "(() => { const {columns: c, names: n} = occupancyLab.data.kernels; const at ="
        " c.cols.findIndex((cols, i) => n.gpu[c.gpu[i]] === 'h100' && cols === 781 && n.dtype"
        "[c.dtype[i]] === 'float32' && n.kernel[c.kernel[i]] === 'softmax' && c.num_warps[i] === 8"
        " && c.num_stages[i] === 4); return [c.predicted_us[at], c.overfull_us[at]]; })()"
    )
    before, longer = row
    assert f"{before:.1f} us become {before + longer:.1f} us" in page.text("#time-says")
    assert page.text("#timeline svg text:last-of-type") == f"{before + longer:.1f} us"


def test_passes_fill_the_predicted_time(page: Page) -> None:
    """Full passes are equally long, and the last one ends at the predicted time of the launch."""
    times = page.value(
        "[...document.querySelectorAll('#passes tbody tr')].map(({cells}) =>"
        " [1, 2].map((at) => parseFloat(cells[at].textContent)))"
    )
    *full, _ = [end - start for start, end in times]
    assert full == pytest.approx([full[0]] * 5, abs=0.11)
    assert f"The model predicts {times[-1][1]} us" in page.text("#time-says")


def test_the_launch_plays_pauses_and_steps(page: Page) -> None:
    """Play moves the time, pause stops it, and a step goes to the end of a pass."""
    page.click("#next-pass")
    first = page.text("#time-now")
    page.click("#next-pass")
    assert page.text("#time-now") != first
    page.click("#play")
    page.click("#play")
    held = page.text("#time-now")
    page.drawn()
    assert page.text("#time-now") == held
    page.click("#whole")
    assert page.text("#time-now") == ""


def test_without_motion_nothing_plays(page: Page, file: Path) -> None:
    """With reduced motion the whole launch is shown, without a button to play it."""
    page.look(1280, 900, still=True)
    page.open(file)
    assert page.value("document.querySelector('#play').hidden")
    assert "5 full passes, then a tail: 136 of 792 programs" in page.text("#time-says")


def test_every_step_of_the_lesson_sets_the_sliders(page: Page) -> None:
    """Each of the seven steps has complete text and sets the sliders to its kernel."""
    for number in range(1, 8):
        page.click(f"#step-{number}")
        text = page.text("#step")
        assert len(text) > 200
        assert not re.search(r"undefined|null|NaN|Infinity", text)
        assert page.text("#command").startswith("occupancy-lab explain")


NASTY = '</script><img src=x onerror="document.title=1">'


def test_rows_of_a_file_are_shown_as_they_are(page: Page, tmp_path: Path) -> None:
    """Rows of a file can be chosen like the others, and a name in it is text, never HTML."""
    with (tmp_path / "rows.csv").open("w", newline="") as rows:
        table = csv.DictWriter(rows, ["kernel", "target", "n_regs", "shared", "num_warps", "us"])
        table.writeheader()
        row = {"kernel": NASTY, "target": "gfx942", "n_regs": 70, "shared": 30_000, "num_warps": 4}
        table.writerow({**row, "us": 12.5})
    page.open(explore(tmp_path / "own.html", rows=tmp_path / "rows.csv"))
    assert page.text("#own tbody button") == NASTY
    page.click("#own tbody button")
    assert page.text(".answer") == "2 programs per CU, 8 of 32 waves (25%), limited by LDS."
    assert page.value("document.title") != "1"
    assert page.value("document.querySelectorAll('img').length") == 0


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 1920])
def test_nothing_is_wider_than_the_screen(page: Page, file: Path, width: int) -> None:
    """At any width the page scrolls only vertically."""
    page.look(width, 900)
    page.open(file, "gpu=h100,mi300x&regs=38,22&shared=12320,32&warps=8&lesson=5")
    page.drawn()
    assert page.value("document.documentElement.scrollWidth") <= width


def test_the_page_is_small_and_soon_there(page: Page, file: Path) -> None:
    """The file is below 1 MB, and it opens within seconds, even on a busy machine."""
    assert file.stat().st_size < 1_000_000
    timing = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
    assert page.value(timing) < 5000


def test_the_policy_lets_nothing_in(page: Page) -> None:
    """The page's policy refuses foreign scripts, styles and requests."""
    refused = page.value(
        "new Promise((done) => { document.addEventListener('securitypolicyviolation',"
        " (event) => done(event.effectiveDirective)); const script ="
        " document.createElement('script'); script.textContent = 'document.title = 1';"
        " document.head.append(script); })"
    )
    assert refused.startswith("script-src")
    assert page.value("fetch('https://example.com/').then(() => 'came', () => 'refused')") == (
        "refused"
    )
    page.complaints.clear()
    page.requests.clear()


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing(
    page: Page, file: Path, violations: Callable[[], Any], *, dark: bool
) -> None:
    """axe-core finds no violation in light and dark colours at both widths."""
    for width in (390, 1280):
        page.look(width, 900, dark=dark)
        page.open(file, "gpu=h100,mi300x&regs=38,22&shared=12320,32&warps=8&lesson=5&toomany=1")
        page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        page.drawn()
        assert violations() == []
