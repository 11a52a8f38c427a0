"""Random command lines: each ends with an answer, or with one sentence."""

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self
from unittest import mock

import click
import pandas as pd
import pytest
import small_table
from compiled_rows import compiled, failed
from hostile_files import within
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from in_process import SECONDS, check_answered, run
from stand_ins import CALIBRATION, Launches

from occupancy_lab.calibrating.units import Calibrated, Units
from occupancy_lab.cli import main
from occupancy_lab.compiling.environment import running_environment
from occupancy_lab.compiling.process import CompileProcess, Request
from occupancy_lab.compiling.script import Ran, Run
from occupancy_lab.compiling.store import Store
from occupancy_lab.compiling.texts import Compiled
from occupancy_lab.errors import refuse
from occupancy_lab.gpus import find_gpu
from occupancy_lab.gpus.present import PresentGpu
from occupancy_lab.measuring.verify import Check, Verification
from occupancy_lab.reporting.page import Page
from occupancy_lab.reporting.source import PROBLEM, fresh_table
from occupancy_lab.values import Config, Failure, Resources, Status

EXAMPLES = int(os.environ.get("OCCUPANCY_LAB_COMMAND_LINES", "300"))
"""How many command lines are drawn; the workflow ci.yml draws 2000, which take a minute."""
PARTS = 4
"""Each part draws its share of the command lines from its own seed, at the same time."""

