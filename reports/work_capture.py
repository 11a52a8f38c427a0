"""Records a process's Triton launches with everything that determines their work; repeats them.

Every launch of Triton or torch.compile calls Triton's CudaLauncher with the grid, the loaded kernel
and the value of every parameter. The call is recorded there, and can be repeated exactly.
"""

from __future__ import annotations

import copy
import hashlib
import json
import statistics
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import foreign_kernels
import torch
from record_files import append, digest, write_whole

from occupancy_lab.arguments import Descriptor, Dtype, Pointer, plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST = 4
"""Arguments of a launcher after stream and function, before the kernel's own arguments."""
MOST_VALUES = 4096
"""The most elements of an integer tensor whose values are recorded."""
MOST_RESTORED = 2**25
"""The most bytes of an integer tensor that is restored before a launch is repeated."""
MOST_PER_BINARY = 8
"""The most launches of one binary that are recorded."""
TEXTS = ("ttir", "ttgir", "ptx", "cubin")
OWN = frozenset({"demote_kernel", "nothing_kernel"})
"""Kernels of the measurement itself."""
REPETITIONS = 15
LONG_US, FEW = 3000.0, 5
"""A launch that takes longer than LONG_US is repeated only FEW times."""
HOLD_CYCLES = 2_000_000
"""Cycles for which the GPU waits, so that the first launches are queued before it continues."""
WARM_HOLD_CYCLES = 150_000


def use_of(package: str, kernel: str) -> str:
    """Return the use of a kernel's launches, which was fixed before any was measured."""
    last = int(hashlib.sha256(f"{package}:{kernel}".encode()).hexdigest(), 16) % 10
    return "tuning" if last < 5 else "held out" if last < 8 else "fresh"  # noqa: PLR2004 - 5, 3 and 2 tenths


@dataclass
class Captured:
    """A launch that can be repeated."""

    key: str
    kernel: str
    """The name of the kernel in the binary, which Nsight Compute reports."""
    programs: int
    keeps: bool
    """Whether the launch may ask the L2 cache to keep lines."""
    launcher: Any
    given: tuple[Any, ...]
    before: list[tuple[Any, Any]]
    """Integer tensors and their contents before the launch."""

    def restore(self) -> None:
        """Restore the integers: indices, counters, locks."""
        for tensor, values in self.before:
            tensor.copy_(values)

    def tensors(self) -> list[Any]:
        """Return the tensors among the arguments."""
        return list(_tensors(self.given))


