"""The GPUs and architectures of the data files, each number with its source."""

from __future__ import annotations

import csv
import dataclasses
import functools
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from occupancy_lab.gpus.gpu import Architecture, CudaArchitecture, Gpu, HipArchitecture, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CONVERTERS = {"int": int, "float": float, "str": str}


@functools.cache
def architectures() -> Mapping[str, Architecture]:
    """Return the limits of each architecture by its compiler's name: sm_90, gfx942."""
    return MappingProxyType({name: _architecture(name, rows) for name, rows in _limits().items()})


@functools.cache
def bare_gpus() -> Mapping[str, Gpu]:
    """Return each architecture as a Gpu of unknown size and speed, by its compiler's name."""
    return MappingProxyType(
        {
            name: Gpu(
                key=name,
                title=name,
                architecture=architecture,
                sources=MappingProxyType(_row_sources(_limits()[name])),
            )
            for name, architecture in architectures().items()
        }
    )


@functools.cache
def devices() -> Mapping[str, Gpu]:
    """Return each GPU that can be bought by its key: h100, mi300x."""
    numbers = _by_owner("device_numbers.csv", "device")
    return MappingProxyType({row["device"]: _device(row, numbers) for row in _rows("devices.csv")})


@functools.cache
def aliases() -> Mapping[str, tuple[str, ...]]:
    """Return the other names of each device by its key, those that drivers report included."""
    return MappingProxyType({row["device"]: _split(row["aliases"]) for row in _rows("devices.csv")})


@functools.cache
def pci_ids() -> Mapping[int, str]:
    """Return the key of the AMD device by PCI device id; siblings of other sizes share some ids."""
    return MappingProxyType(
        {
            int(pci_id, 16): row["device"]
            for row in _rows("devices.csv")
            for pci_id in _split(row["pci_ids"])
        }
    )


@functools.cache
def citations() -> Mapping[str, str]:
    """Return what each source is, by the id that the data files use."""
    return MappingProxyType({row["id"]: row["citation"] for row in _rows("sources.csv")})


def _device(row: Mapping[str, str], numbers: Mapping[str, list[dict[str, str]]]) -> Gpu:
    bare = bare_gpus()[row["architecture"]]
    rows = numbers.get(row["device"], [])
    return dataclasses.replace(
        bare,
        key=row["device"],
        title=row["title"],
        sources=MappingProxyType({**bare.sources, **_row_sources(rows)}),
        **_row_values(Gpu, rows),
    )


def _architecture(name: str, rows: Iterable[Mapping[str, str]]) -> Architecture:
    kind = CudaArchitecture if name.startswith("sm_") else HipArchitecture
    return kind(target_name=name, **_row_values(kind, rows))


def _row_values(kind: type[Any], rows: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    types = {field.name: str(field.type).split(" ")[0] for field in dataclasses.fields(kind)}
    return {row["quantity"]: _CONVERTERS[types[row["quantity"]]](row["value"]) for row in rows}


def _row_sources(rows: Iterable[Mapping[str, str]]) -> dict[str, Source]:
    return {
        row["quantity"]: Source(citations()[row["source"]], row["doubtful"] == "yes")
        for row in rows
    }


@functools.cache
def _limits() -> dict[str, list[dict[str, str]]]:
    return _by_owner("architectures.csv", "architecture")


def _by_owner(file: str, owner: str) -> dict[str, list[dict[str, str]]]:
    groups: dict[str, list[dict[str, str]]] = {}
    for row in _rows(file):
        groups.setdefault(row[owner], []).append(row)
    return groups


def _rows(file: str) -> list[dict[str, str]]:
    text = resources.files("occupancy_lab.gpus").joinpath("data", file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split("|")) if text else ()
