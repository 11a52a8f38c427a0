"""The command line as a user meets it: questions, answers and refusals."""

import json
import shlex
from pathlib import Path

import pytest
from in_process import refused, run


def json_of(*arguments: str) -> object:
    """Return the tool's output with --json."""
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_one_screen_by_default() -> None:
    """One GPU takes at most 71 lines and two 100; --full takes more, also in markdown."""
    for gpus, most in (("h100", 71), ("h100,mi300x", 100)):
        asked = ("explain", "--cols", "781", "--gpu", gpus)
        short, full = run(*asked, COLUMNS="80").stdout, run(*asked, "--full", COLUMNS="80").stdout
        assert short.count("\n") <= most < full.count("\n")
    markdown = run(*asked, "--format", "markdown").stdout
    assert "## The next step" not in markdown
    assert "## The next step" in run(*asked, "--format", "markdown", "--full").stdout
    assert {"short", "document"} < json_of(*asked).keys()


@pytest.mark.parametrize("beside", ["", "kernel.py:add --signature *fp32,4096", "--cols 781"])
def test_words_are_printed_beside_anything(beside: str) -> None:
    """`explain --words` prints only the glossary, whatever else is asked."""
    done = run("explain", *beside.split(), "--words")
    assert done.returncode == 0, done.stderr
    assert "waves of programs" in done.stdout


@pytest.mark.usefixtures("alone")
def test_gpus_may_be_repeated_or_listed() -> None:
    """Several GPUs are given with commas, with several options, or both."""
    values = json_of(
        "explain", "--cols", "100", "--gpu", "h100,gfx942", "--target", "hip:gfx1100:32"
    )
    assert [record["target"] for record in values["records"]] == ["sm_90", "gfx942", "gfx1100"]


@pytest.mark.usefixtures("alone")
def test_options_reach_the_compiler() -> None:
    """Rows, dtype, kernel, block size, warps and stages are as asked for."""
    options = "--rows 7 --dtype float16 --kernel softmax --block-size 2048 --num-warps 4"
    values = json_of(
        "explain", "--cols", "257", "--gpu", "h100", "--num-stages", "2", *options.split()
    )
    record = values["records"][0]
    asked = ("rows", "cols", "dtype", "kernel", "BLOCK_SIZE", "num_warps", "num_stages")
    assert [record[name] for name in asked] == [7, 257, "float16", "softmax", 2048, 4, 2]
    assert record["num_programs"] == 7


BAD = {
    "explain --cols 0": "cols is 0",
    "explain --cols many": "--cols",
    "explain": "--cols",
    "explain --cols 781 --gpu h10": "h100",
    "explain --cols 781 --kernel softmaxx": "softmax_row",
    "explain --cols 781 --kernel nowhere.py": "nowhere.py",
    "explain softmax --cols 781": "a kernel of the lab is given as --kernel",
    "occupancy": "--target",
    "occupancy --target sm_90 --n-regs -1 --shared 0 --num-warps 8": "n_regs is -1",
    "occupancy --points nowhere.csv": "nowhere.csv",
    "sweep --cols 781 --num-warps a": "whole numbers",
    "sweep --cols 781 --jobs 0": "--jobs",
    "explain --cols 781 --gpu h100 --triton newest": "neither a Triton version",
    "measure": "--cols",
    "report --json": "No such option",
    "scan /nowhere/at/all": "'/nowhere/at/all' is not a directory",
    "scan . --where 'n_reg > 3'": "the nearest is n_regs",
    "scan . --sort registers": "names no column",
    "scan . --export-csv /nowhere/x.csv": "there is no directory",
    "nonsense": "nonsense",
    "--nonsense": "--nonsense",
    "occupancy --points x.csv --n-regs 32": "--n-regs would be ignored beside --points",
    "sweep --cols 781 --devices all": "--devices would be ignored without --measure",
    "sweep --cols 781 --jobs 2 --scheduler tcp://x:1": "--jobs would be ignored beside --scheduler",
    "sweep --cols 781 --csv --json": "--csv and --json contradict each other",
    "tune --cols 781 --top 3 --json": "--top would be ignored beside --json without --measure",
    "tune --cols 781 --gpu h100 --gpu h200": "--gpu is given 2 times, and only one of them counts",
    "explain --cols 781 --json --format markdown": "--json and --format contradict each other",
    "evaluate --kernel kernel.py": "--kernel would be ignored without --file",
    "verify --ncu --no-ncu": "--ncu is given 2 times, and only one of them counts",
    "sweep --cols ''": "--cols is empty; give a value, or leave it out",
    "gpus ''": "NAMES is empty",
    "check '' a.json": "CONDITION or FILE is empty; give a value, or leave it out",
    "sweep --cols 781 --compile-timeout nan": "nan",
    "evaluate --max-median nan": "'nan' is not a number",
    "evaluate --file /dev/zero": "'/dev/zero' is not a regular file",
    "sweep --cols 781 --triton 3.6.0 --scheduler tcp://host:1": "--triton would be ignored",
    "trace --retry-failed python x.py": "--retry-failed would be ignored without --dry-run",
    "sweep --cols 781 --triton 3.6.0 --retry-failed": "--retry-failed would be ignored",
}


