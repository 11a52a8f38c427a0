"""The constants of the throughput model, and which of them hold for a GPU."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.store import (
    CHECKSUM,
    MOST_BYTES,
    read_kept,
    store_directory,
    write_kept,
)
from occupancy_lab.files import read_bytes
from occupancy_lab.gpus import find_device

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from occupancy_lab.gpus import Gpu


def _constant(meaning: str) -> Any:
    return dataclasses.field(metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of one GPU; cycles are of the multiprocessors' clock."""

    launch_us: float = _constant("A launch of one empty program, as the timer sees it.")
    program_us: float = _constant(
        "The time from one program's start to the next's, on the whole GPU."
    )
    row_bandwidth_gbs: float = _constant(
        "What the device memory gives when programs come in the order of the rows."
    )
    loop_bandwidth_gbs: float = _constant(
        "What it gives when resident programs stride over the rows, each at its own pace."
    )
    copy_bandwidth_gbs: float = _constant(
        "What it gives when such programs copy rows ahead to shared memory (num_stages above 1)."
    )
    split_loss: float = _constant(
        "The part of a loop's bandwidth that rows cost which share a sector of 32 bytes."
    )
    latency_us: float = _constant("A load from device memory that nothing else slows.")
    stall_factor: float = _constant(
        "How many times its stall cycles a warp takes that no other delays: these leave out waits "
        "for special functions and for shared memory."
    )
    shuffle_cycles: float = _constant(
        "Cycles that a warp waits for a shuffle, beyond an instruction's."
    )
    local_cycles: float = _constant("The same for a load of local memory.")
    fetch_cycles: float = _constant(
        "Cycles from an instruction to the next where the instruction cache does not hold them."
    )
    first_fetch_cycles: float = _constant("The same in a program's first pass over its code.")
    shared_cycles: float = _constant(
        "Cycles for which an access of a warp to shared memory keeps the memory pipe."
    )
    l2_gbs: float = _constant(
        "What each multiprocessor moves of local memory from and to the L2 cache, when all do."
    )
    at_once_share: float = _constant(
        "The part of the others' instructions that a program waits for in a launch of one round."
    )
    pass_us: float = _constant(
        "What a pass takes longer where it hides a load (num_stages above 2)."
    )
    drain_us: float = _constant("From the last store to the end of the launch.")
    ramp_us: float = _constant(
        "What a launch loses before the memory, where it is the limit, moves at its full rate."
    )
    last_share: float = _constant(
        "The part of a row's work that is left when all is loaded, where the memory is the limit "
        "or rows are copied ahead."
    )
    fill_share: float = _constant(
        "How much of the first loads is not made up for, where the memory is not the limit."
    )
    start_share: float = _constant(
        "The same of the time in which the first programs start one after the other."
    )
    pass_share: float = _constant(
        "How much of the one pass that copies ahead cannot hide is not made up for."
    )
    tail_share: float = _constant(
        "How much of a last round with fewer programs is not made up for by their being fewer."
    )
    exchange_us: float = _constant(
        "How far the times at which programs of one row have told the others of theirs lie apart, "
        "the way through the L2 cache included: their deviation, as the slowest of many shows it."
    )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the constants' names in their order."""
        return tuple(cls.meanings())

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Return a sentence for each constant, by its name."""
        return {field.name: field.metadata["meaning"] for field in dataclasses.fields(cls)}

    def can_be(self) -> bool:
        """Return whether each is a finite number, none negative, and what is divided by above 0."""
        values = dataclasses.asdict(self)
        return (
            all(type(value) in {int, float} and 0 <= value < math.inf for value in values.values())
            and all(value > 0 for name, value in values.items() if name.endswith("_gbs"))
            and self.split_loss < 1
        )

    def replace(self, **changes: float) -> Constants:
        """Return a copy with *changes* made."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Constants, and where they are from."""

    constants: Constants
    gpu: str
    """The key of the GPU that they hold for."""
    device: str
    """The driver's name of the GPU that they were measured on."""
    date: str
    torch: str
    triton: str
    units: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """What each of its units does by itself, as far as it was measured, by the names of
    `calibrating.units.Units`."""

    def write(self, path: Path) -> None:
        """Write the calibration to *path*, as JSON; OSError where it cannot be written."""
        write_kept(path, dataclasses.asdict(self))

    @classmethod
    def read(cls, text: str | bytes) -> Calibration:
        """Return the calibration that `write` made *text* of; ValueError for any other text.

        A text without a checksum will do, but no constant that the model cannot calculate with.
        """
        values = read_kept(text)
        values.pop(CHECKSUM, None)
        try:
            constants, units = Constants(**values.pop("constants")), dict(values.pop("units", {}))
            found = cls(constants, units=units, **values)
        except (TypeError, KeyError, ValueError) as error:
            msg = f"no calibration of this version: {error}"
            raise ValueError(msg) from error
        are_numbers = all(
            type(one) in {int, float} and 0 < one < math.inf for one in units.values()
        )
        are_names = all(isinstance(value, str) for value in values.values())
        if not (constants.can_be() and are_numbers and are_names):
            msg = "no calibration: a constant is out of its range, or a name is none"
            raise ValueError(msg)
        return found


