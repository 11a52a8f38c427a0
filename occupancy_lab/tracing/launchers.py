"""Wraps what launches kernels in a traced program: Triton's and Inductor's launchers, and graphs.

Like hook.py, this file is loaded by the program's own Python, and imports only the standard
library.

Triton's `launch_enter_hook` does not tell the grid, and if it is set Inductor gives up its own
launchers. Therefore the launchers themselves are wrapped: `CompiledKernel._run`, which
`_init_handles` sets in Triton 3.6 to 3.9, and the `runner` of Inductor's launcher functions.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import threading
import weakref
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING

from .noted import Kernel, clock, of_inductor, of_triton

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RECENT = 4096
"""How many of a process's last launches are kept in order."""
unusual = 0
"""How many blocks are tuning or capturing now, in any thread."""
_thread = threading.local()


class Launchers:
    """Everything that a session has wrapped, until `restore`."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self._undo: list[Callable[[], None]] = []

    def patch(self, name: str, module: Any) -> None:
        """Wrap what launches kernels in *module*, which was just imported."""
        with self.session.guarded():
            {
                "triton.compiler.compiler": self._patch_triton,
                "triton.runtime.autotuner": self._patch_autotuner,
                "torch.cuda.graphs": self._patch_graphs,
                "torch._inductor.runtime.triton_heuristics": self._patch_inductor,
                "torch._inductor.runtime.benchmarking": self._patch_benchmarking,
            }[name](module)

    def install(self, modules: Any) -> None:
        """Wrap the launchers in the imported *modules*, and kernels that are already loaded."""
        for module in modules:
            self.patch(module.__name__, module)
        with self.session.guarded():
            for one in instances(modules, "CompiledKernel"):
                if one._run is not None:
                    self.wrap_kernel(one)
            for one in instances(modules, "CachingAutotuner"):
                self._wrap_launchers(one)

    def _replace(self, holder: Any, name: str, made: Any) -> None:
        """Replace an attribute by *made* of it, until `restore`."""
        before = vars(holder)[name]
        after = functools.wraps(before)(made(before))
        setattr(holder, name, after)

        def undo() -> None:
            if vars(holder)[name] is after:
                setattr(holder, name, before)

        self._undo.append(undo)

    def _patch_triton(self, module: Any) -> None:
        def made(load: Any) -> Any:
            def _init_handles(kernel: Any) -> None:
                if kernel.module is None:
                    load(kernel)
                    self.wrap_kernel(kernel)

            return _init_handles

        self._replace(module.CompiledKernel, "_init_handles", made)

    def _patch_autotuner(self, module: Any) -> None:
        self._replace(module.Autotuner, "_bench", tuning)

    def _patch_inductor(self, module: Any) -> None:
        def generated(generate: Any) -> Any:
            def _gen_launcher_code(result: Any, scope: Any, *args: Any, **kwargs: Any) -> Any:
                self.wrap_runner(result, scope)
                launcher = generate(result, scope, *args, **kwargs)
                with self.session.guarded():
                    self._undo.append(
                        restoring(weakref.ref(launcher), "runner", scope.get("runner"))
                    )
                return launcher

            return _gen_launcher_code

        def fast(build: Any) -> Any:
            def _build_fast_launcher(tuner: Any, launcher: Any) -> Any:
                made = build(tuner, launcher)
                if made is not None:
                    with self.session.guarded():
                        self.wrap_fast(launcher, made)
                return made

            return _build_fast_launcher

        tuner = module.CachingAutotuner
        self._replace(module.CompileResult, "_gen_launcher_code", generated)
        self._replace(tuner, "bench", tuning)
        if "_build_fast_launcher" in vars(tuner):
            self._replace(tuner, "_build_fast_launcher", fast)

    def _patch_benchmarking(self, module: Any) -> None:
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                for name in ("benchmark", "benchmark_gpu"):
                    if callable(vars(kind).get(name)):
                        self._replace(kind, name, tuning)

    def _patch_graphs(self, module: Any) -> None:
        def begins(begin: Any) -> Any:
            def capture_begin(*args: Any, **kwargs: Any) -> Any:
                enter("capturing")
                try:
                    return begin(*args, **kwargs)
                except BaseException:
                    leave("capturing")
                    raise

            return capture_begin

        def ends(end: Any) -> Any:
            def capture_end(*args: Any, **kwargs: Any) -> Any:
                try:
                    return end(*args, **kwargs)
                finally:
                    leave("capturing")

            return capture_end

        def replayed(replay: Any) -> Any:
            def noted(*args: Any, **kwargs: Any) -> Any:
                self.session.replays += 1
                return replay(*args, **kwargs)

            return noted

        graph = module.CUDAGraph
        for name, made in (
            ("capture_begin", begins),
            ("capture_end", ends),
            ("replay", replayed),
        ):
            if name in vars(graph):
                self._replace(graph, name, made)

    def wrap_kernel(self, kernel: Any) -> None:
        """Wrap the launcher of a loaded CompiledKernel."""
        with self.session.guarded():
            reference = weakref.ref(kernel)
            kernel._run = self._noting(functools.partial(of_triton, reference), kernel._run)
            self._undo.append(restoring(reference, "_run", kernel._run))

    def wrap_runner(self, result: Any, scope: Any) -> None:
        """Wrap the runner in the *scope* of a launcher function that Inductor generates."""
        with self.session.guarded():
            if scope.get("runner") is not None:
                describe = functools.partial(of_inductor, result)
                scope["runner"] = self._noting(describe, scope["runner"])

    def wrap_fast(self, launcher: Any, made: Any) -> None:
        """Wrap the runner of Inductor's fast launcher, which is *made* from *launcher*."""
        known = launcher.__globals__["runner"]
        run = made.__globals__["runner"]
        if getattr(known, "session", None) is self.session:
            wrapped = noting(self.session, known.kernel, run)
            made.__globals__["runner"] = wrapped
            self._undo.append(restoring(weakref.ref(made), "runner", wrapped))

    def _wrap_launchers(self, tuner: Any) -> None:
        results = {id(one.config): one for one in getattr(tuner, "compile_results", ())}
        for launcher in [*tuner.launchers, getattr(tuner, "_cached_launcher", None)]:
            scope = getattr(launcher, "__globals__", {})
            if "runner" in scope:
                self.wrap_runner(results.get(id(launcher.config), launcher), scope)
                self._undo.append(restoring(weakref.ref(launcher), "runner", scope["runner"]))

    def _noting(self, describe: Any, run: Any) -> Any:
        """Return *run* with its launches noted as a new kernel's, or *run* if they already are."""
        kernels = self.session.kernels
        if getattr(run, "session", None) is self.session:
            return run
        kernels.append(Kernel(len(kernels), describe))
        return noting(self.session, kernels[-1], run)

    def restore(self) -> None:
        """Undo all wrapping."""
        for undo in reversed(self._undo):
            with self.session.guarded():
                undo()
        self._undo.clear()


