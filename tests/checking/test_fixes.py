"""Fixes of broken checks: launches that were compiled, meet the checks and spill no more."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compiled_rows import compiled, failed
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab import explain_launch
from occupancy_lab.checking.check import check
from occupancy_lab.checking.conditions import Check
from occupancy_lab.checking.fixes import Fix, FixFinder
from occupancy_lab.checking.rows import Table, make_rows
from occupancy_lab.prediction import NOT_FOLLOWED


def fix(condition: str, *rows: dict[str, Any]) -> Fix | None:
    """Return what would fix the first of *rows*."""
    return check(condition, list(rows)).findings[0].mend


SLOW = compiled(num_warps=2, n_regs=56, shared=8)
ROWS = st.builds(
    compiled,
    num_warps=st.sampled_from([1, 2, 4, 8, 16]),
    num_stages=st.integers(1, 3),
    BLOCK_SIZE=st.sampled_from([1024, 2048, None]),
    maxnreg=st.sampled_from([None, 64]),
    n_regs=st.sampled_from([32, 64, 128, 255]),
    local_bytes=st.sampled_from([0, 0, 8, 400, None]),
    shared=st.sampled_from([0, 40000]),
    us=st.sampled_from([None, 10.0, 20.0, 30.0]),
    predicted_us=st.sampled_from([None, 11.0, 21.0]),
)
CHECKS = ("occupancy >= 0.4", "local_bytes == 0", "n_regs <= 128")
WHERE = ("num_warps >= 2", None, "num_stages > 1")


@given(rows=st.lists(ROWS, min_size=2, max_size=8))
def test_no_fix_makes_anything_worse(rows: list[dict[str, Any]]) -> None:
    """A fix meets its check, breaks no check that held, spills no more, and is not slower.

    It names every knob that differs, and has a value for every constexpr.
    """
    checks = [Check.read(one, where=where) for one, where in zip(CHECKS, WHERE, strict=True)]
    for finding in check(checks, rows, allow_empty=True).findings:
        if finding.mend is None:
            continue
        assert (finding.mend.slower or 0.0) <= 0
        row, new = dict[str, Any](finding.row.values), dict[str, Any](finding.mend.values)
        assert new in rows
        meets = [
            [one["occupancy"] >= 0.4, one["local_bytes"] == 0, one["n_regs"] <= 128]
            for one in (row, new)
        ]
        held = [max(row["num_warps"], new["num_warps"]) >= 2, True]
        held.append(max(row["num_stages"], new["num_stages"]) > 1)
        asked = [row["num_warps"] >= 2, True, row["num_stages"] > 1]
        assert meets[1][CHECKS.index(finding.check.name)]
        for was, now, of_any, of_row in zip(*meets, held, asked, strict=True):
            assert now or not of_any or (of_row and not was)
        times = [(row[one], new[one]) for one in ("us", "predicted_us")]
        known = [pair for pair in times if None not in pair]
        share = known[0][1] / known[0][0] - 1 if known else None
        assert finding.mend.slower == share
        knobs = ("num_warps", "num_stages", "BLOCK_SIZE", "maxnreg")
        assert finding.mend.changes.keys() == {one for one in knobs if row[one] != new[one]}
        assert all(v is not None or one == "maxnreg" for one, v in finding.mend.changes.items())


@pytest.mark.parametrize(
    ("worse", "why"),
    [
        ({"local_bytes": 8}, "it has local memory that the row has not"),
        ({"local_bytes": None}, "whether it has local memory is not known"),
        ({"status": "does not fit"}, "it cannot be launched"),
        ({"BLOCK_SIZE": None}, "its BLOCK_SIZE is not known"),
    ],
)
def test_a_launch_that_is_worse_otherwise_is_no_fix(worse: dict[str, Any], why: str) -> None:
    """A launch that meets the condition but is worse in another way is not proposed."""
    good = compiled(n_regs=32, shared=8)
    assert fix("occupancy >= 0.8", SLOW, good)
    assert fix("occupancy >= 0.8", SLOW, good | worse) is None, why


def advice(row: dict[str, Any], *others: dict[str, Any]) -> str:
    """Return the advice for a row whose occupancy is too low."""
    return check("occupancy >= 0.8", [row, *others]).findings[0].advice


GOOD = compiled(n_regs=32, shared=8)
ROW = SLOW | {"predicted_us": 309.0}
LATER = GOOD | {"predicted_us": 343.0}
LATEST = compiled(num_warps=4, n_regs=32, shared=8, predicted_us=400.0)
TRACED = {"launches": 10, "grids": 1, "predicted_us": 100.0, "predicted_total_us": 1000.0}
ACTION = {"action": "grid 512 instead of 64", "saved_us": 600.0, "lost_us": 700.0}
SAID = "grid 512 instead of 64 (if DW grows with the grid): 40 us predicted instead of 100 us."
NONE = "None of 4 launches near it is predicted to be faster than 100 us by 10% or more."
ACTIVE = compiled(**TRACED, **ACTION, advice=SAID)
FULL = "occupancy >= 0.8"
ADVICE: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "What meets it takes longer": (FULL, [ROW, LATEST, LATER]),
    "What meets it was measured to take longer": (
        FULL,
        [ROW | {"us": 20.0}, GOOD | {"us": 30.0, "predicted_us": 200.0}],
    ),
    "What differs in more is faster": (
        FULL,
        [ROW, LATER, compiled(num_stages=1, n_regs=32, shared=8, predicted_us=300.0)],
    ),
    "No time is known": (FULL, [SLOW, GOOD]),
    "No time is known of two entries of a cache": (
        FULL,
        [SLOW | {"entry": "A", "program": "a"}, GOOD | {"entry": "B", "program": "a"}],
    ),
    "A time is known of one": (
        FULL,
        [SLOW | {"predicted_us": 10.0}, GOOD, GOOD | {"num_stages": 1, "predicted_us": 9.0}],
    ),
    "A cap on registers may be left out": (
        "local_bytes == 0",
        [compiled(n_regs=48, maxnreg=48, local_bytes=96), compiled(n_regs=64)],
    ),
    "Another block may be wrong": (
        FULL,
        [compiled(BLOCK_SIZE=4096, n_regs=128), compiled(n_regs=32)],
    ),
    "The action of a trace fixes the lost time": ("lost_us < 101", [ACTIVE]),
    "The action of a trace fixes the time": ("predicted_us < 41", [ACTIVE]),
    "The action of a trace is not enough": ("lost_us < 99", [ACTIVE]),
    "An action that begins with a condition": (
        "predicted_us < 5",
        [ACTIVE | {"advice": "If the launch can pass n 16, it is faster."}],
    ),
    "Other effects of the action are not known": ("lost_us < 101 and n_regs < 99", [ACTIVE]),
    "An older trace has the action without its sentence": (
        "lost_us < 200",
        [compiled(**TRACED, **ACTION)],
    ),
    "A trace has no action": ("lost_us < 9", [compiled(**TRACED, lost_us=10.0, advice=NONE)]),
}


def test_golden_advice(check_golden: Callable[[str, str], None]) -> None:
    """The golden file has the advice for the first row of each case: a fix, a doubt or a cost."""
    parts = (
        f"## {title}\n\n{check(condition, rows).findings[0].advice}\n"
        for title, (condition, rows) in ADVICE.items()
    )
    check_golden("advice.md", "\n".join(parts))


@pytest.mark.parametrize(
    ("of_both", "share"),
    [
        ({"bound": "bandwidth"}, 0.05),
        ({"bound": "issue"}, 0.1),
        ({}, 0.1),
        ({"bound": "bandwidth", "basis": f"the data sheet and {NOT_FOLLOWED}"}, 0.2),
    ],
)
def test_a_fix_may_be_unnoticeably_slower(of_both: dict[str, str], share: float) -> None:
    """A launch is a fix unless it is noticeably slower, which depends on what bounds the times."""
    row = SLOW | {"predicted_us": 100.0} | of_both
    good = compiled(n_regs=32, shared=8, **of_both)
    us = 100 * (1 + share)
    close = advice(row, good | {"predicted_us": us - 1})
    assert close == (
        "What would fix it: num_warps 8 instead of 2, compiled: occupancy is 1;"
        f" {us - 1:.0f} us predicted instead of 100 us (+{us - 101:.1f}%), which predictions do"
        " not tell apart."
    )
    assert "taking longer" in advice(row, good | {"predicted_us": us + 1})
    same = advice(row, good | {"predicted_us": 100.1})
    assert same.endswith("compiled: occupancy is 1; 100 us predicted, as before.")
    faster = advice(row, good | {"predicted_us": 75.0})
    assert faster.endswith("occupancy is 1; 75.0 us predicted instead of 100 us (-25.0%).")


def test_a_fix_breaks_no_check_that_holds() -> None:
    """A launch is no fix if it breaks another check that applies to it or to the row."""
    row = compiled(num_warps=4, n_regs=120, shared=40000)
    other = compiled(num_warps=2, n_regs=32, shared=0)
    checks = [Check.read("occupancy >= 0.8"), Check.read("n_regs > 100")]
    assert check(checks[0], [row, other]).findings[0].mend is not None
    assert [one.mend for one in check(checks, [row, other]).findings] == [None] * 2
    elsewhere = [checks[0], Check.read("n_regs > 100", where="num_warps == 8")]
    assert check(elsewhere, [row, other], allow_empty=True).findings[0].mend is not None
    late = [checks[0], Check.read("n_regs > 100", where="num_warps == 2")]
    assert check(late, [row, other]).findings[0].mend is None


def test_a_fix_may_break_a_check_that_is_already_broken() -> None:
    """If a row breaks two checks, a launch may fix one; a launch that fixes both is preferred."""
    row = compiled(num_warps=8, n_regs=255, local_bytes=400)
    near = compiled(num_warps=16, n_regs=128, local_bytes=0)
    far = compiled(num_warps=32, n_regs=32, local_bytes=0)
    checks = [Check.read("local_bytes == 0"), Check.read("occupancy >= 0.5")]
    spills, filled = check(checks, [row, near]).findings[:2]
    assert (spills.check, filled.check.name) == (checks[0], "occupancy >= 0.5")
    assert spills.mend.changes == {"num_warps": 16}
    both = [
        one for one in check(checks, [row, near, far]).findings if one.row.values["n_regs"] > 128
    ]
    assert [one.mend and one.mend.changes for one in both] == [{"num_warps": 32}] * 2


def test_the_nearest_compiled_row_is_the_fix() -> None:
    """Of the rows that meet the check, the one with the fewest changed knobs is proposed."""
    far = compiled(num_warps=8, n_regs=32, num_stages=1, shared=8)
    near = compiled(num_warps=8, n_regs=32, shared=8)
    found = fix("occupancy >= 0.8", SLOW, far, near)
    assert found.changes == {"num_warps": 8}
    assert found.words == "num_warps 8 instead of 2"


def test_only_compiled_launches_are_fixes() -> None:
    """Without a compiled launch that meets the check, no fix is proposed."""
    finding = check("occupancy >= 0.5", [compiled(n_regs=202, shared=147456)]).findings[0]
    assert finding.mend is None
    assert finding.advice == "No compiled launch would fix it."
    assert fix("num_warps >= 8", compiled(num_warps=4), failed(num_warps=8)) is None


@pytest.mark.parametrize(
    "other",
    [
        {"gpu": "h200"},
        {"kernel": "softmax_row"},
        {"cols": 12},
        {"HEAD_DIM": 64},
        {"arguments": "*fp16"},
        {"triton_version": "3.6.0"},
        {"program": "b"},
    ],
)
def test_a_row_of_another_problem_is_no_fix(other: dict[str, Any]) -> None:
    """A row of another kernel, GPU, problem, code or compiler is not proposed."""
    own = {"cols": 781, "HEAD_DIM": 128, "arguments": "*fp32", "triton_version": "3.7.1"}
    own |= {"program": "a"}
    row = SLOW | own
    assert fix("occupancy >= 0.8", row, compiled(n_regs=32, **own)) is not None
    assert fix("occupancy >= 0.8", row, compiled(n_regs=32, **{**own, **other})) is None


def test_cache_entries_are_fixes_only_with_the_same_program() -> None:
    """A cache keeps no constexprs, so two entries match only if their programs are known equal."""
    row, other = SLOW | {"entry": "A"}, compiled(n_regs=32) | {"entry": "B"}
    assert fix("occupancy >= 0.8", row, other) is None
    assert fix("occupancy >= 0.8", row | {"program": "a"}, other | {"program": "a"}) is not None


def test_a_compiled_neighbour_with_fewer_changes_is_preferred() -> None:
    """A compiled neighbour with one changed knob is preferred to a row with two."""
    rows = make_rows([SLOW, compiled(num_warps=8, num_stages=1, n_regs=32)], "rows")
    tried = make_rows([compiled(num_warps=4, n_regs=80), compiled(n_regs=32)], "tried")

    for others, changed in ([], {"num_warps", "num_stages"}), (tried, {"num_warps"}):
        filled = Check.read("occupancy >= 0.8")
        finder = FixFinder((filled,), Table.of(rows))
        finder.tried = lambda _row, others=others: others
        found = finder.fix(rows[0], filled)
        assert found.changes.keys() == changed


NORM = str(Path(__file__).parents[2] / "examples" / "layer_norm.py:layer_norm")


def of_norm(cols: int, block: int = 8192, gpu: str = "h100") -> dict[str, Any]:
    """Return what describes a launch of NORM."""
    signature = f"*fp16,*fp16,*fp16,*fp16,*fp32,*fp32,{cols},{cols},1e-5"
    return {"signature": signature, "constexprs": f"BLOCK_SIZE={block}", "gpu": gpu}


def test_settings_at_their_default_are_varied() -> None:
    """A launch without num_warps has Triton's default, and another number may fix it."""
    (finding,) = check("n_regs <= 40", NORM, **of_norm(1024)).findings
    assert "num_warps" not in finding.row.values
    assert finding.mend.words.endswith(" instead of 4")


