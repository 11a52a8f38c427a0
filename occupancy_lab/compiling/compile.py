"""Compiles a kernel for a target and reads the Resources and texts of the result.

Nothing is launched: `warmup` compiles with Triton's own driver if the target's GPU is here, and
otherwise with an offline driver.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import re
import subprocess
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from occupancy_lab.compiling.offline import default_options, foreign_options, offline, whole_entries
from occupancy_lab.compiling.store import Store
from occupancy_lab.compiling.texts import Compiled, texts_of
from occupancy_lab.errors import (
    BinaryError,
    CompileError,
    CompileTimeoutError,
    DoesNotFitError,
    InputError,
    OccupancyLabError,
    TargetError,
    few_of,
    refuse,
    unreadable,
)
from occupancy_lab.kernel import OPTIONS, Kernel, check_is_compiled, source_file
from occupancy_lab.launch import Launch, constant_text
from occupancy_lab.options import KNOBS
from occupancy_lab.values import Config, Failure, Problem, Resources, Status, Target
from occupancy_lab.workers.child import Printed, captured, cores

_COMPILING = threading.RLock()
"""Triton's active driver and the terminal's descriptors belong to the whole process."""

READERS = 5
"""To be raised whenever the readers of this folder read other numbers from the same binary, so
that the store does not return numbers of older readers."""

KEY_VARIABLES = (
    "AMDGCN_ANALYZE_SMALL_TENSOR_RANGE",
    "AMDGCN_SCALARIZE_PACKED_FOPS",
    "PTXAS_OPTIONS",
    "TRITON_AMD_CODEGEN_PATH",
    "TRITON_DEBUG",
    "TRITON_INSTRUMENTATION_MODE",
    "TRITON_LIBDEVICE_PATH",
    "TRITON_MOCK_PTX_VERSION",
    "TRITON_PTXAS_BLACKWELL_PATH",
    "TRITON_PTXAS_PATH",
)
"""Variables that change a binary and that `get_cache_invalidating_env_vars` leaves out."""

PASSING = (OSError, MemoryError, subprocess.SubprocessError)
"""Errors of a compile that lacked something which the machine may have the next time."""
NAMELESS = (NameError, AttributeError, ImportError)
"""Errors of a kernel that uses a name which its module, or another one, may have the next time: the
key of a failure has only names that are defined. Triton finds them again at once."""
COMPLAINT = r"\berror *:|is not defined for option"
"""What ptxas prints if it rejects a kernel or a target. It also fails without printing this."""
PLACED = re.compile(r"([^\s/]+\.py:\d+):\d+: error:")
"""The place of an error in a kernel, as a later stage of Triton's compiler prints it."""
USUAL_OPTIONS = {*OPTIONS, *KNOBS}
"""The options that every launch passes and that both vendors' compilers take."""
CUT_OFF = (ValueError, KeyError)
"""Errors of Triton if a file of its cache is cut off or missing."""


@functools.cache
def triton_version() -> str:
    """Return the installed Triton's version, without importing it."""
    from importlib.metadata import version

    return version("triton")


def hash_triton() -> None:
    """Have Triton hash its own files, which takes 0.4 s, so that every fork has the hash."""
    from triton.runtime import cache

    with contextlib.suppress(AttributeError):  # older versions have it elsewhere
        cache.triton_key()


def resource_key(function: Any, launch: Launch, target: Target) -> dict[str, Any]:
    """Return everything that can change the binary of *launch*, as plain JSON values.

    *function* is the JITFunction that is launched. Raises InputError if Triton interprets kernels.
    """
    _check_compiles()
    from triton._C.libtriton import get_cache_invalidating_env_vars

    return {
        "readers": READERS,
        "triton": triton_version(),
        "kernel": function.cache_key,
        "file": source_file(function),
        "target": str(target),
        "arguments": launch.specialization(function, target),
        "options": {name: constant_text(value) for name, value in launch.options(function).items()},
        "environment": get_cache_invalidating_env_vars()
        | {name: os.environ[name] for name in KEY_VARIABLES if name in os.environ},
    }


