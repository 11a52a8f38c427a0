"""Compares `occupancy-lab trace` with torch.profiler on the GPU at hand, and measures its cost.

`python reports/record_trace.py --output FOLDER` runs each of PROGRAMS under `occupancy-lab trace`
and again under torch.profiler. It writes trace-<gpu>.csv with the launches and the mean time of
each kernel by both. It then times training steps alternately with and without
`occupancy_lab.trace()`, and whole programs with and without the command, and writes
trace-overhead-<gpu>.csv. If there are two GPUs, a torchrun program is compared with the profiler of
each of its processes, in trace-ranks-<gpu>.csv. `--only torchrun` runs only that program.

Only one program at a time uses the GPU.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from record_files import ROOT, run_logged, table_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

STEPS = 300
SETTLED = 6
"""Steps before a block is timed: a trace times the first launches of each kernel in them."""
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


PROGRAMS = {
    "transformer": Program(lambda: transformer(liger=True)),
    "autotuned": Program(tuned),
    "liger": Program(liger_kernels),
    "compiled": Program(lambda: transformer(liger=False)),
    "graph": Program(graph, unprofiled=0),
    "two processes": Program(small, processes=2),
    "torchrun": Program(distributed, ranks=2),
}
COSTED = ("transformer", "compiled")
"""Programs that also run without a trace, to compare the seconds of their steps."""
ENVIRONMENT = {"OMP_NUM_THREADS": "2", "NCCL_NVLS_ENABLE": "0"}  # two GPUs need no multicast


# In a process of its own


def child(name: str, mode: str, facts: Path) -> None:
    """Run the program *name* in a mode, and write what is found into *facts*."""
    program = PROGRAMS[name]
    if mode == "costs":
        found = step_costs(name)
    elif program.processes > 1:
        found = forked(program, mode, facts)
    elif program.ranks > 1:
        import torch

        rank = os.environ["LOCAL_RANK"]
        torch.cuda.set_device(int(rank))
        found, facts = run(program, mode), facts.with_suffix(f".{rank}")
        torch.distributed.destroy_process_group()
    else:
        found = run(program, mode)
    facts.write_text(json.dumps(found), "utf-8")


def forked(program: Program, mode: str, facts: Path) -> dict[str, Any]:
    """Run *program* in forks of this process, one after the other; return their added results."""
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
    return {**found[0], "kernels": kernels}


def run(program: Program, mode: str) -> dict[str, Any]:
    """Run *program*; return how long its steps take and what the profiler recorded."""
    import torch

    step = program.made()
    for _ in range(program.unprofiled):
        step()
    torch.cuda.synchronize()
    kernels: dict[str, list[float]] = {}
    with profiled(kernels) if mode == "profile" else contextlib.nullcontext():
        start = time.perf_counter()
        for number in range(STEPS):
            step()
            if number == SETTLED:
                torch.cuda.synchronize()
                start = time.perf_counter()
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - start) / (STEPS - SETTLED - 1)
    return {
        "gpu": torch.cuda.get_device_name(),
        "steps": STEPS,
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


def step_costs(name: str) -> dict[str, Any]:
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


# In turns


@dataclass
class Run:
    """A run of a program in a process of its own."""

    program: str
    mode: str
    """trace, profile, plain or costs."""
    facts: dict[str, Any] = field(default_factory=dict)
    trace: dict[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """The number of its torchrun processes."""
        return PROGRAMS[self.program].ranks

    def run(self, until: float) -> None:
        """Run the program until *until*, print why it failed, and read its results."""
        with tempfile.TemporaryDirectory(prefix="record-trace-") as work:
            began, facts, log = time.time(), Path(work, "facts"), Path(work, "facts.log")
            why = run_logged(self.words(facts), log, until, **ENVIRONMENT)
            print(f"{self.program}, {self.mode}: {time.time() - began:.1f} s {why}", flush=True)
            if why and log.exists():  # there is none if no time was left
                print(log.read_text("utf-8", errors="replace")[-2000:])
            self.trace = _read(facts.with_suffix(".json"))
            self.facts = _read(facts)
            if self.ranks > 1:
                found = [_read(facts.with_suffix(f".{rank}")) for rank in range(self.ranks)]
                self.facts = {**found[0], "ranks": found} if all(found) else {}

    def words(self, facts: Path) -> list[str]:
        """Return the command of a run that writes *facts*, and its trace beside them."""
        own = [sys.executable]
        if self.ranks > 1:
            own += ["-m", "torch.distributed.run", f"--nproc-per-node={self.ranks}"]
            own += ["--standalone", "--local-addr=127.0.0.1"]
        own += [__file__, "--program", self.program, "--mode", self.mode, "--facts", str(facts)]
        if self.mode != "trace":
            return own
        tool = [sys.executable, "-m", "occupancy_lab", "trace", "--json"]
        return [*tool, "--output", str(facts.with_suffix(".json")), "--", *own]


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def planned(names: Iterable[str]) -> Iterator[Run]:
    """Yield the runs of the programs *names*."""
    for name in names:
        modes = ["trace", "profile"]
        if name in COSTED:
            modes = ["plain", *modes, "costs"]
        if name == COSTED[0]:
            modes += ["plain", "trace"] * (PAIRS - 1)
        yield from (Run(name, mode) for mode in modes)


# Results


def rows_of(name: str, trace: dict[str, Any], profile: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each kernel of a program, with the trace's and the profiler's numbers."""
    steps, before = profile.get("steps", 0), PROGRAMS[name].unprofiled
    kernels = collections.defaultdict(list)
    for one in trace.get("kernels", ()):
        kernels[one["kernel"]].append(one)
    replays = sum(one["replays"] for one in trace.get("processes", ()))
    rows = []
    for kernel, ones in kernels.items():
        launches, captured = (
            sum(one[key] for one in ones) for key in ("launches", "captured_launches")
        )
        times = profile.get("kernels", {}).get(kernel, [])
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
                "counts_equal": bool(profile) and expected == len(times),
                "timed": sum(one["timed_launches"] for one in ones),
                "us": us,
                "profiled_us": mean,
                "off": us / mean - 1 if us is not None and mean else None,
                "profiled_first_us": statistics.fmean(times[:FIRST]) if times else None,
            }
        )
    return rows