def noting(session: Any, kernel: Any, run: Any) -> Any:
    """Return a function that launches *kernel* by *run* and makes *session* count the launch."""
    cells, launch_unusual, launched = kernel.cells, session.launch_unusual, session.recent.append

    def launch(*args: Any) -> Any:
        cell = cells.get(args[:3])
        if cell is None or unusual or cell.count >= cell.due:
            return launch_unusual(kernel, run, args)
        result = run(*args)
        cell.count += 1
        launched(cell)
        return result

    made: Any = launch
    with contextlib.suppress(Exception):
        made.__dict__.update(vars(run))
    if hasattr(run, "__self__"):
        made.__self__ = run.__self__  # inductor asks a bound method for its kernel
    made.session, made.kernel, made.__wrapped__ = session, kernel, run
    return made


def enter(what: str) -> None:
    """Note that this thread begins *what*: "tuning" or "capturing"."""
    global unusual  # noqa: PLW0603 - read at each launch, where an attribute takes longer
    setattr(_thread, what, getattr(_thread, what, 0) + 1)
    unusual += 1


def leave(what: str) -> None:
    """Note that this thread ends *what*."""
    global unusual  # noqa: PLW0603 - read at each launch, where an attribute takes longer
    if getattr(_thread, what, 0):
        setattr(_thread, what, getattr(_thread, what) - 1)
        unusual -= 1


def is_tuning() -> bool:
    """Return whether this thread is tuning."""
    return bool(getattr(_thread, "tuning", 0))


def tuning(function: Any) -> Any:
    """Return *function* with the thread marked as tuning during each call."""

    def marking(*args: Any, **kwargs: Any) -> Any:
        enter("tuning")
        try:
            return function(*args, **kwargs)
        finally:
            leave("tuning")

    return marking


def instances(modules: Any, name: str) -> Any:
    """Return all objects of the class *name* of one of *modules*."""
    kinds = [vars(one)[name] for one in modules if name in vars(one)]
    kinds += [below for kind in kinds for below in kind.__subclasses__()]
    # An object refers to its class; finding referrers is much faster than checking every object.
    return [one for one in gc.get_referrers(*kinds) if type(one) in kinds] if kinds else []


def restoring(reference: Any, name: str, wrapped: Any) -> Any:
    """Return a function that unwraps *wrapped* if its holder still has it under *name*.

    The holder is a kernel, or a launcher with globals.
    """

    def undo() -> None:
        holder = reference()
        scope: Any = {} if holder is None else getattr(holder, "__globals__", None) or vars(holder)
        if scope.get(name) is wrapped:
            scope[name] = wrapped.__wrapped__

    return undo


def hot_ns(rounds: int = 500) -> Any:
    """Return the time for noting a usual launch, ns: a call with noting minus a call without."""

    def run(_x: Any, _y: Any, _z: Any, *_rest: Any) -> Any:
        return None

    session = SimpleNamespace(recent=deque(maxlen=RECENT), launch_unusual=run)
    kernel = Kernel(0, {})
    kernel.cell((1, 1, 1)).due = sys.maxsize
    launch = noting(session, kernel, run)
    rest = (0,) * 12

    def timed(function: Any) -> Any:
        start = clock()
        for _ in range(rounds):
            function(1, 1, 1, *rest)
        return clock() - start

    return max(0, min(timed(launch) for _ in range(5)) - min(timed(run) for _ in range(5))) / rounds