def compile_launch(  # noqa: PLR0913 - what a compile depends on
    function: Any,
    launch: Launch,
    target: Target,
    store: Store,
    *,
    name: str = "",
    present: bool = False,
) -> Compiled:
    """Return what one program of *launch* takes on *target*, and the kernel's texts.

    Both are from *store* or from a compile.

    *function* is the JITFunction that is launched, and errors call it *name*. *present* means that
    the target's GPU is here: if Triton can use it, Triton's own driver compiles and loads the
    kernel, and the driver's numbers must equal those of the binary. The user's Triton cache is
    neither read nor written.

    Raises InputError for arguments that *function* does not have, TargetError if the installed
    Triton has no compiler for *target*, CompileError if it cannot compile this kernel, and
    BinaryError if the binary and the driver disagree.
    """
    key = resource_key(function, launch, target)
    check_options(function, launch, target)
    resources, texts = store.get(key), store.get_line("texts", key)
    if resources is not None and texts is not None:
        return Compiled(resources, texts)
    name = name or function.__name__
    with _COMPILING, own_cache(store.triton_cache):
        loadable = present and _has_active_driver()
        compiled, resources = _compile_whole(function, launch, target, name, present=loadable)
        if loadable:
            _check_loaded(compiled, resources)
        found = Compiled(resources, _packed_texts(compiled, target))
    store.put(key, found.resources)
    store.put_line("texts", key, found.texts)
    return found


def _packed_texts(compiled: Any, target: Target) -> str:
    texts = texts_of(compiled.asm, compiled.metadata, target.backend)
    return "" if texts is None else texts.pack()


def compile_together(
    launches: Sequence[tuple[Any, Launch]], target: Target, *, present: bool = False
) -> list[Compiled | Failure]:
    """Return what each of *launches*, with its JITFunction, takes on *target*, or its failure.

    Threads of this process compile them, as many as there are cores, with Triton's
    AsyncCompileMode. With *present* Triton's active driver compiles, and a later launch of the same
    kernel finds it compiled. Raises InputError if the program keeps Triton from compiling.
    """
    from concurrent.futures import ThreadPoolExecutor

    from triton.runtime._async_compile import AsyncCompileMode

    jobs = min(cores(), len(launches))
    driver = whole_entries() if present else offline(target)
    found = []
    with _COMPILING, driver, ThreadPoolExecutor(jobs) as pool:
        with AsyncCompileMode(pool, ignore_errors=True):
            begun = [_attempt(launch.warm_up, function) for function, launch in launches]
            ended = [_attempt(_finished, one) for one in begun]
        for (function, _), outcome in zip(launches, ended, strict=True):
            _forget_unfinished(function)
            found.append(_read(outcome, function, target))
    return found


def _attempt(action: Callable[[Any], Any], argument: Any) -> Any:
    """Return the result of *action*, or the exception that it raised or that *argument* is."""
    if isinstance(argument, Exception):
        return argument
    try:
        return action(argument)
    except Exception as error:  # noqa: BLE001 - a compiler ends with anything
        return error


def _finished(compiling: Any) -> Any:
    if compiling is None:
        refuse("a jit_cache_hook of the script keeps Triton from compiling")
    result = getattr(compiling, "result", None)
    return compiling if result is None else result()


def _forget_unfinished(function: Any) -> None:
    """Remove failed compiles from *function*: Triton up to 3.8 would launch them."""
    for kernels, *_ in getattr(function, "device_caches", {}).values():
        for key in [key for key, one in kernels.items() if type(one).__name__ == "FutureKernel"]:
            del kernels[key]


def _read(outcome: Any, function: Any, target: Target) -> Compiled | Failure:
    if isinstance(outcome, InputError):
        raise outcome
    if isinstance(outcome, Exception):
        return failure_of(_compile_error(function, function.__name__, target, outcome, ""))
    try:
        return Compiled(_resources_of(outcome, target), _packed_texts(outcome, target))
    except BinaryError as error:
        return failure_of(error)


def kernel_launch(kernel: Kernel, problem: Problem, config: Config, target: Target) -> Launch:
    """Return the launch of *kernel* for *target*, as `Kernel.launch` does.

    Options that only the other vendor's compiler has are left out. Raises InputError if Triton
    interprets kernels, and for a kernel made of torch operations.
    """
    check_is_compiled(kernel)
    _check_compiles()
    launch = kernel.launch(problem, config)
    foreign = foreign_options(launch.options(kernel.function).keys() - USUAL_OPTIONS, target)
    kept = {name: value for name, value in launch.keywords.items() if name not in foreign}
    return dataclasses.replace(launch, keywords=kept) if foreign else launch


def check_options(function: Any, launch: Launch, target: Target) -> None:
    """Raise InputError, as Triton would, if *launch* passes an option that does not exist."""
    usual = default_options(target)
    unknown = [name for name in launch.options(function) if name not in usual]
    if unknown:
        parameters = [parameter.name for parameter in function.params]
        refuse(
            f"{few_of(unknown)} is neither a parameter of {function.__name__}"
            f" ({', '.join(parameters)}) nor an option of Triton {triton_version()} for"
            f" {target.name}"
        )


