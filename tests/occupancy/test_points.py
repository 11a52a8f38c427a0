"""The calculator for tables equals the scalar formulas, and errors name the line."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy import occupancy, tutorial_occupancy
from occupancy_lab.occupancy.calculator import clusters
from occupancy_lab.occupancy.points import calculate_points, evaluate_points, read_points
from occupancy_lab.values import Resources

TARGETS = st.sampled_from(
    ["h100", "h200", "b200", "sm_75", "sm_120", "cuda:90:32", "mi300x", "gfx1201", "gfx908"]
)
COLUMNS = (
    *("n_regs", "shared", "num_warps", "sgprs", "static_shared", "barriers"),
    *("tensor_memory", "num_ctas"),
)
Points = Callable[[str], str]
HEADER = "target,n_regs,shared,num_warps"


@pytest.fixture
def points(tmp_path: Path) -> Points:
    """Return a function that makes a file of points with a text."""

    def points(text: str) -> str:
        (tmp_path / "points.csv").write_bytes(text.encode())
        return str(tmp_path / "points.csv")

    return points


def by_hand(target: str, resources: Resources) -> dict[str, object]:
    """Return the scalar formulas' results for a row, by the table's names."""
    architecture = find_gpu(target).architecture
    found = occupancy(resources, architecture)
    limits = {limit.resource: limit.programs for limit in found.limits}
    said = tutorial_occupancy(resources, architecture).programs_per_multiprocessor
    names = ("warps", "registers", "shared", "programs", "sgprs", "barriers", "tensor_memory")
    whole = clusters(resources.num_ctas, found.programs_per_multiprocessor, find_gpu(target))
    return {
        "programs_per_multiprocessor": found.programs_per_multiprocessor,
        "limiter": "+".join(found.limiters),
        "occupancy": found.occupancy,
        "tutorial_programs": said,
        **{f"limit_{name}": limits.get(name) for name in names},
        "resident_clusters": None if whole is None else whole.resident,
    }


@settings(max_examples=50)
@given(st.lists(st.tuples(TARGETS, st.from_type(Resources)), min_size=1, max_size=20))
def test_each_row_is_the_scalar_formulas(rows: list[tuple[str, Resources]]) -> None:
    """Every added cell equals the scalar formulas', in order."""
    points = [
        (
            target,
            resources.replace(
                sgprs=resources.sgprs or 0,
                barriers=resources.barriers or 0,
                tensor_memory=resources.tensor_memory or 0,
            ),
        )
        for target, resources in rows
    ]
    table = pd.DataFrame(
        [
            {"target": target, **{name: getattr(resources, name) for name in COLUMNS}}
            for target, resources in points
        ]
    )
    found = evaluate_points(table).astype(object)
    found = found.where(found.notna(), None)
    for (target, resources), row in zip(points, found.to_dict("records"), strict=True):
        expected = by_hand(target, resources.replace(allocated_vgprs=None))
        assert {name: row[name] for name in expected} == expected
        assert row["target"] == target


def test_optional_columns_count_and_bring_their_limits(points: Points) -> None:
    """Optional columns count, with a limit of their own; blanks do not."""
    text = f"{HEADER},sgprs,static_shared,barriers\ngfx942,16,0,4,92,,\nsm_90,16,0,4,,20000,8\n"
    table = evaluate_points(read_points(points(text)))
    assert table["programs_per_multiprocessor"].tolist() == [7, 8]
    assert table["limiter"].tolist() == ["sgprs", "barriers"]
    assert table["limit_sgprs"].astype(object).where(lambda cell: cell.notna(), None).tolist() == [
        7,
        None,
    ]
    assert table["limit_barriers"].isna().tolist() == [True, False]
    assert table["limit_shared"].isna().tolist() == [True, False]


def test_no_points_give_no_rows(points: Points) -> None:
    """A file with only a header gives every column and no row."""
    table = evaluate_points(read_points(points(f"{HEADER},sgprs,num_ctas\n")))
    assert len(table) == 0
    added = {"programs_per_multiprocessor", "limiter", "limit_sgprs", "resident_clusters"}
    assert added <= set(table.columns)


def test_a_table_keeps_its_index(points: Points) -> None:
    """Rows are identified by position, even if the index repeats."""
    table = read_points(points(f"{HEADER}\nsm_90,32,16,8\ngfx942,64,16,8\n")).set_axis([7, 7])
    found = evaluate_points(table)
    assert found.index.tolist() == [7, 7]
    assert found["programs_per_multiprocessor"].tolist() == [8, 4]


