"""Recorded launches: tables of measurements, and the search for one launch."""

import csv
import dataclasses
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from stand_ins import CONDITIONS, MEASURED

from occupancy_lab.asked import ask
from occupancy_lab.compiled_records import failed
from occupancy_lab.errors import InputError
from occupancy_lab.evaluating.evaluation import counted_rows
from occupancy_lab.expressions import Kind
from occupancy_lab.files import export, plain_rows
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.kernel import load_kernel
from occupancy_lab.kernels.softmax import ALIKE
from occupancy_lab.sweeping import recorded
from occupancy_lab.sweeping.grid import measured_row
from occupancy_lab.sweeping.recorded import (
    NEEDED,
    UNSTEADY,
    latest_launches,
    read_table,
    recorded_as_compiled,
    recorded_copy,
    recorded_launches,
    recorded_measurement,
    recorded_ranking,
    recorded_table,
)
from occupancy_lab.table.columns import COLUMNS
from occupancy_lab.table.rows import to_csv, to_json
from occupancy_lab.values import Config, Failure, Measurement, Problem, Status

Row = tuple[str, Problem, Config, int, Measurement]


LAUNCH = {
    **dict.fromkeys(NEEDED, "1"),
    "gpu": "h200",
    "kernel": "softmax",
    "dtype": "float32",
    "measured": "measured",
}


def write(path: Path, **columns: object) -> None:
    """Write a table of two launches, the second with further *columns*."""
    pd.DataFrame([LAUNCH, LAUNCH | columns]).to_csv(path, index=False)


def test_file_is_read(tmp_path: Path) -> None:
    """A file's columns are numbers and texts, and missing columns are not added."""
    write(tmp_path / "own.csv", why_not=None, runs="30.0", mostly_launch=True, my_own="0x1")
    table = read_table(tmp_path / "own.csv")
    assert list(table.columns) == [*NEEDED, "why_not", "runs", "mostly_launch", "my_own"]
    first, last = table.to_dict("records")
    assert [first[name] for name in NEEDED[:4]] == ["h200", "softmax", 1, 1]
    assert (last["runs"], last["mostly_launch"], last["my_own"]) == (30, True, "0x1")
    assert all(pd.isna(first[name]) for name in ("why_not", "runs", "mostly_launch", "my_own"))


def test_an_export_is_read_back(tmp_path: Path) -> None:
    """Quoted texts are read without their quotes, and a byte order mark is ignored.

    The same rows as JSON are the same table.
    """
    table = read_rows_of(tmp_path, [LAUNCH | {"why_not": "=1+1\r\n'|"}, LAUNCH])
    assert table["why_not"].tolist()[0] == "=1+1\r\n'|"
    marked = "\ufeff".encode() + (tmp_path / "rows.csv").read_bytes()
    (tmp_path / "marked.csv").write_bytes(marked)
    assert read_table(tmp_path / "marked.csv").equals(table)
    export(tmp_path / "rows.json", to_json([*table], plain_rows(table)))
    assert read_table(tmp_path / "rows.json").equals(table)


