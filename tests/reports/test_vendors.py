"""The sentences of the page that compares AMD and NVIDIA follow from its rows."""

import csv
from importlib.metadata import version
from pathlib import Path

import amd_nvidia
import pytest
from amd_nvidia import SHOWN_WARPS, vendors_page
from vendors import Vendors, make_vendors, recorded_vendors
from vendors_formula import make_formulas
from vendors_stages import make_stages

from occupancy_lab import load_kernel
from occupancy_lab.compiled_records import compile_matrix
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.gpus import HipArchitecture, find_gpu
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.occupancy import Rocm
from occupancy_lab.record import Record
from occupancy_lab.text.document import to_markdown
from occupancy_lab.throughput.launch_time import MEASURED
from occupancy_lab.values import Config, Problem

REPORTS = Path(__file__).parent.parent.parent / "reports"


@pytest.fixture(scope="module")
def vendors() -> Vendors:
    """Return the recorded configurations."""
    return recorded_vendors()


def read() -> list[dict[str, str | float]]:
    """Return the rows of the file, with empty cells as pandas reads them."""
    text = (REPORTS / "data" / "vendors.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return [{name: cell or float("nan") for name, cell in row.items()} for row in rows]


def in_words(vendors: Vendors) -> str:
    """Return the page without its pictures."""
    return to_markdown(vendors_page(vendors).blocks(None))


def published(record: Record, num_regs: int) -> int:
    """Return the programs by the lines of Triton's tutorial, given a driver's numbers."""
    mp, taken, warps = record.gpu.architecture, record.resources, record.config.num_warps
    held = num_regs // (taken.n_regs * mp.warp_size * warps)
    if isinstance(mp, HipArchitecture):
        num_gprs = num_regs * (2 if mp.target_name == "gfx942" else 1)
        waves = min(num_gprs // mp.warp_size // taken.n_regs, mp.max_threads // mp.warp_size)
        held = waves // warps
    return min(held, mp.max_shared // taken.shared)


def test_the_formula_is_the_tutorials(vendors: Vendors) -> None:
    """The page's numbers for the tutorial's formula are those of the tutorial's own lines."""
    seen = set()
    for formula in make_formulas(vendors):
        old = formula.rocm is Rocm.OLD
        for case in formula.cases:
            said = case.said.programs_per_multiprocessor
            if case.record.resources.shared == 0:
                assert said is None
                continue
            registers = 65536 if old else formula.gpu.architecture.registers
            assert said == published(case.record, registers)
            seen.add((formula.gpu.key, formula.rocm))
        numbers = (formula.right, formula.too_many, formula.too_few, formula.fails)
        assert sum(numbers) == len(formula.cases)
    assert ("mi300x", Rocm.OLD) in seen
    assert ("mi350x", Rocm.OLD) not in seen


def test_a_compile_that_failed_is_counted(vendors: Vendors) -> None:
    """A row without a binary is named by its status, and left out of everything that needs one."""
    rows = read()
    failed = next(row for row in rows if row["gpu"] == "h100" and row["num_warps"] == "4")
    failed.update(status="timed out", reason="it took longer than 120 s", n_regs=float("nan"))
    fewer = make_vendors(rows)
    assert "239 ok and 1 timed out" in in_words(fewer)
    assert len(make_stages(fewer, SHOWN_WARPS).every) == 59
    assert len(make_stages(vendors, SHOWN_WARPS).every) == 60


def test_no_amd_gpu_has_confirmed_until_one_is_measured(
    vendors: Vendors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page states that no AMD GPU confirmed it until one was measured."""
    words = "No AMD GPU has confirmed a number of this page"
    assert words in in_words(vendors)
    monkeypatch.setattr(amd_nvidia, "MEASURED", (*MEASURED, "mi300x"))
    assert words not in in_words(vendors)


def test_recorded_times_are_those_of_the_model(vendors: Vendors) -> None:
    """The recorded times are those that the model predicts now, on GPUs of both vendors."""
    if version("triton") != vendors.triton:
        pytest.skip(f"compiled with Triton {vendors.triton}")
    compiler = Compiler(store_directory())
    for gpu, num_warps, num_stages in (("mi300x", 4, 1), ("h100", 8, 4), ("b200", 4, 2)):
        problem, config = Problem(4096, 781), Config(1024, num_warps, num_stages)
        kernel = NamedKernel("softmax", load_kernel("softmax"))
        found = compile_matrix(kernel, problem, config, find_gpu(gpu), compiler).prediction
        recorded = vendors.time(find_gpu(gpu), problem, num_warps, num_stages)
        assert recorded.us == pytest.approx(found.us, abs=0.001)
        assert recorded.gbs == pytest.approx(found.gbs, abs=0.1)
        assert (recorded.bound, recorded.basis) == (found.bound, found.basis)
