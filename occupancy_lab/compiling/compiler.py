"""The compiled results of launches: each comes from the store, or else is compiled once.

Results and lasting failures are stored. The Compiler chooses where to compile: functions that only
this process has are compiled here, all others in processes of this machine or on a Dask cluster.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from occupancy_lab.compiling.compile import (
    check_options,
    compile_launch,
    compile_together,
    failure_of,
    hash_triton,
    resource_key,
    triton_version,
)
from occupancy_lab.compiling.environment import Environment, find_environment
from occupancy_lab.compiling.process import (
    COMPILE_TIMEOUT,
    CompileProcess,
    Found,
    Request,
    check_scheduler,
    compile_here,
    compile_on_cluster,
)
from occupancy_lab.compiling.store import Store, key_as_json, key_digest
from occupancy_lab.compiling.texts import Texts, unpack
from occupancy_lab.errors import (
    CompileError,
    CompileTimeoutError,
    InputError,
    OccupancyLabError,
    refuse,
)
from occupancy_lab.kernel import kernel_file
from occupancy_lab.launch import Launch
from occupancy_lab.options import KNOBS
from occupancy_lab.values import Failure, Resources, Status, Target
from occupancy_lab.workers import signals
from occupancy_lab.workers.child import cores
from occupancy_lab.workers.forked import in_forks
from occupancy_lab.workers.messages import from_line, to_line
from occupancy_lab.workers.signals import UnfinishedError

Outcome = Resources | Failure

TORCH = re.compile(rb"^(import|from) torch\b", re.MULTILINE)
"""Matches a file that imports torch, which takes seconds, and not only in a function."""
INTERRUPTED = Failure(Status.INTERRUPTED, "interrupted before it was compiled")
"""The outcome of a launch that was not compiled before Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """A launch that is to be compiled for a target."""

    function: Any
    """The JITFunction."""
    launch: Launch
    target: Target
    name: str | None = None
    """The name for `load_function`; None if only this process has the function."""
    title: str = ""
    """The kernel's name in messages."""

    def __str__(self) -> str:
        """Return the kernel and the knobs that the launch sets, for a message."""
        options = self.launch.options(self.function)
        knobs = [f"{name} {options[name]}" for name in KNOBS if name in options]
        return " with ".join([self.title, *([" and ".join(knobs)] if knobs else [])])


