"""Records the gains of advice: autotunes with predicted times, and the results of followed advice.

`python reports/record_tunes.py --output FOLDER` first runs all GROUPS at the same time on the
NVIDIA GPU at hand, without timing anything. It predicts the time of each configuration of every
autotune, and finds the change that `explain` names first for every other launch. Then, one group
after the other, it times every configuration of these autotunes, and each of those launches with
and without its change. It writes

- tunes-<gpu>.csv with a row for each timed configuration. `chosen` marks what `tuned` launches with
  the file of --tuned, which `tune --output` wrote without a GPU;
- followed-<gpu>.csv with a row for each launch: its change, and both times, predicted and measured.

Times are those of triton.testing.do_bench, which clears the L2 cache before each launch. With
--dry the predictions are made without a GPU, for the GPU of --gpu; a later run on that GPU times
the launches that are predicted in its FOLDER and predicts nothing. Both need the same Triton, since
another version compiles other programs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import math
import re
import statistics
import time
import traceback
import warnings
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foreign_kernels
import torch
import triton
import tuned_kernels
import work_launches
from foreign_kernels import random
from record_files import (
    DATA,
    append,
    group_arguments,
    path_of,
    read_lines,
    rows_of,
    run_groups,
    write_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from foreign_kernels import Trials

    Calls = Iterator[Callable[[], Any]]

WARMUP_MS, REP_MS = 4, 16
"""How long triton.testing.do_bench warms up and measures a configuration, in ms."""
TURNS = 3
"""How often a launch and its changed version are timed alternately."""
MOST_PER_KERNEL = 5
"""The most launches of a kernel for which the first advice is followed."""
FEWEST_US = 6.0
"""Launches with a shorter predicted time are not followed: they take mostly launch overhead."""
TOPS = (1, 3, 5)
FEWEST = 2
"""The fewest configurations that a choice is made from."""
TUNES = (
    *("group", "tune", "kernel", "problem", "config", "predicted_us", "predicted_low_us"),
    *("predicted_high_us", "us", "chosen"),
)
FOLLOWED = (
    *("group", "kernel", "launch", "change", "before_predicted_us", "predicted_us"),
    *("predicted_low_us", "predicted_high_us", "before_us", "us"),
)


def matmuls(dtype: str, part: int, tuned: str) -> Calls:
    """Yield a third of the products of data/tuned-matmul-sizes.csv."""
    import occupancy_lab

    kind = getattr(torch, dtype)
    kernel = tuned_kernels.tuned_matmul
    by_file = occupancy_lab.tuned(tuned)(kernel) if tuned and dtype == "float16" else None

    def call(m: int, n: int, k: int) -> None:
        def grid(meta: Mapping[str, int]) -> tuple[int]:
            return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

        a, b = random(m, k, dtype=kind), random(k, n, dtype=kind)
        given = (a, b, random(m, n, dtype=kind), m, n, k, k, n, n)
        kernel[grid](*given)
        if by_file is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("error", occupancy_lab.UntunedWarning)
                by_file[grid](*given)
            Hooks.now.chose(by_file.best_config)

    sizes = (DATA / "tuned-matmul-sizes.csv").read_text().split()[1:]
    for line in sizes[part::3]:
        yield partial(call, *map(int, line.split(",")))


def attentions(head: int) -> Calls:
    """Yield attentions of several lengths."""

    def call(length: int, heads: int) -> None:
        q, k, v, out = (random(heads, length, head, dtype=torch.float16) for _ in range(4))
        tuned_kernels.tuned_attention[lambda meta: (triton.cdiv(length, meta["BLOCK_M"]), heads)](
            q, k, v, out, head**-0.5, length, HEAD_DIM=head
        )

    for sizes in ((512, 128), (1024, 64), (2048, 64), (4096, 32), (8192, 16)):
        yield partial(call, *sizes)


def norms(dtype: str) -> Calls:
    """Yield layer norms and group norms."""
    tensor = partial(random, dtype=getattr(torch, dtype))

    def layer(rows: int, cols: int) -> None:
        x, w = tensor(rows, cols), tensor(cols)
        tuned_kernels.tuned_layer_norm[(rows,)](x, torch.empty_like(x), w, w, cols, cols, 1e-5)

    def group(images: int, channels: int, pixels: int, groups: int) -> None:
        x, w = tensor(images, channels, pixels), tensor(channels)
        size = channels // groups * pixels
        tuned_kernels.tuned_group_norm[(images * groups,)](
            x, torch.empty_like(x), w, w, size, pixels, channels, groups, 1e-5
        )

    for shape in (
        *((8192, 1024), (4096, 2048), (4096, 4096), (4096, 8192), (1024, 16384), (512, 5120)),
    ):
        yield partial(layer, *shape)
    for sizes in (
        *((16, 256, 4096, 32), (8, 512, 1024, 8), (64, 128, 1024, 32), (2, 320, 16384, 32)),
    ):
        yield partial(group, *sizes)


def losses_and_softmaxes(dtype: str) -> Calls:
    """Yield cross entropies and softmaxes."""
    tensor, device = partial(random, dtype=getattr(torch, dtype)), foreign_kernels.DEVICE

    def loss(rows: int, words: int) -> None:
        labels = torch.randint(0, words, (rows,), device=device)
        out = torch.empty(rows, device=device)
        tuned_kernels.tuned_cross_entropy[(rows,)](tensor(rows, words), labels, out, words)

    def softmax(rows: int, cols: int) -> None:
        x, block = tensor(rows, cols), triton.next_power_of_2(cols)
        tuned_kernels.tuned_softmax[(rows,)](x, torch.empty_like(x), cols, BLOCK=block)

    for shape in ((4096, 4096), (2048, 32000), (1024, 50257), (512, 128256), (8192, 8192)):
        yield partial(loss, *shape)
    for shape in ((4096, 1024), (8192, 4096), (4096, 781), (2048, 12288), (65536, 256)):
        yield partial(softmax, *shape)


def gems() -> Calls:
    """Yield FlagGems' operators, each in two sizes."""
    import flag_gems
    from torch.nn import functional

    device = foreign_kernels.DEVICE

    def gather(x: Any) -> Any:
        return torch.gather(x, 1, torch.randint(0, x.shape[1], x.shape, device=device))

    def call(operator: Callable[[Any], Any], rows: int, cols: int) -> None:
        with flag_gems.use_gems():
            operator(random(rows, cols, dtype=torch.float16))

    operators: tuple[Callable[[Any], Any], ...] = (
        *(partial(one, dim=-1) for one in (torch.softmax, torch.log_softmax)),
        *(partial(one, dim=-1) for one in (torch.sum, torch.mean, torch.argmax)),
        *(partial(one, dim=0) for one in (torch.sum, torch.amax, torch.softmax)),
        *(partial(one, dim=-1) for one in (torch.cumsum, torch.amax, torch.var_mean)),
        *(torch.sum, torch.max, torch.argmax, torch.all, torch.triu, torch.tanh),
        *(functional.gelu, functional.silu, functional.dropout, gather),
        lambda x: functional.layer_norm(x, x.shape[1:], x[0], x[0]),
        lambda x: functional.group_norm(x.view(32, -1, 1024), 8),
        lambda x: functional.embedding(torch.randint(0, len(x), (4096,), device=device), x),
        lambda x: torch.index_select(x, 0, torch.randperm(len(x), device=device)),
        lambda x: torch.where(x > 0, x, x * 2),
        lambda x: functional.cross_entropy(x, torch.zeros(len(x), dtype=int, device=device)),
        lambda x: torch.vdot(x.flatten(), x.flatten()),
        lambda x: torch.mv(x, x[0]),
        lambda x: torch.outer(x[:, 0], x[0]),
        lambda x: torch.topk(x, 16),
        lambda x: torch.sort(x[:256, :1024]),
        lambda x: torch.cat([x, x], 1),
        lambda x: torch.linalg.vector_norm(x, dim=-1),
        lambda x: x.T.contiguous(),
    )
    for operator, shape in itertools.product(operators, ((4096, 4096), (1024, 32768))):
        yield partial(call, operator, *shape)


