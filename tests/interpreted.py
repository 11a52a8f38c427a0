"""What a kernel does as Triton's own interpreter runs it on the CPU: an oracle of its counts.

Each load, store, atomic operation and dot of each program is noted as it happens, and each loop and
branch as it is reached; what is counted is counted one address at a time. Triton interprets only
in a process that was started to, so that an Interpreter is another process, which runs `serve`.
"""

import ast
import builtins
import hashlib
import os
import pickle
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

LINE = 128
SECTOR = 32
ARENA, BEFORE, ALIGNMENT = 16 << 20, 1 << 20, 256
"""The bytes of each tensor, the bytes before its address, and the address's alignment."""
MOST_TENSORS = 10

Site = tuple[tuple[int, ...], str, tuple[tuple[int, int], ...]]
"""An operation of the text: its line and those of the calls that lead to it, innermost first, its
kind, and which copy of an unrolled loop's body it is in."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a launch, with its values if they matter."""

    dtype: str
    values: tuple[int, ...] | None = None


@dataclass(slots=True)
class Moved:
    """The elements that a load, store or atomic operation moved in a launch."""

    item_bytes: int
    executions: int = 0
    elements: int = 0
    active: int = 0
    sectors: int = 0
    lines: int = 0
    unique_bytes: int = 0
    tensors: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Taken:
    """How often a branch was reached and taken."""

    reached: int = 0
    taken: int = 0


@dataclass(slots=True)
class Done:
    """The floating-point operations of a dot, a sum, a product, exp, a reduction or a scan."""

    executions: int = 0
    flops: int = 0


@dataclass(frozen=True, slots=True)
class Touched:
    """The distinct bytes of a tensor that a launch touched."""

    read: int
    written: int
    read_whole: int
    """Bytes of the sectors in which lies what it read."""
    written_whole: int