class Compiler:
    """Compiles launches with one Triton."""

    def __init__(  # noqa: PLR0913 - how to compile
        self,
        directory: Path | str | None,
        *,
        triton: str | None = None,
        here: Collection[Target] = (),
        jobs: int | None = None,
        scheduler: str | None = None,
        timeout: float | None = COMPILE_TIMEOUT,
        retry_failed: bool = False,
        threads: bool = False,
        progress: Callable[[str], None] = lambda _sentence: None,
        counted: Callable[[int, int], None] = lambda _done, _of: None,
    ) -> None:
        """Keep outcomes in the store at *directory*; None keeps them in memory.

        Args:
            directory: Where the store is.
            triton: The Triton that compiles, as `find_environment` takes it.
            here: The targets whose GPUs are in this machine: their own driver compiles.
            jobs: Compiling processes; None takes one per core.
            scheduler: The address of a Dask scheduler whose workers compile instead.
            timeout: Seconds that a compile, or the import of a kernel's file, may take.
            retry_failed: Whether to compile again what the store says cannot be compiled.
            threads: Whether threads of this process compile the functions that only it has, so that
                a later launch finds them compiled; otherwise forks compile them.
            progress: Called with a sentence before anything slow, and with "" after it.
            counted: Called with the number of finished compiles and the number of all.

        Raises InputError if no Dask scheduler answers at *scheduler*.
        """
        if scheduler is not None:
            check_scheduler(scheduler)
        self.store = Store(directory)
        """Also keeps what is computed from a compiled kernel."""
        self._triton = triton
        self._here = here
        self._jobs = jobs or cores()
        self._scheduler = scheduler
        self._timeout = timeout
        self._retry_failed = retry_failed
        self._threads = threads
        self._progress = progress
        self._counted = counted
        self._outcomes: dict[str, Outcome] = {}
        self._texts: dict[str, str] = {}
        self._keys: dict[str, dict[str, Any] | None] = {}
        self._processes: dict[str, CompileProcess] = {}

    @functools.cached_property
    def environment(self) -> Environment:
        """The Python and the Triton that compile; InputError if there is no such Triton."""
        return find_environment(self._triton)

    def close(self) -> None:
        """End the processes; later compiles start new ones."""
        while self._processes:
            _, process = self._processes.popitem()
            process.close()

    def check_file(self, name: str) -> None:
        """Raise InputError if *name* is a kernel's file that cannot be imported.

        Another process imports it first, because the import may do anything. The store remembers
        the files that were imported.
        """
        file = kernel_file(name)
        if file is None or not os.access(file, os.R_OK) or not file.is_file():
            return  # the import itself will say why
        content = file.read_bytes()
        key = {
            "python": sys.version,
            "triton": triton_version(),
            "file": hashlib.sha256(content).hexdigest(),
        }
        if self.store.get_line("imported", key) is not None:
            return
        with self._progressing(f"importing {file.name} ..."):
            if self._forks(sys.executable) and TORCH.search(content):
                import torch  # noqa: F401 - for the fork and for this process at once
            failure = self._process(sys.executable).import_file(file, self._timeout)
        if failure is not None and failure.seconds is not None:
            refuse(f"{file} takes longer than {failure.seconds:g} s to import")
        if failure is not None:
            is_named = failure.reason.startswith(str(file))
            refuse(failure.reason if is_named else f"{file} cannot be imported: {failure.reason}")
        self.store.put_line("imported", key, "")

    def resources(self, wanted: Compilation) -> Resources:
        """Return what one program of *wanted* takes.

        Raises InputError for invalid arguments, and CompileError if Triton cannot compile the
        kernel within the time limit.
        """
        (outcome,) = self.compile([wanted])
        if isinstance(outcome, Resources):
            return outcome
        if outcome.status is Status.SKIPPED:
            refuse(outcome.reason)
        if outcome.seconds is not None:
            raise CompileTimeoutError.of(str(wanted), outcome.seconds, wanted.target.name)
        raise CompileError(outcome.reason)

    def compile(self, wanted: Sequence[Compilation]) -> list[Outcome]:
        """Return the resources or the failure of each of *wanted*, in order.

        On Ctrl-C raises UnfinishedError with all outcomes; those of unfinished compiles are
        INTERRUPTED.
        """
        names = [self._look_up(one) for one in wanted]
        missing = {
            name: one for name, one in zip(names, wanted, strict=True) if name not in self._outcomes
        }
        try:
            self._compile_missing(missing)
        except KeyboardInterrupt as interrupt:
            signals.arrived()
            found = [self._outcomes.get(name, INTERRUPTED) for name in names]
            raise UnfinishedError(found) from interrupt
        return [self._outcomes[name] for name in names]

    def texts(self, wanted: Sequence[Compilation]) -> list[Texts | None]:
        """Return the texts of each of *wanted*, from the store or a compile; None if it fails."""
        found: dict[str, Texts | None] = {}
        missing: dict[str, Compilation] = {}
        names = [self._look_up(one) for one in wanted]
        for name, one in dict(zip(names, wanted, strict=True)).items():
            texts = self._known_texts(name)
            if texts is None and not isinstance(self._outcomes.get(name), Failure):
                missing[name] = one
            else:
                found[name] = texts
        self._compile_missing(missing)
        found |= {name: self._known_texts(name) for name in missing}
        return [found[name] for name in names]

    def _known_texts(self, name: str) -> Texts | None:
        """Return the texts of *name* from memory, which has what the store does not keep."""
        key = self._keys[name]
        kept = None if key is None else self.store.get_line("texts", key)
        return unpack(self._texts.get(name, kept or ""))

    def _look_up(self, wanted: Compilation) -> str:
        """Return the key of *wanted* in `_outcomes`, and fill the outcome if the store has it."""
        if self.environment.is_running:
            key = resource_key(wanted.function, wanted.launch, wanted.target)
            name = key_digest(key)
        else:
            key, name = None, key_digest([wanted.name, repr(wanted.launch), str(wanted.target)])
        if name in self._outcomes:
            return name
        self._keys[name] = key
        if key is None:
            return name
        try:
            check_options(wanted.function, wanted.launch, wanted.target)
        except InputError as error:
            self._outcomes[name] = failure_of(error)
            return name
        if self._retry_failed:
            self.store.forget("failures", key)
        stored = self.store.get(key) or self.store.get_failure(key)
        if stored is not None:
            self._outcomes[name] = stored
        return name

    def _compile_missing(self, missing: dict[str, Compilation]) -> None:
        if not missing:
            return
        self._counted(0, len(missing))
        if self._forks(self.environment.python):
            hash_triton()
        own = {name: one for name, one in missing.items() if one.name is None}
        others = {name: one for name, one in missing.items() if name not in own}
        one = next(iter(missing.values()))
        words = f"{one.title} for {one.target.name}"
        if len(missing) > 1:
            titles = dict.fromkeys(one.title for one in missing.values())
            words = f"{len(missing)} launches of {', '.join(titles)}"
        with (
            self._progressing(f"compiling {words} ..."),
            contextlib.closing(
                self._compile_in_threads(own) if self._threads else self._compile_apart(own)
            ) as here,
            contextlib.closing(self._compile_elsewhere(others)) as elsewhere,
        ):
            outcomes = itertools.chain(here, elsewhere)
            for count, (name, outcome) in enumerate(outcomes, start=1):
                self._outcomes.setdefault(name, self._keep(name, outcome))
                self._counted(count, len(missing))

    def _compile_in_threads(self, own: dict[str, Compilation]) -> Generator[tuple[str, Found]]:
        for target in dict.fromkeys(one.target for one in own.values()):
            named = {name: one for name, one in own.items() if one.target == target}
            launches = [(one.function, one.launch) for one in named.values()]
            found = compile_together(launches, target, present=target in self._here)
            yield from zip(named, found, strict=True)

    def _compile_apart(self, own: dict[str, Compilation]) -> Generator[tuple[str, Found]]:
        """Compile functions that only this process has in forks: a compiler may hang or die."""
        apart = {name: one for name, one in own.items() if one.target not in self._here}

        def answering(one: Compilation) -> str:
            return to_line(self._compile_here(one))

        calls = {name: partial(answering, one) for name, one in apart.items()}
        with contextlib.closing(in_forks(calls, self._jobs, self._timeout)) as answers:
            for name, (answer, words) in answers:
                yield name, self._answered(apart[name], answer, words)
        for name, one in own.items():
            if name not in apart:  # a GPU's driver does not work in a fork
                yield name, self._compile_here(one)

    def _answered(self, one: Compilation, answer: str | None, words: str) -> Found:
        """Return the result that a fork sent for *one*, or a failure if the fork hung or died."""
        if answer is None:
            reason = str(CompileTimeoutError.of(str(one), self._timeout, one.target.name))
            return Failure(Status.TIMED_OUT, reason, self._timeout)
        if not answer:
            reason = f"the process that compiles {one.title} died: {words}".removesuffix(": ")
            return Failure(Status.COMPILE_FAILED, reason)
        found: Found = from_line(Found, answer)
        return found

    def _compile_here(self, one: Compilation) -> Found:
        try:
            return compile_launch(
                one.function,
                one.launch,
                one.target,
                self.store,
                name=one.title,
                present=one.target in self._here,
            )
        except OccupancyLabError as error:
            return failure_of(error)

    def _compile_elsewhere(self, wanted: dict[str, Compilation]) -> Generator[tuple[str, Found]]:
        directory = None if self._scheduler else self.store.directory
        kept = None if directory is None else str(directory)
        requests = {}
        for name, one in wanted.items():
            key = self._keys[name]
            present = one.target in self._here and self.environment.is_running
            requests[name] = Request(
                str(one.name),
                one.launch,
                one.target,
                kept,
                present=present,
                key=None if key is None else key_as_json(key),
            )
        python = self.environment.python
        if self._scheduler is not None:
            yield from compile_on_cluster(requests, self._scheduler, self._timeout)
        elif len(requests) == 1:
            ((name, request),) = requests.items()
            yield name, self._process(python).compile(request, self._timeout)
        else:
            forked = self._forks(python)
            yield from compile_here(requests, self._jobs, self._timeout, python, forked=forked)

    def _keep(self, name: str, outcome: Found) -> Outcome:
        """Store an outcome unless a retry may well give another, and return it."""
        key = self._keys[name]
        if isinstance(outcome, Failure):
            if key is None or not outcome.lasting:
                return outcome
            return self.store.put_failure(key, outcome)
        if key is not None:
            self.store.put(key, outcome.resources)
        if key is None or not self.store.put_line("texts", key, outcome.texts):
            self._texts[name] = outcome.texts
        return outcome.resources

    def _process(self, python: str) -> CompileProcess:
        if python not in self._processes:
            self._processes[python] = CompileProcess(python, forked=self._forks(python))
        return self._processes[python]

    def _forks(self, python: str) -> bool:
        """Return whether a fork may compile for *python*: no GPU's driver works in a fork."""
        return python == sys.executable and not self._here

    @contextlib.contextmanager
    def _progressing(self, sentence: str) -> Iterator[None]:
        self._progress(sentence)
        try:
            yield
        finally:
            self._progress("")