@contextlib.contextmanager
def own_cache(directory: Path | None) -> Iterator[None]:
    """Make Triton use the cache at *directory* in the block; None is one that is removed after it.

    The cache of the user has only what the user's programs launch, which `scan` and `check` read.
    """
    if directory is not None:
        with _variable("TRITON_CACHE_DIR", str(directory)):
            yield
        return
    try:
        made = tempfile.TemporaryDirectory(prefix="occupancy-lab-", ignore_cleanup_errors=True)
    except OSError as error:
        refuse(f"there is no folder to compile in: {error}", CompileError)
    with made as folder, _variable("TRITON_CACHE_DIR", folder):
        yield


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _compile_whole(
    function: Any, launch: Launch, target: Target, name: str, *, present: bool
) -> tuple[Any, Resources]:
    """Return Triton's CompiledKernel and its resources.

    Triton trusts the files in its cache. A kernel is compiled again, which replaces the files, if a
    full disk or a power failure cut them off there, or if they name the lines of another file that
    has the same kernel.
    """
    try:
        compiled = _compile(function, launch, target, name, present=present)
        resources = _resources_of(compiled, target)
        files = set(re.findall(r'loc\("([^"]+)":\d', compiled.asm.get("ttir") or ""))
        if not files or source_file(function) in files:
            return compiled, resources
    except (BinaryError, CompileError) as error:
        if not isinstance(error, BinaryError) and not isinstance(error.__cause__, CUT_OFF):
            raise
    getattr(function, "device_caches", {}).clear()
    with _variable("TRITON_ALWAYS_COMPILE", "1"):
        compiled = _compile(function, launch, target, name, present=present)
    return compiled, _resources_of(compiled, target)


def _resources_of(compiled: Any, target: Target) -> Resources:
    # Making the readers' patterns takes 30 ms, which an explanation out of the store does not need.
    from occupancy_lab.compiling.resources import read_resources

    return read_resources(compiled.asm, compiled.metadata, target.backend)


def _check_compiles() -> None:
    from triton import knobs

    if knobs.runtime.interpret:
        refuse("TRITON_INTERPRET makes Triton interpret kernels; unset it to compile them")


def _has_active_driver() -> bool:
    """Return whether Triton finds a driver: torch may be built without the GPU that is here."""
    from triton.runtime import driver

    try:
        return driver.active is not None
    except (RuntimeError, AssertionError):  # no driver, or no libcuda.so where Triton looks
        return False


def _compile(function: Any, launch: Launch, target: Target, name: str, *, present: bool) -> Any:
    driver = whole_entries() if present else offline(target)
    printed = Printed()
    try:
        with _COMPILING, captured() as printed, driver:
            return launch.warm_up(function)
    except Exception as error:
        error.add_note(printed.text)
        raise _compile_error(function, name, target, error, printed.text) from error


def _compile_error(
    function: Any, name: str, target: Target, error: Exception, printed: str
) -> CompileError:
    # If the probe fails for a passing reason, it says nothing about the target.
    with contextlib.suppress(Exception):
        if _lasts(error) and not can_compile(target):
            return TargetError(f"Triton {triton_version()} has no compiler for {target.name}")
    return CompileError(
        f"Triton {triton_version()} cannot compile {name} for {target.name}:"
        f" {_reason(error, printed, function)}"
    )


@functools.cache
def smallest_kernel() -> Any:
    """Return a kernel that does nothing: Triton must compile it to compile anything at all."""
    import triton

    @triton.jit  # type: ignore[untyped-decorator] # Triton has no types
    def smallest_kernel() -> None:
        """Do nothing."""

    return smallest_kernel


def can_compile(target: Target) -> bool:
    """Return whether Triton has a compiler for *target*: whether it compiles the smallest kernel.

    Raises errors that may not occur the next time, such as a full disk.
    """
    with _COMPILING, own_cache(None):
        try:
            with captured(), offline(target):
                smallest_kernel().warmup(grid=(1,), **OPTIONS)
        except Exception as error:
            if not _lasts(error):
                raise
            return False
    return True


