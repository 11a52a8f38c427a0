"""The rates of the units of this machine's GPU, each measured by a kernel that keeps it busy.

Kernels read cycles from their multiprocessor's clock, so the results hold at any clock rate. Times
are those of `measuring.measure.Timer`, with an empty L2 cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from occupancy_lab.calibrating import unit_kernels as kernels
from occupancy_lab.calibrating.unit_kernels import Probe
from occupancy_lab.errors import DriverError, refuse
from occupancy_lab.files import refused
from occupancy_lab.measuring.measure import conditions
from occupancy_lab.measuring.process import chosen_devices
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import formatted
from occupancy_lab.throughput.calibrations import Calibration, calibration_path, keep_calibration

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Product:
    """The rate at which tensor cores multiply tiles that stay in shared memory."""

    dtype: str
    """The operands' dtype in torch; float32 is rounded to TF32."""
    m: int
    n: int
    num_warps: int
    tflops: float | None
    """1e12 multiplications and additions per second (of integers for int8), of the whole GPU."""
    mhz: float | None
    """The multiprocessors' clock at the same time."""


def _unit(unit: str, meaning: str) -> Any:
    return dataclasses.field(default=None, metadata={"unit": unit, "meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The rates of the units of one GPU; None for those that could not be measured."""

    launch_us: float | None = _unit("us", "a launch of one empty program, the L2 cache empty")
    dispatch_us: float | None = _unit("us", "from the start of one program to the next, whole GPU")
    l1_cycles: float | None = _unit("cycles", "until a load is there from the L1 cache")
    l2_cycles: float | None = _unit("cycles", "the same from the L2 cache, which is idle")
    memory_cycles: float | None = _unit("cycles", "the same from device memory, which is idle")
    shared_cycles: float | None = _unit("cycles", "the same from shared memory")
    atomic_cycles: float | None = _unit("cycles", "until the result of an atomic add is there")
    atomic_same_cycles: float | None = _unit(
        "cycles", "between two adds of the whole GPU to one address"
    )
    atomic_adds: float | None = _unit("adds/cycle/SM", "atomic adds to neighbouring addresses")
    read_gbs: float | None = _unit("GB/s", "device memory, read only")
    write_gbs: float | None = _unit("GB/s", "device memory, written only")
    copy_gbs: float | None = _unit("GB/s", "device memory, read and written, bytes of both")
    l2_bytes: float | None = _unit("B/cycle/SM", "read from the L2 cache by all multiprocessors")
    l2_alone_bytes: float | None = _unit("B/cycle/SM", "the same by one alone")
    l2_loads: float | None = _unit(
        "1/cycle/SM", "loads of 4 bytes, each of another cache line, that the L2 cache serves"
    )
    l2_stores: float | None = _unit("1/cycle/SM", "the same of stores")
    memory_alone_bytes: float | None = _unit("B/cycle/SM", "from device memory by one alone")
    shared_bytes: float | None = _unit("B/cycle/SM", "read from shared memory")
    local_bytes: float | None = _unit(
        "B/cycle/SM", "local memory past the L1 cache, loaded and stored"
    )
    fma_results: float | None = _unit("1/cycle/SM", "FP32 multiply-adds")
    integer_results: float | None = _unit("1/cycle/SM", "32-bit integer logic")
    special_results: float | None = _unit("1/cycle/SM", "special functions (ex2)")
    code_cycles: float | None = _unit(
        "cycles", "for 128 bytes of straight code that no cache has, beyond issuing it"
    )
    clock_mhz: float | None = _unit("MHz", "the multiprocessors' clock while all do FP32 work")
    products: tuple[Product, ...] | None = _unit("TFLOP/s", "tensor cores, by dtype and tile")

    def numbers(self) -> dict[str, float]:
        """Return the measured numbers by name, without the products."""
        found = {name: getattr(self, name) for name in MEASURES if name != "products"}
        return {name: value for name, value in found.items() if value is not None}

    def to_section(self) -> Section:
        """Return a table of the measured numbers, and one of the tensor cores' products."""
        fields = {field.name: field.metadata for field in dataclasses.fields(self)}
        rows = tuple(
            (name, f"{value:.4g}", fields[name]["unit"], fields[name]["meaning"])
            for name, value in self.numbers().items()
        )
        products = tuple(
            (
                one.dtype,
                f"{one.m} x {one.n}",
                *(formatted(number, ".0f") for number in (one.num_warps, one.tflops, one.mhz)),
            )
            for one in self.products or ()
        )
        tables = [Table(("", "value", "unit", ""), rows, prose=True)]
        if products:
            tables.append(Table(("dtype", "tile", "warps", "TFLOP/s", "MHz"), products))
        return Section("Units", tuple(tables))


@dataclass(frozen=True, slots=True)
class Ticks:
    """The notes of the programs of some launches, which all did the same."""

    rows: Sequence[Sequence[int]]
    """A row for each program, as in `kernels.NOTED`."""

    @property
    def cycles(self) -> float:
        """The median time of a program."""
        return statistics.median(last - first for first, last, *_ in self.rows)

    @property
    def mhz(self) -> float | None:
        """The multiprocessors' clock at the same time; None if the time is too short to tell."""
        ns = statistics.median(ended - began for _, _, began, ended, _ in self.rows)
        return self.cycles / ns * 1e3 if ns >= LEAST_NS else None


LEAST_NS = 100_000
"""The shortest time of a program from which to tell the clock: some GPUs count nanoseconds in
thousands."""
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
DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "int8")
TILES = ((64, 64), (128, 128), (128, 256))
DEPTH_BYTES = 128
"""The bytes of a row of an operand, as matrix products usually load it."""
PRODUCT_WARPS, MOST_WARPS, MOST_SUMS = (4, 8), 16, 1 << 15
"""Programs share a multiprocessor up to this many warps, or this many sums in registers."""
PRODUCT_CYCLES, FLOPS_BYTES = 4_000_000, 8192
"""The approximate cycles of a launch, if a cycle does so many FLOPs times bytes of an element."""


class Bench:
    """Measures each unit of the current GPU, by the names of `Units`."""

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

    def ticks(
        self, launch: Callable[[torch.Tensor], object], programs: int, *, before: bool = False
    ) -> Ticks:
        """Return the notes of the programs of *launch*, which takes a tensor for them.

        With *before*, all caches are emptied before each launch, including those of instructions.
        """
        import torch

        if not self.reads_clock:
            refuse("only NVIDIA's clock is read", DriverError)
        rows: list[list[int]] = []
        for run in range(PROBE_RUNS + 1):
            noted = torch.zeros((programs, kernels.NOTED), dtype=torch.int64, device="cuda")
            if before:
                self._launch(kernels.FILLER, noted, 1)
                self.flush(())
            launch(noted)
            if run:
                rows += noted.tolist()
        return Ticks(rows)

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
    ) -> Ticks:
        """Return the notes of *programs* that do *steps* of a probe."""
        probe = kernels.PROBES[name]
        return self.ticks(
            lambda noted: self._launch(probe, noted, steps, data), programs, before=before
        )

    def step_cycles(self, name: str, steps: int, programs: int = 1, **others: Any) -> float:
        """Return the cycles of one repetition of a probe."""
        repeats = kernels.PROBES[name].repeats
        return self.probe(name, steps, programs, **others).cycles / (steps * repeats)

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
        return moved / self.ticks(launch, programs, before=before).cycles

    def results(self, name: str, steps: int, each: float) -> float:
        """Return a multiprocessor's rate per cycle, if a thread does *each* in a step."""
        return kernels.WIDE_THREADS * each / self.step_cycles(name, steps, self.size)

    def code_cycles(self) -> float:
        """Return the cycles of waiting for a line of code."""
        cycles = self.probe("code", 1, self.size, before=True).cycles
        return (cycles - kernels.CODE_INSTRUCTIONS) / kernels.CODE_LINES

    def products(self) -> tuple[Product, ...]:
        """Return the tensor cores' rates by dtype and tile."""
        return tuple(
            self._product(dtype, m, n, num_warps)
            for dtype, (m, n), num_warps in itertools.product(DTYPES, TILES, PRODUCT_WARPS)
        )

    def _product(self, dtype: str, m: int, n: int, num_warps: int) -> Product:
        import torch

        kind = getattr(torch, dtype)
        k = DEPTH_BYTES // kind.itemsize
        sums = torch.int32 if kind is torch.int8 else torch.float32
        output = torch.empty((m, n), dtype=sums, device="cuda")
        programs = self.size * max(min(MOST_WARPS // num_warps, MOST_SUMS // (m * n)), 1)
        noted = torch.zeros((programs, kernels.NOTED), dtype=torch.int64, device="cuda")
        flops = 2 * m * n * k * programs
        steps = int(PRODUCT_CYCLES * self.size * FLOPS_BYTES / kind.itemsize / flops)
        operands = [random_matrix(size, k, kind) for size in (m, n)]

        def launch() -> None:
            kernels.dot_kernel[(programs,)](
                noted, output, *operands, steps, m, n, k, self.reads_clock, num_warps=num_warps
            )

        try:
            (us,) = self.timed_us(launch)
        except Exception:  # noqa: BLE001 - Triton's errors have no common kind
            return Product(dtype, m, n, num_warps, None, None)
        mhz = Ticks(noted.tolist()).mhz if self.reads_clock else None
        return Product(dtype, m, n, num_warps, flops * steps / (us - self.empty_us[0]) / 1e6, mhz)


def ring(size: int, device: str = "cuda") -> torch.Tensor:
    """Return *size* bytes on the current GPU whose lines hold each other's addresses in a ring.

    The first line is in the ring, and the order is random.
    """
    import torch

    lines = torch.zeros((size // LINE_BYTES, LINE_BYTES // 8), dtype=torch.int64, device=device)
    order = torch.randperm(len(lines), device=device)
    lines[order, 0] = lines.data_ptr() + order.roll(-1) * LINE_BYTES
    return lines


def random_matrix(rows: int, cols: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix of random numbers on the current GPU; int8 uses all 256 values."""
    import torch

    if dtype is torch.int8:
        return torch.randint(-128, 128, (rows, cols), dtype=dtype, device="cuda")
    return torch.randn((rows, cols), device="cuda").to(dtype)


CHAINS = len(kernels.CHAINS)
MEASURES: Mapping[str, Callable[[Bench], Any]] = MappingProxyType(
    {
        "launch_us": lambda on: on.empty_us[0],
        "dispatch_us": lambda on: (on.empty_us[1] - on.empty_us[0]) / (EMPTY_PROGRAMS - 1),
        "l1_cycles": lambda on: on.step_cycles("l1", 256, data=ring(LINE_BYTES)),
        "l2_cycles": lambda on: on.chase_cycles(ring(L2_RING_BYTES), L2_RING_BYTES // LINE_BYTES),
        "memory_cycles": lambda on: on.chase_cycles(
            ring(MEMORY_RING_BYTES), MEMORY_LOADS, before=True
        ),
        "shared_cycles": lambda on: on.step_cycles("shared", 512),
        "atomic_cycles": lambda on: on.step_cycles("atomic", 128, on.size, data=on.zeros()),
        "atomic_same_cycles": lambda on: (
            on.step_cycles("atomic same", 256, on.size, data=on.zeros()) / on.size
        ),
        "atomic_adds": lambda on: (
            kernels.WIDE_THREADS / on.step_cycles("atomic apart", 128, on.size, data=on.zeros())
        ),
        "read_gbs": lambda on: on.moved_gbs[0],
        "write_gbs": lambda on: on.moved_gbs[1],
        "copy_gbs": lambda on: on.moved_gbs[2],
        "l2_bytes": lambda on: on.sweep_bytes(L2_BLOCKS, on.size),
        "l2_alone_bytes": lambda on: on.sweep_bytes(L2_BLOCKS, 1),
        "l2_loads": lambda on: on.results("l2 loads", L2_STEPS, kernels.LINE_SECTORS),
        "l2_stores": lambda on: on.results("l2 stores", L2_STEPS, kernels.LINE_SECTORS),
        "memory_alone_bytes": lambda on: on.sweep_bytes(MEMORY_BLOCKS, 1, before=True),
        "shared_bytes": lambda on: on.results("shared bytes", 256, kernels.SHARED_BYTES_A_STEP),
        "local_bytes": lambda on: on.results("local bytes", 640, kernels.LOCAL_BYTES_A_STEP),
        "fma_results": lambda on: on.results("fma", 2000, CHAINS),
        "integer_results": lambda on: on.results("integer", 1000, CHAINS),
        "special_results": lambda on: on.results("special", 256, CHAINS),
        "code_cycles": Bench.code_cycles,
        "clock_mhz": lambda on: on.probe("fma", 8000, on.size).mhz,
        "products": Bench.products,
    }
)
"""How each field of `Units` is measured, beginning with those that others need."""


def measure_units(names: Iterable[str] = tuple(MEASURES)) -> Units:
    """Return the rates of the current GPU's units, or only of *names*."""
    bench, found = Bench(), {}
    for name in names:
        with contextlib.suppress(Exception):  # others are still measured
            found[name] = MEASURES[name](bench)
    return Units(**found)


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
    units: Units
    """The rate of each unit of the GPU alone."""

    def to_document(self) -> Document:
        """Return the rates, where they are stored, and which of them predictions use."""
        calibration = self.calibration
        kept = (
            f"It took {self.seconds:.0f} s and is kept in {literal(str(self.path))}; predictions"
            f" for {calibration.gpu} use it from now on."
        )
        title = f"Calibration of {calibration.device}, {calibration.date}"
        return Document(title, (kept, USED), (self.units.to_section(),))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            **dataclasses.asdict(self.calibration),
            "path": str(self.path),
            "seconds": self.seconds,
            "units": dataclasses.asdict(self.units),
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
    numbers = units.numbers()
    if not numbers:
        refuse(
            f"{gpu.title} cannot be calibrated: none of its units could be measured", DriverError
        )
    calibration = Calibration(gpu.key, at.device, str(at.date), at.torch, at.triton, numbers)
    with refused(path):
        keep_calibration(calibration)
    return Calibrated(calibration, path, time.monotonic() - start, units)
