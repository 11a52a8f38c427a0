"""`diff`: what changed between two tables of compiled kernels."""

import importlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import in_process
import pytest
from compiled_rows import compiled, failed
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.checking.diff import diff
from occupancy_lab.prediction import NOT_FOLLOWED

run, refused = (partial(done, "diff") for done in (in_process.run, in_process.refused))
OLD = [
    compiled(n_regs=32),
    compiled(n_regs=38, num_warps=4),
    compiled("layer_norm", n_regs=255, num_warps=4),
    compiled("gone"),
    compiled("broken"),
    compiled("same"),
]
NEW = [
    compiled(n_regs=38),
    compiled(n_regs=39, num_warps=4),
    compiled("layer_norm", n_regs=255, num_warps=4, local_bytes=48),
    compiled("new"),
    failed(kernel="broken"),
    compiled("same"),
]


@pytest.fixture(autouse=True)
def _tables() -> None:
    Path("before.json").write_text(json.dumps(OLD), encoding="utf-8")
    Path("after.json").write_text(json.dumps(NEW), encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ({"num_warps": 4}, {"num_warps": 8}, "8 programs per SM instead of 16 (still 100%),"),
        ({}, {"occupancy": 0.5}, "still 8 programs per SM (50% instead of 100%)"),
    ],
)
def test_equal_numbers_are_shown_once(old: dict[str, Any], new: dict[str, Any], words: str) -> None:
    """Of the programs and the occupancy, only those that differ have both numbers."""
    rows = [compiled(**{"n_regs": 32, "shared": 0, "num_warps": 8, **one}) for one in (old, new)]
    rows = [row | one for row, one in zip(rows, (old, new), strict=True)]
    rows[1] |= {"n_regs": 30}
    (change,) = diff(*([row] for row in rows), match=["kernel", "gpu"]).changes
    assert words in change.words


def test_golden_diff(check_golden: Callable[[str, str], None]) -> None:
    """The golden file has failures first, then spills, crossed steps and other changes."""
    sets = [compiled("twice", n_regs=number) for number in (32, 40)]
    after = [compiled("twice", n_regs=number) for number in (40, 41)]
    twice = [compiled("twice", n_regs=64)]
    check_golden("diff.md", diff([*OLD, *sets, *twice], [*NEW, *after, *twice]).to_markdown())


def test_nothing_changed_ends_with_0() -> None:
    """Equal tables are unchanged, and a change without --fail-on ends with 0."""
    assert run("before.json", "before.json").returncode == 0
    done = run("before.json", "after.json")
    assert done.returncode == 0
    assert "38 registers instead of 32" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("after_local_bytes > before_local_bytes", 1),
        ("after_occupancy < before_occupancy and kernel == 'softmax'", 1),
        ("after_n_regs > 256 and after_status == 'ok'", 0),
        ("after_n_regs > 256", 1),
        ("after_n_regs is None and before_n_regs is not None", 1),
        ("before_kernel is None and after_kernel == 'new'", 1),
        ("kernel == 'same'", 1),
    ],
)
def test_fail_on(condition: str, status: int) -> None:
    """--fail-on ends with 1 if any row, also of only one table, meets the condition or may."""
    done = run("before.json", "after.json", "--fail-on", condition, "--json")
    assert done.returncode == status, done.stdout
    assert bool(json.loads(done.stdout)["broken"]) is bool(status)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["before.json"], "give BEFORE and AFTER"),
        (["before.json", "missing.json"], "No such file"),
        (["before.json", "after.json", "--fail-on", "n_regs > 1"], "the nearest is"),
        (["before.json", "after.json", "--cols", "781"], "neither BEFORE nor AFTER is a function"),
        (["--triton", "3.6.0", "--cols", "781"], "two different versions"),
        (["--triton", "3.6.0,3.7.1"], "give --cols"),
        (["a.json", "--triton", "3.6.0,3.7.1"], "one FILE.py:FUNCTION"),
        (["none.json", "after.json"], "no rows to compare in none.json"),
        (["before.json", "{}.json", "--fail-on", "after_n_regs > 1"], "to compare in {}.json"),
        (["before.json", "garbage.json"], "no rows to compare in garbage.json"),
        (["-", "-"], "give a file for the other"),
        (["before.json", "after.json", "--match", "kernel,n_reg"], "is not a column of both"),
        (["before.json", "after.json", "--match", "kernel,n_regs"], "is not a column of both"),
        (["--cols", "781", "--triton", "3.6.0,3.7.1", "--match", "gpu"], "would be ignored"),
    ],
)
def test_invalid_arguments_end_with_2(arguments: list[str], words: str) -> None:
    """Invalid arguments give one sentence and status 2."""
    for name, text in {"none": "[]", "{}": "{}", "garbage": "garbage"}.items():
        Path(f"{name}.json").write_text(text, encoding="utf-8")
    assert words in refused(*arguments)


