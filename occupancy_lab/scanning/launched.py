"""The launch that an entry of a cache was compiled for, as a Record with what it does and its time.

torch.compile writes the sizes of a launch into the source of its kernel, so that they are known
where the source is as it was compiled. Of other kernels a launch is what is said of it: the grid,
and numbers by the names of parameters.
"""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.store import Store, store_directory
from occupancy_lab.compiling.texts import Texts
from occupancy_lab.errors import InputError
from occupancy_lab.expressions import Kind, parse
from occupancy_lab.launch import TRITON_DTYPES, Launch, Pointer, checked_grid
from occupancy_lab.notation import split, whole_numbers
from occupancy_lab.occupancy.planning import plan_launch
from occupancy_lab.record import Record
from occupancy_lab.scanning.cache import read_entry_file, read_text
from occupancy_lab.signature import EXAMPLE, read_assumed
from occupancy_lab.work.counting import count_launches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from occupancy_lab.assumed import Assumption
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.occupancy.calculator import Calculation
    from occupancy_lab.scanning.cache import CachedKernel
    from occupancy_lab.scanning.recorded import Parameter, Recorded
    from occupancy_lab.signature import Words

STORAGE_BYTES = 1 << 40
"""Of a tensor, whose size a cache does not have: so much that no launch reaches its end."""
TORCH_DTYPES = {triton: torch for torch, triton in TRITON_DTYPES.items() if torch != "bool"}
AXES = {"Grid1D": "x", "Grid2D": "xy", "Grid2DWithYZOverflow": "xy", "Grid3D": "xyz"}
"""The dimensions of torchinductor's grids (`torch._inductor.runtime.triton_heuristics`)."""
MOST_AT_Y = 65_535
"""Programs in the second dimension of its grids; what is more goes to the third."""
BATCH = 64
"""Kernels whose texts are in memory at once: a matmul's have some 300 KB."""


@dataclass(frozen=True, slots=True)
class Said:
    """What is said of the launches of kernels in a cache."""

    grid: tuple[str, ...] = ()
    """Programs in each dimension: expressions of arguments and constexprs."""
    assume: Mapping[str, Assumption] = field(default_factory=dict)
    """What arguments and tensors of whole numbers hold, by the names of parameters."""

    def of(self, parameters: Iterable[Parameter]) -> dict[str, Assumption]:
        """Return what is said of *parameters*."""
        return {one.name: self.assume[one.name] for one in parameters if one.name in self.assume}


