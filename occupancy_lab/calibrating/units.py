"""The rates of the units of this machine's GPU, each measured by a kernel that keeps it busy.

Kernels read cycles from their multiprocessor's clock, so the results hold at any clock rate. Times
are those of `measuring.measure.Timer`, with an empty L2 cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.calibrating import unit_kernels as kernels
from occupancy_lab.calibrating.unit_kernels import Probe
from occupancy_lab.errors import DriverError, refuse
from occupancy_lab.files import refused
from occupancy_lab.measuring.measure import conditions
from occupancy_lab.measuring.process import chosen_devices
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.throughput.calibrations import Calibration, calibration_path, keep_calibration

if TYPE_CHECKING:
    import torch


RUNS = 18
"""Timed launches, three bursts of the timer."""
PROBE_RUNS = 3
"""Launches of a probe that count, after one that does not."""
EMPTY_PROGRAMS = 1 << 16
LARGE_BYTES = 1 << 30
"""Device memory that is read or written at once."""
BLOCK = 2048
"""Elements per program that moves memory."""
LINE_BYTES = 128
L2_RING_BYTES, MEMORY_RING_BYTES = 1 << 22, 1 << 25
"""Memory of the addresses that are followed: the first does not fit an L1 cache; of the second only
a few addresses are visited."""
MEMORY_LOADS = 1 << 13
L2_STEPS = 200
SWEEP_BLOCK, SWEEP_STEPS, L2_BLOCKS, MEMORY_BLOCKS = 1 << 14, 256, 256, 1024
"""Elements of 4 bytes that a program loads at once, and how often; blocks of 16 MiB, which fit an
L2 cache, and of 64 MiB."""


class Bench:
    """Measures the units of the current GPU."""

    def __init__(self) -> None:
        """Allocate the memory that the kernels read and write."""
        import torch

        from occupancy_lab.measuring.l2 import Flush
        from occupancy_lab.measuring.measure import Timer

        self.size: int = torch.cuda.get_device_properties().multi_processor_count
        self.reads_clock = torch.version.cuda is not None
        self.timer, self.flush = Timer(), Flush()
        self.source = torch.empty(LARGE_BYTES // 4, device="cuda").normal_()
        self.target = torch.zeros_like(self.source)

    def timed_us(self, *calls: Callable[[], object]) -> list[float]:
        """Return the median us of each of *calls*, which take turns."""
        return [statistics.median(times) for times in self.timer.time(calls, runs=RUNS)]

    def cycles(
        self, launch: Callable[[torch.Tensor], object], programs: int, *, before: bool = False
    ) -> float:
        """Return the median cycles of the programs of *launch*, which takes a tensor for them.

        With *before*, all caches are emptied before each launch, including those of instructions.
        """
        import torch

        if not self.reads_clock:
            refuse("only NVIDIA's clock is read", DriverError)
        found: list[int] = []
        for run in range(PROBE_RUNS + 1):
            noted = torch.zeros((programs, kernels.NOTED), dtype=torch.int64, device="cuda")
            if before:
                self._launch(kernels.FILLER, noted, 1)
                self.flush(())
            launch(noted)
            if run:
                found += (noted[:, 1] - noted[:, 0]).tolist()
        return statistics.median(found)

    def _launch(
        self,
        probe: Probe,
        noted: torch.Tensor,
        steps: int,
        data: torch.Tensor | None = None,
    ) -> None:
        kernels.probe_kernel[(len(noted),)](
            noted,
            self.target if data is None else data,
            steps,
            probe.ptx,
            probe.threads,
            num_warps=max(probe.threads // kernels.WARP, 1),
        )

    def probe(
        self,
        name: str,
        steps: int,
        programs: int = 1,
        *,
        data: torch.Tensor | None = None,
        before: bool = False,
    ) -> float:
        """Return the cycles of *programs* that do *steps* of a probe."""
        probe = kernels.PROBES[name]
        return self.cycles(
            lambda noted: self._launch(probe, noted, steps, data), programs, before=before
        )

    def step_cycles(self, name: str, steps: int, programs: int = 1, **others: Any) -> float:
        """Return the cycles of one repetition of a probe."""
        repeats = kernels.PROBES[name].repeats
        return self.probe(name, steps, programs, **others) / (steps * repeats)

    def empty(self, programs: int = 1) -> None:
        """Launch programs that do nothing."""
        kernels.empty_kernel[(programs,)](self.target, num_warps=4)

    @cached_property
    def empty_us(self) -> tuple[float, ...]:
        """The times of launches of empty programs: of one and of many."""
        return tuple(self.timed_us(self.empty, lambda: self.empty(EMPTY_PROGRAMS)))

    def chase_cycles(self, data: torch.Tensor, loads: int, *, before: bool = False) -> float:
        """Return the cycles of each of *loads* past the L1 cache that give the next address."""
        steps = loads // kernels.PROBES["l2"].repeats
        return self.step_cycles("l2", steps, data=data, before=before)

    def zeros(self) -> torch.Tensor:
        """Return a zero for each thread of wide programs, one program per multiprocessor."""
        return self.target[: self.size * kernels.WIDE_THREADS].zero_()

    def move(self, size: int, *, reads: bool = True, writes: bool = True) -> Callable[[], object]:
        """Return the launch that reads or writes *size* bytes."""
        return lambda: kernels.move_kernel[(size // 4 // BLOCK,)](
            self.target, self.source, BLOCK, reads, writes, num_warps=4
        )

    @cached_property
    def moved_gbs(self) -> tuple[float, ...]:
        """The GB/s of reading, writing, and copying device memory."""
        calls = (
            self.move(LARGE_BYTES, writes=False),
            self.move(LARGE_BYTES, reads=False),
            self.move(LARGE_BYTES // 2),
        )
        launch_us = self.empty_us[0]
        return tuple(LARGE_BYTES / (us - launch_us) / 1e3 for us in self.timed_us(*calls))

    def sweep_bytes(self, blocks: int, programs: int, *, before: bool = False) -> float:
        """Return the bytes per cycle that each of *programs* reads, one per multiprocessor."""

        def launch(noted: torch.Tensor) -> None:
            kernels.sweep_kernel[(programs,)](
                noted, self.source, blocks, SWEEP_STEPS, SWEEP_BLOCK, num_warps=32
            )

        moved = 4 * SWEEP_BLOCK * SWEEP_STEPS
        return moved / self.cycles(launch, programs, before=before)

    def results(self, name: str, steps: int, each: float) -> float:
        """Return a multiprocessor's rate per cycle, if a thread does *each* in a step."""
        return kernels.WIDE_THREADS * each / self.step_cycles(name, steps, self.size)

    def code_cycles(self) -> float:
        """Return the cycles of waiting for a line of code."""
        cycles = self.probe("code", 1, self.size, before=True)
        return (cycles - kernels.CODE_INSTRUCTIONS) / kernels.CODE_LINES


