"""Records full autotunes, and what `early_config_prune` and `perf_model` make of the same.

`python reports/record_autotunes.py --output FOLDER` tunes each kernel of SHARES on the NVIDIA GPU
at hand, first with our two functions and nothing compiled, then every configuration, and compiles
all of them one after the other, as Triton does by itself, where the time allows. It writes
autotunes-<gpu>.csv, a row for each configuration, and autotunes-<gpu>-summary.csv, a row for each
tune, which it prints too. Triton's tutorial 06 is tuned where --tutorials has its file.

Each group runs in a process of its own, so that what crashes takes nothing else with it; rows are
written as they come. --dry runs everything but the launches without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import functools
import importlib.util
import inspect
import itertools
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
TOPS = (1, 3, 5, 8)
FEWEST = 3
"""Values that have a rank correlation."""
LAUNCHED = 8
"""The top_k of the tune that is made with our functions; those of the other TOPS are worked out."""
WARMUP_MS, REP_MS = 10, 40
"""What triton.testing.do_bench takes for a configuration."""
SHARES = {"matmul": 0.33, "attention": 0.37, "layer_norm": 0.15, "softmax": 0.15}
"""The groups in their order, each with its part of the time."""
SERIALLY = 4.0
"""How many times as long as 16 cores, one core is taken to compile, before it is tried."""
STARTING = 10.0
"""Seconds below which nothing more is begun."""
SUMMARY = (
    *("case", "status", "configs", "kept", "cannot_run", "equal", "spilling", "launched"),
    *("share_launched", "ranking", "prune_loss", *(f"loss_top_{k}" for k in TOPS)),
    *("chosen_loss", "rank_correlation", "our_seconds", "our_compile_seconds", "compiles"),
    *("full_bench_seconds", "serial_compile_seconds", "full_seconds", "saved"),
    *("saved_compiling", "saved_launching", "best", "best_ms"),
)
COLUMNS = (
    *("case", "config", "status", "reason", "ranking", "value", "place", "ms", "ms_low"),
    *("ms_high", "slower_than_best"),
)


@dataclass
class Case:
    """One kernel on one problem, and the configurations to try."""

    name: str
    function: Any
    configs: Sequence[Any]
    grid: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    moved: tuple[int, int] | None = None
    """Bytes read and written, where they are known."""
    call: Callable[[Any], None] | None = None
    """Launches a tuner; None: by grid, arguments and keywords."""

    def launch(self, tuner: Any) -> None:
        """Launch *tuner*, which tunes."""
        if self.call is not None:
            self.call(tuner)
        else:
            tuner[self.grid](*self.arguments, **self.keywords)


def grid_of(configs: Mapping[str, Sequence[int]], **fixed: int) -> list[Any]:
    """Return every combination of values of constexprs and of num_warps and num_stages."""
    import triton

    found = []
    for values in itertools.product(*configs.values()):
        named = {**dict(zip(configs, values, strict=True)), **fixed}
        options = {name: named.pop(name) for name in ("num_warps", "num_stages") if name in named}
        found.append(triton.Config(named, **options))
    return found


def load(path: Path) -> Any:
    """Import a file."""
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def softmax_cases(device: str) -> Iterator[Case]:
    """Yield the two softmaxes on three matrices."""
    import torch
    import triton

    from occupancy_lab.kernel import OPTIONS, load_kernel

    warps = (1, 2, 4, 8, 16, 32)
    multiprocessors = (
        132 if device == "cpu" else torch.cuda.get_device_properties(0).multi_processor_count
    )
    for (rows, cols), dtype in (
        ((4096, 1024), torch.float32),
        ((8192, 8192), torch.float32),
        ((8192, 8192), torch.bfloat16),
    ):
        x = torch.randn((rows, cols), device=device, dtype=dtype)
        y = torch.empty_like(x)
        block = triton.next_power_of_2(cols)
        size = x.numel() * x.element_size()
        for name in ("softmax_row", "softmax"):
            loops = name == "softmax"
            function = load_kernel(name).function
            common = {"BLOCK_SIZE": block}
            if "INT64_OFFSETS" in function.arg_names:
                common["INT64_OFFSETS"] = False
            swept = {"num_warps": warps, "num_stages": (1, 2, 3, 4) if loops else (1,)}
            shapes = {"n_rows": rows, "n_cols": cols, "input_ptr": x, "output_ptr": y}
            strides = {n: cols for n in function.arg_names if n.endswith("row_stride")}
            named = {**shapes, **strides}
            arguments = tuple(named[n] for n in function.arg_names if n in named)
            yield Case(
                f"{name} {rows}x{cols} {str(dtype).removeprefix('torch.')}",
                function,
                grid_of(swept),
                (min(rows, 4 * multiprocessors),) if loops else (rows,),
                arguments,
                {**common, **OPTIONS},
                None if loops else (size, size),
            )


def layer_norm_cases(device: str) -> Iterator[Case]:
    """Yield a layer norm in one block, and one in blocks."""
    import torch

    rows, cols = 4096, 8192
    x = torch.randn((rows, cols), device=device, dtype=torch.float16)
    w, b = (torch.randn(cols, device=device, dtype=torch.float16) for _ in range(2))
    mean, rstd = (torch.empty(rows, device=device) for _ in range(2))
    y = torch.empty_like(x)
    in_blocks = load(ROOT / "reports" / "tuned_kernels.py").layer_norm_in_blocks
    yield Case(
        f"layer norm in blocks {rows}x{cols} float16",
        in_blocks,
        grid_of({"BLOCK_SIZE": (512, 1024, 2048, 4096, 8192), "num_warps": (1, 4, 8, 16)}),
        (rows,),
        (x, y, w, b, cols, cols, 1e-5),
    )
    yield Case(
        f"layer norm {rows}x{cols} float16",
        load(ROOT / "examples" / "layer_norm.py").layer_norm,
        grid_of({"num_warps": (1, 2, 4, 8, 16, 32)}),
        (rows,),
        (x, y, w, b, mean, rstd, cols, cols, 1e-5),
        {"BLOCK_SIZE": cols},
        (rows * cols * 2, rows * cols * 2),
    )


def matmul_cases(device: str) -> Iterator[Case]:
    """Yield a matrix product with the configurations of Triton's tutorial 03 for CUDA."""
    import torch
    import triton

    function = load(ROOT / "examples" / "matmul.py").matmul
    blocks = (
        *((128, 256, 64, 3, 8), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4)),
        *((64, 128, 32, 4, 4), (128, 32, 32, 4, 4), (64, 32, 32, 5, 2), (32, 64, 32, 5, 2)),
        *((128, 256, 128, 3, 8), (256, 128, 128, 3, 8), (256, 64, 128, 4, 4), (64, 256, 128, 4, 4)),
        *((128, 128, 128, 4, 4), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (128, 32, 64, 4, 4)),
        *((128, 128, 64, 3, 8), (128, 128, 64, 4, 4), (256, 128, 64, 3, 8), (64, 64, 64, 4, 4)),
    )
    configs = [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=s, num_warps=w
        )
        for m, n, k, s, w in blocks
    ]
    for m, n, k in ((4096, 4096, 4096), (1024, 1024, 1024), (512, 512, 16384)):
        a = torch.randn((m, k), device=device).to(torch.float16)
        b = torch.randn((k, n), device=device).to(torch.float16)
        c = torch.empty((m, n), device=device, dtype=torch.float16)

        def grid(meta: Mapping[str, int], m: int = m, n: int = n) -> tuple[int]:
            return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

        yield Case(
            f"matmul {m}x{n}x{k} float16", function, configs, grid, (a, b, c, m, n, k, k, n, n)
        )


