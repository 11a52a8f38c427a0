"""What all tests share: a home directory, golden files, and reasons to skip GPU tests."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from shared_compilers import SharedCompilers
from warm_scripts import WarmScripts

if TYPE_CHECKING:
    from stand_ins import Launches

# Other tests run at the same time, so the duration of a draw means nothing. Each run draws anew.
settings.register_profile(
    "unhurried", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")

# In a shell's background the tests would ignore Ctrl-C, which some of them send to themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW = (
    "tests/calibrating/",
    "tests/checking/test_fixes.py::test_settings_at_their_default_are_varied",
    "tests/checking/test_outputs.py::test_a_uri_is_escaped",
    "tests/checking/test_outputs.py::test_junit_can_be_read_whatever_others_wrote",
    "tests/cli/test_cli.py",
    "tests/cli/test_command_lines.py",
    "tests/cli/test_commands.py",
    "tests/cli/test_doctor.py",
    "tests/cli/test_drawn_files.py",
    "tests/cli/test_faults.py",
    "tests/cli/test_fence.py",
    "tests/cli/test_scan.py",
    "tests/comparing/",
    "tests/compiling/test_amdgcn.py",
    "tests/compiling/test_compile.py",
    "tests/compiling/test_cubin.py",
    "tests/compiling/test_drawn_programs.py",
    "tests/compiling/test_flow.py",
    "tests/compiling/test_process.py",
    "tests/compiling/test_resources.py::test_agprs_of_mfma_kernels",
    "tests/compiling/test_resources.py::test_the_compiler_leaves_no_more_registers_than_were_asked_for",
    "tests/compiling/test_resources.py::test_the_compiler_obeys_the_option_of_a_next_step",
    "tests/compiling/test_sass.py",
    "tests/compiling/test_script.py",
    "tests/compiling/test_store.py::test_processes_share_a_store",
    "tests/evaluating/test_score.py",
    "tests/explaining/test_action.py",
    "tests/explaining/test_any_launch.py::test_where_times_are_known_the_fastest_comes_first",
    "tests/explaining/test_duration.py::test_num_stages_1_is_predicted_as_its_own_record_is",
    "tests/explaining/test_explanation.py",
    "tests/explaining/test_neighbours.py::test_the_advice_is_what_the_table_shows",
    "tests/tracing/test_script_runs.py",
    "tests/explaining/test_short.py::test_explain_compiles_what_it_names",
    "tests/explaining/test_short.py::test_json_has_what_was_recorded",
    "tests/explaining/test_short.py::test_the_answer_does_not_depend_on_the_store",
    "tests/exploring/test_page.py",
    "tests/gpus/test_table.py::test_any_text_means_a_gpu_or_is_refused",
    "tests/kernels/test_conformance.py",
    "tests/kernels/test_softmax.py",
    "tests/kernels/test_softmax_loop.py",
    "tests/kernels/test_softmax_naive.py::test_each_operation_moves_what_its_step_says",
    "tests/measuring/test_journal.py",
    "tests/measuring/test_measure.py::test_poison_imports_no_compiler",
    "tests/measuring/test_process.py",
    "tests/measuring/test_side_by_side.py",
    "tests/measuring/test_verify.py",
    "tests/occupancy/test_exact.py::test_equals_a_scan_of_every_amount",
    "tests/occupancy/test_exact.py::test_more_of_a_resource_never_runs_more",
    "tests/occupancy/test_llvm.py",
    "tests/occupancy/test_tutorial.py::test_equals_the_printed_formula",
    "tests/operators/",
    "tests/plotting/test_curves.py",
    "tests/plotting/test_style.py",
    "tests/reporting/test_benchmark.py",
    "tests/reporting/test_fresh.py",
    "tests/reporting/test_output.py",
    "tests/reporting/test_pictures.py",
    "tests/reporting/test_source.py",
    "tests/reporting/test_words.py",
    "tests/reports/",
    "tests/scanning/",
    "tests/sweeping/",
    "tests/test_imports.py",
    "tests/test_inputs.py::test_a_stage_takes_what_is_said",
    "tests/test_inputs.py::test_stages_that_cannot_fit_need_no_compile",
    "tests/test_inputs.py::test_the_stages_said_to_fit_do",
    "tests/test_own_kernels.py",
    "tests/test_package.py",
    "tests/test_readme.py",
    "tests/test_record.py::test_a_record_is_every_step_of_the_road",
    "tests/text/test_terminal.py::test_no_word_of_a_table_is_broken",
    "tests/tracing/test_dry.py",
    "tests/tracing/test_several.py",
    "tests/tracing/test_trace.py",
    "tests/tuning/",
    "tests/work/test_drawn_kernels.py",
    "tests/work/test_executed.py",
    "tests/work/test_line_tables.py",
    "tests/work/test_operations.py",
    "tests/workers/test_child.py",
    "tests/workers/test_signals.py",
)
"""Beginnings of the ids of tests that take a second or more, compile, or start a program."""
OWN_COMPILERS = ("tests/compiling/", "tests/workers/")
"""Beginnings of the ids of tests of the processes themselves, which share none."""


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
    patch.setenv("TRITON_HOME", str(home))  # a Triton that was imported before has read HOME
    patch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(home / "store"))


@pytest.fixture(scope="session")
def shared_compilers() -> Iterator[SharedCompilers]:
    """The compiling processes that tests share."""
    from shared_compilers import SharedCompilers

    with pytest.MonkeyPatch.context() as patch:
        shared = SharedCompilers(patch)
        yield shared
        shared.end()


@pytest.fixture(scope="session", autouse=True)
def warm_scripts() -> Iterator[WarmScripts]:
    """Run scripts in forks of a process that has imported torch."""
    from warm_scripts import WarmScripts

    with pytest.MonkeyPatch.context() as patch:
        warm = WarmScripts(patch)
        yield warm
        warm.end()


@pytest.fixture
def cold_scripts(warm_scripts: WarmScripts) -> Iterator[None]:
    """Run scripts of a test in new processes."""
    warm_scripts.warm = False
    yield
    warm_scripts.warm = True


@pytest.fixture(autouse=True)
def _share_compilers(request: pytest.FixtureRequest, shared_compilers: SharedCompilers) -> None:
    """Let a test use the compiling processes of earlier tests, unless a GPU is timed."""
    own = request.node.nodeid.startswith(OWN_COMPILERS) or request.node.get_closest_marker("gpu")
    shared_compilers.shared = not own
    if not shared_compilers.shared:
        shared_compilers.end()


def _why_no_gpu() -> str | None:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "no GPU that torch can use"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, and skip GPU tests with a reason if there is no GPU."""
    for item in items:
        if item.nodeid.startswith(SLOW):
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


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> "Launches":
    """Return the launches on two simulated, calibrated H200s."""
    from stand_ins import Launches, put_calibration, put_here

    put_here(monkeypatch, "h200", "h200")
    put_calibration(monkeypatch, tmp_path / "calibrated")
    stand_in = Launches()
    for module in ("sweeping.grid", "measuring.side_by_side"):
        monkeypatch.setattr(f"occupancy_lab.{module}.measure_launches", stand_in)
    return stand_in


def _try_only(patch: pytest.MonkeyPatch, is_tried: Callable[[Mapping[str, Any]], bool]) -> None:
    """Explain a launch with those launches near it alone that have such a change.

    They take most of the time of an explanation.
    """
    from occupancy_lab.explaining import explanation

    changed = explanation.changed

    def chosen(asked: Any, change: Mapping[str, Any]) -> Any:
        return changed(asked, change) if is_tried(change) else None

    patch.setattr(explanation, "changed", chosen)
    patch.setattr(explanation, "row_launch", lambda _: None)
    if not is_tried({explanation.PADDED: True}):
        patch.setattr(explanation, "aligned", lambda *_: None)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function with which explanations try nothing but changes of what it names."""
    return lambda *names: _try_only(monkeypatch, lambda change: change.keys() <= {*names})


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Explain launches without those near them, but for one stage."""
    _try_only(monkeypatch, lambda change: change == {"num_stages": 1})
