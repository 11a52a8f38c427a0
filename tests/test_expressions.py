"""Expressions over named values give Python's values, and run no code."""

import itertools
import operator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from occupancy_lab.errors import InputError
from occupancy_lab.expressions import Kind, parse

NAMES = {"n": Kind.NUMBER, "x": Kind.NUMBER, "text": Kind.TEXT, "fine": Kind.CONDITION}
ROWS = [
    {"n": n, "x": x, "text": text, "fine": n > 2}
    for n, x, text in itertools.product((0, 1, 4), (-0.5, 2.0), ("", "a b"))
]

numbers = st.recursive(
    st.sampled_from(["n", "x", "3", "0.25", "-7"]),
    lambda part: (
        st.builds("({} {} {})".format, part, st.sampled_from("+-*/"), part)
        | st.builds("{} // {} % {}".format, part, part, part)
        | st.builds("-{}".format, part)
    ),
    max_leaves=6,
)
texts = st.sampled_from(["text", "'a'", '"a b"', "''"])
signs = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
conditions = st.recursive(
    st.sampled_from(["fine", "True", "False"])
    | st.builds("{} {} {}".format, numbers, signs, numbers)
    | st.builds("{} {} {} {} {}".format, numbers, signs, numbers, signs, numbers)
    | st.builds("{} {} {}".format, texts, signs, texts)
    | st.builds("{} in [{}, {}]".format, numbers, numbers, numbers)
    | st.builds("{} not in ({}, {})".format, texts, texts, texts),
    lambda part: (
        st.builds("({} and {})".format, part, part)
        | st.builds("({} or {})".format, part, part)
        | st.builds("(not {})".format, part)
    ),
    max_leaves=5,
)


def value_of(text: str, kind: Kind = Kind.CONDITION, /, **values: Any) -> Any:
    """Return the value of *text*; names that are not given are not known."""
    expression = parse(text)
    expression.check(NAMES, kind)
    return expression.evaluate(dict.fromkeys(NAMES) | values)


def expected_of(text: str, row: dict[str, Any]) -> Any:
    """Return Python's value of *text*, or None after a division by zero."""
    try:
        return eval(text, {}, row)  # noqa: S307 - the oracle, of expressions made here
    except ZeroDivisionError:
        return None


@given(conditions)
def test_conditions_are_pythons(text: str) -> None:
    """A condition equals Python's unless a part has no value."""
    for row in ROWS:
        expected = expected_of(text, row)
        if expected is None or "/" in text or "%" in text:
            continue
        assert value_of(text, **row) is expected


@given(numbers)
def test_numbers_are_pythons(text: str) -> None:
    """Arithmetic equals Python's, and has no value after a division by zero."""
    for row in ROWS:
        assert value_of(text, Kind.NUMBER, **row) == expected_of(text, row)


@pytest.mark.parametrize(("sign", "decided"), [("and", False), ("or", True)])
def test_three_values_are_sqls(sign: str, decided: bool) -> None:  # noqa: FBT001 - of each sign
    """A deciding side decides, otherwise an unknown side makes it unknown."""
    sides = {"n > 0": None, "True": True, "False": False}
    for (one, left), (other, right) in itertools.product(sides.items(), repeat=2):
        both = {left, right}
        expected = decided if decided in both else None if None in both else not decided
        assert value_of(f"{one} {sign} {other}") is expected


@pytest.mark.parametrize(
    ("text", "missing", "known"),
    [
        ("n > 0", None, True),
        ("n != 0", None, True),
        ("not n > 0", None, False),
        ("n + 1 > 0", None, True),
        ("-n < 0", None, True),
        ("0 < n < 9", None, True),
        ("n in [1, 2]", None, True),
        ("n not in [1, 2]", None, False),
        ("n is None", True, False),
        ("n is not None", False, True),
        ("n == None", True, False),
        ("None != n", False, True),
        ("n is None or n > 0", True, True),
    ],
)
def test_what_is_not_known(text: str, missing: bool | None, known: bool) -> None:  # noqa: FBT001 - two answers
    """Comparing a missing value is not known; `is None` tests for it."""
    assert value_of(text) is missing
    assert value_of(text, n=1) is known