def attention_cases(device: str, tutorials: Path) -> Iterator[Case]:
    """Yield an attention of our own and, where its file is there, tutorial 06's."""
    import torch
    import triton

    batch, heads, context, dim = 4, 16, 2048, 64
    q, k, v = (
        torch.randn((batch, heads, context, dim), device=device).to(torch.float16) for _ in range(3)
    )
    out = torch.empty_like(q)

    def grid(meta: Mapping[str, int]) -> tuple[int, int]:
        return (triton.cdiv(context, meta["BLOCK_M"]), batch * heads)

    swept = {
        "BLOCK_M": (64, 128),
        "BLOCK_N": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3),
    }
    yield Case(
        f"attention {batch}x{heads}x{context}x{dim} float16",
        load(ROOT / "reports" / "tuned_kernels.py").attention,
        grid_of(swept),
        grid,
        (q, k, v, out, dim**-0.5, context),
        {"HEAD_DIM": dim},
    )
    found = next(iter(tutorials.glob("06-*.py")), None)
    if found is None or device == "cpu":
        return
    try:
        module = load(found.resolve())
    except Exception:  # noqa: BLE001 - it may be another version's, or need what is not here
        traceback.print_exc()
        return
    tuned = module._attn_fwd  # noqa: SLF001 - what the tutorial tunes
    for causal in (False, True):
        stage = 3 if causal else 1
        names = {"N_CTX": context, "STAGE": stage, "HEAD_DIM": dim}
        configs = module.prune_invalid_configs(tuned.configs, {}, **names)

        def call(tuner: Any, causal: bool = causal) -> None:  # noqa: FBT001 - bound in a loop
            module._attn_fwd = tuner  # noqa: SLF001
            # What follows, bwd_tma in some versions and warp_specialize in all, is left out.
            taken = inspect.signature(module._attention.forward).parameters  # noqa: SLF001
            module.attention(q, k, v, causal, dim**-0.5, *[False] * (len(taken) - 6))

        kind = "causal" if causal else "full"
        yield Case(
            f"tutorial 06 {kind} {batch}x{heads}x{context}x{dim} float16",
            *(tuned.fn, configs, None, ()),
            call=call,
        )