def read_said(grid: str | None, assume: Words, parameters: Collection[str]) -> Said:
    """Return what a command line says of launches of kernels with *parameters*, of any of them.

    Raises InputError where it makes no sense, or names no parameter.
    """
    texts: tuple[str, ...] = ()
    if grid is not None:
        sizes = whole_numbers(grid)
        texts = tuple(map(str, sizes) if sizes else split(grid, "--grid"))
    for text in texts:
        expression = parse(text, EXAMPLE)
        expression.check(dict.fromkeys(expression.names, Kind.NUMBER), Kind.NUMBER)
    return Said(texts, read_assumed(assume, parameters))


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel of a cache on a GPU, with the launch that is known of it."""

    kernel: CachedKernel
    record: Record
    assume: Mapping[str, Assumption]


def launch_of(
    kernel: CachedKernel, recorded: Recorded, gpu: Gpu, calculation: Calculation, said: Said
) -> Entry | None:
    """Return *kernel* with its launch on *gpu*; None where its grid is not known.

    Nothing is counted yet. A number that the kernel was not compiled for is none of its launch.
    """
    sizes = _inductor_sizes(recorded.function)
    assume = {name: one for name, one in said.of(recorded.parameters).items() if name not in sizes}
    numbers = {name: one for name, one in assume.items() if isinstance(one, int)}
    known = {**recorded.constexprs, **numbers, **sizes}
    grid = _inductor_grid(recorded, known) or _said_grid(said.grid, known)
    wrong = any(
        one.divisible and isinstance(number := known.get(one.name), int) and number % one.divisible
        for one in recorded.parameters
        if not one.type.startswith("*")
    )
    if grid is None or wrong or "ttir" not in kernel.entry.suffixes:
        return None
    arguments = {one.name: _argument(one, sizes) for one in recorded.parameters}
    open_ones = {one.name: one.type for one in recorded.parameters if arguments[one.name] is None}
    launch = Launch((), {}, grid, typical=open_ones, in_program=True)
    record = Record(
        kernel=kernel.name,
        launch=launch,
        arguments=arguments,
        constexprs=(),
        options={"num_warps": kernel.resources.num_warps, "num_stages": kernel.num_stages or 1},
        gpu=gpu,
        usual_options={},
        calculation=calculation,
        plan=plan_launch(grid, launch.work, calculation.resident_programs),
        triton_version=kernel.triton_version or "",
    )
    return Entry(kernel, record, assume)


def _argument(parameter: Parameter, sizes: Mapping[str, int]) -> Any:
    if not parameter.type.startswith("*"):
        return sizes.get(parameter.name)
    dtype = TORCH_DTYPES.get(parameter.type[1:], "uint8")
    return Pointer(dtype, STORAGE_BYTES, aligned=parameter.divisible is not None)


def _inductor_sizes(function: ast.FunctionDef | None) -> dict[str, int]:
    """Return the whole numbers that a function sets its parameters to: `xnumel = 4096`."""
    if function is None:
        return {}
    names = {one.arg for one in function.args.args}
    found = {}
    for statement in function.body:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Constant(int(number))) if name in names:
                found[name] = number
            case ast.AnnAssign(ast.Name(name), _, ast.Constant(int(number))):
                found[name] = number
    return found


def _inductor_grid(recorded: Recorded, known: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the grid of a kernel of torchinductor; None of others, and where it is not known."""
    function = recorded.function
    axes = AXES.get(recorded.grid_type)
    if function is None or axes is None:
        return None
    blocks = {one.arg for one in function.args.args}
    sizes = []
    for axis in axes:
        number, name = known.get(f"{axis}numel"), f"{axis.upper()}BLOCK"
        block = known.get(name, None if name in blocks else 1)
        if number is None or block is None:
            return None
        sizes.append(-(-number // block))
    if axes == "xy" and sizes[1] > MOST_AT_Y:
        z = -(-sizes[1] // MOST_AT_Y)
        sizes = [sizes[0], -(-sizes[1] // z), z]
    return _checked(sizes)


def _said_grid(texts: Sequence[str], known: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the sizes that *texts* come to; None where they name what is not known."""
    expressions = [parse(text, EXAMPLE) for text in texts]
    if not texts or any(
        type(known.get(name)) not in {int, float} for one in expressions for name in one.names
    ):
        return None
    return _checked(
        [one.evaluate({name: known[name] for name in one.names}) for one in expressions]
    )


def _checked(sizes: Sequence[Any]) -> tuple[int, ...] | None:
    try:
        return checked_grid(tuple(sizes))
    except InputError:
        return None


def with_work(entries: Sequence[Entry]) -> Iterator[Record]:
    """Return the record of each of *entries* with what its launch does and how long it takes.

    What was counted before is taken from the store, and what is counted is kept there.
    """
    store = Store(store_directory())
    for first in range(0, len(entries), BATCH):
        batch = entries[first : first + BATCH]
        wanted = [one.record.counting(_texts_of(one.kernel), one.assume) for one in batch]
        found = count_launches(wanted, store, len(os.sched_getaffinity(0)))
        yield from (one.record.with_counts(work) for one, work in zip(batch, found, strict=True))


def _texts_of(kernel: CachedKernel) -> Texts:
    entry, resources = kernel.entry, kernel.resources
    texts = {name: read_text(entry, name) or None for name in ("ttgir", "ptx", "amdgcn")}
    return Texts(
        name=kernel.name,
        backend=kernel.target.backend,
        num_warps=resources.num_warps,
        num_ctas=resources.num_ctas,
        shared=resources.shared,
        ttir=read_text(entry, "ttir"),
        cubin=read_entry_file(entry, "cubin") if kernel.target.backend == "cuda" else None,
        **texts,
    )