def test_rows_that_nothing_tells_apart_are_sets() -> None:
    """Equal rows are paired, and the rest is compared as a set."""
    old = [compiled(n_regs=number) for number in (32, 40, 64)]
    new = [compiled(n_regs=number) for number in (64, 41, 48)]
    found = diff(old, new, fail_on="after_n_regs > before_n_regs")
    (change,) = found.changes
    assert (change.kind, found.unchanged, found.status) == ("set", 1, 1)
    assert "registers 32, 40 before, 41, 48 after" in change.words
    one_left = diff(old, [*old[:2], compiled(n_regs=65)])
    assert [one.kind for one in one_left.changes] == ["set"]


def test_a_column_of_only_one_table_is_not_compared() -> None:
    """A column that one of the tables lacks does not identify rows, and the page names it."""
    less = [{name: value for name, value in row.items() if name != "local_bytes"} for row in OLD]
    more = [{**row, "extra": "x", "n_regs": float(row["n_regs"])} for row in OLD]
    found = diff(less, more)
    assert found.unchanged == len(OLD)
    assert found.to_dict()["columns"] == {"removed": [], "added": ["local_bytes", "extra"]}
    assert "2 columns that only after has (local_bytes, extra)." in found.to_markdown()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("name", "status"), [("local_bytes", 1), ("n_regs", 0)])
def test_a_condition_on_a_column_that_one_table_lacks(
    name: str,
    status: int,
    turned: bool,  # noqa: FBT001 - which table lacks it
) -> None:
    """A condition on a column that one table lacks counts as met, because it is undecided."""
    less = [{one: value for one, value in row.items() if one != "local_bytes"} for row in OLD]
    tables = (OLD, less) if turned else (less, OLD)
    assert diff(*tables, fail_on=f"after_{name} > before_{name}").status == status


def timed(predicted_us: float | None, **changes: Any) -> dict[str, Any]:
    """Return a row with a predicted time."""
    return compiled(predicted_us=predicted_us, **changes)


def test_slower_rows_come_first() -> None:
    """Changes of time come before spills and steps, the largest first; 2% is no change."""
    old = [timed(us, num_warps=2**n, n_regs=32) for n, us in enumerate((187, 100, 50, 50, 20))]
    new = [
        timed(634, num_warps=1, n_regs=32, local_bytes=6512),
        timed(700, num_warps=2, n_regs=32),
        timed(40, num_warps=4, n_regs=32, local_bytes=8),
        timed(50.9, num_warps=8, n_regs=38),
        timed(20.3, num_warps=16, n_regs=32),
    ]
    found = diff(old, new)
    assert [one.kind for one in found.changes] == ["slower", "slower", "faster", "crossed"]
    assert [one.after[0].values["num_warps"] for one in found.changes] == [2, 1, 4, 8]
    assert found.unchanged == 1
    assert found.changes[1].words.startswith(
        "634 us predicted instead of 187 us (+239.0%) and 6512 local B instead of 0: still"
    )
    page = found.to_markdown()
    assert page.startswith("# before and after\n\n- 2 slower, 1 faster, 1 crossing a step,")
    header = next(line for line in page.splitlines() if line.startswith("|"))
    assert [one.strip() for one in header.split("|")[2:4]] == ["predicted us", "local B"]


def test_noticeable_differences_of_predicted_times() -> None:
    """Times bound by bandwidth are equal within 5%, others within 10%, not followed ones 20%.

    The larger share of the two rows decides.
    """
    issue, moving, counted = {"bound": "issue"}, {"bound": "bandwidth"}, {"basis": NOT_FOLLOWED}
    for one, other, least in (
        (moving, moving, 5),
        (moving, issue, 10),
        (issue, moving, 10),
        ({}, {}, 10),
        (moving | counted, moving, 20),
    ):
        assert diff([timed(100.0, **one)], [timed(99.0 + least, **other)]).unchanged == 1
        (change,) = diff([timed(100.0, **one)], [timed(101.0 + least, **other)]).changes
        assert change.kind == "slower"


def test_a_measured_time_decides() -> None:
    """If both rows were measured, predicted times are not compared."""
    found = diff([timed(10.0, us=20.0)], [timed(20.0, us=20.1)])
    assert (found.unchanged, found.changes) == (1, ())


def test_a_value_known_on_one_side_is_a_change() -> None:
    """A row that lost its time, or gained an amount, has changed."""
    (change,) = diff([timed(10.0)], [timed(None)]).changes
    assert change.words.startswith("predicted time not known instead of 10.0 us: still")
    (change,) = diff([compiled(local_bytes=None)], [compiled(local_bytes=8)]).changes
    assert "8 local B, not known before" in change.words


def test_equal_errors_share_a_sentence() -> None:
    """Kernels that fail for the same reason share a sentence with the first few names."""
    old = [compiled(f"k{number}") for number in range(8)]
    new = [failed(kernel=f"k{number}") for number in range(8)]
    page = diff(old, new).to_markdown()
    assert page.count("no such thing") == 1
    assert "k0 on h100; k1 on h100" in page
    assert "; 3 more**" in page


