"""What is noted about a traced program: its processes, kernels, grids and times.

Like hook.py, this file is loaded by the program's own Python, and imports only the standard
library.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

MOST_GRIDS = 256
"""Grids of a kernel that are counted separately."""
HOLD_NS, HOLD_CYCLES = 50_000, 100_000
"""How long the GPU is kept busy if it would otherwise wait for the launch that is timed."""
SHARE, SAVED_NS = 0.005, 5_000_000
"""The share of the time that timing launches may take, and the most of it that may be saved up."""
EMPTY_PAIRS = 5
"""How many pairs of events with nothing between them are measured."""
MOST_PENDING = 64
"""How many pairs of events may wait to be read."""
KEPT = frozenset({".json", ".cubin", ".ptx", ".ttir", ".ttgir", ".hsaco", ".amdgcn"})
"""Suffixes of a kernel's files that are read when the program has ended."""
MOST_VALUES, MOST_COPIED = 1 << 18, 1 << 20
"""The most integers of a tensor that are copied, and of a process: 8 MiB in all."""
BEFORE = (1, 6)
"""Arguments of a launcher between the grid and the kernel's own arguments: for Inductor's only the
stream; for Triton's also the function, metadata of the launch and of the kernel, and two hooks."""
clock = time.perf_counter_ns


class Cell:
    """The launches of one kernel over one grid."""

    __slots__ = (
        *("captured", "count", "due", "grid", "last_ns", "ns", "samples", "timed", "tuning"),
        *("told", "weighed"),
    )

    def __init__(self, grid: Any) -> None:
        self.grid = grid
        self.count = self.due = self.tuning = self.captured = self.samples = 0
        self.timed = 0
        """The number of the last launch whose events were recorded."""
        self.weighed = 0
        """The launches up to the last one whose events were read."""
        self.told = grid is None
        """Whether the arguments of the first launch were written down."""
        self.ns = self.last_ns = 0.0
        """The time of the weighed launches, and of the last of them."""


class Kernel:
    """A compiled kernel that can be launched: its description, and its cells by grid."""

    __slots__ = ("cells", "described", "number", "others", "waits")

    def __init__(self, number: int, described: Any) -> None:
        self.number = number
        self.described = described
        self.cells: dict[Any, Cell] = {}
        self.others: Cell | None = None
        self.waits = False

    def cell(self, grid: Any) -> Any:
        """Return the cell of *grid*, or the shared cell of all further grids."""
        found = self.cells.get(grid)
        if found is None and len(self.cells) < MOST_GRIDS:
            found = self.cells.setdefault(grid, Cell(grid))
        elif found is None:
            found = self.others = self.others or Cell(None)
        return found


class Timer:
    """Times launches with pairs of torch's CUDA events, which are read once they are done."""

    def __init__(self) -> None:
        self._free: dict[int, list[Any]] = {}
        self._pending: list[Any] = []
        self._asked, self._left_ns = clock(), float(SAVED_NS)
        self._collecting = threading.Lock()
        self.held = self.dirty = 0
        self.empty: list[float] = []
        self._streams: dict[int, Any] = {}

    def has_time(self) -> bool:
        """Return whether timing has taken less than its share."""
        now = clock()
        saved = self._left_ns + SHARE * (now - self._asked)
        self._asked, self._left_ns = now, min(saved, SAVED_NS)
        return self._left_ns > 0

    def begin(self, kernel: Any, rest: Any) -> Any:
        """Return the events of the next launch, the first one recorded; None if it is not timed."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return None
        before = clock()
        stream = torch.cuda.current_stream()
        if rest and isinstance(rest[0], int) and stream.cuda_stream != rest[0]:
            stream = self._streams.setdefault(rest[0], torch.cuda.ExternalStream(rest[0]))
        device = stream.device_index
        if len(self.empty) < EMPTY_PAIRS and not any(one[0] is None for one in self._pending):
            pair = self._pair(torch, device)
            self._hold(torch, stream)
            pair[0].record(stream)
            pair[1].record(stream)
            if pair[0].query():
                self._free.setdefault(device, []).append(pair)
            else:
                self._pending.append((None, 0, device, *pair))
        # A launch right behind others is timed there, with the caches as they leave them.
        held = kernel.waits or stream.query()
        if held:
            kernel.waits = False
            self._hold(torch, stream)
        pair = self._pair(torch, device)
        pair[0].record(stream)
        self._left_ns -= clock() - before
        return stream, device, pair, held

    def end(self, kernel: Any, cell: Any, begun: Any) -> None:
        """Record the second event, and drop the time if the GPU had waited for the launch.

        In that case the next launch is timed instead, with the GPU kept busy.
        """
        before = clock()
        stream, device, pair, held = begun
        pair[1].record(stream)
        number = cell.count + 1  # it is counted when this has returned
        if pair[0].query():
            self.dirty += 1
            kernel.waits = True
            if not held:
                cell.due = number
            self._free.setdefault(device, []).append(pair)
        else:
            self._pending.append((cell, number - cell.timed, device, *pair))
            cell.timed = number
        if len(self._pending) >= MOST_PENDING:
            self.collect()
        self._left_ns -= clock() - before

    def _hold(self, torch: Any, stream: Any) -> None:
        """Keep the GPU busy for as long as it takes to queue a launch."""
        with torch.cuda.stream(stream):
            torch.cuda._sleep(HOLD_CYCLES)
        self._left_ns -= HOLD_NS
        self.held += 1

    def _pair(self, torch: Any, device: Any) -> Any:
        free = self._free.get(device)
        if free:
            return free.pop()
        return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def collect(self) -> None:
        """Read the pairs of events that are done."""
        if not self._collecting.acquire(blocking=False):
            return  # another thread does
        try:
            pending, self._pending = self._pending, []
            for one in pending:
                cell, launches, device, first, second = one
                if not second.query():
                    self._pending.append(one)
                    continue
                ns = first.elapsed_time(second) * 1e6
                if cell is None:
                    self.empty.append(ns)
                else:
                    # Launches since the previous timed one count with the mean of both.
                    cell.ns += ns + (launches - 1) * (ns + (cell.last_ns or ns)) / 2
                    cell.last_ns = ns
                    cell.weighed += launches
                    cell.samples += 1
                self._free.setdefault(device, []).append((first, second))
        finally:
            self._collecting.release()

    def wait(self) -> None:
        """Wait a moment for the last launches to end."""
        until = clock() + 200_000_000
        self.collect()
        while self._pending and clock() < until:
            time.sleep(0.001)
            self.collect()

    def facts(self) -> Any:
        """Return the facts on which the times rest."""
        return {"empty_ns": self.empty, "held": self.held, "dirty": self.dirty}


def device_facts() -> Any:
    """Return the current device's number and description."""
    facts = {}
    with contextlib.suppress(Exception):
        driver = sys.modules["triton"].runtime.driver.active
        facts["device"] = device = driver.get_current_device()
        found = driver.utils.get_device_properties(device)
        facts["multiprocessors"] = found.get("multiprocessor_count")
    with contextlib.suppress(Exception):
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            facts["gpu"] = torch.cuda.get_device_name(facts["device"])
    return facts


