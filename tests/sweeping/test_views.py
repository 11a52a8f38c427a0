"""The selection and printing of a sweep's table."""

import html
import json
import re
from collections.abc import Iterable
from typing import Any

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from stand_ins import CONDITIONS
from swept import on_screen

from occupancy_lab.compiling import triton_version
from occupancy_lab.errors import InputError
from occupancy_lab.expressions import Kind
from occupancy_lab.files import plain_rows
from occupancy_lab.sweeping.grid import add_columns
from occupancy_lab.sweeping.run import UNMEASURED, choose, sweep, to_screen
from occupancy_lab.table.columns import COLUMNS, MEASURED_COLUMNS, SWEEP_COLUMNS
from occupancy_lab.table.rows import FORMS, View
from occupancy_lab.text.document import to_markdown
from occupancy_lab.values import Measurement


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Return a small sweep with a failed row."""
    return sweep(781, gpu="h100,mi300x", num_warps=(4, 8, 32), num_stages=(1, 2))


def check(view: View, columns: Iterable[str]) -> None:
    """Check *view* before a table with *columns* exists."""
    view.check({name: COLUMNS[name].kind for name in columns}, UNMEASURED)


def written(table: pd.DataFrame, form: str) -> str:
    """Return *table* in the file format *form*."""
    return FORMS[form]([*table], plain_rows(table))


def test_where_sort_and_top(table: pd.DataFrame) -> None:
    """Rows are selected by a condition, sorted and cut off."""
    chosen = choose(table, View("num_warps == 4 and status == 'ok'", "-n_regs", 3))
    assert len(chosen) == 3
    assert set(chosen["num_warps"]) == {4}
    assert chosen["n_regs"].is_monotonic_decreasing
    said = to_markdown(to_screen(chosen, of=len(table)))
    assert f"3 of {len(table)} configurations: 3 ok." in said


def test_fastest_comes_first(table: pd.DataFrame) -> None:
    """By default each GPU's rows are sorted by time, with rows without a time last."""
    chosen = choose(table, View())
    assert [*chosen["gpu"]] == [*table["gpu"]]
    for gpu in ("h100", "mi300x"):
        times = chosen[chosen["gpu"] == gpu]["predicted_us"]
        known = times.dropna()
        assert known.is_monotonic_increasing
        assert len(known) < len(times) or gpu == "h100"
        assert times.head(len(known)).notna().all()
    slowest = table["predicted_us"].idxmax()
    quick = add_columns(table, {slowest: (8, Measurement("measured", CONDITIONS, us=1.0))})
    own = quick[quick["gpu"] == table.loc[slowest, "gpu"]]
    assert choose(own, View()).index[0] == slowest


def test_times_that_predictions_do_not_tell_apart_are_marked(table: pd.DataFrame) -> None:
    """Times within the error of the fastest have a mark; without any such time there is none."""
    fine = table[table["status"] == "ok"].head(3)
    near = on_screen(fine.assign(predicted_us=[10.0, 10.1, 20.0]))
    assert near.count(" =") == 3
    assert "= marks times that predictions do not tell from the fastest" in near
    assert "=" not in on_screen(fine.assign(predicted_us=[10.0, 15.0, 20.0]))