def public(group: Callable[[], Trials]) -> Calls:
    """Yield the calls of a group of work_launches.py."""
    for _, call in group():
        yield call


GROUPS: dict[str, Callable[..., Calls]] = {
    **{
        f"matmul {dtype} {part}": partial(matmuls, dtype, part)
        for dtype, part in itertools.product(("float16", "bfloat16", "float32"), range(3))
    },
    **{f"attention {head}": partial(attentions, head) for head in (64, 128)},
    **{f"norms {dtype}": partial(norms, dtype) for dtype in ("float16", "float32")},
    **{f"rows {dtype}": partial(losses_and_softmaxes, dtype) for dtype in ("float16", "float32")},
    **{
        f"fla {name}": partial(public, work_launches.fla(name))
        for name in ("chunk_gla", "chunk_delta_rule", "chunk_retention", "chunk_simple_gla")
    },
    "fla layers": partial(public, work_launches.fla_layers),
    "liger norms": partial(public, work_launches.liger_norms),
    "liger pointwise": partial(public, work_launches.liger_pointwise),
    "liger losses": partial(public, work_launches.liger_losses),
    "tutorials": partial(public, work_launches.simple_tutorials),
    "layer norm": partial(public, work_launches.layer_norm),
    "FlagGems": gems,
    "own reductions": partial(public, work_launches.own_reductions),
    "own memory": partial(public, work_launches.own_memory),
}


