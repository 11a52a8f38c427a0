"""Start-up is part of the product: what is imported, and when."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from compiled_rows import compiled
from stand_ins import put_calibration

HEAVY = {"torch", "triton", "numpy", "pandas", "matplotlib", "rich", "tabulate", "platformdirs"}


def imported_by(code: str) -> set[str]:
    """Return the top-level modules that *code* imports in a fresh interpreter."""
    script = f"{code}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


HELP = """
from occupancy_lab.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
"""


def test_help_imports_click_alone() -> None:
    """--help imports click, the package and the standard library."""
    outside = imported_by(HELP) - sys.stdlib_module_names - imported_by("import click")
    assert {name for name in outside if not name.startswith("_")} <= {"occupancy_lab"}


@pytest.mark.parametrize(
    "code",
    [
        "import occupancy_lab",
        "import occupancy_lab; occupancy_lab.find_gpu('h100')",
        "import occupancy_lab.occupancy, occupancy_lab.occupancy.calculator",
        "import occupancy_lab; occupancy_lab.Problem(1, 2)",
    ],
)
def test_values_and_formulas_import_nothing_heavy(code: str) -> None:
    """The table of GPUs, the values and the formulas need only the standard library."""
    assert not imported_by(code) & HEAVY


def test_a_scan_needs_no_torch_and_no_pandas(tmp_path: Path) -> None:
    """A cache is listed on the screen or as CSV without torch, Triton, numpy or pandas."""
    (tmp_path / "A").mkdir()
    (tmp_path / "A" / "kernel.json").write_text("{", encoding="utf-8")
    (tmp_path / "A" / "kernel.cubin").write_bytes(b"")
    code = f"""
from occupancy_lab.scanning.scan import scan_views
from occupancy_lab.table.rows import Exports, View
for form in (None, "csv", "json"):
    scan_views(View(), Exports(), [{str(tmp_path)!r}], form)
"""
    assert not imported_by(code) & {"torch", "triton", "numpy", "pandas", "matplotlib"}


def test_a_gate_on_a_file_needs_no_torch_and_no_pandas(tmp_path: Path) -> None:
    """Rows of a file are checked without torch, Triton, numpy or pandas."""
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([compiled(num_stages=number) for number in range(1000)]), "utf-8")
    code = f"""
from occupancy_lab.cli import main
try:
    main(["check", "local_bytes == 0", {str(path)!r}])
except SystemExit as done:
    assert not done.code
"""
    assert not imported_by(code) & {"torch", "triton", "pandas", "numpy", "matplotlib"}


def test_stored_kernel_needs_no_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stored kernel is explained, and its time predicted, without torch or pandas."""
    put_calibration(monkeypatch, tmp_path)
    code = """
import occupancy_lab
one, other = occupancy_lab.explain(cols=781, gpu='h200,mi300x').records
assert one.prediction and other.prediction
"""
    imported_by(code)
    assert not imported_by(code) & {"torch", "pandas", "matplotlib", "scipy"}


def test_a_recorded_launch_needs_only_the_kernels_that_it_names() -> None:
    """An explanation of a recorded launch imports no unnamed kernel and not `tuning`.

    Imports for scripts, sources and sweeps are left out too: it takes a tenth of the time.
    """
    code = """
import sys, occupancy_lab
from occupancy_lab.cli import main
page = occupancy_lab.explain(cols=781, gpu='h200').to_markdown()
try:
    main(["explain", "--cols", "781", "--gpu", "h200"])
except SystemExit as ended:
    assert not ended.code
loaded = {name.removeprefix('occupancy_lab.kernels.') for name in sys.modules}
assert not [name for name in occupancy_lab.kernel_names() if name in loaded and name not in page]
others = ("tuning", "tracing.script_runs", "explaining.source", "sweeping.run")
assert not {f"occupancy_lab.{one}" for one in others} & loaded
"""
    imported_by(code)


def test_nothing_is_collected_at_exit() -> None:
    """At exit, objects are freed with the process and not searched for cycles."""
    code = f"import atexit, gc\natexit.register(lambda: print(gc.get_freeze_count()))\n{HELP}"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert int(done.stdout.split()[-1]) > 0


def test_stored_launch_needs_no_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stored launch is explained without torch or pandas."""
    put_calibration(monkeypatch, tmp_path)
    code = f"""
from occupancy_lab.tracing.explain import explain
found = explain(
    kernel={str(Path(__file__).with_name("launched_kernels.py"))!r} + ":transpose",
    signature="x_ptr=*fp16,y_ptr=*fp16,M=512,N=256",
    constexprs="BLOCK=64",
    grid="8x4",
    bytes_read="2 * M * N",
    bytes_written="2 * M * N",
    gpu="h200,mi300x",
)
assert "predicted, by events" in found.to_markdown()
"""
    imported_by(code)
    assert not imported_by(code) & {"torch", "pandas", "matplotlib", "scipy", "unittest", "asyncio"}
