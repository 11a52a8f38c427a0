"""`check`: which rows meet a condition, and how the command ends."""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import in_process
import pytest
from compiled_rows import compiled, failed
from hostile_files import HOSTILE, put, within

import occupancy_lab
from occupancy_lab.checking.check import check
from occupancy_lab.checking.conditions import read_checks
from occupancy_lab.errors import InputError

run, refused = (partial(done, "check") for done in (in_process.run, in_process.refused))
SPILLING = compiled("spilling", n_regs=255, local_bytes=152, num_warps=4)


def written(rows: Sequence[dict[str, Any]], name: str = "rows.json") -> str:
    """Return the path of a file with *rows*."""
    Path(name).write_text(json.dumps(list(rows)), encoding="utf-8")
    return name


def test_a_row_that_breaks_the_check() -> None:
    """A row that breaks the condition is named with its values, and the status is 1, else 0."""
    done = run("local_bytes == 0", written([compiled(), compiled(num_warps=4)]))
    assert done.returncode == 0
    assert "of 2 rows, 2 meet it" in done.stdout
    checked = check("occupancy >= 0.1 and local_bytes == 0", [compiled(), SPILLING])
    (finding,) = checked.findings
    assert checked.status == 1
    assert dict(finding.found) == {"occupancy": 0.125, "local_bytes": 152}
    assert finding.why == "occupancy is 0.125, local_bytes is 152"
    assert run("local_bytes == 0", written([SPILLING])).returncode == 1


def test_golden_gate(check_golden: Callable[[str, str], None]) -> None:
    """The golden file has the page of a check: the rows that break it, and their fixes."""
    slow = compiled("softmax", num_warps=2, n_regs=56, shared=8)
    rows = [slow, compiled(n_regs=32, shared=8), SPILLING, failed(num_warps=16)]
    rows.append(compiled("matmul", n_regs=None))
    page = check("local_bytes == 0 and (occupancy >= 0.6 or n_regs > 64)", rows).to_markdown()
    check_golden("gate.md", page)


@pytest.mark.parametrize(
    ("row", "words", "option"),
    [
        (compiled("other", local_bytes=None), "local_bytes is not known", "--unknown"),
        (failed(), "no such thing", "--failures"),
    ],
)
def test_unknown_or_failed_rows_do_not_pass(row: dict[str, Any], words: str, option: str) -> None:
    """A row without the value, or that did not compile, fails the check unless the user allows."""
    path = written([compiled(), row])
    done = run("local_bytes == 0", path)
    assert done.returncode == 1
    assert words in done.stdout
    passed = run("local_bytes == 0", path, option, "ok")
    assert passed.returncode == 0
    words = "1 meets it, 1 not known or without results, which pass"
    assert words in " ".join(passed.stdout.split())


def test_failed_cache_entries_are_counted_and_not_checked(tmp_path: Path) -> None:
    """Cache entries whose compile failed are counted and do not fail the check."""
    for name in ("A", "B"):
        (tmp_path / "cache" / name).mkdir(parents=True)
        (tmp_path / "cache" / name / "failed.ttir").write_text("module {}", encoding="utf-8")
    rows = written([compiled()])
    done = run("local_bytes == 0", rows, "cache")
    assert done.returncode == 0, done.stdout
    assert "2 entries were not checked: their compiles did not finish" in done.stdout
    assert json.loads(run("local_bytes == 0", rows, "cache", "--json").stdout)["not_compiled"] == 2
    assert "there are no rows to check in cache" in refused("local_bytes == 0", "cache")


def test_unexpected_configurations_are_not_checked() -> None:
    """A configuration that is not expected fails no check, is counted, and may be a fix."""
    rows = [compiled() | {"expected": True}, SPILLING | {"expected": False}]
    found = check("local_bytes == 0", rows)
    assert (found.status, found.not_launched) == (0, 1)
    assert "of 1 row, 1 meets it" in found.to_markdown()
    assert "Not checked: 1 row that an autotuner is not expected to launch." in found.to_markdown()
    rows = [SPILLING | {"expected": True}, compiled("spilling") | {"expected": False}]
    (finding,) = check("local_bytes == 0", rows).findings
    assert "num_warps 8 instead of 4" in finding.advice


def test_an_empty_gate_proves_nothing() -> None:
    """No rows, or none that the check applies to, ends with 2 unless that is allowed."""
    for arguments in (
        [written([], "none.json")],
        [written([compiled()]), "--where", "n_regs > 99"],
    ):
        assert "--allow-empty" in refused("local_bytes == 0", *arguments)
        assert run("local_bytes == 0", *arguments, "--allow-empty").returncode == 0