def cases_of(group: str, device: str, tutorials: Path) -> Iterator[Case]:
    """Yield the cases of a group."""
    if group == "attention":
        return attention_cases(device, tutorials)
    makers = {
        "matmul": matmul_cases,
        "layer_norm": layer_norm_cases,
        "softmax": softmax_cases,
    }
    return makers[group](device)


class Noted(logging.Handler):
    """Keeps what is logged of dropped configurations."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.dropped: dict[str, str] = {}
        self.sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.sentences.append(record.getMessage())
        if ": dropped " in str(record.msg) and isinstance(record.args, tuple):
            _, setting, why = record.args
            self.dropped[str(setting)] = str(why)


def words(config: Any) -> str:
    """Return what a configuration sets."""
    named = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return ", ".join(f"{name} {value}" for name, value in named.items())


def do_bench(*, dry: bool) -> Callable[..., Any]:
    """Return what times a launch: Triton's, or for a dry run a number."""
    if dry:
        return lambda call, **_: [_stand_in_ms(call), 0.0, 1.0]
    import triton

    return functools.partial(triton.testing.do_bench, warmup=WARMUP_MS, rep=REP_MS)


def _stand_in_ms(call: Callable[[], None]) -> float:
    config = dict(zip(call.__code__.co_freevars, call.__closure__ or (), strict=True))["config"]
    call()
    return 1.0 + zlib.crc32(words(config.cell_contents).encode()) / 2**32