@pytest.mark.parametrize("match", [None, "kernel,gpu,num_warps"])
def test_different_problems_match_with_match(match: str | None) -> None:
    """Without --match the page says why nothing matches and suggests columns to match by."""
    for name, cols in (("before.json", 781), ("after.json", 784)):
        rows = [compiled(cols=cols, n_regs=cols - 748, num_warps=warps) for warps in (4, 8)]
        Path(name).write_text(json.dumps(rows), encoding="utf-8")
    done = run("before.json", "after.json", *([] if match is None else ["--match", match]))
    words = " ".join(done.stdout.split())
    assert done.returncode == 0
    if match is None:
        assert "cols is 781 in before.json and 784 in after.json." in words
        assert "--match gpu,target,kernel,BLOCK_SIZE,num_warps,num_stages compares" in words
    else:
        assert "2 changed otherwise, 0 unchanged." in words
        assert "softmax on h100, num_warps 4" in words
        assert "cols" not in words


ROWS = st.lists(
    st.builds(
        compiled,
        st.sampled_from(["softmax", "matmul"]),
        n_regs=st.integers(16, 255),
        num_warps=st.sampled_from([1, 4, 8]),
        local_bytes=st.integers(0, 2),
    ),
    min_size=1,
    max_size=8,
)


@given(before=ROWS, after=ROWS)
def test_every_row_is_counted_once(before: list[dict[str, Any]], after: list[Any]) -> None:
    """Each row of a table is unchanged, in one change, or only in that table."""
    found = diff(before, after)
    for rows, only, side in ((before, found.removed, "before"), (after, found.added, "after")):
        changed = sum(len(getattr(one, side)) for one in found.changes)
        assert found.unchanged + changed + len(only) == len(rows)


@given(rows=ROWS)
def test_a_table_does_not_differ_from_itself(rows: list[dict[str, Any]]) -> None:
    """A table has no changes against itself with rows in another order."""
    found = diff(rows, rows[::-1])
    assert (found.unchanged, found.changes) == (len(rows), ())


@pytest.mark.parametrize("what", [["--cols", "781"], ["rows.py:softmax", "--signature", "*fp32"]])
def test_two_tritons_compile_the_same_launches(
    what: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--triton compiles the launches with both versions, whose names are those of the sides."""
    asked = []

    def compile_with(triton: str, given: dict[str, Any]) -> list[dict[str, Any]]:
        asked.append((triton, given))
        return [compiled(n_regs=32 if triton == "3.6.0" else 38, triton_version=triton)]

    module = importlib.import_module("occupancy_lab.checking.diff")
    monkeypatch.setattr(module, "_compiled", compile_with)
    done = run(*what, "--gpu", "h100", "--num-warps", "4,8", "--triton", "3.6.0, 3.7.1")
    assert done.returncode == 0, done.stderr
    assert "Triton 3.6.0 and Triton 3.7.1" in done.stdout
    assert "1 crossing a step" in done.stdout
    assert [triton for triton, _ in asked] == ["3.6.0", "3.7.1"]
    assert asked[0][1] == asked[1][1]
    assert [*asked[0][1]["num_warps"]] == [4, 8]


VERSION = """
import torch, triton, triton.language as tl

@triton.jit
def scale(X, n, BLOCK: tl.constexpr):
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(X + x, tl.load(X + x, mask=x < n) * FACTOR, mask=x < n)

def main():
    for n in (1000, 4000):
        scale[(n,)](torch.empty(n, device="cuda"), n, BLOCK=512, num_warps=WARPS)
"""


@pytest.mark.slow
def test_two_versions_of_a_file_are_compared(tmp_path: Path) -> None:
    """Functions and scripts are compiled; launches match whose options have changed."""
    for name, factor, warps in (("old", "2.0", "4"), ("new", "x", "8")):
        text = VERSION.replace("FACTOR", factor).replace("WARPS", warps)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    both = [f"{tmp_path}/{name}.py" for name in ("old", "new")]
    done = run(*(f"{one}:main" for one in both), "--gpu", "h100", "--json")
    found = json.loads(done.stdout)
    assert (found["removed"], found["added"], done.returncode) == ([], [], 0)
    rows = {one["row"] for one in found["changes"]}
    assert rows == {f"scale on h100, num_warps 4 → 8, n {n}" for n in (1000, 4000)}
    launch = ["--signature", "*fp32,1000", "--constexpr", "BLOCK=512", "--gpu", "h100"]
    of_kernels = [f"{one}:scale" for one in both]
    assert json.loads(run(*of_kernels, *launch, "--json").stdout)["unchanged"] == 1
    assert run(*of_kernels, *launch, "--cols", "781").returncode == 2
