"""Records real launches of public kernels, and compiles the same launches dry.

`python reports/record_launches.py --output FOLDER` makes the calls of reports/foreign_kernels.py on
the NVIDIA GPU at hand. It records the arguments, options and grid of each launch, the compiled
kernel, and what the driver reports about it. It compiles the same launch without the GPU's driver
for the same target, for gfx942 and for gfx1100. It writes launches-<gpu>.csv and prints how many
launches agree.

Every group runs in its own process, and the dry compiles in forks of it, so that a crash ends
nothing else.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import dataclasses
import itertools
import json
import os
import re
import tempfile
import time
import traceback
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import foreign_kernels
import triton
from record_files import (
    append,
    digest,
    group_arguments,
    path_of,
    read_lines,
    run_groups,
    table_bytes,
)

from occupancy_lab.arguments import Pointer, dtype_name
from occupancy_lab.asked import Asked
from occupancy_lab.compiled_records import record_of
from occupancy_lab.compiling import Store, compile_launch, resource_key, triton_version
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.compiling.resources import read_resources
from occupancy_lab.errors import OccupancyLabError
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.explanation import write_full
from occupancy_lab.gpus import HipArchitecture, find_gpu
from occupancy_lab.launch import Launch, constant_text, launch_of
from occupancy_lab.measuring.driver import ask_function
from occupancy_lab.occupancy import hip
from occupancy_lab.occupancy.rule import scalar_where
from occupancy_lab.workers.forked import in_forks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.values import Resources

GPU = "h200"
TARGETS = {"sm_90": GPU, "gfx942": "mi300x", "gfx1100": "gfx1100"}
"""The GPU that the programs per multiprocessor of each dry target are computed for."""
CONFIGURATIONS = 4
"""How many of an autotuner's configurations are launched, spread over all of them."""
MOST_LAUNCHES = 24
"""The most distinct launches that are recorded per group."""
LAUNCHING = 0.45
"""The share of the time in which a group launches; the rest is for dry compiles."""
LONGEST = 45
"""Seconds that one dry compile may take; large fp32 matrix products take minutes on AMD."""
CLUSTER_DIMENSION = 4
"""CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION of cuda.h."""
CLUSTER_SCHEDULING, SPREAD = 5, 1
"""CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, as Triton's driver.c launches."""
COLUMNS = (
    *("group", "trial", "kernel", "origin", "launched_by", "status", "reason"),
    *("signature", "constexprs", "options", "grid", "key"),
    *("n_regs", "n_spills", "shared", "num_warps", "num_ctas", "cubin"),
    *("driver_n_regs", "driver_local_bytes", "driver_static_shared"),
    *("driver_programs_per_multiprocessor", "driver_clusters"),
    *(
        f"{target}_{name}"
        for target in TARGETS
        for name in (
            *("status", "reason", "n_regs", "local_bytes", "shared", "static_shared", "num_warps"),
            *("programs_per_multiprocessor", "binary"),
            *(
                ("clusters",)
                if target == "sm_90"
                else ("sgprs", "agprs", "waves_per_simd", "llvm_occupancy")
            ),
        )
    ),
)


class TimeUpError(BaseException):
    """Raised when the time to launch is over or a group has all its launches; not to be caught."""


@dataclass
class Launched:
    """A launch that was made, with its function, its arguments and its row."""

    function: Any
    launch: Launch | None
    row: dict[str, Any] = field(default_factory=dict)