UNCONFIRMED_ERROR = 0.16
"""What nine in ten predictions for an H100 are off by at most, and nine in ten ratios of two of one
matrix, where they rest on the data sheet and an H200 as those of GPUs do that nobody measured: 12
and 15 % of 3275 launches. Those of another architecture may be off by more."""


@dataclass(frozen=True, slots=True)
class Basis:
    """The constants that a prediction rests on."""

    constants: Constants
    words: str
    """Where they are from."""
    calibrated: bool
    """Whether they were measured on a GPU of this kind."""
    error: float | None = None
    """UNCONFIRMED_ERROR where no launch was measured on such a GPU; None where some were."""


def calibration_path(key: str) -> Path:
    """Return where a calibration of the GPU *key* is kept on this machine."""
    return store_directory() / "calibrations" / f"{key}.json"


def keep_calibration(calibration: Calibration) -> Path:
    """Keep *calibration* for this machine's predictions, this process's too; return its file.

    Raises OSError where it cannot be written.
    """
    path = calibration_path(calibration.gpu)
    calibration.write(path)
    _calibrations.cache_clear()
    return path


def calibration_for(gpu: Gpu) -> Basis | None:
    """Return the constants for *gpu*; None where its clock, size or bandwidth is not known."""
    own = _calibrations().get(gpu.key)
    if own is not None:
        words = f"calibrated on {own.device}, {own.date}, Triton {own.triton}"
        return Basis(own.constants, words, calibrated=True)
    return _from_data_sheet(gpu)


def measured_units(gpu: Gpu) -> Mapping[str, float]:
    """Return what `calibrate` measured of the units of such a GPU; nothing where it did not."""
    own = _calibrations().get(gpu.key)
    return {} if own is None else own.units


def known_calibrations() -> tuple[Calibration, ...]:
    """Return the calibrations that predictions rest on, one per GPU."""
    return tuple(_calibrations().values())


@cache
def _calibrations() -> dict[str, Calibration]:
    """Return the calibrations by their GPU's key: this machine's before the recorded ones."""
    return {calibration.gpu: calibration for calibration in _all()}


def _all() -> Iterator[Calibration]:
    recorded = files("occupancy_lab.recorded").iterdir()
    for entry in sorted(recorded, key=lambda entry: entry.name):
        if entry.name.startswith("calibration-") and entry.name.endswith(".json"):
            yield Calibration.read(entry.read_text(encoding="utf-8"))
    for path in sorted((store_directory() / "calibrations").glob("*.json")):
        try:
            yield Calibration.read(read_bytes(path, MOST_BYTES))
        except (OSError, ValueError):
            continue


def _from_data_sheet(gpu: Gpu) -> Basis | None:
    """Scale the constants of the most alike calibrated GPU to the data sheet of *gpu*.

    What counts cycles stays; bandwidths keep their share of the peak. A time in us stays too: the
    memory's latency and a launch have not become shorter with newer GPUs.
    """

    def unlike(calibration: Calibration) -> tuple[bool, bool]:
        device = find_device(calibration.gpu)
        if device is None:
            return True, True
        return device.target != gpu.target, device.vendor != gpu.vendor

    sibling = min(_calibrations().values(), key=unlike, default=None)
    model = None if sibling is None else find_device(sibling.gpu)
    if sibling is None or model is None or not gpu.bandwidth_gbs or not model.bandwidth_gbs:
        return None
    scale = gpu.bandwidth_gbs / model.bandwidth_gbs
    scaled = {
        name: getattr(sibling.constants, name) * scale
        for name in Constants.names()
        if name.endswith("bandwidth_gbs")
    }
    words = f"the data sheet, with what {sibling.device} was calibrated to a multiprocessor"
    measured = files("occupancy_lab.recorded") / f"measured-{gpu.key}.csv"
    error = None if measured.is_file() else UNCONFIRMED_ERROR
    return Basis(sibling.constants.replace(**scaled), words, calibrated=False, error=error)