def test_where_selects_the_rows() -> None:
    """Rows that `where` excludes are left out; rows for which it is not known are checked."""
    rows = [SPILLING, compiled(), failed()]
    (outcome,) = check("local_bytes == 0", rows, where="n_regs < 99", failures_ok=True).outcomes
    assert [row.kernel for row in outcome.rows] == ["softmax", "softmax"]
    assert not outcome.findings


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["local_byts == 0", "rows.json"], "the nearest is local_bytes"),
        (["local_bytes", "rows.json"], "a condition is expected"),
        (["__import__('os')", "rows.json"], "has no place in it"),
        (["local_bytes == 0"], "give a FILE of rows, --cols, or --scan"),
        (["local_bytes == 0", "missing.json"], "No such file"),
        (["local_bytes == 0", "rows.json", "--where", "n_reg > 1"], "the nearest is n_regs"),
        (["local_bytes == 0", "rows.json", "--num-warps", "4"], "describes a launch"),
        (["local_bytes == 0", "rows.json", "--junit", "no/such.xml"], "no directory"),
        (["local_bytes == 0", "rows.json", "--sarif", "rows.json"], "both name rows.json"),
        (["local_bytes == 0", "rows.json", "--name", "gate"], "no place beside --name"),
        (["rows.jsn"], "no file or folder 'rows.jsn'"),
        (["--scan", "cache"], "no file or folder 'cache'"),
        (["rows.json"], "no pyproject.toml here or above"),
        (
            ["n_regs > 9", "--rows", "7"],
            "--rows describes a launch; give FILE.py:FUNCTION, or --cols",
        ),
        (
            ["n_regs > 9", "a.py:f", "--cols", "7"],
            "--cols is another launch than that of a.py:f",
        ),
        (["n_regs > 9", "a.py:f", "--rows", "7"], "--rows applies only to matrix kernels"),
        (["n_regs > 9", "--cols", "7", "--grid", "7"], "describes the launch of a Triton function"),
    ],
)
def test_invalid_arguments_end_with_2(arguments: list[str], words: str) -> None:
    """An invalid condition or file, or an option without meaning, gives one sentence."""
    written([compiled()])
    assert words in refused(*arguments)


PYPROJECT = """
[tool.occupancy-lab.checks]
no-spills = "local_bytes == 0"

[tool.occupancy-lab.checks.full]
condition = "occupancy >= 0.7"
where = "gpu == 'h100'"
kernels = ["soft*"]
"""


def test_named_checks_are_found_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """All checks of the nearest pyproject.toml with checks are run, or the named ones."""
    Path("pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    deeper = Path("src/kernels")
    deeper.mkdir(parents=True)
    Path("src/pyproject.toml").write_text("[project]\n", encoding="utf-8")
    monkeypatch.chdir(deeper)
    path = written([compiled(), compiled("other", n_regs=255), SPILLING])
    done = run(path)
    assert done.returncode == 1
    assert "no-spills: of 3 rows, 1 breaks it" in done.stdout
    assert "full: of 1 row, 1 meets it" in done.stdout
    assert run(path, "--name", "full").returncode == 0
    assert run(path, "--name", "no-spills", "--name", "full").returncode == 1
    assert "the nearest is full" in refused(path, "--name", "ful")


def test_a_kernel_of_the_lab_is_checked_for_a_matrix() -> None:
    """--cols compiles it as `explain` does, with a row for each GPU."""
    done = run("n_regs < 9 or num_warps == 4", "--cols", "781", "--gpu", "h100", "--num-warps", "8")
    assert done.returncode == 1
    assert "of 1 row, 1 breaks it" in done.stdout
    done = run("n_regs > 9", "--cols", "781", "--gpu", "h100,mi300x", "--kernel", "softmax_row")
    assert "of 2 rows, 2 meet it" in done.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool", "cannot be read"),
        ("[tool.occupancy-lab]\nchecks = 1", "has no checks"),
        ("[tool.occupancy-lab.checks]", "has no checks"),
        ("[tool.occupancy-lab.checks]\na = 1", "has no condition"),
        ("[tool.occupancy-lab.checks.a]\nwhere = 'n_regs > 1'", "has no condition"),
        ("[tool.occupancy-lab.checks.a]\ncondition = '1 == 1'\nkernel = 'a'", "is kernels"),
        ("[tool.occupancy-lab.checks.a]\ncondition = '1 == 1'\nwhere = 1", "give a text"),
        ("[tool.occupancy-lab.checks.a]\ncondition = '1 == 1'\nkernels = [1]", "give a text"),
        ("[tool.occupancy-lab.checks]\na = 'n_regs >'", "check 'a': "),
        ("[tool.occupancy-lab.checks]\na = 'n_reg > 1'", "check 'a': .* nearest is n_regs"),
    ],
)
def test_a_wrong_pyproject_is_one_sentence(text: str, words: str) -> None:
    """An error in pyproject.toml gives one sentence and status 2."""
    Path("pyproject.toml").write_text(text, encoding="utf-8")
    assert re.search(words, refused(written([compiled()])))