class Attribute(ctypes.Structure):
    """CUlaunchAttribute of cuda.h, with the dimensions of a cluster."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("value", ctypes.c_uint * 16),
    )


class Configuration(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


def asked_of_driver(function: int, metadata: Any) -> dict[str, int | None]:
    """Return what the driver reports about a loaded kernel; raise DriverError if it refuses."""
    threads = metadata.num_warps * 32
    said = dataclasses.asdict(ask_function(function, threads, metadata.shared))
    found: dict[str, int | None] = {f"driver_{name}": value for name, value in said.items()}
    if metadata.num_ctas > 1:
        attributes = (Attribute * 2)(
            Attribute(CLUSTER_DIMENSION, 0, (metadata.num_ctas, 1, 1)),
            Attribute(CLUSTER_SCHEDULING, 0, (SPREAD,)),
        )
        configuration = Configuration(
            (metadata.num_ctas, 1, 1),
            (threads, 1, 1),
            metadata.shared,
            None,
            ctypes.addressof(attributes),
            len(attributes),
        )
        clusters = ctypes.c_int()
        error = ctypes.CDLL("libcuda.so.1").cuOccupancyMaxActiveClusters(
            ctypes.byref(clusters), ctypes.c_void_p(function), ctypes.byref(configuration)
        )
        found["driver_clusters"] = None if error else clusters.value
    return found


def described(function: Any, launch: Launch) -> dict[str, Any]:
    """Return the columns that describe a launch, as plain text."""
    target = find_gpu(GPU).target
    constexprs = {one.name for one in function.params if one.is_constexpr}
    bound = launch.bound(function)
    classes = launch.specialization(function, target)
    key = json.dumps(resource_key(function, launch, target), sort_keys=True)
    return {
        "signature": ", ".join(
            f"{name}: {text}"
            for name, text in zip(bound, classes, strict=True)
            if name not in constexprs
        ),
        "constexprs": ", ".join(
            f"{name}={getattr(value, '__name__', value)}"
            for name, value in bound.items()
            if name in constexprs
        ),
        "options": ", ".join(
            f"{name}={constant_text(value)}" for name, value in launch.options(function).items()
        ),
        "grid": "" if launch.grid is None else " x ".join(map(str, launch.grid)),
        "key": digest(key.encode()),
    }


class Recorder:
    """Records each distinct launch that is made while the recorder is installed."""

    def __init__(self, group: str, deadline: float, most: int, path: Path) -> None:
        self.path = path
        self.group = group
        self.deadline = deadline
        self.most = most
        self.trial = ""
        self.launched: dict[Any, Launched] = {}

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Watch the launches of Triton and of torch.compile in the block."""
        from triton.compiler import CompiledKernel
        from triton.runtime import JITFunction

        run, compile_, item = JITFunction.run, triton.compile, CompiledKernel.__getitem__
        recorder = self

        def watched(function: Any, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
            recorder.check_time()
            try:
                launch, reason = launch_of(function, args, keywords, grid), ""
            except Exception as error:  # noqa: BLE001 - it is a row
                launch, reason = None, f"{type(error).__name__}: {error}"
            compiled = run(function, *args, grid=grid, warmup=warmup, **keywords)
            recorder.note(function, launch, compiled, reason, "warmup" if warmup else "launch")
            return compiled

        def watched_item(compiled: Any, grid: Any) -> Any:
            for place, one in enumerate(recorder.launched.values()):
                if one.row["hash"] == compiled.hash and one.row["launched_by"] == "warmup":
                    sizes = " x ".join(map(str, grid))
                    one.row |= {"launched_by": "CompiledKernel", "grid": sizes}
                    append(recorder.path, place=place, **one.row)
            return item(compiled, grid)

        def watched_compile(src: Any, target: Any = None, options: Any = None, **more: Any) -> Any:
            recorder.check_time()
            compiled = compile_(src, target=target, options=options, **more)
            if hasattr(src, "fn"):
                try:
                    launch, reason = launch_of_source(src, options or {}), ""
                except Exception as error:  # noqa: BLE001 - it is a row
                    launch, reason = None, f"{type(error).__name__}: {error}"
                recorder.note(src.fn, launch, compiled, reason, "torch.compile")
            return compiled

        with (
            mock.patch.object(JITFunction, "run", watched),
            mock.patch.object(triton, "compile", watched_compile),
            mock.patch.object(CompiledKernel, "__getitem__", watched_item),
        ):
            yield

    @contextlib.contextmanager
    def watching_torch(self) -> Iterator[None]:
        """Find out in the block which kernels torch.compile's launcher runs."""
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        run, names = CachingAutotuner.run, set()

        def watched(tuner: Any, *arguments: Any, **keywords: Any) -> Any:
            result = run(tuner, *arguments, **keywords)
            names.add(tuner.fn.__name__)
            return result

        with mock.patch.object(CachingAutotuner, "run", watched):
            yield
        for place, one in enumerate(self.launched.values()):
            if one.row["launched_by"] == "torch.compile" and one.row["kernel"] not in names:
                append(self.path, place=place, launched_by="nobody")

    def check_time(self) -> None:
        """Raise TimeUpError if the time is over or enough launches were made."""
        if time.time() > self.deadline or len(self.launched) >= self.most:
            raise TimeUpError

    def note(
        self, function: Any, launch: Launch | None, compiled: Any, reason: str, by: str
    ) -> None:
        """Record a launch unless an equal one was recorded before."""
        if compiled is None or (key := (function.__name__, compiled.hash)) in self.launched:
            return
        row: dict[str, Any] = {
            "group": self.group,
            "trial": self.trial,
            "kernel": function.__name__,
            "origin": foreign_kernels.package_of(function),
            "launched_by": by,
            "hash": compiled.hash,
            "status": "not described" if reason else "launched",
            "reason": reason,
        }
        self.launched[key] = Launched(function, launch, row)
        try:
            metadata = compiled.metadata
            row |= {
                "shared": metadata.shared,
                "num_warps": metadata.num_warps,
                "num_ctas": metadata.num_ctas,
                "cubin": digest(compiled.asm["cubin"]),
                "code": read_resources(compiled.asm, metadata, "cuda").binary,
            }
            row |= loaded(compiled)
            if launch is not None:
                row |= described(function, launch)
        except Exception as error:  # noqa: BLE001 - it is a row
            row |= {"status": "not read", "reason": f"{type(error).__name__}: {error}"}
        append(self.path, place=len(self.launched) - 1, **row)


def loaded(compiled: Any) -> dict[str, Any]:
    """Return what Triton and the driver report about a kernel; load it if it is not loaded yet."""
    if compiled.module is None:
        from triton.runtime import driver

        device = driver.active.get_current_device()
        _, function, n_regs, n_spills, *_ = driver.active.utils.load_binary(
            compiled.name, compiled.kernel, compiled.metadata.shared, device
        )
    else:
        function, n_regs, n_spills = compiled.function, compiled.n_regs, compiled.n_spills
    said = asked_of_driver(function, compiled.metadata)
    return {"n_regs": n_regs, "n_spills": n_spills, **said}


def launch_of_source(source: Any, options: dict[str, Any]) -> Launch:
    """Return the launch that Triton would make of *source*, which torch.compile only compiles."""
    arguments: dict[str, Any] = {}
    for place, name in enumerate(source.fn.arg_names):
        kind = source.signature.get(name, "constexpr")
        divisible = ["tt.divisibility", 16] in source.attrs.get((place,), [])
        if kind == "constexpr":
            arguments[name] = source.constants[(place,)]
        elif kind.startswith("*"):
            arguments[name] = Pointer(
                "bool" if kind == "*i1" else dtype_name(kind[1:]), 16, divisible
            )
        else:
            arguments[name] = number_of(kind, divisible=divisible)
    return launch_of(source.fn, (), {**arguments, **options}, None)


def number_of(kind: str, *, divisible: bool) -> Any:
    """Return a number to which Triton gives the type *kind*."""
    if kind in {"fp32", "fp64"}:
        return 0.5
    if kind in {"i1", "u1"}:
        return True
    big = {"i32": 0, "i64": 2**40, "u64": 2**63}[kind]
    return big + (32 if divisible else 7)


def dry(one: Launched, name: str) -> dict[str, Any]:
    """Compile the launch of *one* for the target *name* without its GPU; return the columns."""
    gpu = find_gpu(TARGETS[name])
    seen: dict[str, Any] = {}

    def listen(*, metadata: Any, metadata_group: Any, cache_hit: bool, **_: Any) -> None:
        files = {Path(path).suffix[1:]: path for path in metadata_group.values()}
        binary = files["cubin" if name == "sm_90" else "hsaco"]
        seen["binary"] = digest(Path(binary).read_bytes())
        seen["num_ctas"] = metadata.get("num_ctas")
        seen["cached"] = cache_hit
        seen["name"] = metadata["name"]
        if "amdgcn" in files:
            seen["amdgcn"] = Path(files["amdgcn"]).read_text(encoding="utf-8")

    launch = with_own_options(one.function, one.launch, gpu)
    triton.knobs.compilation.listener = listen
    resources = compile_launch(one.function, launch, gpu.target, Store(None)).resources
    found: dict[str, Any] = {
        "n_regs": resources.n_regs,
        "local_bytes": resources.local_bytes,
        "shared": resources.shared,
        "static_shared": resources.static_shared,
        "num_warps": resources.num_warps,
        "binary": seen["binary"],
    }
    try:
        record = record_of(Asked(one.function, launch, gpu), resources, triton=triton_version())
        explanation = write_full((Case(record),)).to_markdown()
        calculation = record.calculation
        found["programs_per_multiprocessor"] = calculation.occupancy.programs_per_multiprocessor
        if name == "sm_90" and calculation.clusters is not None:
            found["clusters"] = calculation.clusters.resident
        found |= {"status": "explained" if explanation else "explained in no word"}
    except OccupancyLabError as error:
        found |= {"status": "does not fit", "reason": str(error)}
    if name == "sm_90":
        differences = compared(one.row, found, resources, seen)
        if differences:
            found |= {"status": "differs", "reason": "; ".join(differences)}
    else:
        found |= held_to_llvm(resources, gpu, seen, found)
    return found


def with_own_options(function: Any, launch: Launch, gpu: Gpu) -> Launch:
    """Return *launch* without the options of NVIDIA's compiler alone, as a dry run on both does.

    Options for clusters stay: AMD has no launch of a kernel that is built for clusters.
    """
    own = default_options(gpu.target)
    foreign = launch.options(function).keys() & (
        default_options(find_gpu(GPU).target).keys() - own.keys()
    )
    kept = {name: value for name, value in launch.keywords.items() if name not in foreign}
    return dataclasses.replace(launch, keywords=kept)


def compared(
    row: dict[str, Any], found: dict[str, Any], resources: Resources, seen: dict[str, Any]
) -> list[str]:
    """Return, in words, how a dry compile differs from the real launch."""
    pairs = {
        "registers": (found["n_regs"], row.get("n_regs")),
        "registers by the driver": (found["n_regs"], row.get("driver_n_regs")),
        "spills": (resources.n_spills, row.get("n_spills")),
        "local memory": (found["local_bytes"], row.get("driver_local_bytes")),
        "shared memory": (found["shared"], row.get("shared")),
        "static shared memory": (found["static_shared"], row.get("driver_static_shared")),
        "warps": (found["num_warps"], row.get("num_warps")),
        "programs of a cluster": (seen["num_ctas"], row.get("num_ctas")),
        "programs per SM": (
            found.get("programs_per_multiprocessor", 0),
            row.get("driver_programs_per_multiprocessor"),
        ),
        "clusters": (found.get("clusters"), row.get("driver_clusters")),
        "instructions": (resources.binary, row.get("code")),
        "binary": (found["binary"], row.get("cubin")),
        "taken from a cache": (seen["cached"], False),
    }
    return [
        f"{what} {dry} dry, {real} launched" for what, (dry, real) in pairs.items() if dry != real
    ]


def held_to_llvm(
    resources: Resources, gpu: Gpu, seen: dict[str, Any], found: dict[str, Any]
) -> dict[str, Any]:
    """Return the waves per SIMD by the formula and by LLVM's assembly."""
    text = seen["amdgcn"].partition(f".amdhsa_kernel {seen['name']}")[2]
    match = re.search(r"; Occupancy: +(\d+)", text)
    architecture = gpu.architecture
    if not isinstance(architecture, HipArchitecture):
        raise TypeError(architecture)
    waves = waves_per_simd(resources, architecture)
    llvm = None if match is None else int(match[1])
    differs = (
        {}
        if waves == llvm
        else {
            "status": "differs",
            "reason": f"{waves} waves per SIMD, LLVM says {llvm}; {found.get('reason', '')}",
        }
    )
    return {
        "sgprs": resources.sgprs,
        "agprs": resources.agprs,
        "waves_per_simd": waves,
        "llvm_occupancy": llvm,
        **differs,
    }


def waves_per_simd(resources: Resources, architecture: HipArchitecture) -> int:
    """Return the waves per SIMD that wave slots, VGPRs and SGPRs allow; LLVM counts nothing else.

    The LLVM of Triton 3.6 to 3.8 leaves out the SGPRs of the trap handler: its steps are those of
    getOccupancyWithNumSGPRs.
    """
    rules = {rule.resource: rule for rule in hip.RULES}
    work = rules["registers"].work(resources, architecture, scalar_where) or {}
    limits = [architecture.max_waves_per_simd, int(work["waves_per_simd"])]
    if architecture.sgprs_per_simd is not None and resources.sgprs is not None:
        steps = ((80, 10), (88, 9), (100, 8), (999, 7))
        limits.append(next(waves for most, waves in steps if resources.sgprs <= most))
    return min(limits)


def launch_group(group: str, path: Path, until: float, most: int) -> None:
    """Launch the calls of *group*, then compile them dry until *until*; write lines to *path*."""
    path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="launches-") as work:
        os.environ |= {
            "TRITON_CACHE_DIR": f"{work}/triton",
            "TORCHINDUCTOR_CACHE_DIR": f"{work}/inductor",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        }
        now = time.time()
        recorder = Recorder(group, now + LAUNCHING * (until - now), most, path)
        watching = recorder.watching_torch if group.startswith("inductor") else nullcontext
        few = foreign_kernels.few_configurations(CONFIGURATIONS)
        with few, recorder.installed(), watching():
            try_all(group, recorder)
        compile_dry(list(recorder.launched.values()), path, until)