class Tune:
    """One case: the tunes, and what they give."""

    def __init__(self, case: Case, *, dry: bool) -> None:
        self.case = case
        self.dry = dry
        self.ranking: dict[Any, float] = {}
        self.kept: list[Any] = []
        self.prune_seconds = math.nan

    def tuner(self, **prune: Any) -> Any:
        """Return a new Autotuner of the case."""
        import triton

        tuned = triton.autotune(
            list(self.case.configs),
            key=[],
            prune_configs_by=prune or None,
            do_bench=do_bench(dry=self.dry),
        )
        return tuned(self.case.function)

    def _prune(self, configs: list[Any], named_args: Any, **keywords: Any) -> list[Any]:
        import occupancy_lab

        began = time.perf_counter()
        self.kept = occupancy_lab.early_config_prune(configs, named_args, **keywords)
        self.prune_seconds = time.perf_counter() - began
        return self.kept

    def _noting(
        self, model: Callable[..., float], values: dict[Any, float]
    ) -> Callable[..., float]:
        """Return *model*, which keeps what it says of each configuration."""

        def perf_model(**arguments: Any) -> float:
            value = model(**arguments)
            asked = next(
                one
                for one in self.case.configs
                if all(arguments.get(name) == found for name, found in one.all_kwargs().items())
            )
            values[asked] = value
            return value

        return perf_model

    def ours(self) -> tuple[Any, float, int]:
        """Tune with our functions and nothing compiled: the tuner, seconds and compiles."""
        import occupancy_lab

        model = functools.partial(occupancy_lab.perf_model, *(self.case.moved or ()))
        tuner = self.tuner(
            early_config_prune=self._prune,
            perf_model=self._noting(model, self.ranking),
            top_k=LAUNCHED,
        )
        with fresh_caches(self.case.function), counted_compiles() as compiles:
            began = time.perf_counter()
            self.case.launch(tuner)
            seconds = time.perf_counter() - began
            number = len(compiles)
            self._rank_everything()
        return tuner, seconds, number

    def _rank_everything(self) -> None:
        """Ask for the values of all that is kept, however few."""
        import occupancy_lab

        if not self.ranking:
            model = functools.partial(occupancy_lab.perf_model, *(self.case.moved or ()))
            self._ask(self._noting(model, self.ranking))

    def _ask(self, model: Callable[..., float]) -> None:
        kept = {id(one) for one in self.kept}
        tuner = self.tuner(
            early_config_prune=lambda configs, _named, **_: [
                one for one in configs if id(one) in kept
            ],
            perf_model=model,
            top_k=1,
        )
        self.case.launch(tuner)

    def full(self) -> tuple[dict[Any, Any], float]:
        """Tune every configuration, which by now is compiled: the times and the seconds."""
        tuner = self.tuner()
        began = time.perf_counter()
        self.case.launch(tuner)
        return tuner.configs_timings, time.perf_counter() - began

    def serially(self) -> float:
        """Compile every configuration as Triton does by itself: seconds."""
        tuner = self.tuner()
        tuner._do_bench = _compiled_only  # noqa: SLF001 - what autotune was given
        with fresh_caches(self.case.function):
            began = time.perf_counter()
            self.case.launch(tuner)
            return time.perf_counter() - began


def _compiled_only(call: Callable[[], None], quantiles: object) -> list[float]:
    del quantiles
    call()
    return [1.0, 1.0, 1.0]


@contextlib.contextmanager
def fresh_caches(function: Any) -> Iterator[None]:
    """Let nothing be compiled before, for Triton and for the lab."""
    names = ("TRITON_CACHE_DIR", "OCCUPANCY_LAB_CACHE_DIR")
    before = {name: os.environ.get(name) for name in names}
    while hasattr(function, "fn") and not hasattr(function, "device_caches"):
        function = function.fn
    function.device_caches.clear()
    folder = tempfile.mkdtemp(prefix="autotunes-")
    for name in names:
        os.environ[name] = f"{folder}/{name}"
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def counted_compiles() -> Iterator[list[str]]:
    """Note each kernel that Triton compiles in the block and does not have in its cache."""
    from triton import knobs

    found: list[str] = []

    def listener(*, cache_hit: bool, **_: Any) -> None:
        if not cache_hit:
            found.append("")

    before = knobs.compilation.listener
    knobs.compilation.listener = listener
    try:
        yield found
    finally:
        knobs.compilation.listener = before


def losses(ranked: Sequence[Any], times: Mapping[Any, float], best: float) -> dict[int, float]:
    """Return how much slower than the best the best of the first k of *ranked* is."""
    return {k: min((times[one] for one in ranked[:k]), default=math.inf) / best - 1 for k in TOPS}


def correlation(values: Mapping[Any, float], times: Mapping[Any, float]) -> float | None:
    """Return Spearman's rank correlation of what is predicted and what is measured."""
    import numpy as np
    import pandas as pd

    both = [(values[one], times[one]) for one in values if math.isfinite(times.get(one, math.inf))]
    both = [(value, ms) for value, ms in both if math.isfinite(value)]
    if len(both) < FEWEST:
        return None
    ranks = pd.DataFrame(both).rank().to_numpy()
    if not ranks.std(axis=0).all():
        return None
    return round(float(np.corrcoef(ranks.T)[0, 1]), 3)