def words(config: Any) -> str:
    """Return the settings of a configuration as text."""
    named = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return ", ".join(f"{name} {value}" for name, value in named.items())


class Hooks:
    """Intercepts a program's calls of Triton: predicts in one run and times in the next."""

    now: Hooks

    def __init__(self, group: str, file: Path, *, predicts: bool) -> None:
        """Record the launches of *group* in *file*, in a run that *predicts* or times."""
        Hooks.now = self
        self.group, self.file, self.predicts = group, file, predicts
        self.number = self.tuning = 0
        self.per_kernel: collections.Counter[str] = collections.Counter()
        self.changes: dict[str, dict[str, Any]] = {}
        if not predicts:
            for row in read_lines(file):
                if row["kind"] == "followed":
                    self.changes[row["launch"]] = row

    def note(self, kind: str, **columns: Any) -> None:
        """Write a row."""
        append(self.file, kind=kind, group=self.group, **columns)

    def install(self) -> None:
        """Watch every autotune and every other launch of this process from now on."""
        from triton.runtime import Autotuner
        from triton.runtime.jit import JITFunction

        prune, tune, bench = Autotuner.prune_configs, Autotuner.run, Autotuner._bench  # noqa: SLF001
        launch = JITFunction.run
        hooks = self

        def pruned(tuner: Any, keywords: Any) -> Any:
            left = prune(tuner, keywords)
            hooks.number += 1
            if hooks.predicts and len(left) > 1:
                with hooks.quietly():
                    hooks.predict(tuner, left, keywords)
                return left[:1]
            return left

        def tuned(tuner: Any, *arguments: Any, **keywords: Any) -> Any:
            hooks.tuning += 1
            try:
                return tune(tuner, *arguments, **keywords)
            finally:
                hooks.tuning -= 1

        def timed(tuner: Any, *arguments: Any, config: Any, **meta: Any) -> Any:
            found = bench(tuner, *arguments, config=config, **meta)
            ms = _first(found)
            us = None if math.isinf(ms) else 1e3 * ms
            hooks.note("timed", tune=hooks.number, config=words(config), us=us)
            return found

        def launched(
            function: Any, *arguments: Any, grid: Any, warmup: bool, **keywords: Any
        ) -> Any:
            if not warmup and not hooks.tuning:
                with hooks.quietly():
                    hooks.follow(launch, function, arguments, grid, keywords)
            return launch(function, *arguments, grid=grid, warmup=warmup, **keywords)

        Autotuner.prune_configs, Autotuner.run, JITFunction.run = pruned, tuned, launched
        Autotuner.do_bench = property(lambda _: _bench, lambda *_: None)
        if not self.predicts:
            Autotuner._bench = timed  # noqa: SLF001 - where a configuration is known

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """Watch nothing in the block and record its exceptions."""
        self.tuning += 1
        try:
            yield
        except Exception:  # noqa: BLE001 - the program goes on
            self.note("problem", why=traceback.format_exc())
        finally:
            self.tuning -= 1

    def predict(self, tuner: Any, configs: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """Record the predicted time of each configuration of a tune."""
        from occupancy_lab.kernel import innermost
        from occupancy_lab.record import Record
        from occupancy_lab.tuning.autotuner import _try
        from occupancy_lab.values import Work

        _, tried = _try(tuner.fn, configs, tuner.nargs, keywords, Work())
        given = {**tuner.nargs, **keywords}
        sizes = {name: value for name, value in given.items() if type(value) is int}
        problem = ", ".join(f"{name} {value}" for name, value in sizes.items())
        for one in tried:
            time = one.run.prediction if isinstance(one.run, Record) else None
            why = "" if isinstance(one.run, Record) else one.run.failure.reason
            self.note(
                "tune",
                tune=self.number,
                kernel=innermost(tuner.fn).__name__,
                problem=problem,
                config=words(one.config),
                why=why[:120],
                **times(time),
            )

    def follow(self, launch: Any, function: Any, arguments: Any, grid: Any, keywords: Any) -> None:
        """Record the first advice for a launch, or time the launch with and without it."""
        name = function.__name__
        shapes = [
            (tuple(one.shape), str(getattr(one, "dtype", ""))) if hasattr(one, "shape") else one
            for one in arguments
        ]
        key = f"{name} {zlib.crc32(repr((shapes, keywords)).encode()):08x}"
        if self.predicts:
            if self.per_kernel[name] < MOST_PER_KERNEL and key not in self.changes:
                self.changes[key] = {}
                if found := first_change(function, arguments, keywords, grid):
                    self.per_kernel[name] += 1
                    self.note("followed", launch=key, kernel=name, **found)
            return
        row = self.changes.pop(key, None)
        if row is None:
            return
        changes = {name: value for name, value in row["changes"].items() if name != "grid"}
        names = function.arg_names[: len(arguments)]
        passed = [
            one.new_zeros(one.numel() * row["grows"])
            if name in row["grown"]
            else changes.pop(name, one)
            for name, one in zip(names, arguments, strict=True)
        ]
        changes = {**keywords, **changes}
        changes = {name: value for name, value in changes.items() if value is not None}
        both = (
            lambda: launch(function, *arguments, grid=grid, warmup=False, **keywords),
            lambda: launch(function, *passed, grid=tuple(row["grid"]), warmup=False, **changes),
        )
        found = [[_bench(one, quantiles=(0.5,)) for one in both] for _ in range(TURNS)]
        before, after = (1e3 * statistics.median(_first(one[n]) for one in found) for n in (0, 1))
        self.note("both", launch=key, before_us=before, us=after)

    def chose(self, config: Any) -> None:
        """Record the configuration that `tuned` launched for the last tune."""
        self.note("chosen", tune=self.number, config=words(config))


def times(prediction: Any) -> dict[str, Any]:
    """Return the columns of a predicted time."""
    found = (None,) * 3
    if prediction is not None:
        found = prediction.us, prediction.low_us, prediction.high_us
    return dict(zip(("predicted_us", "predicted_low_us", "predicted_high_us"), found, strict=True))


def first_change(function: Any, arguments: Any, keywords: Any, grid: Any) -> dict[str, Any] | None:
    """Return the change that `explain` names first for a launch, or None."""
    from occupancy_lab.asked import Asked
    from occupancy_lab.compiling import store_directory
    from occupancy_lab.compiling.compiler import Compiler
    from occupancy_lab.explaining.advice import in_one_sentence
    from occupancy_lab.explaining.explanation import explain_asked
    from occupancy_lab.explaining.grids import grown_tensors
    from occupancy_lab.explaining.neighbours import best_of
    from occupancy_lab.kernel import variants
    from occupancy_lab.tuning.autotuner import _gpu_at_hand

    gpu, here = _gpu_at_hand()
    (one,) = variants(function, arguments, keywords, grid)
    asked = Asked(one.function, one.launch, gpu, relaunch=one.relaunch)
    compiler = Compiler(store_directory(), here={gpu.target} if here else (), threads=True)
    explained = explain_asked([asked], compiler)
    (record,) = explained.records
    if record.prediction is None or record.prediction.us < FEWEST_US:
        return None
    case = explained.case_of(record)
    best = best_of(record, case.neighbours)
    if best is None or best.record is None or not in_one_sentence(case):
        return None
    return {
        "change": best.instead_of(record),
        "changes": dict(best.changes),
        "grid": best.record.launch.grid,
        "grown": grown_tensors(record, best.record),
        "grows": -(-math.prod(best.record.launch.grid) // math.prod(record.launch.grid)),
        "before_predicted_us": record.prediction.us,
        **times(best.record.prediction.as_chosen),
    }


def _bench(call: Callable[[], Any], quantiles: Sequence[float]) -> Any:
    if foreign_kernels.DEVICE == "cpu":  # nothing is launched, and all take the same time
        return [0.0 for _ in quantiles]
    return triton.testing.do_bench(call, quantiles=quantiles, warmup=WARMUP_MS, rep=REP_MS)


def _first(found: Any) -> float:
    return float(found[0] if isinstance(found, list | tuple) else found)


def run_group(asked: argparse.Namespace) -> None:
    """Run a group in this process."""
    if asked.dry:
        make_dry(asked.gpu)
    path = path_of(asked.output, asked.group, ".jsonl")
    hooks = Hooks(asked.group, path, predicts=asked.phase == "predict")
    hooks.install()
    foreign_kernels.TUTORIALS = asked.tutorials
    group = GROUPS[asked.group]
    calls = group(asked.tuned) if asked.group.startswith("matmul") else group()
    for call in calls:
        if time.time() > asked.until:
            hooks.note("problem", why="no time left")
            break
        try:
            call()
        except Exception:  # noqa: BLE001 - the next one may work
            hooks.note("problem", why=traceback.format_exc())


def make_dry(name: str) -> None:
    """Have Triton compile for a GPU that is not present, and launch nothing."""
    from triton.compiler import CompiledKernel
    from triton.runtime import driver

    from occupancy_lab.compiling.offline import OfflineDriver
    from occupancy_lab.gpus import find_gpu
    from occupancy_lab.gpus.present import PresentGpu
    from occupancy_lab.tuning import autotuner

    gpu = find_gpu(name)
    autotuner.present_gpus = lambda: (PresentGpu(gpu, gpu.title, {}, 0, gpu),)
    foreign_kernels.DEVICE = "cpu"
    driver.set_active(OfflineDriver(gpu.target))
    CompiledKernel._init_handles = lambda _: None  # noqa: SLF001 - what loads it
    CompiledKernel.run = property(lambda _: lambda *_, **__: None)


def export(folder: Path, gpu: str, names: Sequence[str]) -> None:
    """Write both tables and print a summary of each."""
    rows = [row for name in names for row in read_lines(path_of(folder, name, ".jsonl"))]
    of = {
        kind: [row for row in rows if row["kind"] == kind] for kind in ("tune", "timed", "followed")
    }
    chosen = {(row["group"], row["tune"]): row["config"] for row in rows if row["kind"] == "chosen"}
    measured = {(row["group"], row["tune"], row["config"]): row["us"] for row in of["timed"]}
    both = {(row["group"], row["launch"]): row for row in rows if row["kind"] == "both"}
    tuned = [
        {**row, "us": us, "chosen": chosen.get((row["group"], row["tune"])) == row["config"] or ""}
        for row in of["tune"]
        if (us := measured.get((row["group"], row["tune"], row["config"])))
    ]
    followed = [
        {**row, **both[row["group"], row["launch"]]}
        for row in of["followed"]
        if (row["group"], row["launch"]) in both
    ]
    write_rows(folder / f"tunes-{gpu}.csv", TUNES, tuned)
    write_rows(folder / f"followed-{gpu}.csv", FOLLOWED, followed)
    problems = collections.Counter(
        f"{row['group']}: {row['why'].strip().splitlines()[-1][:150]}"
        for row in rows
        if row["kind"] == "problem"
    )
    for why, number in problems.most_common(20):
        print(f"    {number} x {why}")
    print(table(folder, [gpu]))


def table(folder: Path, gpus: Sequence[str]) -> str:
    """Return the tables of docs/tuning.md: the lost time, and the results of followed advice."""
    lines = [
        "| | tunes | configurations | first slower by | at most | best of 3 | best of 5 |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for gpu in gpus:
        tunes: dict[Any, list[dict[str, Any]]] = collections.defaultdict(list)
        for row in rows_of(folder / f"tunes-{gpu}.csv"):
            tunes[kind_of(row["group"]), row["group"], row["tune"]].append(row)
        kinds = dict.fromkeys(kind for kind, *_ in tunes)
        for kind in (*kinds, ""):
            some = [rows for (own, *_), rows in tunes.items() if kind in {own, ""}]
            found = [one for rows in some if (one := lost(rows)) is not None]
            if not found:
                continue
            means = [
                percent(statistics.fmean(map(math.log1p, one))) for one in zip(*found, strict=True)
            ]
            most = percent(math.log1p(max(one[0] for one in found)))
            configurations = sum(map(len, some))
            name = f"{gpu.upper()}: {kind or 'all'}"
            cells = (name, len(found), configurations, means[0], most, *means[1:])
            lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", "| | launches | faster | within the range |", "|---|--:|--:|--:|"]
    for gpu in gpus:
        rows = rows_of(folder / f"followed-{gpu}.csv")
        faster = sum(row["us"] < row["before_us"] for row in rows)
        inside = sum(
            row["predicted_low_us"] <= row["us"] <= row["predicted_high_us"] for row in rows
        )
        lines.append(f"| {gpu.upper()} | {len(rows)} | {faster} | {inside} |")
    return "\n".join(lines)


def kind_of(group: str) -> str:
    """Return the kind of a group's tunes: the kernels and their dtype or library."""
    return re.sub(r" \d$", "", group)


def percent(logarithm: float) -> str:
    """Return by how many percent a ratio exceeds 1, given its logarithm."""
    return f"{math.expm1(logarithm):.1%}".replace("%", " %")


def lost(rows: Sequence[Mapping[str, Any]]) -> tuple[float, ...] | None:
    """Return how much slower than the fastest the best of the first TOPS by prediction is.

    None if fewer than two configurations were timed or nothing was predicted.
    """
    timed = [(row["predicted_us"], row["us"]) for row in rows if row["us"]]
    ranked = [us for _, us in sorted(one for one in timed if one[0])]
    if len(timed) < FEWEST or not ranked:
        return None
    best = min(us for _, us in timed)
    return tuple(min(ranked[:top]) / best - 1 for top in TOPS)


def main() -> None:
    """Run every group twice, each time in its own process."""
    parser = argparse.ArgumentParser(description=__doc__, parents=[group_arguments()])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--tutorials", type=Path, default=Path("tutorials"))
    parser.add_argument("--gpu", default="h100", help="in the names of the files")
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--tuned", default="", help="what `tune --output` wrote of tuned_matmul")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--predict-only", action="store_true", help="time nothing now")
    asked = parser.parse_args()
    if asked.group:
        run_group(asked)
        return
    asked.output.mkdir(parents=True, exist_ok=True)
    end, names = time.time() + asked.seconds, asked.groups.split(",")
    only = asked.dry or asked.predict_only
    half = end if only else time.time() + 0.45 * asked.seconds
    new = [name for name in names if not read_lines(path_of(asked.output, name, ".jsonl"))]
    run_groups(new, asked.output, "predict", half, len(names))
    print(f"predicted, {end - time.time():.0f} s left", flush=True)
    if not only:
        run_groups(names, asked.output, "time", end, 1)
        print(f"timed, {end - time.time():.0f} s left", flush=True)
        export(asked.output, asked.gpu, names)


if __name__ == "__main__":
    main()
