"""Compares `occupancy-lab trace` with torch.profiler on the GPU at hand, and measures its cost.

`python reports/record_trace.py --output FOLDER` runs each of PROGRAMS under `occupancy-lab trace`
and again under torch.profiler. It writes trace-<gpu>.csv with the launches and the mean time of
each kernel by both. It then times training steps alternately with and without
`occupancy_lab.trace()`, and whole programs with and without the command, and writes
trace-overhead-<gpu>.csv. If there are two GPUs, a torchrun program is compared with the profiler of
each of its processes, in trace-ranks-<gpu>.csv. `--only torchrun` runs only that program.

All programs first run at the same time to fill the compilers' caches. After that every run waits
for its turn, so that only one at a time uses the GPU.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from record_files import table_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
SCRIPT = __file__
STEPS = 300
SETTLED = 6
"""Steps before a block is timed: a trace times the first launches of each kernel in them."""
COMPILING = 60.0
"""Seconds in which all programs fill the compilers' caches at the same time."""
BLOCKS = 10
BLOCK_SECONDS = 1.5
PAIRS = 3
"""How many whole programs run with and without a trace."""
FIRST = 5
"""Launches at the beginning of a program, before the GPU has warmed up."""
NO = False
"""An argument that Liger takes by position."""
CLOSE = 0.05
LONG_US = 10.0
"""Kernels that take longer than LONG_US should be within CLOSE of the profiler's time."""
COLUMNS = (
    *("program", "kernel", "configurations", "launched_by", "launches", "tuning", "captured"),
    *("replays", "expected", "profiled", "counts_equal", "timed", "us", "profiled_us"),
    *("off", "profiled_first_us"),
)
RANK_COLUMNS = ("rank", "device", *COLUMNS)
COSTS = ("program", "how", "run", "traced", "seconds_per_step", "launches_per_step", "noted_us")


def transformer(*, liger: bool) -> Callable[[], Any]:  # noqa: C901 - the whole of a training
    """Return a training step of a small transformer, with Liger's layers or only torch's."""
    import torch
    from torch import nn
    from torch.nn import functional

    width, heads, layers, length, batch, words = 1024, 16, 4, 1024, 8, 8192

    def normed(x: Any, weight: Any) -> Any:
        if liger:
            from liger_kernel import ops

            return ops.LigerRMSNormFunction.apply(x, weight, 1e-6, 0.0, "llama", NO)
        return functional.rms_norm(x, (width,), weight, 1e-6)

    def gated(a: Any, b: Any) -> Any:
        if liger:
            from liger_kernel import ops

            return ops.LigerSiLUMulFunction.apply(a, b)
        return functional.silu(a) * b

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ParameterList([nn.Parameter(torch.ones(width)) for _ in range(2)])
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.up = nn.Linear(width, 8 * width, bias=False)
            self.down = nn.Linear(4 * width, width, bias=False)

        def forward(self, x: Any) -> Any:
            q, k, v = (
                one.view(batch, length, heads, -1).transpose(1, 2)
                for one in self.qkv(normed(x, self.norms[0])).chunk(3, -1)
            )
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            a, b = self.up(normed(x, self.norms[1])).chunk(2, -1)
            return x + self.down(gated(a.contiguous(), b.contiguous()))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(words, width)
            self.layers = nn.ModuleList([Layer() for _ in range(layers)])
            self.norm = nn.Parameter(torch.ones(width))
            self.head = nn.Linear(width, words, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.words(tokens)
            for layer in self.layers:
                x = layer(x)
            return self.head(normed(x, self.norm)).view(-1, words)

    torch.manual_seed(0)
    model: Any = Model().to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, words, (batch, length), device="cuda")

    def loss_of(logits: Any) -> Any:
        if liger:
            return liger_loss(logits, tokens.view(-1))
        return functional.cross_entropy(logits.float(), tokens.view(-1))

    whole = (
        (lambda: loss_of(model(tokens))) if liger else torch.compile(lambda: loss_of(model(tokens)))
    )

    def step() -> None:
        whole().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def liger_loss(logits: Any, y: Any) -> Any:
    """Return Liger's cross entropy, which may be returned together with other values."""
    from liger_kernel import ops

    found = ops.LigerCrossEntropyFunction.apply(logits, y, None)
    return found[0] if isinstance(found, tuple) else found