def rank_rows(name: str, trace: dict[str, Any], profile: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each kernel and process of a torchrun program."""
    rows = []
    ranks = dict(enumerate(profile.get("ranks", ())))
    processes = [one for one in trace.get("processes", ()) if one["rank"] is not None]
    for process in sorted(processes, key=lambda one: int(one["rank"])):
        parts = [
            (kernel, part)
            for kernel in trace["kernels"]
            for part in kernel["parts"]
            if part["pid"] == process["pid"]
        ]
        own = {"kernels": [of_part(*both) for both in parts], "processes": [process]}
        devices = "+".join(sorted({str(part["device"]) for _, part in parts}))
        head = {"rank": process["rank"], "device": devices}
        profiled = ranks.get(int(process["rank"]), {})
        rows += [{**head, **row} for row in rows_of(name, own, profiled)]
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


def cost_rows(runs: Iterable[Run]) -> Iterator[dict[str, Any]]:
    """Yield the seconds per step of each block and of each whole program, a row each."""
    for one in runs:
        if one.mode == "costs":
            for row in one.facts.get("rows", ()):
                yield {"program": one.program, "how": "blocks", **row}
        elif one.program in COSTED and one.mode in {"plain", "trace"} and one.facts:
            seconds = one.facts["seconds_per_step"]
            columns = {"traced": one.mode == "trace", "seconds_per_step": seconds}
            yield {"program": one.program, "how": "program", **columns}


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
        for process in one.trace.get("processes", ()):
            for error in process["errors"]:
                print(f"! noting {one.program}: {error}")


def main() -> None:
    """Record the programs, write the files and print what agrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="folder of the files")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of all")
    parser.add_argument("--only", action="append", choices=PROGRAMS, help="a program to run")
    for name in ("program", "mode"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--facts", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.program is not None:
        child(asked.program, asked.mode, asked.facts)
        return
    if asked.output is None:
        parser.error("give --output")
    until = time.time() + asked.seconds
    asked.output.mkdir(parents=True, exist_ok=True)
    runs = [*planned(asked.only or PROGRAMS)]
    for one in runs:
        one.run(until)
    names = {one.facts["gpu"].split()[-1].lower() for one in runs if "gpu" in one.facts}
    gpu = next(iter(names), "unknown")
    by = {(one.program, one.mode): one for one in reversed(runs)}
    rows, ranked, costs = [], [], [*cost_rows(runs)]
    for name in asked.only or PROGRAMS:
        both = by[name, "trace"].trace, by[name, "profile"].facts
        if PROGRAMS[name].ranks > 1:
            ranked += rank_rows(name, *both)
        else:
            rows += rows_of(name, *both)
    for name, columns, found in (
        ("trace", COLUMNS, rows),
        ("trace-ranks", RANK_COLUMNS, ranked),
        ("trace-overhead", COSTS, costs),
    ):
        if found:
            (asked.output / f"{name}-{gpu}.csv").write_bytes(table_bytes(columns, found))
    summarize(rows, ranked, costs, runs)


if __name__ == "__main__":
    main()