def _tensors(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
        elif isinstance(base := getattr(value, "base", None), torch.Tensor):
            yield base


def _kept(value: Any) -> Any:
    """Return a copy of an argument: Triton changes a descriptor's block for each configuration."""
    if hasattr(value, "block_shape"):
        value = copy.copy(value)
        value.block_shape = list(value.block_shape)
    return value


def told(value: Any) -> Any:  # noqa: PLR0911 - a line for each kind of argument
    """Return an argument in JSON's types: its plain form, for tensors with shape and strides."""
    if isinstance(value, tuple | list):
        return {"tuple": [told(one) for one in value]}
    try:
        found = plain(value)
    except Exception as error:  # noqa: BLE001 - it is told
        return {"unknown": f"{type(value).__name__}: {error}"}
    if isinstance(found, Pointer):
        base = getattr(value, "base", None)
        is_own = isinstance(value, torch.Tensor) or not isinstance(base, torch.Tensor)
        tensor = value if is_own else base
        return {
            "pointer": found.dtype,
            "storage_bytes": found.storage_bytes,
            "aligned": found.aligned,
            "shape": list(getattr(tensor, "shape", ())),
            "strides": list(tensor.stride()) if hasattr(tensor, "stride") else [],
        }
    if isinstance(found, Descriptor):
        return {
            "descriptor": told(value.base),
            "shape": list(found.shape),
            "strides": list(found.strides),
            "block_shape": list(found.block_shape),
            "padding": found.padding,
        }
    if isinstance(found, Dtype):
        return {"dtype": found.triton_name}
    if found is None or isinstance(found, bool | int | float | str):
        return found
    if hasattr(found, "cache_key"):
        return {"function": f"{found.__module__}.{found.__name__}"}
    return {"unknown": repr(found)[:200]}


def _is_whole(tensor: Any) -> bool:
    return not tensor.dtype.is_floating_point and not tensor.dtype.is_complex


class Capture:
    """Records each distinct launch while installed, and keeps the wanted ones to repeat them."""

    def __init__(self, path: Path, texts: Path, wanted: set[str] | None, budget: int) -> None:
        """Write launches to *path* and texts into *texts*; keep at most *budget* bytes of tensors.

        All launches are recorded and kept if *wanted* is None, otherwise only those in it.
        """
        self.path, self.texts, self.wanted, self.budget = path, texts, wanted, budget
        self.group = self.trial = ""
        self.captured: dict[str, Captured] = {}
        self.paused = False
        self._met: set[Any] = set()
        self._noted: set[str] = set()
        self._per_binary: dict[str, int] = {}
        self._binaries: dict[int, tuple[Any, str]] = {}

    def install(self) -> None:
        """Watch every launch of this process from now on."""
        from triton.backends.nvidia.driver import CudaLauncher
        from triton.compiler import CompiledKernel

        load, call = CompiledKernel._init_handles, CudaLauncher.__call__  # noqa: SLF001 - no public one

        def loaded(compiled: Any) -> None:
            load(compiled)
            if isinstance(run := getattr(compiled, "_run", None), CudaLauncher):
                run.compiled = compiled

        def launched(launcher: Any, *given: Any) -> Any:
            if not self.paused and hasattr(launcher, "compiled"):
                self.paused = True
                try:
                    self._note(launcher, given)
                except Exception:  # noqa: BLE001 - the program goes on
                    traceback.print_exc()
                finally:
                    self.paused = False
            return call(launcher, *given)

        CompiledKernel._init_handles, CudaLauncher.__call__ = loaded, launched  # noqa: SLF001

    def repeat(self, one: Captured) -> None:
        """Launch *one* again as it was."""
        one.launcher(*one.given)

    def _note(self, launcher: Any, given: tuple[Any, ...]) -> None:
        compiled, grid = launcher.compiled, given[:3]
        arguments = given[5 + FIRST :]
        if compiled.metadata.name in OWN or not grid[0] * grid[1] * grid[2]:
            return
        met = (id(compiled), grid, tuple(map(_place, arguments)))
        if met in self._met:
            return
        self._met.add(met)
        binary = self._binary(compiled)
        function = getattr(compiled.src, "fn", None)
        names = list(getattr(function, "arg_names", ())) or [
            f"arg{n}" for n in range(len(arguments))
        ]
        described = {name: told(value) for name, value in zip(names, arguments, strict=False)}
        text = json.dumps([compiled.metadata.name, binary, grid, described], default=str)
        key = digest(text.encode())
        if self.wanted is None and key not in self._noted:
            if self._per_binary.get(binary, 0) >= MOST_PER_BINARY:
                return
            self._per_binary[binary] = self._per_binary.get(binary, 0) + 1
            self._noted.add(key)
            self._write(key, compiled, binary, grid, described, names, arguments)
        if key in self.captured or (self.wanted is not None and key not in self.wanted):
            return
        if torch.cuda.memory_allocated() > self.budget:
            print(f"{self.trial}: no memory to keep {key}", flush=True)
            return
        given = (*given[: 5 + FIRST], *map(_kept, arguments))
        before = [
            (tensor, tensor.clone())
            for tensor in _tensors(arguments)
            if _is_whole(tensor) and tensor.nbytes <= MOST_RESTORED
        ]
        self.captured[key] = Captured(
            key=key,
            kernel=compiled.metadata.name,
            programs=grid[0] * grid[1] * grid[2] * getattr(compiled.metadata, "num_ctas", 1),
            keeps="evict_last" in compiled.asm.get("ptx", ""),
            launcher=launcher,
            given=given,
            before=before,
        )

    def _binary(self, compiled: Any) -> str:
        """Return the name of a binary; write its texts the first time it is met."""
        if id(compiled) in self._binaries:
            return self._binaries[id(compiled)][1]
        name = digest(compiled.asm["cubin"])
        self._binaries[id(compiled)] = compiled, name
        for kind in TEXTS if self.wanted is None else ():
            path, text = self.texts / f"{name}.{kind}", compiled.asm.get(kind)
            if text is not None and not path.exists():
                write_whole(path, text.encode() if isinstance(text, str) else bytes(text))
        return name

    def _write(  # noqa: PLR0913, PLR0917 - what a line has
        self,
        key: str,
        compiled: Any,
        binary: str,
        grid: tuple[int, ...],
        described: dict[str, Any],
        names: list[str],
        arguments: tuple[Any, ...],
    ) -> None:
        function, metadata = getattr(compiled.src, "fn", None), compiled.metadata
        code = getattr(getattr(function, "fn", None), "__code__", None)
        values = {
            name: value.flatten().tolist()
            for name, value in zip(names, arguments, strict=False)
            if isinstance(value, torch.Tensor) and _is_whole(value) and value.numel() <= MOST_VALUES
        }
        moved: dict[int, int] = {}
        places = {}
        for place, value in zip(names, arguments, strict=False):
            for tensor in _tensors([value]):
                start = tensor.untyped_storage().data_ptr()
                moved[start] = max(moved.get(start, 0), tensor.nbytes)
                places[place] = list(moved).index(start), tensor.data_ptr() - start
        name = getattr(function, "__name__", metadata.name)
        package = foreign_kernels.package_of(function)
        file, line = None, None
        if code is not None:
            file = code.co_filename.rpartition("-packages/")[2].rpartition("/site/")[2]
            line = code.co_firstlineno
        append(
            self.path,
            id=key,
            use=use_of(package.split(maxsplit=1)[0], name),
            kernel=name,
            entry=metadata.name,
            package=package,
            file=file,
            line=line,
            group=self.group,
            trial=self.trial,
            binary=binary,
            grid=grid,
            num_warps=metadata.num_warps,
            num_ctas=getattr(metadata, "num_ctas", 1),
            num_stages=getattr(metadata, "num_stages", None),
            shared=metadata.shared,
            n_regs=compiled.n_regs,
            n_spills=compiled.n_spills,
            tensor_bytes=sum(moved.values()),
            constexprs=[one.name for one in getattr(function, "params", ()) if one.is_constexpr],
            arguments=described,
            storages=places,
            values=values,
            signature={str(place): str(kind) for place, kind in compiled.src.signature.items()},
        )


def _place(value: Any) -> Any:
    """Return a cheap key that tells an argument from others of the same call."""
    if isinstance(value, torch.Tensor):
        return value.data_ptr(), value.dtype, tuple(value.shape), value.stride()
    if hasattr(value, "block_shape"):
        return value.base.data_ptr(), tuple(value.block_shape), tuple(value.shape)
    if isinstance(value, tuple | list):
        return tuple(map(_place, value))
    return value if isinstance(value, bool | int | float | str) else id(value)


def time_launch(capture: Capture, one: Captured, flush: Any) -> dict[str, list[float]]:
    """Return the times of *one* in us, with an empty L2 cache and right after the same launch."""
    kept = one.tensors() if one.keeps else []

    def cold() -> None:
        flush(kept)

    def warm() -> None:
        torch.cuda._sleep(WARM_HOLD_CYCLES)  # noqa: SLF001 - no public one
        capture.repeat(one)

    found = {}
    for name, prepare in (("cold", cold), ("warm", warm)):
        one.restore()
        capture.repeat(one)
        (first,) = _timed(capture, one, prepare, 1)
        count = REPETITIONS if first < LONG_US else FEW
        found[name] = _timed(capture, one, prepare, count)
    flush(kept)
    return found


def _timed(capture: Capture, one: Captured, prepare: Any, count: int) -> list[float]:
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    torch.cuda._sleep(HOLD_CYCLES)  # noqa: SLF001 - no public one
    for start, end in events:
        prepare()
        start.record()
        capture.repeat(one)
        end.record()
    torch.cuda.synchronize()
    return [round(start.elapsed_time(end) * 1e3, 3) for start, end in events]


def columns_of_times(times: dict[str, list[float]]) -> dict[str, float]:
    """Return the median and the 10th and 90th percentile of a launch's times."""
    found = {}
    for name, values in times.items():
        tenths = (
            statistics.quantiles(values, n=10, method="inclusive") if len(values) > 1 else values
        )
        found[f"{name}_us"] = round(statistics.median(values), 3)
        found[f"{name}_us_low"] = round(tenths[0], 3)
        found[f"{name}_us_high"] = round(tenths[-1], 3)
    return found
