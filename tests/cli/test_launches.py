"""The commands with FILE.py:FUNCTION: output, refusals and exit status."""

import re
from collections.abc import Mapping
from itertools import product
from typing import Any

import launched_kernels
import pytest
from in_process import refused, run
from stand_ins import GivenCompiler, values_of

from occupancy_lab.cli import main
from occupancy_lab.explaining import dry_run
from occupancy_lab.values import Resources, Target

FILE = launched_kernels.__file__
TYPES = "x_ptr=*fp16,y_ptr=*fp16,M=4096,N=i32"
LAUNCH = (f"{FILE}:transpose", "--signature", TYPES, "--constexpr", "BLOCK=64", "--gpu", "h100")
MOVED = ("--grid", "64x32", "--bytes-read", "16MiB", "--bytes-written", "M * BLOCK")


def outcome(keywords: Mapping[str, Any], target: Target) -> Resources | str:
    """Return a launch's outcome: 16 and 32 warps do not compile."""
    warps = keywords.get("num_warps", 4)
    if warps == 16:
        return "no luck"
    if warps == 32:
        return f"no luck on {target.name}"
    return Resources(8 * warps, warps, 0, local_bytes=0, instructions=90, binary=warps)


@pytest.fixture(autouse=True)
def _given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile nothing, and import the file of kernels in this process."""
    monkeypatch.setattr(dry_run, "Compiler", lambda *_, **__: GivenCompiler(outcome))


def test_explain_takes_what_describes_a_launch() -> None:
    """The explanation has the given grid, bytes and options."""
    done = run("explain", *LAUNCH, *MOVED, "--num-warps", "8", "--option", "maxnreg=64")
    assert done.returncode == 0, done.stderr
    for words in ("grid 64 x 32", "8, asked", "maxnreg 64", "us at peak (memory)"):
        assert words in done.stdout
    assert "4096" not in done.stdout
    assert done.stderr == ""


def test_explain_prints_json() -> None:
    """--json has the rows, with each argument as given, and the words."""
    values = values_of(run("explain", *LAUNCH, *MOVED, "--json").stdout)
    (row,) = values["records"]
    assert row["arguments"]["M"] == 4096
    assert row["arguments"]["N"] == "i32"
    assert row["grid"] == [64, 32]
    assert row["least_us"] > 0
    assert values["document"]["title"].startswith("transpose, grid 64 x 32")


def test_the_time_right_after_the_same_launch_is_asked_for() -> None:
    """--warm applies to the launch and to nearby ones, if they are counted."""
    done = run("explain", *LAUNCH, *MOVED, "--warm", "--json")
    (row,) = values_of(done.stdout)["records"]
    assert (row["warm"], row["predicted_us"]) == (True, None)
    page = " ".join(run("explain", *LAUNCH, *MOVED, "--warm").stdout.split())
    assert "No time is predicted, as its kernel's TTIR is not at hand" in page
    asked = {"signature": TYPES, "constexprs": "BLOCK=64", "grid": "64x32", "gpu": "h100"}
    found = dry_run.explain_launch(launched_kernels.transpose, **asked, warm=True)
    near = [one.record for one in found.cases[0].neighbours if one.record is not None]
    assert near
    assert all(record.launch.warm for record in near)
    both = (*LAUNCH, *MOVED, "--num-warps", "4,8", "--warm")
    rows = values_of(run("sweep", *both, "--json").stdout)
    assert [row["warm"] for row in rows] == [True, True]
    page = " ".join(run("compare", *both).stdout.split())
    assert "L2 cache before it filled by the same launch" in page


@pytest.mark.parametrize("command", ["explain", "compare"])
def test_what_never_compiles_is_one_sentence(command: str) -> None:
    """If no launch compiles, there is only the reason, once if it is the same on each GPU."""
    done = run(command, *LAUNCH, "--num-warps", "16")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "occupancy-lab: no luck\n"
    done = run(command, *LAUNCH[:-1], "h100,a100,h200", "--num-warps", "32")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "occupancy-lab: no luck on sm_90\n"


def test_a_sweep_of_which_nothing_compiles_has_its_rows() -> None:
    """Each launch has a row with its reason and the usual columns."""
    asked = ("sweep", *LAUNCH[:-1], "h100,a100", "--num-warps", "16,32", "--quiet")
    shown = run(*asked)
    assert (shown.returncode, shown.stderr) == (1, "")
    assert "4 configurations: 4 compile failed." in shown.stdout
    assert "no luck on sm_80" in shown.stdout
    done = run(*asked, "--json")
    rows = values_of(done.stdout)
    assert (done.returncode, len(rows)) == (1, 4)
    assert {(row["status"], row["occupancy"]) for row in rows} == {("compile failed", None)}
    chosen = run(*asked, "--where", "occupancy > 0.5", "--sort", "predicted_us")
    assert (chosen.returncode, chosen.stderr) == (1, "")
    assert "none meets --where" in chosen.stdout


def test_sweep_prints_csv() -> None:
    """A sweep of launches has a row for each, with unknown values empty."""
    done = run("sweep", *LAUNCH, "--num-warps", "4,8,16", "--csv", "--quiet")
    header, *rows = done.stdout.splitlines()
    assert len(rows) == 3
    place = header.split(",").index("num_programs")
    assert {row.split(",")[place] for row in rows} == {""}


@pytest.mark.parametrize(
    "words", [("explain", FILE), ("check", "n_regs < 9", FILE), ("sweep", FILE), ("compare", FILE)]
)
def test_a_file_without_a_function_has_its_functions_listed(words: tuple[str, ...]) -> None:
    """FILE.py alone is answered with its functions of Triton."""
    assert re.search("FILE.py:FUNCTION: .*transpose", refused(*words))


ONLY_MATRICES = "applies only to matrix kernels (--kernel); leave it out here"
REFUSED = {
    "explain --cols 781": f"--cols {ONLY_MATRICES}",
    "sweep --jobs 2": f"--jobs {ONLY_MATRICES}",
    "compare --block-size 64": f"--block-size {ONLY_MATRICES}",
    "explain --num-warps 6": "num_warps is '6'; give a power of two",
    "explain --option nope=1": "nope is neither a parameter of transpose",
    "explain --grid cdiv(N,BLOCK)": "the value of N is asked for",
    "explain --bytes-read -1": "--bytes-read",
    "tune --num-warps 4": "as no --grid is given; `sweep` lists these launches",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_a_launch_has_no_use_for_is_refused(words: str) -> None:
    """An option without effect on a launch, or a wrong value, is one sentence."""
    command, *options = words.split()
    assert REFUSED[words] in refused(command, *LAUNCH, *options)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *product(["explain", "sweep", "compare", "tune"], ["--signature", "--constexpr", "--grid"]),
        ("tune", "--option"),
    ],
)
def test_a_matrix_has_no_use_for_a_launch(command: str, option: str) -> None:
    """An option that describes a launch is refused beside --cols."""
    said = refused(command, "--cols", "781", option, "x=1")
    assert f"{option} describes the launch of a Triton function" in said


@pytest.mark.parametrize("command", ["explain", "sweep", "compare", "tune"])
def test_help_says_that_code_is_run(command: str) -> None:
    """Each command shows FILE.py:FUNCTION; explain says that its code is run."""
    usage = run(command, "--help").stdout
    assert "[FILE.py:FUNCTION]" in usage
    names = {one.name for one in main.commands[command].params}
    assert {"signature", "constexprs", "options", "grid"} <= names
    if command == "explain":
        assert "code is run on import" in " ".join(usage.split())