def record(case: Case, *, dry: bool) -> tuple[dict[str, Any], list[dict[str, Any]], Tune]:
    """Return the summary and the rows of a case."""
    tune, noted = Tune(case, dry=dry), Noted()
    logger = logging.getLogger("occupancy_lab")
    logger.addHandler(noted)
    logger.setLevel(logging.INFO)
    try:
        ours, our_seconds, compiles = tune.ours()
    finally:
        logger.removeHandler(noted)
    for sentence in noted.sentences:
        print("   ", sentence, flush=True)
    timings, full_seconds = tune.full()
    times = {one: _first(timing) for one, timing in timings.items()}
    best = min(times, key=times.__getitem__)
    ranked = sorted(tune.kept, key=lambda one: tune.ranking.get(one, 0.0))
    reasons = noted.dropped
    lost = losses(ranked, times, times[best])
    rules = [_rule(why) for why in reasons.values()]
    summary = {
        "case": case.name,
        "status": "ok",
        "configs": len(case.configs),
        "kept": len(tune.kept),
        "cannot_run": rules.count("cannot run"),
        "equal": rules.count("equal"),
        "spilling": rules.count("spilling"),
        "launched": len(ours.configs_timings) if len(tune.kept) > 1 else 1,
        "share_launched": min(len(tune.kept), LAUNCHED) / len(case.configs),
        "ranking": "predicted time",
        "prune_loss": min(times[one] for one in tune.kept) / times[best] - 1,
        **{f"loss_top_{k}": loss for k, loss in lost.items()},
        "chosen_loss": times[ours.best_config] / times[best] - 1,
        "rank_correlation": correlation(tune.ranking, times),
        "our_seconds": our_seconds,
        "our_compile_seconds": tune.prune_seconds,
        "compiles": compiles,
        "full_bench_seconds": full_seconds,
        "best": words(best),
        "best_ms": times[best],
    }
    rows = [
        {
            "case": case.name,
            "config": words(one),
            "status": "kept" if one in tune.kept else "dropped",
            "reason": next((why for said, why in reasons.items() if said == words(one)), ""),
            "ranking": summary["ranking"],
            "value": tune.ranking.get(one),
            "place": ranked.index(one) + 1 if one in ranked else None,
            "ms": timings[one][0] if one in timings else None,
            "ms_low": timings[one][1] if one in timings else None,
            "ms_high": timings[one][2] if one in timings else None,
            "slower_than_best": times[one] / times[best] - 1 if one in times else None,
        }
        for one in case.configs
    ]
    return summary, rows, tune


def _first(timing: Any) -> float:
    return float(timing[0] if isinstance(timing, list | tuple) else timing)


def _rule(why: str) -> str:
    if why.startswith("it is launched as"):
        return "equal"
    return "spilling" if "access local" in why else "cannot run"


def run_group(group: str, folder: Path, tutorials: Path, deadline: float, *, dry: bool) -> None:
    """Record the cases of a group in this process, until *deadline* (of time.time)."""
    make_dry() if dry else start_triton()
    done: list[tuple[dict[str, Any], Tune]] = []
    longest = 0.0
    for case in cases_of(group, "cpu" if dry else "cuda", tutorials):
        began = time.time()
        if began + max(longest, STARTING) > deadline:
            write(folder, {"case": case.name, "status": "not tried"}, [])
            continue
        print(case.name, flush=True)
        try:
            summary, rows, tune = record(case, dry=dry)
        except Exception as error:  # noqa: BLE001 - the next case may work
            traceback.print_exc()
            reason = f"failed: {type(error).__name__}: {error}"
            write(folder, {"case": case.name, "status": reason[:300]}, [])
            continue
        longest = max(longest, time.time() - began)
        write(folder, summary, rows)
        done.append((summary, tune))
    for summary, tune in done:
        if time.time() + SERIALLY * summary["our_compile_seconds"] > deadline:
            continue
        seconds = tune.serially()
        full = seconds + summary["full_bench_seconds"]
        launching = summary["our_seconds"] - summary["our_compile_seconds"]
        more = {
            "serial_compile_seconds": seconds,
            "full_seconds": full,
            "saved": 1 - summary["our_seconds"] / full,
            "saved_compiling": (seconds - summary["our_compile_seconds"]) / full,
            "saved_launching": (summary["full_bench_seconds"] - launching) / full,
        }
        write(folder, {**summary, **more}, [])