def of_triton(reference: Any) -> Any:
    """Return the description of a CompiledKernel."""
    kernel = reference()
    described = {"name": kernel.name, "hash": kernel.hash, "by": "triton"}
    with contextlib.suppress(Exception):
        described["files"] = [str(path) for path in kernel.metadata_group.values()]
    with contextlib.suppress(Exception):
        described["metadata"] = metadata = kernel.metadata._asdict()
        names = ("backend", "arch", "warp_size")
        metadata["target"] = {name: getattr(metadata["target"], name) for name in names}
    with contextlib.suppress(Exception):
        function = kernel.src.fn
        described["parameters"] = list(function.arg_names)
        declared = {i for i, one in enumerate(function.params) if one.is_constexpr}
        described["constexprs"] = {
            function.arg_names[path[0]]: shown(value)
            for path, value in kernel.src.constants.items()
            if len(path) == 1 and path[0] in declared
        }
    with contextlib.suppress(Exception):
        described["n_regs"], described["n_spills"] = kernel.n_regs, kernel.n_spills
    return described


def of_inductor(result: Any) -> Any:
    """Return the description of a kernel that Inductor launches by itself."""
    kernel: Any = getattr(result, "kernel", None)
    config = result.config
    options = ("num_warps", "num_stages", "num_ctas")
    metadata = {name: getattr(config, name) for name in options if hasattr(config, name)}
    described: dict[str, Any] = {
        "name": getattr(kernel, "name", None) or getattr(result, "__name__", "?"),
        "hash": getattr(kernel, "hash", None) or getattr(result, "cache_hash", "?"),
        "by": "inductor",
        "constexprs": {name: shown(value) for name, value in config.kwargs.items()},
        "metadata": metadata,
    }
    for name, told in (("shared", metadata), ("n_regs", described), ("n_spills", described)):
        value = getattr(kernel, name, getattr(result, name, None))
        if value is not None:
            told[name] = value
    with contextlib.suppress(Exception):
        described["parameters"] = inductor_parameters(kernel)
    with contextlib.suppress(Exception):
        heuristics = sys.modules["torch._inductor.runtime.triton_heuristics"]
        key = heuristics.triton_hash_to_path_key(kernel.hash)
        device = result.compile_meta.get("device") or 0
        place = Path(heuristics.triton_cache_dir(device), key)
        described["files"] = [str(one) for one in sorted(place.iterdir())]
    return described


def inductor_parameters(kernel: Any) -> Any:
    """Return the parameters that Inductor's launcher passes; the static one omits constexprs."""
    if hasattr(kernel, "full_constexprs"):
        constants = kernel.full_constexprs
        return [name for place, name in enumerate(kernel.arg_names) if place not in constants]
    return list(kernel.src.fn.arg_names)


def by_parameter(parameters: Any, rest: Any) -> Any:
    """Return a launcher's arguments behind the grid, by parameter.

    Return None if it is not known which argument belongs to which parameter.
    """
    if not parameters or len(rest) - len(parameters) not in BEFORE:
        return None
    return dict(zip(parameters, rest[-len(parameters) :], strict=True))