def failure_of(error: OccupancyLabError) -> Failure:
    """Return *error*, which is why a launch has no Resources or does not fit, as a value.

    The failure lasts if a compiler rejected the kernel. Other failures may pass: a full disk, too
    little memory, a compiler that was killed or ended without a message, a name that is not
    defined.
    """
    if isinstance(error, DoesNotFitError | InputError):
        fits_not = isinstance(error, DoesNotFitError)
        return Failure(Status.DOES_NOT_FIT if fits_not else Status.SKIPPED, str(error))
    if isinstance(error, CompileTimeoutError):
        return Failure(Status.TIMED_OUT, str(error))
    cause = error.__cause__ if isinstance(error, CompileError) else None
    lasting = cause is not None and _lasts(cause)
    return Failure(Status.COMPILE_FAILED, str(error), lasting=lasting)


def _lasts(error: BaseException) -> bool:
    while error.__cause__ is not None and not isinstance(error, PASSING):
        error = error.__cause__
    kind = type(error).__name__
    if kind == "CompilationError" and isinstance(error.__context__, NAMELESS):  # raised from None
        return False
    if kind == "PTXASError":
        return re.search(COMPLAINT, getattr(error, "error_message", None) or "") is not None
    return not isinstance(error, PASSING) and not str(error).startswith("Cannot find")


def _reason(error: BaseException, printed: str, function: Any) -> str:
    """Return in one line what the system refused, a compiler printed, or *error* was caused by."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    last = chain[-1]
    if isinstance(last, OSError) and last.strerror:
        return f"{last.strerror}{f': {last.filename}' if last.filename else ''}"
    # The text of an error of Triton begins with the kernel's source; its `error_message` does not.
    texts = (str(getattr(one, "error_message", one) or "") for one in reversed(chain))
    # Before Triton rejects the source itself, it may print warnings and what the kernel prints.
    is_source = any(getattr(one, "node", None) is not None for one in chain)
    messages = map(_telling_line, (*texts, printed) if is_source else (printed, *texts))
    reason = next(filter(None, messages), "") or _failed_line(last)
    places = (*(_place(one, function) for one in reversed(chain)), *PLACED.findall(printed))
    place = next(filter(None, places), "")
    return f"{reason} ({place})" if place else reason


def _failed_line(error: BaseException) -> str:
    """Return the line of a kernel at a caret in *error*, or else the line that raised *error*."""
    for before, line in itertools.pairwise(str(error).splitlines()):
        if line.strip() == "^":
            return f"it fails at `{before.strip()}`"
    frames = traceback.extract_tb(error.__traceback__)[-1:]
    return type(error).__name__ + "".join(f" at `{frame.line}`" for frame in frames if frame.line)


def _place(error: BaseException, function: Any) -> str:
    """Return the file and line of a kernel where *error* of Triton occurred: "softmax.py:12".

    The line is one of *function*, the kernel, or of another kernel that its file has by name.
    Return "" if there is no such line.
    """
    from triton.runtime.jit import JITFunction

    number = getattr(getattr(error, "node", None), "lineno", None)
    near = [function, *getattr(getattr(function, "fn", None), "__globals__", {}).values()]
    known = [one for one in near if isinstance(one, JITFunction)]
    found = next((one for one in known if one.src == getattr(error, "src", None)), None)
    if number is None or found is None:
        return ""
    starts = (line.lstrip().startswith("def ") for line in found.raw_src)
    first = found.starting_line_number + [*starts].index(True)
    return f"{Path(source_file(found)).name}:{first + number - 1}"


def _telling_line(text: str) -> str:
    if match := re.search(r"\b(?:error|fatal) *: *(\S.*)", text):
        return match[1]
    lines = (line.strip("= ").strip() for line in text.splitlines())
    return next((line for line in lines if line), "")


def load_compiled(function: Any, launch: Launch, target: Target) -> Any:
    """Compile *launch* on Triton's own driver, load it on this GPU and return the CompiledKernel.

    Raises CompileError if Triton cannot compile it.
    """
    compiled = _compile(function, launch, target, function.__name__, present=True)
    compiled._init_handles()  # noqa: SLF001 - nothing else loads a kernel without launching it
    return compiled


def _check_loaded(compiled: Any, resources: Resources) -> None:
    """Load the kernel on the GPU and compare the driver's numbers with *resources*.

    A kernel that takes more than the GPU has cannot be loaded, so there is nothing to compare.
    """
    from triton.runtime.errors import OutOfResources

    try:
        compiled._init_handles()  # noqa: SLF001 - nothing else loads a kernel without a launch
    except OutOfResources:
        return
    loaded = {"n_regs": compiled.n_regs, "n_spills": compiled.n_spills}
    read = {"n_regs": resources.n_regs, "n_spills": resources.n_spills}
    if loaded != read:
        unreadable(f"the driver says {loaded} of {compiled.name}, its binary says {read}")