def liger_kernels() -> Callable[[], Any]:
    """Return a step that launches Liger's kernels, forward and backward."""
    import torch
    from liger_kernel import ops

    def tensor(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    x, w, b = tensor(4096, 4096), tensor(4096), tensor(4096)
    logits, y = tensor(2048, 32000), torch.randint(0, 32000, (2048,), device="cuda")

    def step() -> None:
        out = ops.LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", NO)
        out = ops.LigerLayerNormFunction.apply(out, w, b, 1e-5)
        ops.LigerSiLUMulFunction.apply(out, x).sum().backward()
        liger_loss(logits * 1, y).backward()
        x.grad = w.grad = b.grad = logits.grad = None

    return step


def tuned() -> Callable[[], Any]:
    """Return a step that multiplies matrices of two sizes with an autotuned kernel."""
    import torch

    sys.path.insert(0, str(ROOT / "examples"))
    from matmul import multiply

    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for n in (2048, 1024))

    def step() -> None:
        multiply(a, a)
        multiply(b, b)

    return step


def graph() -> Callable[[], Any]:
    """Return a step that replays a CUDA graph of two launches of each of two kernels."""
    import torch

    x, w = _matrix(), torch.ones(4096, device="cuda", dtype=torch.bfloat16)
    from liger_kernel import ops

    def launches() -> None:
        for _ in range(2):
            ops.LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", NO)
            ops.LigerSiLUMulFunction.apply(x, x)

    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        launches()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(captured):
        launches()
    return captured.replay


def small() -> Callable[[], Any]:
    """Return a step with a single launch of a Liger kernel."""
    from liger_kernel import ops

    x = _matrix()
    return lambda: ops.LigerSiLUMulFunction.apply(x, x)


def _matrix() -> Any:
    import torch

    return torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)


def distributed() -> Callable[[], Any]:
    """Return a step of examples/step.py whose product is summed over torchrun's processes."""
    import torch
    from torch import distributed as processes

    sys.path.insert(0, str(ROOT / "examples"))
    from step import step

    gpu = torch.cuda.is_available()
    processes.init_process_group("nccl" if gpu else "gloo")
    half: Any = {"device": "cuda" if gpu else "cpu", "dtype": torch.float16}
    x, matrix = torch.randn((4096, 2048), **half), torch.randn((2048, 2048), **half)
    weight, bias = torch.ones(2048, **half), torch.zeros(2048, **half)
    return lambda: processes.all_reduce(step(x, weight, bias, matrix))


@dataclass(frozen=True)
class Program:
    """A step that is repeated."""

    made: Callable[[], Callable[[], Any]]
    unprofiled: int = 1
    """Steps before the profiler starts: those that compile and tune."""
    processes: int = 1
    ranks: int = 1
    """Processes of torchrun, each with its own GPU."""
    steps: int = STEPS
    plain: bool = False
    """Whether the program also runs without a trace, to compare the seconds of its steps."""


PROGRAMS = {
    "transformer": Program(lambda: transformer(liger=True), plain=True),
    "autotuned": Program(tuned),
    "liger": Program(liger_kernels),
    "compiled": Program(lambda: transformer(liger=False), plain=True),
    "graph": Program(graph, unprofiled=0),
    "two processes": Program(small, processes=2),
    "torchrun": Program(distributed, ranks=2),
}
COSTED = ("transformer", "compiled")


# In a process of its own


def child(name: str, mode: str, go: Path, facts: Path) -> None:
    """Run the program *name* when its turn comes, that is when the file *go* exists."""
    import torch

    program = PROGRAMS.get(name)
    if program is not None and program.ranks > 1:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    elif program is None or program.processes == 1:
        torch.cuda.init()
    while not go.exists():
        time.sleep(0.01)
    if mode == "costs":
        facts.write_text(json.dumps(costs(name)), "utf-8")
    elif mode == "events":
        facts.write_text(json.dumps(events()), "utf-8")
    elif program is not None and program.processes > 1:
        forked(program, mode, facts)
    elif program is not None and program.ranks > 1:
        path = facts.with_suffix(f".{os.environ['RANK']}")
        path.write_text(json.dumps(run(program, mode)), "utf-8")
        torch.distributed.destroy_process_group()
    elif program is not None:
        facts.write_text(json.dumps(run(program, mode)), "utf-8")