def read_rows_of(folder: Path, rows: list[dict[str, str]]) -> pd.DataFrame:
    """Return *rows* after exporting and reading them."""
    export(folder / "rows.csv", to_csv([*pd.DataFrame(rows)], rows))
    return read_table(folder / "rows.csv")


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("num_warps", "", "blank; a whole number, 1 or more"),
        ("us", "", "blank; a number above 0"),
        ("launched", "", "blank; a whole number, 1 or more"),
        ("gpu", "h2oo", "'h2oo'; "),
        ("kernel", "", "blank; text"),
        ("kernel", "nothing", "'nothing'; one of softmax, "),
        ("kernel", "evil.py", "'evil.py'; one of softmax, "),
    ],
)
def test_strange_cells_are_named(tmp_path: Path, column: str, cell: str, expected: str) -> None:
    """An invalid cell is an error with the file, the line and the column."""
    write(tmp_path / "rows.csv", **{column: cell})
    words = re.escape(f"rows.csv, line 3: {column} is {expected}")
    with pytest.raises(InputError, match=words):
        read_table(tmp_path / "rows.csv")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "has no column gpu, kernel"),
        (b"gpu,kernel\nh200,softmax\n", "has no column rows, cols"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    """A file that is no table, or lacks a column, is an error that names it."""
    (tmp_path / "other.csv").write_bytes(content)
    with pytest.raises(InputError, match=rf"other\.csv,? {words}"):
        read_table(tmp_path / "other.csv")


def test_columns_have_their_types_in_the_schema() -> None:
    """Every column of a sweep and every recorded number has the type in the schema."""
    for name, values in recorded_table().items():
        kind = COLUMNS[name].kind
        assert pd.api.types.is_numeric_dtype(values.dtype) == (kind is Kind.NUMBER), name


def test_recorded_files_are_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded files of several GPUs are one table, with the GPU from the file's name."""
    monkeypatch.setattr(recorded, "files", lambda _package: tmp_path)
    with pytest.raises(InputError, match="no measured launches"):
        recorded_table()
    write(tmp_path / "measured-h200.csv", sgprs=None, throttled="power", rows=7)
    write(tmp_path / "measured-b200.csv", gpu="b200", sgprs=20, throttled=None)
    write(tmp_path / "driver-h200.csv")
    table = recorded_table()
    assert table["gpu"].tolist() == ["h200", "b200", "h200", "h200"]
    assert table["rows"].tolist() == [1, 1, 1, 7]
    assert table["sgprs"].isna().tolist() == [True, False, True, True]
    assert table.index.tolist() == [0, 1, 2, 3]


PROBLEM, CONFIG, PROGRAMS = Problem(4096, 781), Config(1024, 8, 4), 1056
PLANNED = 792
"""The programs of every row with as many as fit."""
PADDING = {f"column{number}": 123456 for number in range(20)} | {"num_programs": PLANNED}
"""Further columns, as many as in a sweep."""


def on(date: str, us: float) -> Measurement:
    """Return a measurement of another day."""
    conditions = dataclasses.replace(CONDITIONS, date=date)
    return dataclasses.replace(MEASURED, us=us, conditions=conditions)


def named(gpu: str, kernel: str, problem: Problem, config: Config) -> dict[str, object]:
    """Return the columns that identify a launch in a table."""
    asked = ask(NamedKernel(kernel, load_kernel(kernel)), problem, config, find_gpu(gpu))
    return failed(asked, Failure(Status.SKIPPED, "no GPU"), "3.7.1").named()


def lines(rows: Iterable[Row], gpu: str = "h200") -> list[dict[str, object]]:
    """Return the lines of a recorded file with *rows*."""
    return [
        named(gpu, kernel, problem, config)
        | PADDING
        | measured_row(programs, measurement)
        | {"use": "tuning"}
        for kernel, problem, config, programs, measurement in rows
    ]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Clear the cache of other tests' files."""
    recorded.recorded_launches.cache_clear()
    yield
    recorded.recorded_launches.cache_clear()


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes the only recorded file, for *gpu*, its rows with *damage*."""
    monkeypatch.setattr(recorded, "files", lambda _package: tmp_path)

    def write(*rows: Row, gpu: str = "h200", **damage: str) -> Path:
        path = tmp_path / f"measured-{gpu}.csv"
        values = [line | damage for line in lines(rows, gpu)]
        export(path, to_csv([*values[0]], values))
        return path

    return write


def found(num_programs: int | None = PROGRAMS, kernel: str = "softmax") -> Measurement | None:
    """Return the recorded time of the tutorial's example."""
    return recorded_measurement("h200", kernel, PROBLEM, CONFIG, num_programs)


@pytest.mark.parametrize(
    "damage",
    [
        ("us", "nan"),
        ("us", "inf"),
        ("us", "0"),
        ("us", "-12.4"),
        ("us", "1O"),
        ("us", ""),
        ("us_high", "much"),
        ("runs", "1e999"),
        ("launched", "-1"),
        ("launched", "many"),
        ("num_programs", "nan"),
    ],
    ids=" ".join,
)
def test_a_row_that_cannot_be_is_passed_over(
    record: Callable[..., Path], damage: tuple[str, str]
) -> None:
    """A row with invalid or impossible numbers is no measurement."""
    record(("softmax", PROBLEM, CONFIG, PROGRAMS, MEASURED), **dict([damage]))
    assert found(None) is None
    assert recorded_as_compiled("h200", "softmax", PROBLEM, CONFIG) is None


def test_what_is_not_known_stays_so(record: Callable[..., Path]) -> None:
    """An empty cell is None, not 0 and not a text."""
    unknown = dict.fromkeys(("date", "driver", "sm_mhz", "throttled"))
    conditions = dataclasses.replace(CONDITIONS, **unknown)
    numbers = dict.fromkeys(("us_low", "us_high", "runs", "relative_error", "mostly_launch"))
    bare = dataclasses.replace(MEASURED, conditions=conditions, **numbers)
    record(("softmax", PROBLEM, CONFIG, PROGRAMS, bare))
    assert found() == bare


def test_only_the_launch_itself_is_found(record: Callable[..., Path]) -> None:
    """A launch with another kernel, shape, dtype, setting, grid or GPU is not found."""
    record(
        ("softmax_row", PROBLEM, CONFIG, PROGRAMS, MEASURED),
        ("softmax", Problem(4096, 78), CONFIG, PROGRAMS, MEASURED),
        ("softmax", Problem(409, 781), CONFIG, PROGRAMS, MEASURED),
        ("softmax", Problem(4096, 781, "float16"), CONFIG, PROGRAMS, MEASURED),
        ("softmax", PROBLEM, Config(2048, 8, 4), PROGRAMS, MEASURED),
        ("softmax", PROBLEM, Config(1024, 8, 3), PROGRAMS, MEASURED),
        ("softmax", PROBLEM, CONFIG, PROGRAMS + 132, MEASURED),
    )
    record(("softmax", PROBLEM, CONFIG, PROGRAMS, MEASURED), gpu="h100")
    assert found() is None
    assert found(None) == MEASURED
    assert found(PROGRAMS + 132) == MEASURED


def test_a_launch_is_found_as_it_was_compiled(record: Callable[..., Path]) -> None:
    """If any number of programs is allowed, the planned launch is found, with its number."""
    record(
        ("softmax", PROBLEM, CONFIG, PLANNED + 132, on("2026-11-22", 20.0)),
        ("softmax", PROBLEM, CONFIG, PLANNED, MEASURED),
    )
    assert recorded_as_compiled("h200", "softmax", PROBLEM, CONFIG) == (PLANNED, MEASURED)
    assert recorded_as_compiled("h200", "softmax_row", PROBLEM, CONFIG) is None


def test_a_launch_has_one_time(record: Callable[..., Path]) -> None:
    """Of several recordings on one day the last in the file counts."""
    times = (20.0, 30.0, 10.0)
    path = record(
        *(("softmax", PROBLEM, CONFIG, PROGRAMS, on("2026-11-20", us)) for us in times[1:]),
        ("softmax", PROBLEM, CONFIG, PROGRAMS, on("2026-11-19", times[0])),
        ("softmax_row", PROBLEM, CONFIG, PROGRAMS, MEASURED),
    )
    assert [one.measurement.us for one in recorded_launches("h200", PROBLEM)] == [10.0, 12.4]
    assert list(latest_launches(pd.read_csv(path))["us"]) == [10.0, 12.4]


def test_an_unsteady_time_is_none(record: Callable[..., Path]) -> None:
    """A time whose range exceeds half of it is not used."""
    unsteady = dataclasses.replace(MEASURED, us_low=10.0, us_high=15.1)
    record(("softmax", PROBLEM, CONFIG, PROGRAMS, unsteady))
    assert found() is None


def test_every_page_has_the_same_fastest_launch() -> None:
    """The fastest recorded launch of a matrix is the fastest counted row, as in reports.

    Launches with more programs than fit are never faster beyond their spread.
    """
    counted = latest_launches(counted_rows(recorded_table()))
    for (gpu, rows, cols, dtype), table in counted.groupby(["gpu", "rows", "cols", "dtype"]):
        problem = Problem(rows, cols, dtype)
        ranking = recorded_ranking(gpu, problem, ALIKE)
        assert len(ranking) == len(table)
        assert ranking[0].measurement.us == table["us"].min()
        every = [one.measurement.us for one in recorded_launches(gpu, problem)]
        assert ranking[0].measurement.us <= 1.01 * min(every)


def test_two_megabytes_are_searched_in_a_moment(record: Callable[..., Path]) -> None:
    """A search of a 2 MB file takes less than 50 ms."""
    rows = [("softmax", Problem(rows, 781), CONFIG, PROGRAMS, MEASURED) for rows in range(1, 7001)]
    path = record(*rows)
    assert path.stat().st_size > 2e6
    seconds = []
    for _ in range(5):
        recorded.recorded_launches.cache_clear()
        start = time.perf_counter()
        assert found() == MEASURED
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.05


def test_recorded_files_can_be_searched() -> None:
    """Each measured row of the recorded files is found by its own name."""
    for file in recorded.recorded_files():
        with file.open(encoding="utf-8") as text:
            rows = [row for row in csv.DictReader(text) if row["measured"] == "measured"]
        rows = [row for row in rows if row["BLOCK_SIZE"]]  # not another implementation
        rows = [row for row in rows if float(row["us_high"]) < UNSTEADY * float(row["us_low"])]
        names = list(named("h200", "softmax", PROBLEM, CONFIG))
        assert list(rows[0])[: len(names)] == names
        for row in rows[:: max(len(rows) // 10, 1)]:
            config = Config(*(int(row[name]) for name in names[-3:]))
            problem = Problem(int(row["rows"]), int(row["cols"]), row["dtype"])
            launched = int(float(row["launched"]))
            one = recorded_measurement(row["gpu"], row["kernel"], problem, config, launched)
            assert one.us is not None


def test_recorded_copy_is_that_of_the_matrix() -> None:
    """A copy's time is found by rows, columns and dtype; other matrices and GPUs have none."""
    copy = recorded_copy("h200", PROBLEM)
    providers = pd.read_csv(recorded.files("occupancy_lab.recorded") / "providers-h200.csv")
    name = "rows == 4096 and cols == 781 and dtype == 'float32' and provider == 'copy'"
    assert [copy.us] == list(providers.query(name)["us"])
    assert recorded_copy("h200", dataclasses.replace(PROBLEM, cols=78)) is None
    assert recorded_copy("mi300x", PROBLEM) is None