def test_output_can_be_put_in_again(points: Points) -> None:
    """The calculator's output, as input, gives the same output."""
    text = f"{HEADER},barriers\nsm_90,168,16,8,1\ngfx1201,97,0,4,0\nh100,300,1,1,1\n"
    once = calculate_points(points(text))
    assert calculate_points(points(once)) == once


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{HEADER}\r\nsm_90,32,16,8\r\n", id="carriage returns"),
        pytest.param(f"\ufeff{HEADER}\nsm_90,32,16,8\n", id="byte order mark"),
        pytest.param(f"{HEADER}\nsm_90, 32 , 16, 8 \n", id="spaces"),
        pytest.param(f"{HEADER}\n\nsm_90,32,16,8\n\n\n", id="blank lines"),
        pytest.param(f"{HEADER}\n,,,\nsm_90,32,16,8\n,,,\n", id="blank rows of a spreadsheet"),
        pytest.param(f"{HEADER}\nsm_90,32.0,16,8", id="no newline at the end"),
        pytest.param(f'{HEADER}\n"sm_90","32",16,8\n', id="quotes"),
        pytest.param("num_warps,shared,n_regs,target\n8,16,32,sm_90\n", id="another order"),
    ],
)
def test_forms_of_one_file(points: Points, text: str) -> None:
    """Forms that editors and spreadsheets give a file do not change its points."""
    table = read_points(points(text))
    assert table.index.tolist() == [0]
    assert table["target"].tolist() == ["sm_90"]
    assert table[["n_regs", "shared", "num_warps"]].to_numpy().tolist() == [[32, 16, 8]]
    assert {str(table[name].dtype) for name in ("n_regs", "shared", "num_warps")} == {"int64"}


GOOD = "sm_90,32,16,8"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["target,n_regs,shared", "sm_90,1,2"], " has no column num_warps; a file of points has"),
        ([HEADER.replace(",", ";"), "sm_90;1;2;3"], " has no column target"),
        ([], " has no column target"),
        ([HEADER, GOOD, "sm_90,abc,16,8"], ", line 3: n_regs is 'abc'; a whole number, 0 or more"),
        ([HEADER, GOOD, "", "sm_90,abc,16,8"], ", line 4: n_regs is 'abc'"),
        ([HEADER, GOOD, "sm_90,32,-1,8"], ", line 3: shared is '-1'; a whole number, 0 or more"),
        ([HEADER, GOOD, "sm_90,32,16,0"], ", line 3: num_warps is '0'; a whole number, 1 or more"),
        ([HEADER, GOOD, "sm_90,32.5,16,8"], ", line 3: n_regs is '32.5'"),
        ([HEADER, GOOD, "sm_90,99999999999,16,8"], ", line 3: n_regs is '99999999999'"),
        ([HEADER, GOOD, "sm_90,32,,8"], ", line 3: shared is blank"),
        ([HEADER, GOOD, ",32,16,8"], ", line 3: target is blank"),
        ([HEADER, GOOD, "sm_1,32,16,8"], ", line 3: No GPU is called 'sm_1'"),
        ([HEADER, GOOD, "sm_90,32,16,8,9"], ", line 3: found 5 fields, expected 4"),
        ([HEADER, GOOD, '"sm_90,32,16,8'], " cannot be read as a table: unexpected end of data"),
        ([f"{HEADER},sgprs", f"{GOOD},", f"{GOOD},x"], ", line 3: sgprs is 'x'"),
        ([HEADER, GOOD, "sm_90,32,16,3"], ", line 3: num_warps is 3; Triton takes a power of two"),
        ([f"{HEADER},num_ctas", f"{GOOD},0"], ", line 2: num_ctas is '0'; a whole number, 1"),
        ([HEADER, GOOD, "mi300x,32,16,32"], ", line 3: num_warps is 32; a program on gfx942 has"),
        ([HEADER, "sm_90,True,16,8"], ", line 2: n_regs is 'True'; a whole number, 0 or more"),
        ([f"{HEADER},n_regs", f"{GOOD},64"], " has the column 'n_regs' 2 times"),
    ],
)
def test_errors_name_the_file_and_the_line(points: Points, lines: list[str], message: str) -> None:
    """An error has the file's name, the first bad line and the reason."""
    with pytest.raises(InputError) as raised:
        read_points(points("".join(f"{line}\n" for line in lines)))
    assert f"points.csv{message}" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_unknown_target_of_a_table_is_refused() -> None:
    """For a table without a file the error names only the target."""
    table = pd.DataFrame({"target": ["sm_1"], "n_regs": [1], "shared": [1], "num_warps": [1]})
    with pytest.raises(InputError, match="No GPU is called 'sm_1'"):
        evaluate_points(table)


def test_json_has_the_rows_of_the_csv(points: Points) -> None:
    """JSON rows have the CSV's columns; an empty cell is null."""
    text = f"{HEADER},note\nsm_90,0,12320,8,=1+1\ngfx942,91,32,8,\n"
    rows = json.loads(calculate_points(points(text), as_json=True))
    assert [row["note"] for row in rows] == ["=1+1", None]
    assert [row["tutorial_programs"] for row in rows] == [None, 4]
    read_back = pd.read_csv(io.StringIO(calculate_points(points(text))))
    assert list(read_back) == list(rows[0])
    for name in ("occupancy", "programs_per_multiprocessor", "n_regs"):
        assert read_back[name].tolist() == [row[name] for row in rows]


def test_other_columns_are_no_formulas_in_a_spreadsheet(points: Points) -> None:
    """A text that looks like a formula is quoted, and read back unchanged."""
    first = calculate_points(points(f"{HEADER},note\nsm_90,32,0,8,=1+1\nsm_90,32,0,8,-a\n"))
    assert ",'=1+1," in first
    assert ",'-a," in first
    assert calculate_points(points(first)) == first
