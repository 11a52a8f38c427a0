"""`check`: which rows meet a condition, and how the command ends."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from compiled_rows import compiled, failed
from hostile_files import HOSTILE, put, within

import occupancy_lab
from occupancy_lab.checking import check, read_checks
from occupancy_lab.cli import main
from occupancy_lab.errors import InputError

SPILLING = compiled("spilling", n_regs=255, local_bytes=152, num_warps=4)


def written(rows: Sequence[dict[str, Any]], name: str = "rows.json") -> str:
    """Return the path of a file with *rows*."""
    Path(name).write_text(json.dumps(list(rows)), encoding="utf-8")
    return name


def run(*arguments: str) -> Result:
    """Return how `occupancy-lab check` ends."""
    return CliRunner().invoke(main, ["check", *arguments])


def test_a_row_that_breaks_it_is_told_with_what_was_found() -> None:
    """A row that does not meet it ends with 1 and is named with the values of the condition.

    A condition that every row meets ends with 0.
    """
    done = run("local_bytes == 0", written([compiled(), compiled(num_warps=4)]))
    assert done.exit_code == 0
    assert "of 2 rows, 2 meet it" in done.output
    checked = check("occupancy >= 0.1 and local_bytes == 0", [compiled(), SPILLING])
    (finding,) = checked.findings
    assert checked.status == 1
    assert dict(finding.found) == {"occupancy": 0.125, "local_bytes": 152}
    assert finding.why == "occupancy is 0.125, local_bytes is 152"
    assert run("local_bytes == 0", written([SPILLING])).exit_code == 1


def test_the_words_of_a_gate(check_golden: Callable[[str, str], None]) -> None:
    """The page of a gate: what breaks it, and what would mend each row."""
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
def test_what_is_not_known_or_failed_does_not_pass(
    row: dict[str, Any], words: str, option: str
) -> None:
    """A row without the value, or that did not compile, breaks the check, unless it is let pass."""
    path = written([compiled(), row])
    done = run("local_bytes == 0", path)
    assert done.exit_code == 1
    assert words in done.output
    passed = run("local_bytes == 0", path, option, "ok")
    assert passed.exit_code == 0
    words = "1 meets it, 1 not known or without results, and let pass"
    assert words in " ".join(passed.output.split())


def test_what_was_never_compiled_is_counted_and_not_checked(tmp_path: Path) -> None:
    """Entries of a cache whose compile failed are no kernels: a gate says so and does not fail."""
    for name in ("A", "B"):
        (tmp_path / "cache" / name).mkdir(parents=True)
        (tmp_path / "cache" / name / "failed.ttir").write_text("module {}", encoding="utf-8")
    rows = written([compiled()])
    done = run("local_bytes == 0", rows, "cache")
    assert done.exit_code == 0, done.output
    assert "2 entries are no kernels and not checked: their compile did not end" in done.output
    assert json.loads(run("local_bytes == 0", rows, "cache", "--json").output)["not_compiled"] == 2
    alone = run("local_bytes == 0", "cache")
    assert alone.exit_code == 2
    assert "there are no rows to check in cache" in alone.stderr


def test_what_an_autotuner_would_not_launch_is_not_checked() -> None:
    """A configuration that is not expected breaks no check, is counted, and may mend the other."""
    rows = [compiled() | {"expected": True}, SPILLING | {"expected": False}]
    found = check("local_bytes == 0", rows)
    assert (found.status, found.not_launched) == (0, 1)
    assert "of 1 row, 1 meets it" in found.to_markdown()
    assert "Not checked: 1 row that an autotuner is not expected to launch." in found.to_markdown()
    rows = [SPILLING | {"expected": True}, compiled("spilling") | {"expected": False}]
    (finding,) = check("local_bytes == 0", rows).findings
    assert "num_warps 8 instead of 4" in finding.advice


def test_an_empty_gate_proves_nothing() -> None:
    """No rows at all, or none that the check is for, ends with 2 unless it is allowed."""
    for arguments in (
        [written([], "none.json")],
        [written([compiled()]), "--where", "n_regs > 99"],
    ):
        done = run("local_bytes == 0", *arguments)
        assert done.exit_code == 2, done.output
        assert "--allow-empty" in done.stderr
        assert run("local_bytes == 0", *arguments, "--allow-empty").exit_code == 0


def test_where_chooses_the_rows_and_keeps_what_is_not_known() -> None:
    """Rows that are not meant are left out; what is not known to be meant has to meet it too."""
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
        (["local_bytes == 0"], "give a FILE of rows, or --scan"),
        (["local_bytes == 0", "missing.json"], "No such file"),
        (["local_bytes == 0", "rows.json", "--where", "n_reg > 1"], "the nearest is n_regs"),
        (["local_bytes == 0", "rows.json", "--num-warps", "4"], "no FILE.py:FUNCTION is given"),
        (["local_bytes == 0", "rows.json", "--junit", "no/such.xml"], "no directory"),
        (["local_bytes == 0", "rows.json", "--sarif", "rows.json"], "both name rows.json"),
        (["local_bytes == 0", "rows.json", "--name", "gate"], "no place beside --name"),
        (["rows.jsn"], "no file or folder 'rows.jsn'"),
        (["--scan", "cache"], "no file or folder 'cache'"),
        (["rows.json"], "no pyproject.toml here or above"),
    ],
)
def test_what_cannot_be_asked_ends_with_2(arguments: list[str], words: str) -> None:
    """A condition, file or option that makes no sense is one sentence, and the status is 2."""
    written([compiled()])
    done = run(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


PYPROJECT = """
[tool.occupancy-lab.checks]
no-spills = "local_bytes == 0"