@pytest.mark.parametrize("command", BAD)
def test_bad_input_is_one_sentence(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad input gives exit 2, one line on standard error that helps, and nothing else.

    So does an option without effect, one that is given twice, against another, or empty.
    """
    (tmp_path / "x.csv").write_text(POINTS)
    monkeypatch.chdir(tmp_path)
    assert BAD[command] in refused(*shlex.split(command))


POINTS = "target,n_regs,shared,num_warps\nsm_90,32,12320,8\nmi300x,91,32,8\n"


def test_points_from_a_file_and_from_standard_input(tmp_path: Path) -> None:
    """A points file and `-` give the same rows with the documented columns."""
    file = tmp_path / "points.csv"
    file.write_text(POINTS)
    through_file = run("occupancy", "--points", str(file))
    through_input = run("occupancy", "--points", "-", text=POINTS)
    assert through_file.returncode == 0, through_file.stderr
    assert through_file.stdout == through_input.stdout
    header, nvidia, amd = through_file.stdout.splitlines()
    assert header == (
        "target,n_regs,shared,num_warps,programs_per_multiprocessor,limit_warps,limit_registers,"
        "limit_shared,limit_programs,limiter,occupancy,tutorial_programs"
    )
    assert nvidia == "sm_90,32,12320,8,8,8,8,17,32,warps+registers,1.0,8"
    # 91 VGPRs: with 96 of 512 a SIMD holds 5 waves, a CU 20: 2 programs; the tutorial says 4.
    assert amd == "mi300x,91,32,8,2,4,2,128,16,registers,0.5,4"


def test_gpus_lists_every_device() -> None:
    """`gpus` lists every device and, with a name, every number with its source."""
    listed = run("gpus").stdout
    assert all(name in listed for name in ("h100", "mi300x", "rx7900xtx", "gfx1250", "sm_121"))
    (gpu,) = json_of("gpus", "h100")["gpus"]
    assert gpu["numbers"]["multiprocessors"]["value"] == 132
    assert all(number["source"] for number in gpu["numbers"].values())


@pytest.mark.usefixtures("alone")
def test_cache_directory_is_used(tmp_path: Path) -> None:
    """--cache-dir keeps compiled kernels, and --no-cache keeps none."""
    asked = ("explain", "--cols", "100", "--gpu", "sm_90")
    run(*asked, "--cache-dir", str(tmp_path / "none"), "--no-cache")
    assert not list(tmp_path.rglob("*.json"))
    run(*asked, "--cache-dir", str(tmp_path / "kept"))
    assert list((tmp_path / "kept").rglob("*.json"))
