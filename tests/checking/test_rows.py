"""Rows of compiled kernels are read from whatever the tool writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from compiled_rows import compiled, failed
from hypothesis import example, given
from hypothesis import strategies as st

from occupancy_lab.checking.rows import RESULTS, Table, make_rows, read_rows
from occupancy_lab.errors import InputError
from occupancy_lab.expressions import Kind
from occupancy_lab.files import plain_rows
from occupancy_lab.scanning import scan as scanning
from occupancy_lab.table.columns import MEASURED_COLUMNS, SWEEP_COLUMNS
from occupancy_lab.table.view import FORMS

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {"gpu", "target", "kernel", "rows", "cols", "dtype", "BLOCK_SIZE"}
NAMES |= {"num_warps", "num_stages", "num_ctas", "constexprs", "arguments"}


def test_every_result_of_a_table_is_known_as_one() -> None:
    """A column of a sweep, a measurement or a scan names its row, or is a result."""
    columns = {*SWEEP_COLUMNS, *MEASURED_COLUMNS, *scanning.COLUMNS}
    assert columns - NAMES <= RESULTS
    assert not RESULTS & NAMES


def write(path: Path, text: str) -> Path:
    """Return the file at *path* with *text* in it."""
    path.write_text(text, encoding="utf-8")
    return path


pandas = pytest.importorskip("pandas")
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


@given(
    rows=st.lists(
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
)
@example(rows=[{"kernel": "=k", "reason": "a\r\nb", "n_regs": 1, "occupancy": 0.5}])
def test_csv_and_json_hold_the_same_rows(
    rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A table is read alike from the CSV and from the JSON that a sweep writes of it."""
    table = pandas.DataFrame(rows).astype({"n_regs": "Int64", "occupancy": "Float64"})
    folder = tmp_path_factory.mktemp("rows")
    (folder / "rows.csv").write_bytes(FORMS["csv"]([*table], plain_rows(table)).encode())
    (folder / "rows.json").write_bytes(FORMS["json"]([*table], plain_rows(table)).encode())
    read = [[one.values for one in read_rows(folder / name)] for name in ("rows.csv", "rows.json")]
    assert read[0] == read[1] == rows


def test_an_explanation_is_read(tmp_path: Path) -> None:
    """Records of an explanation, rows of a dry run and lines of a script are rows."""
    nested = compiled() | {"resources": {"num_warps": 12, "local_bytes": 8, "sgprs": None}}
    nested.pop("local_bytes")
    script = {"lines": [{"place": "train.py:7", "rows": [nested]}, {"reason": "stopped"}]}
    for document in ({"records": [nested]}, {"rows": [nested]}, script):
        (row,) = read_rows(write(tmp_path / "rows.json", json.dumps(document)))
        assert row.values["local_bytes"] == 8
        assert row.resources is not None
        assert row.resources.num_warps == 12
    assert row.place == ("train.py", 7)


def test_constexprs_of_a_scan_are_columns(tmp_path: Path) -> None:
    """A scan's constexprs can be asked for by their names, from JSON and from CSV."""
    (row,) = make_rows([{"kernel": "k", "constexprs": {"BLOCK": 64, "EVEN": True}}], "rows")
    text = 'kernel,constexprs\nk,"BLOCK=64, EVEN=True"\n'
    (cells,) = read_rows(write(tmp_path / "rows.csv", text))
    assert row.values == cells.values == {"kernel": "k", "BLOCK": 64, "EVEN": True}


STRANGE = ["-" * 5000 + "1", "(" * 5000, "9" * 5000, "[{" * 2500, "{[]}", "x" * 100_000]


@pytest.mark.parametrize("text", STRANGE, ids=lambda text: text[:2])
def test_a_constexpr_that_is_no_value_is_a_text(tmp_path: Path, text: str) -> None:
    """What Python's parser does not take of a cell is read as it stands, and soon."""
    (row,) = read_rows(write(tmp_path / "rows.csv", f"kernel,constexprs\nk,A={text}\n"))
    assert row.values == {"kernel": "k", "A": text}
    (row,) = make_rows([{"kernel": "k", "constexprs": text * 10}], "rows")
    assert row.values == {"kernel": "k"}


def test_what_a_scan_does_not_know_is_none() -> None:
    """An empty text of a scan is not known."""
    (row,) = make_rows([{"kernel": "k", "limiter": "", "gain": float("nan")}], "rows")
    assert row.values == {"kernel": "k", "limiter": None, "gain": None}


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
        ("[" * 100_000, "is no JSON: it is nested too deeply"),
        ("9" * 5000, None),
        (f"[{'9' * 5000}]", "is no JSON: a number in it has thousands of digits"),
        (f'[{{"kernel": "k", "n_regs": {"9" * 400}}}]', "row 1 of .* as n_regs; give a number of"),
        (f"kernel,n_regs\nk,{'9' * 400}\n", "row 1 of .* as n_regs; give a number of at most 64"),
        ('{"a": 1}', None),
        ("[{", "is no JSON"),
        ('[{"gpu": "h100"}]', "names no kernel"),
        ("kernel,n_regs\nk\n", "one cell per column"),
        ("kernel,kernel\nk,k\n", "one cell per column"),
        ('kernel\n"k\n', "is no CSV"),
        ("", None),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, words: str | None) -> None:
    """A file that is none of ours is refused with one sentence, and an empty one has no rows."""
    path = write(tmp_path / "rows.json", text)
    if words is None:
        assert read_rows(path) == []
        return
    with pytest.raises(InputError, match=words):
        read_rows(path)


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    """What cannot be read says why."""
    with pytest.raises(InputError, match="No such file"):
        read_rows(tmp_path / "rows.json")
    (tmp_path / "rows.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_rows(tmp_path / "rows.json")


def test_kinds_are_those_of_the_values() -> None:
    """A column is of numbers, conditions or texts; one with both numbers and texts is of texts."""
    first = {"kernel": "k", "n_regs": None, "EVEN": True, "BLOCK": 64, "triton_version": None}
    table = Table.of(make_rows([first, {"kernel": "k", "BLOCK": "auto"}], "rows"))
    assert table.kinds["n_regs"] is Kind.NUMBER
    assert table.kinds["EVEN"] is Kind.CONDITION
    assert table.kinds["BLOCK"] is table.kinds["triton_version"] is Kind.TEXT


def test_a_label_has_what_tells_a_row_from_its_like() -> None:
    """A row is called by its kernel, its GPU and the columns in which rows of the kernel differ."""
    rows = [compiled(), compiled(num_warps=4), compiled("layer_norm")]
    table = Table.of(make_rows(rows, "rows"))
    labels = [table.label(row) for row in table.rows]
    assert labels == [
        "softmax on h100, num_warps 8",
        "softmax on h100, num_warps 4",
        "layer_norm on h100",
    ]


def test_a_failure_is_a_row() -> None:
    """What did not compile has a status, and no resources."""
    (row,) = make_rows([failed()], "rows")
    assert row.status == "compile failed"
    assert row.resources is None