POINTS = "target,n_regs,shared,num_warps\nsm_90,32,12320,8\nmi300x,91,32,8\n"
KERNEL = "from occupancy_lab.kernels.softmax import KERNEL\n"
LAUNCHED = """
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr, KIND: tl.constexpr = "sum"):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + where, tl.load(x_ptr + where, mask=where < n) * 2, mask=where < n)


CONFIGS = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]
tuned = triton.autotune(CONFIGS, ["n"])(double)
"""
ROWS = [compiled(), compiled(gpu="mi300x", num_warps=4), failed()]
FILES = {
    "points.csv": POINTS.encode(),
    "bad.csv": b"target,n_regs,shared,num_warps\nsm_90,True,0,3\n",
    "kernel.py": KERNEL.encode(),
    "launched.py": LAUNCHED.encode(),
    "broken.py": b"raise SystemExit(7)\n",
    "empty": b"",
    "binary": bytes(range(256)) * 9,
    "rows.json": json.dumps(ROWS).encode(),
    "more.json": json.dumps([*ROWS, compiled("other", n_regs=255, local_bytes=64)]).encode(),
    "script.json": json.dumps({"lines": [{"place": "a.py:7", "rows": ROWS}]}).encode(),
    "rows.csv": b"kernel,gpu,n_regs,shared,num_warps,constexprs\nk,h100,32,0,4,BLOCK=64\n",
    "strange.json": b'{"rows": 5}',
    "deep.json": b"[" * 100_000,
    "deep.py": b"[" * 100_000,
    "digits.csv": b"kernel,gpu,n_regs,shared,num_warps\nk,h100," + b"9" * 400 + b",0,4\n",
}
VALUES = {
    "cols": ["781", "100", "1", "781,100", "1048576", "1048577"],
    "rows": ["4096", "1", "7,8"],
    "dtype": ["float32", "bfloat16", "float32,float16", "int8"],
    "kernel": ["softmax", "softmax_row", "vector_add", "softmax_naive", "{in}/kernel.py"],
    "kernels": ["{in}/kernel.py"],
    "gpu": ["h100", "mi300x", "h200", "sm_90", "h100,a100"],
    "gpus": ["h100", "mi300x", "h200", "sm_90", "gfx942", "h100,mi300x", "cuda:90:32", "h10"],
    "names": ["h100", "mi300x,sm_90", "gfx1250", "h10"],
    "block_size": ["1024", "1000", "2048", "1048576"],
    "num_warps": ["8", "4", "4,8", "16", "32", "3", "64"],
    "num_stages": ["1", "2", "1,2", "4", "40"],
    "form": ["terminal", "markdown", "json", "html"],
    "providers": ["all", "kernel", "kernel,copy", "torch"],
    "runs": ["1", "30"],
    "top": ["1", "5", "1000000"],
    "jobs": ["1", "2"],
    "compile_timeout": ["1", "0.5"],
    "devices": ["all", "0", "1"],
    "where": ["occupancy > 0.5", "status != 'ok'", "nonsense ==", "cols"],
    "sort": ["-occupancy", "us", "gpu", "nonsense"],
    "points": ["-", "{in}/points.csv", "{in}/bad.csv"],
    "n_regs": ["32", "256", "0"],
    "shared": ["0", "12320", "300000"],
    "sgprs": ["0", "100"],
    "static_shared": ["0", "64"],
    "barriers": ["1", "16"],
    "file": ["{in}/measured.csv", "{in}/points.csv"],
    "uses": ["tuning", "held out", "published"],
    "cache_dir": ["{out}/cache", "/dev/null/cache", "~nobody-here/cache"],
    "triton": ["/bin/ls", "{in}/empty", "/bin/ls,/bin/cat"],
    **{f"max_{name}": ["0", "0.5", "1"] for name in ("median", "p90", "mean_loss", "worst_loss")},
    "min_rank": ["-1", "0.5", "1"],
    "launch": [
        *("{in}/launched.py:double", "{in}/launched.py:tuned", "{in}/launched.py:nothing"),
        *("{in}/broken.py:double", "{in}/missing.py:double", "{in}/launched.py:", "softmax"),
        *("{in}/launched.py", "{in}/pipe.py:double", "{in}/deep.py:main"),
    ],
    "signature": [
        *("x_ptr=*fp16,n=i32", "*fp32,1000", "x_ptr=*fp16:16,n=1000", "*bf16, i32:16, 1024"),
        *(
            "x_ptr=*fp16",
            "n=1000,x_ptr=*fp16,y_ptr=*fp16",
            "x_ptr=fp16,n=*i32",
            "*fp7,",
            "n=,x_ptr",
        ),
    ],
    "constexprs": [
        *("BLOCK=128", "BLOCK=64,128", "KIND='mean'", "KIND=sum", "BLOCK=tl.float16", "BLOCK"),
        *("BLOCK=(1,2)", "M=3", "n=7", "num_warps=4", "BLOCK=100", "=7"),
    ],
    "options": [
        *("maxnreg=128", "maxnreg=32,64", "waves_per_eu=2", "num_ctas=2", "num_warps=8", "nope=1"),
        *("enable_fp_fusion=False", "num_ctas=x", "BLOCK=64", "debug=True"),
    ],
    "arguments": [
        *("occupancy > 0.5", "n_regs < 200 and local_bytes == 0", "{in}/rows.json"),
        *(
            ("occupancy > 0.5", "{in}/rows.json"),
            ("n_regs < 40", "{in}/more.json", "{in}/rows.csv"),
        ),
        *(("local_bytes == 0", "{in}/launched.py:double"), ("shared > 0", "{in}/cache")),
        *(("n_regs < 40", "-"), ("n_regs < 40", "{in}/pipe"), ("n_regs < 40", "{in}/huge")),
        *(("gpu == 'h100'", "{in}/script.json"), ("n_regs < 40", "{in}/launched.py")),
    ],
    "tables": [
        *(("{in}/rows.json", "{in}/more.json"), ("{in}/more.json", "{in}/script.json")),
        *(
            ("{in}/rows.csv", "{in}/rows.json"),
            ("{in}/cache", "{in}/cache"),
            ("-", "{in}/rows.csv"),
        ),
        *(("{in}/rows.json", "{in}/pipe"), ("{in}/huge", "{in}/rows.json"), "{in}/rows.json"),
        "{in}/launched.py:double",
    ],
    "tritons": ["/bin/ls,/bin/cat", "/bin/ls", "{in}/empty,/bin/cat"],
    "fail_on": ["after_n_regs > before_n_regs", "nonsense ==", "after_occupancy < 0.5"],
    "unknown": ["ok", "fail"],
    "failures": ["ok", "fail"],
    "directories": ["{in}/cache", "{in}", ("{in}/cache", "{in}/missing")],
    "program": [
        *(("python", "{in}/launched.py", "--cols", "8"), ("python", "-u", "{in}/broken.py")),
        *("{in}/launched.py", ("python", "{in}/pipe.py"), ("python", "-c", "pass"), "python"),
    ],
    "grid": ["4096", "32x32", "cdiv(n, BLOCK)", "1,2,3,4", "0", "n / 0", "m", "cdiv(n, BLOCK), 2"],
    "bytes_read": ["24MiB", "2 * n", "1000", "0", "-1", "x_ptr", "1e30 * n", "24 QiB"],
    "bytes_written": ["24MiB", "2 * n", "1000", "0", "BLOCK * 4"],
}
"""Likely values of an option, by the name of its value."""
LAUNCHES = [
    ("launch", "signature", "constexprs"),
    ("launch", "signature", "constexprs", "grid", "bytes_read", "bytes_written"),
]
"""Options that describe a launch of any kernel."""
NEEDED = {
    **{name: [("cols",), *LAUNCHES] for name in ("explain", "sweep", "tune")},
    "measure": [("cols",)],
    "compare": [("cols",), ("cols", "gpus"), ("cols", "kernel"), ("cols", "num_stages"), *LAUNCHES],
    "occupancy": [("points",), ("gpus", "n_regs", "shared", "num_warps")],
    "check": [("arguments",), ("arguments", "signature", "constexprs"), ("scan",)],
    "diff": [("tables",), ("cols", "tritons"), ("tables", "tritons", "signature", "constexprs")],
    "trace": [("dry_run", "program")],
}
"""What a command needs, in each form."""
WRITTEN = (
    *("export_csv", "export_json", "export_markdown", "output", "plot", "report", "timeline"),
    *("junit", "sarif"),
)
TO_WRITE = [
    *("{out}/file.csv", "{out}/file.html", "{out}/missing/file", "{in}", "{in}/pipe", "x"),
    *("/dev/full", "{in}/loop.py", f"{'x' * 300}/file.csv", "/dev/null/file"),
]
TO_READ = [
    *(f"{{in}}/{name}" for name in FILES),
    *("{in}", "{in}/pipe", "{in}/missing", "{in}/loop.py", f"{'x' * 300}.py", "/dev/zero"),
]
STRANGE = [
    *("", " ", ",", "-", "--", "0", "-1", "1e3", "1.5", "nan", "inf", "-inf", "True", "1_0", "٣"),
    *("1" + "0" * 30, str(2**31), str(2**63), "-" + "9" * 40, "9" * 5000, "x" * 500, "x,y " * 100),
    *("é∞🙂", "\udcff", "\u202e", "a\nb", "'", '"', "$(id)", "`", "{}", "%s", "@x", "\x1b[31m"),
]
"""Values that hardly any option accepts."""
COUNTS = dict.fromkeys(
    (
        *("local_bytes", "load_bytes", "store_bytes", "instructions", "loop_instructions"),
        *("local_traffic", "shuffles", "barrier_waits", "shared_accesses", "global_accesses"),
        *("async_copies", "special_functions", "local_loads", "local_stores"),
    ),
    8,
)
"""Invented counts of a binary."""
CHECKS = Verification(
    [Check(Config(1024, 8, 2), "programs per SM", 8, 7, agrees=False, source="driver")]
)
HERE = tuple(
    PresentGpu(gpu, gpu.title, {}, place, gpu) for place, gpu in enumerate([find_gpu("h200")] * 2)
)