def passed(given: Any) -> Any:
    """Return a kernel's arguments in a form for JSON; of a tensor, what Triton sees of it."""
    found = {name: seen(value) for name, value in given.items()}
    return {name: value for name, value in found.items() if value is not None}


def copies(given: Any, stream: Any, room: int = MOST_COPIED) -> Any:
    """Return copies on the GPU of the small integer tensors that a kernel is *given*.

    They have at most *room* numbers together.
    They are made in the launch's own *stream*, so that nothing waits for them.
    """
    torch = sys.modules.get("torch")
    parts = {name: whole_numbers(value) for name, value in given.items()}
    small = {name: part for name, part in parts.items() if part is not None}
    if torch is None or not 0 < sum(map(len, small.values())) <= room:
        return {}
    if torch.cuda.current_stream().cuda_stream != stream:
        return {}
    with torch.no_grad():
        return {name: part.clone() for name, part in small.items()}


class Memory:
    """Numbers the memory of tensors; memory reused after a tensor is gone gets a new number."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        self._last = 0

    def numbers(self, given: Any) -> Any:
        """Return the number of each tensor that a kernel is *given*, without keeping it alive."""
        found = {}
        for name, value in given.items():
            tensor = getattr(value, "base", value)
            place = 0
            with contextlib.suppress(Exception):  # no tensor, or one without memory
                place = tensor.untyped_storage().data_ptr()
            if not place:
                continue
            known, number = self._known.get(place, (None, 0))
            if known is None or known() is None:
                number = self._last = self._last + 1
                self._known[place] = weakref.ref(tensor), number
            found[name] = number
        return found


def whole_numbers(value: Any) -> Any:
    """Return the integers from a tensor's address to the end of its storage on a GPU.

    Return None for anything but a torch tensor on a GPU, for floats, and for more than MOST_VALUES
    numbers.
    """
    if not getattr(value, "is_cuda", False) or type(value).__name__ not in {"Tensor", "Parameter"}:
        return None
    if value.is_floating_point() or value.is_complex():
        return None
    places = value.untyped_storage().nbytes() // value.element_size() - value.storage_offset()
    return value.detach().as_strided((places,), (1,)) if 0 < places <= MOST_VALUES else None


def seen(value: Any) -> Any:
    """Return an argument in a form for JSON, or None if its type is not known."""
    if isinstance(value, bool | int | float):
        return value
    with contextlib.suppress(Exception):
        if hasattr(value, "block_shape"):
            sizes = ("shape", "strides", "block_shape")
            told = {name: [int(one) for one in getattr(value, name)] for name in sizes}
            return {"base": seen(value.base), "padding": value.padding, **told}
        storage = None
        with contextlib.suppress(Exception):
            storage = int(value.untyped_storage().nbytes())
        return {
            "dtype": str(value.dtype),
            "storage_bytes": storage,
            "aligned": value.data_ptr() % 16 == 0,
        }
    return None


def shown(value: Any) -> Any:
    """Return the text of a constexpr."""
    value = getattr(value, "value", value)
    return getattr(value, "__name__", None) or str(value)


def keep(paths: Any, folder: Path, described: Any) -> str:
    """Link a kernel's files into *folder*, because the cache may be gone at the end."""
    name = "".join(one for one in str(described["hash"]) if one.isalnum())[:64]
    place, part = folder / name, folder / f"{name}.{os.getpid()}.part"
    if place.is_dir():
        return name
    part.mkdir(parents=True, exist_ok=True)
    for path in map(Path, paths):
        if path.suffix in KEPT and not path.name.startswith("__grp__"):
            try:
                os.link(path, part / path.name)
            except OSError:  # on another file system
                with contextlib.suppress(OSError):
                    (part / path.name).write_bytes(path.read_bytes())
    try:
        part.rename(place)
    except OSError:  # another process was first
        for path in part.iterdir():
            path.unlink()
        part.rmdir()
    return name


def counts(kernel: Any) -> Any:
    """Return a kernel's cells as plain values."""
    cells = [*kernel.cells.values(), *([] if kernel.others is None else [kernel.others])]
    names = ("grid", "count", "tuning", "captured", "samples", "ns", "last_ns", "weighed")
    return [{name: getattr(cell, name) for name in names} for cell in cells]


def places(kernels: Any, recent: Any) -> Any:
    """Return for each cell of *recent* its kernel's number, and its index in `counts`."""
    found = {}
    for kernel in kernels:
        for place, cell in enumerate([*kernel.cells.values(), kernel.others]):
            found[id(cell)] = kernel.number, place
    return [found[id(cell)] for cell in list(recent) if id(cell) in found]


def process_facts() -> Any:
    """Return facts about this process."""
    triton, torch = sys.modules.get("triton"), sys.modules.get("torch")
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "argv": list(getattr(sys, "argv", [])),
        "python": sys.version.split()[0],
        "triton": getattr(triton, "__version__", None),
        "torch": str(getattr(torch, "__version__", "")) or None,
        "rank": os.environ.get("RANK"),
    }
