"""Notes launches instead of making them, as if the GPU were here.

An autotuned launch is noted as one launch of each configuration that is left after pruning, because
only times tell which one Triton would take. Pruning is done once for each tuning key.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from occupancy_lab.arguments import Plain, is_plain
from occupancy_lab.compiling.assumptions import Assumptions, Value, place
from occupancy_lab.compiling.compile import compile_launch, failure_of, own_cache, resource_key
from occupancy_lab.compiling.compiler import Compilation
from occupancy_lab.compiling.dry_gpu import offline_torch
from occupancy_lab.compiling.held import with_values, written_parameters
from occupancy_lab.compiling.inductor import Configured, compiled_models
from occupancy_lab.compiling.notes import (
    Began,
    Compiled,
    Feed,
    Notes,
    ScriptLaunch,
    Told,
    Unseen,
    Use,
    read_notes,
)
from occupancy_lab.compiling.offline import offline
from occupancy_lab.compiling.store import Store
from occupancy_lab.digest import source_digest
from occupancy_lab.errors import EmptyGridError, OccupancyLabError
from occupancy_lab.kernel import Variant, as_compared, autotuner_of, changed, innermost, variants
from occupancy_lab.launch import BoundLaunch, Launch, constant_text, launch_of
from occupancy_lab.values import Failure, Resources, Status

if TYPE_CHECKING:
    from occupancy_lab.gpus import Gpu

NO_STORAGES: Mapping[str, Any] = MappingProxyType({})

RECENT = 4096
"""How many of the last launches are kept in their order."""
REFUSED = (str, bytes, list, dict, set, complex)
"""Python types that Triton takes only as constexprs, as it does numpy's types."""

BEFORE_ARGUMENTS = 6
"""Arguments of Triton's launcher between the grid and the kernel's own arguments."""


class _Compiled:
    """Stands for the CompiledKernel that a launch or warmup returns; compiles when it must."""

    def __init__(self, recorder: Recorder, variant: Variant) -> None:
        self._recorder = recorder
        self._variant = variant

    def _init_handles(self) -> None:
        """Do nothing, because nothing is loaded."""

    def run(self, x: int, y: int, z: int, *others: object) -> None:
        """Note a launch that calls Triton's launcher: the grid comes first, the arguments last."""
        self[x, y, z](*others[BEFORE_ARGUMENTS:])

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*arguments: object, **_: object) -> None:
            _check_reachable(arguments)
            function, found = self._variant.function, self._variant.launch
            with contextlib.suppress(EmptyGridError):
                again = launch_of(function, found.arguments, found.keywords, grid)
                self._recorder.note(Variant(function, again))

        return launch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in {"n_regs", "n_spills"}:
            return getattr(self._recorder.resources_of(self._variant), name)
        return getattr(self._recorder.compiled(self._variant), name)


@dataclass(slots=True)
class _Made:
    """A launch that a process of the script makes, and how often."""

    plain: ScriptLaunch
    found: Variant | Resources | Failure
    """The launch itself, or the outcome of another process's."""
    times: int = 0


class _Thread(threading.local):
    compiling = False
    forking: Notes | None = None


