"""The known GPUs and the GPUs at hand, in tables."""

from __future__ import annotations

import dataclasses
from typing import Any

from occupancy_lab.gpus import Gpu, PresentGpu, bare_gpus, devices, disagreements
from occupancy_lab.text.document import Document, Section, Table

DOUBTFUL = "?"
"""Marks a number whose sources leave it in doubt."""


def _number(gpu: Gpu, field: str, unit: float = 1) -> str:
    value = getattr(gpu, field)
    if value is None:
        return "-"
    return f"{value / unit:g}{DOUBTFUL if field in gpu.doubtful else ''}"


def list_gpus(present: tuple[PresentGpu, ...]) -> Document:
    """Return tables of every known GPU and architecture, and of the GPUs at hand."""
    here = "No GPU is at hand, but kernels can be compiled and explained for every GPU listed here."
    if present:
        here = f"At hand: {', '.join(one.name for one in present)}."
    known = tuple(
        (
            gpu.key,
            gpu.title,
            gpu.target.name,
            f"{_number(gpu, 'multiprocessors')} {gpu.architecture.multiprocessor_word}",
            _number(gpu, "bandwidth_gbs"),
            _number(gpu, "l2_bytes", 2**20),
        )
        for gpu in devices().values()
    )
    limits = tuple(
        (
            gpu.key,
            gpu.architecture.multiprocessor_word,
            f"{gpu.architecture.max_warps} x {gpu.architecture.warp_size}",
            str(gpu.architecture.registers),
            str(gpu.architecture.shared_per_multiprocessor),
            str(gpu.architecture.max_shared),
        )
        for gpu in bare_gpus().values()
    )
    sizes = ("name", "GPU", "target", "size", "GB/s", "L2 MiB")
    each = ("target", "", "warps", "registers", "shared B", "a program B")
    return Document(
        "GPUs",
        (
            here,
            f"{DOUBTFUL} marks a number in doubt.",
            "`occupancy-lab gpus NAME` gives the source of each number.",
        ),
        (
            *map(_present_section, present),
            Section("Devices", (Table(sizes, known),)),
            Section("Architectures, per multiprocessor", (Table(each, limits),)),
        ),
    )


def _present_section(one: PresentGpu) -> Section:
    rows = tuple((name, str(value)) for name, value in one.driver.items())
    table = Table(("what its driver reports", "value"), rows)
    agrees = ("Every number that the driver reports agrees with the table.",)
    return Section(f"At hand: {one.name}", (table,), tuple(disagreements(one) or agrees))


def describe_gpu(gpu: Gpu) -> Document:
    """Return every number of *gpu* with its source."""
    rows = tuple(
        (name, f"{value}{DOUBTFUL if name in gpu.doubtful else ''}", gpu.sources[name].text)
        for name, value in numbers(gpu).items()
        if name in gpu.sources
    )
    return Document(
        gpu.title,
        (
            f"{gpu.vendor} {gpu.target.name}, `--gpu {gpu.key}`.",
            f"{DOUBTFUL} marks a number in doubt.",
        ),
        (Section("Numbers", (Table(("number", "value", "source"), rows, prose=True),)),),
    )


def numbers(gpu: Gpu) -> dict[str, Any]:
    """Return every number of *gpu* and of its architecture by name."""
    names = [field.name for field in dataclasses.fields(gpu)]
    own = {one: getattr(gpu, one) for one in names if one not in {"architecture", "sources"}}
    return dataclasses.asdict(gpu.architecture) | own


def gpus_values(found: tuple[Gpu, ...], present: tuple[PresentGpu, ...]) -> dict[str, Any]:
    """Return *found*, or the whole table, and the GPUs at hand as plain values for JSON."""
    return {
        "gpus": [gpu_values(gpu) for gpu in found or (*devices().values(), *bare_gpus().values())],
        "present": [
            {"name": one.name, "index": one.index, "driver": {**one.driver}, **gpu_values(one.gpu)}
            for one in present
        ],
    }


def gpu_values(gpu: Gpu) -> dict[str, Any]:
    """Return *gpu* as plain values for JSON: each number with its source and any doubt."""
    return {
        "key": gpu.key,
        "title": gpu.title,
        "vendor": gpu.vendor,
        "target": str(gpu.target),
        "numbers": {
            name: {
                "value": value,
                "source": gpu.sources[name].text,
                "doubtful": gpu.sources[name].doubtful,
            }
            for name, value in numbers(gpu).items()
            if name in gpu.sources
        },
    }