def try_all(group: str, recorder: Recorder) -> None:
    """Call all of *group*; note the calls that fail and go on."""

    def before(trial: str) -> None:
        recorder.trial = trial
        recorder.check_time()

    try:
        for trial, why in foreign_kernels.call_all(group, before):
            if why:
                append(recorder.path, failed=trial, why=why)
    except TimeUpError:
        why = "the group has its time or its launches"
        append(recorder.path, failed=recorder.trial, why=why)
    except Exception as error:  # noqa: BLE001 - it is named
        why = "".join(traceback.format_exception(error))[-1500:]
        append(recorder.path, failed=group, why=why)


def compile_dry(launched: list[Launched], path: Path, until: float) -> None:
    """Compile the launches dry for each target until *until*, and write the columns to *path*."""
    calls = {
        (name, place): partial(dry_columns, one, name)
        for name in TARGETS
        for place, one in enumerate(launched)
    }
    for (name, place), (answer, words) in in_forks(calls, len(TARGETS), LONGEST):
        if answer is None:
            found = {"status": "timed out", "reason": f"longer than {LONGEST} s"}
        elif not answer:
            found = {"status": "compiler died", "reason": words}
        else:
            found = json.loads(answer)
        append(path, place=place, **{f"{name}_{column}": value for column, value in found.items()})
        if time.time() > until:
            break