@dataclass(slots=True)
class Ran:
    """The counts of a launch."""

    moved: dict[Site, Moved] = field(default_factory=dict)
    alike: bool = False
    """Whether two loads did the same everywhere: a compiler may make one of them."""
    loops: dict[Site, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Iterations of each time that a loop was reached."""
    branches: dict[Site, Taken] = field(default_factory=lambda: defaultdict(Taken))
    arithmetic: dict[Site, Done] = field(default_factory=lambda: defaultdict(Done))
    touched: dict[str, Touched] = field(default_factory=dict)


class Interpreter:
    """Triton's interpreter in a separate process."""

    def __init__(self) -> None:
        here = Path(__file__).parent
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", "import interpreted; interpreted.serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(here)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.close()
        self._process.wait()

    def run(
        self,
        path: Path,
        arguments: dict[str, Any],
        grid: tuple[int, ...],
    ) -> Ran | str:
        """Return the counts of a launch of a file's function `kernel`, or why it did not run."""
        assert self._process.stdout is not None
        pickle.dump((str(path), arguments, grid), self._process.stdin)
        self._process.stdin.flush()
        ran: Ran | str = pickle.load(self._process.stdout)  # noqa: S301 - of a child of this process
        return ran


def serve() -> None:
    """Answer each launch that comes in with its counts, until no more come."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    notes = Notes()
    notes.listen()
    while True:
        try:
            asked = pickle.load(sys.stdin.buffer)  # noqa: S301 - from this process's parent
        except EOFError:
            return
        pickle.dump(notes.run(*asked), answers)
        answers.flush()


class OutsideError(Exception):
    """An address is in none of a launch's tensors."""


class Notes:
    """Counts what the interpreter does, launch by launch."""

    def __init__(self) -> None:
        import torch

        self._arenas = [torch.zeros(ARENA, dtype=torch.uint8) for _ in range(MOST_TENSORS)]
        self._starts = [
            -(-(arena.data_ptr() + BEFORE) // ALIGNMENT) * ALIGNMENT for arena in self._arenas
        ]
        self._path = ""
        self._ran = Ran()
        self._names: list[str] = []
        self._given: dict[str, int] = {}
        self._copies: list[tuple[int, int]] = []
        self._digests: dict[Site, Any] = {}
        self._addresses: dict[Site, list[np.ndarray]] = {}
        self._of_tensor: dict[tuple[str, str], list[np.ndarray]] = {}

    def run(self, path: str, arguments: dict[str, Any], grid: tuple[int, ...]) -> Ran | str:
        """Return the counts of a launch of the file's function `kernel`, or why it failed."""
        import numpy as np
        import triton.language as tl
        from triton.runtime import interpreter

        self._path, self._ran = path, Ran()
        self._names, self._given, self._copies = [], {}, []
        self._digests, self._addresses, self._of_tensor = {}, {}, defaultdict(list)
        passed = {name: self._pass(name, value) for name, value in arguments.items()}
        module: dict[str, Any] = {"__name__": "drawn"}
        try:
            exec(compile(Path(path).read_text("utf-8"), path, "exec"), module)  # noqa: S102
            assert module["tl"] is tl
            with np.errstate(all="ignore"):
                module["kernel"][grid](**passed)
        except (interpreter.InterpreterError, OutsideError) as error:
            return repr(error)
        self._summarize()
        return self._ran

    def _pass(self, name: str, value: Any) -> Any:
        """Return the argument in the form that the launch takes."""
        import torch

        if not isinstance(value, Tensor):
            return value
        number = len(self._names)
        self._names.append(name)
        arena, dtype = self._arenas[number], getattr(torch, value.dtype)
        tensor = arena[self._starts[number] - arena.data_ptr() :].view(dtype)
        if value.values is not None:
            self._given[name] = len(value.values)
            tensor[: len(value.values)] = torch.tensor(value.values, dtype=dtype)
        return tensor

    def listen(self) -> None:
        """Have Triton's interpreter report everything that it does from now on."""
        import triton.language as tl
        from triton.runtime import interpreter

        builder = interpreter.InterpreterBuilder
        load, store = builder.create_masked_load, builder.create_masked_store
        update, swap = builder.create_atomic_rmw, builder.create_atomic_cas

        def noted_load(self_: Any, ptrs: Any, mask: Any, *others: Any, **named: Any) -> Any:
            self._note("load", ptrs, mask.data)
            return load(self_, ptrs, mask, *others, **named)

        def noted_store(self_: Any, ptrs: Any, value: Any, mask: Any, *others: Any) -> Any:
            self._note("store", ptrs, mask.data)
            return store(self_, ptrs, value, mask, *others)

        def noted_update(
            self_: Any, how: Any, ptr: Any, value: Any, mask: Any, *others: Any
        ) -> Any:
            self._note("atomic", ptr, mask.data)
            return update(self_, how, ptr, value, mask, *others)

        def noted_swap(self_: Any, ptr: Any, *others: Any) -> Any:
            self._note("atomic", ptr, mask=True)
            return swap(self_, ptr, *others)

        builder.create_masked_load, builder.create_masked_store = noted_load, noted_store
        builder.create_atomic_rmw, builder.create_atomic_cas = noted_update, noted_swap
        builder.create_dot = self._noted(
            "dot", builder.create_dot, lambda found, a, *_: 2 * found.data.size * a.data.shape[-1]
        )
        for name, made in (("addf", "fadd"), ("mulf", "fmul"), ("exp", "exp")):
            method = f"create_{made}"
            noted = self._noted(name, getattr(builder, method), lambda found, *_: found.data.size)
            setattr(builder, method, noted)
        for name, kind in (("reduce", interpreter.ReduceOps), ("scan", interpreter.ScanOps)):
            kind.apply = self._noted(name, kind.apply, _combined)
        # Patched once: each launch, and each call of a helper, would patch the language again.
        interpreter._patch_lang(type("Function", (), {"__globals__": {"tl": tl, "core": tl.core}}))
        interpreter._patch_lang = lambda _: interpreter._LangPatchScope()
        interpreter.FunctionRewriter.ast_transformer = _marking(interpreter.ASTTransformer)()
        interpreter.interpreter_builder.options = interpreter.InterpreterOptions(
            sanitize_overflow=False  # the checks would take half of the time
        )
        tl.static_range = self._unrolled
        vars(builtins).update(_reached=self._reached, _again=self._again)  # Triton's helpers too

    def _noted(
        self, name: str, method: Callable[..., Any], flops: Callable[..., int]
    ) -> Callable[..., Any]:
        """Return *method*, with the floating-point operations of each call counted."""

        def noted(self_: Any, *operands: Any) -> Any:
            found = method(self_, *operands)
            number = flops(found, *operands, self_)
            if number:
                done = self._ran.arithmetic[self._site(name)]
                done.executions += 1
                done.flops += number
            return found

        return noted

    def _unrolled(self, *bounds: Any) -> Iterator[int]:
        line = sys._getframe(1).f_lineno
        for index in range(*(int(getattr(one, "value", one)) for one in bounds)):
            self._copies.append((line, index))
            yield index
            self._copies.pop()

    def _reached(self, kind: str) -> None:
        """Count a loop or a branch, at the line of the caller."""
        if sys._getframe(1).f_code.co_filename == self._path:
            if kind == "branch":
                self._ran.branches[self._site(kind)].reached += 1
            else:
                self._ran.loops[self._site(kind)].append(0)

    def _again(self, kind: str) -> None:
        """Count a run of a body."""
        if sys._getframe(1).f_code.co_filename == self._path:
            if kind == "branch":
                self._ran.branches[self._site(kind)].taken += 1
            else:
                self._ran.loops[self._site(kind)][-1] += 1

    def _site(self, kind: str) -> Site:
        lines = []
        frame: Any = sys._getframe(1)
        while frame is not None:  # the last is the launch's module
            if frame.f_code.co_filename == self._path:
                lines.append(frame.f_lineno)
            frame = frame.f_back
        return tuple(lines), kind, tuple(self._copies)

    def _note(self, kind: str, ptrs: Any, mask: Any) -> None:
        import numpy as np
        from triton.runtime.interpreter import _get_np_dtype, interpreter_builder

        site = self._site(kind)
        addresses = ptrs.data
        mask = np.broadcast_to(mask, addresses.shape).astype(bool)  # a scalar's mask may be int8
        item = _get_np_dtype(ptrs.get_element_ty()).itemsize
        active = addresses[mask].astype(np.int64).ravel()
        numbers = {self._number(one) for one in {int(one) >> 12 for one in active}}
        x, y, z = interpreter_builder.grid_idx
        width, height, _ = interpreter_builder.grid_dim
        program = x + width * (y + height * z)
        moved = self._ran.moved.setdefault(site, Moved(item))
        moved.executions += 1
        moved.elements += addresses.size
        moved.active += active.size
        moved.sectors += np.unique(active // SECTOR).size
        moved.lines += np.unique(active // LINE).size
        digest = self._digests.setdefault(site, hashlib.blake2b())
        digest.update(repr((program, addresses.shape)).encode())
        digest.update(addresses.astype(np.int64).tobytes() + mask.tobytes())
        unique = np.unique(active)
        self._addresses.setdefault(site, []).append(unique)
        for number in numbers:
            name, start = self._names[number], self._starts[number]
            moved.tensors.add(name)
            inside = unique if len(numbers) == 1 else unique[abs(unique - start) < ARENA - BEFORE]
            offsets = inside - start
            elements = self._given.get(name)
            if elements is not None and not 0 <= offsets[0] <= offsets[-1] < elements * item:
                msg = f"{name} has no element there"
                raise OutsideError(msg)
            for use in ("read", "written"):
                if kind == "atomic" or (kind == "load") == (use == "read"):
                    self._of_tensor[name, use].append(offsets)

    def _number(self, page: int) -> int:
        """Return the number of the tensor that has an address in the 4 KiB page."""
        for number, arena in enumerate(self._arenas[: len(self._names)]):
            first = arena.data_ptr()
            if first < page << 12 and (page + 1) << 12 < first + ARENA:
                return number
        msg = "an address is far outside of every tensor"
        raise OutsideError(msg)

    def _summarize(self) -> None:
        for site, moved in self._ran.moved.items():
            moved.unique_bytes = _distinct(self._addresses[site]) * moved.item_bytes
        loads = [
            self._digests[site].digest()
            for site, moved in self._ran.moved.items()
            if site[1] == "load" and moved.active
        ]
        self._ran.alike = len({*loads}) < len(loads)
        item = {name: one.item_bytes for one in self._ran.moved.values() for name in one.tensors}
        for name, size in item.items():
            read, written = (self._of_tensor[name, use] for use in ("read", "written"))
            self._ran.touched[name] = Touched(
                size * _distinct(read),
                size * _distinct(written),
                SECTOR * _distinct([one // SECTOR for one in read]),
                SECTOR * _distinct([one // SECTOR for one in written]),
            )


def _combined(_: object, tile: Any, how: Any) -> int:
    """Return the floating-point operations of a reduction or a scan of a tile."""
    if isinstance(tile, tuple) or not tile.dtype.is_floating():
        return 0
    return int(tile.handle.data.size - tile.handle.data.size // tile.shape[how.axis])


def _distinct(arrays: list[np.ndarray]) -> int:
    import numpy as np

    return int(np.unique(np.concatenate(arrays)).size) if arrays else 0


def _marking(transformer: type[ast.NodeTransformer]) -> type[ast.NodeTransformer]:
    """Return Triton's rewriter of interpreted functions, which marks each loop and branch."""

    class Marking(transformer):  # type: ignore[misc, valid-type]
        def _mark(self, node: Any) -> Any:
            self.generic_visit(node)
            called = getattr(getattr(node, "iter", None), "func", None)
            if getattr(called, "attr", "") == "static_range":
                return node
            kind = "branch" if isinstance(node, ast.If) else "loop"
            reached, again = (
                ast.copy_location(
                    ast.Expr(ast.Call(ast.Name(name, ast.Load()), [ast.Constant(kind)], [])), node
                )
                for name in ("_reached", "_again")
            )
            node.body.insert(0, again)
            return [reached, node]

        visit_For = visit_While = visit_If = _mark  # noqa: N815 - as ast calls them

    return Marking