def ring(size: int, device: str = "cuda") -> torch.Tensor:
    """Return *size* bytes on the current GPU whose lines hold each other's addresses in a ring.

    The first line is in the ring, and the order is random.
    """
    import torch

    lines = torch.zeros((size // LINE_BYTES, LINE_BYTES // 8), dtype=torch.int64, device=device)
    order = torch.randperm(len(lines), device=device)
    lines[order, 0] = lines.data_ptr() + order.roll(-1) * LINE_BYTES
    return lines


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of a GPU, and how its rate is measured."""

    unit: str
    """What the rate is counted in."""
    meaning: str
    measure: Callable[[Bench], Any]


UNITS: Mapping[str, Unit] = {
    "launch_us": Unit(
        "us", "a launch of one empty program, the L2 cache empty", lambda on: on.empty_us[0]
    ),
    "dispatch_us": Unit(
        "us",
        "from the start of one program to the next, whole GPU",
        lambda on: (on.empty_us[1] - on.empty_us[0]) / (EMPTY_PROGRAMS - 1),
    ),
    "l2_cycles": Unit(
        "cycles",
        "until a load is there from an idle L2 cache",
        lambda on: on.chase_cycles(ring(L2_RING_BYTES), L2_RING_BYTES // LINE_BYTES),
    ),
    "memory_cycles": Unit(
        "cycles",
        "the same from device memory, which is idle",
        lambda on: on.chase_cycles(ring(MEMORY_RING_BYTES), MEMORY_LOADS, before=True),
    ),
    "atomic_same_cycles": Unit(
        "cycles",
        "between two adds of the whole GPU to one address",
        lambda on: on.step_cycles("atomic same", 256, on.size, data=on.zeros()) / on.size,
    ),
    "atomic_adds": Unit(
        "adds/cycle/SM",
        "atomic adds to neighbouring addresses",
        lambda on: (
            kernels.WIDE_THREADS / on.step_cycles("atomic apart", 128, on.size, data=on.zeros())
        ),
    ),
    "read_gbs": Unit("GB/s", "device memory, read only", lambda on: on.moved_gbs[0]),
    "write_gbs": Unit("GB/s", "device memory, written only", lambda on: on.moved_gbs[1]),
    "copy_gbs": Unit(
        "GB/s", "device memory, read and written, bytes of both", lambda on: on.moved_gbs[2]
    ),
    "l2_bytes": Unit(
        "B/cycle/SM",
        "read from the L2 cache by all multiprocessors",
        lambda on: on.sweep_bytes(L2_BLOCKS, on.size),
    ),
    "l2_alone_bytes": Unit(
        "B/cycle/SM", "the same by one alone", lambda on: on.sweep_bytes(L2_BLOCKS, 1)
    ),
    "l2_loads": Unit(
        "1/cycle/SM",
        "loads of 4 bytes, each of another cache line, that the L2 cache serves",
        lambda on: on.results("l2 loads", L2_STEPS, kernels.LINE_SECTORS),
    ),
    "l2_stores": Unit(
        "1/cycle/SM",
        "the same of stores",
        lambda on: on.results("l2 stores", L2_STEPS, kernels.LINE_SECTORS),
    ),
    "memory_alone_bytes": Unit(
        "B/cycle/SM",
        "from device memory by one alone",
        lambda on: on.sweep_bytes(MEMORY_BLOCKS, 1, before=True),
    ),
    "local_bytes": Unit(
        "B/cycle/SM",
        "local memory past the L1 cache, loaded and stored",
        lambda on: on.results("local bytes", 640, kernels.LOCAL_BYTES_A_STEP),
    ),
    "code_cycles": Unit(
        "cycles",
        "for 128 bytes of straight code that no cache has, beyond issuing it",
        Bench.code_cycles,
    ),
}
"""The units by name, beginning with those that others need."""


def measure_units(names: Iterable[str] = UNITS) -> dict[str, float]:
    """Return the rates of the current GPU's units, or only of *names*, as far as they are known."""
    bench, found = Bench(), {}
    for name in names:
        with contextlib.suppress(Exception):  # others are still measured
            found[name] = UNITS[name].measure(bench)
    return found


USED = (
    "Of the units, predicted times use a launch (launch_us), reads of device memory (read_gbs) and"
    " loads that the L2 cache serves (l2_loads), in place of the data sheet."
)


@dataclass(frozen=True, slots=True, repr=False)
class Calibrated(Answer):
    """A calibration that was made and stored."""

    calibration: Calibration
    path: Path
    seconds: float

    def to_document(self) -> Document:
        """Return the rates, where they are stored, and which of them predictions use."""
        calibration = self.calibration
        kept = (
            f"It took {self.seconds:.0f} s and is kept in {literal(str(self.path))}; predictions"
            f" for {calibration.gpu} use it from now on."
        )
        rows = tuple(
            (name, f"{calibration.units[name]:.4g}", one.unit, one.meaning)
            for name, one in UNITS.items()
            if name in calibration.units
        )
        units = Section("Units", (Table(("", "value", "unit", ""), rows, prose=True),))
        title = f"Calibration of {calibration.device}, {calibration.date}"
        return Document(title, (kept, USED), (units,))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            **dataclasses.asdict(self.calibration),
            "path": str(self.path),
            "seconds": self.seconds,
            "units": {name: self.calibration.units.get(name) for name in UNITS},
        }


def calibrate_here() -> Calibrated:
    """Measure the units of the first GPU of this machine, and store them for predictions.

    Raises InputError if there is no GPU or the calibration cannot be stored, and DriverError if no
    unit could be measured.
    """
    start = time.monotonic()
    gpu, _ = chosen_devices("calibrate")
    path = calibration_path(gpu.key)
    with refused(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    units, at = measure_units(), conditions()
    if not units:
        refuse(
            f"{gpu.title} cannot be calibrated: none of its units could be measured", DriverError
        )
    calibration = Calibration(gpu.key, at.device, str(at.date), at.torch, at.triton, units)
    with refused(path):
        keep_calibration(calibration)
    return Calibrated(calibration, path, time.monotonic() - start)
