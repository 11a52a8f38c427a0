"""Reading tables: CSV and JSON have the same rows, and errors name a place."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hostile_files import HOSTILE, put, within
from hypothesis import example, given
from hypothesis import strategies as st

from occupancy_lab.errors import InputError
from occupancy_lab.table.columns import COLUMNS
from occupancy_lab.table.rows import FORMS, read_file, read_text

Factory: TypeAlias = pytest.TempPathFactory
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "kernel": TEXTS,
            "reason": st.none() | TEXTS,
            "n_regs": st.none() | st.integers(0, 255),
            "occupancy": st.none() | st.floats(0, 1),
        }
    ),
    min_size=1,
    max_size=4,
)


@given(rows=ROWS)
@example(rows=[{"kernel": "=k", "reason": "a\r\nb", "n_regs": 1, "occupancy": 0.5}])
def test_csv_and_json_hold_the_same_rows(rows: list[dict[str, Any]]) -> None:
    """Rows written as CSV or JSON are read back unchanged."""
    for form in ("csv", "json"):
        assert read_text(FORMS[form]([*rows[0]], rows), "rows").rows == rows


def test_other_columns_hold_what_their_cells_do() -> None:
    """A kernel's own column is numeric or a flag if all its cells are."""
    text = "kernel,BLOCK,EVEN,MODE,rows\nk,64,True,a,x\nk,,,1,\n"
    assert read_text(text, "rows").rows == [
        {"kernel": "k", "BLOCK": 64, "EVEN": True, "MODE": "a", "rows": "x"},
        {"kernel": "k", "BLOCK": None, "EVEN": None, "MODE": "1", "rows": None},
    ]


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("num_warps", "x", "'x'; a whole number, 1 or more"),
        ("num_warps", "0", "'0'; a whole number, 1 or more"),
        ("num_warps", "1.5", "'1.5'; a whole number, 1 or more"),
        ("rows", "1e999", "'1e999'; a whole number, 1 or more"),
        ("cols", "9" * 400, f"'{'9' * 40}…'; a whole number, 1 or more"),
        ("n_spills", "-1", "'-1'; a whole number, 0 or more"),
        ("n_spills", "nan", "'nan'; a whole number, 0 or more"),
        ("us", "inf", "'inf'; a number above 0"),
        ("us", "0", "'0'; a number above 0"),
        ("occupancy", "1.01", "'1.01'; a number from 0 to 1"),
        ("mostly_launch", "yes", "'yes'; True or False"),
        ("dtype", "int8", "'int8'; one of float32, float16, bfloat16"),
    ],
)
def test_strange_cells_are_named(column: str, cell: str, expected: str) -> None:
    """A cell with an invalid value is an error with the file, the place and the column."""
    forms = {"line 3": f"{column}\n\n{cell}\n", "row 2": json.dumps([{}, {column: cell}])}
    for place, text in forms.items():
        with pytest.raises(InputError, match=re.escape(f"rows, {place}: {column} is {expected}")):
            read_text(text, "rows", COLUMNS)


def test_values_of_json_are_checked() -> None:
    """An invalid value in JSON is an error too, and NaN is unknown."""
    for value, shown in (("true", "True"), ("-1", "-1"), ("1.5", "1.5"), ("1e999", "inf")):
        with pytest.raises(InputError, match=f"row 1: n_regs is '{shown}'; a whole number"):
            read_text(f'[{{"n_regs": {value}}}]', "rows")
    assert read_text('[{"gain": NaN}]', "rows").rows == [{"gain": None}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "holds no list of rows"),
        ('{"rows": 5}', "holds no list of rows"),
        ('{"rows": [5]}', "holds no list of rows"),
        ('{"records": {"a": 1}}', "holds no list of rows"),
        ('{"lines": 5}', "holds no list of rows"),
        ('{"lines": [5]}', "holds no list of rows"),
        ('{"lines": [{"rows": "x"}]}', "holds no list of rows"),
        ("[{", "is no JSON"),
        ("[" * 100_000, "is no JSON: it is nested too deeply"),
        (f"[{'9' * 5000}]", "is no JSON: a number in it has thousands of digits"),
        ("a\n1,2\n3,4,5\n", "is neither CSV nor JSON; give a file that sweep --export-csv"),
        ("a,b\n1,2\n3,4,5\n", "line 3: found 3 fields, expected 2"),
        ("a,b\n\n1,2\n3\n", "line 4: found 1 fields, expected 2"),
        ("gpu,us,gpu\n", "has the column 'gpu' 2 times"),
        ('a\n"1\n', "cannot be read as a table: unexpected end of data"),
        ("a" * 200_000, "cannot be read as a table"),
    ],
)
def test_what_is_no_table_is_refused(text: str, words: str) -> None:
    """Anything but a CSV table or a JSON list of rows is refused in one sentence."""
    with pytest.raises(InputError, match=f"rows'?,? {words}"):
        read_text(text, "rows")


@pytest.mark.parametrize("text", ["", "9" * 5000, '{"a": 1}', "kernel,n_regs\n"])
def test_a_table_may_have_no_rows(text: str) -> None:
    """An empty file, a lone header and a document without rows have no rows."""
    assert read_text(text, "rows").rows == []


@pytest.mark.parametrize("what", ["a missing file", "a folder", "bytes", *HOSTILE])
def test_what_is_no_file_is_refused(tmp_path: Path, what: str) -> None:
    """A missing file or binary content is an error; pipes and devices are not read."""
    path = tmp_path / "rows.csv"
    if what == "a folder":
        path.mkdir()
    elif what == "bytes":
        path.write_bytes(bytes(range(256)))
    elif what in HOSTILE:
        put(what, path)
    with within(10), pytest.raises(InputError, match=f"{path} cannot be read: "):
        read_file(path)


@given(st.binary(max_size=200) | st.text(st.sampled_from('gpu,us\n\r"\0[]{}'), max_size=60))
def test_any_file_is_a_table_or_an_error(tmp_path_factory: Factory, content: bytes | str) -> None:
    """Any file is read, or refused with InputError."""
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with contextlib.suppress(InputError):
        read_file(path, COLUMNS)
