"""What all tests share: a home of their own, golden files, and why GPU tests are skipped."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Callable

# Other tests run beside each, so that how long a draw takes says nothing about it.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

TESTS = Path(__file__).parent
SLOW = (
    *(
        "calibrating",
        "comparing",
        "exploring",
        "kernels",
        "operators",
        "plotting",
        "reporting",
        "reports",
        "sweeping",
    ),
    *("throughput", "tuning", "workers", "compiling/test_amdgcn.py", "compiling/test_compile.py"),
    *("compiling/test_cubin.py", "compiling/test_elf.py", "compiling/test_flow.py"),
    *("compiling/test_pool.py", "compiling/test_process.py", "compiling/test_sass.py"),
    *("compiling/test_script.py", "explaining/test_script_runs.py", "test_own_kernels.py"),
    "cli/test_cli.py",
    *("cli/test_scan.py", "scanning"),
    *("cli/test_command_lines.py", "cli/test_commands.py", "cli/test_doctor.py"),
    "cli/test_drawn_files.py",
    *("cli/test_faults.py", "cli/test_fence.py", "evaluating/test_score.py"),
    *("explaining/test_explanation.py", "measuring/test_journal.py", "measuring/test_ncu.py"),
    *("measuring/test_process.py", "measuring/test_verify.py", "occupancy/test_cuda.py"),
    *("occupancy/test_hip.py", "occupancy/test_llvm.py", "occupancy/test_points.py"),
    *("test_imports.py", "test_package.py", "test_readme.py"),
)
"""The files and folders whose tests compile, draw, or start processes: they are marked slow."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let golden files be rewritten."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the user's folders out of the tests, and the tests out of the user's folders.

    One home directory, with one store and one Triton cache, serves the whole session: the workers
    of pytest-xdist, and every process that a test starts, inherit it.
    """
    if hasattr(config, "workerinput"):
        return
    home = Path(tempfile.mkdtemp(prefix="occupancy-lab-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    for name in [*os.environ]:
        if name.startswith(("XDG_", "TRITON_", "OCCUPANCY_LAB_CACHE")):
            patch.delenv(name)
    patch.setenv("HOME", str(home))
    patch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(home / "store"))


def _why_no_gpu() -> str | None:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "no GPU that torch can use"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, and skip the GPU tests, with the reason, where there is no GPU."""
    slow = [TESTS / name for name in SLOW]
    for item in items:
        if any(item.path.is_relative_to(path) for path in slow):
            item.add_marker(pytest.mark.slow)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_gpu() if marked else None
    if reason is not None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a function that compares a text with its golden file, or rewrites the file.

    `pytest --update-golden` rewrites; read the difference before you commit it.
    """

    def check(name: str, text: str) -> None:
        path = request.path.parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check