def test_a_compiled_neighbour_that_is_slower_is_no_fix() -> None:
    """With grid and arguments known, neighbours have predicted times, and slower ones are no fix.

    16 warps need fewer registers for 2048 columns, but half as many programs run at once.
    """
    launch = {**of_norm(2048, block=2048), "grid": "4096"}
    (finding,) = check("n_regs < 32", NORM, num_warps=8, **launch).findings
    assert finding.mend is None
    assert finding.advice.startswith("No compiled launch meets the check without taking longer:")
    (finding,) = check("n_regs >= 32", NORM, num_warps=16, **launch).findings
    assert finding.mend.slower is not None
    assert re.search(r"num_warps 4 instead of 16: .* predicted instead of .* us", finding.advice)


@pytest.mark.slow
def test_the_first_advice_of_explain_is_proposed() -> None:
    """A larger grid is proposed in the words of `explain`, with the tensor that has to grow.

    If it is not enough, it is still named as what brings most.
    """
    source = str(Path(__file__).parents[1] / "launched_kernels.py:sum_in_parts")
    launch: dict[str, Any] = {
        "signature": "*bf16,*fp32,8192,2048,63",
        "constexprs": "BLOCK=2048",
        "grid": "132",
        "gpu": "h100",
        "num_warps": 8,
    }
    explained = explain_launch(source, **launch)
    said = explained.to_document().answer[0].removeprefix("**H100 SXM**: ")
    own = explained.records[0].row()["predicted_us"]
    assert "and parts_ptr grows with the grid" in said
    (finding,) = check(f"predicted_us < {own * 0.95}", source, **launch).findings
    assert "grid" in finding.mend.changes
    us = finding.mend.values["predicted_us"]
    assert finding.advice == f"What would fix it: {said} Then predicted_us is {us:.4g}."
    (finding,) = check("predicted_us < 1", source, **launch).findings
    assert finding.mend is None
    words = "No compiled launch would fix it. What brings most: "
    assert finding.advice == f"{words}{said}"


@pytest.mark.slow
def test_a_proposed_launch_passes_the_checks() -> None:
    """A launch with the proposed changes meets the checks when it is compiled."""
    checks = [Check.read("occupancy >= 0.5"), Check.read("local_bytes == 0")]
    found = check(checks, NORM, **of_norm(8192, gpu="h100,mi300x"), num_warps=4).findings
    named = [(one.row.values["gpu"], one.mend) for one in found if one.mend is not None]
    assert named
    for gpu, one in named:
        launch, changes = of_norm(8192, gpu=str(gpu)), dict(one.changes)
        launch["num_warps"] = changes.pop("num_warps", 4)
        options = [f"{name}={value}" for name, value in changes.items()]
        assert check(checks, NORM, options=options, **launch).status == 0