[tool.occupancy-lab.checks.full]
condition = "occupancy >= 0.7"
where = "gpu == 'h100'"
kernels = ["soft*"]
"""


def test_named_checks_are_found_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """All checks of the nearest pyproject.toml that has some are made, or those that are named."""
    Path("pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    deeper = Path("src/kernels")
    deeper.mkdir(parents=True)
    Path("src/pyproject.toml").write_text("[project]\n", encoding="utf-8")
    monkeypatch.chdir(deeper)
    path = written([compiled(), compiled("other", n_regs=255), SPILLING])
    done = run(path)
    assert done.exit_code == 1
    assert "no-spills: of 3 rows, 1 breaks it" in done.output
    assert "full: of 1 row, 1 meets it" in done.output
    assert run(path, "--name", "full").exit_code == 0
    assert run(path, "--name", "no-spills", "--name", "full").exit_code == 1
    missing = run(path, "--name", "ful")
    assert missing.exit_code == 2
    assert "the nearest is full" in missing.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool", "cannot be read"),
        ("[tool.occupancy-lab]\nchecks = 1", "holds no checks"),
        ("[tool.occupancy-lab.checks]", "holds no checks"),
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
    """What is wrong in pyproject.toml is said in one sentence, and the status is 2."""
    Path("pyproject.toml").write_text(text, encoding="utf-8")
    done = run(written([compiled()]))
    assert done.exit_code == 2
    assert re.search(words, done.stderr)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("what", HOSTILE)
def test_a_pyproject_that_is_no_file_is_not_waited_for(what: str) -> None:
    """A pipe, a device or a file of 2 GB in its place is refused in a sentence."""
    written([compiled()])
    put(what, Path("pyproject.toml"))
    with within(20):
        done = run("rows.json")
    assert done.exit_code == 2
    assert re.search(r"regular file|larger than", done.stderr)
    assert len(done.stderr.splitlines()) == 1


def test_sources_of_every_kind_are_one_table() -> None:
    """Files, tables and lists are checked together; what one of them lacks is not known."""
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
def test_of_an_autotuned_launch_one_configuration_is_checked() -> None:
    """A program is held to the configuration of each launch that is predicted to be the fastest."""
    path = Path(__file__).parents[2] / "examples" / "matmul.py"
    found = check("predicted_us < 200", f"{path}:main", gpu="h100")
    (row,) = found.outcomes[0].rows
    assert (found.status, found.not_launched, row.values["BLOCK_N"]) == (0, 3, 256)


@pytest.mark.slow
def test_launches_of_an_ordinary_function_are_rows(tmp_path: Path) -> None:
    """Each is compiled and named by its line; one that ends before all are known proves nothing."""
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
    """What a sweep prints can be piped into a check."""
    text = json.dumps([SPILLING])
    done = CliRunner().invoke(main, ["check", "local_bytes == 0", "-"], input=text)
    assert done.exit_code == 1
    assert "standard input" not in done.stderr


def test_read_checks_takes_a_folder(tmp_path: Path) -> None:
    """From Python, checks are read of a folder, and are what `check` takes."""
    (tmp_path / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    checks = read_checks(folder=tmp_path)
    assert [one.name for one in checks] == ["no-spills", "full"]
    assert check(checks, [compiled()]).status == 0
    assert check(checks, [compiled(n_regs=255)]).status == 1
    assert check(checks, [compiled(local_bytes=8)]).status == 1
    with pytest.raises(InputError, match="has no check 'x'"):
        read_checks(["x"], tmp_path)


def test_json_has_every_row_and_mend() -> None:
    """--json has the rows that break it, all of them, with what was found and the mend."""
    rows = [compiled(n_regs=40 + number, num_stages=1 + number) for number in range(30)]
    rows.append(compiled(n_regs=32, num_stages=1))
    done = run("occupancy > 0.99", written(rows), "--json")
    (found,) = json.loads(done.output)["checks"]
    assert (done.exit_code, found["rows"], len(found["findings"])) == (1, 31, 30)
    assert found["findings"][0]["mend"] is None
    assert found["findings"][1]["mend"]["changes"] == {"num_stages": 1}
    page = run("occupancy > 0.99", "rows.json").output
    assert "10 more; --json has them all" in page


@pytest.mark.slow
def test_a_gate_on_a_file_loads_nothing_heavy() -> None:
    """Rows of a file are checked without torch, triton, pandas or numpy."""
    path = written([compiled(num_stages=number) for number in range(1000)] + [SPILLING])
    code = f"""
import sys
from occupancy_lab.cli import main
try:
    main(["check", "local_bytes == 0", {path!r}])
except SystemExit as done:
    assert done.code == 1, done.code
print(*{{name.split('.')[0] for name in sys.modules}})
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}
    )
    heavy = {"torch", "triton", "pandas", "numpy", "matplotlib"}
    assert not heavy & set(done.stdout.splitlines()[-1].split())
