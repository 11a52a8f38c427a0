"""What runs in a traced program: each launch of a kernel of Triton is counted, and some are timed.

This file imports nothing but the standard library and is loaded by the program's own Python, once
that imports Triton. A process has a folder in the folder of the records: `kernels.jsonl` gets a line
for each kernel when it is first launched, with its files beside it, and `counts.json` is written
anew once a second and at the end. Nothing that goes wrong here reaches the program: it is written to
the record.

Triton's `launch_enter_hook` does not tell the grid, and with it set inductor gives up its own
launchers, so it is the launchers themselves that are wrapped: `CompiledKernel._run`, which
`_init_handles` sets in Triton 3.6 to 3.9, and the `runner` of inductor's launcher functions.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import sys
import threading
import time
import weakref

SAMPLE = 20
"""Of the launches of a kernel over a grid one in so many is timed."""
FIRST = 5
"""The launches of a grid that are timed before one in `sample` is."""
MOST_GRIDS = 256
"""The grids of a kernel that are counted apart."""
SHARE = 0.01
"""The share of the time so far that timing launches may have cost; the FIRST are timed anyway."""
HOLD_NS = 50_000
"""How long the GPU is kept busy where it would else wait for the launch that is timed."""
HOLD_CYCLES = 100_000
MOST_PENDING = 64
"""Pairs of events that wait to be read."""
HELD = 8
"""Timed launches for which the GPU is held, after one that it had to wait for."""
EMPTY_PAIRS = 5
"""Pairs of events with nothing between them."""
FLUSH_NS, NEW_NS = 1_000_000_000, 50_000_000
"""How old what is written may get: at a launch that is looked at, at a new kernel."""
MOST_ERRORS = 20
clock = time.perf_counter_ns

_unusual = 0
"""How many blocks are tuning or capturing now, in any thread."""
_thread = threading.local()


class Cell:
    """The launches of one kernel over one grid."""

    __slots__ = ("captured", "count", "due", "grid", "ns", "samples", "tuning")

    def __init__(self, grid):
        self.grid = grid
        self.count = self.due = self.tuning = self.captured = self.samples = 0
        self.ns = 0.0


class Kernel:
    """A compiled kernel that can be launched: what is told of it, and its cells by grid."""

    __slots__ = ("cells", "described", "held", "number", "others")

    def __init__(self, number, described):
        self.number = number
        self.described = described
        self.cells = {}
        self.others = None
        self.held = 0

    def cell(self, grid):
        """Return the cell of *grid*, or that of all further grids."""
        found = self.cells.get(grid)
        if found is None and len(self.cells) < MOST_GRIDS:
            found = self.cells.setdefault(grid, Cell(grid))
        elif found is None:
            found = self.others = self.others or Cell(None)
        return found


class Session:
    """Notes launches in a folder, from `install` or the first `patch` until `close`."""

    def __init__(self, folder, *, times=True, sample=SAMPLE, whole=False):
        self.folder = folder
        self.whole = whole
        self.sample = sample
        self.timer = Timer(self) if times else None
        self.kernels = []
        self.errors = []
        self.replays = 0
        self.spent = 0
        self._undo = []
        self._lock = threading.RLock()
        self._begin()
        os.register_at_fork(after_in_child=self._forked)

    @classmethod
    def of_process(cls, folder):
        """Return the session of a whole process, which ends with it."""
        with open(os.path.join(folder, "settings.json"), encoding="utf-8") as file:
            session = cls(folder, **json.load(file), whole=True)
        atexit.register(session.close)
        leave = os._exit

        @functools.wraps(leave)
        def leave_noted(status):
            session.close(patient=False)
            leave(status)

        os._exit = leave_noted  # multiprocessing's children end so, without atexit
        return session

    def _begin(self):
        self.place = None
        self.start = self.flushed = clock()
        self.began = time.time()
        self.spent = 0
        self.closed = False

    def _forked(self):
        """Begin anew in a child: what was counted so far is the parent's."""
        self._lock = threading.RLock()
        if not self.whole:
            self.closed = True
        if self.closed:
            self._restore()
            return
        self._begin()
        self.replays = 0
        self.errors = []
        for kernel in self.kernels:
            kernel.cells.clear()
            kernel.others = None
        if self.timer is not None:
            self.timer = Timer(self)

    # Where launches go through

    def patch(self, name, module):
        """Wrap what launches kernels in *module*, which was just imported."""
        with self.guarded():
            {
                "triton.compiler.compiler": self._patch_triton,
                "triton.runtime.autotuner": self._patch_autotuner,
                "torch.cuda.graphs": self._patch_graphs,
                "torch._inductor.runtime.triton_heuristics": self._patch_inductor,
                "torch._inductor.runtime.benchmarking": self._patch_benchmarking,
            }[name](module)

    def install(self, modules):
        """Wrap what *modules* have, which are imported, and kernels that are loaded already."""
        for module in modules:
            self.patch(module.__name__, module)
        with self.guarded():
            for one in gc.get_objects():
                kind = type(one).__name__
                if kind == "CompiledKernel" and getattr(one, "_run", None) is not None:
                    self.wrap_kernel(one)
                elif kind == "CachingAutotuner":
                    self._wrap_launchers(one)

    def _replace(self, holder, name, made):
        """Put *made* in the place of an attribute, until `close`."""
        before = vars(holder)[name]
        after = functools.wraps(before)(made(before))
        setattr(holder, name, after)

        def undo():
            if vars(holder)[name] is after:
                setattr(holder, name, before)

        self._undo.append(undo)

    def _patch_triton(self, module):
        def made(load):
            def _init_handles(kernel):
                if kernel.module is None:
                    load(kernel)
                    self.wrap_kernel(kernel)

            return _init_handles

        self._replace(module.CompiledKernel, "_init_handles", made)

    def _patch_autotuner(self, module):
        self._replace(module.Autotuner, "_bench", marked("tuning"))

    def _patch_inductor(self, module):
        session = self

        def generated(generate):
            def _gen_launcher_code(result, scope, *args, **kwargs):
                session.wrap_runner(result, scope)
                launcher = generate(result, scope, *args, **kwargs)
                with session.guarded():
                    session._undo.append(restoring(weakref.ref(launcher), scope.get("runner")))
                return launcher

            return _gen_launcher_code

        def fast(build):
            def _build_fast_launcher(tuner, launcher):
                made = build(tuner, launcher)
                if made is not None:
                    with session.guarded():
                        session.wrap_fast(launcher, made)
                return made

            return _build_fast_launcher

        tuner = module.CachingAutotuner
        self._replace(module.CompileResult, "_gen_launcher_code", generated)
        self._replace(tuner, "bench", marked("tuning"))
        if "_build_fast_launcher" in vars(tuner):
            self._replace(tuner, "_build_fast_launcher", fast)

    def _patch_benchmarking(self, module):
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                for name in ("benchmark", "benchmark_gpu"):
                    if callable(vars(kind).get(name)):
                        self._replace(kind, name, marked("tuning"))

    def _patch_graphs(self, module):
        def begins(begin):
            def capture_begin(*args, **kwargs):
                enter("capturing")
                try:
                    return begin(*args, **kwargs)
                except BaseException:
                    leave("capturing")
                    raise

            return capture_begin

        def ends(end):
            def capture_end(*args, **kwargs):
                try:
                    return end(*args, **kwargs)
                finally:
                    leave("capturing")

            return capture_end

        def replayed(replay):
            def noted(*args, **kwargs):
                self.replays += 1
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

    # Launchers

    def wrap_kernel(self, kernel):
        """Wrap the launcher of a CompiledKernel that is loaded."""
        with self.guarded():
            run = kernel._run
            if getattr(run, "session", None) is not self:
                kernel._run = self._noting(functools.partial(of_triton, weakref.ref(kernel)), run)
                wrapped, reference = kernel._run, weakref.ref(kernel)

                def undo():
                    found = reference()
                    if found is not None and found._run is wrapped:
                        found._run = run

                self._undo.append(undo)

    def wrap_runner(self, result, scope):
        """Wrap the runner in the *scope* of a launcher function that inductor generates."""
        with self.guarded():
            run = scope.get("runner")
            if run is not None and getattr(run, "session", None) is not self:
                scope["runner"] = self._noting(functools.partial(of_inductor, result), run)

    def wrap_fast(self, launcher, made):
        """Wrap the runner of inductor's fast launcher, *made* of *launcher*."""
        known = launcher.__globals__["runner"]
        run = made.__globals__["runner"]
        if getattr(known, "session", None) is self:
            wrapped = self._launcher(known.kernel, run)
            made.__globals__["runner"] = wrapped
            self._undo.append(restoring(weakref.ref(made), wrapped))

    def _wrap_launchers(self, tuner):
        results = {id(one.config): one for one in getattr(tuner, "compile_results", ())}
        for launcher in [*tuner.launchers, getattr(tuner, "_cached_launcher", None)]:
            scope = getattr(launcher, "__globals__", {})
            if "runner" in scope:
                self.wrap_runner(results.get(id(launcher.config), launcher), scope)
                self._undo.append(restoring(weakref.ref(launcher), scope["runner"]))

    def _noting(self, describe, run):
        kernel = Kernel(len(self.kernels), describe)
        self.kernels.append(kernel)
        return self._launcher(kernel, run)

    def _launcher(self, kernel, run):
        """Return what launches as *run* does, and counts."""
        cells, unusual = kernel.cells, self._unusual

        def launch(*args):
            cell = cells.get(args[:3])
            if cell is None or _unusual or cell.count >= cell.due:
                return unusual(kernel, run, args)
            result = run(*args)
            cell.count += 1
            return result

        with contextlib.suppress(Exception):
            launch.__dict__.update(vars(run))
        if hasattr(run, "__self__"):
            launch.__self__ = run.__self__  # inductor asks a bound method for its kernel
        launch.session, launch.kernel, launch.__wrapped__ = self, kernel, run
        return launch

    def _unusual(self, kernel, run, args):
        """Make a launch that is the first of its grid, is due, or is no launch of the program's."""
        before = clock()
        cell = kind = pair = None
        try:
            grid = tuple(map(int, args[:3]))
            if all(grid):  # a grid with a 0 launches nothing
                cell, kind = self._cell(kernel, grid), self._kind()
            if kind == "count" and cell.count >= cell.due:
                pair = self._due(kernel, cell, args[3:])
        except Exception as error:
            self._failed(error)
        ran = clock()
        result = run(*args)
        after = clock()
        try:
            if pair is not None:
                self.timer.end(kernel, cell, pair)
            if cell is not None:
                setattr(cell, kind, getattr(cell, kind) + 1)
            if after - self.flushed > FLUSH_NS:
                self.flush()
        except Exception as error:
            self._failed(error)
        self.spent += ran - before + clock() - after
        return result

    def _cell(self, kernel, grid):
        """Return where launches over *grid* are counted."""
        if callable(kernel.described):
            describe, kernel.described = kernel.described, {}
            kernel.described = {**describe(), **device_facts()}
        if self.place is None or not kernel.cells:
            self._write(kernel)
        return kernel.cell(grid)

    def _kind(self):
        """Return the name of the count that a launch of this thread goes to."""
        if getattr(_thread, "tuning", 0):
            return "tuning"
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            return "captured" if torch.cuda.is_current_stream_capturing() else "count"
        return "count"

    def _due(self, kernel, cell, rest):
        """Return the events that time a launch whose turn has come; None where it is not timed."""
        first = cell.count < FIRST
        # Layers of a network make launches that are alike at a fixed distance.
        cell.due = cell.count + (1 if first else self.sample + cell.samples % 3)
        if self.timer is None or _unusual:  # while a graph is captured nothing may be asked
            return None
        if first or self.timer.cost < SHARE * (clock() - self.start):
            return self.timer.begin(kernel, rest)
        return None

    # The record

    def _write(self, kernel):
        """Append a line on *kernel* to this process's record, and keep its files."""
        with self._lock:
            if self.place is None:
                number = f"{os.getpid()}-{time.time_ns():x}"
                self.place = os.path.join(self.folder, number)
                os.mkdir(self.place)
                self._append(process_facts())
            described = {**kernel.described, "kernel": kernel.number}
            source = described.pop("files", None)
            if source:
                described["kept"] = keep(source, os.path.join(self.folder, "files"), described)
            self._append(described)
            if clock() - self.flushed > NEW_NS:
                self.flush()

    def _append(self, values):
        with open(os.path.join(self.place, "kernels.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(values, default=str) + "\n")

    def flush(self, *, ended=False):
        """Write what was counted so far."""
        if self.place is None:
            return
        with self._lock:
            self.flushed = clock()
            if self.timer is not None and not _unusual:
                self.timer.collect()
            counted = {
                "ended": ended,
                "began": self.began,
                "seconds": (self.flushed - self.start) / 1e9,
                "replays": self.replays,
                "errors": self.errors,
                "spent_ns": self.spent,
                "kernels": {kernel.number: counts(kernel) for kernel in self.kernels},
                **({} if self.timer is None else self.timer.facts()),
            }
            if ended:
                counted["hot_ns"] = hot_ns()
            path = os.path.join(self.place, "counts.json")
            with open(path + ".part", "w", encoding="utf-8") as file:
                json.dump(counted, file, default=str)
            os.replace(path + ".part", path)

    def close(self, *, patient=True):
        """Write the last counts and put everything back."""
        if self.closed:
            return
        self.closed = True
        with self.guarded():
            if self.timer is not None and patient:
                self.timer.wait()
            self.flush(ended=True)
        if not self.whole:
            self._restore()

    def _restore(self):
        for undo in reversed(self._undo):
            with self.guarded():
                undo()
        self._undo.clear()

    @contextlib.contextmanager
    def guarded(self):
        """Swallow what goes wrong in the block, and write it into the record, each once."""
        try:
            yield
        except Exception as error:
            self._failed(error)

    def _failed(self, error):
        said = f"{type(error).__name__}: {error}"[:300]
        if said not in self.errors and len(self.errors) < MOST_ERRORS:
            self.errors.append(said)


class Timer:
    """Times launches by pairs of CUDA events of torch, which are read when they are done."""

    def __init__(self, session):
        self._session = session
        self._free = {}
        self._pending = []
        self.cost = 0
        self.held = self.dirty = 0
        self.empty = []
        self._streams = {}

    def begin(self, kernel, rest):
        """Return the events of a launch that follows, the first of them recorded; None: no time."""
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
            torch.cuda._sleep(HOLD_CYCLES)
            pair[0].record(stream)
            pair[1].record(stream)
            self._pending.append((None, device, *pair))
            self.cost += HOLD_NS
        if kernel.held:
            kernel.held -= 1
            with torch.cuda.stream(stream):
                torch.cuda._sleep(HOLD_CYCLES)
            self.cost += HOLD_NS
            self.held += 1
        pair = self._pair(torch, device)
        pair[0].record(stream)
        self.cost += clock() - before
        return stream, device, pair

    def end(self, kernel, cell, begun):
        """Record the second event; where the GPU had waited for the launch, its time is no time."""
        before = clock()
        stream, device, pair = begun
        pair[1].record(stream)
        if pair[0].query():
            self.dirty += 1
            kernel.held = HELD
            self._free.setdefault(device, []).append(pair)
        else:
            self._pending.append((cell, device, *pair))
        if len(self._pending) >= MOST_PENDING:
            self.collect()
        self.cost += clock() - before

    def _pair(self, torch, device):
        free = self._free.get(device)
        if free:
            return free.pop()
        return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def collect(self):
        """Read the pairs that are done."""
        waiting = []
        for one in self._pending:
            cell, device, first, second = one
            if not second.query():
                waiting.append(one)
                continue
            ns = first.elapsed_time(second) * 1e6
            if cell is None:
                self.empty.append(ns)
            else:
                cell.ns += ns
                cell.samples += 1
            self._free.setdefault(device, []).append((first, second))
        self._pending = waiting

    def wait(self):
        """Give the last launches a moment to end."""
        until = clock() + 200_000_000
        self.collect()
        while self._pending and clock() < until:
            time.sleep(0.001)
            self.collect()

    def facts(self):
        """Return what the times rest on."""
        return {"empty_ns": self.empty, "held": self.held, "dirty": self.dirty}


def enter(what):
    """Say that this thread is *what*: tuning or capturing."""
    global _unusual
    setattr(_thread, what, getattr(_thread, what, 0) + 1)
    _unusual += 1


def leave(what):
    """Say that it is that no more."""
    global _unusual
    if getattr(_thread, what, 0):
        setattr(_thread, what, getattr(_thread, what) - 1)
        _unusual -= 1


def marked(what):
    """Return what makes of a function one in which the thread is *what*."""

    def made(function):
        def marking(*args, **kwargs):
            enter(what)
            try:
                return function(*args, **kwargs)
            finally:
                leave(what)

        return marking

    return made


def restoring(reference, wrapped):
    """Return what takes *wrapped* out of the globals of a launcher function that still is there."""

    def undo():
        launcher = reference()
        if launcher is not None and launcher.__globals__.get("runner") is wrapped:
            launcher.__globals__["runner"] = wrapped.__wrapped__

    return undo


def driver():
    """Return Triton's driver."""
    return sys.modules["triton"].runtime.driver.active


def device_facts():
    """Return which device is current, and what it is."""
    facts = {}
    with contextlib.suppress(Exception):
        facts["device"] = device = driver().get_current_device()
        found = driver().utils.get_device_properties(device)
        facts["multiprocessors"] = found.get("multiprocessor_count")
    with contextlib.suppress(Exception):
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            facts["gpu"] = torch.cuda.get_device_name(facts["device"])
    return facts


def of_triton(reference):
    """Return what is told of a CompiledKernel."""
    kernel = reference()
    described = {"name": kernel.name, "hash": kernel.hash, "by": "triton"}
    with contextlib.suppress(Exception):
        described["files"] = [str(path) for path in kernel.metadata_group.values()]
    with contextlib.suppress(Exception):
        described["metadata"] = plain(kernel.metadata._asdict())
    with contextlib.suppress(Exception):
        function = kernel.src.fn
        declared = {i for i, one in enumerate(function.params) if one.is_constexpr}
        described["constexprs"] = {
            function.arg_names[path[0]]: shown(value)
            for path, value in kernel.src.constants.items()
            if len(path) == 1 and path[0] in declared
        }
    with contextlib.suppress(Exception):
        described["n_regs"], described["n_spills"] = kernel.n_regs, kernel.n_spills
    return described


def of_inductor(result):
    """Return what is told of a kernel that inductor launches by itself."""
    kernel = getattr(result, "kernel", None)
    config = result.config
    described = {
        "name": getattr(kernel, "name", None) or getattr(result, "__name__", "?"),
        "hash": getattr(kernel, "hash", None) or getattr(result, "cache_hash", "?"),
        "by": "inductor",
        "constexprs": {name: shown(value) for name, value in config.kwargs.items()},
        "metadata": {
            name: getattr(config, name)
            for name in ("num_warps", "num_stages", "num_ctas")
            if isinstance(getattr(config, name, None), int)
        },
    }
    for name in ("shared", "n_regs", "n_spills"):
        value = getattr(kernel, name, getattr(result, name, None))
        if value is not None:
            described["metadata" if name == "shared" else name] = (
                {**described["metadata"], "shared": value} if name == "shared" else value
            )
    with contextlib.suppress(Exception):
        heuristics = sys.modules["torch._inductor.runtime.triton_heuristics"]
        key = heuristics.triton_hash_to_path_key(kernel.hash)
        device = result.compile_meta.get("device") or 0
        place = os.path.join(heuristics.triton_cache_dir(device), key)
        described["files"] = [os.path.join(place, one) for one in sorted(os.listdir(place))]
    return described


def plain(metadata):
    """Return metadata of Triton as JSON takes it."""
    target = metadata.get("target")
    if hasattr(target, "backend"):
        metadata["target"] = {
            "backend": target.backend,
            "arch": target.arch,
            "warp_size": target.warp_size,
        }
    return metadata


def shown(value):
    """Return the text of a constexpr."""
    value = getattr(value, "value", value)
    return getattr(value, "__name__", None) or str(value)


def keep(paths, folder, described):
    """Link the files of a kernel into *folder*, as the cache may be gone at the end."""
    name = "".join(one for one in str(described["hash"]) if one.isalnum())[:64]
    place = os.path.join(folder, name)
    if os.path.isdir(place):
        return name
    part = f"{place}.{os.getpid()}.part"
    os.makedirs(part, exist_ok=True)
    wanted = (".json", ".cubin", ".ptx", ".ttgir", ".hsaco", ".amdgcn")
    for path in paths:
        base = os.path.basename(path)
        if base.endswith(wanted) and not base.startswith("__grp__"):
            target = os.path.join(part, base)
            try:
                os.link(path, target)
            except OSError:
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    content = file.read()
                    with open(target, "wb") as copy:
                        copy.write(content)
    try:
        os.rename(part, place)
    except OSError:  # another process was first
        for base in os.listdir(part):
            os.unlink(os.path.join(part, base))
        os.rmdir(part)
    return name


def counts(kernel):
    """Return the cells of a kernel as plain values."""
    cells = [*kernel.cells.values(), *([] if kernel.others is None else [kernel.others])]
    names = ("grid", "count", "tuning", "captured", "samples", "ns")
    return [{name: getattr(cell, name) for name in names} for cell in cells]


def process_facts():
    """Return what this process is."""
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


def hot_ns(rounds=2000):
    """Return what noting an everyday launch takes here, ns: calls with it less calls without."""

    def run(_x, _y, _z, *_rest):
        return None

    session = Session.__new__(Session)
    kernel = Kernel(0, {})
    kernel.cell((1, 1, 1)).due = sys.maxsize
    launch = session._launcher(kernel, run)
    rest = (0,) * 12

    def timed(function):
        start = clock()
        for _ in range(rounds):
            function(1, 1, 1, *rest)
        return clock() - start

    return max(0, min(timed(launch) for _ in range(5)) - min(timed(run) for _ in range(5))) / rounds
