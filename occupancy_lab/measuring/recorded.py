"""Measurements that were recorded on GPUs that are elsewhere, shown wherever the package runs."""

from __future__ import annotations

import csv
import dataclasses
import math
from importlib.resources import files
from typing import TYPE_CHECKING

from occupancy_lab.values import Conditions, Measurement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.resources.abc import Traversable

    from occupancy_lab.values import Config, Problem

_FLAGS = {"True": True, "False": False}


def recorded_measurement(
    gpu_key: str, kernel_name: str, problem: Problem, config: Config, num_programs: int | None
) -> Measurement | None:
    """Return the latest recorded measurement of a launch on the GPU *gpu_key*, None for none.

    It was launched with *num_programs* programs; for None any number will do, as for a kernel that
    launches one program a row whatever is asked for.
    """
    latest = _latest(
        row
        for row in _measured_rows(gpu_key, kernel_name, problem, config)
        if num_programs is None or _integer(row["launched"]) == num_programs
    )
    return None if latest is None else _measurement(latest)


def recorded_as_compiled(
    gpu_key: str, kernel_name: str, problem: Problem, config: Config
) -> tuple[int, Measurement] | None:
    """Return the latest recorded launch with as many programs as fitand that number; None for none.

    It is the number for what was compiled then, which another Triton may compile differently.
    """
    latest = _latest(
        row
        for row in _measured_rows(gpu_key, kernel_name, problem, config)
        if _integer(row["launched"]) == _integer(row["num_programs"])
    )
    programs = None if latest is None else _integer(latest["launched"])
    return None if latest is None or programs is None else (programs, _measurement(latest))


def recorded_copy(gpu_key: str, problem: Problem) -> Measurement | None:
    """Return the latest recorded measurement of a plain copy of *problem*'s matrix, None for none.

    It was measured beside the kernels, on the GPU *gpu_key*.
    """
    file = files("occupancy_lab.recorded") / f"providers-{gpu_key}.csv"
    if not file.is_file():
        return None
    start = f"{problem.rows},{problem.cols},{problem.dtype},copy,measured,"
    latest = _latest(row for row in _rows(file, start, "") if _has_time(row))
    return None if latest is None else _measurement(latest)


def _has_time(row: dict[str, str]) -> bool:
    try:
        return (_measurement(row).us or 0) > 0
    except (KeyError, TypeError, ValueError):
        return False


def _latest(rows: Iterable[dict[str, str]]) -> dict[str, str] | None:
    return max(rows, key=lambda row: row["date"], default=None)


def _measured_rows(
    gpu_key: str, kernel_name: str, problem: Problem, config: Config
) -> Iterator[dict[str, str]]:
    name = [kernel_name, problem.rows, problem.cols, problem.dtype, *dataclasses.astuple(config)]
    for file in recorded_files():
        for row in _rows(file, f"{gpu_key},", f",{','.join(map(str, name))},"):
            if row["measured"] == "measured" and _can_be(row):
                yield row


def _can_be(row: dict[str, str]) -> bool:
    """Return whether *row* holds a time and numbers that a launch can have had."""
    try:
        programs = _integer(row["launched"]), _integer(row["num_programs"])
    except (KeyError, TypeError, ValueError):
        return False
    return _has_time(row) and all(number is None or number > 0 for number in programs)


def recorded_files() -> list[Traversable]:
    """Return the files of recorded measurements by name."""
    entries = files("occupancy_lab.recorded").iterdir()
    return sorted(
        (one for one in entries if one.name.startswith("measured-") and one.name.endswith(".csv")),
        key=lambda one: one.name,
    )


def _rows(file: Traversable, start: str, part: str) -> Iterator[dict[str, str]]:
    """Return the rows whose line begins with *start* and holds *part*.

    Lines are sifted before they are parsed: it is ten times as fast. A row's name stands at its
    beginning, in the order of `name_columns`.
    """
    text = file.read_text(encoding="utf-8")
    if part not in text:
        return iter(())
    header, *lines = text.splitlines()
    chosen = (line for line in lines if line.startswith(start) and part in line)
    return csv.DictReader(chosen, fieldnames=header.split(","))


def _measurement(row: dict[str, str]) -> Measurement:
    return Measurement(
        status=row["measured"],
        conditions=Conditions(
            device=row["device"],
            date=row["date"] or None,
            driver=row["driver"] or None,
            torch=row["torch"],
            triton=row["triton"],
            timer=row["timer"],
            l2=row["l2"],
            sm_mhz=_integer(row["sm_mhz"]),
            throttled=row["throttled"] or None,
        ),
        us=_number(row["us"]),
        us_low=_number(row["us_low"]),
        us_high=_number(row["us_high"]),
        runs=_integer(row["runs"]),
        relative_error=_number(row["relative_error"]),
        mostly_launch=_FLAGS.get(row["mostly_launch"]),
    )


def _number(text: str) -> float | None:
    """Return a number that is neither negative nor infinite; None for an empty *text*."""
    number = float(text) if text else None
    if number is not None and not 0 <= number < math.inf:
        msg = f"{number} is no number that can be measured"
        raise ValueError(msg)
    return number


def _integer(text: str) -> int | None:
    number = _number(text)
    return None if number is None else int(number)
