"""Records public Triton launches: everything that determines their work, ncu's counters, and times.

`python reports/record_work.py --output FOLDER --tutorials FOLDER` runs the groups of
work_launches.py on the NVIDIA GPU at hand in three steps. All groups compile at the same time, and
write every launch with its arguments and its kernel's texts. Each launch is then timed, one at a
time, with an empty and with a warm L2 cache. Finally, as many launches as the time allows are
repeated once under Nsight Compute. Every group runs in its own processes, the results so far are
written after each step, and everything together takes `--seconds`.

A launch has the same `id` in all files: a digest of its kernel's binary, arguments and grid. `use`
divides kernels, not launches, into tuning, held out and fresh, by a digest of their names
(work_capture.use_of).
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import io
import json
import lzma
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # where the lab is not installed
from record_files import read_lines, read_table, table_bytes, write_json, write_whole
from work_ncu import (
    BUSIEST,
    CORE,
    FEWEST,
    OPTIONS,
    SAMPLING_OPTIONS,
    SHARES,
    SPEED_OF_LIGHT,
    busiest,
    known_metrics,
    matched,
    read_counts,
)

from occupancy_lab.measuring.ncu import find_ncu

COMPILING, TIMING, REPEATING, COUNTING, SAMPLING = 0.4, 0.57, 0.69, 0.885, 0.955
"""The shares of the time at which the steps end: compiling, timing, running all again under
Nsight Compute, counting, and sampling."""
WORKERS = 16
"""Processes that compile at the same time."""
COUNTERS = 12
"""Processes under Nsight Compute."""
MOST_FILE = 15 << 20
"""The largest size of a file of texts, in bytes."""
SHARD = 40
"""Kernels whose texts are compressed together."""
KEPT = Path(__file__).parent / "data" / "work-h100.csv"
"""The earlier recording."""
SMALL_BYTES = 1 << 20
"""Launches with smaller tensors are of little interest."""
ALIKE = 8
"""How many launches of a kernel Nsight Compute counts before all others."""
PASS_SECONDS, LAUNCH_SECONDS = 0.02, 0.12
"""The time that Nsight Compute takes for a pass, and for a launch in addition, by experience."""

SAMPLED = (
    *("triton: 3, fp16", "triton: 6, head 64", "own: reductions", "own: memory", "liger: norms"),
    *("triton: 5", "liger: losses", "triton: 9, fp16", "triton: simple"),
)
"""The groups whose kernels are sampled instruction by instruction, one launch each."""
MOST_SAMPLED = 60
REPORT = "lines.ncu-rep"
"""The name of Nsight Compute's report of the sampled launches."""
COLUMNS = (
    *("id", "use", "kernel", "package", "file", "line", "source", "group", "trial", "binary"),
    *("grid", "num_warps", "num_ctas", "num_stages", "shared", "n_regs", "n_spills"),
    *("tensor_bytes", "arguments"),
    *(f"{one}_us{tenth}" for one in ("cold", "warm") for tenth in ("", "_low", "_high")),
    *("repetitions", "sm_mhz", "empty_cold_us", "empty_warm_us"),
)