def forked(program: Program, mode: str, facts: Path) -> None:
    """Run *program* in forks of this process, one after the other, and add up their results."""
    import multiprocessing

    found = []
    for number in range(program.processes):
        path = facts.with_suffix(f".{number}")
        one = multiprocessing.get_context("fork").Process(
            target=lambda path=path: path.write_text(json.dumps(run(program, mode)), "utf-8")
        )
        one.start()
        one.join()
        found.append(json.loads(path.read_text("utf-8")))
    kernels: dict[str, Any] = collections.defaultdict(list)
    for one in found:
        for kernel, times in one["kernels"].items():
            kernels[kernel] += times
    facts.write_text(json.dumps({**found[0], "kernels": kernels}), "utf-8")


def run(program: Program, mode: str) -> dict[str, Any]:
    """Run *program*; return how long its steps take and what the profiler recorded."""
    import torch

    step = program.made()
    for _ in range(program.unprofiled):
        step()
    torch.cuda.synchronize()
    kernels: dict[str, list[float]] = {}
    steps = 1 if mode == "warm" else program.steps
    with profiled(kernels) if mode == "profile" else contextlib.nullcontext():
        start = time.perf_counter()
        for number in range(steps):
            step()
            if number == SETTLED:
                torch.cuda.synchronize()
                start = time.perf_counter()
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - start) / max(steps - SETTLED - 1, 1)
    return {
        "gpu": torch.cuda.get_device_name(),
        "steps": steps,
        "seconds_per_step": seconds,
        "kernels": kernels,
    }


@contextlib.contextmanager
def profiled(kernels: dict[str, list[float]]) -> Iterator[None]:
    """Add the times in us of each kernel that runs in the block to *kernels*."""
    import torch
    from torch.autograd import DeviceType

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        yield
    for one in profile.profiler.kineto_results.events():
        if one.device_type() == DeviceType.CUDA:
            took = one.duration_ns() / 1000
            kernels.setdefault(one.name(), []).append(took)


def costs(name: str) -> dict[str, Any]:
    """Return the seconds per step of the program *name*, in blocks with and without a trace."""
    import torch

    import occupancy_lab

    step = PROGRAMS[name].made()

    def timed(steps: int) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps

    timed(5)
    steps = max(10, int(BLOCK_SECONDS / timed(10)))
    rows = []
    for number in range(BLOCKS):
        for traced in (number % 2 == 0, number % 2 == 1):
            trace = occupancy_lab.trace()
            with trace if traced else contextlib.nullcontext():
                timed(SETTLED)
                seconds = timed(steps)
            row = {"run": number, "traced": traced, "seconds_per_step": seconds}
            if traced:
                launches = sum(one.launches for one in trace.kernels)
                process = trace.found.processes[0] if trace.found.processes else None
                row["launches_per_step"] = launches / (steps + SETTLED)
                if process is not None and process.launches:
                    row["noted_us"] = process.overhead_ns / process.launches / 1000
            rows.append(row)
    return {"rows": rows}


def events() -> dict[str, float]:
    """Return the median times in us of pairs of events and of the kernels between them."""
    import torch

    def pair(between: Callable[[], Any]) -> float:
        first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(100_000)
        first.record()
        between()
        second.record()
        torch.cuda.synchronize()
        return 1000 * first.elapsed_time(second)

    found = {"nothing": statistics.median(pair(lambda: None) for _ in range(50))}
    for cycles in (0, 20_000):
        name = f"a kernel of {cycles} cycles"
        sleep = functools.partial(torch.cuda._sleep, cycles)
        found[name] = statistics.median(pair(sleep) for _ in range(50))
        kernels: dict[str, list[float]] = {}
        with profiled(kernels):
            for _ in range(20):
                sleep()
            torch.cuda.synchronize()
        found[f"{name}, profiled"] = statistics.median(itertools.chain(*kernels.values()))
    return found


# In turns