def test_a_screen_has_the_words_of_explain(
    table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limiters, bounds and occupancies are as explain has them: waves and VGPRs on AMD."""
    monkeypatch.setenv("COLUMNS", "200")
    strange = table.assign(limiter="warps+registers+shared+programs", bound="lsu", occupancy=0.1875)
    for gpu, words in (
        ("h100", "warps, registers, shared memory, program slots"),
        ("mi300x", "waves, VGPRs, LDS, program slots"),
    ):
        text = on_screen(strange[strange["gpu"] == gpu])
        assert words in re.sub(" +", " ", text)
        assert "shared memory and L1" in text
        assert "18.8%" in text
        assert "num_warps" in text


def test_equal_rows_are_said_to_be_equal() -> None:
    """A kernel without a loop has equal rows for all num_stages, and the screen states that."""
    flat = sweep(781, gpu="h100", kernel="softmax_row", num_warps=(4,), num_stages=(1, 2))
    said = "softmax_row has no loop to pipeline"
    assert said in on_screen(flat)
    assert "has no loop" not in on_screen(flat.head(1))
    looped = sweep(781, gpu="h100", num_warps=(4,), num_stages=(1, 2))
    assert "has no loop" not in on_screen(looped)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"where": "nonsense >"}, "--where 'nonsense >' is no expression"),
        ({"where": "num_stages"}, "is a number, and a condition is expected"),
        ({"where": "num_warp > 2"}, "'num_warp' is not known; the nearest is num_warps"),
        ({"where": "status == 1"}, "'status' is text and '1' is a number"),
        ({"where": "us > 3"}, "names us; --measure gives it"),
        ({"sort": "nonsense"}, "--sort 'nonsense' names no column; of .* the nearest are"),
        ({"sort": "-num_warp"}, "the nearest is num_warps"),
        ({"sort": "us"}, "--measure gives it"),
        ({"top": 0}, "top"),
    ],
)
def test_wrong_choice_is_said(table: pd.DataFrame, wrong: dict[str, Any], words: str) -> None:
    """Invalid choices are errors that name them, before and after the table exists."""
    with pytest.raises(InputError, match=words):
        check(View(**wrong), SWEEP_COLUMNS)
    with pytest.raises(InputError, match=words):
        choose(table, View(**wrong))


def test_choice_over_measurements_is_known_before_them() -> None:
    """A choice may name the columns of a measurement that is still to be made."""
    check(View("us > 3 and mostly_launch", "-us", 1), (*SWEEP_COLUMNS, *MEASURED_COLUMNS))


def test_rows_that_are_not_known_to_fit_are_left_out(table: pd.DataFrame) -> None:
    """A missing value fulfils no comparison and no negated one; `is None` selects it."""
    missing = table["n_regs"].isna()
    assert 0 < missing.sum() < len(table)
    assert len(choose(table, View("n_regs > 0"))) == (~missing).sum()
    assert len(choose(table, View("not n_regs > 0"))) == 0
    assert list(choose(table, View("n_regs is None")).index) == list(table.index[missing])
    assert len(choose(table, View("n_regs != None"))) == (~missing).sum()


def test_columns_hold_what_conditions_are_told(table: pd.DataFrame) -> None:
    """The table's columns have the types that conditions assume."""
    measured = add_columns(table, {0: (8, Measurement("measured", CONDITIONS, us=1.0))})
    types = {
        Kind.NUMBER: pd.api.types.is_numeric_dtype,
        Kind.TEXT: pd.api.types.is_string_dtype,
        Kind.CONDITION: pd.api.types.is_bool_dtype,
    }
    for name in measured:
        values = measured[name].dropna().infer_objects()
        assert values.empty or types[COLUMNS[name].kind](values), name


def test_screen_says_once_what_all_rows_share(table: pd.DataFrame) -> None:
    """A column that is equal in all rows is stated once; failures are listed below with reasons."""
    text = on_screen(table)
    assert text.splitlines()[0] == (
        "kernel softmax, rows 4096, cols 781, dtype float32, BLOCK_SIZE 1024,"
        f" Triton {triton_version()}"
    )
    assert "at most 16 waves" in text
    assert "12 configurations: 10 ok, 2 skipped" in text
    assert "nan" not in text.lower()


@pytest.mark.parametrize(
    ("columns", "missing"),
    [(200, set()), (80, {"shared", "tutorial"}), (20, {"shared", "tutorial", "limiter", "n_regs"})],
)
def test_narrow_screens_go_without_columns(
    table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, columns: int, missing: set[str]
) -> None:
    """A narrow screen lacks columns and names them; exports have them all."""
    monkeypatch.setenv("COLUMNS", str(columns))
    text = on_screen(table)
    header = next(line for line in text.splitlines() if "programs" in line)
    names = {name.strip() for name in header.split("|")}
    assert names.isdisjoint(missing)
    assert {"predicted us", "bound", "programs", "occupancy"} <= names
    sentence = next((line for line in text.split(".") if "A wider terminal shows" in line), "")
    assert all(name in sentence for name in missing)
    assert bool(sentence) == bool(missing)


def test_json_is_strict(table: pd.DataFrame) -> None:
    """Numbers have all their digits, and a non-finite one is null."""
    strange = table.head(2).assign(waves=[1 / 3, float("inf")])

    def refuse(constant: str) -> None:
        pytest.fail(constant)

    rows = json.loads(written(strange, "json"), parse_constant=refuse)
    assert [row["waves"] for row in rows] == [1 / 3, None]


NASTY = "<b>|`x` *y* [z](w) \\ _a_ &amp; ~~s~~"


def test_markdown_shows_texts_as_they_are(table: pd.DataFrame) -> None:
    """An independent renderer shows each text of a table unchanged, in its cell, without tags."""
    strange = table.assign(reason=f"{NASTY}\n\n# next", status="odd")
    renderer = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    shown = html.escape(f"{NASTY} # next")
    for text in (written(strange, "markdown"), on_screen(strange)):
        rendered = renderer.render(text)
        assert rendered.count(f">{shown}</td>") == len(table)
        assert not set(re.findall(r"<(\w+)", rendered)) & {"b", "a", "em", "code", "s", "h1"}