def dry_columns(one: Launched, name: str) -> str:
    """Return the columns of a dry compile as JSON, or why there are none."""
    if one.launch is None:
        return json.dumps({"status": "not tried", "reason": "not described"})
    try:
        found = dry(one, name)
    except OccupancyLabError as error:
        found = {"status": "refused", "reason": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001 - it is a row
        why = "".join(traceback.format_exception(error))[-800:]
        found = {"status": "failed", "reason": why}
    return json.dumps(found, default=str)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a group from the lines that its process wrote."""
    rows: dict[int, dict[str, Any]] = {}
    for line in read_lines(path):
        if "place" in line:
            rows.setdefault(line.pop("place"), {}).update(line)
    for row, name in itertools.product(rows.values(), TARGETS):
        if f"{name}_status" not in row:
            row |= {f"{name}_status": "not tried", f"{name}_reason": "no time was left"}
    return list(rows.values())


def summarize(rows: list[dict[str, Any]], paths: Iterable[Path]) -> None:
    """Print how many launches agree, every difference, and the launches that were skipped."""
    print(f"\n{len(rows)} distinct launches of {len({row['kernel'] for row in rows})} kernels")
    for column in ("origin", "launched_by", "status", *(f"{name}_status" for name in TARGETS)):
        print(column, dict(collections.Counter(row[column] for row in rows)))
    same = sum(row.get("sm_90_binary") == row.get("cubin") for row in rows)
    print(f"{same} of {len(rows)} dry cubins are the launched ones, byte for byte")
    for row in rows:
        if row["status"] != "launched" or row["sm_90_status"] != "explained":
            why = row["reason"] or row.get("sm_90_reason")
            print(f"! {row['kernel']} ({row['trial']}): {row['sm_90_status']}: {why}")
    for path in paths:
        for line in read_lines(path):
            if "failed" in line:
                print(f"skipped in {path.stem}: {line['failed']}: {line['why']}")


def main() -> None:
    """Record the launches and print how many agree."""
    parser = argparse.ArgumentParser(description=__doc__, parents=[group_arguments()])
    parser.add_argument("--output", type=Path, required=True, help="folder of the files")
    parser.add_argument("--seconds", type=float, default=240.0, help="soft limit of all")
    parser.add_argument("--workers", type=int, default=32, help="groups at a time")
    parser.add_argument("--most", type=int, default=MOST_LAUNCHES, help="launches of a group")
    parser.add_argument("--tutorials", type=Path, default=foreign_kernels.TUTORIALS)
    parser.add_argument("--groups", default="", help="parts of the names of the groups, by commas")
    chosen = parser.parse_args()
    foreign_kernels.TUTORIALS = chosen.tutorials.resolve()
    if chosen.group:
        path = path_of(chosen.output, chosen.group, ".jsonl")
        launch_group(chosen.group, path, chosen.until, chosen.most)
        return
    chosen.output.mkdir(parents=True, exist_ok=True)
    groups = foreign_kernels.chosen_groups(chosen.groups)
    run_groups(groups, chosen.output, "launch", time.time() + chosen.seconds, chosen.workers)
    paths = [path_of(chosen.output, group, ".jsonl") for group in groups]
    rows = [row for path in paths for row in rows_of(path)]
    (chosen.output / f"launches-{GPU}.csv").write_bytes(table_bytes(COLUMNS, rows))
    summarize(rows, paths)


if __name__ == "__main__":
    main()