@dataclass
class Worker:
    """A process that runs groups."""

    name: str
    groups: list[str]
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def has(self, state: str) -> bool:
        """Tell whether the worker has reached *state*."""
        return (self.folder / state).exists()

    @property
    def running(self) -> bool:
        """Whether the worker has not ended."""
        return self.process is not None and self.process.poll() is None

    def ready(self) -> dict[str, Any]:
        """Return what the worker has to repeat."""
        return dict(json.loads((self.folder / "ready").read_text(encoding="utf-8")))

    def stop(self) -> None:
        """End the worker and its processes; Nsight Compute around it prints its results first."""
        if not self.running or self.process is None:
            return
        with contextlib.suppress(OSError, ValueError):
            os.kill(self.ready()["pid"], signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(3)
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass
class Recording:
    """A whole recording, from its processes to its files."""

    output: Path
    tutorials: Path
    seconds: float
    groups: tuple[str, ...]
    """The beginnings of the names of the groups."""
    work: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="work-")))
    began: float = field(default_factory=time.time)
    info: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, tuple[str, ...]] = field(default_factory=dict)
    passes: dict[str, int] = field(default_factory=dict)
    timers: list[Worker] = field(default_factory=list)
    counters: list[Worker] = field(default_factory=list)
    sampler: Worker | None = None
    ncu: Path | None = field(default_factory=find_ncu)

    def __post_init__(self) -> None:
        self.trying = threading.Thread(target=self.try_ncu, args=(self.ncu,), daemon=True)
        self.packing = threading.Thread(target=self.pack, daemon=True)

    def at(self, share: float) -> float:
        """Return the time at which a share of the whole time is over."""
        return self.began + share * self.seconds

    def say(self, *words: Any) -> None:
        """Print an event and its time."""
        print(f"{time.time() - self.began:6.1f} s:", *words, flush=True)

    def start(
        self, worker: Worker, kind: str, until: float, before: list[str], **given: Any
    ) -> None:
        """Start a process for *worker*'s groups, with *before* in front of its command."""
        worker.folder.mkdir(parents=True, exist_ok=True)
        content = {"groups": worker.groups, "wanted": None, "trials": None, "waits": True, **given}
        write_json(worker.folder / "given.json", content)
        temporary = worker.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        root = Path(__file__).resolve().parent
        paths = [str(root.parent), str(root), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(temporary),  # Nsight Compute locks a file there
            "LC_ALL": "C.UTF-8",
            "TRITON_CACHE_DIR": str(self.work / "triton"),
            "TRITON_CACHE_AUTOTUNING": "0",
            "FLA_CACHE_RESULTS": "0",
            "TORCHINDUCTOR_CACHE_DIR": str(self.work / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0",
            "OMP_NUM_THREADS": "1",
        }
        command = [
            *(*before, sys.executable, str(root / "work_process.py"), "--worker", kind),
            *("--name", worker.name, "--work", str(self.work), "--tutorials", str(self.tutorials)),
            *("--until", str(until), "--end", str(self.at(SAMPLING))),
        ]
        with (worker.folder / "printed.txt").open("wb") as file:
            worker.process = subprocess.Popen(  # noqa: S603 - this file
                command, stdout=file, stderr=file, env=environment, start_new_session=True
            )

    def compile_all(self) -> None:
        """Run every group, a limited number at a time, until all are ready or the time is over."""
        import work_launches

        until = self.at(COMPILING)
        for place, group in enumerate(work_launches.GROUPS):
            if not group.startswith(self.groups):
                continue
            name = f"time-{place:02}-{re.sub(r'[^a-z0-9]+', '-', group.lower())}"
            self.timers.append(Worker(name, [group], self.work / name))
        waiting = list(self.timers)
        while time.time() < until + 8:
            going = [one for one in self.timers if one.running and not one.has("ready")]
            if time.time() < until - 10:
                for one in waiting[: WORKERS - len(going)]:
                    self.start(one, "time", until, [])
                    going.append(one)
                    waiting.remove(one)
            if not going and (not waiting or time.time() > until - 10):
                break
            time.sleep(0.1)
        for one in self.timers:
            if not one.has("ready"):
                state = "not ready in time" if one.running else "ended"
                self.say(f"{one.groups[0]}: {'not started' if one.process is None else state}")
                one.stop()
        found = self.launches()
        self.say(
            f"{len(found)} launches of {len({one['kernel'] for one in found})} kernels compiled"
        )

    def launches(self) -> list[dict[str, Any]]:
        """Return all recorded launches, each once."""
        found = {}
        for worker in self.timers:
            for line in read_lines(worker.folder / "launches.jsonl"):
                found.setdefault(line["id"], {**line, "worker": worker.name})
        return list(found.values())

    def take_turns(self, workers: list[Worker], end: float) -> None:
        """Give each ready worker its part of the time until *end*, one at a time."""
        left = [one for one in workers if one.has("ready") and one.running]
        for place, one in enumerate(left):
            share = one.ready()["count"] / max(1, sum(two.ready()["count"] for two in left[place:]))
            until = time.time() + max(0.0, end - time.time()) * share
            write_json(one.folder / "turn", {"until": until})
            while one.running and not one.has("done") and time.time() < until + 5:
                time.sleep(0.02)
            if not one.has("done"):
                how = "stopped in" if one.running else "ended before the end of"
                self.say(f"{one.name}: {how} its turn")
                one.stop()

    def wanted(self) -> list[str]:
        """Return the ids of all launches, the most informative ones for Nsight Compute first.

        Kernels alternate, each with launches of many sizes, small ones last. Launches that an
        earlier recording has counted come after all others.
        """
        known: set[str] = set()
        with contextlib.suppress(OSError):
            known = {one["id"] for one in read_table(KEPT) if one.get(CORE[0])}
        by_kernel: dict[str, list[str]] = collections.defaultdict(list)
        for line in sorted(self.launches(), key=lambda one: one["tensor_bytes"] < SMALL_BYTES):
            by_kernel[line["package"].split()[0] + line["kernel"]].append(line["id"])
        ranked = []
        for ids in by_kernel.values():
            step = max(1, -(-len(ids) // ALIKE))
            spread = [one for first in range(step) for one in ids[first::step]]
            ranked += [(place, one) for place, one in enumerate(spread)]
        return [one for _, one in sorted(ranked, key=lambda one: (one[1] in known, one))]

    def time_all(self) -> None:
        """Have each process time its launches while the texts are compressed."""
        self.packing.start()
        self.take_turns(self.timers, self.at(TIMING if self.counters else COUNTING))
        self.say("timed")
        for one in self.timers:
            one.stop()

    def prepare_counting(self) -> None:
        """Start the processes under Nsight Compute, which launch once "go" exists."""
        if self.ncu is None:
            return
        ncu = self.ncu
        if not self.metrics:
            self.trying.join(12.0)
        if not self.metrics:
            self.metrics["core"] = known_metrics(ncu, CORE)
        launches = {one["id"]: one for one in self.launches()}
        wanted = self.wanted()
        seconds = {
            name: LAUNCH_SECONDS + PASS_SECONDS * passes for name, passes in self.passes.items()
        }
        room = self.at(COUNTING) - self.at(REPEATING)
        kind = "all" if seconds.get("all", 9.0) * min(len(wanted), 350) < room else "core"
        kind = kind if kind in self.metrics else next(iter(self.metrics))
        self.say(
            f"counts {len(self.metrics[kind])} metrics ({kind}, {self.passes}) of {len(wanted)}"
        )
        self.info["counted"] = {"kind": kind, "metrics": self.metrics[kind]}
        trials = collections.Counter(
            (launches[key]["group"], launches[key]["trial"]) for key in wanted
        )
        weights: dict[str, float] = collections.Counter()
        for group, _ in trials:
            weights[group] += 5.0 if group.startswith("inductor") else 0.5
        bundles: list[list[str]] = [[] for _ in range(COUNTERS)]
        loads = [0.0] * COUNTERS
        for group in sorted(weights, key=lambda one: -weights[one]):
            least = loads.index(min(loads))
            bundles[least].append(group)
            loads[least] += weights[group]
        for place, groups in enumerate(filter(None, bundles)):
            groups.sort(key=lambda one: one.startswith("fla"))  # launches that may crash come last
            worker = Worker(f"ncu-{place}", groups, self.work / f"ncu-{place}")
            own = [key for key in wanted if launches[key]["group"] in groups]
            self.counters.append(worker)
            before = [str(ncu), *OPTIONS, "--metrics", ",".join(self.metrics[kind])]
            until = self.at(REPEATING)
            of_groups = [list(one) for one in trials if one[0] in groups]
            self.start(worker, "ncu", until, before, wanted=own, trials=of_groups)
        self.prepare_sampling(ncu, [launches[key] for key in wanted])

    def prepare_sampling(self, ncu: Path, launches: list[dict[str, Any]]) -> None:
        """Start the process that Nsight Compute samples, with one launch of each kernel."""
        chosen: dict[str, dict[str, Any]] = {}
        for line in launches:
            if line["group"] in SAMPLED and line["tensor_bytes"] >= SMALL_BYTES:
                chosen.setdefault(line["kernel"], line)
        some = list(chosen.values())[:MOST_SAMPLED]
        groups = [one for one in SAMPLED if any(line["group"] == one for line in some)]
        self.sampler = Worker("ncu-lines", groups, self.work / "ncu-lines")
        before = [str(ncu), *SAMPLING_OPTIONS, "--export", str(self.sampler.folder / REPORT)]
        trials = [list(one) for one in {(line["group"], line["trial"]) for line in some}]
        wanted = [line["id"] for line in some]
        self.start(self.sampler, "ncu", self.at(REPEATING), before, wanted=wanted, trials=trials)

    def count(self) -> None:
        """Have the processes under Nsight Compute launch and count one after the other."""
        if not self.counters:
            return
        (self.work / "go").touch()
        until = self.at(REPEATING)
        while time.time() < until + 5:
            if all(one.has("ready") or not one.running for one in (*self.counters, *self.sampling)):
                break
            time.sleep(0.05)
        for one in (*self.counters, *self.sampling):
            if not one.has("ready"):
                self.say(f"{one.name} {one.groups}: not ready")
                one.stop()
        self.say("repeats under Nsight Compute")
        self.take_turns(self.counters, self.at(COUNTING))
        self.say("counted")
        self.take_turns(self.sampling, self.at(SAMPLING))
        last = [*self.counters, *self.sampling]
        end = time.time() + 6
        while any(one.running for one in last) and time.time() < end:
            time.sleep(0.05)
        for one in last:
            one.stop()
        self.say("sampled")

    @property
    def sampling(self) -> list[Worker]:
        """The sampled process, if there is one."""
        return [] if self.sampler is None else [self.sampler]

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return the counters of each launch by its id."""
        found = {}
        for one in self.counters:
            with contextlib.suppress(OSError):
                printed = (one.folder / "printed.txt").read_text(encoding="utf-8", errors="replace")
                found |= matched(read_lines(one.folder / "order.jsonl"), read_counts(printed))
        return found

    def try_ncu(self, ncu: Path) -> None:
        """Find out which metrics Nsight Compute can count here, and in how many passes."""
        try:
            core = known_metrics(ncu, CORE)
            shares = known_metrics(ncu, SHARES)
            self.info["unknown metrics"] = sorted({*CORE, *SHARES} - {*core, *shares})
            for name, metrics in (("core", core), ("all", (*core, *shares))):
                self._try(ncu, name, metrics)
            if not self.metrics:
                self._try(ncu, "fewest", FEWEST)
        except Exception:  # noqa: BLE001 - times are recorded all the same
            self.info["ncu"] = traceback.format_exc()
        self.say(f"Nsight Compute: {[(one, len(self.metrics[one])) for one in self.metrics]}")

    def _try(self, ncu: Path, name: str, metrics: tuple[str, ...]) -> None:
        for attempt in range(6):
            worker = Worker(
                f"try-{name}-{attempt}", ["first try"], self.work / f"try-{name}-{attempt}"
            )
            worker.folder.mkdir(parents=True)
            write_json(worker.folder / "turn", {"until": time.time() + 60})
            before = [str(ncu), *OPTIONS, "--metrics", ",".join(metrics)]
            self.start(worker, "ncu", time.time() + 60, before, wanted=None, waits=False)
            if worker.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.process.wait(60)
            worker.stop()
            printed = (worker.folder / "printed.txt").read_text(encoding="utf-8", errors="replace")
            rows = read_counts(printed)
            self.info[f"try {name} {attempt}"] = {"printed": printed[-6000:], "rows": rows}
            missing = set(re.findall(r"Failed to find metric (?:regex:\^)?([\w.]+)", printed))
            if rows:
                self.metrics[name] = metrics
                passes = re.findall(r"(\d+) pass", printed)
                self.passes[name] = max(map(int, passes), default=30)
                return
            fewer = tuple(one for one in metrics if one not in missing)
            if fewer == metrics:
                return
            metrics = fewer

    def pack(self) -> None:
        """Compress the texts of all kernels into files of the output."""
        from work_capture import TEXTS

        texts = self.work / "texts"
        launches = self.launches()
        by_kernel = sorted({(one["kernel"], one["binary"]) for one in launches})
        sources = sorted({one["source"] for one in launches if one["source"]})
        first, second = ("json", "ttir", "ttgir", "cubin"), ("ptx",)
        assert {*first, *second} == {"json", *TEXTS}  # noqa: S101 - none is forgotten
        jobs: dict[str, list[list[str]]] = {"texts": [], "ptx": []}
        jobs["texts"].append([f"{one}.py" for one in sources])
        for start in range(0, len(by_kernel), SHARD):
            part = [binary for _, binary in by_kernel[start : start + SHARD]]
            jobs["texts"].append([f"{one}.{kind}" for kind in first for one in part])
            jobs["ptx"].append([f"{one}.{kind}" for kind in second for one in part])

        def shard(names: list[str]) -> bytes:
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as tar:
                for name in names:
                    if (texts / name).exists():
                        tar.add(texts / name, name)
            return lzma.compress(buffer.getvalue(), preset=6)

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for kind, parts in jobs.items():
                self._write_outer(kind, list(pool.map(shard, parts)))
        self.say("texts are packed")

    def _write_outer(self, kind: str, shards: list[bytes]) -> None:
        """Write *shards* into as few files as their size allows, three at most."""
        files: list[list[tuple[str, bytes]]] = [[]]
        for place, content in enumerate(shards):
            if (
                sum(len(one) + 1536 for _, one in files[-1]) + len(content) > MOST_FILE
                and files[-1]
            ):
                files.append([])
            files[-1].append((f"{kind}-{place:02}.tar.xz", content))
        most = 3 if kind == "texts" else 1
        for place, members in enumerate(files[:most]):
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as tar:
                for name, content in members:
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
            write_whole(self.output / f"{kind}-{place}.tar", buffer.getvalue())
        if len(files) > most:
            self.info[f"{kind} left out"] = [name for one in files[most:] for name, _ in one]

    def write(self) -> list[dict[str, Any]]:
        """Write the rows, the launches and the raw files, and return the rows."""
        from work_capture import columns_of_times

        counts, times, empty = self.counts(), {}, {}
        for one in self.timers:
            for line in read_lines(one.folder / "times.jsonl"):
                if line["id"] == "empty":
                    empty[one.name] = line
                else:
                    times[line["id"]] = line
        rows, lines = [], []
        for launch in self.launches():
            row = {**launch, "grid": " x ".join(map(str, launch["grid"]))}
            row["arguments"] = ", ".join(
                f"{name}={short(value)}" for name, value in launch["arguments"].items()
            )
            if line := times.get(launch["id"]):
                row |= columns_of_times({name: line[name] for name in ("cold", "warm")})
                row |= {"repetitions": len(line["cold"]), "sm_mhz": line.get("sm_mhz")}
            if line := empty.get(launch["worker"]):
                of_none = columns_of_times({name: line[name] for name in ("cold", "warm")})
                row |= {f"empty_{name}": of_none[name] for name in ("cold_us", "warm_us")}
            counted = counts.get(launch["id"], {})
            row |= counted | busiest(counted)
            rows.append(row)
            lines.append(json.dumps({**launch, "times": times.get(launch["id"])}))
        metrics = [
            name for name in (*CORE, *SPEED_OF_LIGHT, *BUSIEST) if any(name in one for one in rows)
        ]
        write_whole(self.output / "work-h100.csv", table_bytes((*COLUMNS, *metrics), rows))
        content = lzma.compress("\n".join(lines).encode(), preset=3)
        write_whole(self.output / "launches.jsonl.xz", content)
        write_json(self.work / "info.json", self.info)
        self._write_raw()
        return rows

    def _write_raw(self) -> None:
        """Write everything that the processes printed and recorded into one file."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for path in sorted((*self.work.glob("*/*.jsonl"), *self.work.glob("*/*.txt"))):
                if path.name != "launches.jsonl" and path.stat().st_size < 20 << 20:
                    tar.add(path, str(path.relative_to(self.work)))
            if (self.work / "info.json").exists():
                tar.add(self.work / "info.json", "info.json")
        write_whole(self.output / "raw.tar.xz", lzma.compress(buffer.getvalue(), preset=2))
        for one in self.sampling:
            if (report := one.folder / REPORT).exists():
                content = lzma.compress(report.read_bytes(), preset=1)
                if len(content) < MOST_FILE:
                    write_whole(self.output / f"{REPORT}.xz", content)

    def stop(self) -> None:
        """End every process."""
        for one in (*self.timers, *self.counters, *self.sampling):
            one.stop()


def short(value: Any) -> str:
    """Return a short text for an argument."""
    if isinstance(value, dict):
        if "pointer" in value:
            return f"{value['pointer']}{value['shape']}"
        if "descriptor" in value:
            return f"descriptor {short(value['descriptor'])} of {value['block_shape']}"
        if "tuple" in value:
            return f"({', '.join(map(short, value['tuple']))})"
        return str(next(iter(value.values()), ""))
    return str(value)


def about() -> dict[str, Any]:
    """Return the date, the versions and the GPU of the recording."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d")}
    for name in ("torch", "triton", "liger-kernel", "fla-core", "transformers"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    for command in (["nvidia-smi"], ["ncu", "--version"]):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            printed = subprocess.run(  # noqa: S603 - named above
                command, capture_output=True, text=True, timeout=20, check=False
            ).stdout
            found[" ".join(command)] = printed[-3000:]
    return found


def record(chosen: argparse.Namespace) -> None:
    """Run every step of the recording, each as far as possible."""
    groups = tuple(chosen.groups.split(","))
    output, tutorials = chosen.output.resolve(), chosen.tutorials.resolve()
    recording = Recording(output, tutorials, chosen.seconds, groups)
    recording.output.mkdir(parents=True, exist_ok=True)
    for name in ("texts", "triton", "inductor"):
        (recording.work / name).mkdir()
    recording.info = about()
    if recording.ncu is not None:
        recording.trying.start()
    steps = (
        *(recording.compile_all, recording.prepare_counting, recording.time_all),
        *(recording.write, recording.count),
    )
    try:
        for step in steps:
            try:
                step()
            except Exception:  # noqa: BLE001 - the next may go all the same
                recording.info[f"failed {step.__name__}"] = traceback.format_exc()
                traceback.print_exc()
    finally:
        recording.stop()
        rows = recording.write()
        if recording.packing.ident is not None:
            recording.packing.join(max(1.0, recording.at(1.0) - time.time()))
        summarize(rows)


def summarize(rows: list[dict[str, Any]]) -> None:
    """Print how many launches of each group were recorded, timed and counted."""
    groups: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for row in rows:
        groups[row["group"]].append(row)
    form = "{:30} {:>8} {:>8} {:>6} {:>6} {:>10} {:>10}"
    print(form.format("group", "launches", "kernels", "timed", "ncu", "least us", "most us"))
    for name, some in (*groups.items(), ("all", rows)):
        us = [row["cold_us"] for row in some if "cold_us" in row] or [0.0]
        counted = sum("smsp__inst_executed.sum" in row for row in some)
        timed = sum("cold_us" in row for row in some)
        kernels = len({(row["package"], row["kernel"]) for row in some})
        least, most = f"{min(us):.1f}", f"{max(us):.1f}"
        print(form.format(name, len(some), kernels, timed, counted, least, most))
    print(collections.Counter(row["use"] for row in rows))


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("work-recorded"))
    parser.add_argument("--seconds", type=float, default=230.0, help="of all")
    parser.add_argument("--tutorials", type=Path, default=Path("tutorials"))
    parser.add_argument("--groups", default="", help="beginnings of names, with commas between")
    record(parser.parse_args())


if __name__ == "__main__":
    main()