def _outcome(knobs: Mapping[str, Any]) -> Resources | Failure:
    """Return the pretended outcome of a configuration: 16 warps do not compile."""
    num_warps = knobs.get("num_warps", 4)
    if num_warps == 16:
        return Failure(Status.COMPILE_FAILED, "no luck")
    pipeline = (knobs.get("num_stages", 3) - 1) * knobs.get("BLOCK_SIZE", 64) * 4
    shared = pipeline + 4 * num_warps
    return Resources(32, num_warps, shared, pipeline_shared=pipeline, **COUNTS)


def _in_process(_self: object, request: Request, timeout: float | None) -> Compiled | Failure:
    assert timeout is None or timeout > 0
    found = _outcome(request.launch.keywords)
    return found if isinstance(found, Failure) else Compiled(found, "")


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    """Return a monkeypatch for the whole file."""
    with pytest.MonkeyPatch.context() as made:
        yield made


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the folder of files to read and the one to write in, with every slow thing replaced.

    Nothing is compiled, launched, drawn or asked of a GPU: what stands in for it answers at once.
    """
    there, out = tmp_path_factory.mktemp("in"), tmp_path_factory.mktemp("out")
    for name, content in FILES.items():
        (there / name).write_bytes(content)
    for name in ("pipe", "pipe.py"):
        os.mkfifo(there / name)
    with (there / "huge").open("wb") as file:
        file.truncate(3 << 30)
    (there / "cache").mkdir()
    (there / "loop.py").symlink_to(there / "loop.py")
    table = pd.DataFrame(small_table.rows())
    table.to_csv(there / "measured.csv", index=False)
    patch.chdir(out)
    patch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(out / "store"))
    patch.setenv("TRITON_CACHE_DIR", str(there / "cache"))
    patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(there / "cache"))
    patch.setattr(CompileProcess, "compile", _in_process)
    patch.setattr(CompileProcess, "import_file", lambda *_asked: None)
    replaced = {
        "cli.doctor.can_compile": lambda _target: True,
        "measuring.verify.verify": lambda *_asked, **_options: CHECKS,
        "calibrating.units.calibrate_here": lambda: Calibrated(
            CALIBRATION, out / "h200.json", 1.0, Units()
        ),
        "evaluating.evaluation.recorded_table": lambda: table,
        "reporting.source.recorded_table": lambda: table,
        "reporting.source.fresh_table": partial(fresh_table, problems=(PROBLEM,)),
        "reporting.contents.write_page": lambda source: Page(source.gpu.title, ()),
        "plotting.save": _saved,
    }
    for module in ("tracing.dry", "tracing.script_runs", "tuning.of_script"):
        replaced[f"{module}.Script"] = _Script
    for module in ("sweeping.grid", "measuring.side_by_side", "measuring.journal"):
        replaced[f"{module}.measure_launches"] = Launches()
    for name, stand_in in replaced.items():
        patch.setattr(f"occupancy_lab.{name}", stand_in)
    return {"in": str(there), "out": str(out)}


class _Script:
    """A script that launches nothing."""

    environment = running_environment()
    store = Store(None)
    launches = ()
    interrupted = None
    ran = Ran((), "", None, 0, (), (), ())

    def __init__(self, run: Run, **_: object) -> None:
        if run.arguments is None:
            refuse(f"{run.script} launches no Triton kernel")
        self.gpu = run.gpu

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def outcomes(self, _wanted: object) -> list[object]:
        """Return what its launches compiled to: nothing."""
        return []

    def texts(self, _wanted: object) -> list[object]:
        """Return the texts of its launches: none."""
        return []


def _saved(_figure: object, path: Path) -> None:
    path.write_text("a picture")


def _words(param: click.Parameter) -> st.SearchStrategy[list[str]]:
    """Return an option as written on a command line, mostly with a valid value."""
    flags = st.sampled_from([*param.opts, *param.secondary_opts])
    if isinstance(param, click.Option) and param.is_flag:
        return st.builds(lambda flag: [flag], flags)
    others = TO_WRITE if param.name in WRITTEN else TO_READ
    usual = VALUES.get(str(param.name)) or others
    values = st.sampled_from([*usual * (200 // len(usual)), *STRANGE, *others])
    if isinstance(param, click.Argument):
        return st.builds(lambda value: [value] if isinstance(value, str) else [*value], values)
    return st.builds(lambda flag, value: [flag, value], flags, values)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Return the words of a command line: what a command needs mostly, and a few of its options.

    --debug is left out, which is there to show a traceback.
    """
    name = draw(st.sampled_from(sorted(main.commands)))
    params = [one for one in main.commands[name].params if one.name != "debug"]
    names = draw(st.sampled_from(NEEDED.get(name, [()])))
    needed = [one for one in params if one.name in names]
    chosen = [one for one in needed if draw(st.integers(0, 19))]
    others = [one for one in params if one not in needed]
    chosen += draw(st.lists(st.sampled_from(others), max_size=3, unique_by=id))
    # Words after a program are the program's own, also for `trace`.
    chosen.sort(key=lambda one: one.name == "program")
    words = [name, *itertools.chain.from_iterable(draw(_words(one)) for one in chosen)]
    if name == "trace" and "--dry-run" not in words:
        words.insert(1, "--dry-run")
    rare = draw(st.integers(0, 39))
    if rare == 1:
        words.insert(draw(st.integers(0, len(words))), draw(st.sampled_from(STRANGE)))
    elif rare == 2:
        words.append(draw(st.sampled_from(["--help", "--nonsense", "--version", "-h"])))
    elif rare == 3:
        words += draw(_words(draw(st.sampled_from(params))))
    elif rare == 4:
        words = words[: draw(st.integers(0, len(words)))]
    return words


def _run(words: list[str], *, gpu: bool) -> subprocess.CompletedProcess[str]:
    """Return the tool's result in this process."""
    here = HERE if gpu else ()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("torch.cuda.is_available", return_value=gpu))
        for module in ("inputs", "cli.doctor", "gpus", "measuring.process", "measuring.verify"):
            name = f"occupancy_lab.{module}.present_gpus"
            stack.enter_context(mock.patch(name, return_value=here))
        stack.enter_context(within(SECONDS))
        return run(*words, text=POINTS)


@pytest.mark.parametrize("part", range(PARTS))
def test_any_command_line_is_answered(folders: dict[str, str], part: int) -> None:
    """A command line gives an answer, or exit 2 and one sentence that is no accident; never both.

    What is printed for --json is strict JSON.
    """

    @seed(part)
    @settings(
        max_examples=-(-EXAMPLES // PARTS),
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(words=command_lines(), gpu=st.booleans())
    def answer(words: list[str], gpu: bool) -> None:  # noqa: FBT001 - hypothesis passes it so
        words = [
            word.replace("{in}", folders["in"]).replace("{out}", folders["out"]) for word in words
        ]
        check_answered(words, _run(words, gpu=gpu))

    answer()