@dataclass
class Run:
    """A process that waits for its turn."""

    program: str
    mode: str
    work: Path
    process: Any = None
    facts: dict[str, Any] = field(default_factory=dict)
    trace: dict[str, Any] = field(default_factory=dict)
    why: str = "not tried: no time was left"
    number: int = 0
    """The number of this run among those with the same program and mode."""

    @property
    def path(self) -> Path:
        """The common beginning of the names of its files."""
        return self.work / f"{self.program.replace(' ', '-')}-{self.mode}-{self.number}"

    @property
    def ranks(self) -> int:
        """The number of its torchrun processes."""
        return PROGRAMS[self.program].ranks if self.program in PROGRAMS else 1

    def start(self) -> None:
        """Start the process; it does nothing before its turn."""
        own = [sys.executable]
        if self.ranks > 1:
            own += ["-m", "torch.distributed.run", f"--nproc-per-node={self.ranks}"]
            own += ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
        own += [SCRIPT, "--program", self.program, "--mode", self.mode]
        own += ["--go", f"{self.path}.go", "--facts", f"{self.path}.facts"]
        if self.mode == "trace":
            tool = [sys.executable, "-m", "occupancy_lab", "trace", "--json"]
            own = [*tool, "--output", f"{self.path}.json", "--", *own]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "2"}
        if self.ranks > 1:  # a sum over two GPUs needs no multicast
            environment["NCCL_NVLS_ENABLE"] = "0"
        with open(f"{self.path}.log", "wb") as log:  # noqa: PTH123 - the name is a text
            self.process = subprocess.Popen(  # noqa: S603 - this file
                own, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    def turn(self, until: float) -> None:
        """Let the process run and read its results."""
        if time.monotonic() > until:
            return
        if self.ranks > 1 and gpus() < self.ranks:
            self.why = f"not tried: it takes {self.ranks} GPUs, and torch sees {gpus()}"
            return
        if self.process is None:
            self.start()
        Path(f"{self.path}.go").touch()
        self.wait(until)

    def wait(self, until: float) -> None:
        """Wait for the end of the process and read its results."""
        try:
            status = self.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.why = "stopped: the time was over"
            return
        log = Path(f"{self.path}.log").read_text("utf-8", errors="replace")
        self.why = "" if status == 0 else f"status {status}: {log.strip().splitlines()[-1:]}"
        for name, suffix in (("facts", "facts"), ("trace", "json")):
            path = Path(f"{self.path}.{suffix}")
            if path.exists():
                setattr(self, name, json.loads(path.read_text("utf-8")))
        if self.ranks > 1:
            paths = [Path(f"{self.path}.{rank}") for rank in range(self.ranks)]
            found = [json.loads(path.read_text("utf-8")) for path in paths if path.exists()]
            self.facts = {**found[0], "ranks": found} if len(found) == self.ranks else {}

    def end(self) -> None:
        """End the process if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(3)
            if self.process.poll() is None:
                self.process.kill()


@functools.cache
def gpus() -> int:
    """Return the number of GPUs that torch sees."""
    asked = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    try:
        return int(subprocess.run(asked, capture_output=True, check=True, timeout=60).stdout)  # noqa: S603
    except (subprocess.SubprocessError, ValueError):
        return 0


def free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def record(work: Path, until: float, only: list[str] | None = None) -> list[Run]:
    """Return all runs, or those of the programs *only*, as far as the time allows."""
    names = only or list(PROGRAMS)
    warm = [Run(name, "warm", work) for name in names if PROGRAMS[name].ranks == 1]
    runs = [Run("events", "events", work)]
    for name in names:
        program = PROGRAMS[name]
        modes = ("plain", "trace", "profile") if program.plain else ("trace", "profile")
        runs += [Run(name, mode, work) for mode in modes]
        if name == COSTED[0]:
            runs.append(Run(name, "costs", work))
            runs += [
                Run(name, mode, work, number=number)
                for number in range(1, PAIRS)
                for mode in ("plain", "trace")
            ]
    runs += [Run(name, "costs", work) for name in COSTED[1:] if name in names]
    try:
        for one in warm:
            one.start()
            Path(f"{one.path}.go").touch()
        compiled = min(until, time.monotonic() + COMPILING)
        for one in warm:
            one.wait(compiled)
            one.end()
            print(f"{one.program}: compiled {one.why or 'in time'}", flush=True)
        # Each imports torch while it waits; only a few wait at once, since each takes memory.
        for number, one in enumerate(runs):
            for ahead in runs[number : number + 5]:
                if ahead.process is None and ahead.ranks == 1:
                    ahead.start()
            began = time.monotonic()
            one.turn(until)
            took = time.monotonic() - began
            print(f"{one.program}, {one.mode}: {took:.1f} s {one.why}", flush=True)
    finally:
        for one in [*warm, *runs]:
            one.end()
    return runs


# Results


def rows_of(name: str, traced: Run, profile: Run) -> list[dict[str, Any]]:
    """Return a row for each kernel of a program, with the trace's and the profiler's numbers."""
    steps, before = profile.facts.get("steps", 0), PROGRAMS[name].unprofiled
    kernels = collections.defaultdict(list)
    for one in traced.trace.get("kernels", ()):
        kernels[one["kernel"]].append(one)
    replays = sum(one["replays"] for one in traced.trace.get("processes", ()))
    rows = []
    for kernel, ones in kernels.items():
        launches, captured = (
            sum(one[key] for one in ones) for key in ("launches", "captured_launches")
        )
        times = profile.facts.get("kernels", {}).get(kernel, [])
        timed = [one for one in ones if one["total_us"] is not None]
        weight = sum(one["total_us"] / one["us"] for one in timed if one["us"])
        us = sum(one["total_us"] for one in timed) / weight if weight else None
        expected = captured * steps if captured else launches * steps / max(steps + before, 1)
        mean = statistics.fmean(times) if times else None
        rows.append(
            {
                "program": name,
                "kernel": kernel,
                "configurations": len(ones),
                "launched_by": "+".join(sorted({one["launched_by"] for one in ones})),
                "launches": launches,
                "tuning": sum(one["tuning_launches"] for one in ones),
                "captured": captured,
                "replays": replays if captured else 0,
                "expected": expected,
                "profiled": len(times),
                "counts_equal": bool(profile.facts) and expected == len(times),
                "timed": sum(one["timed_launches"] for one in ones),
                "us": us,
                "profiled_us": mean,
                "off": us / mean - 1 if us is not None and mean else None,
                "profiled_first_us": statistics.fmean(times[:FIRST]) if times else None,
            }
        )
    return rows


def rank_rows(name: str, traced: Run, profile: Run) -> list[dict[str, Any]]:
    """Return a row for each kernel and process of a torchrun program."""
    rows = []
    ranks = dict(enumerate(profile.facts.get("ranks", ())))
    processes = [one for one in traced.trace.get("processes", ()) if one["rank"] is not None]
    for process in sorted(processes, key=lambda one: int(one["rank"])):
        parts = [
            (kernel, part)
            for kernel in traced.trace["kernels"]
            for part in kernel["parts"]
            if part["pid"] == process["pid"]
        ]
        one, other = (Run(name, mode, traced.work) for mode in ("trace", "profile"))
        one.trace = {"kernels": [of_part(*both) for both in parts], "processes": [process]}
        other.facts = ranks.get(int(process["rank"]), {})
        devices = "+".join(sorted({str(part["device"]) for _, part in parts}))
        head = {"rank": process["rank"], "device": devices}
        rows += [{**head, **row} for row in rows_of(name, one, other)]
    return rows


def of_part(kernel: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return *kernel* with the launches and times of only one process."""
    grids = part["grids"]
    timed = [one for one in grids if one["us"] is not None]
    weights = [one["launches"] - one["captured"] for one in timed]
    total = sum(one["us"] * weight for one, weight in zip(timed, weights, strict=True))
    return {
        **{name: kernel[name] for name in ("kernel", "launched_by")},
        "launches": sum(one["launches"] for one in grids),
        "tuning_launches": sum(one["tuning"] for one in grids),
        "captured_launches": sum(one["captured"] for one in grids),
        "timed_launches": sum(one["samples"] for one in grids),
        "total_us": total if timed else None,
        "us": total / sum(weights) if sum(weights) else None,
    }


def cost_rows(runs: list[Run]) -> list[dict[str, Any]]:
    """Return the seconds per step of each block and of each whole program, a row each."""
    rows = []
    for one in runs:
        if one.mode == "costs":
            rows += [
                {"program": one.program, "how": "blocks", **row}
                for row in one.facts.get("rows", ())
            ]
        elif one.program in COSTED and one.mode in {"plain", "trace"} and one.facts:
            seconds = one.facts["seconds_per_step"]
            traced = one.mode == "trace"
            rows.append(
                {
                    "program": one.program,
                    "how": "program",
                    "traced": traced,
                    "seconds_per_step": seconds,
                }
            )
    return rows


def summarize(
    rows: list[dict[str, Any]],
    ranked: list[dict[str, Any]],
    costs: list[dict[str, Any]],
    runs: list[Run],
) -> None:
    """Print what agrees and what the trace costs."""
    for row in (*rows, *ranked):
        off = "-" if row["off"] is None else f"{row['off']:+.1%}"
        counts = f"{row['expected']:g} launches, {row['profiled']} profiled"
        print(f"{row['program']} {row.get('rank', '')} {row['kernel']}: {counts}, time off {off}")
    long = [row for row in rows if row["off"] is not None and row["profiled_us"] > LONG_US]
    close = sum(abs(row["off"]) <= CLOSE for row in long)
    equal = sum(row["counts_equal"] for row in (*rows, *ranked))
    print(f"counts equal: {equal} of {len(rows) + len(ranked)} kernels")
    print(f"times within {CLOSE:.0%}: {close} of {len(long)} kernels above {LONG_US:g} us")
    for name, how in itertools.product(COSTED, ("blocks", "program")):
        found = [row for row in costs if (row["program"], row["how"]) == (name, how)]
        without, with_ = (
            [row["seconds_per_step"] for row in found if row["traced"] == traced]
            for traced in (False, True)
        )
        if without and with_:
            a, b = statistics.fmean(without), statistics.fmean(with_)
            print(f"{name}, {how}: a step {1e3 * a:.3f} ms, with a trace {b / a - 1:+.2%}")
    for one in runs:
        if one.mode == "events":
            print("pairs of events, us:", one.facts)
        if one.why:
            print(f"! {one.program}, {one.mode}: {one.why}")
        for error in (
            error for process in one.trace.get("processes", ()) for error in process["errors"]
        ):
            print(f"! noting {one.program}: {error}")


def main() -> None:
    """Record the programs, write the files and print what agrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="folder of the files")
    parser.add_argument("--seconds", type=float, default=150.0, help="limit of all")
    parser.add_argument("--only", action="append", choices=PROGRAMS, help="a program to run")
    for name in ("program", "mode"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    for name in ("go", "facts"):
        parser.add_argument(f"--{name}", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.program is not None:
        child(asked.program, asked.mode, asked.go, asked.facts)
        return
    if asked.output is None:
        parser.error("give --output")
    began = time.monotonic()
    asked.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="record-trace-") as work:
        runs = record(Path(work), began + asked.seconds - 8, asked.only)
        for one in runs:
            log = Path(f"{one.path}.log")
            if one.why and log.exists():
                (asked.output / f"trace-{log.name}").write_bytes(log.read_bytes()[-20000:])
    names = {one.facts["gpu"].split()[-1].lower() for one in runs if "gpu" in one.facts}
    gpu = next(iter(names), "unknown")
    by = {(one.program, one.mode): one for one in reversed(runs)}
    pairs = [(name, by[name, "trace"], by[name, "profile"]) for name in asked.only or PROGRAMS]
    rows = [row for pair in pairs if pair[1].ranks == 1 for row in rows_of(*pair)]
    ranked = [row for pair in pairs if pair[1].ranks > 1 for row in rank_rows(*pair)]
    for name, columns, found in (
        ("trace", COLUMNS, rows),
        ("trace-ranks", RANK_COLUMNS, ranked),
        ("trace-overhead", COSTS, cost_rows(runs)),
    ):
        if found:
            (asked.output / f"{name}-{gpu}.csv").write_bytes(table_bytes(columns, found))
    summarize(rows, ranked, cost_rows(runs), runs)
    print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