def start_triton() -> None:
    """Have Triton make what it makes once a machine, so that no tune pays for it."""
    from occupancy_lab.compiling.compile import smallest_kernel

    smallest_kernel()[(1,)]()


def make_dry() -> None:
    """Have Triton compile for an H200 that is not here, and launch nothing."""
    from triton.compiler import CompiledKernel
    from triton.runtime import driver
    from triton.runtime.errors import OutOfResources

    from occupancy_lab.compiling.offline import OfflineDriver
    from occupancy_lab.gpus import find_gpu
    from occupancy_lab.gpus.present import PresentGpu
    from occupancy_lab.tuning import autotuner

    gpu = find_gpu("h200")
    present = (PresentGpu(gpu, gpu.title, {}, 0, gpu),)
    autotuner.present_gpus = lambda: present

    def load_nothing(kernel: Any) -> None:
        most = gpu.architecture.max_shared
        if kernel.metadata.shared > most:
            raise OutOfResources(kernel.metadata.shared, most, "shared memory")

    def run(kernel: Any) -> Callable[..., None]:
        load_nothing(kernel)
        return lambda *_, **__: None

    driver.set_active(OfflineDriver(gpu.target))
    CompiledKernel._init_handles = load_nothing  # noqa: SLF001
    CompiledKernel.run = property(run)


def write(folder: Path, summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Add to what is recorded, at once."""
    with (folder / "autotunes.jsonl").open("a") as file:
        file.write(json.dumps({"summary": dict(summary), "rows": list(rows)}) + "\n")


def written(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the summaries, the last of each case, and all rows."""
    path = folder / "autotunes.jsonl"
    summaries: dict[str, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):  # a line that was cut off
            found = json.loads(line)
            summaries[found["summary"]["case"]] = found["summary"]
            rows += found["rows"]
    return list(summaries.values()), rows


def cell(value: Any) -> Any:
    """Return a value as a file has it."""
    return f"{value:.6g}" if isinstance(value, float) else value


def export(folder: Path, gpu: str) -> None:
    """Write both tables and print the short one in words."""
    summaries, rows = written(folder)
    for name, columns, table in (
        (f"autotunes-{gpu}.csv", COLUMNS, rows),
        (f"autotunes-{gpu}-summary.csv", SUMMARY, summaries),
    ):
        with (folder / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows([{k: cell(v) for k, v in row.items()} for row in table])
    for one in summaries:
        print(one["case"], one["status"])
        if one["status"] == "ok":
            lost = ", ".join(f"{one[f'loss_top_{k}']:.1%} of {k}" for k in TOPS)
            print(
                f"    {one['kept']} of {one['configs']} kept, {one['our_seconds']:.1f} s against"
                f" {one.get('full_seconds')} s, lost {lost}, rank {one['rank_correlation']}"
            )


def main() -> None:
    """Run each group in a process of its own, and write what they record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--tutorials", type=Path, default=Path("tutorials"))
    parser.add_argument("--gpu", default="h200", help="in the names of the files")
    parser.add_argument("--groups", default=",".join(SHARES))
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--group", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    if asked.group:
        run_group(asked.group, asked.output, asked.tutorials, asked.deadline, dry=asked.dry)
        return
    (asked.output / "autotunes.jsonl").unlink(missing_ok=True)
    end = time.time() + asked.seconds - 5
    groups = asked.groups.split(",")
    for place, group in enumerate(groups):
        left = end - time.time()
        weights = sum(SHARES[one] for one in groups[place:])
        share = left * SHARES[group] / weights
        if left < STARTING:
            write(asked.output, {"case": f"{group}: all", "status": "not tried"}, [])
            continue
        own = ["--group", group, "--deadline", str(time.time() + share)]
        command = [sys.executable, __file__, *sys.argv[1:], *own]
        try:
            code = subprocess.run(  # noqa: S603 - this file
                command, timeout=min(left, share * 1.5 + 10), check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = "no end in its time"
        if code:
            write(asked.output, {"case": f"{group}: the rest", "status": f"ended with {code}"}, [])
        export(asked.output, asked.gpu)


if __name__ == "__main__":
    main()
