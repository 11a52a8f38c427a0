"""What the page of `explore` knows: formulas, architectures, GPUs, words, and compiled kernels."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab import __version__
from occupancy_lab.errors import InputError, quoted
from occupancy_lab.explaining.formula import VERDICTS, term_reasons
from occupancy_lab.explaining.limits import LACKING, SENTENCES
from occupancy_lab.exploring.formulas import OPTIONAL, USAGE, formulas
from occupancy_lab.files import read_cell, read_json, read_text
from occupancy_lab.gpus import find_gpu
from occupancy_lab.gpus.table import architectures, bare_gpus, devices
from occupancy_lab.occupancy.tutorial import terms_of
from occupancy_lab.text.words import LIMITS, resource_word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.gpus import Architecture, Gpu

_WORDS = ("vendor", "multiprocessor_word", "warp_word", "register_word", "shared_word")
_WORKED_OUT = ("max_warps", "registers", "max_warps_per_program")
LONGEST_LABEL = 200
"""The characters of a cell of a file of rows that the page shows."""


def page_data(rows: Path | str | None = None) -> dict[str, Any]:
    """Return all that the page is filled with; *rows* is a file of a sweep's or a scan's export.

    Raises InputError where that file cannot be read, or has no row with what an occupancy needs.
    """
    families: list[dict[str, Any]] = []
    known: dict[str, int] = {}
    limits: dict[str, dict[str, Any]] = {}
    for name, architecture in architectures().items():
        formula = formulas(architecture)
        family = known.setdefault(json.dumps(formula), len(families))
        if family == len(families):
            families.append(formula)
        limits[name] = {"family": family, **_architecture(architecture)}
    return {
        "version": __version__,
        "families": families,
        "architectures": limits,
        "gpus": [_gpu(gpu) for gpu in (*devices().values(), *bare_gpus().values())],
        "sentences": dict(SENTENCES),
        "verdicts": dict(VERDICTS),
        "lacking": dict(LACKING),
        "kernels": json.loads(_compiled_kernels()),
        "own": None if rows is None else read_rows(Path(rows)),
    }


def _compiled_kernels() -> str:
    return files("occupancy_lab.exploring").joinpath("kernels.json").read_text(encoding="utf-8")


def _architecture(architecture: Architecture) -> dict[str, Any]:
    """Return the architecture's numbers by the names of formulas and steps, and its words."""
    names = [field.name for field in dataclasses.fields(architecture)]
    numbers = {name: getattr(architecture, name) for name in (*names, *_WORKED_OUT)}
    words = {name: getattr(architecture, name) for name in _WORDS}
    return {
        "numbers": {name: value for name, value in numbers.items() if value is not None},
        "words": words,
        "resources": {name: resource_word(architecture.vendor, name) for name in LIMITS},
        "units": {
            name: limit.unit.format(architecture) for name, limit in LIMITS.items() if limit.unit
        },
        "terms": {term.name: _reason(term.name, architecture) for term in terms_of(architecture)},
    }


def _reason(term: str, architecture: Architecture) -> str:
    """Return why *architecture* lacks programs by *term*; "" for a term of another of its kind."""
    try:
        return term_reasons([term], architecture)
    except AttributeError:
        return ""


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        "key": gpu.key,
        "title": gpu.title,
        "architecture": gpu.architecture.target_name,
        "multiprocessors": gpu.multiprocessors,
    }


_SHOWN = ("kernel", "gpu", "rows", "cols", "dtype", "BLOCK_SIZE", "num_stages", "constexprs")
"""Columns of a file of rows that the page shows, where there are such."""
_NEEDED = ("n_regs", "shared", "num_warps")
_TIMES = ("predicted_us", "us")
_NAMES = ("kernel", "function", "name")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of the CSV or JSON file *path* that have registers, shared memory and warps.

    A row names its GPU in the column gpu or target. Raises InputError where it cannot be read, has
    no such row, or a cell that is not what its column holds.
    """
    rows = _json_rows(path) if path.suffix.lower() == ".json" else _csv_rows(path)
    found = [row for place, cells in enumerate(rows, 1) if (row := _row(cells, path, place))]
    if not found:
        msg = (
            f"{path} has no row with gpu or target, n_regs, shared and num_warps;"
            " occupancy-lab sweep --export-csv writes such rows"
        )
        raise InputError(msg)
    return found


def _csv_rows(path: Path) -> list[dict[str, Any]]:
    text = io.StringIO(read_text(path), newline="")
    try:
        return [
            {name: read_cell(cell) for name, cell in row.items() if cell and name}
            for row in csv.DictReader(text, strict=True)
        ]
    except csv.Error as error:
        msg = f"{path} cannot be read as a table: {error}"
        raise InputError(msg) from error


def _json_rows(path: Path) -> list[dict[str, Any]]:
    rows = read_json(read_text(path), str(path))
    if isinstance(rows, dict):  # what a scan writes has its rows beside what was not compiled
        rows = next((value for value in rows.values() if isinstance(value, list)), [])
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _row(cells: Mapping[str, Any], path: Path, place: int) -> dict[str, Any] | None:
    """Return what the page takes of a row; None where it has no resources that were read."""
    name = cells.get("gpu") or cells.get("target")
    was_read = (cells.get("status") or "ok") in {"ok", "does not fit"}
    if not name or not was_read or not all(_is_given(cells, one) for one in _NEEDED):
        return None
    try:
        gpu = find_gpu(str(name))
        numbers = {
            field: _whole(field, cells[field])
            for field in (*USAGE, *OPTIONAL)
            if _is_given(cells, field)
        }
        times = {one: _time(one, cells[one]) for one in _TIMES if _is_given(cells, one)}
    except (InputError, ValueError, TypeError) as error:
        msg = f"{path}, row {place}: {error}"
        raise InputError(msg) from error
    if numbers["num_warps"] < 1:
        msg = f"{path}, row {place}: num_warps is {numbers['num_warps']}; a program has 1 or more"
        raise InputError(msg)
    label = next((str(cells[one]) for one in _NAMES if cells.get(one)), "kernel")
    shown = {one: _text(cells[one])[:LONGEST_LABEL] for one in _SHOWN if cells.get(one)}
    return {**shown, "gpu": gpu.key, "kernel": label[:LONGEST_LABEL], **numbers, **times}


def _text(cell: Any) -> str:
    """Return a cell as text; the constexprs of a row of JSON are a mapping."""
    if isinstance(cell, dict):
        return ", ".join(f"{name}={value}" for name, value in cell.items())
    return str(cell)


def _is_given(cells: Mapping[str, Any], name: str) -> bool:
    return cells.get(name) is not None and cells[name] != ""


def _number(cell: Any) -> float:
    """Return a cell as a number: infinity is one that is larger than any that a row may have."""
    try:
        return float(cell)
    except OverflowError:
        return math.inf


def _time(name: str, cell: Any) -> float:
    time = _number(cell)
    if not 0 <= time < math.inf:
        msg = f"{name} is {quoted(str(cell))}, and not a time in us"
        raise ValueError(msg)
    return time


MOST = 2**31 - 1
"""The most of anything that a row may have: the browser's numbers stay exact."""


def _whole(name: str, cell: Any) -> int:
    number = _number(cell)
    if not number.is_integer() or not 0 <= number <= MOST:
        msg = f"{name} is {quoted(str(cell))}, and not a whole number from 0 to {MOST}"
        raise ValueError(msg)
    return int(number)
