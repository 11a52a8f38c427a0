"""`check --baseline`: conditions that compare with the same rows of another file."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import in_process
import pytest
from compiled_rows import compiled, failed

from occupancy_lab.checking.check import check
from occupancy_lab.checking.conditions import Check, read_checks
from occupancy_lab.errors import InputError
from occupancy_lab.table.rows import FORMS

run, refused = (partial(done, "check") for done in (in_process.run, in_process.refused))
SLOWER = "predicted_us <= baseline * 1.05"


def timed(kernel: str = "softmax", us: float | None = 10.0, **changes: Any) -> dict[str, Any]:
    """Return a row with a predicted time."""
    return compiled(kernel, **{"n_regs": 32, "predicted_us": us, **changes})


def traced(us: float, **changes: Any) -> dict[str, Any]:
    """Return a row of a trace with this time."""
    return timed(us=us, launches=10, grids=1, expected=True, **changes)


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_row_is_compared_with_the_same_row_of_another_file(form: str) -> None:
    """The page has both values, and within the limit the check holds."""
    for name, us in (("base", 10.0), ("slow", 15.1), ("fine", 10.4)):
        rows = [timed(us=us), timed("other")]
        Path(f"{name}.{form}").write_text(FORMS[form]([*rows[0]], rows), encoding="utf-8")
    done = run(SLOWER, f"slow.{form}", "--baseline", f"base.{form}")
    assert done.returncode == 1, done.stderr
    words = " ".join(done.stdout.split())
    assert "of 2 rows, 1 breaks it" in words
    assert "softmax on h100: predicted_us is 15.1, baseline is 10." in words
    assert run(SLOWER, f"fine.{form}", "--baseline", f"base.{form}").returncode == 0


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("predicted_us <= baseline * 1.05", 1),
        ("baseline * 0.9 < predicted_us < baseline * 1.6", 0),
        ("n_regs <= baseline and occupancy >= baseline", 0),
        ("predicted_us <= 100 or predicted_us <= baseline", 0),
        ("max(predicted_us, 1) <= baseline", 1),
        ("kernel == baseline", 0),
    ],
)
def test_baseline_is_the_column_that_it_is_compared_with(condition: str, status: int) -> None:
    """In each comparison `baseline` is the value of that comparison's column."""
    assert check(condition, [timed(us=15.0)], baseline=[timed(us=10.0)]).status == status


def test_settings_of_a_trace_may_have_changed() -> None:
    """Rows of traces match with other settings, as in `diff`; rows of a sweep do not."""
    (finding,) = check(SLOWER, [traced(15.0, num_warps=4)], baseline=[traced(10.0)]).findings
    assert dict(finding.found) == {"predicted_us": 15.0, "baseline.predicted_us": 10.0}
    new = [timed(us=99.0, num_warps=4), timed()]
    (outcome,) = check(SLOWER, new, baseline=[timed()]).outcomes
    assert (outcome.findings, outcome.new) == ((), ("softmax on h100, num_warps 4",))


def test_only_launched_configurations_are_a_baseline() -> None:
    """A row is compared with the configuration that is launched there, whatever its settings."""
    rows = [traced(20.0, num_warps=4), traced(10.0) | {"expected": False}]
    base = [traced(20.0, num_warps=4) | {"expected": False}, traced(10.0)]
    (finding,) = check(SLOWER, rows, baseline=base).findings
    assert finding.why == "predicted_us is 20, baseline is 10"


def test_a_row_missing_in_the_baseline_passes() -> None:
    """It is named, but it has to meet the rest of the condition, and its values must be known."""
    rows, base = [timed(), timed("new", us=500.0)], [timed(), failed(kernel="new")]
    found = check(SLOWER, rows, baseline=base)
    assert found.status == 0
    assert "of 2 rows, 1 meets it, 1 missing in the baseline (new on h100)" in found.to_markdown()
    assert json.loads(found.to_json())["checks"][0]["new"] == ["new on h100"]
    assert check(f"{SLOWER} and predicted_us < 99", rows, baseline=base).status == 1
    unknown = check(SLOWER, [timed(), timed("new", us=None)], baseline=base)
    assert [one.kind for one in unknown.findings] == ["not known"]


def test_an_unknown_baseline_fails() -> None:
    """A row does not pass if its value there is not known, or one of several different ones."""
    (finding,) = check(SLOWER, [timed()], baseline=[timed(us=None)]).findings
    assert (finding.kind, finding.why) == ("not known", "predicted_us is 10, baseline is not known")
    several = [timed(us=10.0), timed(us=20.0)]
    assert check(SLOWER, [timed(us=19.0, n_regs=40)], baseline=several).status == 1
    same = [timed(us=10.0), timed(us=10.0, shared=0)]
    assert check(SLOWER, [timed(us=10.0, n_regs=40)], baseline=same).status == 0
    assert check("n_regs <= baseline", [timed()], baseline=[timed() | {"n_regs": "x"}]).status == 1


def test_a_fix_is_compared_with_the_baseline_of_its_row() -> None:
    """Another launch fixes a row if it is fast enough for the row's own baseline."""
    slow = timed(us=15.0, num_warps=4)
    rows = [slow, timed(us=10.2), timed(us=14.0, num_warps=2)]
    base = [slow | {"predicted_us": 10.0}, timed(us=10.2), timed(us=14.0, num_warps=2)]
    (finding,) = check(SLOWER, rows, baseline=base).findings
    assert finding.mend.changes == {"num_warps": 8}
    assert finding.advice.startswith(
        "What would fix it: num_warps 8 instead of 4, compiled: predicted_us is 10.2; 10.2 us"
    )
    strict = check("predicted_us <= baseline", rows, baseline=base).findings
    assert [one.mend for one in strict] == [None]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([SLOWER, "rows.json"], "names baseline: give the FILE that has it with --baseline"),
        (["n_regs < 9", "rows.json", "--baseline", "rows.json"], "no condition names baseline"),
        ([SLOWER, "rows.json", "--baseline", "other.json"], "the baseline has none of the rows"),
        ([SLOWER, "rows.json", "--baseline", "missing.json"], "No such file"),
        ([SLOWER, "-", "--baseline", "-"], "give a file for one of them"),
        (["n_regs < predicted_us * baseline", "rows.json"], "here with n_regs and predicted_us"),
        (["baseline > 1", "rows.json"], "is compared with one column, as in"),
        (["baseline", "rows.json"], "is compared with one column, as in"),
        (["n_reg < baseline", "rows.json", "--baseline", "rows.json"], "the nearest is n_regs"),
        ([SLOWER, "rows.json", "--baseline", "b.json", "--junit", "b.json"], "both name b.json"),
    ],
)
def test_an_invalid_baseline_ends_with_2(arguments: list[str], words: str) -> None:
    """An invalid use of a baseline gives one sentence and status 2."""
    for name, kernel in (("rows.json", "softmax"), ("other.json", "other"), ("b.json", "softmax")):
        Path(name).write_text(json.dumps([timed(kernel)]), encoding="utf-8")
    assert words in refused(*arguments)


def test_a_named_check_may_have_a_baseline() -> None:
    """A check of pyproject.toml is compared with the given baseline."""
    text = f"[tool.occupancy-lab.checks]\nno-slower = '{SLOWER}'\nfew = 'n_regs < 99'\n"
    Path("pyproject.toml").write_text(text, encoding="utf-8")
    found = check(read_checks(), [timed(us=15.0)], baseline=[timed()])
    assert [one.check.name for one in found.findings] == ["no-slower"]
    with pytest.raises(InputError, match="names baseline"):
        check(Check.read(SLOWER), [timed()])