class Recorder:
    """Notes the launches of all threads and processes while it is `recording`."""

    def __init__(
        self,
        gpu: Gpu,
        store: Store,
        folder: Path,
        assumed: Mapping[str, Value],
        *,
        untuned: bool = False,
    ) -> None:
        """Let the script's further processes keep their notes in *folder*.

        *assumed* replaces the usual assumptions about values. With *untuned* kernels are launched
        as `as_compared` returns them.
        """
        self.gpu = gpu
        self._untuned = untuned
        self.given = assumed
        self.store = store
        self.folder = folder
        self._notes: Notes | None = None
        self._thread = _Thread()
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._made: list[_Made] = []
        self._numbers: dict[str, int] = {}
        self._calls = 0
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._last: tuple[int, Mapping[str, Any]] = -1, NO_STORAGES
        self._feeds: dict[tuple[int, int], tuple[tuple[str, str], ...]] = {}
        self._uses: dict[tuple[int, int], dict[Use, None]] = {}
        self._handed: dict[Any, list[tuple[tuple[int, int], str]]] = {}
        self._pruned: dict[tuple[Any, ...], list[Any]] = {}
        self._compared: dict[int, tuple[Any, Any]] = {}
        self._told: dict[Told, None] = {}

    def begin_process(self, notes: Notes | None = None) -> None:
        """Begin anew in a further process of the script, and write to *notes* or a new file."""
        if self._notes is not None:
            self._notes.close()
        self._begin()
        self._notes = notes or Notes(self.folder)
        self._notes.write(Began(os.getpid()))

    def note(
        self,
        *variants: Variant,
        storages: Mapping[str, Any] = NO_STORAGES,
        passed: Iterable[str] = (),
    ) -> None:
        """Count a launch, or all the variants that an autotuner would try for it.

        *storages* are the storages of its tensors, by parameter; *passed* is what the launch line
        passes.

        Raises InputError if an argument is missing.
        """
        with self._lock:
            self._calls += 1
            for variant in variants:
                key = repr((id(variant.function), variant.launch, variant.tuned))
                number = self._numbers.setdefault(key, len(self._made))
                is_new = number == len(self._made)
                if is_new:
                    bound, tuned = in_plain(variant), _texts(variant.tuned)
                    plain = ScriptLaunch(bound, place(), self._calls, 0, tuned, tuple(passed))
                    self._made.append(_Made(plain, variant))
                made = self._made[number]
                made.times += 1
                if variant is variants[0]:
                    self._recent.append(number)
                    self._follow(number, storages)
                if self._notes is not None:
                    if is_new:
                        self._notes.write(made.plain)
                    self._notes.write(number)
                    if is_new:
                        self._notes.write(Compiled(number, self._outcome_of(variant)))

    def _follow(self, number: int, storages: Mapping[str, Any]) -> None:
        """Keep which tensors of a launch share memory with tensors of the launch before it.

        For the first pair of launches that do so, later launches with these tensors are kept too.
        """
        from torch.multiprocessing.reductions import StorageWeakRef

        reference: Any = StorageWeakRef
        for mine, one in storages.items():
            for feed, its in self._handed.get(reference(one), ()):
                self._uses[feed].setdefault(Use(number, its, mine))
        before, theirs = self._last
        same = [
            (its, mine)
            for mine, one in storages.items()
            for its, other in theirs.items()
            if one._cdata == other._cdata  # noqa: SLF001 - identifies a storage without memory
        ]
        feed = before, number
        if same and feed not in self._feeds:
            self._feeds[feed], self._uses[feed] = tuple(same), {}
            for its, mine in same:
                self._handed.setdefault(reference(storages[mine]), []).append((feed, its))
        self._last = number, storages

    def tell(self, one: Told) -> None:
        """Note a failure, an operation that could not run or an assumption, each once."""
        if one not in self._told:
            self._told[one] = None
            if self._notes is not None:
                self._notes.write(one)

    @property
    def launches(self) -> tuple[ScriptLaunch, ...]:
        """The launches, in the order of their first appearance."""
        return tuple(dataclasses.replace(one.plain, times=one.times) for one in self._made)

    @property
    def recent(self) -> tuple[int, ...]:
        """The last launches of this process in order, as indices of `launches`.

        An autotuned launch is represented by the first configuration that would be tried.
        """
        return tuple(self._recent)

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The launches of this process that share tensors with the launch right before them."""
        return tuple(
            Feed(*feed, tensors, tuple(self._uses[feed])) for feed, tensors in self._feeds.items()
        )

    def gather(self) -> tuple[Told, ...]:
        """Add the launches of further processes, and return what all processes told.

        The order depends only on what is launched, because which process is first is chance.
        """
        processes = list(read_notes(self.folder))
        own = {_identity(one.plain): one for one in self._made}
        calls = (call for process in processes for call in process.calls)
        for call in sorted(calls, key=lambda call: _identity(call[0][0])):
            self._calls += 1
            for one, outcome in call:
                made = own.get(_identity(one))
                if made is None:
                    made = _Made(dataclasses.replace(one, call=self._calls), outcome)
                    own[_identity(one)] = made
                    self._made.append(made)
                made.times += one.times
        running = [
            f"process {process.pid} had not ended: what it launches later is not here"
            for process in processes
            if not process.has_ended
        ]
        theirs = [one for process in processes for one in process.told]
        return tuple(dict.fromkeys((*self._told, *theirs, *running)))

    def to_compile(
        self, index: int, changes: Mapping[str, Plain]
    ) -> Compilation | Resources | Failure:
        """Return launch *index* with *changes* by name, to be compiled, or its known outcome."""
        found = self._made[index].found
        if not isinstance(found, Variant):
            gone = "it was launched by another process, which has ended"
            return Failure(Status.COMPILE_FAILED, gone) if changes else found
        function, launch, target = found.function, found.launch, self.gpu.target
        arguments, keywords = changed(function, launch.arguments, launch.keywords, changes)
        launch = dataclasses.replace(launch, arguments=arguments, keywords=keywords)
        try:
            resource_key(function, launch, target)
        except OccupancyLabError as error:
            return failure_of(error)
        return Compilation(function, launch, target, title=function.__name__)

    def relaunched(self, index: int, changes: Mapping[str, Plain]) -> Launch | str:
        """Return launch *index* with *changes* to its keywords, or why there is no such launch."""
        found = self._made[index].found
        if not isinstance(found, Variant) or found.relaunch is None:
            return "its grid is not known but for the launch itself"
        try:
            launch = dataclasses.replace(found.relaunch(changes), values=found.launch.values)
        except OccupancyLabError as error:
            return str(error)
        return in_plain(Variant(found.function, launch)).launch

    def digests(self, launches: Iterable[int]) -> list[str]:
        """Return the `source_digest` of the kernel of each of *launches*, given by their index.

        It is "" for a launch of another process.
        """
        kernels = [self._made[index].found for index in launches]
        return [source_digest(one.function) if isinstance(one, Variant) else "" for one in kernels]

    def _outcome_of(self, variant: Variant) -> Resources | Failure:
        try:
            return self.resources_of(variant)
        except OccupancyLabError as error:
            return failure_of(error)

    def resources_of(self, variant: Variant) -> Resources:
        """Return what a program of a launch takes."""
        function, launch = variant.function, variant.launch
        with self._untouched():
            return compile_launch(function, launch, self.gpu.target, self.store).resources

    def compiled(self, variant: Variant) -> Any:
        """Return Triton's CompiledKernel of a launch."""
        with self._untouched(), own_cache(self.store.triton_cache), offline(self.gpu.target):
            return variant.launch.warm_up(variant.function)

    @contextlib.contextmanager
    def _untouched(self) -> Iterator[None]:
        """Let Triton itself run in the block instead of noting launches."""
        with self._lock:  # Triton's driver is one for all threads
            before, self._thread.compiling = self._thread.compiling, True
            try:
                yield
            finally:
                self._thread.compiling = before

    def _launched(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        grid = kwargs.pop("grid")
        if not kwargs.pop("warmup"):
            _check_arguments(innermost(kernel), args, kwargs)
            with contextlib.suppress(EmptyGridError):  # Triton compiles it, and launches nothing
                found = self._variants(kernel, args, kwargs, grid)
                self._note_given(found, args, kwargs)
                return _Compiled(self, found[0])
        return _Compiled(self, self._variants(kernel, args, kwargs)[0])

    def _variants(
        self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any = None
    ) -> list[Variant]:
        if not self._untuned:
            return list(variants(kernel, args, kwargs, grid))
        # The copy is kept, because pruning is done once for each tuner.
        _, compared = self._compared.setdefault(id(kernel), (kernel, as_compared(kernel)))
        if autotuner_of(compared) is None and autotuner_of(kernel) is not None:
            # Without an autotuner of its own it is launched as if the line passed what was tuned.
            found = variants(kernel, args, kwargs, grid)
            return [dataclasses.replace(one, tuned={}) for one in found]
        return list(variants(compared, args, kwargs, grid))

    def _launched_compiled(self, function: Any, configurations: Sequence[Configured]) -> None:
        """Note the launch of a kernel of torch.compile, in each of its *configurations*."""
        found = []
        for one in configurations:
            with contextlib.suppress(EmptyGridError):
                launch = launch_of(function, (), {**one.arguments, **one.tuned}, one.grid)
                tuned = one.tuned if len(configurations) > 1 else {}
                found.append(Variant(function, launch, tuned))
        if found:
            self._note_given(found, (), configurations[-1].arguments)

    def _note_given(
        self, found: list[Variant], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        """Note a launch with the values of its tensors; forget those that it overwrites."""
        from occupancy_lab.compiling.gpu_tensors import forget, values_of

        function = found[0].function
        named = {**dict(zip(function.arg_names, args, strict=False)), **kwargs}
        tensors = {name: getattr(value, "base", value) for name, value in named.items()}
        storages = {
            name: one.untyped_storage()
            for name, one in tensors.items()
            if hasattr(one, "untyped_storage")
        }
        self.note(*with_values(found, args, kwargs, values_of), storages=storages, passed=named)
        for name in written_parameters(function) & named.keys():
            forget(named[name])

    def _follow_forks(self, recording: Callable[[], bool]) -> None:
        """Make forks of this process keep notes, in files that exist before the forks do."""

        def before() -> None:
            self._thread.forking = Notes(self.folder) if recording() else None

        def in_parent() -> None:
            if self._thread.forking is not None:
                self._thread.forking.close()

        def in_child() -> None:
            if self._thread.forking is not None:
                self.begin_process(self._thread.forking)

        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Note launches in the block instead of making them, as if the GPU were here.

        A fork of the process keeps notes.
        """
        from unittest import mock

        from triton.runtime.autotuner import Autotuner, Heuristics
        from triton.runtime.jit import JITFunction

        run, prune = JITFunction.run, Autotuner.prune_configs
        recording = True

        def note_run(function: Any, *args: Any, **kwargs: Any) -> Any:
            if self._thread.compiling:
                return run(function, *args, **kwargs)
            return self._launched(function, args, kwargs)

        def note_tuned(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            if (tuner := autotuner_of(kernel)) is not None:
                tuner.best_config = tuner.configs[0]
            return self._launched(kernel, args, {"warmup": False, **kwargs})

        def prune_once(tuner: Any, kwargs: dict[str, Any]) -> list[Any]:
            # Triton's tuning key: the values of `key`, and the dtypes of all tensors.
            named = {**tuner.nargs, **kwargs}
            given = {name: value for name, value in named.items() if name in tuner.arg_names}
            dtypes = [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
            values = [repr(given[name]) for name in tuner.keys if name in given]
            key = id(tuner), *values, *dtypes
            is_tuned = hasattr(tuner, "untuned")  # the decorator chooses for each launch
            if is_tuned or key not in self._pruned:
                self._pruned[key] = prune(tuner, kwargs)
            tuner.best_config = self._pruned[key][0]
            return self._pruned[key]

        assumptions = Assumptions(self.given, self.tell)
        self._follow_forks(lambda: recording)
        with (
            mock.patch.object(JITFunction, "run", note_run),
            mock.patch.object(Autotuner, "run", note_tuned),
            mock.patch.object(Heuristics, "run", note_tuned),
            mock.patch.object(Autotuner, "prune_configs", prune_once),
            offline_torch(self.gpu, assumptions, lambda name: self.tell(Unseen(name))),
            compiled_models(self._launched_compiled),
        ):
            try:
                yield
            finally:
                recording = False


def _identity(launch: ScriptLaunch) -> str:
    """Return a text that is equal for the same launch in two processes."""
    return repr((launch.place, launch.bound, launch.tuned))


def _check_reachable(arguments: Iterable[Any]) -> None:
    """Raise what Triton's launcher raises if a tensor of the CPU is among *arguments*."""
    for one in arguments:
        if isinstance(one, tuple):
            _check_reachable(one)
            continue
        tensor = getattr(one, "base", one)  # `base` of a descriptor or of triton.reinterpret
        if getattr(tensor, "is_cpu", False) and tensor.data_ptr() and not tensor.is_pinned():
            msg = "Pointer argument cannot be accessed from Triton (cpu tensor?)"
            raise ValueError(msg)


def _check_arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise what Triton raises if a launch passes an argument that a kernel cannot take."""
    _check_reachable((*args, *kwargs.values()))
    constexprs = {one.name for one in function.params if one.is_constexpr}
    named = {**dict(zip(function.arg_names, args, strict=False)), **kwargs}
    for name in function.arg_names:
        value = named.get(name)
        is_number_of_numpy = type(value).__module__ == "numpy" and not isinstance(value, float)
        if name not in constexprs and (is_number_of_numpy or isinstance(value, REFUSED)):
            msg = f"failed to specialize argument of type: {type(value).__name__}"
            raise TypeError(msg)


def in_plain(variant: Variant) -> BoundLaunch:
    """Return a launch in a form that can be sent to another process."""
    bound, launch = BoundLaunch.of(variant.function, variant.launch), variant.launch
    arguments = _texts(dict(enumerate(launch.arguments)))
    return dataclasses.replace(
        bound,
        launch=dataclasses.replace(
            launch, arguments=tuple(arguments.values()), keywords=_texts(launch.keywords)
        ),
        arguments=_texts(bound.arguments),
        options=_texts(bound.options),
    )


def _texts(values: Mapping[Any, Any]) -> dict[Any, Plain]:
    """Return *values*, with each value that is not plain replaced by its name or text."""
    return {
        key: value if is_plain(value) else getattr(value, "__name__", None) or constant_text(value)
        for key, value in values.items()
    }
