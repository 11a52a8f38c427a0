"""The launch that a cache entry was compiled for, as a Record with its work and predicted time.

torch.compile writes the sizes of a launch into the source of its kernel, so they are known if the
source has not changed. For other kernels the user gives the grid, and numbers by the names of
parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from occupancy_lab.arguments import TRITON_DTYPES, Pointer
from occupancy_lab.assumed import TRIPS, Assumption
from occupancy_lab.compiled_records import record_in_program
from occupancy_lab.compiling.store import Store, store_directory
from occupancy_lab.compiling.texts import Texts
from occupancy_lab.errors import InputError
from occupancy_lab.expressions import Expression, parse
from occupancy_lab.launch import BoundLaunch, Launch, checked_grid
from occupancy_lab.notation import split, whole_numbers
from occupancy_lab.occupancy.calculator import Calculation
from occupancy_lab.record import Record
from occupancy_lab.scanning.cache import CachedKernel, read_entry_file, read_text
from occupancy_lab.signature import EXAMPLE
from occupancy_lab.work.counting import Counting, count_launches
from occupancy_lab.workers.child import cores

if TYPE_CHECKING:
    from occupancy_lab.scanning.recorded import Parameter, Recorded

STORAGE_BYTES = 1 << 40
"""The assumed size of a tensor, which a cache does not have; no launch reaches its end."""
TORCH_DTYPES = {triton: torch for torch, triton in TRITON_DTYPES.items() if torch != "bool"}
AXES = {"Grid1D": "x", "Grid2D": "xy", "Grid2DWithYZOverflow": "xy", "Grid3D": "xyz"}
"""The dimensions of torchinductor's grids (`torch._inductor.runtime.triton_heuristics`)."""
MOST_AT_Y = 65_535
"""The most programs in the second dimension of its grids; more go to the third."""
BATCH = 64
"""How many kernels' texts are in memory at once; a matmul's have about 300 KB."""


def read_grid(grid: str) -> list[Expression]:
    """Return the programs in each dimension of a *grid*, as `scan` takes it.

    Raises InputError if *grid* is not one.
    """
    sizes = whole_numbers(grid)
    texts = map(str, sizes) if sizes else split(grid, "--grid")
    expressions = [parse(text, EXAMPLE) for text in texts]
    for one in expressions:
        one.check_number()
    return expressions


@dataclass(frozen=True, slots=True)
class KnownLaunch:
    """A kernel of a cache with its launch."""

    kernel: CachedKernel
    record: Record
    assume: Mapping[str, Assumption]

    def counting(self) -> Counting:
        """Return the input for counting what the launch does."""
        entry, resources = self.kernel.entry, self.kernel.resources
        backend = self.kernel.target.backend
        texts = Texts(
            name=self.kernel.name,
            backend=backend,
            num_warps=resources.num_warps,
            num_ctas=resources.num_ctas,
            shared=resources.shared,
            ttir=read_text(entry, "ttir"),
            ttgir=read_text(entry, "ttgir") or None,
            ptx=read_text(entry, "ptx") or None,
            amdgcn=read_text(entry, "amdgcn") or None,
            cubin=read_entry_file(entry, "cubin") if backend == "cuda" else None,
        )
        return self.record.counting(texts, self.assume)


def launch_of(
    kernel: CachedKernel,
    recorded: Recorded,
    calculation: Calculation,
    grid: Sequence[Expression] = (),
    assume: Mapping[str, Assumption] = MappingProxyType({}),
) -> KnownLaunch | None:
    """Return the launch of *kernel* on the GPU of *calculation*; None if its grid is not known.

    *grid* is used if the source does not have the grid, and *assume* has values of arguments and
    tensors of any kernel. None also if a number is not divisible as the kernel was compiled for.
    """
    sizes = _inductor_sizes(recorded.function)
    trips = {name: one for name, one in assume.items() if TRIPS.fullmatch(name)}
    assume = {
        one.name: assume[one.name]
        for one in recorded.parameters
        if one.name in assume and one.name not in sizes
    }
    numbers = {name: one for name, one in assume.items() if isinstance(one, int)}
    known = {**recorded.constexprs, **numbers, **sizes}
    programs = _inductor_grid(recorded, known) or _described_grid(grid, known)
    wrong = any(
        one.divisible and isinstance(number := known.get(one.name), int) and number % one.divisible
        for one in recorded.parameters
        if not one.type.startswith("*")
    )
    if programs is None or wrong or "ttir" not in kernel.entry.suffixes:
        return None
    arguments = {one.name: _argument(one, sizes) for one in recorded.parameters}
    typical = {one.name: one.type for one in recorded.parameters if arguments[one.name] is None}
    bound = BoundLaunch(
        kernel=kernel.name,
        launch=Launch((), {}, programs, typical=typical),
        arguments=arguments,
        constexprs=(),
        options={"num_warps": kernel.resources.num_warps, "num_stages": kernel.num_stages or 1},
    )
    return KnownLaunch(kernel, record_in_program(bound, calculation), {**assume, **trips})


def _argument(parameter: Parameter, sizes: Mapping[str, int]) -> Any:
    if not parameter.type.startswith("*"):
        return sizes.get(parameter.name)
    dtype = TORCH_DTYPES.get(parameter.type[1:], "uint8")
    return Pointer(dtype, STORAGE_BYTES, aligned=parameter.divisible is not None)


def _inductor_sizes(function: ast.FunctionDef | None) -> dict[str, int]:
    """Return the integers that a function assigns to its parameters: `xnumel = 4096`."""
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


def _described_grid(grid: Sequence[Expression], known: Mapping[str, Any]) -> tuple[int, ...] | None:
    numbers = {name: one for name, one in known.items() if type(one) in {int, float}}
    if not grid or any(one.names - numbers.keys() for one in grid):
        return None
    return _checked([one.evaluate(numbers) for one in grid])


def _checked(sizes: Sequence[Any]) -> tuple[int, ...] | None:
    try:
        return checked_grid(tuple(sizes))
    except InputError:
        return None


def with_work(launches: Sequence[KnownLaunch]) -> Iterator[Record]:
    """Return the record of each of *launches* with its counts and predicted time.

    Counts are taken from the store if possible, and kept there.
    """
    store = Store(store_directory())
    for first in range(0, len(launches), BATCH):
        batch = launches[first : first + BATCH]
        found = count_launches([one.counting() for one in batch], store, cores())
        for one, counted in zip(batch, found, strict=True):
            yield one.record.with_counts(counted)