@pytest.mark.parametrize("what", HOSTILE)
def test_a_pyproject_that_is_no_regular_file(what: str) -> None:
    """A pipe, a device or a file of 2 GB as pyproject.toml is refused in one sentence."""
    written([compiled()])
    put(what, Path("pyproject.toml"))
    with within(20):
        assert re.search(r"regular file|larger than", refused("rows.json"))


def test_sources_of_every_kind_are_one_table() -> None:
    """Files, tables and lists are checked together."""
    pandas = pytest.importorskip("pandas")
    path = written([compiled()])
    checked = occupancy_lab.check("n_regs < 99", path, pandas.DataFrame([SPILLING]), [compiled()])
    assert [one.row.kernel for one in checked.findings] == ["spilling"]
    assert repr(checked).startswith("<Checked: ")


SCRIPT = """
import torch
import triton
import triton.language as tl


@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + where, tl.load(x + where, mask=where < n) * 2, mask=where < n)


def main():
    x = torch.rand(1000, device="cuda")
    double[(8,)](x, 1000, BLOCK=128)
    double[(1,)](x, 1000, BLOCK=1024, num_warps=8)


def half():
    main()
    raise ValueError("no more")
"""


@pytest.mark.slow
def test_one_configuration_of_an_autotuned_launch_is_checked() -> None:
    """Only the configuration that is predicted to be fastest has to pass."""
    path = Path(__file__).parents[2] / "examples" / "matmul.py"
    found = check("predicted_us < 200", f"{path}:main", gpu="h100")
    (row,) = found.outcomes[0].rows
    assert (found.status, found.not_launched, row.values["BLOCK_N"]) == (0, 3, 256)
    (finding,) = check("occupancy >= 0.2", f"{path}:main", gpu="h100").findings
    assert finding.mend is not None
    assert finding.mend.changes == {"num_warps": 16}


@pytest.mark.slow
def test_launches_of_an_ordinary_function_are_rows(tmp_path: Path) -> None:
    """Each launch is compiled and identified by its line; a function that fails is refused."""
    path = tmp_path / "bench.py"
    path.write_text(SCRIPT, encoding="utf-8")
    checked = check("launched_warps < 8", f"{path}:main", gpu="h100,h200")
    (outcome,) = checked.outcomes
    assert [one.values["source"] for one in outcome.rows] == [f"{path}:{n}" for n in (15, 16)] * 2
    assert [one.row.values["gpu"] for one in outcome.findings] == ["h100", "h200"]
    assert {one.row.values["BLOCK"] for one in outcome.findings} == {1024}
    with pytest.raises(InputError, match=r"went no further than some of its launches: .*no more"):
        check("launched_warps < 8", f"{path}:half", gpu="h100")
    with pytest.raises(InputError, match="--signature has no use for"):
        check("launched_warps < 8", f"{path}:main", gpu="h100", signature="*fp32,1000")


def test_standard_input_is_a_file() -> None:
    """The output of a sweep can be piped into `check`."""
    done = run("local_bytes == 0", "-", text=json.dumps([SPILLING]))
    assert done.returncode == 1
    assert "standard input" not in done.stderr


def test_read_checks_takes_a_folder(tmp_path: Path) -> None:
    """`check` takes the checks that `read_checks` reads from a folder."""
    (tmp_path / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    checks = read_checks(folder=tmp_path)
    assert [one.name for one in checks] == ["no-spills", "full"]
    assert check(checks, [compiled()]).status == 0
    assert check(checks, [compiled(n_regs=255)]).status == 1
    assert check(checks, [compiled(local_bytes=8)]).status == 1
    with pytest.raises(InputError, match="has no check 'x'"):
        read_checks(["x"], tmp_path)


def test_json_has_every_finding() -> None:
    """--json has all rows that break the check, with their fixes; the page has the first 20."""
    rows = [compiled(n_regs=40 + number, num_stages=1 + number) for number in range(30)]
    rows.append(compiled(n_regs=32, num_stages=1))
    done = run("occupancy > 0.99", written(rows), "--json")
    (found,) = json.loads(done.stdout)["checks"]
    assert (done.returncode, found["rows"], len(found["findings"])) == (1, 31, 30)
    assert found["findings"][0]["mend"] is None
    assert found["findings"][1]["mend"]["changes"] == {"num_stages": 1}
    page = run("occupancy > 0.99", "rows.json").stdout
    assert "10 more; --json has them all" in page
