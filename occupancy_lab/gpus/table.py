"""The GPUs of the data files, each number with its source, and which of them a text means."""

from __future__ import annotations

import csv
import dataclasses
import difflib
import functools
import re
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import LONGEST_QUOTE, quoted, refuse, shortened
from occupancy_lab.gpus.gpu import Architecture, CudaArchitecture, Gpu, HipArchitecture, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


_CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "tuple[int,": lambda text: tuple(map(int, text.split("+"))),
}
"""By the first word of a field's type: what makes its value of a text."""


@functools.cache
def architectures() -> Mapping[str, Architecture]:
    """Return the limits of each architecture by its compiler's name: sm_90, gfx942."""
    found: dict[str, Architecture] = {}
    for name, rows in _limits().items():
        kind = CudaArchitecture if name.startswith("sm_") else HipArchitecture
        found[name] = kind(target_name=name, **_row_values(kind, rows))
    return MappingProxyType(found)


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
def usual_gpus() -> Mapping[str, Gpu]:
    """Return by the name of each target the GPU that stands for it where none is named.

    It is the first that the table has, and the bare architecture where it has none.
    """
    found: dict[str, Gpu] = {}
    for gpu in (*devices().values(), *bare_gpus().values()):
        found.setdefault(gpu.target.name, gpu)
    return MappingProxyType(found)


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


_BRANDS = frozenset({"nvidia", "geforce", "tesla", "amd", "instinct", "radeon", "graphics"})
_CUDA = re.compile(r"(?:cuda:?|sm|compute)([0-9]{2,3})[af]?(?::([0-9]+))?")
_HIP = re.compile(r"(?:hip:?)?(gfx[0-9a-f]{3,})(?::(?:sramecc|xnack)\+?)*(?::([0-9]+))?")


def find_gpu(text: str) -> Gpu:
    """Return the GPU that *text* means; case, spaces, hyphens and underscores do not matter.

    Known are the table's devices by key, title or alias (h100, H100 SXM, NVIDIA H100 80GB HBM3)
    and its architectures (sm_90, sm_90a, cuda:90:32, gfx942, hip:gfx942:64). A bare architecture
    gives its limits, and None for its size and speed.

    Raises:
        InputError: nothing in the table has this name, or the warp size is not the architecture's.
    """
    squeezed = re.sub(r"[\s_-]+", "", text.lower())
    if match := _CUDA.fullmatch(squeezed):
        return _bare_gpu(f"sm_{match[1]}", match[2])
    if match := _HIP.fullmatch(squeezed):
        return _bare_gpu(match[1], match[2])
    device = find_device(text)
    if device is None:
        normalized = _normalized(text)[:LONGEST_QUOTE]
        names = {**_keys(), **{_normalized(name): name for name in bare_gpus()}}
        close = [names[name] for name in difflib.get_close_matches(normalized, names, n=5)]
        question = f"; did you mean {' or '.join(dict.fromkeys(close))}?" if close else "."
        refuse(
            f"No GPU is called {quoted(text)}{question} `occupancy-lab gpus` lists those it knows."
        )
    return device


def find_gpus(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs of a comma-separated list, each once, in the order of their first mention.

    Raises:
        InputError: a part is empty or `find_gpu` does not know it.
    """
    parts = text.split(",")
    if not all(part.strip() for part in parts):
        refuse(f"The list of GPUs {quoted(text)} has an empty part; write it like h100,mi300x.")
    return tuple({gpu.key: gpu for gpu in map(find_gpu, parts)}.values())


def find_device(name: str) -> Gpu | None:
    """Return the device that has exactly this *name*, brands aside, or None."""
    key = _keys().get(_normalized(name))
    return None if key is None else devices()[key]


@functools.cache
def _keys() -> Mapping[str, str]:
    return MappingProxyType(
        {
            _normalized(name): key
            for key, gpu in devices().items()
            for name in (key, gpu.title, *aliases()[key])
        }
    )


def _normalized(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(word for word in words if word not in _BRANDS)


def _bare_gpu(name: str, warp_size: str | None) -> Gpu:
    gpu = bare_gpus().get(name)
    if gpu is None:
        known = ", ".join(other for other in bare_gpus() if other[:2] == name[:2])
        refuse(f"The architecture {shortened(name)} is not in the table, which has {known}.")
    architecture = gpu.architecture
    if warp_size not in {None, str(architecture.warp_size)}:
        refuse(
            f"Triton compiles {name} for {architecture.warp_word}s of {architecture.warp_size}, "
            f"not {shortened(str(warp_size))}; write {gpu.target}."
        )
    return gpu
