"""What is installed, found and missing, and what each missing item is for."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from occupancy_lab import __version__
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compile import can_compile
from occupancy_lab.gpus import find_gpu, present_gpus
from occupancy_lab.measuring.ncu import find_ncu
from occupancy_lab.text.document import Document, Section, Table, literal
from occupancy_lab.throughput.calibrations import known_calibrations

REQUIRED = ("triton", "torch", "click", "rich", "pandas", "tabulate", "matplotlib", "platformdirs")
NVML = "nvidia-ml-py"
NVML_USE = (
    "reads the clock of a measurement, and what throttled it; `pip install 'occupancy-lab[nvidia]'`"
)
PROBED_TARGETS = ("sm_90", "gfx942")


@dataclass(frozen=True, slots=True)
class Finding:
    """One item that was looked for: "ok", "missing" (optional) or "problem" (required)."""

    subject: str
    status: str
    detail: str


def examine() -> tuple[Finding, ...]:
    """Return a finding for each thing that the lab uses."""
    return (
        Finding("occupancy-lab", "ok", __version__),
        Finding("Python", "ok", f"{platform.python_version()} at {sys.executable}"),
        *(_package(one, "problem", f"not installed; `pip install {one}`") for one in REQUIRED),
        *_compilers(),
        *_gpus(),
        _store(),
        *_calibrations(),
        _ncu(),
        _package(NVML, "missing", NVML_USE),
    )


def _package(name: str, status: str, missing: str) -> Finding:
    try:
        return Finding(name, "ok", version(name))
    except PackageNotFoundError:
        return Finding(name, status, missing)


def _compilers() -> Iterator[Finding]:
    for name in PROBED_TARGETS:
        subject = f"compiler for {name}"
        try:
            works = can_compile(find_gpu(name).target)
        except ImportError as error:
            yield Finding(subject, "problem", f"Triton cannot be imported: {error}")
            continue
        except Exception as error:  # noqa: BLE001 - Triton may fail in any way
            yield Finding(subject, "problem", f"cannot be tried: {error}")
            continue
        detail = "compiles without a GPU" if works else "the installed Triton has none"
        yield Finding(subject, "ok" if works else "problem", detail)


def _gpus() -> Iterator[Finding]:
    present = present_gpus()
    if not present:
        yield Finding("GPU", "missing", "none here: kernels are compiled and explained, not run")
    for one in present:
        size = f"{one.gpu.multiprocessors} {one.gpu.architecture.multiprocessor_word}s"
        yield Finding("GPU", "ok", f"{one.name}, {one.gpu.target.name}, {size}")


def _store() -> Finding:
    directory = store_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return Finding("store", "problem", f"{directory} cannot be written: {reason}")
    entries = sum(1 for _ in directory.glob("resources/*/*.json"))
    return Finding("store", "ok", f"{entries} compiled kernels in {directory}")


def _calibrations() -> Iterator[Finding]:
    known = known_calibrations()
    if not known:
        use = "measures this machine's GPU, to replace its data sheet"
        yield Finding("calibration", "missing", f"none; `occupancy-lab calibrate` {use}")
    for one in known:
        detail = f"{one.gpu}: {one.device}, {one.date}, Triton {one.triton}"
        yield Finding("calibration", "ok", detail)


def _ncu() -> Finding:
    path = find_ncu()
    if path is None:
        use = "Nsight Compute counts what a launch really does, for `verify`"
        return Finding("ncu", "missing", f"neither on the PATH nor beside CUDA: {use}")
    return Finding("ncu", "ok", str(path))


def write_findings(findings: tuple[Finding, ...]) -> Document:
    """Return *findings* as a table."""
    problems = [finding.subject for finding in findings if finding.status == "problem"]
    answer = (
        f"Needs attention: {', '.join(problems)}." if problems else "Everything needed is here."
    )
    rows = tuple((item.subject, item.status, literal(item.detail)) for item in findings)
    return Document(
        "doctor", (answer,), (Section("Found", (Table(("", "", ""), rows, prose=True),)),)
    )
