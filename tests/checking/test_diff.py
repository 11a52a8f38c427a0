"""`diff`: what changed between two tables of compiled kernels."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from compiled_rows import compiled, failed
from hypothesis import given
from hypothesis import strategies as st

import occupancy_lab
from occupancy_lab.checking import diff
from occupancy_lab.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test begin in a folder with two tables."""
    monkeypatch.chdir(tmp_path)
    Path("before.json").write_text(json.dumps(OLD), encoding="utf-8")
    Path("after.json").write_text(json.dumps(NEW), encoding="utf-8")


def run(*arguments: str) -> Result:
    """Return how `occupancy-lab diff` ends."""
    return CliRunner().invoke(main, ["diff", *arguments])


def test_steps_come_first_then_spills_then_the_rest() -> None:
    """What fails comes first, then what crossed a step, what spills more, and what else changed."""
    found = diff(OLD, NEW)
    assert [(one.kind, one.after[0].kernel) for one in found.changes] == [
        ("failed", "broken"),
        ("crossed", "softmax"),
        ("spills", "layer_norm"),
        ("other", "softmax"),
    ]
    assert found.unchanged == 1
    assert found.removed == ("gone on h100",)
    assert found.added == ("new on h100",)


def test_a_crossed_step_says_which_and_why() -> None:
    """A step says the amount before and after, the programs, and the resource that limits."""
    words = diff([compiled(n_regs=32)], [compiled(n_regs=38)]).changes[0].words
    assert words == (
        "38 registers instead of 32: 6 programs per SM instead of 8 (75% instead of 100%), limited"
        " by registers"
    )
    back = diff([compiled(n_regs=38)], [compiled(n_regs=32)]).changes[0].words
    assert back.endswith("8 programs per SM instead of 6 (100% instead of 75%), which registers"
                         " limited before")  # fmt: skip


def test_the_words_of_a_difference(check_golden: Callable[[str, str], None]) -> None:
    """The page of a difference, as it is pasted into a pull request."""
    sets = [compiled("twice", n_regs=number) for number in (32, 40)]
    after = [compiled("twice", n_regs=number) for number in (40, 41)]
    twice = [compiled("twice", n_regs=64)]
    check_golden("diff.md", diff([*OLD, *sets, *twice], [*NEW, *after, *twice]).to_markdown())


def test_nothing_changed_ends_with_0() -> None:
    """Equal tables are unchanged; a change alone is no failure."""
    assert run("before.json", "before.json").exit_code == 0
    done = run("before.json", "after.json")
    assert done.exit_code == 0
    assert "38 registers instead of 32" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("after_local_bytes > before_local_bytes", 1),
        ("after_occupancy < before_occupancy and kernel == 'softmax'", 1),
        ("after_n_regs > 256", 0),
        ("after_n_regs is None and before_n_regs is not None", 1),
        ("before_kernel is None and after_kernel == 'new'", 1),
        ("kernel == 'same'", 0),
    ],
)
def test_a_condition_of_changes_makes_it_a_gate(condition: str, status: int) -> None:
    """--fail-on ends with 1 where a change, or what only one table has, meets it."""
    done = run("before.json", "after.json", "--fail-on", condition, "--json")
    assert done.exit_code == status, done.output
    assert bool(json.loads(done.output)["broken"]) is bool(status)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["before.json"], "two files or folders"),
        (["before.json", "missing.json"], "No such file"),
        (["before.json", "after.json", "--fail-on", "n_regs > 1"], "the nearest is"),
        (["before.json", "after.json", "--cols", "781"], "nothing is compiled of BEFORE"),
        (["--triton", "3.6.0", "--cols", "781"], "two different versions"),
        (["--triton", "3.6.0,3.7.1"], "give --cols"),
        (["a.json", "--triton", "3.6.0,3.7.1"], "one FILE.py:FUNCTION"),
        (["none.json", "none.json"], "no rows to compare"),
    ],
)
def test_what_cannot_be_asked_ends_with_2(arguments: list[str], words: str) -> None:
    """What makes no sense is one sentence, and the status is 2."""
    Path("none.json").write_text("[]", encoding="utf-8")
    done = run(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_rows_that_nothing_tells_apart_are_sets() -> None:
    """Equal ones are paired off, and what is left is said to differ as a set."""
    old = [compiled(n_regs=number) for number in (32, 40, 64)]
    new = [compiled(n_regs=number) for number in (64, 41, 48)]
    found = diff(old, new, fail_on="after_n_regs > before_n_regs")
    (change,) = found.changes
    assert (change.kind, found.unchanged, found.status) == ("set", 1, 1)
    assert "registers 32, 40 before, 41, 48 after" in change.words
    one_left = diff(old, [*old[:2], compiled(n_regs=65)])
    assert [one.kind for one in one_left.changes] == ["set"]


def test_what_one_table_does_not_say_is_no_change() -> None:
    """A column that only one of the tables has is not compared, nor does it name a row."""
    less = [{name: value for name, value in row.items() if name != "local_bytes"} for row in OLD]
    more = [{**row, "extra": "x", "n_regs": float(row["n_regs"])} for row in OLD]
    assert diff(less, more).unchanged == len(OLD)


ROWS = st.lists(
    st.builds(
        compiled,
        st.sampled_from(["softmax", "matmul"]),
        n_regs=st.integers(16, 255),
        num_warps=st.sampled_from([1, 4, 8]),
        local_bytes=st.integers(0, 2),
    ),
    max_size=8,
)


@given(before=ROWS, after=ROWS)
def test_every_row_is_counted_once(before: list[dict[str, Any]], after: list[Any]) -> None:
    """Each row of a table is unchanged, in one change, or only there."""
    if not before and not after:
        return
    found = diff(before, after)
    for rows, only, side in ((before, found.removed, "before"), (after, found.added, "after")):
        changed = sum(len(getattr(one, side)) for one in found.changes)
        assert found.unchanged + changed + len(only) == len(rows)


@given(rows=ROWS.filter(bool))
def test_a_table_does_not_differ_from_itself(rows: list[dict[str, Any]]) -> None:
    """Whatever the order of its rows, a table has no changes against itself."""
    found = diff(rows, rows[::-1])
    assert (found.unchanged, found.changes) == (len(rows), ())


def test_it_is_public() -> None:
    """`occupancy_lab.diff` gives an answer whose repr is a line."""
    assert repr(occupancy_lab.diff(OLD, NEW)) == "<Diff: before and after>"


@pytest.mark.parametrize("what", [["--cols", "781"], ["rows.py:softmax", "--signature", "*fp32"]])
def test_two_tritons_compile_the_same_launches(
    what: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--triton compiles what is asked with both versions, which name the two sides."""
    asked = []

    def compile_with(triton: str, given: dict[str, Any]) -> list[dict[str, Any]]:
        asked.append((triton, given))
        return [compiled(n_regs=32 if triton == "3.6.0" else 38, triton_version=triton)]

    module = importlib.import_module("occupancy_lab.checking.diff")
    monkeypatch.setattr(module, "_compiled", compile_with)
    done = run(*what, "--gpu", "h100", "--num-warps", "4,8", "--triton", "3.6.0, 3.7.1")
    assert done.exit_code == 0, done.stderr
    assert "Triton 3.6.0 and Triton 3.7.1" in done.output
    assert "1 crossing a step" in done.output
    assert [triton for triton, _ in asked] == ["3.6.0", "3.7.1"]
    assert asked[0][1] == asked[1][1]
    assert [*asked[0][1]["num_warps"]] == [4, 8]