@pytest.mark.parametrize(
    "text", ["n / 0 > 1", "n % 0 == 0", "1e308 * 10 > n", f"1{'0' * 900} / 3 > 0.5"]
)
def test_numbers_without_a_value_are_not_known(text: str) -> None:
    """Division by zero and overflow are not known, and no error."""
    assert value_of(text, n=1) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no expression"),
        ("n >", "is no expression"),
        ("\0", "is no expression"),
        ("'\udcff' == text", "is no expression"),
        ("n", "is a number, and a condition is expected"),
        ("text", "is text, and a condition is expected"),
        ("None", "is None, and a condition is expected"),
        ("@shutil.os.system('true') == 0", "is no expression"),
        ("n.real == 0", "'n.real' has no place in it"),
        ("print(n) == 0", "'print\\(n\\)' has no place in it"),
        ("text[0] == 'a'", "has no place in it"),
        ("n @ n == 0", "'n @ n' has no place"),
        ("(n := 1) == 1", "has no place"),
        ("n if fine else x", "has no place"),
        ("fine and n", "'n' is not a condition"),
        ("fine + 1 > 0", "'fine' is not a number"),
        ("text > 1", "'text' is text and '1' is a number, which cannot be compared"),
        ("n == '1'", "cannot be compared"),
        ("n in 1", "in takes"),
        ("None in [1]", "in takes"),
        ("[1] == [1]", "has no place"),
        ("n < None", "None is compared by"),
        ("n is 1", "write == instead"),
        ("b'a' == text", "is no number and no text"),
        ("n < 1e999", "is no number and no text"),
        ("tex == 'a'", "'tex' is not known; the nearest is text"),
        ("elsewhere > 1", "'elsewhere' is not known; there are n, x, text, fine"),
        (f"n > {'1' * 1000}", "has 1004 characters"),
        ("-" * 60 + "n > 0", "nested more than 50 deep"),
        ("(" * 300 + "n" + ")" * 300, "is no expression"),
    ],
)
def test_other_texts_are_refused(text: str, words: str) -> None:
    """Anything outside the grammar, or of unlike kinds, is refused in one sentence."""
    with pytest.raises(InputError, match=words) as caught:
        value_of(text)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


pieces = st.lists(
    st.sampled_from(
        [
            *("n", "x", "text", "fine", "None", "True", "1", "0.5", "'a'", "print", "lambda"),
            *("==", "!=", "<", "in", "not", "is", "and", "or", "if", "else", "for", "open"),
            *"()[]{},+-/%.:@=`~&\\#\n\0é",
            *("//", "**", ":=", "__import__('os')"),
        ]
    )
).map(" ".join)


@given(st.text(max_size=60) | pieces)
@example("().__class__.__base__.__subclasses__()")
@example("__import__('os').system('touch ran') == 0")
def test_any_text_is_a_value_or_an_error(text: str) -> None:
    """Whatever the text, it gives a value of plain Python or is refused as input."""
    try:
        expression = parse(text)
        expression.check(NAMES)
    except InputError:
        return
    for row in (*ROWS, dict.fromkeys(NAMES)):
        assert expression.evaluate(row) in {True, False, None}


def test_of_many_names_the_nearest_three_are_named() -> None:
    """Among many names, an error lists the three nearest."""
    names = dict.fromkeys((f"n_{letter}" for letter in "abcdefghijklm"), Kind.NUMBER)
    with pytest.raises(
        InputError, match=r"of 13 the nearest are .*; a row of --json has them all$"
    ):
        parse("elsewhere > 1").check(names)


def test_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that would write a file writes none."""
    monkeypatch.chdir(tmp_path)
    for text in ("open('ran', 'w') == 0", "@open('ran', 'w') == 0", "[open('ran', 'w')] == n"):
        with pytest.raises(InputError):
            value_of(text)
    assert not list(tmp_path.iterdir())


def test_names_are_known_before_values() -> None:
    """An expression has its names, and equals another with the same text."""
    assert parse("n * x + 2 > n").names == {"n", "x"}
    assert parse("n > 1") == parse("n > 1")
    assert value_of("n * x * 2", Kind.NUMBER, n=3, x=0.5) == operator.mul(3, 1.0)
