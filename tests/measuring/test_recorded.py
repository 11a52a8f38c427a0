"""What was measured elsewhere, found again by what was launched."""

from __future__ import annotations

import csv
import dataclasses
import time
from typing import TYPE_CHECKING

import pytest
from stand_ins import CONDITIONS

from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.measuring import recorded
from occupancy_lab.measuring.recorded import recorded_as_compiled, recorded_measurement
from occupancy_lab.record import name_columns
from occupancy_lab.sweeping.measured import measured_row
from occupancy_lab.values import Config, Measurement, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Row = tuple[str, Problem, Config, int, Measurement]

PROBLEM, CONFIG, PROGRAMS = Problem(4096, 781), Config(1024, 8, 4), 1056
MEASURED = Measurement(
    "measured", CONDITIONS, None, 12.4, 12.2, 13.1, 30, 1.5e-7, mostly_launch=False
)
PLANNED = 792
"""The programs of every row that are as many as fit."""
PADDING = {f"column{number}": 123456 for number in range(20)} | {"num_programs": PLANNED}
"""As many columns more as a sweep has, which a search must pass over."""


def on(date: str, us: float) -> Measurement:
    """Return a measurement of another day."""
    conditions = dataclasses.replace(CONDITIONS, date=date)
    return dataclasses.replace(MEASURED, us=us, conditions=conditions)


def lines(rows: Iterable[Row], gpu: str = "h200") -> list[dict[str, object]]:
    """Return the rows of a recorded file, as a measured sweep makes them."""
    return [
        name_columns(find_gpu(gpu), load_kernel(kernel), problem, config)
        | PADDING
        | measured_row(programs, measurement)
        | {"use": "tuning"}
        for kernel, problem, config, programs, measurement in rows
    ]


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that makes a recorded file of rows, the only ones there are then."""
    paths: list[Path] = []
    monkeypatch.setattr(recorded, "recorded_files", lambda: paths)

    def write(*rows: Row, gpu: str = "h200") -> Path:
        path = tmp_path / f"measured-{len(paths)}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            values = lines(rows, gpu)
            writer = csv.DictWriter(file, values[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(values)
        paths.append(path)
        return path

    return write


def found(num_programs: int | None = PROGRAMS, kernel: str = "softmax") -> Measurement | None:
    """Return what was recorded of the tutorial's example."""
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
    """A row whose numbers are none, or none that a launch can have had, is no measurement."""
    path = record(("softmax", PROBLEM, CONFIG, PROGRAMS, MEASURED))
    name, text = damage
    with path.open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        writer.writeheader()
        writer.writerow(row | {name: text})
    assert found(None) is None
    assert recorded_as_compiled("h200", "softmax", PROBLEM, CONFIG) is None


def test_a_measurement_comes_back_whole(record: Callable[..., Path]) -> None:
    """Times and conditions are those that were written."""
    record(("softmax", PROBLEM, CONFIG, PROGRAMS, MEASURED))
    assert found() == MEASURED


def test_what_is_not_known_stays_so(record: Callable[..., Path]) -> None:
    """An empty cell is None, not 0, not a text."""
    unknown = dict.fromkeys(("date", "driver", "sm_mhz", "throttled"))
    conditions = dataclasses.replace(CONDITIONS, **unknown)
    numbers = dict.fromkeys(("us_low", "us_high", "runs", "relative_error", "mostly_launch"))
    bare = dataclasses.replace(MEASURED, conditions=conditions, **numbers)
    record(("softmax", PROBLEM, CONFIG, PROGRAMS, bare))
    assert found() == bare


def test_only_the_launch_itself_is_found(record: Callable[..., Path]) -> None:
    """Another kernel, shape, dtype, configuration, count of programs or GPU is another launch."""
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
    """Of whatever number of programs, the one that was planned counts, with that number."""
    record(
        ("softmax", PROBLEM, CONFIG, PLANNED + 132, on("2026-11-22", 20.0)),
        ("softmax", PROBLEM, CONFIG, PLANNED, MEASURED),
    )
    assert recorded_as_compiled("h200", "softmax", PROBLEM, CONFIG) == (PLANNED, MEASURED)
    assert recorded_as_compiled("h200", "softmax_row", PROBLEM, CONFIG) is None


def test_a_failed_launch_is_not_a_time(record: Callable[..., Path]) -> None:
    """A row whose launch failed is passed over."""
    record(("softmax", PROBLEM, CONFIG, PROGRAMS, Measurement("wrong result", CONDITIONS, "no")))
    assert found() is None


def test_the_latest_day_counts(record: Callable[..., Path]) -> None:
    """Of several days, in whatever files, the last is taken."""
    record(
        ("softmax", PROBLEM, CONFIG, PROGRAMS, on("2026-11-20", 20.0)),
        ("softmax", PROBLEM, CONFIG, PROGRAMS, on("2026-12-01", 30.0)),
    )
    record(("softmax", PROBLEM, CONFIG, PROGRAMS, on("2026-11-30", 40.0)))
    assert found() == on("2026-12-01", 30.0)


def test_no_file_has_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing was recorded there is no measurement, and no error."""
    monkeypatch.setattr(recorded, "recorded_files", list)
    assert found() is None


def test_two_megabytes_are_searched_in_a_moment(record: Callable[..., Path]) -> None:
    """A file of 2 MB takes less than 50 ms."""
    rows = [("softmax", Problem(rows, 781), CONFIG, PROGRAMS, MEASURED) for rows in range(1, 7001)]
    path = record(*rows)
    assert path.stat().st_size > 2e6
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        assert found() == MEASURED
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.05


def test_recorded_files_can_be_searched() -> None:
    """What is recorded begins with a row's name, and each measured row is found by it."""
    for file in recorded.recorded_files():
        with file.open(encoding="utf-8") as text:
            rows = [row for row in csv.DictReader(text) if row["measured"] == "measured"]
        rows = [row for row in rows if row["BLOCK_SIZE"]]  # not what kernels are compared with
        names = list(name_columns(find_gpu("h200"), load_kernel("softmax"), PROBLEM, CONFIG))
        assert list(rows[0])[: len(names)] == names
        for row in rows[:: max(len(rows) // 10, 1)]:
            config = Config(*(int(row[name]) for name in names[-3:]))
            problem = Problem(int(row["rows"]), int(row["cols"]), row["dtype"])
            launched = int(float(row["launched"]))
            one = recorded_measurement(row["gpu"], row["kernel"], problem, config, launched)
            assert one is not None
            assert one.us is not None
